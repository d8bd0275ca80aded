"""Checks of gradients: `gradcheck` against numeric derivatives, `compare` against a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .engine.arguments import refuse_masked
from .engine.context import enable_grad, no_grad
from .engine.errors import DTypeError, GradcheckError, GradientError
from .engine.listener import Listener, listen
from .engine.op import Op
from .engine.refusals import explained
from .engine.tensor import Operand, Tensor
from .engine.types import Arguments, Array, Gradient
from .functional import grad_or_zeros

__all__ = ["compare", "gradcheck"]

_TINY_STEP = 1e-40  # the complex step needs no tuning: nothing is subtracted
_STEP = 6e-6  # about the cube root of float64's rounding unit: best for central differences


# ---------------------------------------------------------------- against a formula


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an engine's array is from a formula's: the largest gap over its largest entry."""

    relative: float
    index: tuple[int, ...]
    engine: float
    formula: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.relative <= self.tolerance  # False for NaN


def compare(
    engine: ArrayLike, formula: ArrayLike, scale: float = 0.0, terms: float = 0.0
) -> Difference:
    """Measure an engine's array against a formula's, to 10,000 rounding units of the coarser dtype.

    Args: scale: size of what was summed; a formula that is rounding beside it (∂L/∂b_K = 0 in
        attention: softmax ignores what all keys share) has no digits of its own, and the gap is
        measured against `scale` instead.
        terms: size of the terms that may cancel in a formula, beside which its gap is measured, at
        the least.

    >>> compare(np.array([1.0, 2.0]), np.array([1.0, 2.5])).relative
    0.2
    """
    engine, formula = np.asarray(engine), np.asarray(formula)
    eps = max(np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0.0 for a in (engine, formula))
    tolerance = 1e4 * float(eps)
    if engine.shape != formula.shape:
        return Difference(float("inf"), (), float("nan"), float("nan"), tolerance)
    if engine.size == 0:
        return Difference(0.0, (), 0.0, 0.0, tolerance)
    gaps = np.abs(engine - formula)
    index = tuple(int(i) for i in np.unravel_index(np.argmax(gaps), gaps.shape))
    size, gap = float(np.abs(formula).max()), float(gaps[index])
    size = max(scale if size <= tolerance * scale else size, terms)
    relative = gap / size if size else (0.0 if gap == 0 else float("inf"))
    return Difference(relative, index, float(engine[index]), float(formula[index]), tolerance)


# ---------------------------------------------------------------- against numeric derivatives


@dataclass(frozen=True, slots=True)
class GradcheckReport:
    """What a gradcheck found: the entry where engine and numeric derivative disagree most."""

    method: str  # "complex step" or "central differences"
    order: int
    error: float  # relative, at the worst entry
    tolerance: float
    entry: str  # such as inputs[0][1, 2]
    engine: float
    numeric: float
    entries: int
    kinks: tuple[str, ...]  # entries left out, where f has no derivative

    @property
    def ok(self) -> bool:
        """Whether all that was compared agrees, and something was, unless inputs are empty."""
        compared = self.entries > 0 or not self.kinks
        return compared and self.error <= self.tolerance

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if not self.entries:
            why = "the inputs are empty"
            if self.kinks:
                why = (
                    f"all {len(self.kinks)} entries are at kinks ({self.kinks[0]} …), where f has "
                    "no derivative; choose other inputs"
                )
            return f"order {self.order} by {self.method}: nothing was compared: {why}"
        verdict = "agrees" if self.ok else "DISAGREES"
        left_out = (
            f", {len(self.kinks)} at kinks left out ({self.kinks[0]} …)" if self.kinks else ""
        )
        return (
            f"order {self.order} by {self.method}: {verdict}; "
            f"worst of {self.entries} entries{left_out}: {self.entry}, "
            f"engine {self.engine:.15g}, numeric {self.numeric:.15g}, "
            f"relative error {self.error:.1e} (tolerance {self.tolerance:.0e})"
        )


