"""anomaly(): stop at the first NaN or infinity, and say which op made it, where, and from what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .engine.context import Context, ContextChange, current
from .engine.errors import NonFiniteError
from .engine.listener import Listener
from .engine.op import Op
from .engine.tensor import Node, Tensor, TensorOrArray
from .engine.types import Arguments, Array, Gradient
from .engine.writes import SourceLocation, caller

__all__ = ["anomaly"]


def _bad(array: ArrayLike) -> NDArray[np.bool_]:
    """Where an array has NaN or infinity; integers never have."""
    array = np.asarray(array)
    return ~np.isfinite(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def _describe(name: str, value: ArrayLike) -> str:
    """An operand's shape, range and first bad index, in one line."""
    array = np.asarray(value)
    line = f"  {name}: shape {array.shape}, {array.dtype}"
    if array.dtype.kind not in "fc" or array.size == 0:
        return line
    bad = _bad(array)
    good = array[~bad]
    if good.size:
        line += f", finite entries in [{good.min():.4g}, {good.max():.4g}]"
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        line += f", {int(bad.sum())} not finite, first {array[index]} at {list(index)}"
    return line


class NonFiniteWatch(Listener):
    """Checks the result of every op and of every rule.

    An output may have -inf if an operand has -inf or is boolean, because masks are made so.
    """

    def __init__(self) -> None:
        self.quiet = np.errstate(all="ignore")  # the error says more than NumPy's warning
        self.rules: WeakKeyDictionary[Node, list[str]] = WeakKeyDictionary()  # their formulas

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        place = output.node.place if output.node is not None else caller()
        check_result(op, inputs, settings, output, output.path or op.name, place)
        if output.node is not None and not all(isinstance(x, str) for x in op.vjp_tex.values()):
            self.rules[output.node] = list(op.formulas(inputs, settings, output)[1].values())

    def backward(
        self, node: Node, gradient: Gradient, contributions: list[Gradient], seconds: float
    ) -> None:
        for position, part in zip(node.plan.needed, contributions, strict=True):
            tex = self.rules[node][position] if node in self.rules else ""
            check_part(node.op, position, tex, gradient, part, node.path, node.place)


def check_result(
    op: Op,
    inputs: Sequence[Any],
    settings: Sequence[Any],
    output: TensorOrArray,
    path: str,
    place: SourceLocation | str,
) -> None:
    """Raises: NonFiniteError where an op's result has NaN or infinity."""
    names = [f"{op.inputs[0]}[{i}]" for i in range(len(inputs))] if op.variadic else op.inputs
    operands = {name: _plain(value) for name, value in zip(names, inputs, strict=True)}
    operands |= dict(zip(op.settings, settings, strict=True))
    found = _plain(output)
    bad = _bad(found)
    if bad.any() and any(_may_mask(value) for value in operands.values()):
        bad &= ~(found == -np.inf)
    if bad.any():
        tex = op.tex if isinstance(op.tex, str) else op.formulas(inputs, settings, output)[0]
        raise _error("forward", op, tex, path, place, ("the result", found), operands)


def check_part(
    op: Op,
    position: int,
    tex: str,
    gradient: Gradient,
    part: Gradient,
    path: str,
    place: SourceLocation | str,
) -> None:
    """Raises: NonFiniteError where a gradient that a rule gave has NaN or infinity.

    Args: tex: the rule's formula, if that depends on the call.
    """
    if part is not None and _bad(_plain(part)).any():
        name = op.inputs[0 if op.variadic else position]
        operands = {"the incoming gradient": _plain(gradient)}
        declared = op.vjp_tex[name]
        formula = declared if isinstance(declared, str) else tex
        found = f"the gradient of {name}", _plain(part)
        raise _error("backward", op, formula, path, place, found, operands)


def _plain(value: Any) -> Any:
    return value._data if isinstance(value, Tensor) else value


def _may_mask(value: object) -> bool:
    """Whether -inf in a result may be on purpose, because this operand is a mask."""
    if not isinstance(value, np.ndarray | float):
        return False
    array = np.asarray(value)
    return array.dtype == bool or bool((array == -np.inf).any())


def _error(
    way: str,
    op: Op,
    tex: str,
    path: str,
    place: SourceLocation | str,
    found: tuple[str, Array],
    operands: dict[str, Any],
) -> NonFiniteError:
    """The error of the first value that is not finite."""
    numbers = {k: v for k, v in operands.items() if isinstance(v, np.ndarray | float | int)}
    carried = [name for name, value in numbers.items() if _bad(value).any()]
    blame = (
        f"carried it on from {', '.join(carried)}" if carried else "made it from finite operands"
    )
    lines = [
        f"{way} of {path} at {place}: {op.name} {blame}",
        *([f"  formula: {tex}"] if tex else []),  # unknown of a call before anomaly() began
        _describe(*found),
    ]
    return NonFiniteError("\n".join(lines + [_describe(name, v) for name, v in numbers.items()]))


class anomaly(ContextChange):
    """Within, the first NaN or infinity is an error: which op made it, where, and from what.

    The message names the op's path, file and line, its formula, and each operand's shape, range and
    first bad index, and says whether the op made the bad value or only carried it. A mask's -inf is
    allowed.

    Raises: NonFiniteError, forward or backward.

    >>> import minigrad as mg
    >>> with mg.anomaly():
    ...     mg.log(mg.tensor([1.0, 0.0]))
    Traceback (most recent call last):
    minigrad.errors.NonFiniteError: forward of log at ...: log made it from finite operands
      formula: \\log <x>
      the result: shape (2,), float64, finite entries in [0, 0], 1 not finite, first -inf at [1]
      x: shape (2,), float64, finite entries in [0, 1]
    """

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        return Context(now.recording, now.scope, (*now.listeners, NonFiniteWatch()), now)

    def __enter__(self) -> Self:
        entered = super().__enter__()
        watch: Any = current().listeners[-1]
        watch.quiet.__enter__()
        return entered

    def __exit__(self, *exception: object, now: Any = None) -> None:  # type: ignore[override]
        watch: Any = current().listeners[-1]
        watch.quiet.__exit__(*exception)
        super().__exit__(*exception)
