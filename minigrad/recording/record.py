"""What a Trace holds: entries, edges between them, and checks against steps derived by hand.

Plain data, without Tensors: views read it, and nothing here knows how it came about.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..check import Difference

__all__ = [
    "EXPLODING",
    "VANISHING",
    "Check",
    "Checks",
    "Edge",
    "Entry",
    "Facts",
    "facts_of",
    "measure",
    "rms",
]

VANISHING, EXPLODING = 1e-8, 1e4  # rms of a gradient below and above which a view calls it so
CHUNK = 1 << 15  # entries measured at a time, so that they stay in the processor's cache


class Facts(NamedTuple):
    """What views say of an array's entries."""

    rms: float
    unmasked_rms: float  # of the entries that a mask has not set to -inf
    low: float | None  # None for no entries
    high: float | None

    @property
    def finite(self) -> bool:
        return self.low is None or bool(np.isfinite(self.rms))


def facts_of(array: Any) -> Facts:
    """The facts of an array, measured when first asked for and kept as long as the array lives."""
    known = _measured.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    facts = measure(np.asarray(array))
    if isinstance(array, np.ndarray):
        key = id(array)
        _measured[key] = weakref.ref(array, lambda _: _measured.pop(key, None)), facts
    return facts


_measured: dict[int, tuple[weakref.ref[Any], Facts]] = {}


def measure(array: Any) -> Facts:
    """One pass over an array of numbers.

    >>> measure(np.array([3.0, -4.0])).low
    -4.0
    """
    flat = array.ravel()
    if flat.size == 0:
        return Facts(0.0, 0.0, None, None)
    low, high, squares = np.inf, -np.inf, 0.0
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, CHUNK):
            part = flat[start : start + CHUNK].astype(np.float64)
            low, high = np.minimum(low, part.min()), np.maximum(high, part.max())
            squares += float(np.einsum("i,i", part, part))  # BLAS would wake its threads for this
    size = float(np.sqrt(squares / flat.size)) if 1e-140 < squares < 1e280 else rms(flat)
    unmasked = rms(flat[flat != -np.inf]) if low == -np.inf else size
    return Facts(size, unmasked, float(low), float(high))


def rms(array: Any) -> float:
    """Root of the mean square; 0 for no entries, without overflow for large ones."""
    array = np.asarray(array, dtype=np.float64)
    top = float(np.abs(array).max(initial=0.0))
    if top == 0 or not np.isfinite(top):
        return top
    return top * float(np.sqrt(np.mean((array / top) ** 2)))


@dataclass(slots=True, eq=False)
class Entry:
    """One value of the record: a leaf, a constant, or what an op made."""

    id: int
    kind: str  # "parameter", "input", "constant", "detached" or "op"
    op: str | None
    name: str | None
    scope: str
    shape: tuple[int, ...]
    dtype: str
    value: Any = None
    gradient: Any = None
    tex: str = ""
    vjp_tex: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()  # settings that the formulas leave unsaid
    place: str = ""
    flops: int | None = None
    saved: list[tuple[str, int | None]] = field(default_factory=list)  # what, and of which entry
    saved_bytes: int = 0
    seconds: float = 0.0
    backward_seconds: float | None = None
    needs: bool = False
    why: str = ""  # why there is no gradient

    @property
    def label(self) -> str:
        return self.name or self.op or f"{self.kind} {self.id}"

    @property
    def path(self) -> str:
        return f"{self.scope}/{self.label}" if self.scope else self.label

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def value_rms(self) -> float | None:
        """Of the entries that a mask has not set to -inf."""
        if self.value is None or self.value.dtype.kind not in "fiub":
            return None
        return facts_of(self.value).unmasked_rms

    @property
    def gradient_rms(self) -> float | None:
        return None if self.gradient is None else facts_of(self.gradient).rms

    @property
    def state(self) -> str:
        """ok, zero, vanishing, exploding, non-finite, or none (and then `why` says why)."""
        if self.gradient is None:
            return "none"
        facts = facts_of(self.gradient)
        size = facts.rms
        if not facts.finite:
            return "non-finite"
        if size == 0:
            return "zero"
        return "vanishing" if size < VANISHING else "exploding" if size > EXPLODING else "ok"


@dataclass(slots=True, eq=False)
class Edge:
    """One use of an entry by an op; `x * x` has two."""

    source: int
    target: int
    input: str
    contribution: Any = None  # the gradient this use sends back, if it did

    @property
    def contribution_rms(self) -> float | None:
        return None if self.contribution is None else facts_of(self.contribution).rms


@dataclass(frozen=True, slots=True)
class Check:
    """A gradient of a hand-derived step, against the engine's; `difference` is None without one."""

    scope: str
    number: int
    title: str
    forward: str
    symbol: str
    formula: str
    shape: tuple[int, ...]
    rms: float
    difference: Difference | None
    symbols: dict[str, int] = field(default_factory=dict)  # of the layer's call: symbol -> entry


class Checks(list[Check]):
    """The checks of a trace; `ok` only if something was measured and all of it agrees."""

    def __init__(self, checks: Iterable[Check] = (), skipped: Iterable[str] = ()) -> None:
        super().__init__(checks)
        self.skipped = list(skipped)  # scopes of layers that no backward ran through

    @property
    def measured(self) -> list[Check]:
        return [check for check in self if check.difference is not None]

    @property
    def ok(self) -> bool:
        return bool(self.measured) and all(c.difference.ok for c in self.measured if c.difference)

    @property
    def first_wrong(self) -> Check | None:
        return next((c for c in self.measured if c.difference and not c.difference.ok), None)
