"""Sizes: which lengths of axes are symbols, and what numbers of the program are made of them.

A function is called at several sizes, and its programs are laid side by side. A number that is the
same in all of them is a constant; one that is not must be a sum of products of symbols, such as
2 · length − 1, that gives it in every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import isfinite, prod

__all__ = ["Number", "Size", "fit_number", "fit_size"]

Monomial = tuple[str, ...]


class Size:
    """A sum of products of symbols: {("batch", "length"): 2, (): 1} is 2 · batch · length + 1."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = terms

    def at(self, sizes: dict[str, int]) -> int:
        """Its value, where the symbols have these."""
        return sum(c * prod(sizes[s] for s in of) for of, c in self.terms.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        parts = [
            "*".join([*([str(c)] if c != 1 or not of else []), *of]) for of, c in self.terms.items()
        ]
        return " + ".join(parts)


class Number:
    """A float that sizes determine: a power of a Size, such as 1 / √length."""

    __slots__ = ("power", "size")

    def __init__(self, size: Size, power: float) -> None:
        self.size, self.power = size, power


def fit_size(values: Sequence[int], sizes: Sequence[dict[str, int]]) -> int | Size | None:
    """A number, or the simplest sum of products of symbols, that gives each value at its sizes."""
    if all(value == values[0] for value in values):
        return values[0]
    exact = [Fraction(value) for value in values]
    for monomials in _candidates([*sizes[0]]):
        found = _solve(monomials, exact, sizes)
        if found is not None and all(found.at(s) == v for s, v in zip(sizes, exact, strict=True)):
            return found
    return None


def fit_number(values: Sequence[float], sizes: Sequence[dict[str, int]]) -> Number | None:
    """A power of a Size that gives each value."""
    if not all(isfinite(value) and value > 0 for value in values):
        return None
    for power in (1.0, -1.0, 0.5, -0.5):
        roots = [value ** (1 / power) for value in values]
        whole = [round(root) for root in roots]
        near = all(abs(r - w) <= 1e-9 * abs(r) for r, w in zip(roots, whole, strict=True))
        size = fit_size(whole, sizes) if near else None
        if isinstance(size, Size):
            return Number(size, power)
    return None


def _candidates(symbols: list[str]) -> Iterator[tuple[Monomial, ...]]:
    """Sets of products, the simplest first: c · s, then c · s + d, and so on."""
    one: Monomial = ()
    alone = [(s,) for s in symbols]
    pairs = [(s, t) for i, s in enumerate(symbols) for t in symbols[i:]]
    every: list[Monomial] = [*alone, *pairs, *combinations(symbols, 3)]
    yield from ((of,) for of in every)
    yield from ((of, one) for of in every)
    yield from ((*two, one) for two in combinations(alone, 2))
    yield from ((*two, one) for two in combinations([*alone, *pairs], 2))


def _solve(
    monomials: tuple[Monomial, ...], values: list[Fraction], sizes: Sequence[dict[str, int]]
) -> Size | None:
    """Coefficients that give as many of the values, at sizes that tell them apart."""
    rows: list[list[Fraction]] = []
    for value, at in zip(values, sizes, strict=True):
        row = [*(Fraction(prod(at[s] for s in of)) for of in monomials), value]
        for done in rows:  # what the rows before leave of it
            lead = _lead(done)
            row = [x - row[lead] * y for x, y in zip(row, done, strict=True)]
        lead = _lead(row)
        if lead == len(monomials):
            return None  # no such sum
        if lead > len(monomials):
            continue
        rows.append([x / row[lead] for x in row])
    if len(rows) < len(monomials):
        return None
    found = dict.fromkeys(monomials, Fraction(0))
    for row in sorted(rows, key=_lead, reverse=True):
        lead = _lead(row)
        rest = zip(row[lead + 1 : -1], monomials[lead + 1 :], strict=True)
        after = sum((x * found[of] for x, of in rest), Fraction(0))
        found[monomials[lead]] = row[-1] - after
    whole = all(c.denominator == 1 for c in found.values())
    return Size({of: int(c) for of, c in found.items() if c}) if whole else None


def _lead(row: list[Fraction]) -> int:
    """Where the first entry stands that is not 0; behind the last if there is none."""
    return next((i for i, x in enumerate(row) if x), len(row))
