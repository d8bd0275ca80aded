"""Why a gradient is this number: one entry of it as the exact sum of what came to it.

A rule is linear in the gradient g of what its op made, so what it sends to one entry is Σ_k a_k g_k
over the entries k of that. The rule itself, run on a Tensor g and sent back from that one entry,
gives all a_k at once. A record holds what each op was given, so an op and its rules run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from math import inf, isnan
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from ..autodiff import grad
from ..engine.backward import fit
from ..engine.context import Context, ContextChange
from ..engine.errors import ArgumentError, GradientError
from ..engine.op import EXPLAINED, registry
from ..engine.tensor import Tensor
from .checks import arguments
from .finish import finish
from .record import Array, Edge, Entry, Record

__all__ = ["Ledger", "Term", "indexed"]

Index: TypeAlias = tuple[int, ...]


class Term(NamedTuple):
    """One product of the sum: value = gradient · factor.

    Attributes: made, at: the gradient is of this entry of what an op made.
        input: the op's name for what it took.
    """

    value: float
    gradient: float
    factor: float
    made: Entry
    at: Index
    input: str

    @property
    def size(self) -> tuple[float, float]:
        """What terms are ordered by: what is no number comes first."""
        return inf if isnan(self.value) else abs(self.value), abs(self.factor)


class Rerun(NamedTuple):
    """An op that ran again, and what its rules made of a Tensor in the place of the gradient.

    Attributes: numbers: that it was given and made, by entry, where these are others than the
        run's.  gradient: that Tensor.  sent: by input.
    """

    numbers: dict[int, Any]
    gradient: Tensor
    sent: dict[str, Any]

    def factors(self, input: str, index: Index) -> Array:
        """∂ sent[index] / ∂ gradient."""
        sent = self.sent[input]
        if not getattr(sent, "needs", 0):  # the rule gives zeros, whatever the gradient is
            return np.zeros(self.gradient.shape)
        seed = np.zeros(sent.shape, sent.dtype)
        seed[index] = 1
        return np.asarray(grad(sent, self.gradient, seed, retain_graph=True))


def indexed(name: str, at: Index) -> str:
    """An entry of a name, as `W_Q[3, 6]`."""
    return f"{name}{[*at]}" if at else name


class _Unobserved(ContextChange):
    """Within, nobody is told of what runs, and graphs are recorded."""

    def changed(self, now: Context) -> Context:
        return Context(True, now.call, (), now)


class Ledger:
    """One entry of a gradient, and what adds up to it.

    Args: key, index: of a record's entry, and of its gradient's: the largest one unless given.
        reruns: of ops, which ledgers that share them run again once.
    Attributes:
        entry, index: whose gradient, and which entry of it.  total: that number.
        terms: all whose factor is not 0, the largest first.
        rest: what they do not explain: rounding, or what a hook or a seed put there.
    Raises: KeyError for no such name; GradientError where there is no gradient; ArgumentError for
        an index outside of it.
    """

    @_Unobserved()
    @np.errstate(all="ignore")
    def __init__(
        self,
        record: Record,
        key: int | str,
        index: Any = None,
        reruns: dict[tuple[int, bool], Rerun] | None = None,
    ) -> None:
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
        self.reruns = {} if reruns is None else reruns
        uses = [edge for edge in record.uses(entry) if edge.contribution is not None]
        self.terms = [term for edge in uses for term in self._terms(edge)]
        self.terms.sort(key=attrgetter("size"), reverse=True)
        self.total = float(g[at])
        self.rest = self.total - sum(term.value for term in self.terms)

    def _terms(self, edge: Edge) -> Iterator[Term]:
        made = self.record.entries[edge.target]
        factors = self._again(made, False).factors(edge.input, self.index)
        gradients = np.asarray(made.gradient)
        for at in map(tuple, np.argwhere(factors != 0).tolist()):
            factor, gradient = float(factors[at]), float(gradients[at])
            yield Term(factor * gradient, gradient, factor, made, at, edge.input)

    def _again(self, made: Entry, with_others: bool) -> Rerun:
        """An op that ran again, on the run's numbers or on others."""
        if (made.id, with_others) not in self.reruns:
            numbers: dict[int, Any] = {}
            inputs = self._inputs(made, numbers) if with_others else arguments(self.record, made)
            self.reruns[made.id, with_others] = self._run(made, inputs, numbers)
        return self.reruns[made.id, with_others]

    def _run(self, made: Entry, inputs: dict[str, Any], numbers: dict[int, Any]) -> Rerun:
        used = [edge.input for edge in self.record.into(made) if edge.contribution is not None]
        inputs |= {name: Tensor(np.asarray(inputs[name]), needs=1) for name in used}
        settings = deepcopy(tuple(made.settings.values()))
        out = Tensor.__apply__(registry[made.op], tuple(inputs.values()), settings)
        g, node = Tensor(np.zeros(out.shape, out.dtype), needs=1), out.node
        assert node is not None
        parts = zip(node.plan.names, node.run_rules(g, None), node.edges, strict=True)
        numbers[made.id] = out.numpy()
        return Rerun(numbers, g, {name: fit(part, x, node) for name, part, x in parts})

    # ------------------------------------------------------------------ what follows from it

    def way(self) -> Iterator[Self]:
        """This one, and on along the largest terms to the loss, or to where all factors are 0."""
        ledger = self
        yield ledger
        while ledger.terms:
            first = ledger.terms[0]
            ledger = type(self)(self.record, first.made.id, first.at, self.reruns)
            yield ledger

    def by(self, key: Callable[[Term], Any]) -> dict[Any, float]:
        """The sums of the terms of which a function says the same."""
        sums = defaultdict[Any, float](float)
        for term in self.terms:
            sums[key(term)] += term.value
        return dict(sums)

    def by_call(self) -> dict[str, float]:
        """What came by each call that took the entry, by the path of what was made of it there."""
        return self.by(attrgetter("made.path"))

    def along(self, axis: int) -> dict[int, float]:
        """What came by each position along an axis of what the ops made that took the entry.

        Raises: ArgumentError if there is no such axis.
        """
        if any(axis not in range(len(term.at)) for term in self.terms):
            shapes = {term.made.path: term.made.shape for term in self.terms}
            raise ArgumentError(f"along({axis}): no such axis of {shapes}")
        return self.by(lambda term: term.at[axis])

    # ------------------------------------------------------------------ what a factor is

    @_Unobserved()
    @np.errstate(all="ignore")
    def words(self, term: Term) -> str:
        """What a factor is, if it is an entry that the rule takes, whatever stands there.

        The op runs once more, on other numbers, no two alike, and the factor is one of these.
        """
        made, factor = term.made, term.factor
        if factor == 1 and registry[made.op].kinks is not None:
            return f"{made.op} let it through"
        try:
            again = self._again(made, True)
        except EXPLAINED:  # a kernel need not take other numbers
            return ""
        other = again.factors(term.input, self.index)[term.at]
        for number, numbers in again.numbers.items():
            entry = self.record.entries[number]
            for at in map(tuple, np.argwhere(numbers == other).tolist()):
                if np.asarray(entry.value)[at] == factor:
                    return indexed(entry.label, at)
        settings = made.settings.items()
        return next((name for name, x in settings if isinstance(x, float) and x == other), "")

    def _inputs(self, made: Entry, others: dict[int, Any]) -> dict[str, Any]:
        """Other numbers in the place of what an op was given; of what was only moved there, moved.

        Args: others: by entry; they are added to it.
        """
        inputs = arguments(self.record, made)
        for edge in self.record.into(made):
            source = self.record.entries[edge.source]
            if edge.input not in inputs or np.dtype(source.dtype).kind != "f":
                continue
            if source.op and not source.name and not source.flops:
                moved = self._inputs(source, others).values()
                inputs[edge.input] = registry[source.op].flat(*moved, *source.settings.values())
            else:
                numbers = np.random.default_rng(source.id).uniform(1, 2, source.shape)
                inputs[edge.input] = others.setdefault(source.id, numbers)
        return inputs
