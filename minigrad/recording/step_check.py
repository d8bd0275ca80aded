"""Backward steps compared with numeric derivatives of their ops' kernels.

A step that got the gradient g sends c back to an input x. In a random direction d, ⟨c, d⟩ must be
⟨g, f'(x) d⟩, which needs nothing but the op's own textbook kernel f, or the function that an op
which rounds is declared to be `straight_through`:

- where f is analytic and the rule names neither its input nor the result, f is affine, and f(d) is
  the derivative; if that disagrees, f may add a constant, and the next line decides;
- else, if f is analytic, the complex step Im f(x + ihd) / h, which subtracts nothing;
- elsewhere central differences; where the slopes of the two sides differ, f has a kink, and any
  slope between them is right. If the tolerance then tells little, as for the pooling of the many
  zeros that relu gives, the rule runs again on inputs moved off their kinks.

A direction depends on the number of the step alone, so the same program gives the same record.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..engine.errors import MinigradError
from ..engine.op import Op
from ..engine.refusals import EXPLAINED
from ..engine.types import Arguments, Array, DType
from .checks import BY_DERIVATIVE, CheckResult
from .formulas import Invocation
from .record import Entry, facts_of

__all__ = ["VAGUE", "check_step", "not_measured"]

TINY_STEP = {8: 1e-14, 4: 1e-6}  # of the complex step, by the bytes of a float
FLOOR = {8: 1e-30, 4: 1e-25, 2: 1e-5}  # what is smaller than this part of g counts as 0
CENTRAL_STEP = 6e-6  # about the cube root of float64's rounding unit: best for central differences
KINK = 1e-3  # the slopes on both sides of a smooth point differ by less than this part of them
EPS = {8: 2.3e-16, 4: 1.2e-7}
TOLERANCES = {8: 1e-9, 4: 1e-4, 2: 5e-2}
VAGUE = 0.2  # a tolerance from which on a check says nothing
BLURRED = 1e-3  # beyond the dtype's, one from which on the step is also checked beside its kinks
COARSEST = 1e-5  # the least tolerance of central differences
APART = 0.01, 0.3  # how far inputs are moved off a kink, in parts of their rms
TOO_NEAR = "too near kinks to tell"
POOL = 8191  # random numbers that directions are cut from: a prime, in step with no axis


class Slope(NamedTuple):
    """f'(x) d, or that from both sides of x, and how far rounding may have moved it."""

    sides: list[Array]
    noise: float
    method: str


def check_step(
    entry: Entry, call: Invocation, values: Arguments, g: Array, sent: dict[str, Array]
) -> CheckResult:
    """Measure one step, for the input whose rule differs most; if that cannot be, say why.

    Args: values: the op's inputs.  g: the gradient that came.  sent: what its rules gave, by input.
    """
    if call.op.effect:
        return not_measured(entry, "ranks run it together")
    if entry.broken:
        return not_measured(entry, "not finite")
    try:
        with np.errstate(all="ignore"):
            kinks = call.kinks(values)
            one = _Step(entry, call, values, g if kinks is None else np.where(kinks, 0, g))
            if kinks is not None:
                if not one.g.any():
                    return not_measured(entry, "at kinks, where there is no derivative")
                sent = one.ruled(list(sent))
            worst = _worst(one, sent)
            blurred = BLURRED + TOLERANCES[_bytes(g)]
            if worst is not None and worst.ok and worst.tolerance >= blurred:
                worst = _sharper(worst, _beside_kinks(one, sent))
    except (*EXPLAINED, MinigradError) as error:  # a kernel may refuse what lies beside x
        why = f"{call.op.name} refused other arguments: {error}".splitlines()[0]
        return not_measured(entry, why)
    if worst is None:
        return not_measured(entry, "not finite")
    decisive = worst.tolerance < VAGUE or not worst.ok or not worst.difference
    return worst if decisive else not_measured(entry, TOO_NEAR)


def not_measured(entry: Entry, why: str, kind: str = BY_DERIVATIVE) -> CheckResult:
    """A step of which nothing could be measured, with the reason."""
    return CheckResult(
        kind, entry.id, why=why, scope=entry.scope, path=entry.path, op=entry.op or ""
    )


