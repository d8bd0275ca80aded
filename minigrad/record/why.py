"""Why a gradient is this number: one entry of it as the exact sum of what came to it.

A rule is linear in the gradient g of what its op made, so what it sends to one entry is Σ_k a_k g_k
over the entries k of that. The rule itself, run on a Tensor g and sent back from that one entry,
gives all a_k at once: that is `jvp`. A record holds what each op was given, so it runs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from math import isnan
from typing import Any, NamedTuple, Self

import numpy as np

from ..autodiff import jvp
from ..engine.context import enable_grad
from ..engine.errors import ArgumentError, GradientError
from ..engine.op import EXPLAINED, registry
from ..engine.tensor import Tensor
from .checks import arguments
from .finish import finish
from .record import Array, Edge, Entry, Record
from .recorder import ObservedBy

__all__ = ["Ledger", "Term", "indexed"]


class Term(NamedTuple):
    """One product of the sum: value = gradient · factor.

    Attributes: made, at: the gradient is of this entry of what an op made.  edge: the use.
    """

    value: float
    gradient: float
    factor: float
    made: Entry
    at: tuple[int, ...]
    edge: Edge


def indexed(name: str, at: tuple[int, ...]) -> str:
    """An entry of a name, as `W_Q[3, 6]`."""
    return f"{name}{[*at]}" if at else name


class Ledger:
    """One entry of a gradient, and what adds up to it.

    Args: key, index: of a record's entry, and of its gradient's: the largest one unless given.
    Attributes:
        entry, index: whose gradient, and which entry of it.  total: that number.
        terms: all whose factor is not 0, the largest first.
        rest: what they do not explain: rounding, or what a hook or a seed put there.
    Raises: KeyError for no such name; GradientError where there is no gradient; ArgumentError for
        an index outside of it.
    """

    def __init__(self, record: Record, key: int | str, index: Any = None) -> None:
        self.record = record
        self.entry = entry = finish(record)[key]
        g = entry.gradient
        if g is None or not g.size:
            raise GradientError(f"why({entry.path}): it has no gradient: {entry.why or 'empty'}")
        if index is None:
            index = np.unravel_index(np.argmax(np.abs(g)), g.shape)
        at = self.index = tuple(np.atleast_1d(index).tolist())
        if len(at) != g.ndim or any(i not in range(n) for i, n in zip(at, g.shape, strict=True)):
            raise ArgumentError(f"why({entry.path}, {index}): its gradient has shape {g.shape}")
        self._run_again = cache(self._on_others)
        self.terms: list[Term] = []
        for edge in entry.uses:
            if edge.contribution is not None:
                self.terms += self._terms(edge)
        self.terms.sort(
            key=lambda term: (not isnan(term.value), -abs(term.value), -abs(term.factor))
        )
        self.total = float(g[at])
        self.rest = self.total - sum(term.value for term in self.terms)

    def _terms(self, edge: Edge) -> Iterator[Term]:
        made = self.record.entries[edge.target]
        _, factors = self._run(edge, arguments(self.record, made))
        gradients = np.asarray(made.gradient)
        for at in map(tuple, np.argwhere(factors != 0).tolist()):
            factor, gradient = float(factors[at]), float(gradients[at])
            yield Term(factor * gradient, gradient, factor, made, at, edge)

    @enable_grad()
    @ObservedBy()
    @np.errstate(all="ignore")
    def _run(self, edge: Edge, inputs: dict[str, Any]) -> tuple[Array, Array]:
        """What an op makes of these inputs, and the factors by which that reaches the entry."""
        made = self.record.entries[edge.target]
        settings = deepcopy(tuple(made.settings.values()))

        def run(x: Tensor) -> Tensor:
            values = (inputs | {edge.input: x}).values()
            return Tensor.__apply__(registry[made.op], tuple(values), settings)

        direction = np.zeros(self.entry.shape)
        direction[self.index] = 1
        return jvp(run, inputs[edge.input], direction)

    # ------------------------------------------------------------------ what follows from it

    def way(self) -> Iterator[Self]:
        """This one, and on along the largest terms to the loss, or to where all factors are 0."""
        ledger = self
        yield ledger
        while ledger.terms:
            ledger = type(self)(self.record, ledger.terms[0].made.id, ledger.terms[0].at)
            yield ledger

    def by_call(self) -> dict[str, float]:
        """What came by each call that took the entry, by the path of what was made of it there."""
        return self._sums([term.made.path for term in self.terms])

    def along(self, axis: int) -> dict[int, float]:
        """What came by each position along an axis of what the ops made that took the entry."""
        return self._sums([term.at[axis] for term in self.terms])

    def _sums(self, keys: list[Any]) -> dict[Any, float]:
        """The sums of the terms that have one key."""
        sums = dict.fromkeys(keys, 0.0)
        for key, term in zip(keys, self.terms, strict=True):
            sums[key] += term.value
        return sums

    # ------------------------------------------------------------------ what a factor is

    def words(self, term: Term) -> str:
        """What a factor is, if it is an entry that the rule takes, whatever stands there.

        The op runs once more, on other numbers, no two alike, and the factor is one of these.
        """
        made, factor = term.made, term.factor
        if factor == 1 and registry[made.op].kinks is not None:
            return f"{made.op} let it through"
        known = arguments(self.record, made) | made.settings | {"out": made.value}
        if not any(np.any(x == factor) for x in known.values()):
            return ""
        try:
            others, factors = self._run_again(term.edge)
        except EXPLAINED:  # a kernel need not take other numbers
            return ""
        other = factors[term.at]
        for number, numbers in others.items():
            entry = self.record.entries[number]
            for at in map(tuple, np.argwhere(numbers == other).tolist()):
                if np.asarray(entry.value)[at] == factor:
                    return indexed(entry.label, at)
        for name, value in made.settings.items():
            if isinstance(value, float) and value == other:
                return name
        return ""

    def _on_others(self, edge: Edge) -> tuple[dict[int, Array], Array]:
        """The op once more on other numbers, which are given by entry, and its factors."""
        others: dict[int, Array] = {}
        made = self.record.entries[edge.target]
        others[made.id], factors = self._run(edge, self._inputs(made, others))
        return others, factors

    def _inputs(self, made: Entry, others: dict[int, Array]) -> dict[str, Any]:
        """Other numbers in the place of what an op was given; of what was only moved there, moved.

        Args: others: by entry; they are added to it.
        """
        inputs = arguments(self.record, made)
        for edge in made.takes:
            source = self.record.entries[edge.source]
            if edge.input not in inputs or "float" not in source.dtype:
                continue
            if source.op and not source.name and not source.flops:
                moved = self._inputs(source, others).values()
                inputs[edge.input] = registry[source.op].flat(*moved, *source.settings.values())
            else:
                numbers = np.random.default_rng(source.id).uniform(1, 2, source.shape)
                inputs[edge.input] = others[source.id] = numbers
        return inputs
