"""anomaly(): stop at the first NaN or infinity, and say which op made it, where, and from what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .engine.context import observe
from .engine.errors import NonFiniteError
from .engine.node import Node
from .engine.observer import Observer
from .engine.op import Array, Op, array_of
from .engine.tensor import Tensor
from .engine.writes import caller

__all__ = ["anomaly"]


@contextmanager
def anomaly() -> Iterator[None]:
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
    with np.errstate(all="ignore"), observe(_Watch()):  # the error says more than NumPy's warning
        yield


class _Watch(Observer):
    """Looks at the result of every op, and at what every rule sends."""

    shows_inputs = False  # what runs within is what runs without

    def made(self, op: Op, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        names = map(op.input_name, range(len(inputs)))
        arguments = zip((*names, *op.settings), (*inputs, *settings), strict=True)
        operands = {name: array_of(value) for name, value in arguments}
        bad = _not_finite(result._data)
        if bad.any() and any(map(_may_mask, operands.values())):
            bad &= ~(result._data == -np.inf)
        if bad.any():
            place = result.node.place if result.node is not None else caller()
            way = f"forward of {result.path or op.name} at {place}"
            tex, _ = op.formulas(inputs, settings, result)
            raise _error(way, op, tex, ("the result", result._data), operands)

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        op = node.op
        for name, part in zip(node.plan.names, parts, strict=True):
            part = array_of(part)
            if part is not None and _not_finite(part).any():
                tex = op.vjp_tex[op.inputs[0] if op.variadic else name]
                operands = {"the incoming gradient": array_of(gradient)}
                bad = f"the gradient of {name}", part
                way = f"backward of {node.path} at {node.place}"
                raise _error(way, op, tex if isinstance(tex, str) else "", bad, operands)


def _not_finite(value: Any) -> Array:
    """Where an array has NaN or infinity; integers never have."""
    array = np.asarray(value)
    return ~np.isfinite(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def _may_mask(value: Any) -> bool:
    """Whether -inf in a result may be on purpose, because this operand is a mask."""
    if not isinstance(value, np.ndarray | float):
        return False
    return getattr(value, "dtype", None) == np.bool_ or bool((np.asarray(value) == -np.inf).any())


def _error(
    way: str, op: Op, tex: str, bad: tuple[str, Any], operands: dict[str, Any]
) -> NonFiniteError:
    """The error of the first value that is not finite."""
    numbers = {
        name: value
        for name, value in operands.items()
        if isinstance(value, np.ndarray | float | int)
    }
    carried = ", ".join(name for name, value in numbers.items() if _not_finite(value).any())
    blame = f"carried it on from {carried}" if carried else "made it from finite operands"
    lines = [f"{way}: {op.name} {blame}"]
    if tex:
        lines.append(f"  formula: {tex}")
    lines += [_line(name, value) for name, value in (bad, *numbers.items())]
    return NonFiniteError("\n".join(lines))


def _line(name: str, value: Any) -> str:
    """An operand's shape, range and first bad index."""
    array = np.asarray(value)
    line = f"  {name}: shape {array.shape}, {array.dtype}"
    if array.dtype.kind not in "fc" or array.size == 0:
        return line
    bad = _not_finite(array)
    if not bad.all():
        line += f", finite entries in [{array[~bad].min():.4g}, {array[~bad].max():.4g}]"
    if bad.any():
        index = np.argwhere(bad)[0].tolist()
        line += f", {int(bad.sum())} not finite, first {array[tuple(index)]} at {index}"
    return line
