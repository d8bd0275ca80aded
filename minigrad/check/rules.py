"""The rules of one call of an op, held against a derivative of its kernel in a random direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from ..autodiff import grad_or_zeros
from ..engine.context import enable_grad
from ..engine.declaration import Array, call_by_name
from ..engine.op import Op
from ..engine.tensor import Tensor
from .comparison import Comparison
from .derivative import beside, differentiate, length

__all__ = ["at_kinks", "check_rules", "kernel_of"]

TOLERANCES = {2: 5e-2, 4: 1e-4, 8: 1e-9}  # of one step, by the bytes of an entry
COARSEST = 1e-5  # the least tolerance of central differences, for one step
FLOOR = {2: 1e-5, 4: 1e-25, 8: 1e-30}  # what is smaller than this part of g counts as 0


def check_rules(
    op: Op,
    inputs: Sequence[Any],
    settings: Sequence[Any],
    g: Array,
    sent: Mapping[int, Array],
    seed: int = 0,
) -> Comparison:
    """Hold what the rules of one call sent to its inputs against a derivative of its kernel.

    Args:
        inputs, settings: plain, in the op's order; a generator as the call found it.
        g: the gradient of the result.  sent: by the position of an input, what its rule gave.
        seed: of the directions.
    Returns: the input whose rule differs most.

    >>> from minigrad import registry
    >>> x = np.array([0.5, 2.0])
    >>> check_rules(registry["square"], [x], [], np.ones(2), {0: 2 * x}).ok
    True
    >>> wrong = check_rules(registry["square"], [x], [], np.ones(2), {0: 2.01 * x})
    >>> wrong.ok, wrong.where, round(wrong.difference, 3)
    (False, 'x', 0.005)
    """
    if not all(np.isfinite(array).all() for array in (g, *sent.values())):
        return Comparison(why="not finite")
    kernel = kernel_of(op, settings)
    with np.errstate(all="ignore"):
        out = kernel(list(inputs))
        if np.isnan(out).any():
            return Comparison(why="not finite")
        kinks = at_kinks(op, inputs, settings, out)
        if kinks is not None:
            g = np.where(kinks, 0, g)
            if not g.any():
                return Comparison(why="at kinks, where there is no derivative")
            sent = _sent_by_rules(op, inputs, settings, g, list(sent))
        try:
            by_input = [_check_input(op, kernel, inputs, g, i, c, seed) for i, c in sent.items()]
        except _RefusedError as error:
            return Comparison(why=f"{op.name} refused other arguments: {error}")
    wrong = [rule for rule in by_input if rule.ok is False]
    right = [rule for rule in by_input if rule.ok]
    return max(wrong or right or by_input, key=lambda rule: rule.difference / (rule.tolerance or 1))


class _RefusedError(ValueError):
    """A user's kernel does not take what lies beside its inputs."""


def kernel_of(op: Op, settings: Sequence[Any]) -> Callable[[list[Any]], Array]:
    """An op's textbook kernel as a function of its inputs; it draws the same numbers each time."""

    def run(inputs: list[Any]) -> Array:
        drawn = [deepcopy(x) if isinstance(x, np.random.Generator) else x for x in settings]
        try:
            out = op.flat(*inputs, *drawn)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise _RefusedError(str(error).partition("\n")[0]) from error
        return np.asarray(out[0] if op.auxiliary else out)

    return run


def at_kinks(op: Op, inputs: Sequence[Any], settings: Sequence[Any], out: Array) -> Array | None:
    """Where the result has no derivative, as the op declares; None if nowhere."""
    if op.kinks is None:
        return None
    kinks = np.asarray(call_by_name(op.kinks, op.by_name(inputs, settings, out)))
    return kinks if kinks.any() else None


def _sent_by_rules(
    op: Op, inputs: Sequence[Any], settings: Sequence[Any], g: Array, wanted: list[int]
) -> dict[int, Array]:
    """What an op's own rules send to these inputs."""
    leaves = [Tensor(np.asarray(x), None, 1) if i in wanted else x for i, x in enumerate(inputs)]
    with enable_grad():
        out = Tensor.__apply__(op, tuple(leaves), tuple(map(deepcopy, settings)))
    gradients = grad_or_zeros(out, [leaves[i] for i in wanted], g)
    return dict(zip(wanted, gradients, strict=True))


def _check_input(
    op: Op,
    kernel: Callable[[list[Any]], Array],
    inputs: Sequence[Any],
    g: Array,
    i: int,
    sent: Array,
    seed: int,
) -> Comparison:
    """⟨c, d⟩ beside ⟨g, f'(x) d⟩ for one input; in float64, for rounding hides differences."""
    rng = np.random.default_rng([seed, i])
    d = rng.uniform(0.5, 1.5, sent.shape) * rng.choice([-1.0, 1.0], sent.shape)
    values = [_in_double(x) for x in inputs]
    bytes = min(x.dtype.itemsize for x in (g, sent))
    return beside(
        partial(differentiate, kernel, values, {i: d}, g, op.analytic),
        op.analytic,
        engine=float(np.sum(sent * d)),
        tolerance=max(TOLERANCES[bytes], 0.0 if op.analytic else COARSEST),
        least=max(length(sent), FLOOR[bytes] * length(g)),
        where=op.input_name(i),
    )


def _in_double(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
