"""`mg.watch(model)`: a summary of every N-th step of a training run; in the others nothing
observes.

In a step that is looked at, compiled steps run eagerly. A step ends when the optimizer that moves
the model has moved it, also within a compiled step; without one, when `flow.log(...)` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..engine.context import Context, ContextChange, ScopeCall, current
from ..engine.errors import ArgumentError, DTypeError
from ..engine.observer import Observer
from ..engine.tensor import Tensor
from ..optim.optimizer import after_step
from .calls import RunCalls
from .finish import changes_in_time, finish
from .heads import heads
from .record import Array, rms
from .recorder import Recorder
from .saturation import saturation
from .time import over_steps
from .training import Moment, Reading, TrainingRecord

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
    scope: str | None  # None within a module that is not the model's
    calls: tuple[int, ...]  # as in `Entry.calls`

    @property
    def given(self) -> dict[str, Any]:
        """Its settings by name."""
        return dict(zip(self.op.settings, self.settings, strict=True))


class Chains(NamedTuple):
    """Which ops of a step are the first and the last of steps in time.

    ops: how many ran in the step.  ends: path, numbers of both ops, how many steps.
    """

    ops: int
    ends: list[tuple[str, int | None, int | None, int]]


class _Observing(ContextChange):
    """Within, a list of observers that changes from step to step."""

    def __init__(self, observers: list[Any]) -> None:
        self.observers = observers

    def changed(self, now: Context) -> Context:
        self.observers[:] = now.observers
        return Context(now.recording, now.call, self.observers, now)


class StepObserver(Observer):
    """Fills a TrainingRecord while a model trains, or answers under `no_grad`."""

    def __init__(self, flow: TrainingRecord, model: Watched) -> None:
        self.flow = flow
        self.tensors = named_tensors(model)
        self._names = {id(p): name for name, p in self.tensors.items()}
        self._modules = model.modules() if hasattr(model, "modules") else []
        self._own = {*map(id, self._modules)}
        self._run_calls = RunCalls()
        self._paths: dict[int, str] = {}
        self._clock: Any = None  # the optimizer whose steps are counted
        self._optimized: set[int] = set()  # parameters that an optimizer has
        self._observers: list[Any] = []
        self._within = _Observing(self._observers)
        self._chains: Chains | None = None  # of calls that are steps in time, once they are known
        self._request, self._first_layer = Moment(0), ""

    def start(self) -> None:
        self._within.__enter__()
        self._others = [*self._observers]
        after_step.append(self._stepped)
        self._begin()

    def stop(self) -> None:
        after_step.remove(self._stepped)
        if self._sent:
            self._end()
        self._end_request()
        self._within.__exit__()

    # ------------------------------------------------------------------ which steps are looked at

    def _begin(self) -> None:
        """The next step begins."""
        self._run_calls.forget()
        self._calls: list[WatchedCall] = []
        self._sent: dict[int, Array] = {}
        self._unrecorded: set[int] = set()  # what ops took under no_grad
        self._moment: Moment | None = None
        self._before: dict[str, Array] = {}  # weights before the update
        self._loss: float | None = None
        self._looks = self.flow.steps % self.flow.every == 0
        self._arrived: set[int] = set()  # leaves to which a gradient came
        self._stale: set[int] = set()  # of these, those that held another from an earlier step
        self._over_steps: dict[str, tuple[float, float, int]] = {}  # within ops
        records = self._looks and self._chains is None
        self._recorder = Recorder() if records else None
        self._observers[:] = self._others
        if self._looks:
            self._observers.append(self)
        if self._recorder is not None:
            self._observers.append(self._recorder)

    def _stepped(self, optimizer: Any) -> None:
        """An optimizer has moved its parameters."""
        mine = {id(p) for p in optimizer.parameters} & self._names.keys()
        self._optimized |= mine
        if mine and (self._clock is None or self._clock is optimizer):
            self._clock = optimizer
            self._step_ends()

    def logged(self) -> None:
        """Something was logged: without an optimizer, that is the end of a step."""
        if self._clock is None and (self._sent or not self._looks):
            self._step_ends()

    def _step_ends(self) -> None:
        if self._sent:
            self._end()
        self.flow.steps += 1
        self._begin()

    # ------------------------------------------------------------------ events

    def made(
        self, op: Op, inputs: Any, settings: tuple[Any, ...], result: Tensor, seconds: float
    ) -> None:
        context = current()
        if result.node is not None:
            kept = self._is_kept(context.call)
            scope, calls, _ = self._run_calls.of(context.call) if kept else (None, (), "")
            self._calls.append(WatchedCall(op, inputs, settings, result, scope, calls))
        elif not context.recording:
            self._unrecorded.update(map(id, inputs))
            if self._is_kept(context.call):
                self._answered(op, result, context.scope)

    def _is_kept(self, call: ScopeCall | None) -> bool:
        """Whether a call is within a module of the model, or within none; of tensors, all are."""
        is_foreign = False
        while call is not None:
            module = None if call.owner is None else call.owner()
            if id(module) in self._own:
                return True
            is_foreign = is_foreign or module is not None
            call = call.outer
        return not (is_foreign and self._own)

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        self._sent[id(node)] = np.asarray(getattr(gradient, "_data", gradient))
        axis = node.op.time_axis
        if axis is not None and node.plan.names[0] == node.op.inputs[0] and parts[0] is not None:
            sequence = np.asarray(getattr(parts[0], "_data", parts[0]))
            self._over_steps[f"{node.path}/{node.op.inputs[0]}"] = over_steps(sequence, axis)

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        if id(leaf) in self._names and id(leaf) not in self._arrived:
            self._arrived.add(id(leaf))
            if leaf.grad is not None and np.any(leaf.grad):
                self._stale.add(id(leaf))

    def said(self, kind: str, **facts: Any) -> None:
        if kind == "backward":
            self._loss = float(facts["output"]._data.sum())
        elif kind == "update" and self._moment is None and self._sent:
            owned = {id(p) for p in getattr(facts["owner"], "parameters", ())}
            if owned & self._names.keys():
                self._measure()

    # ------------------------------------------------------------------ a step

    def _measure(self) -> Moment:
        """Measure values and gradients, before the update."""
        self._moment = moment = Moment(self.flow.steps, self._loss, self._guess())
        seen: Counter[str] = Counter()
        following = [*(call.calls for call in self._calls[1:]), ()]
        for call, after in zip(self._calls, following, strict=True):
            if call.scope is None:
                continue
            own = [x for x in call.inputs if id(x) in self._names]
            for p in own:
                self._place(p, call.scope)
            name = call.result.node.name if call.result.node is not None else None
            last = bool(call.calls) and after[: len(call.calls)] != call.calls
            bends = call.op.saturates is not None and "axis" not in call.op.settings
            if name or last or bends or (own and not call.scope):
                path = "/".join(filter(None, [call.scope, name or call.op.name]))
                number = seen[path]
                seen[path] += 1
                if number < MOST_REPEATED:
                    self._read(moment, f"{path}[{number}]" if number else path, call)
        for p in self.tensors.values():
            self._place(p, "")
            self._read_parameter(moment, p)
        moment.stale = [self._paths[i] for i in self._stale]
        if self._recorder is not None:
            zeros, find = finish(self._recorder.record).zeros, self._recorder.find
            leaves = [p for p in self.tensors.values() if find(p) in zeros]
            self.flow.in_theory = [self._paths[id(p)] for p in leaves]
            self._find_chains(self._recorder)
        self._measure_time(moment)
        return moment

    def _guess(self) -> float | None:
        """The best constant guess's loss, where the loss is a cross-entropy: targets' entropy."""
        for call in reversed(self._calls):
            if call.op.name == "cross_entropy":
                targets, loss = call.given["targets"], float(call.result._data.sum())
                is_loss = self._loss is None or np.isclose(loss, self._loss)
                if not is_loss or not isinstance(targets, np.ndarray):
                    return None
                if targets.dtype.kind not in "iu":
                    return None
                wanted = targets[targets != call.given["ignore_index"]]  # None is no class
                counts = np.unique(wanted, return_counts=True)[1]
                shares = counts / counts.sum()
                return float(-(shares * np.log(shares)).sum())
        return None

    def _find_chains(self, recorder: Recorder) -> None:
        """Which of the ops are steps in time: see `through_time`."""
        numbers = {recorder.find(call.result): n for n, call in enumerate(self._calls)}
        changes = [one for one in changes_in_time(recorder.record) if len(one.entries) == 2]
        chains = [
            (one.path, numbers.get(one.entries[0]), numbers.get(one.entries[1]), one.steps)
            for one in changes
        ]
        self._chains = Chains(len(self._calls), chains)

    def _measure_time(self, moment: Moment) -> None:
        """Measure gradients at the ends of time, where the step runs the ops that were recorded."""
        moment.through_time = dict(self._over_steps)
        if self._chains is None or (self._chains.ends and self._chains.ops != len(self._calls)):
            self._chains = None  # the next step that is looked at is recorded
            return
        for path, *ends, steps in self._chains.ends:
            nodes = [self._calls[n].result.node for n in ends if n is not None]
            first, last = (rms(self._sent.get(id(node), 0.0)) for node in nodes)
            moment.through_time[path] = first, last, steps

    def _place(self, p: Tensor, scope: str) -> None:
        """Give a parameter its path, which is known where it is used first."""
        if id(p) not in self._paths:
            known = self._names[id(p)]
            scope = self._run_calls.homes.get(id(p), scope)
            path = "/".join(filter(None, [scope, p.name or known.rpartition(".")[2]]))
            self._paths[id(p)] = path = known if path in self.flow.kinds else path
            self.flow.kinds[path], self.flow.shapes[path] = "parameter", p.shape

    def _read(self, moment: Moment, path: str, call: WatchedCall) -> None:
        op, value = call.op, call.result._data
        share = None
        if op.saturates is not None:
            found = heads(value) if "axis" in op.settings else None
            if found is not None:
                moment.heads[path] = found
            if found is not None or "axis" not in op.settings:
                counted = saturation(op.name, value, call.given)
                if counted is not None:
                    share, self.flow.words[path] = counted[0] / counted[1], counted[2]
        gradient = self._sent.get(id(call.result.node))
        self.flow.kinds.setdefault(path, op.name)
        self.flow.shapes[path] = value.shape
        back = None if gradient is None else rms(gradient)
        moment.readings[path] = Reading(rms(value), back, share)

    def _read_parameter(self, moment: Moment, p: Tensor) -> None:
        path, back = self._paths[id(p)], None
        if p.grad is not None:
            back = rms(p.grad)
            self._before[path] = p._data.copy()
        elif not p.requires_grad:
            moment.missing[path] = "frozen"
        elif id(p) in self._arrived:
            moment.missing[path] = "its gradient was cleared before the update, by zero_grad()"
        elif any(p is x for call in self._calls for x in call.inputs):
            moment.missing[path] = "ops take it, but no gradient comes back"
        else:
            alone = id(p) in self._unrecorded
            why = "ops take it under no_grad alone" if alone else "no op of the step takes it"
            moment.missing[path] = why
        moment.readings[path] = Reading(rms(p._data), back)

    def _end(self) -> None:
        """The step is over: measure how far it moved the parameters, and keep its moment."""
        moment = self._moment or self._measure()
        for p in self.tensors.values():
            path = self._paths[id(p)]
            if path in self._before:
                one = moment.readings[path]
                moved = rms(p._data - self._before[path])
                update = moved / one.value if one.value else moved
                moment.readings[path] = one._replace(update=update)
                if self._optimized and id(p) not in self._optimized:
                    moment.missing[path] = "the optimizer does not have it"
        self.flow.moments.append(moment)

    # ------------------------------------------------------------------ a request under no_grad

    def _answered(self, op: Op, result: Tensor, scope: str) -> None:
        """An op ran under `no_grad`; attention is known by its rows, which sum to 1."""
        if "axis" not in op.settings or op.saturates is None:
            return
        path = f"{scope}/A" if scope else op.name
        if path == self._first_layer:  # the first layer again: another request
            self._end_request()
        found = heads(result._data) if self._request.step % self.flow.every == 0 else None
        if found is not None:
            self._first_layer = self._first_layer or path
            self._request.heads[path] = found

    def _end_request(self) -> None:
        if self._request.heads:
            self.flow.requests.append(self._request)
        self._request = Moment(self._request.step + 1)


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
