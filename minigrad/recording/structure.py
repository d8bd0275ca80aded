"""What is odd in the graph of a run's first step, before any training, found in its trace alone.

No op is known by name: declarations say to what an op is invariant and where it saturates, and
whether a step is affine is measured by running its kernel again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import TypeAlias

import numpy as np

from ..engine.types import Array
from .formulas import Invocation
from .record import Edge, Entry
from .trace import TraceRecord

__all__ = ["odd_structure"]

LARGE = 100.0  # rms of inputs that weights of usual size multiply
Oddity: TypeAlias = tuple[str, str, str]
LOOP_PASSES_CHECKED = 8  # calls of one line
MOST_COMPARED_ENTRIES = 1 << 20  # of a value that is run again, or compared
BEYOND = 3.0  # so far from 0, sigmoid and tanh are no longer nearly linear
PROBE = 50.0  # so far from 0, an op that saturates is at the end of its range


def odd_structure(trace: TraceRecord, parameters: set[int], computed: set[int]) -> list[Oddity]:
    """Kind, path and text of each oddity of a step. Args: computed: what parameters lead to."""
    look = _Structure(trace, parameters, computed)
    found: list[Oddity] = []
    seen = Counter[str]()
    for entry in (trace.entries[i] for i in trace.forward_steps):
        call = trace.call_of(entry)
        if call is None or entry.id not in computed or not entry.needs:
            continue
        seen[entry.path] += 1
        if seen[entry.path] > LOOP_PASSES_CHECKED:
            continue
        for oddity in look.at(entry, call):
            if oddity[0] not in {one[0] for one in found}:
                found.append(oddity)
    return found


class _Structure:
    def __init__(self, trace: TraceRecord, parameters: set[int], computed: set[int]) -> None:
        self.trace = trace
        self.parameters = parameters
        self.computed = computed
        self._products: dict[int, bool] = {}  # by entry
        entries = trace.entries  # a detached copy of a parameter is no op that takes it
        used = (e.target for e in trace.edges if e.source in parameters and entries[e.target].op)
        self._last = max(used, default=-1)  # the last op that takes a parameter

    def at(self, entry: Entry, call: Invocation) -> Iterator[Oddity]:
        yield from self._double_softmax(entry, call)
        yield from self._last_activation(entry, call)
        yield from self._shapes(entry)
        yield from self._future(entry, call)
        if self._weight(entry) is not None:
            yield from self._linear_after_linear(entry)
        if self._takes_matrix(entry):
            yield from self._inputs(entry)

    # -------------------------------------------------------------- what ops are given

    def _sources(self, entry: Entry) -> list[Entry]:
        """The inputs of an op other than parameters."""
        edges = self.trace.into(entry)
        return [self.trace.entries[e.source] for e in edges if e.source not in self.parameters]

    def _weight(self, entry: Entry) -> Edge | None:
        """The weights, of two axes or more, of a product with float data."""
        edges = self.trace.into(entry)
        data = [e for e in edges if e.source not in self.parameters and _is_float(self._of(e))]
        weights = [e for e in edges if e.source in self.parameters and len(self._of(e).shape) > 1]
        if len(data) != 1 or len(weights) != 1 or self._of(weights[0]).shape == entry.shape:
            return None
        return weights[0] if self._multiplies(entry, data[0], weights[0]) else None

    def _multiplies(self, entry: Entry, data: Edge, weights: Edge) -> bool:
        """Whether zeros as data give the same for other weights: they are not added."""
        if entry.id not in self._products:
            call = self.trace.call_of(entry)
            assert call is not None
            results: list[Array | int] = []
            for factor in (1, 2):
                factors = {data.source: 0, weights.source: factor}
                pairs = zip(call.sources, self.trace.inputs_of(call), strict=True)
                given = [x * factors[k] if k in factors else x for k, x in pairs]
                results.append(call.run(given) if entry.size <= MOST_COMPARED_ENTRIES else factor)
            self._products[entry.id] = bool(np.array_equal(results[0], results[1]))
        return self._products[entry.id]

    def _takes_matrix(self, entry: Entry) -> bool:
        """Whether it takes a parameter of two axes or more."""
        edges = self.trace.into(entry)
        return any(e.source in self.parameters and len(self._of(e).shape) > 1 for e in edges)

    def _of(self, edge: Edge) -> Entry:
        return self.trace.entries[edge.source]

    def _made_from(self, entry: Entry) -> Entry:
        """The value of which this one is another layout: ops that only move entries are skipped."""
        while entry.op is not None:
            sources = self._sources(entry)
            if len(sources) != 1 or len(self.trace.into(entry)) != 1:
                return entry
            if sources[0].size != entry.size or not _same_entries(sources[0], entry):
                return entry
            entry = sources[0]
        return entry

    # -------------------------------------------------------------- before the loss

    def _double_softmax(self, entry: Entry, call: Invocation) -> Iterator[Oddity]:
        """Scores of a softmax, or of a cross-entropy, that are the result of a softmax."""
        if not _takes_scores(call):
            return
        scores = self._made_from(self.trace.entries[self.trace.into(entry)[0].source])
        if scores.op is None or scores.id not in self.computed or not _sums_to_1(scores.value):
            return
        text = f"{entry.op} takes scores, but {scores.path} ({scores.op}) has rows that sum to 1"
        yield "double softmax", entry.path, text

    def _last_activation(self, entry: Entry, call: Invocation) -> Iterator[Oddity]:
        """Scores of a loss, or what is compared with targets, that cannot reach all numbers."""
        sources = self._sources(entry)
        computed = [one for one in sources if one.id in self.computed]
        if len(computed) != 1 or entry.op is None:
            return
        out = self._made_from(computed[0])
        made = self.trace.call_of(out)
        if made is None or made.op.saturates is None or len(self.trace.into(out)) != 1:
            return
        if "axis" in made.op.settings:
            return
        low, high = _range_of(made)
        if _takes_scores(call) and self._is_loss(entry):
            text = f"{entry.op} takes scores, but {out.op} at {out.path} gives only "
            yield "last activation", out.path, f"{text}{low:.3g} to {high:.3g}"
            return
        targets = [one for one in sources if one.id not in self.computed and _is_float(one)]
        if len(targets) != 1 or targets[0].size not in (out.size, entry.size) or out.size < 2:
            return
        if entry.shape != computed[0].shape or not self._is_loss(entry):
            return
        least, most = float(targets[0].value.min()), float(targets[0].value.max())
        slack = 0.01 * (most - least)
        if least < low - slack or most > high + slack:
            text = f"targets go from {least:.3g} to {most:.3g}, but {out.op} at {out.path} gives "
            yield "last activation", out.path, f"{text}only {low:.3g} to {high:.3g}"

    def _is_loss(self, entry: Entry) -> bool:
        """Whether no parameter comes in from here on."""
        return entry.id > self._last

    def _shapes(self, entry: Entry) -> Iterator[Oddity]:
        """(n, 1) and (n,) make (n, n): each prediction is compared with each target."""
        sources = self._sources(entry)
        shapes = sorted((one.shape for one in sources), key=len)
        if len(shapes) != 2 or len(entry.shape) != 2 or not self._is_loss(entry):
            return
        n = entry.shape[0]
        known = sum(one.id in self.computed for one in sources)
        if known == 1 and n > 1 and shapes == [(n,), (n, 1)] and entry.shape == (n, n):
            text = f"{entry.op} of ({n}, 1) and ({n},) makes ({n}, {n}): every row with every other"
            yield "broadcast", entry.path, text

    # -------------------------------------------------------------- between layers

    def _linear_after_linear(self, entry: Entry) -> Iterator[Oddity]:
        """Two products with weights and only affine steps between: one would do the same.

        Not so with a narrow middle, which restricts the rank on purpose (LoRA, autoencoders), nor
        after attention, whose weighted sum is no product with weights.
        """
        (start,) = (one for one in self._sources(entry) if _is_float(one))
        one = start
        while one.op is not None and self._weight(one) is None:
            sources = [s for s in self._sources(one) if s.id in self.computed]
            call = self.trace.call_of(one)
            if len(sources) != 1 or call is None or not _is_affine(self.trace, call, sources[0]):
                return
            one = sources[0]
        if one.op is None or not one.needs or one.id not in self.computed:
            return
        (data,) = (s for s in self._sources(one) if _is_float(s))
        factors = {e.source for e in self.trace.into(self._made_from(data))} & self.computed
        if len(factors) > 1:  # a product of computed values, as attention's weights and V
            return
        widths = [_width(data), _width(one), _width(entry)]
        filters = self._of(self._weight(one)).shape  # type: ignore[arg-type]
        if len(one.shape) > 3 and filters[1] == 1 < _width(data):
            return  # one filter a channel: half of a separable convolution
        if widths[1] >= min(widths[0], widths[2]):
            text = f"{one.path} and {entry.path} have no activation between them: they are one"
            yield "no activation", entry.path, f"{text} linear layer"

    def _inputs(self, entry: Entry) -> Iterator[Oddity]:
        """The data of the first weights: how large it is, whether its rows differ."""
        for made in map(self._made_from, self._sources(entry)):
            value = made.value
            if made.op is not None or not isinstance(value, np.ndarray) or value.size < 2:
                continue
            size = made.value_rms or 0.0 if _is_float(made) else 0.0
            if np.isfinite(size) and size > LARGE:
                text = f"inputs of {value.min():.3g} to {value.max():.3g} (rms {size:.3g}) meet"
                yield "input scale", entry.path, f"{text} the first weights"
            several = len(value) > 2 and value.ndim > 1 and value.shape[-1] > 1
            in_order = several and bool((np.diff(value) >= 0).all())  # positions, or zeros
            if several and not in_order and (value == value[:1]).all():
                yield "constant inputs", entry.path, f"all {len(value)} of its inputs are equal"

    def _future(self, entry: Entry, call: Invocation) -> Iterator[Oddity]:
        """Attention to later tokens, where the targets are the tokens that come next."""
        n = entry.shape[-1] if entry.shape else 0
        if "axis" not in call.op.settings or entry.shape[-2:] != (n, n) or n < 3:
            return
        if not _sums_to_1(entry.value) or not np.triu(entry.value, 1).any():
            return
        ids = [e.value for e in self.trace.entries if e.op is None and e.dtype.startswith("int")]
        tokens = [x for x in ids if np.ndim(x) == 2 and x.shape[1] == n]
        for x in tokens:
            after = [y.reshape(x.shape) for y in ids if y is not x and np.size(y) == x.size]
            if any((y[:, :-1] == x[:, 1:]).all() and (y != x).any() for y in after):
                text = "weights lie on later tokens, and the targets are the tokens that come next"
                yield "sees the future", entry.path, text
                return


def _is_float(entry: Entry) -> bool:
    return isinstance(entry.value, np.ndarray) and entry.value.dtype.kind == "f"


def _width(entry: Entry) -> int:
    return entry.shape[1 if len(entry.shape) > 3 else -1] if entry.shape else 1


def _takes_scores(call: Invocation) -> bool:
    """Whether a shift of all scores changes nothing: of softmax, and of losses made of it."""
    return call.op.name in ("softmax", "log_softmax", "cross_entropy")


def _sums_to_1(value: object) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim < 2 or value.shape[-1] < 2 or not value.size:
        return False
    near = bool(np.abs(value.sum(axis=-1) - 1).max() < 1e-3)
    return near and bool(value.min() >= 0)


def _same_entries(one: Entry, other: Entry) -> bool:
    """Whether both hold the same numbers, in any order."""
    values = (one.value, other.value)
    if not all(isinstance(x, np.ndarray) for x in values):
        return False
    if np.shares_memory(*values):
        return True
    if one.size > MOST_COMPARED_ENTRIES:
        return False
    return bool(np.array_equal(np.sort(values[0], axis=None), np.sort(values[1], axis=None)))


def _range_of(call: Invocation) -> tuple[float, float]:
    """The least and the largest value of an op of one input."""
    with np.errstate(all="ignore"):
        low, high = (float(x) for x in call.run([np.array([-PROBE, PROBE])]))
    return min(low, high), (np.inf if max(low, high) >= PROBE else max(low, high))


def _is_affine(trace: TraceRecord, call: Invocation, source: Entry) -> bool:
    """Whether f(x + r) = f(x) + f(r) − f(0) of random x and r, the other inputs as they are."""
    inputs, value = trace.inputs_of(call), source.value
    if not _is_float(source) or prod(source.shape) > MOST_COMPARED_ENTRIES:
        return False
    rng = np.random.default_rng(0)
    x, r = (rng.normal(scale=BEYOND, size=value.shape).astype(value.dtype) for _ in range(2))

    def run(value: Array) -> Array:
        pairs = zip(call.sources, inputs, strict=True)
        return call.run([value if k == source.id else y for k, y in pairs])

    with np.errstate(all="ignore"):
        both = run(x + r)
        gap = both - run(x) - run(r) + run(np.zeros_like(x))
    size = float(np.abs(both).max(initial=0.0)) or 1.0
    return bool(np.abs(gap).max(initial=0.0) < 1e-3 * size)
