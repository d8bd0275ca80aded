r"""The collectives, each an op: what it gives, its formula, its rule, and the bytes that it sends.

(r) marks what belongs to rank r. The rule of each is another of them, so that they check each other
at second order. Bytes are those that one rank sends where the ranks form a ring and each sends on
what it was sent (Thakur, Rabenseifner & Gropp 2005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ..engine.context import current
from ..engine.errors import OutOfRangeError, RankError, ShapeError
from ..engine.op import Call, Op, Shaped, call, registry
from ..engine.tensor import SameArray, TensorOrArray
from ..engine.types import Array
from ..ops.samples import no_flops
from ..ops.select import where
from ..recompute import run_once
from .ranks import CollectiveCall, Ranks

GivenRanks: TypeAlias = Ranks | CollectiveCall | None

SENDS: dict[str, Callable[[int, int, int], int]] = {
    "sum": lambda x, out, p: 2 * x * (p - 1) // p,
    "parts": lambda x, out, p: min(x, out) * (p - 1),
    "sum of parts": lambda x, out, p: min(x, out) * (p - 1),
    "one": lambda x, out, p: x if p > 1 else 0,
    "root": lambda x, out, p: x * (p - 1) // p,
    "none": lambda x, out, p: 0,
}
"""Bytes that each of p ranks sends, from the bytes of what it gives and of what it gets; of a
broadcast the mean, for the last in the ring sends nothing on."""


class Collective(Op):
    """An op that ranks run together.

    Attributes: rule: the name of the collective that its gradient takes.  sends: a key of SENDS.
    """

    rule: str
    sends: str

    def __call__(
        self, x: SameArray, ranks: GivenRanks = None, *settings: int, **named: int
    ) -> SameArray:
        found: SameArray = super().__call__(x, CollectiveCall.of(ranks, x), *settings, **named)
        return found

    def count_bytes(self, x: Shaped | Array, out: Shaped | Array, p: int) -> tuple[int, int]:
        """Bytes that each of p ranks sends, forward and in the rule."""
        forms = Shaped.of(x), Shaped.of(out)
        back = getattr(registry[self.rule], "sends", "none")
        given, got = (_bytes_sent(form, self.sends) for form in forms)
        back_got, back_given = (_bytes_sent(form, back) for form in forms)
        return SENDS[self.sends](given, got, p), SENDS[back](back_given, back_got, p)


def _bytes_sent(form: Shaped, sends: str) -> int:
    """Of an array that travels; what is summed on the way is sent in 4 bytes an entry at least."""
    wide = sends.startswith("sum") and form.dtype.char in "e?"
    return int(form.size * (4 if wide else form.dtype.itemsize))


def collective(
    tex: str, g_tex: str, rule: str, sends: str
) -> Callable[[Callable[..., Any]], Collective]:
    """Declare one: the formulas of its result and of its rule, which is another collective."""

    def declare(kernel: Callable[..., Any]) -> Collective:
        made = registry[kernel.__name__] = Collective(
            kernel,
            tex=tex,
            vjp_tex={"x": g_tex},
            flops=_adds if "sum" in tex else no_flops,
            samples=_samples,
            effect=True,
        )
        made.rule, made.sends = rule, sends

        def back(g: TensorOrArray, ranks: GivenRanks, **settings: int) -> TensorOrArray:
            return registry[rule](g, CollectiveCall.of(ranks, g).back(made.name), **settings)

        rules: dict[tuple[str, ...], Callable[..., Any]] = {
            (): lambda g, ranks: back(g, ranks),
            ("axis",): lambda g, ranks, axis: back(g, ranks, axis=axis),
            ("root",): lambda g, ranks, root: back(g, ranks, root=root),
            ("by",): lambda g, ranks, by: back(g, ranks, by=-by),
        }
        back_of_these = rules[made.settings[1:]]
        back_of_these.__doc__ = f"The gradient goes back by {rule}, which all ranks run together."
        made.vjp("x")(back_of_these)
        return made

    return declare


def _adds(x: Shaped, ranks: GivenRanks) -> int:
    p = 1 if ranks is None else ranks.size
    return int((p - 1) * x.size // p)


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    """With a first axis that up to 4 ranks can share."""
    yield call(rng.uniform(-1, 1, (4, 3)))
    yield call(rng.uniform(-1, 1, (5, 3, 12)).swapaxes(0, 2)[..., ::-1])
    yield call(np.zeros((4, 0)))


def _sent(
    op: str, x: Array, ranks: GivenRanks, move: Callable[[Ranks, Array], Array], **settings: int
) -> Array:
    """Agree with the other ranks on the call, then move x; once, also under a checkpoint."""
    call, x = CollectiveCall.of(ranks, x), np.asarray(x, order="C")
    if "root" in settings:
        _check_root(settings["root"], call)

    def effect() -> Array:
        call.agree(op, x, settings)
        return move(call.ranks, x)

    return run_once(effect)


def _check_root(root: int, call: CollectiveCall, op: str = "") -> None:
    if not 0 <= root < call.size:
        raise OutOfRangeError(f"{op}root must lie in [0, {call.size}), got {root}")


def _check_alike(op: str, x: Array, ranks: GivenRanks) -> None:
    """Within `mg.anomaly()`: raise RankError unless x is the same on every rank, to rounding."""
    call = CollectiveCall.of(ranks, x)
    if call.size == 1 or not any(x.compares_ranks for x in current().listeners):
        return
    x = np.asarray(x)
    call.agree(f"anomaly compares {op}", x, {})
    sums = call.ranks.all_gather(np.array([x.sum(), np.abs(x).sum()]))
    if not np.allclose(sums, sums[0], rtol=1e-5, atol=1e-5 * float(sums[:, 1].max())):
        raise RankError(
            f"{op}({call.label}): must be the same on every rank, but its entries add up to "
            f"{sums[:, 0].tolist()}\n  at {call.place}\n"
            "  where ranks use a common tensor in ways of their own, it needs copy_to_ranks"
        )


def _parts(x: Array, p: int, axis: int) -> Array:
    """x as (p, ...): its p equal parts along an axis."""
    if x.shape[axis] % p:
        raise ShapeError(f"{p} ranks cannot share axis {axis} of length {x.shape[axis]} equally")
    return np.stack(np.split(x, p, axis))


# ------------------------------------------------------------------ sums and copies


@collective(r"\sum_r <x>^{(r)}", r"\operatorname{copy}(<g>)", "copy_to_ranks", "sum")
def all_reduce(x, ranks=None):
    """Sums an array over all ranks, and gives the sum to each, to be used alike (Megatron-LM's g).

    Raises: RankError where a rank does not take part, or with another shape, dtype or name.

    >>> all_reduce(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent("all_reduce", x, ranks, lambda r, x: r.all_reduce(x))


@collective(r"\operatorname{copy}(<x>)", r"\sum_r <g>^{(r)}", "all_reduce", "none")
def copy_to_ranks(x, ranks=None):
    """Passes on an array that is the same on every rank, which each then uses in its own way.

    Its gradient is the sum of theirs; without this op each rank would have its own part only
    (Megatron-LM's f). `mg.anomaly()` checks that x is the same.

    >>> copy_to_ranks(np.ones(3))
    array([1., 1., 1.])
    """
    _check_alike("copy_to_ranks", x, ranks)
    return np.asarray(x).view()


# ------------------------------------------------------------------ parts and wholes

CONCAT_TEX, PART_TEX = r"\operatorname{concat}_r(%s^{(r)})", r"\operatorname{part}_r(%s)"


@collective(CONCAT_TEX % "<x>", PART_TEX % "<g>", "split_to_ranks", "parts")
def all_gather(x, ranks=None, axis=0):
    """Joins the parts of all ranks, one behind the other, on every rank, to be used alike on each.

    Where ranks use the whole in ways of their own, take `all_gather_apart`.

    >>> all_gather(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent(
        "all_gather", x, ranks, lambda r, x: np.concatenate(r.all_gather(x), axis), axis=axis
    )


@collective(PART_TEX % "<x>", CONCAT_TEX % "<g>", "all_gather", "none")
def split_to_ranks(x, ranks=None, axis=0):
    """Takes this rank's part of an array that is the same on every rank.

    Raises: ShapeError unless the axis can be shared equally.

    >>> split_to_ranks(np.ones(3))
    array([1., 1., 1.])
    """
    _check_alike("split_to_ranks", x, ranks)
    call = CollectiveCall.of(ranks, x)
    return _parts(np.asarray(x), call.size, axis)[call.ranks.rank]


@collective(CONCAT_TEX % "<x>", PART_TEX % r"\sum_r <g>^{(r)}", "reduce_scatter", "parts")
def all_gather_apart(x, ranks=None, axis=0):
    """Joins the parts of all ranks, one behind the other; each rank goes on in its own way.

    >>> all_gather_apart(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent(
        "all_gather_apart", x, ranks, lambda r, x: np.concatenate(r.all_gather(x), axis), axis=axis
    )


@collective(PART_TEX % r"\sum_r <x>^{(r)}", CONCAT_TEX % "<g>", "all_gather_apart", "sum of parts")
def reduce_scatter(x, ranks=None, axis=0):
    """Sums an array over all ranks, and gives each rank its part of the sum.

    Raises: ShapeError unless the axis can be shared equally.

    >>> reduce_scatter(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent(
        "reduce_scatter",
        x,
        ranks,
        lambda r, x: r.reduce_scatter(_parts(x, r.size, axis)),
        axis=axis,
    )


def scatter(x: SameArray, ranks: GivenRanks = None, *, root: int = 0, axis: int = 0) -> SameArray:
    """This rank's part of the root's x, which has the same shape everywhere; see `gather`."""
    call = CollectiveCall.of(ranks, x)
    _check_root(root, call, "scatter: ")
    return reduce_scatter(_or_zeros(call.ranks.rank == root, x), call, axis=axis)


def gather(x: SameArray, ranks: GivenRanks = None, *, root: int = 0, axis: int = 0) -> SameArray:
    """The parts of all ranks, one behind the other, on the root; zeros elsewhere.

    Composed of other collectives, for what is not done at every step.
    """
    call = CollectiveCall.of(ranks, x)
    _check_root(root, call, "gather: ")
    return _or_zeros(call.ranks.rank == root, all_gather_apart(x, call, axis=axis))


def _or_zeros(is_root: bool, x: SameArray) -> SameArray:
    """x on the root, zeros of its dtype elsewhere."""
    return where(is_root, x, np.zeros((), getattr(x, "dtype", float)))


# ------------------------------------------------------------------ from and to one rank, in a ring


@collective("<x>^{(<root>)}", r"[r = <root>]\,\sum_r <g>^{(r)}", "reduce", "root")
def broadcast(x, ranks=None, root=0):
    """Copies the root's array to every rank; each goes on in its own way. All have one shape.

    Raises: OutOfRangeError for a root that is no rank, as all that have one.

    >>> broadcast(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent("broadcast", x, ranks, lambda r, x: r.broadcast(x, root), root=root)


@collective(r"[r = <root>]\,\sum_r <x>^{(r)}", "<g>^{(<root>)}", "broadcast", "sum")
def reduce(x, ranks=None, root=0):
    """Sums an array over all ranks onto the root; the others get zeros.

    >>> reduce(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent(
        "reduce", x, ranks, lambda r, x: _or_zeros(r.rank == root, r.all_reduce(x)), root=root
    )


@collective("<x>^{(r - <by>)}", "<g>^{(r + <by>)}", "ring_shift", "one")
def ring_shift(x, ranks=None, by=1):
    """Passes each rank's array on to the next one in a ring: from the rank `by` places before.

    >>> ring_shift(np.ones(3))
    array([1., 1., 1.])
    """
    return _sent("ring_shift", x, ranks, lambda r, x: r.shift(x, by), by=by)
