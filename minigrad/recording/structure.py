"""What is odd in the graph of a run's first step, before any training: seen in its trace alone.

Ops are asked, not named: a declaration says what an op does not see and where it saturates, and
whether a step is affine is measured by running its kernel again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from .formulas import Invocation
from .record import Edge, Entry
from .trace import Trace

__all__ = ["odd_structure"]

LARGE = 100.0  # rms of inputs that weights of usual size multiply
TIMES = 8  # that a line of a loop is looked at
PROBE = 50.0  # far enough for an op that saturates to be at the end of its range


def odd_structure(trace: Trace, parameters: set[int], computed: set[int]) -> list[dict[str, Any]]:
    """Kind, path and text of each oddity of a step. Args: computed: what parameters lead to."""
    look = _Structure(trace, parameters, computed)
    found: list[dict[str, Any]] = []
    seen = Counter[str]()
    for entry in (trace.entries[i] for i in trace.forward_steps):
        call = trace.call_of(entry)
        if call is None or entry.id not in computed or not entry.needs:
            continue
        seen[entry.path] += 1
        if seen[entry.path] > TIMES:
            continue
        for kind, path, text in look.at(entry, call):
            if kind not in {one["kind"] for one in found}:
                found.append({"kind": kind, "path": path, "text": text})
    return found


class _Structure:
    def __init__(self, trace: Trace, parameters: set[int], computed: set[int]) -> None:
        self.trace = trace
        self.parameters = parameters
        self.computed = computed
        takes = [i for i in trace.forward_steps if self._takes_parameter(trace.entries[i])]
        self._last = max(takes, default=-1)

    def at(self, entry: Entry, call: Invocation) -> Iterator[tuple[str, str, str]]:
        yield from self._double_softmax(entry, call)
        yield from self._last_activation(entry, call)
        yield from self._shapes(entry)
        if self._weight(entry) is not None:
            yield from self._linear_after_linear(entry)
            yield from self._input_scale(entry)

    # -------------------------------------------------------------- what ops are given

    def _sources(self, entry: Entry) -> list[Entry]:
        """The values that an op was given, other than parameters."""
        edges = self.trace.into(entry)
        return [self.trace.entries[e.source] for e in edges if e.source not in self.parameters]

    def _weight(self, entry: Entry) -> Edge | None:
        """The weights of a product with float data: a matrix or more, that each row is sent by."""
        edges = self.trace.into(entry)
        data = [e for e in edges if e.source not in self.parameters and _is_float(self._of(e))]
        weights = [e for e in edges if e.source in self.parameters and len(self._of(e).shape) > 1]
        if len(data) != 1 or len(weights) != 1 or self._of(weights[0]).shape == entry.shape:
            return None
        return weights[0]

    def _of(self, edge: Edge) -> Entry:
        return self.trace.entries[edge.source]

    def _made_from(self, entry: Entry) -> Entry:
        """Where a value came from, past ops that only lay it out anew."""
        while entry.op is not None:
            sources = self._sources(entry)
            if len(sources) != 1 or len(self.trace.into(entry)) != 1:
                return entry
            if sources[0].size != entry.size or not _same_entries(sources[0], entry):
                return entry
            entry = sources[0]
        return entry

    # -------------------------------------------------------------- before the loss

    def _double_softmax(self, entry: Entry, call: Invocation) -> Iterator[tuple[str, str, str]]:
        """Scores of a softmax, or of a cross-entropy, that are the result of a softmax."""
        if not _takes_scores(call):
            return
        scores = self._made_from(self.trace.entries[self.trace.into(entry)[0].source])
        if scores.op is None or scores.id not in self.computed or not _sums_to_1(scores.value):
            return
        text = f"{entry.op} takes scores, but {scores.path} ({scores.op}) has rows that sum to 1"
        yield "double softmax", entry.path, text

    def _last_activation(self, entry: Entry, call: Invocation) -> Iterator[tuple[str, str, str]]:
        """Scores of a loss, or what is held against targets, that cannot reach all numbers."""
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

    def _takes_parameter(self, entry: Entry) -> bool:
        return any(e.source in self.parameters for e in self.trace.into(entry))

    def _shapes(self, entry: Entry) -> Iterator[tuple[str, str, str]]:
        """(n, 1) and (n,) make (n, n): each prediction held against each target."""
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

    def _linear_after_linear(self, entry: Entry) -> Iterator[tuple[str, str, str]]:
        """Two products with weights and nothing but affine steps between: one would do the same.

        A narrow middle restricts the rank, which LoRA and autoencoders mean; an attention's last
        product belongs to the attention.
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
        if _is_product(self.trace, self._made_from(data), self.computed):
            return
        widths = [_width(data), _width(one), _width(entry)]
        if len(one.shape) > 3 and min(self._of(self._weight(one)).shape[:2]) == 1:  # type: ignore[arg-type]
            return  # one filter a channel: half of a separable convolution
        if widths[1] >= min(widths[0], widths[2]):
            text = f"{one.path} and {entry.path} have no activation between them: they are one"
            yield "no activation", entry.path, f"{text} linear layer"

    def _input_scale(self, entry: Entry) -> Iterator[tuple[str, str, str]]:
        (data,) = (one for one in self._sources(entry) if _is_float(one))
        made = self._made_from(data)
        if made.op is not None or not isinstance(made.value, np.ndarray) or not made.size:
            return
        size = made.value_rms or 0.0
        if np.isfinite(size) and size > LARGE:
            low, high = float(made.value.min()), float(made.value.max())
            text = f"inputs of {low:.3g} to {high:.3g} (rms {size:.3g}) meet the first weights"
            yield "input scale", entry.path, text


