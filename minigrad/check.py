"""Checks of gradients, by one measure: what the engine has beside a numeric derivative.

Where g is the gradient of y = f(x), and c what the engine sends back to x, ⟨c, d⟩ = ⟨g, f'(x) d⟩
must hold in every direction d. `differentiate` measures the right side. `gradcheck` asks it of a
whole function, along each entry of its inputs; `check_rules`, of one call of an op, in a random
direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .autodiff import grad_or_zeros
from .engine.context import enable_grad, no_grad, observe
from .engine.errors import DTypeError, GradcheckError, GradientError
from .engine.observer import Observer
from .engine.op import Array, Op
from .engine.tensor import Tensor

__all__ = ["gradcheck"]

TINY = 1e-40  # the complex step needs no tuning: nothing is subtracted
STEP = 6e-6  # about the cube root of float64's rounding unit: best for central differences
KINK = 1e-3  # the slopes around a smooth point differ by less than this part of them
VAGUE = 0.2  # a check that cannot tell a difference of this size says nothing
TOLERANCES = {2: 5e-2, 4: 1e-4, 8: 1e-9}  # of one step, by the bytes of an entry
COARSEST = 1e-5  # the least tolerance of central differences, for one step
FLOOR = {2: 1e-5, 4: 1e-25, 8: 1e-30}  # what is smaller than this part of g counts as 0
EPS = 2.3e-16  # float64's rounding unit


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the engine has beside what it must be, where the two differ most.

    Attributes:
        difference: relative, and beyond what rounding or a kink may have caused.
        where: `inputs[0][1, 2]`, or the name of an input.  index: of the entry.
        method: "complex step", "central differences", or "formula".
        why: why nothing was compared, or "".
        order: of the derivative.  entries: how many were compared.  kinks: those left out.
    """

    measured: float = float("nan")
    expected: float = float("nan")
    difference: float = 0.0
    tolerance: float = 0.0
    where: str = ""
    index: tuple[int, ...] = ()
    method: str = ""
    why: str = ""
    order: int = 1
    entries: int = 1
    kinks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether something was compared, and it agrees."""
        return not self.why and self.difference <= self.tolerance  # False for NaN

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        by = f"order {self.order} by {self.method}" if self.method else f"order {self.order}"
        if self.why:
            return f"{by}: nothing was compared: {self.why}"
        kinks = f", {len(self.kinks)} at kinks left out ({self.kinks[0]} …)" if self.kinks else ""
        return (
            f"{by}: {'agrees' if self.ok else 'DISAGREES'}; worst of {self.entries} "
            f"entries{kinks}: {self.where}, engine {self.measured:.15g}, numeric "
            f"{self.expected:.15g}, relative error {self.difference:.1e} "
            f"(tolerance {self.tolerance:.0e})"
        )


def compare(engine: ArrayLike, formula: ArrayLike, scale: float = 0.0) -> Comparison:
    """Measure an engine's array against a formula's, to 10,000 rounding units of the coarser dtype.

    Args: scale: size of what was summed; a formula that is rounding beside it (∂L/∂b_K = 0 in
        attention: softmax ignores what all keys share) has no digits of its own, and the gap is
        measured against `scale` instead.

    >>> compare(np.array([1.0, 2.0]), np.array([1.0, 2.5])).difference
    0.2
    """
    engine, formula = np.asarray(engine), np.asarray(formula)
    eps = max(np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0.0 for a in (engine, formula))
    tolerance = 1e4 * float(eps)
    if engine.shape != formula.shape:
        return Comparison(difference=float("inf"), tolerance=tolerance, method="formula")
    if engine.size == 0:
        return Comparison(tolerance=tolerance, method="formula", entries=0)
    gaps = np.abs(engine - formula)
    index = tuple(int(i) for i in np.unravel_index(np.argmax(gaps), gaps.shape))
    size, gap = float(np.abs(formula).max()), float(gaps[index])
    size = scale if size <= tolerance * scale else size
    relative = gap / size if size else (0.0 if gap == 0 else float("inf"))
    at = float(engine[index]), float(formula[index])
    return Comparison(*at, relative, tolerance, index=index, method="formula", entries=gaps.size)


# ---------------------------------------------------------------- the numeric derivative


class Slope(NamedTuple):
    """⟨g, f'(x) d⟩, as it was measured.

    size: of the entries that are added up in it.  noise: how far rounding may have moved it.
    jump: how far apart the slopes around x are, where f has a kink.
    """

    value: float
    size: float
    noise: float = 0.0
    jump: float = 0.0

    def beside(self, mine: float, tolerance: float, least: float, where: str) -> Comparison:
        """What the engine has beside it.  least: what the difference is relative to, at least."""
        gap = abs(mine - self.value)
        size = max(least, abs(mine), abs(self.value), self.size, 1e-300)
        difference = max(gap - self.noise - self.jump, 0.0) / size
        if difference != difference:
            difference = float("inf")
        is_vague = self.jump > VAGUE * size and gap > tolerance * size >= difference * size
        why = "too near kinks to tell" if is_vague else ""
        return Comparison(mine, self.value, difference, tolerance, where, why=why)


def differentiate(
    f: Callable[[list[Any]], Array],
    values: Sequence[Any],
    toward: Mapping[int, Array],
    g: Array,
    analytic: bool,
    closely: bool = False,
) -> Slope:
    """Measure ⟨g, f'(x) d⟩.

    Args:
        f: from the inputs, an array of g's shape; where g is 0, it may be anything.
        toward: d, for the inputs that move.
        analytic: by the complex step, Im f(x + ihd) / h, which subtracts nothing. Else by central
            differences.
        closely: by the slopes on both sides, at two distances: those of a smooth f come together
            with the distance, at a kink or a jump they stay apart.
    Source: Squire & Trapp 1998 (the complex step).
    """

    def at(scale: complex) -> Array:
        moved = list(values)
        for i, d in toward.items():
            moved[i] = np.asarray(values[i] + scale * d)
        return f(moved)

    def weighted(array: Array) -> Array:
        wide = np.zeros(g.shape, np.result_type(array, np.float64))
        return np.multiply(g, array, out=wide, where=g != 0)

    if analytic:
        parts = weighted(at(1j * TINY).imag / TINY)
        return Slope(float(parts.sum()), _length(parts))
    step = STEP * (max(_rms(values[i]) for i in toward) or 1.0)
    if not closely:
        ahead = weighted(at(step))
        parts = (ahead - weighted(at(-step))) / (2 * step)
        return Slope(float(parts.sum()), _length(parts), 4 * EPS * _length(ahead) / step)
    here = weighted(at(0.0))
    distances = (step, -step, step / 8, -step / 8)
    right, left, *near = (((weighted(at(h)) - here) / h) for h in distances)
    near.append((right + left) / 2)
    high, low = np.max(near, axis=0), np.min(near, axis=0)
    noise = 32 * EPS * _length(here) / step
    apart = high - low > KINK * np.maximum(abs(high), abs(low)) + noise
    jump = np.where(apart & (high - low > abs(right - left) / 4), high - low, 0.0)
    parts = np.where(jump > 0, high + low, near[0] + near[1]) / 2
    return Slope(float(parts.sum()), _length(parts), noise, float(jump.sum()))


def _rms(array: Any) -> float:
    """The root mean square of the entries that are finite, 0 of none."""
    array = np.abs(np.asarray(array, dtype=np.float64))
    finite = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _length(array: Array) -> float:
    return float(np.linalg.norm(np.asarray(array, dtype=np.float64).ravel()))


def _at_kinks(op: Op, inputs: Sequence[Any], settings: Sequence[Any], out: Array) -> Array | None:
    """Where the result has no derivative, as the op declares; None if nowhere."""
    if op.kinks is None:
        return None
    code = op.kinks.__code__
    arrays = (list(inputs),) if op.variadic else inputs
    known = dict(zip((*op.inputs, *op.settings), (*arrays, *settings), strict=True)) | {"out": out}
    found = np.asarray(op.kinks(*[known[name] for name in code.co_varnames[: code.co_argcount]]))
    return found if found.any() else None


# ---------------------------------------------------------------- one call of an op


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
        kinks = _at_kinks(op, inputs, settings, out)
        if kinks is not None:
            g = np.where(kinks, 0, g)
            if not g.any():
                return Comparison(why="at kinks, where there is no derivative")
            sent = _sent(op, inputs, settings, g, list(sent))
        try:
            found = [_step(op, kernel, inputs, g, i, c, seed) for i, c in sent.items()]
        except _RefusedError as error:
            return Comparison(why=f"{op.name} refused other arguments: {error}")
    wrong = [one for one in found if not one.ok and not one.why]
    measured = wrong or [one for one in found if one.ok] or found
    return max(measured, key=lambda one: one.difference / (one.tolerance or 1.0))


class _RefusedError(Exception):
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


def _sent(
    op: Op, inputs: Sequence[Any], settings: Sequence[Any], g: Array, wanted: list[int]
) -> dict[int, Array]:
    """What an op's own rules send to these inputs."""
    given = [Tensor(np.asarray(x), None, 1) if i in wanted else x for i, x in enumerate(inputs)]
    with enable_grad():
        out = Tensor.__apply__(op, tuple(given), tuple(map(deepcopy, settings)))
    gradients = grad_or_zeros(out, [given[i] for i in wanted], g)
    return dict(zip(wanted, gradients, strict=True))


