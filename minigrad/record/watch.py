"""`mg.watch(model)`: a summary of every N-th step of a training run.

A step that is looked at is recorded, and compiled steps run eagerly in it; in the others nothing
observes. A step ends when the optimizer that moves the model has moved it, also within a compiled
step; without one, when `flow.log(...)` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ..engine.context import Context, ContextChange, ScopeCall, current
from ..engine.errors import ArgumentError, DTypeError
from ..engine.op import registry
from ..engine.tensor import Tensor
from ..optim.optimizer import after_step
from .calls import mark_calls
from .finish import finish
from .heads import heads
from .record import Entry, rms
from .recorder import Recorder
from .saturation import saturation
from .time import through_time
from .training import Moment, Reading, TrainingRecord

if TYPE_CHECKING:
    from ..engine.op import Op

__all__ = ["StepObserver", "Watched"]

MOST_REPEATED = 8  # of values with one path that have a reading


class HasParameters(Protocol):
    """A model, as a Module is."""

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...


Watched: TypeAlias = "HasParameters | Sequence[Tensor]"


class _Observing(ContextChange):
    """Within, a list of observers that changes from step to step."""

    def __init__(self, observers: list[Any]) -> None:
        self.observers = observers

    def changed(self, now: Context) -> Context:
        return Context(now.recording, now.call, self.observers, now)


class StepObserver(Recorder):
    """Records steps of a model that trains, of which it keeps summaries, or hears its answers."""

    def __init__(self, flow: TrainingRecord, model: Watched) -> None:
        super().__init__()
        self.flow = flow
        self.tensors = named_tensors(model)
        self._names = {id(p): name for name, p in self.tensors.items()}
        self._modules = model.modules() if hasattr(model, "modules") else []
        self._own = {*map(id, self._modules)}
        self._paths: dict[int, str] = {}
        self._clock: Any = None  # the optimizer whose steps are counted
        self._optimized: set[int] = set()  # parameters that an optimizer has
        self._within = _Observing([])
        self._request, self._first_layer = Moment(0), ""

    def start(self) -> None:
        self._others = current().observers
        self._within.__enter__()
        after_step.append(self._stepped)
        self._begin()

    def stop(self) -> None:
        after_step.remove(self._stepped)
        self._end()
        self._end_request()
        self._within.__exit__()

    # ------------------------------------------------------------------ which steps are looked at

    def _begin(self) -> None:
        """The next step begins."""
        super().__init__()
        self._kept: list[int] = []  # entries of the model's ops
        self._unrecorded: set[int] = set()  # what ops took under no_grad
        self._arrived: set[int] = set()  # parameters to which a gradient came
        self._stale: set[int] = set()  # of these, those that held another from an earlier step
        self._moment: Moment | None = None
        self._loss: float | None = None
        self._looks = self.flow.steps % self.flow.every == 0
        self._within.observers[:] = self._others
        if self._looks:
            self._within.observers.append(self)

    def _stepped(self, optimizer: Any) -> None:
        """An optimizer has moved its parameters."""
        mine = {id(p) for p in optimizer.parameters} & self._names.keys()
        self._optimized |= mine
        if mine and (self._clock is None or self._clock is optimizer):
            self._clock = optimizer
            self._step_ends()

    def logged(self) -> None:
        """Something was logged: without an optimizer, that is the end of a step."""
        if self._clock is None and (self.record.backward or not self._looks):
            self._step_ends()

    def _step_ends(self) -> None:
        self._end()
        self.flow.steps += 1
        self._begin()

    # ------------------------------------------------------------------ events

    def made(
        self, op: Op, inputs: Any, settings: tuple[Any, ...], result: Tensor, seconds: float
    ) -> None:
        context = current()
        kept = self._is_kept(context.call)
        if context.recording:
            super().made(op, inputs, settings, result, seconds)
            if kept and result.node is not None:
                self._kept.append(len(self.record.entries) - 1)
        else:
            self._unrecorded.update(map(id, inputs))
            if kept:
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

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        super().arrived(leaf, gradient)
        if id(leaf) in self._names and id(leaf) not in self._arrived:
            self._arrived.add(id(leaf))
            if leaf.grad is not None and np.any(leaf.grad):
                self._stale.add(id(leaf))

    def said(self, kind: str, **facts: Any) -> None:
        """Several backwards of one step, and what is written in it, make no other record."""
        if kind == "backward":
            self._loss = float(facts["output"]._data.sum())
            if (root := self.find(facts["output"])) is not None:
                self.record.roots.append(root)
        elif kind == "input":
            super().said(kind, **facts)
        elif kind == "update" and self._moment is None and self.record.backward:
            if any(id(p) in self._names for p in getattr(facts["owner"], "parameters", ())):
                self._measure()

    # ------------------------------------------------------------------ a step

    def _measure(self) -> Moment:
        """Measure values and gradients, before the update."""
        self._moment = moment = Moment(self.flow.steps, self._loss, self._guess())
        record, parameters = self.record, {self.find(p): p for p in self.tensors.values()}
        times: Counter[str] = Counter()
        calls_after = [record.entries[i].calls for i in self._kept[1:]]
        after = dict(zip(self._kept, [*calls_after, ()], strict=True))
        for entry in record.entries:
            if entry.id in parameters:
                self._place(parameters[entry.id], entry.scope)
            elif entry.id in after and self._is_row(entry, after[entry.id], parameters):
                number = times[entry.path]
                times[entry.path] += 1
                if number < MOST_REPEATED:
                    path = f"{entry.path}[{number}]" if number else entry.path
                    self._read(moment, path, entry)
        for p in self.tensors.values():
            self._place(p, self._run_calls.homes.get(id(p), ""))
            self._read_parameter(moment, p)
        moment.stale = [self._paths[i] for i in self._stale]
        if self.flow.moments:
            mark_calls(record)
        else:
            zeros = finish(record).zeros
            leaves = [p for p in self.tensors.values() if self.find(p) in zeros]
            self.flow.in_theory = [self._paths[id(p)] for p in leaves]
        for change in through_time(record):
            moment.through_time[change.path] = change.first, change.last, change.steps
        return moment

    def _is_row(self, entry: Entry, following: tuple[int, ...], parameters: Any) -> bool:
        """Whether it has a name, ends a call, may saturate, or takes a parameter outside of all."""
        op, calls = registry[entry.op], entry.calls
        if entry.name or (op.saturates is not None and "axis" not in op.settings):
            return True
        if calls:
            return following[: len(calls)] != calls
        return any(edge.source in parameters for edge in self.record.into(entry))

    def _guess(self) -> float | None:
        """The best constant guess's loss, where the loss is a cross-entropy: targets' entropy."""
        for entry in reversed(self.record.entries):
            if entry.op == "cross_entropy":
                targets, value = entry.settings["targets"], np.sum(np.asarray(entry.value))
                if self._loss is None or not np.isclose(value, self._loss):
                    return None
                if np.asarray(targets).dtype.kind not in "iu":
                    return None
                wanted = targets[targets != entry.settings["ignore_index"]]  # None is no class
                shares = np.unique(wanted, return_counts=True)[1] / wanted.size
                return float(-(shares * np.log(shares)).sum())
        return None

    def _place(self, p: Tensor, scope: str) -> None:
        """Give a parameter its path, which is known where it is used first."""
        if id(p) not in self._paths:
            known = self._names[id(p)]
            path = "/".join(filter(None, [scope, p.name or known.rpartition(".")[2]]))
            self._paths[id(p)] = path = known if path in self.flow.kinds else path
            self.flow.kinds[path], self.flow.shapes[path] = "parameter", p.shape

    def _read(self, moment: Moment, path: str, entry: Entry) -> None:
        share, value = None, np.asarray(entry.value)
        counts = saturation(entry.op, value, entry.settings)
        figures = heads(value) if counts and "axis" in entry.settings else None
        if figures is not None:
            moment.heads[path] = figures
        if counts and (figures is not None or "axis" not in entry.settings):
            stuck, of_all, self.flow.words[path] = counts
            share = stuck / of_all
        self.flow.kinds.setdefault(path, entry.op)
        self.flow.shapes[path] = entry.shape
        back = None if entry.gradient is None else rms(entry.gradient)
        moment.readings[path] = Reading(rms(value), back, share)

    def _read_parameter(self, moment: Moment, p: Tensor) -> None:
        path, back = self._paths[id(p)], None
        if p.grad is not None:
            back = rms(p.grad)
        elif not p.requires_grad:
            moment.missing[path] = "frozen"
        elif id(p) in self._arrived:
            moment.missing[path] = "its gradient was cleared before the update, by zero_grad()"
        elif self.find(p) is not None:
            moment.missing[path] = "ops take it, but no gradient comes back"
        elif id(p) in self._unrecorded:
            moment.missing[path] = "ops take it under no_grad alone"
        else:
            moment.missing[path] = "no op of the step takes it"
        moment.readings[path] = Reading(rms(p._data), back)

    def _end(self) -> None:
        """The step is over: measure how far it moved the parameters, and keep its moment."""
        if not self.record.backward:
            return
        moment = self._moment or self._measure()
        for p in self.tensors.values():
            path, known = self._paths[id(p)], self.find(p)
            reading = moment.readings[path]
            if reading.gradient is not None and known is not None:
                moved = rms(p._data - self.record.entries[known].value)
                update = moved / reading.value if reading.value else moved
                moment.readings[path] = reading._replace(update=update)
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
        if self._request.step % self.flow.every == 0:
            figures = heads(result._data)
            if figures is not None:
                self._first_layer = self._first_layer or path
                self._request.heads[path] = figures

    def _end_request(self) -> None:
        if self._request.heads:
            self.flow.requests.append(self._request)
        self._request = Moment(self._request.step + 1)


def named_tensors(model: Any) -> dict[str, Tensor]:
    """The parameters of a model, by name. Raises: DTypeError for what is no model."""
    if hasattr(model, "named_parameters") and not isinstance(model, type):
        tensors = dict(model.named_parameters())
    else:
        tensors = {}
        for i, p in enumerate(model if isinstance(model, list | tuple) else [model]):
            if not isinstance(p, Tensor):
                raise DTypeError(
                    f"watch(model): must be a Module, or Tensors in a list, got {type(p).__name__}"
                )
            name = p.name or "parameter"
            tensors[name if name not in tensors else f"{name} {i}"] = p
    if not tensors:
        raise ArgumentError("watch(model): the model has no parameters")
    return tensors