def _is_float(entry: Entry) -> bool:
    return isinstance(entry.value, np.ndarray) and entry.value.dtype.kind == "f"


def _width(entry: Entry) -> int:
    return entry.shape[1 if len(entry.shape) > 3 else -1] if entry.shape else 1


def _takes_scores(call: Invocation) -> bool:
    """Whether the op does not see a shift of all scores: softmax, and losses made of it."""
    return "shift" in call.op.invariance


def _sums_to_1(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim < 2 or value.shape[-1] < 2 or not value.size:
        return False
    near = bool(np.abs(value.sum(axis=-1) - 1).max() < 1e-3)
    return near and bool(value.min() >= 0)


def _same_entries(one: Entry, other: Entry) -> bool:
    values = (one.value, other.value)
    if not all(isinstance(x, np.ndarray) for x in values):
        return False
    return np.shares_memory(*values) or np.array_equal(values[0].ravel(), values[1].ravel())


def _range_of(call: Invocation) -> tuple[float, float]:
    """Between what an op of one input stays."""
    with np.errstate(all="ignore"):
        low, high = (float(x) for x in call.run([np.array([-PROBE, PROBE])]))
    return min(low, high), (np.inf if max(low, high) >= PROBE else max(low, high))


def _is_affine(trace: Trace, call: Invocation, source: Entry) -> bool:
    """Whether f(x + r) = f(x) + f(r) − f(0), with the other inputs as they are."""
    inputs, x = trace.inputs_of(call), source.value
    if not _is_float(source) or prod(source.shape) > 1 << 20:
        return False
    r = np.random.default_rng(0).normal(size=x.shape).astype(x.dtype) * (source.value_rms or 1.0)

    def run(value: Any) -> Any:
        return call.run([value if k == source.id else y for k, y in zip(call.sources, inputs)])  # noqa: B905

    with np.errstate(all="ignore"):
        both = run(x + r)
        one = run(x)
        other = run(r)
        none = run(np.zeros_like(x))
    size = float(np.abs(both).max(initial=0.0)) or 1.0
    return bool(np.abs(both - one - other + none).max(initial=0.0) < 1e-3 * size)


def _is_product(trace: Trace, entry: Entry, computed: set[int]) -> bool:
    """Whether two computed values were multiplied, as weights of attention and V are."""
    return len({e.source for e in trace.into(entry)} & computed) > 1