def _step(
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
    return _beside(
        partial(differentiate, kernel, values, {i: d}, g, op.analytic),
        op.analytic,
        mine=float(np.sum(sent * d)),
        tolerance=max(TOLERANCES[bytes], 0.0 if op.analytic else COARSEST),
        least=max(_length(sent), FLOOR[bytes] * _length(g)),
        where=f"{op.inputs[0]}{i}" if op.variadic else op.inputs[i],
    )


def _in_double(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def _beside(slope: Callable[[bool], Slope], analytic: bool, **figures: Any) -> Comparison:
    """The engine's derivative beside a numeric one; where they differ, at a closer look."""
    found = slope(False).beside(**figures)
    if not found.ok and not analytic:
        found = slope(True).beside(**figures)
    return replace(found, method="complex step" if analytic else "central differences")


# ---------------------------------------------------------------- a whole function


def gradcheck(
    f: Callable[..., Any],
    inputs: Any,
    *,
    order: int = 1,
    tolerance: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Check the engine's gradient of f against a numeric one, entry by entry.

    The complex step is used where every op on the way is analytic: it is exact to rounding.
    Elsewhere central differences, leaving out entries where f has a kink. All in float64, under a
    random cotangent.

    Args:
        f: function of tensors to a Tensor; it must do the same each time it is called.
        inputs: one array or Tensor, or a sequence of them; integer ones are held constant.
        order: 2 checks the gradient of the gradient as well.
        tolerance: largest relative error; 1e-10 for the complex step, 1e-6 for differences, unless
            given.
    Returns: a Comparison, of the worst entry.
    Raises: GradcheckError, with that as `report`, if its error is beyond the tolerance, or if
        nothing was compared.

    >>> import minigrad as mg
    >>> mg.gradcheck(lambda x: mg.tanh(x).sum(), np.array([0.5, -1.0])).method
    'complex step'
    """
    if not callable(f):
        raise DTypeError(f"gradcheck(f, inputs): f must be a function, got {type(f).__name__}")
    given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if any(isinstance(x, np.ma.MaskedArray) for x in given):
        raise DTypeError("gradcheck(f, inputs): got a masked array; write x.filled(0.0)")
    values = [np.asarray(getattr(x, "_data", x)) for x in given]
    values = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in values]
    if not any(v.dtype.kind == "f" for v in values):
        kinds = ", ".join(str(v.dtype) for v in values) or "no input"
        raise DTypeError(
            f"gradcheck(f, inputs): one must hold floats, got {kinds}; write 1.0 for 1"
        )
    for now in range(1, order + 1):
        report = _checked(_Function(f, values, seed, now), tolerance)
        if not report.ok:
            raise GradcheckError(f"gradcheck: {report}", report)
    return report


class _Used(Observer):
    """Whether every op that ran is analytic, and none met a kink of its own."""

    def __init__(self) -> None:
        self.analytic = True

    def made(self, op: Op, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        plain = [getattr(x, "_data", x) for x in inputs]
        smooth = op.analytic and _at_kinks(op, plain, settings, result._data) is None
        self.analytic = self.analytic and smooth


class _Function:
    """What is differentiated: f(x) under the cotangent u; at second order its gradient, under v."""

    def __init__(self, f: Callable[..., Any], values: list[Array], seed: int, order: int) -> None:
        self.f, self.values = f, values
        self.order = order
        self.free = [i for i, v in enumerate(values) if v.dtype.kind == "f"]
        rng, used = np.random.default_rng(seed), _Used()
        with no_grad(), observe(used):
            first, again = (self.output(values) for _ in range(2))
        if not np.array_equal(first, again, equal_nan=True):
            raise GradientError("gradcheck: f gave two different results for the same inputs")
        self.analytic = used.analytic
        weights = rng.uniform(0.5, 1.5, first.shape) * rng.choice([-1.0, 1.0], first.shape)
        self.u = np.where(np.isinf(first), 0.0, weights)  # entries of a mask are constant
        size = max(float(np.abs(values[i]).max(initial=0.0)) for i in self.free) or 1.0
        self.noise = EPS * float(np.abs(first[self.u != 0] * self.u[self.u != 0]).sum()) / size
        self.v = [rng.uniform(0.5, 1.5, values[i].shape) for i in self.free]
        self.cotangent = self.u if order == 1 else np.concatenate([x.ravel() for x in self.v])

    def output(self, values: list[Any]) -> Array:
        output = self.f(*(Tensor(v) for v in values))
        if not isinstance(output, Tensor | np.ndarray | np.generic | float | int):
            kind = type(output).__name__
            raise GradientError(f"gradcheck: f must return one Tensor, got {kind}")
        return output._data if isinstance(output, Tensor) else np.asarray(output)

    def __call__(self, values: list[Any]) -> Array:
        """f, or its gradient, at inputs of which one may be complex; then all floats are."""
        kinds = {np.asarray(v).dtype.kind for v in values}
        if "c" in kinds:
            values = [v.astype(complex) if v.dtype.kind == "f" else v for v in values]
        if self.order == 1:
            with no_grad():
                return self.output(values)
        return np.concatenate([np.ravel(g) for g in self.gradients(values)[1]])

    def gradients(
        self, values: list[Any], create_graph: bool = False
    ) -> tuple[list[Tensor], list[Any]]:
        tensors = [Tensor(v, None, int(i in self.free)) for i, v in enumerate(values)]
        leaves = [tensors[i] for i in self.free]
        with enable_grad():
            output = self.f(*tensors)
            return leaves, grad_or_zeros(output, leaves, self.u, create_graph=create_graph)

    def engine(self) -> list[Array]:
        """The gradient of ⟨u, f⟩, or of ⟨v, its gradient⟩, by the engine."""
        leaves, gradients = self.gradients(self.values, create_graph=self.order == 2)
        if self.order == 1:
            return gradients
        with enable_grad():
            total = sum((g * v).sum() for g, v in zip(gradients, self.v, strict=True))
        return grad_or_zeros(total, leaves)


def _checked(function: _Function, tolerance: float | None) -> Comparison:
    """Compare every entry; report the worst."""
    engine = function.engine()
    analytic = function.analytic
    limit = (1e-10 if analytic else 1e-6) if tolerance is None else tolerance
    usual = _rms(np.concatenate([gradient.ravel() for gradient in engine]))
    least = max(usual, function.noise / (limit or EPS))
    every: list[Comparison] = []
    for i, gradient in zip(function.free, engine, strict=True):
        for index in np.ndindex(gradient.shape):
            d = np.zeros(gradient.shape)
            d[index] = 1.0
            found = _beside(
                partial(
                    differentiate, function, function.values, {i: d}, function.cotangent, analytic
                ),
                analytic,
                mine=float(gradient[index]),
                tolerance=limit,
                least=least,
                where=f"inputs[{i}]{list(index) if index else ''}",
            )
            every.append(replace(found, index=index))
    kinks = tuple(one.where for one in every if one.why)
    compared = [one for one in every if not one.why]
    none = Comparison(why="the inputs are empty")
    if kinks:
        none = Comparison(
            why=f"all {len(kinks)} entries are at kinks ({kinks[0]} …), where f has no derivative; "
            "choose other inputs"
        )
    worst = max(compared, key=lambda one: one.difference, default=none)
    return replace(worst, order=function.order, entries=len(compared), kinks=kinks)
