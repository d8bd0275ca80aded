"""Sizes: which lengths of axes are symbols, and what numbers of the program are made of them.

A function is called at several sizes, and its programs are compared. A number that is the same in
all of them is a constant; another must be a sum of products of symbols, such as 2 · length − 1,
that gives it in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from math import isfinite, prod
from typing import TypeAlias

import numpy as np

__all__ = ["AxisSymbols", "Length", "Number", "Size", "Sizes", "Unfit", "fit_number", "fit_size"]


@dataclass(frozen=True)
class Size:
    """A sum of products of symbols: (("batch", "length"), 2), ((), 1) is 2 · batch · length + 1."""

    terms: tuple[tuple[tuple[str, ...], int], ...]

    def at(self, sizes: Sizes) -> int:
        """Its value for these sizes of the symbols."""
        return sum(factor * prod(sizes[s] for s in of) for of, factor in self.terms)

    def __add__(self, n: int) -> Size:
        return Size((*self.terms, ((), n)))

    def __str__(self) -> str:
        parts = [([str(n)] if n != 1 or not of else []) + [*of] for of, n in self.terms]
        return " + ".join("*".join(part) for part in parts)


@dataclass(frozen=True)
class Number:
    """A float that sizes determine: a power of a Size, such as 1 / √length."""

    size: Size
    power: float


class Unfit:
    """A number that no formula in the sizes gives; an error if the model needs it."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    def __add__(self, n: int) -> Unfit:
        return self

    def __str__(self) -> str:
        return ", ".join(str(value) for value in dict.fromkeys(self.values))


Length: TypeAlias = int | Size | Unfit  # of an axis
Sizes: TypeAlias = dict[str, int]  # of each symbol, in one run
AxisSymbols: TypeAlias = dict[str, dict[int, str]]  # by input, by axis, the symbol of its length


def fit_size(values: Sequence[int], sizes: Sequence[Sizes]) -> int | Size | None:
    """A number, or the simplest sum of products of symbols, that gives each value at its sizes."""
    if all(value == values[0] for value in values):
        return int(values[0])
    symbols = [*sizes[0]]
    pairs = combinations_with_replacement(symbols, 2)
    products = [*((s,) for s in symbols), *pairs, *combinations(symbols, 3), ()]
    for count in (1, 2, 3):
        for chosen in combinations(products, count):
            table = np.array([[prod(at[s] for s in of) for of in chosen] for at in sizes], float)
            factors = np.linalg.lstsq(table, np.array(values, float))[0]
            terms = [(of, round(n)) for of, n in zip(chosen, factors.tolist(), strict=True)]
            found = Size(tuple(term for term in terms if term[1]))
            if all(found.at(at) == value for at, value in zip(sizes, values, strict=True)):
                return found
    return None


def fit_number(values: Sequence[float], sizes: Sequence[Sizes]) -> Number | None:
    """A power of a Size that gives each value."""
    if not all(isfinite(value) and value > 0 for value in values):
        return None
    for power in (1.0, -1.0, 0.5, -0.5):
        roots = [value ** (1 / power) for value in values]
        whole = [round(root) for root in roots]
        near = all(abs(r - n) <= 1e-9 * abs(r) for r, n in zip(roots, whole, strict=True))
        size = fit_size(whole, sizes) if near else None
        if isinstance(size, Size):
            return Number(size, power)
    return None