class _OpsUsed(Listener):
    def __init__(self) -> None:
        self.ops: set[Op] = set()

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        self.ops.add(op)


@explained
def gradcheck(
    f: Callable[..., Operand],
    inputs: Operand | Sequence[Operand],
    *,
    order: int = 1,
    tolerance: float | None = None,
    seed: int = 0,
) -> GradcheckReport:
    """Check the engine's gradient of f against a numeric one, entry by entry.

    The complex step, Im f(x + ih) / h, is used where every op on the way is analytic: it subtracts
    nothing and is exact to rounding. Elsewhere central differences, leaving out entries where f has
    a kink. All in float64, under a random cotangent.

    Args:
        f: function of tensors to a Tensor; it must do the same each time it is called.
        inputs: one array or Tensor, or a sequence of them; integer ones are held constant.
        order: 2 checks the gradient of the gradient as well.
        tolerance: largest relative error; 1e-10 for the complex step, 1e-6 for differences, unless
            given.
    Returns: a GradcheckReport on the worst entry.
    Raises: GradcheckError, with that report, if its error is beyond the tolerance.
    Source: Squire & Trapp 1998 (the complex step).

    >>> import minigrad as mg
    >>> mg.gradcheck(lambda x: mg.tanh(x).sum(), np.array([0.5, -1.0])).method
    'complex step'
    """
    given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    refuse_masked("gradcheck(f, inputs)", *given)
    values = [x._data if isinstance(x, Tensor) else np.asarray(x) for x in given]
    values = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in values]
    if not any(v.dtype.kind == "f" for v in values):
        kinds = ", ".join(str(v.dtype) for v in values)
        raise DTypeError(
            f"gradcheck(f, inputs): one must hold floats, got {kinds}; write 1.0 for 1"
        )
    report = _checked(_Problem(f, values, seed), 1, tolerance)
    if order >= 2 and report.ok:
        report = _checked(_Problem(f, values, seed, slope=True), 2, tolerance)
    if not report.ok:
        raise GradcheckError(f"gradcheck: {report}", report)
    return report


