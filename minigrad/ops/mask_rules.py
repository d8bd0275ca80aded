"""Masks as rules of positions: whether query i may see key j, without an (n, m) array.

    rule = Window(64) & Causal()  # at most 63 tokens back, and none ahead
    rule = Window(64) | Global((0,))  # or keys and queries of the first token

Attention in tiles evaluates a rule block by block and skips the blocks in which no key is seen; the
exact form takes the whole array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError

__all__ = ["AllOf", "AnyOf", "Causal", "Global", "MaskRule", "Shifted", "Window"]


class MaskRule:
    """Which keys a query may see. A rule is immutable, and rules of equal settings are equal.

    >>> (Causal() & Window(2)).array(3, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """

    relative = True  # whether only the distance i - j matters

    def within(self, rows: slice, keys: slice) -> MaskRule | bool:
        """The simplest rule that is equal for these queries and keys; True if all keys are seen,
        False if none is.
        """
        raise NotImplementedError

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        """Whether each of these queries sees each of these keys: (rows, keys)."""
        raise NotImplementedError

    def tex(self, i: str = "i") -> str:
        """LaTeX of which keys j a query at position i sees.

        >>> print((Causal() & Window(64)).tex())
        j \\le i, |i - j| \\lt 64
        """
        raise NotImplementedError

    def block(self, rows: slice, keys: slice) -> NDArray[np.bool_] | Literal["all", "none"]:
        """The entries, or in one word: "all" or "none".

        >>> Causal().block(slice(4, 8), slice(0, 4)), Causal().block(slice(0, 4), slice(4, 8))
        ('all', 'none')
        """
        rule = self.within(rows, keys)
        if isinstance(rule, bool):
            return "all" if rule else "none"
        return rule.entries(rows, keys)

    def array(self, n: int, m: int) -> NDArray[np.bool_]:
        """The mask of n queries over m keys, both from position 0 on: (n, m)."""
        return self.entries(slice(0, n), slice(0, m))

    def shifted(self, offset: int) -> MaskRule:
        """The rule for queries of which the first is at position `offset`, as after a cache.

        >>> Causal().shifted(2).array(1, 4)
        array([[ True,  True,  True, False]])
        """
        return Shifted(self, index(offset)) if offset else self

    def __and__(self, other: MaskRule) -> MaskRule:
        """A key is seen if both rules say so."""
        return AllOf((self, other))

    def __or__(self, other: MaskRule) -> MaskRule:
        """A key is seen if either rule says so."""
        return AnyOf((self, other))


# ---------------------------------------------------------------- rules of the distance i - j


@dataclass(frozen=True)
class Causal(MaskRule):
    """Keys at the query's own position and before: j ≤ i."""

    def within(self, rows: slice, keys: slice) -> MaskRule | bool:
        nearest, farthest = _distances(rows, keys)
        return nearest >= 0 or (self if farthest >= 0 else False)

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        return _by_distance(rows, keys, lambda distance: distance >= 0)

    def tex(self, i: str = "i") -> str:
        return rf"j \le {i}"


@dataclass(frozen=True)
class Window(MaskRule):
    """Keys on both sides, the query's own among them: of each `dilation`-th, the nearest `size`.

    |i - j| < size · dilation, and dilation divides i - j.

    Raises: ArgumentError for a size or dilation below 1.
    Source: Beltagy et al. 2020, section 3.1, arXiv:2004.05150.
    """

    size: int
    dilation: int = 1

    def __post_init__(self) -> None:
        if index(self.size) < 1 or index(self.dilation) < 1:
            raise ArgumentError(f"a window's size and dilation are at least 1, got {self}")

    @property
    def reach(self) -> int:
        """The distance to the farthest key that is seen."""
        return (self.size - 1) * self.dilation

    def within(self, rows: slice, keys: slice) -> MaskRule | bool:
        least, most = _distances(rows, keys)
        if self.dilation == 1 and -self.reach <= least and most <= self.reach:
            return True
        least, most = max(least, -self.reach), min(most, self.reach)
        farthest_seen = most // self.dilation * self.dilation
        return self if farthest_seen >= least else False

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        def seen(distance: NDArray[np.intp]) -> NDArray[np.bool_]:
            return (np.abs(distance) <= self.reach) & (distance % self.dilation == 0)

        return _by_distance(rows, keys, seen)

    def tex(self, i: str = "i") -> str:
        near = rf"|{i} - j| \lt {self.size * self.dilation}"
        return near if self.dilation == 1 else rf"{near} \text{{ in steps of {self.dilation}}}"


def _distances(rows: slice, keys: slice) -> tuple[int, int]:
    """The least and the greatest i - j."""
    return rows.start - keys.stop + 1, rows.stop - 1 - keys.start


def _by_distance(
    rows: slice, keys: slice, seen: Callable[[NDArray[np.intp]], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """The entries of a rule of i - j alone: each row is the one above it, shifted by one."""
    n, m = rows.stop - rows.start, keys.stop - keys.start
    if n <= 0 or m <= 0:
        return np.zeros((max(n, 0), max(m, 0)), np.bool_)
    least, most = _distances(rows, keys)
    line = seen(np.arange(most, least - 1, -1))
    return np.ndarray((n, m), np.bool_, line, n - 1, (-1, 1)).copy()


# ---------------------------------------------------------------- rules of positions


@dataclass(frozen=True)
class Global(MaskRule):
    """Some tokens see all keys, and all queries see them.

    >>> Global((0,)).array(3, 3).astype(int)
    array([[1, 1, 1],
           [1, 0, 0],
           [1, 0, 0]])
    """

    tokens: tuple[int, ...]
    relative = False

    def within(self, rows: slice, keys: slice) -> MaskRule | bool:
        inside = range(rows.start, rows.stop), range(keys.start, keys.stop)
        return self if any(token in some for some in inside for token in self.tokens) else False

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        i, j = (np.isin(np.arange(some.start, some.stop), self.tokens) for some in (rows, keys))
        return i[:, None] | j

    def tex(self, i: str = "i") -> str:
        tokens = ", ".join(map(str, self.tokens))
        return rf"{i} \text{{ or }} j \in ({tokens})"


@dataclass(frozen=True)
class Shifted(MaskRule):
    """A rule for queries whose positions are their rows plus `offset`."""

    rule: MaskRule
    offset: int

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.rule.relative

    def within(self, rows: slice, keys: slice) -> MaskRule | bool:
        found = self.rule.within(self._at(rows), keys)
        return found if isinstance(found, bool) else Shifted(found, self.offset)

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        return self.rule.entries(self._at(rows), keys)

    def tex(self, i: str = "i") -> str:
        sign = "+" if self.offset > 0 else "-"
        return self.rule.tex(f"({i} {sign} {abs(self.offset)})")

    def _at(self, rows: slice) -> slice:
        return slice(rows.start + self.offset, rows.stop + self.offset)


# ---------------------------------------------------------------- rules of rules


@dataclass(frozen=True)
class _Several(MaskRule):
    """Several rules as one; if one of them is `decisive` for a whole block, so are all together."""

    rules: tuple[MaskRule, ...]
    decisive: ClassVar[bool]
    combine: ClassVar[np.ufunc]
    sign: ClassVar[str]

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return all(rule.relative for rule in self.rules)

    def within(self, rows: slice, keys: slice) -> MaskRule | bool:
        found = [rule.within(rows, keys) for rule in self.rules]
        if self.decisive in found:
            return self.decisive
        left = tuple(rule for rule in found if isinstance(rule, MaskRule))
        if len(left) < 2:
            return left[0] if left else not self.decisive
        return type(self)(left)

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        return np.asarray(self.combine.reduce([rule.entries(rows, keys) for rule in self.rules]))

    def tex(self, i: str = "i") -> str:
        return self.sign.join(rule.tex(i) for rule in self.rules)


@dataclass(frozen=True)
class AllOf(_Several):
    """A key is seen if all rules say so."""

    decisive = False
    combine = np.logical_and
    sign = ", "


@dataclass(frozen=True)
class AnyOf(_Several):
    """A key is seen if any rule says so."""

    decisive = True
    combine = np.logical_or
    sign = r" \text{ or } "