def _worst(one: _Step, sent: dict[str, Array]) -> CheckResult | None:
    """The input whose rule differs most; None where a number is not finite."""
    found: list[CheckResult] = []
    for names in _together(one.call.op, list(sent)):
        check = one.measured(sent, names)
        wrong = not check.ok and len(names) > 1  # which of them is it?
        found += [one.measured(sent, [name]) for name in names] if wrong else [check]
    if not all(np.isfinite(check.excess) for check in found):
        return None
    return max(found, key=lambda check: check.excess)


def _sharper(worst: CheckResult, beside: CheckResult | None) -> CheckResult:
    """Of a check that agrees and one beside the kinks, the one that says more."""
    if beside is None or (beside.ok and beside.tolerance > worst.tolerance):
        return worst
    return beside


def _beside_kinks(one: _Step, sent: dict[str, Array]) -> CheckResult | None:
    """The rules run again on inputs moved off their kinks, farther until a check says something."""
    found = None
    for distance in APART:
        values = list(one.values)
        for i, name in enumerate(one.names):
            if name in sent:
                size = facts_of(values[i]).unmasked_rms or 1.0
                values[i] = values[i] + size * distance * _direction(values[i], 977 + i)
        beside = _Step(one.entry, one.call, tuple(values), one.g)
        worst = _worst(beside, beside.ruled(list(sent)))
        limit = VAGUE if found is None else found.tolerance
        if worst is not None and (worst.tolerance < limit or not worst.ok):
            found = replace(worst, method=f"{worst.method}, beside a kink")
    return found


def _together(op: Op, names: list[str]) -> list[list[str]]:
    """The inputs that one direction moves at once: the op is affine in those of a group."""
    groups: list[list[str]] = []
    for name in names:
        for group in groups:
            if all(_affine_in_both(op, name, other) for other in group):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _is_affine(op: Op, name: str) -> bool:
    """Whether a kernel is affine in an input: its rule names neither it nor the result."""
    own = name if name in op.inputs else op.inputs[0]
    return op.analytic and {own, "out"}.isdisjoint(op.rules[own].needs)


def _affine_in_both(op: Op, one: str, other: str) -> bool:
    """Whether the rules of two inputs name neither of them, nor the result."""
    inputs = {one, other, "out"} if not op.variadic else {*op.inputs, "others", "out"}
    rules = (op.rules[name if name in op.inputs else op.inputs[0]] for name in (one, other))
    return op.analytic and all(inputs.isdisjoint(rule.needs) for rule in rules)