class _Problem:
    """The scalar whose derivative is checked: Σ u ⊙ f(x), or at second order Σ v ⊙ its gradient."""

    def __init__(
        self, f: Callable[..., Operand], values: list[Array], seed: int, slope: bool = False
    ) -> None:
        self.f = f
        self.values = values
        self.slope = slope
        self.free = [i for i, v in enumerate(values) if v.dtype.kind == "f"]
        rng = np.random.default_rng(seed)
        used = _OpsUsed()
        with no_grad(), listen(used):
            first, again = (self._output(self.values) for _ in range(2))
        if not np.array_equal(first, again, equal_nan=True):
            raise GradientError("gradcheck: f gave two different results for the same inputs")
        self.masked = np.isinf(first)  # entries of a mask: constant, so left out of the scalar
        weights = rng.uniform(0.5, 1.5, first.shape) * rng.choice([-1.0, 1.0], first.shape)
        self.cotangent = np.where(self.masked, 0.0, weights)
        size = max((float(np.abs(self.values[i]).max(initial=0)) for i in self.free), default=0)
        summands = np.abs(np.where(self.masked, 0.0, first) * self.cotangent)
        self.noise = float(np.finfo(float).eps * summands.sum()) / (size or 1.0)
        self.directions = [rng.uniform(0.5, 1.5, self.values[i].shape) for i in self.free]
        self.analytic = all(op.analytic for op in used.ops)

    def _output(self, values: list[Array]) -> Array:
        output = self.f(*(Tensor(v) for v in values))
        if not isinstance(output, Tensor | np.ndarray | np.generic | float | int):
            kind = type(output).__name__
            raise GradientError(f"gradcheck: f must return one Tensor, got {kind}")
        return output._data if isinstance(output, Tensor) else np.asarray(output)

    def _gradients(
        self, values: list[Array], create_graph: bool
    ) -> tuple[list[Tensor], list[Gradient]]:
        tensors = [Tensor(v, None, i in self.free) for i, v in enumerate(values)]
        leaves = [tensors[i] for i in self.free]
        with enable_grad():
            output = self.f(*tensors)
            gradients = grad_or_zeros(output, leaves, self.cotangent, create_graph=create_graph)
        return leaves, gradients

    def value(self, values: list[Array]) -> Any:
        """The scalar at these inputs, complex ones included."""
        if not self.slope:
            with no_grad():
                return np.sum(np.where(self.masked, 0.0, self._output(values)) * self.cotangent)
        _, gradients = self._gradients(values, create_graph=False)
        return sum(np.sum(g * v) for g, v in zip(gradients, self.directions, strict=True))

    def engine(self) -> list[Array]:
        """The scalar's gradient, by the engine."""
        leaves, gradients = self._gradients(self.values, create_graph=self.slope)
        if not self.slope:
            return gradients
        with enable_grad():
            total = sum((g * v).sum() for g, v in zip(gradients, self.directions, strict=True))
        return grad_or_zeros(total, leaves)

    def shifted(self, i: int, index: tuple[int, ...], step: complex) -> list[Array]:
        """The inputs with one entry moved; all floating ones complex if the step is."""
        dtype = complex if isinstance(step, complex) else float
        moved = [v.astype(dtype) if v.dtype.kind == "f" else v for v in self.values]
        moved[i][index] += step
        return moved

    def numeric(self, i: int, index: tuple[int, ...]) -> tuple[float, bool]:
        """The derivative in one entry, and whether f has a kink there."""
        if self.analytic:
            return float(
                np.imag(self.value(self.shifted(i, index, 1j * _TINY_STEP)))
            ) / _TINY_STEP, False
        here = self.value(self.values)
        jumps, central = [], 0.0
        for step in (_STEP, _STEP / 8):
            ahead = self.value(self.shifted(i, index, step))
            behind = self.value(self.shifted(i, index, -step))
            right, left = (ahead - here) / step, (here - behind) / step
            jumps.append(abs(right - left))
            central = central or (ahead - behind) / (2 * step)
        # of a smooth f the jump in slope shrinks with the step; at a kink it stays
        return float(central), bool(
            jumps[1] > 1e-3 * (1 + abs(central)) and jumps[1] > 0.5 * jumps[0]
        )


def _checked(problem: _Problem, order: int, tolerance: float | None) -> GradcheckReport:
    """Compare every entry; report the worst."""
    engine = problem.engine()
    method = "complex step" if problem.analytic else "central differences"
    limit = tolerance if tolerance is not None else (1e-10 if problem.analytic else 1e-6)
    rows: list[tuple[str, float, float]] = []
    kinks: list[tuple[str, float, float]] = []
    for i, gradient in zip(problem.free, engine, strict=True):
        for index in np.ndindex(gradient.shape):
            label = f"inputs[{i}]{list(index) if index else ''}"
            numeric, kink = problem.numeric(i, index)
            (kinks if kink else rows).append((label, float(gradient[index]), numeric))
    usual = float(np.sqrt(np.mean([n * n for _, _, n in rows]))) if rows else 0.0

    def error(row: tuple[str, float, float]) -> float:
        _, ours, numeric = row
        gap = abs(ours - numeric)
        if gap <= problem.noise:  # as large as rounding f's result may make it
            return 0.0
        relative = gap / max(abs(ours), abs(numeric), usual, 1e-300)
        return relative if np.isfinite(relative) else float("inf")

    worst = max(rows, key=error, default=("none", 0.0, 0.0))
    return GradcheckReport(
        method=method,
        order=order,
        error=error(worst),
        tolerance=limit,
        entry=worst[0],
        engine=worst[1],
        numeric=worst[2],
        entries=len(rows),
        kinks=tuple(label for label, _, _ in kinks),
    )
