"""Sampler: it looks at every tenth step of a training run, say, and at next to nothing else.

In a step that is looked at it listens to each op, so a compiled step runs eagerly; in the others no
one listens. Where steps end is known from the optimizer, which compiled steps call too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from ..anomaly import NonFiniteWatch
from ..engine.context import Context, Listener, current
from ..engine.errors import ArgumentError, DTypeError, NonFiniteError
from ..engine.graph import Node
from ..engine.op import Op
from ..engine.tensor import Tensor
from ..optim.updates import Observer, observers
from .flow import FlowRecord, Row, Sample
from .measures import Slope, cosine, few_of, flatness, heads, size, slope_of
from .requests import RequestWatch
from .trace import Trace
from .units import Picture, incoming, picture_of, unit_axes, weigh

__all__ = ["Sampler", "named_tensors"]

PICTURES = 16  # samples that keep units; beyond, every second one is let go of
PICTURED = 48  # rows of each


def named_tensors(model: Any) -> dict[str, Tensor]:
    """The parameters of a Module by path; of a dict, a list or one Tensor by name.

    Raises: DTypeError for anything else; ArgumentError if there are none.
    """
    if hasattr(model, "named_parameters"):
        found = dict(model.named_parameters())
    elif isinstance(model, Mapping):
        found = dict(model)
    else:
        found = {}
        for i, p in enumerate(model if isinstance(model, list | tuple) else [model]):
            name = getattr(p, "name", None) or "parameter"
            found[name if name not in found else f"{name} {i}"] = p
    if wrong := [type(p).__name__ for p in found.values() if not isinstance(p, Tensor)]:
        raise DTypeError(
            f"watch(model): model must be a Module, or Tensors in a list or a dict, got {wrong[0]}"
        )
    if not found:
        raise ArgumentError("watch(model): the model has no parameters")
    return found


def _reference(reference: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The weights to measure drift from: a model like this one, or its state dict."""
    given = reference if isinstance(reference, Mapping) else named_tensors(reference)
    shapes = {name: np.shape(_plain(x)) for name, x in given.items()}
    for name, p in tensors.items():
        if shapes.get(name) != p.shape:
            got = shapes.get(name, "missing")
            raise ArgumentError(f"watch(reference=...): {name} must be of {p.shape}, is {got}")
    return dict(given)


@dataclass(slots=True)
class _Path:
    """A path of values within a step: how often it came, and the last that has no row yet."""

    slope: Slope | None
    count: int = 0
    last: tuple[Node, Op, Any] | None = None


@dataclass(eq=False)
class _Parameter:
    """What is known of a parameter within a step, and between steps."""

    name: str
    tensor: Tensor
    reference: Any
    path: str = ""
    kept: Any = None  # its gradient at the step looked at last
    cancels: bool = False

    def __post_init__(self) -> None:
        self.scale = size(self.reference) or 1.0
        self.clear()

    def clear(self) -> None:
        self.before: Any = None
        self.gradient: Any = None
        self.stale = False
        self.used = ""  # by ops that are recorded ("graph"), or by others alone ("no_grad")


