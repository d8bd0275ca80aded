"""What a Trace holds: entries, and edges between them.

Plain data, without Tensors: `Recorder` fills it, views read it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..engine.types import Array

if TYPE_CHECKING:
    from ..engine.writes import SourceLocation
    from .checks import CheckResult

__all__ = ["Declaration", "Edge", "Entry", "Facts", "facts_of", "measure", "rms"]

Declaration: TypeAlias = dict[str, Any]  # what an op declares of one call, by name
EXTREME_RATIO = 1e4  # a gradient so much smaller than the loss's vanishes, a larger one explodes
CHUNK_ENTRIES = 1 << 15  # entries measured at a time, so that they stay in the processor's cache


class Facts(NamedTuple):
    """What views say of an array's entries."""

    rms: float
    unmasked_rms: float  # of the entries that a mask has not set to -inf
    low: float | None  # None for no entries
    high: float | None

    @property
    def finite(self) -> bool:
        return self.low is None or bool(np.isfinite(self.rms))


def _facts(array: Array | Facts | None) -> Facts | None:
    """The facts of an array of numbers, or those kept in its place; else None."""
    if array is None or isinstance(array, Facts):
        return array
    return facts_of(array) if array.dtype.kind in "fiub" else None


def facts_of(array: Array | Facts) -> Facts:
    """The facts of an array, measured once and kept as long as the array lives."""
    if isinstance(array, Facts):
        return array
    known = _measured.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    facts = measure(np.asarray(array))
    if isinstance(array, np.ndarray):
        key = id(array)
        _measured[key] = weakref.ref(array, lambda _: _measured.pop(key, None)), facts
    return facts


_measured: dict[int, tuple[weakref.ref[Array], Facts]] = {}


def measure(array: Array) -> Facts:
    """One pass over an array of numbers.

    >>> measure(np.array([3.0, -4.0])).low
    -4.0
    """
    flat = array.ravel(order="K")  # in the order of memory: a transposed array is not copied
    if flat.size == 0:
        return Facts(0.0, 0.0, None, None)
    with np.errstate(all="ignore"):
        starts = range(0, flat.size, CHUNK_ENTRIES)
        chunks = [_of_chunk(flat[i : i + CHUNK_ENTRIES]) for i in starts]
        low, high, square = chunks[0]
        if len(chunks) > 1:  # np.min and np.max keep NaN, min and max may not
            lows, highs, squares = zip(*chunks, strict=True)
            low = float(np.min(lows))
            high = float(np.max(highs))
            square = sum(squares)
    small, large = (1e-140, 1e280) if flat.dtype != np.float32 else (1e-30, 1e30)
    size = (square / flat.size) ** 0.5 if small < square < large else rms(flat)
    unmasked = rms(flat[flat != -np.inf]) if low == -np.inf else size
    return Facts(size, unmasked, low, high)


def _of_chunk(part: Array) -> tuple[float, float, float]:
    low, high = part.min(), part.max()
    if part.dtype.kind != "f" or part.itemsize < 4:
        part = part.astype(np.float64)
    square = float(np.einsum("i,i", part, part))  # a dot product by BLAS wakes its threads
    return float(low), float(high), square