class _Step:
    """One call of an op, ready to be run again beside its arguments."""

    def __init__(self, entry: Entry, call: Invocation, values: Arguments, g: Array) -> None:
        self.entry = entry
        self.call = call
        self.g = g
        self.names = call.op.input_names(len(values))
        self.values = [_single(x) for x in values]
        self.length = _length(g)

    def ruled(self, names: list[str]) -> dict[str, Array]:
        """What the op's own rules send to these inputs."""
        wanted = map(self.names.index, names)
        return dict(zip(names, self.call.gradients(self.values, wanted, self.g), strict=True))

    def measured(self, sent: dict[str, Array], moved: list[str]) -> CheckResult:
        """⟨c, d⟩ beside ⟨g, f'(x) d⟩ for one direction of the inputs `moved`."""
        places = {self.names.index(name): sent[name] for name in moved}
        toward = {i: _direction(self.values[i], 31 * self.entry.id + i) for i in places}
        mine = sum(_dot(c, toward[i]) for i, c in places.items())
        if _is_affine(self.call.op, moved[0]):
            found = self.compared(mine, [*places.values()], moved, self.linear_slope(toward, moved))
            if found.ok:
                return found
        found = self.compared(mine, [*places.values()], moved, self.slope(toward))
        if not found.ok and found.method == "central differences":  # there may be kinks
            sides = self.slope(toward, both=True)
            found = self.compared(mine, [*places.values()], moved, sides)
        return found

    def compared(
        self, mine: float, sent: list[Array], moved: list[str], slope: Slope
    ) -> CheckResult:
        parts = [np.multiply(self.g, side) for side in slope.sides]
        numeric = sum(float(part.sum()) for part in parts) / len(parts)
        gap = abs(mine - numeric)
        bytes = min(map(_bytes, (self.g, *sent)))
        sizes = [*map(_length, sent), *(_dot(part, part) ** 0.5 for part in parts)]
        size = max(*sizes, FLOOR[bytes] * self.length) or 1.0
        allowed = slope.noise * self.length + (_kinks(*parts) if len(parts) > 1 else 0.0)
        least = COARSEST if slope.method == "central differences" else 0.0
        tolerance = max(least, TOLERANCES[bytes]) + allowed / size
        names = ", ".join(moved[:3]) + " …" * (len(moved) > 3)
        return CheckResult(
            BY_DERIVATIVE,
            self.entry.id,
            measured=mine,
            expected=numeric,
            difference=gap / size,
            tolerance=tolerance,
            symbol=names,
            scope=self.entry.scope,
            path=self.entry.path,
            op=self.call.op.name,
            method=slope.method,
        )

    def linear_slope(self, toward: dict[int, Array], moved: list[str]) -> Slope:
        """f(d), which is f'(x) d where the op is linear in these inputs and those added to them."""
        added = {
            i: np.zeros_like(self.values[i])
            for i, name in enumerate(self.names)
            if i not in toward and isinstance(self.values[i], np.ndarray | float)
            if all(_affine_in_both(self.call.op, name, other) for other in moved)
        }
        there = self.kernel(added | toward)
        return Slope([there], 4 * EPS[_bytes(there)], "exact difference")

    def slope(self, toward: dict[int, Array], both: bool = False) -> Slope:
        """The derivative of the kernel in a direction; both: from both sides, by differences."""
        if self.call.op.analytic:
            tiny = TINY_STEP[_bytes(next(iter(toward.values())))]
            return Slope([self.call.slope(self.values, toward, tiny)], 0.0, "complex step")
        step = CENTRAL_STEP * (max(facts_of(self.values[i]).unmasked_rms for i in toward) or 1.0)
        toward = {i: d.astype(float) for i, d in toward.items()}
        ends = [self.moved(toward, k * step) for k in ((-1.0, 0.0, 1.0) if both else (-1.0, 1.0))]
        noise = 4 * EPS[8] * facts_of(ends[0]).unmasked_rms / step
        gaps = [b - a for a, b in pairwise(ends)]
        if facts_of(ends[0]).low == -np.inf:  # a mask's, to which no gradient came
            gaps = [np.where(self.g == 0, 0, gap) for gap in gaps]
        apart = step if both else 2 * step
        return Slope([gap / apart for gap in gaps], noise, "central differences")

    def moved(self, toward: dict[int, Array], scale: float) -> Array:
        return self.kernel({i: self.values[i] + scale * d for i, d in toward.items()})

    def kernel(self, moved: dict[int, Array]) -> Array:
        return self.call.run([moved.get(i, x) for i, x in enumerate(self.values)])


def _bytes(array: Array) -> int:
    """Of an entry, 8 at most: what is more precise is held to what float64 can tell."""
    return min(array.dtype.itemsize, 8)


def _single(value: Any) -> Array:
    """An input; of half precision in single, for its rounding hides any difference."""
    half = isinstance(value, np.ndarray) and value.dtype == np.float16
    return value.astype(np.float32) if half else value


def _direction(like: Array, seed: int) -> Array:
    """Numbers between 0.5 and 1.5 of both signs, in the shape and the dtype of an array."""
    start = 977 * seed % POOL
    return np.resize(_pool(like.dtype)[start : start + min(like.size, POOL)], like.shape)


@cache
def _pool(dtype: DType) -> Array:
    rng = np.random.default_rng(0)
    return np.tile(rng.uniform(0.5, 1.5, POOL) * rng.choice([-1, 1], POOL), 2).astype(dtype)


def _kinks(right: Array, left: Array) -> float:
    """How far apart the slopes of the two sides are, over entries at kinks."""
    jumps = np.abs(right - left)
    return float(jumps[jumps > KINK * (np.abs(right) + np.abs(left))].sum()) / 2


def _dot(a: Array, b: Array) -> float:
    return float(np.dot(a.ravel(), b.ravel()))


def _length(array: Array) -> float:
    return facts_of(array).rms * float(np.sqrt(array.size))
