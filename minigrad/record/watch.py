"""`mg.watch(model)`: a summary of every N-th step of a training run; in the others nothing
observes.

In a step that is looked at, compiled steps run eagerly. A step ends when the optimizer that moves
the model has moved it, also within a compiled step; without one, when `flow.log(...)` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..engine.context import Context, ContextChange, current
from ..engine.errors import ArgumentError, DTypeError
from ..engine.observer import Observer
from ..engine.tensor import Tensor
from ..optim.optimizer import after_step
from .analysis import saturation
from .data import Array, rms
from .flow import FlowRecord, Moment, Reading
from .heads import heads
from .record import Recorder

if TYPE_CHECKING:
    from ..engine.node import Node
    from ..engine.op import Op

__all__ = ["StepObserver", "Watched"]

MOST_REPEATED = 8  # of values with one path that have a reading


class HasParameters(Protocol):
    """A model, as a Module is."""

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...


Watched: TypeAlias = "HasParameters | Tensor | Sequence[Tensor] | Mapping[str, Tensor]"


class WatchedCall(NamedTuple):
    """An op that ran and was recorded."""

    op: Any
    inputs: Any
    settings: tuple[Any, ...]
    result: Tensor
    scope: str

    @property
    def path(self) -> str:
        name = (self.result.node.name if self.result.node else None) or self.op.name
        return f"{self.scope}/{name}" if self.scope else name


class _Observing(ContextChange):
    """Within, a list of observers that changes from step to step."""

    def __init__(self, observers: list[Any]) -> None:
        self.observers = observers

    def changed(self, now: Context) -> Context:
        self.observers[:] = now.observers
        return Context(now.recording, now.scope, self.observers, now)


class StepObserver(Observer):
    """Fills a FlowRecord while a model trains, or answers under `no_grad`."""

    def __init__(self, flow: FlowRecord, model: Watched) -> None:
        self.flow = flow
        self.tensors = named_tensors(model)
        self._names = {id(p): name for name, p in self.tensors.items()}
        self._paths: dict[int, str] = {}
        self._clock: Any = None  # the optimizer whose steps are counted
        self._optimized: set[int] = set()  # parameters that an optimizer has
        self._observers: list[Any] = []
        self._within = _Observing(self._observers)
        self._first: Recorder | None = (
            None  # of the first moment: which gradients are zero in theory
        )
        self._request = Moment(0)
        self._number, self._first_layer = 0, ""
        self._clear()

    def start(self) -> None:
        self._within.__enter__()
        self._others = [*self._observers]
        after_step.append(self._stepped)
        self._begin()

    def stop(self) -> None:
        after_step.remove(self._stepped)
        if self._calls and self._sent:
            self._end()
        self._end_request()
        self._within.__exit__()

    # ------------------------------------------------------------------ which steps are looked at

    @property
    def _looks(self) -> bool:
        return len(self._observers) > len(self._others)

    def _begin(self) -> None:
        """The next step begins."""
        self._clear()
        looks = self.flow.steps % self.flow.every == 0
        self._first = Recorder() if looks and not self.flow.moments else None
        own = [self] * looks + ([self._first] if self._first is not None else [])
        self._observers[:] = [*self._others, *own]

    def _clear(self) -> None:
        self._calls: list[WatchedCall] = []
        self._sent: dict[int, Array] = {}
        self._used: dict[int, str] = {}  # parameters that ops took, and in which scope first
        self._under_no_grad: set[int] = set()
        self._moment: Moment | None = None
        self._before: dict[str, Array] = {}  # weights before the update
        self._loss: float | None = None

    def _stepped(self, optimizer: Any) -> None:
        """An optimizer has moved its parameters."""
        mine = {id(p) for p in optimizer.parameters} & self._names.keys()
        self._optimized |= mine
        if mine and (self._clock is None or self._clock is optimizer):
            self._clock = optimizer
            self.step_ends()

    def logged(self) -> None:
        """Something was logged: without an optimizer, that is the end of a step."""
        if self._clock is None and (self._sent or not self._looks):
            self.step_ends()

    def step_ends(self) -> None:
        if self._looks and self._sent:
            self._end()
        self.flow.steps += 1
        self._begin()

    # ------------------------------------------------------------------ events

    def made(
        self, op: Op, inputs: Any, settings: tuple[Any, ...], result: Tensor, seconds: float
    ) -> None:
        context = current()
        for x in inputs:
            if id(x) in self._names:
                if context.recording:
                    self._used.setdefault(id(x), context.scope)
                else:
                    self._under_no_grad.add(id(x))
        if result.node is not None:
            self._calls.append(WatchedCall(op, inputs, settings, result, context.scope))
        elif not context.recording:
            self._answered(op, result, context.scope)

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        self._sent[id(node)] = np.asarray(getattr(gradient, "_data", gradient))

    def said(self, kind: str, **facts: Any) -> None:
        if kind == "backward":
            self._loss = float(facts["output"]._data.sum())
        elif kind == "update" and self._moment is None and self._sent:
            owned = {id(p) for p in getattr(facts["owner"], "parameters", ())}
            if owned & self._names.keys():
                self._measure()

    # ------------------------------------------------------------------ a step

    def _measure(self) -> None:
        """Measure values and gradients, before the update."""
        self._moment = moment = Moment(self.flow.steps, self._loss, _guess(self._calls))
        seen: Counter[str] = Counter()
        for call, beyond in zip(self._calls, [*self._calls[1:], None], strict=True):
            for x in call.inputs:
                if id(x) in self._names and id(x) not in self._paths:
                    self._place(x, call.scope)
            index = seen[call.path]
            seen[call.path] += 1
            if index < MOST_REPEATED and self._is_shown(call, beyond.scope if beyond else ""):
                self._read(moment, f"{call.path}[{index}]" if index else call.path, call)
        for name, p in self.tensors.items():
            self._read_parameter(moment, self._paths.get(id(p)) or self._place(p, ""), p, name)

    def _place(self, p: Tensor, scope: str) -> str:
        """The path of a parameter, once it is known where it is used first."""
        name = p.name or self._names[id(p)].rpartition(".")[2]
        path = f"{scope}/{name}" if scope else name
        path = self._names[id(p)] if path in self.flow.kinds else path
        self._paths[id(p)] = path
        self.flow.kinds[path], self.flow.shapes[path] = "parameter", p.shape
        return path

    def _is_shown(self, call: WatchedCall, beyond: str) -> bool:
        """Whether a value has a reading. Args: beyond: the next one's scope."""
        scope, saturates = call.scope, call.op.saturates is not None
        ends_scope = bool(scope) and not f"{beyond}/".startswith(f"{scope}/")
        takes = not scope and any(id(x) in self._names for x in call.inputs)
        named = call.result.node is not None and bool(call.result.node.name)
        return named or ends_scope or takes or (saturates and "axis" not in call.op.settings)

    def _read(self, moment: Moment, path: str, call: WatchedCall) -> None:
        op, result = call.op, call.result
        gradient = self._sent.get(id(result.node))
        found = heads(result._data) if "axis" in op.settings and op.saturates is not None else None
        if found is not None:
            moment.heads[path] = found
        share = None
        if op.saturates is not None and ("axis" not in op.settings or found is not None):
            counted = saturation(
                op.name, result._data, dict(zip(op.settings, call.settings, strict=True))
            )
            if counted is not None:
                share, self.flow.words[path] = counted[0] / counted[1], counted[2]
        self.flow.kinds.setdefault(path, op.name)
        self.flow.shapes[path] = result.shape
        value = rms(result._data)
        back = None if gradient is None else rms(gradient)
        moment.readings[path] = Reading(
            value, back, isfinite(value) and isfinite(back or 0.0), share
        )

    def _read_parameter(self, moment: Moment, path: str, p: Tensor, name: str) -> None:
        value, back = rms(p._data), None
        if p.grad is not None:
            back = rms(np.asarray(p.grad))
            self._before[path] = p._data.copy()
        else:
            why = "no op of the step takes it"
            if id(p) in self._used:
                why = "ops take it, but no gradient comes back"
            elif id(p) in self._under_no_grad:
                why = "ops take it under no_grad alone"
            moment.missing[path] = why if p.requires_grad else "frozen"
        moment.readings[path] = Reading(value, back, isfinite(value) and isfinite(back or 0.0))

    def _end(self) -> None:
        """The step is over: measure how far it moved the parameters, and keep its moment."""
        if self._moment is None:
            self._measure()
        moment = self._moment
        assert moment is not None
        for p in self.tensors.values():
            path = self._paths[id(p)]
            if path in self._before:
                one = moment.readings[path]
                moved = rms(p._data - self._before[path])
                moment.readings[path] = one._replace(
                    update=moved / one.value if one.value else moved
                )
                if self._optimized and id(p) not in self._optimized:
                    moment.missing[path] = "the optimizer does not have it"
        if self._first is not None:
            record = self._first.record.analyze()
            zeros = {(e.name, e.scope) for e in map(record.entries.__getitem__, record.zeros)}
            placed = ((path, path.rpartition("/")) for path in self._paths.values())
            self.flow.in_theory = [
                path for path, (scope, _, name) in placed if (name, scope) in zeros
            ]
        self.flow.moments.append(moment)

    # ------------------------------------------------------------------ a request under no_grad

    def _answered(self, op: Op, result: Tensor, scope: str) -> None:
        """An op ran under `no_grad`; attention is known by its rows, which sum to 1."""
        if "axis" not in op.settings or op.saturates is None:
            return
        path = f"{scope}/A" if scope else op.name
        if path == self._first_layer:  # the first layer again: another request
            self._end_request()
        if not self._first_layer or self._number % self.flow.every == 0:
            found = heads(result._data)
            if found is None:
                return
            self._first_layer = self._first_layer or path
            if self._number % self.flow.every == 0:
                self._request.heads[path] = found

    def _end_request(self) -> None:
        if self._request.heads:
            self.flow.requests.append(self._request)
        self._number += bool(self._first_layer)
        self._request = Moment(self._number)


def _guess(calls: list[WatchedCall]) -> float | None:
    """The loss of the best constant guess: the entropy of a batch's targets."""
    for call in reversed(calls):
        given = dict(zip(call.op.settings, call.settings, strict=True))
        targets = given.get("targets")
        if call.op.name == "cross_entropy" and isinstance(targets, np.ndarray):
            if targets.dtype.kind not in "iu":
                return None
            wanted = targets[targets != given["ignore_index"]]  # None is no class
            counts = np.unique(wanted, return_counts=True)[1]
            shares = counts / counts.sum()
            return float(-(shares * np.log(shares)).sum())
    return None


def named_tensors(model: Any) -> dict[str, Tensor]:
    """The parameters of a model, by name. Raises: DTypeError for what is no model."""
    if hasattr(model, "named_parameters") and not isinstance(model, type):
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