class Sampler(Listener, Observer):
    """Fills a FlowRecord while a model trains."""

    def __init__(
        self,
        record: FlowRecord,
        model: Any,
        *,
        traces: int = 0,
        reference: Any = None,
        new_trace: Callable[[], Trace] = Trace,
    ) -> None:
        self.record, self.most_traces, self._new_trace = record, traces, new_trace
        tensors = named_tensors(model)
        start = tensors if reference is None else _reference(reference, tensors)
        self._parameters = {
            id(p): _Parameter(name, p, np.array(_plain(start[name]))) for name, p in tensors.items()
        }
        self._context: Context | None = None
        self._clock: Any = None  # the optimizer whose steps are counted, or "log"
        self._taken = -1  # how many steps it had taken when the last one ended
        self._looking = self._pictured = False
        self._trace: Trace | None = None
        self._installed: tuple[Listener, ...] = ()
        self._given: frozenset[int] = frozenset()  # what the optimizer moves
        self._pending: Sample | None = None  # waits for the next gradient
        self._samples, self._apart = 0, 1  # looked at so far; from one with pictures to the next
        self._axes: dict[Any, tuple[int, int] | None] = {}  # of units, by op, weights and shape
        self._inspector = NonFiniteWatch()
        self._requests = RequestWatch(record)
        self._clear()

    # ------------------------------------------------------------------ when it looks

    def start(self, context: Context) -> None:
        self._context = context
        observers.append(self)
        self._begin()

    def stop(self) -> None:
        observers.remove(self)
        if self._looking and any(p.gradient is not None for p in self._parameters.values()):
            self._end()
        self._requests.end()
        self._listen(False)
        self._release()

    def _begin(self) -> None:
        """The next step begins: look at it if it is one of those."""
        look = self.record.steps % self.record.every == 0
        if look:
            self._clear()
            self._trace = self._new_trace() if self._wants_trace() else None
            self._pictured = self._samples % self._apart == 0
        if look or self._looking:
            self._listen(look)

    def _wants_trace(self) -> bool:
        """Of the samples the first, and then those whose number is a power of two."""
        count = len(self.record.samples) + (self._pending is not None)
        return self.most_traces > 0 and count & (count - 1) == 0

    def _listen(self, on: bool) -> None:
        """Put these listeners into the surroundings, from the innermost out to the watch's own."""
        self._looking, old = on, self._installed
        trace = () if self._trace is None else (self._trace,)
        self._installed = (self, *trace) if on else ()
        inner: list[Context] = []
        now: Context | None = current()
        while now is not None and now is not self._context:
            inner.append(now)
            now = now.outer
        if now is None:  # another thread's surroundings
            return
        for context in [*inner, now]:
            others = (x for x in context.listeners if x not in old)
            context.listeners = (*others, *self._installed)

    def _clear(self) -> None:
        self._paths: dict[str, _Path] = {}
        self._cells: dict[str, dict[str, float]] = {}
        self._nodes: dict[Node, str] = {}
        self._slopes: dict[Node, Slope] = {}
        self._previous: tuple[Node, Op, Any, Any, bool] | None = None
        self._entries: dict[str, list[Any]] = {}
        self._seen: dict[Node, Any] = {}  # values to picture
        self._pictures: dict[str, Picture] = {}
        self._origins: dict[Node, tuple[_Parameter, int, int]] = {}  # whose weights lead there
        self._incoming: dict[Any, Any] = {}
        for parameter in self._parameters.values():
            parameter.clear()

    # ------------------------------------------------------------------ what it hears of ops

    def forward(self, op: Op, inputs: Any, settings: Any, output: Tensor, seconds: float) -> None:
        context, took = current(), False
        if context.recording:
            self._decide(context.scope)
        for x in inputs:
            if x.__class__ is Tensor and id(x) in self._parameters:
                took = True
                self._use(self._parameters[id(x)], context)
        if not context.recording:
            self._requests.forward(op, inputs, output, context.scope or op.name)
            return
        look = partial(self._inspector.forward, op, inputs, settings, output, seconds)
        self._inspect([output], look, output.path or op.name)
        if output.node is not None:
            self._previous = output.node, op, inputs, output._data, took
            if self._pictured:
                self._trace_units(output.node, op, inputs, output)

    def _trace_units(self, node: Node, op: Op, inputs: Any, output: Tensor) -> None:
        """Which weights lead to the units of a value: its op's, or those of what it was made of."""
        for i, x in enumerate(inputs):
            known = self._parameters.get(id(x))
            if known is not None and x.ndim > 1:
                key = op, id(x), output.shape[1:]
                if key not in self._axes:
                    self._axes[key] = unit_axes(op, inputs, node.settings, i)
                if (axes := self._axes[key]) is not None:
                    self._origins[node] = known, *axes
            elif isinstance(x, Tensor) and x.node in self._origins and x.shape == output.shape:
                self._origins[node] = self._origins[x.node]

    def _use(self, parameter: _Parameter, context: Context) -> None:
        if parameter.used != "graph":
            parameter.used = "graph" if context.recording else "no_grad"
        if not parameter.path:
            name = parameter.tensor.name or parameter.name.rsplit(".", 1)[-1]
            path = f"{context.scope}/{name}" if context.scope else name
            self._add_row(parameter, parameter.name if path in self.record.rows else path)

    def _add_row(self, parameter: _Parameter, path: str) -> None:
        parameter.path, shape = path, parameter.tensor.shape
        self.record.add("rows", Row(path, "weight", shape=shape, name=parameter.name))

    def _inspect(self, values: Iterable[Any], look: Callable[[], None], path: str) -> None:
        """Note the first number that is not finite, as `anomaly` would tell it."""
        if not self.record.events and not all(map(_is_finite, values)):
            try:
                look()
            except NonFiniteError as error:
                self._note(str(error), path)

    def _note(self, text: str, path: str) -> None:
        self.record.add("events", {"step": self.record.steps, "path": path, "text": text})

    def _decide(self, scope: str) -> None:
        """Whether the op before this one gets a row.

        It does if it has a name, bends, weighs, or is the last of its scope; outside of any scope,
        if it takes a parameter.
        """
        if self._previous is None:
            return
        node, op, inputs, data, took = self._previous
        self._previous = None
        slope = slope_of(op, inputs, node.settings)
        weighs = "axis" in op.settings and np.shape(inputs[0]) == data.shape
        weights = heads(data) if weighs else None
        inside = scope == node.scope or not node.scope or scope.startswith(f"{node.scope}/")
        chosen = node.name is not None or not inside or (took and not node.scope)
        if slope is not None or weights or chosen:
            self._add_value(node, op, data, slope, weights or {})

    def _add_value(self, node: Node, op: Op, data: Any, slope: Slope | None, more: Any) -> None:
        known = self._paths.get(node.path)
        if known is None:
            known = self._paths[node.path] = _Path(slope)
        index, known.count = known.count, known.count + 1
        if index < 8 or index & (index + 1) == 0:  # of many the first eight, the 16th, the 32nd …
            self._new_cell(f"{node.path}[{index}]" if index else node.path, node, op, data, known)
            self._cells[self._nodes[node]] |= more
        else:
            known.last = node, op, data

    def _new_cell(self, path: str, node: Node, op: Op, data: Any, known: _Path) -> None:
        if path not in self.record.rows:
            flat = known.slope.kind if known.slope else ""
            self.record.add("rows", Row(path, "value", op=op.name, flat=flat, shape=data.shape))
        self._cells[path] = {"value": size(data)}
        self._entries[path] = [few_of(data), None]
        few = self._pictured and len(self._seen) < PICTURED
        if few and data.ndim > 1 and data.size and data.dtype.kind == "f":
            self._seen[node] = data
        self._nodes[node] = path
        if known.slope is not None:
            self._slopes[node] = known.slope

    def _close(self) -> None:
        """The forward pass is over: what ran last, and the last values of paths that ran often."""
        self._decide("")
        for path, known in self._paths.items():
            if known.last is not None:
                self._new_cell(f"{path}[last]", *known.last, known)
                self._cells[f"{path}[last]"]["count"] = known.count
                known.last = None

    # ------------------------------------------------------------------ what it hears of gradients

    def backward(self, node: Node, gradient: Any, contributions: list[Any], seconds: float) -> None:
        if self._previous is not None:
            self._close()
        self._look_for_cancelling(node, gradient, contributions)
        look = partial(self._inspector.backward, node, gradient, contributions, seconds)
        self._inspect(contributions, look, node.path)
        path = self._nodes.pop(node, None)
        if path is None:
            return
        cell, gradient = self._cells[path], np.asarray(_plain(gradient))
        cell["gradient"] = size(gradient)
        self._entries[path][1] = few_of(gradient)
        if node in self._seen:
            with np.errstate(all="ignore"):
                self._picture(path, node, gradient)
        slope = self._slopes.pop(node, None)
        passed = [part for part in contributions if part is not None]
        if slope is not None and len(passed) == 1:
            cell |= flatness(gradient, np.asarray(_plain(passed[0])), slope)

    def _picture(self, path: str, node: Node, gradient: Any) -> None:
        """Units of a value whose gradient is here: weights are still as they were."""
        data, origin = self._seen.pop(node), self._origins.get(node)
        made = picture_of(data, -1 if origin is None else origin[1])
        weigh(made, gradient)
        if origin is not None:
            parameter, _, axis = origin
            if origin not in self._incoming:  # it may lead to several rows
                self._incoming[origin] = incoming(parameter.tensor._data, axis, made.units)
            made.weights = parameter.path
            made.norm, made.strongest = self._incoming[origin]
        self._pictures[path] = made

    def _keep_pictures(self) -> None:
        """Of the samples whose number is a multiple of a stride that doubles."""
        kept, self._samples = self.record.pictures, self._samples + 1
        if self._pictured:
            kept[self.record.steps] = self._pictures
        if len(kept) > PICTURES:
            self._apart *= 2
            for step in [*kept][1::2]:
                del kept[step]

    def _look_for_cancelling(self, node: Node, gradient: Any, contributions: list[Any]) -> None:
        """Gradients that theory says are 0, such as that of a key's bias: only rounding is left.

        Theory does not change: the first samples tell.
        """
        if len(self.record.samples) > 2:
            return
        for edge, part in zip(node.edges, contributions, strict=True):
            known = self._parameters.get(id(edge))
            if known is not None and part is not None and part.ndim < 2 and part.size:
                terms = gradient.size / part.size
                rounding = 64 * np.finfo(part.dtype).eps * size(gradient) * terms
                known.cancels = terms > 1 and size(part) < rounding

    def arrived(self, leaf: Any, gradient: Any) -> None:
        parameter = self._parameters.get(id(leaf))
        if parameter is None:
            return
        gradient = np.asarray(_plain(gradient))
        if parameter.gradient is None:
            if self._clock in (None, "log"):
                parameter.before = np.array(leaf._data)
            parameter.stale = leaf.grad is not None and bool(np.any(leaf.grad))
            parameter.gradient = gradient
        else:
            parameter.gradient = parameter.gradient + gradient

    # ------------------------------------------------------------------ steps end

    def before_update(self, owner: Any) -> None:
        if not self._counts(owner):
            return
        self._release(compared=True)
        if self._looking:
            for p in self._parameters.values():
                if p.gradient is not None and p.tensor.grad is not None:
                    p.before = np.array(p.tensor._data)
                    p.kept = np.array(p.tensor.grad)
        elif not self.record.events:  # NaN in any op reaches the first parameter: one look a step
            if not _is_finite(next((p.grad for p in owner.parameters if p.grad is not None), None)):
                self._note("", "")

    def after_update(self, owner: Any) -> None:
        if self._counts(owner) and vars(owner)["steps"] > self._taken:
            self._taken = vars(owner)["steps"]  # past the attributes that a compiled step hears of
            self._step_ends(vars(owner)["lr"])
        elif self._counts(owner):  # the same step again: a compiled one compares itself
            self._clear()

    def _counts(self, owner: Any) -> bool:
        """Whether this is the optimizer that moves the model: the first that has any of it."""
        if self._clock is None or self._clock == "log":
            known = getattr(owner, "__dict__", {})
            mine = known.get("parameters", ()) if {"lr", "steps"} <= known.keys() else ()
            if not any(id(p) in self._parameters for p in mine):
                return False
            self._clock, self._taken = owner, known["steps"]
            self._given = frozenset(map(id, mine))
        return self._clock is owner

    def logged(self) -> None:
        """Something was logged: without an optimizer, that is the end of a step."""
        if self._clock == "log":
            self._release(compared=True)
        moved = self._clock is None and any(
            p.before is not None and not np.array_equal(p.before, p.tensor._data)
            for p in self._parameters.values()
        )
        if self._clock == "log" or moved:
            self._clock = "log"
            self._step_ends(None)

    def _step_ends(self, lr: float | None) -> None:
        if self._looking:
            self._end(lr)
        self.record.steps += 1
        self._begin()

    def _end(self, lr: float | None = None) -> None:
        self._release()
        if self._previous is not None:
            self._close()
        sample = Sample(self.record.steps, lr, self._cells, entries=self._entries)
        others = any(p.gradient is not None for p in self._parameters.values())
        for p in self._parameters.values():
            if not p.path:
                self._add_row(p, p.name)
            sample.rows[p.path] = figures = self._figures(p, sample)
            if others and (why := self._odd(p, figures)):
                sample.notes[p.path] = why
            p.kept = p.gradient if p.kept is None else p.kept
        if self._trace is not None:
            self._keep_trace(self._trace)
        self._keep_pictures()
        self._pending = sample
        self._clear()

    def _figures(self, p: _Parameter, sample: Sample) -> dict[str, float]:
        """What a parameter was in the step, and how far the step moved it."""
        now = p.tensor._data
        found = {"value": size(now if p.before is None else p.before)}
        if p.gradient is not None:
            found["gradient"] = size(p.gradient)
            sample.entries[p.path] = [few_of(now), few_of(p.gradient)]
            if p.kept is not None and (sent := size(p.kept)) < found["gradient"] * 0.999:
                found["clipped"] = 1 - sent / found["gradient"]
        if p.before is not None:
            found["update"] = size(now - p.before)
            found["ratio"] = found["update"] / found["value"] if found["value"] else 0.0
        found["drift"] = size(now - p.reference) / p.scale
        return found

    def _odd(self, p: _Parameter, figures: dict[str, float]) -> str:
        """In a word, what is odd about a parameter that other parameters do not share."""
        if not p.tensor.requires_grad:
            return "frozen"
        if p.gradient is None:
            return {"graph": "detached", "no_grad": "no_grad"}.get(p.used, "unused")
        odd = {
            "zero": figures["gradient"] == 0,
            "cancels": p.cancels,
            "not given": self._given and id(p.tensor) not in self._given,
            "symmetric": _has_copies(p.tensor._data),
            "stale": p.stale,
        }
        return next((word for word, holds in odd.items() if holds), "")

    def _release(self, compared: bool = False) -> None:
        """The sample that waited is whole; compared, with the next batch's gradient beside its."""
        sample, self._pending = self._pending, None
        if sample is None:
            return
        for p in self._parameters.values() if compared else ():
            if p.kept is not None and p.tensor.grad is not None and p.path in sample.rows:
                angle, noise = cosine(p.kept, np.asarray(p.tensor.grad))
                sample.rows[p.path] |= {"cosine": angle, "noise": noise}
            p.kept = None
        self.record.add("samples", sample)

    def _keep_trace(self, trace: Trace) -> None:
        """The first and the latest few."""
        trace.close()
        kept, self._trace = self.record.traces, None
        kept[self.record.steps] = trace
        if len(kept) > self.most_traces:
            del kept[[*kept][min(1, len(kept) - 2)]]


def _has_copies(weights: Any) -> bool:
    several = weights.ndim == 2 and min(weights.shape) > 1
    alike = several and np.array_equal(weights[:, 0], weights[:, -1])
    return alike and bool((weights == weights[:, :1]).all())


def _is_finite(value: Any) -> bool:
    """Whether all entries are: NaN and infinities survive in a sum."""
    array = _plain(value)
    kind = array.dtype.kind if array is not None else ""
    return kind != "f" or isfinite(np.add.reduce(array, axis=None))


def _plain(value: Any) -> Any:
    return value._data if isinstance(value, Tensor) else value
