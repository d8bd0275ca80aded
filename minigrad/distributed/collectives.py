r"""The collectives, each an op: what it gives, its formula, and its rule, which is another of them.

(r) marks what belongs to rank r.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine.declaration import Array, Call, Shaped, call
from ..engine.errors import ArgumentError, OutOfRangeError, ShapeError
from ..engine.op import op
from ..ops.samples import no_flops
from .ranks import Ranks, world

__all__ = [
    "all_gather",
    "all_reduce",
    "broadcast",
    "copy_to_ranks",
    "reduce",
    "reduce_scatter",
    "split_to_ranks",
]

WHOLE = r"\operatorname{concat}_r(%s^{(r)})"
PART = r"\operatorname{part}_r(%s)"
PART_OF_SUM = PART % r"\sum_r %s^{(r)}"


def _group(ranks: Ranks | None) -> Ranks:
    if ranks is not None and not isinstance(ranks, Ranks):
        raise ArgumentError(f"ranks must be a group of ranks or None, got {ranks!r}")
    return ranks or world()


def _agreed(name: str, x: Array, ranks: Ranks | None, **settings: object) -> tuple[Ranks, Array]:
    """The group, once all of it makes this collective, and x in C order."""
    group = _group(ranks)
    x = np.asarray(x, order="C")
    more = "".join(f", {name}={value}" for name, value in settings.items())
    group.agree(f"{name}(x{more}) of x {x.shape} {x.dtype}")
    if settings.get("root", 0) not in range(group.size):
        raise OutOfRangeError(f"root must lie in [0, {group.size}), got {settings['root']}")
    return group, x


def _parts(x: Array, p: int, axis: int) -> Array:
    """x as (p, ...): its p equal parts along an axis."""
    if x.shape[axis] % p:
        raise ShapeError(f"{p} ranks cannot share axis {axis} of length {x.shape[axis]} equally")
    return np.stack(np.split(x, p, axis))


def _adds(x: Shaped, ranks: Ranks | None) -> float:
    p = _group(ranks).size
    return (p - 1) * x.size / p


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    """With a first axis that up to 4 ranks can share."""
    yield call(rng.uniform(-1, 1, (4, 3)))
    yield call(rng.uniform(-1, 1, (5, 3, 12)).swapaxes(0, 2)[..., ::-1])
    yield call(np.zeros((4, 0)))


# ------------------------------------------------------------------ sums and copies


@op(
    tex=r"\sum_r <x>^{(r)}",
    vjp_tex={"x": r"\operatorname{copy}(<g>)"},
    flops=_adds,
    samples=_samples,
)
def all_reduce(x, ranks=None):
    """Sums an array over all ranks, and gives the sum to each, to be used alike (Megatron-LM's g).

    Raises: RankError where a rank makes another collective, or has another shape or dtype.

    >>> all_reduce(np.ones(3))
    array([1., 1., 1.])
    """
    group, x = _agreed("all_reduce", x, ranks)
    return group.all_reduce(x)


@all_reduce.vjp("x")
def _(g, ranks):
    """The sum is used alike, so its gradient is the same on every rank: it is each one's own."""
    return copy_to_ranks(g, ranks)


@op(
    tex=r"\operatorname{copy}(<x>)",
    vjp_tex={"x": r"\sum_r <g>^{(r)}"},
    flops=no_flops,
    samples=_samples,
)
def copy_to_ranks(x, ranks=None):
    """Passes on an array that is the same on every rank, which each then uses in its own way.

    Its gradient is the sum of theirs; without this op each rank would have its own part only
    (Megatron-LM's f).

    >>> copy_to_ranks(np.ones(3))
    array([1., 1., 1.])
    """
    _group(ranks)
    return np.asarray(x).view()


@copy_to_ranks.vjp("x")
def _(g, ranks):
    """The gradients of all ranks are added up, for each used the copy in its own way."""
    return all_reduce(g, ranks)


# ------------------------------------------------------------------ parts and wholes


@op(
    tex=WHOLE % "<x>",
    vjp_tex={"x": lambda apart: (PART_OF_SUM if apart else PART) % "<g>"},
    flops=no_flops,
    samples=_samples,
)
def all_gather(x, ranks=None, axis=0, apart=False):
    """Joins the parts of all ranks, one behind the other, on every rank.

    Args: apart: True where each rank uses the whole in its own way; gradients are then added up.

    >>> all_gather(np.ones(3))
    array([1., 1., 1.])
    """
    group, x = _agreed("all_gather", x, ranks, axis=axis)
    return np.concatenate(group.all_gather(x), axis)


@all_gather.vjp("x")
def _(g, ranks, axis, apart):
    """This rank's part of the gradient of the whole: of one that is alike, or of the sum."""
    return (reduce_scatter if apart else split_to_ranks)(g, ranks, axis)


@op(
    tex=PART % "<x>",
    vjp_tex={"x": WHOLE % "<g>"},
    flops=no_flops,
    samples=_samples,
)
def split_to_ranks(x, ranks=None, axis=0):
    """Takes this rank's part of an array that is the same on every rank.

    Raises: ShapeError unless the axis can be shared equally.

    >>> split_to_ranks(np.ones(3))
    array([1., 1., 1.])
    """
    group = _group(ranks)
    return _parts(np.asarray(x), group.size, axis)[group.rank]


@split_to_ranks.vjp("x")
def _(g, ranks, axis):
    """Each rank knows the gradient of its part; joined they are that of the whole."""
    return all_gather(g, ranks, axis)


@op(
    tex=PART_OF_SUM % "<x>",
    vjp_tex={"x": WHOLE % "<g>"},
    flops=_adds,
    samples=_samples,
)
def reduce_scatter(x, ranks=None, axis=0):
    """Sums an array over all ranks, and gives each rank its part of the sum.

    Raises: ShapeError unless the axis can be shared equally.

    >>> reduce_scatter(np.ones(3))
    array([1., 1., 1.])
    """
    group, x = _agreed("reduce_scatter", x, ranks, axis=axis)
    return group.reduce_scatter(_parts(x, group.size, axis))


@reduce_scatter.vjp("x")
def _(g, ranks, axis):
    """The gradient of the sum is each rank's own, and its parts are joined."""
    return all_gather(g, ranks, axis, True)


# ------------------------------------------------------------------ from and to one rank


@op(
    tex="<x>^{(<root>)}",
    vjp_tex={"x": r"[r = <root>]\,\sum_r <g>^{(r)}"},
    flops=no_flops,
    samples=_samples,
)
def broadcast(x, ranks=None, root=0):
    """Copies the root's array to every rank; each goes on in its own way. All have one shape.

    >>> broadcast(np.ones(3))
    array([1., 1., 1.])
    """
    group, x = _agreed("broadcast", x, ranks, root=root)
    return group.broadcast(x, root)


@broadcast.vjp("x")
def _(g, ranks, root):
    """The gradients of all ranks are added up for the root, whose array it was."""
    return reduce(g, ranks, root)


@op(
    tex=r"[r = <root>]\,\sum_r <x>^{(r)}",
    vjp_tex={"x": "<g>^{(<root>)}"},
    flops=_adds,
    samples=_samples,
)
def reduce(x, ranks=None, root=0):
    """Sums an array over all ranks onto the root; the others get zeros.

    >>> reduce(np.ones(3))
    array([1., 1., 1.])
    """
    group, x = _agreed("reduce", x, ranks, root=root)
    total = group.all_reduce(x)
    return total if group.rank == root else np.zeros_like(total)


@reduce.vjp("x")
def _(g, ranks, root):
    """The gradient is that of the root, which alone has the sum."""
    return broadcast(g, ranks, root)
