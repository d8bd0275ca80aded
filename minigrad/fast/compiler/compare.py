"""Whether two results are the same numbers to rounding, and how far rounding may move the outcome
of a program.

For that, the program is written again with calls of numbers that are moved by one unit in the last
place, each up or down at random. The terms of a sum are among them: where large terms cancel, what
is left of them moves as much as rounding moves it. A result that does not depend on its last digits
stays.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from ...engine.types import Array, DType, Kernel
from ...engine.writes import caller
from .partition import Unsplit
from .program import Program, ProgramStep, substitute
from .source import write

__all__ = ["Sketch", "difference", "sketched", "with_moved_digits"]

RELATIVE = {2: 2e-2, 4: 1e-3, 8: 1e-8}  # of the largest entry, by bytes of a real number
ULPS = 256  # of the scale of what was summed
SKETCHED_BYTES = 1 << 16  # larger arrays are compared by a sketch
_BLOCK = 64  # entries that one number of a sketch stands for
_SIGNS = np.random.default_rng(0).choice((-1.0, 1.0), _BLOCK)


class Sketch:
    """What is kept of a large array to compare it with another.

    Attributes:
        sums: of each 64 entries that follow one another, the sum with fixed random signs.
        largest: the largest entry.
    """

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        flat = array.reshape(-1)
        whole = flat.size - flat.size % _BLOCK
        kind = np.result_type(array.dtype, np.float32)
        with np.errstate(all="ignore"):
            sums = flat[:whole].reshape(-1, _BLOCK) @ _SIGNS.astype(kind)
            self.largest = _largest(array)
        self.sums = np.concatenate([sums, flat[whole:].astype(kind)])


def sketched(item: Any) -> Any:
    """A sketch of a large array of real numbers, a copy of a smaller one, anything else as it is.

    >>> sketched(np.ones(100)).shape, sketched(np.ones(100_000)).sums.shape
    ((100,), (1594,))
    """
    if not isinstance(item, np.ndarray):
        return item
    large = item.dtype.kind == "f" and item.nbytes > SKETCHED_BYTES
    return Sketch(item) if large else item.copy()


def _largest(array: Array) -> float:
    """The largest absolute value that is finite."""
    largest = max(float(array.max(initial=0)), -float(array.min(initial=0)))
    if np.isfinite(largest):
        return largest
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def difference(found: Any, wanted: Any, scale: float = 0.0, of: DType | None = None) -> str:
    """How two arrays differ by more than rounding, "" if they do not.

    A sum that cancels holds nothing but the rounding of its terms: `scale` is the size of these.
    `of` is the dtype that the numbers come from, where they are no more precise than that.

    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-15]))
    ''
    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    'by up to 0.5, where the largest entry is 2.5'
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype} {found.shape} in place of {wanted.dtype} {wanted.shape}"
    known = None
    if wanted.__class__ is Sketch:
        known, of = wanted.largest, wanted.dtype
        found, wanted = found.sums, wanted.sums
    kind = wanted.dtype.kind
    if kind not in "fc":
        same = np.array_equal(found, wanted)
        return "" if same else f"in {np.sum(found != wanted)} of {wanted.size} entries"
    if np.all(found == wanted):
        return ""
    with np.errstate(all="ignore"):
        apart, sizes = np.abs(found - wanted), np.abs(wanted)
        if not np.isfinite(apart.max()):  # NaN beside NaN, and an infinity beside the same, agree
            alike = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            apart = np.where(alike, 0.0, np.where(np.isnan(apart), np.inf, apart))
            sizes = np.where(np.isfinite(sizes), sizes, 0.0)
        most, largest = float(apart.max()), float(sizes.max()) if known is None else known
    precision = np.finfo(wanted.dtype if of is None else of)
    allowed = RELATIVE.get(precision.bits // 8, 1e-8) * largest
    if most <= allowed + ULPS * float(precision.eps) * scale:
        return ""
    return f"by up to {most:.2g}, where the largest entry is {largest:.2g}"


# ---------------------------------------------------------------- what rounding may do


_EXACT = ("np.maximum", "np.minimum", "np.maximum.reduce", "np.minimum.reduce", "spread")
_ROUNDS = ("elementwise", "reduce", "matmul", "kernel")


def with_moved_digits(program: Program, rng: np.random.Generator) -> Kernel:
    """The program as a function of args and kwargs, with rounding of another kind at each call."""
    moved = copy(program)
    moved.steps = [_moved(step, rng) for step in program.steps if step.kind != "check"]
    build, _ = write(moved, "rounding", caller(), Unsplit())
    return build()


def _moved(step: ProgramStep, rng: np.random.Generator) -> ProgramStep:
    """The same call, of numbers that are each moved up or down in their last place."""
    function = step.function
    rounds = step.kind in _ROUNDS or step.text in ("np.einsum", "np.cumsum")
    if not rounds or step.text in _EXACT or step.out.dtype.kind not in "fc" or function is None:
        return step

    def move(item: object) -> object:
        if not isinstance(item, np.ndarray) or item.dtype.kind not in "fc":
            return item
        sign = rng.integers(0, 2, item.shape, np.int8) * 2 - 1
        return np.asarray(item * (1 + sign * np.finfo(item.dtype).eps), item.dtype)

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = substitute((args, kwargs), move)
        made = function(*args, **kwargs)
        return made if step.kind == "kernel" else np.asarray(made, order="C")

    return replace(step, kind="kernel", function=call)