def rms(array: ArrayLike) -> float:
    """Root of the mean square; 0 for no entries, without overflow for large ones."""
    array = np.asarray(array, dtype=np.float64)
    top = float(np.abs(array).max(initial=0.0))
    if top == 0 or not np.isfinite(top):
        return top
    return top * float(np.sqrt(np.mean((array / top) ** 2)))


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """One value of the record: a leaf, a constant, or the result of an op."""

    id: int
    kind: str  # "op", "parameter", "leaf" (with a gradient), "input", "constant", "detached"
    op: str | None
    name: str | None
    scope: str
    shape: tuple[int, ...]
    dtype: str
    value: Any = None  # an array, Facts of one, or None; gradient and contribution alike
    gradient: Any = None
    made_at: SourceLocation | str = ""  # decoded only when shown
    declared: Callable[[], Declaration] | Declaration | None = None  # see `declaration`
    saved: list[tuple[str, int | None]] = field(default_factory=list)  # name, and its entry
    saved_bytes: int = 0  # of arrays that no earlier op saved
    seconds: float = 0.0
    backward_seconds: float | None = None
    needs: bool = False
    is_parameter: bool = False  # a layer or an optimizer holds it, whether it is frozen or not
    calls: tuple[int, ...] = ()  # for each scope around it the number of its call, from 0
    why: str = ""  # why there is no gradient, or why it is zero in theory
    checks: dict[str, CheckResult] = field(default_factory=dict)  # of its op, by their kind
    reach: float | None = None  # the norm of its gradient over that of the loss; see `reach`
    via: Edge | None = None  # the use that sent most of it
    inserted: bool = False  # an intervention made it
    instead_of: int | None = None  # the entry that it replaced
    # of a leaf that was written to between two uses: which of its values, and the first one's entry
    value_number: int = 1
    first_value: int | None = None

    def __repr__(self) -> str:
        size = "no gradient" if self.gradient_rms is None else f"∂L rms {self.gradient_rms:.3g}"
        form = f"{self.shape} {self.dtype}"
        return f"Entry {self.id} {self.path}: {self.op or self.kind}, {form}, {size}"

    @property
    def role(self) -> str:
        """Its kind as views say it: "parameter" also of a frozen one."""
        return "parameter" if self.is_parameter and self.why == "frozen" else self.kind

    @property
    def learns(self) -> bool:
        """Whether it is a leaf with a gradient that is no input of a layer."""
        return self.kind in ("parameter", "leaf")

    @property
    def label(self) -> str:
        return (self.name or self.op or f"{self.kind} {self.leaf}") + self.which_value

    @property
    def leaf(self) -> int:
        """The number that all values of a leaf share: that of the first one's entry."""
        return self.id if self.first_value is None else self.first_value

    @property
    def which_value(self) -> str:
        """What tells a later value of a leaf from the first."""
        return f" (value {self.value_number})" if self.value_number > 1 else ""

    @property
    def path(self) -> str:
        return f"{self.scope}/{self.label}" if self.scope else self.label

    @property
    def declaration(self) -> Declaration:
        """What `formulas.Invocation` gives of the call that made it; of a leaf nothing."""
        if callable(self.declared):
            self.declared = self.declared()
        return self.declared or {}

    place = property(lambda self: str(self.made_at))
    tex = property(lambda self: self.declaration.get("tex", ""))
    vjp_tex = property(lambda self: self.declaration.get("vjp_tex", {}))
    settings = property(lambda self: self.declaration.get("settings", {}))
    unsaid = property(lambda self: self.declaration.get("unsaid", ()))  # settings no formula has
    flops = property(lambda self: self.declaration.get("flops"))
    own_op = property(lambda self: self.declaration.get("own_op", False))  # a user's
    says = property(lambda self: self.declaration.get("words", {}).get("", ""))  # what its op does

    def rule_says(self, name: str) -> str:
        """What the rule of an input does with the gradient, in a sentence, if its op says so."""
        words = self.declaration.get("words", {})
        return str(words.get(name) or words.get(name.rstrip("0123456789"), ""))

    def note(self, check: CheckResult | None) -> None:
        """Keep the result of a check, unless an earlier sweep found more, or found it wrong."""
        if check is None:
            return
        known = self.checks.get(check.kind)
        if known is None or known.ok is None or (known.ok and check.ok is not None):
            self.checks[check.kind] = check

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def value_facts(self) -> Facts | None:
        return _facts(self.value)

    @property
    def gradient_facts(self) -> Facts | None:
        return _facts(self.gradient)

    @property
    def value_rms(self) -> float | None:
        """The rms of the entries that a mask has not set to -inf."""
        facts = self.value_facts
        return None if facts is None else facts.unmasked_rms

    @property
    def gradient_rms(self) -> float | None:
        facts = self.gradient_facts
        return None if facts is None else facts.rms

    @property
    def broken(self) -> bool:
        """Whether its value holds NaN or +inf; -inf may be a mask's."""
        facts = self.value_facts
        return facts is not None and facts.high is not None and not facts.high < np.inf

    @property
    def state(self) -> str:
        """wrong, non-finite, zero, cancels (zero in theory), vanishing, exploding, ok; or none.

        Vanishing and exploding are relative to the gradient of the loss: see `reach`. `why` gives
        the reason of none and of cancels.
        """
        facts = self.gradient_facts
        if facts is None:
            return "none"
        if any(check.ok is False for check in self.checks.values()):
            return "wrong"
        if not facts.finite:
            return "non-finite"
        if self.why:
            return "cancels"
        return "zero" if facts.rms == 0 else self._relative(facts.rms)

    def _relative(self, size: float) -> str:
        """By its reach; near the ends of the dtype's range, by its size itself."""
        ends = np.finfo(self.dtype if self.dtype.startswith("float") else float)
        reach = 1.0 if self.reach is None else self.reach
        if reach < 1 / EXTREME_RATIO or size < EXTREME_RATIO * float(ends.tiny):
            return "vanishing"
        if reach > EXTREME_RATIO or size > float(ends.max) / EXTREME_RATIO:
            return "exploding"
        return "ok"


@dataclass(slots=True, eq=False)
class Edge:
    """One use of an entry by an op; `x * x` has two."""

    source: int
    target: int
    input: str
    contribution: Any = None  # the gradient that this use sent back

    @property
    def contribution_rms(self) -> float | None:
        facts = _facts(self.contribution)
        return None if facts is None else facts.rms
