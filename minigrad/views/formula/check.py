"""`check_formula`: an op's formulas in LaTeX, compared with what its code computes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from ...engine.errors import MinigradError, UnreadableFormulaError
from ...engine.op import Op, Shaped
from ...engine.tensor import Tensor
from ...engine.types import Arguments, Array
from ...functional import grad
from . import parse
from .evaluate import evaluate
from .named import Slots

__all__ = ["FormulaCheck", "check_formula"]

TOLERANCE = {8: 1e-9, 4: 2e-4, 2: 5e-2}  # by the bytes of a float


@dataclass(frozen=True)
class FormulaCheck:
    """One formula on one sample: of the result ("out"), or of what the rule for an input gives."""

    op: str
    part: str
    formula: str
    difference: float  # relative to the largest entry; NaN where it could not be evaluated
    tolerance: float
    unread: str = ""  # why it could not be

    @property
    def ok(self) -> bool:
        return self.difference <= self.tolerance


def check_formula(op: Op) -> list[FormulaCheck]:
    r"""Evaluate every formula that an op declares, on each of its samples, beside its own code.

    `tex` must give what the kernel gives, and each of `vjp_tex`, summed to the input's shape, what
    the rule gives for a random gradient. A formula that the grammar cannot read is in the list with
    the reason, and is not `ok`.

    >>> import minigrad as mg
    >>> found = check_formula(mg.tanh)
    >>> sorted({check.part for check in found}), all(check.ok for check in found)
    (['out', 'x'], True)
    """
    found: list[FormulaCheck] = []
    for number, sample in enumerate(op.samples(np.random.default_rng(0))):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found += _checked(op, inputs, settings, np.random.default_rng(number))
    return found


def _checked(
    op: Op, inputs: Arguments, settings: Arguments, rng: np.random.Generator
) -> Iterator[FormulaCheck]:
    with np.errstate(all="ignore"):
        out = op.forward(*inputs, *deepcopy(settings))
        by_products = dict(zip(op.auxiliary, out[1:], strict=True)) if op.auxiliary else {}
        out = np.asarray(out[0] if op.auxiliary else out)
        tex, rules = op.formulas(inputs, settings, Shaped.of(out))
        named = dict(zip(op.input_names(len(inputs)), inputs, strict=True))
        known = dict(zip(op.settings, settings, strict=True))
        arrays = {name: _wide(x) for name, x in named.items()}
        slots = {name: x for name, x in (known | arrays | by_products).items() if x is not None}
        if op.variadic:
            slots[op.inputs[0]] = tuple(arrays.values())
        yield _compared(op, "out", tex, slots, out, known)
        if out.dtype.kind != "f":
            return
        g = rng.normal(size=out.shape).astype(out.dtype)
        slots |= {"g": _kept(g, known, inputs[0]), "out": _kept(out, known, inputs[0])}
        for name, expected in _gradients(op, named, settings, g).items():
            if name in rules:
                yield _compared(op, name, rules[name], slots, expected, known)


def _gradients(op: Op, inputs: Slots, settings: Arguments, g: Array) -> dict[str, Array]:
    """What the op's rules give to each floating input."""
    tensors = {
        name: Tensor(x, None, 1) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
        for name, x in inputs.items()
    }
    wanted = {name: x for name, x in tensors.items() if isinstance(x, Tensor)}
    output = Tensor.__apply__(op, tuple(tensors.values()), tuple(deepcopy(settings)))
    if not output.requires_grad:
        return {}
    return dict(zip(wanted, grad(output, [*wanted.values()], g), strict=True))


def _wide(value: object) -> object:
    """In float64, so that rounding is the code's alone."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.astype(np.float64)
    return value


def _kept(array: Array, settings: Slots, x: object) -> Array:
    """A result with the axes that were summed away, of length 1, so that it broadcasts with x."""
    array = array.astype(np.float64) if array.dtype.kind == "f" else array
    if "axis" not in settings or not isinstance(x, np.ndarray) or array.ndim >= x.ndim:
        return array
    axis = settings["axis"]
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % x.ndim)
    return np.expand_dims(array, axes) if array.ndim + len(axes) == x.ndim else array


def _compared(
    op: Op, part: str, tex: str, slots: Slots, expected: Array, settings: Slots
) -> FormulaCheck:
    tolerance = TOLERANCE[min(expected.dtype.itemsize, 8) if expected.dtype.kind == "f" else 8]
    shape, why = expected.shape, ""
    try:
        found = evaluate(parse(tex), slots, settings=settings, shape=shape)
        difference = _difference(_fitted(np.asarray(found), shape), expected)
    except (MinigradError, ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        difference, why = np.nan, str(error) or type(error).__name__
    return FormulaCheck(op.name, part, tex, difference, tolerance, why)


def _fitted(found: Array, shape: tuple[int, ...]) -> Array:
    """Summed over what was repeated, as the engine does."""
    if [n for n in found.shape if n != 1] == [n for n in shape if n != 1]:
        return found.reshape(shape)
    extra = found.ndim - len(shape)
    summed = found.sum(axis=tuple(range(extra)))
    axes = tuple(i for i, n in enumerate(shape) if extra >= 0 and n == 1 != summed.shape[i])
    try:
        return np.broadcast_to(summed.sum(axis=axes, keepdims=True), shape)
    except ValueError:
        raise UnreadableFormulaError(
            f"a value of shape {found.shape} where {shape} is due"
        ) from None


def _difference(found: Array, expected: Array) -> float:
    found = np.asarray(found, dtype=np.float64)
    expected = np.asarray(expected, dtype=np.float64)
    both = np.isfinite(found) & np.isfinite(expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if not np.all(both | same):
        return float("inf")
    largest = float(np.abs(expected[both]).max(initial=0.0)) or 1.0
    return float(np.abs(found - expected)[both].max(initial=0.0)) / largest
