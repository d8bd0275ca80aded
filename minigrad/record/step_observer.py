"""What `mg.watch` (watching.py) sees: steps of a training run, of which every N-th is looked at.

A step that is looked at is observed op by op, and compiled steps run eagerly in it; in the others
nothing observes. A step ends when the optimizer that moves the model has moved it, also within a
compiled step; without an optimizer of `minigrad.optim`, when `flow.log(...)` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isclose
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..engine.context import ScopeCall, current
from ..engine.errors import ArgumentError, DTypeError
from ..engine.observer import Observer
from ..engine.op import array_of
from ..engine.tensor import Tensor
from ..optim.optimizer import after_step
from .calls import RunCall, RunCalls, mark_calls
from .finish import finish
from .fold import LEAST_COPIES
from .heads import heads
from .record import Array, rms
from .recorder import ObservedBy, Recorder
from .saturation import by_rows, saturation
from .time import through_time
from .training import Moment, Reading, TrainingRecord

if TYPE_CHECKING:
    from ..engine.node import Node
    from ..engine.op import Op

__all__ = ["StepObserver", "Watched"]

MOST_REPEATED = 8  # of values with one path that have a reading


class HasParameters(Protocol):
    """A model, as a Module is."""

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...


Watched: TypeAlias = "HasParameters | Sequence[Tensor]"


def named_tensors(model: Any) -> dict[str, Tensor]:
    """The parameters of a model, by name. Raises: DTypeError for what is no model."""
    tensors: dict[str, Tensor] = {}
    if hasattr(model, "named_parameters") and not isinstance(model, type):
        tensors.update(model.named_parameters())
    else:
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


class OpCall(NamedTuple):
    """An op of the model that ran in a step: what it made, and which parameters it took."""

    node: Node
    value: Array
    settings: dict[str, Any]
    takes: list[Tensor]
    call: RunCall


class _GraphRecorder(Recorder):
    """Records what may go back: of a model that only answers under `no_grad`, nothing is kept."""

    def made(self, *call: Any) -> None:
        if current().recording:
            super().made(*call)

    def said(self, kind: str, **facts: Any) -> None:
        if current().recording:
            super().said(kind, **facts)


class StepObserver(Observer):
    """Keeps summaries of steps of a model that trains, and of its answers under `no_grad`.

    The life of a step: `_begin_step`; `made`, `sent` and `arrived` as it runs; `_measure` before
    the update; `_optimizer_moved` after it, or `logged` without an optimizer; `_next_step`, which
    has `_keep_moment` add the updates, and begins anew.

    In the first step that is looked at a Recorder observes beside it: its record tells what is zero
    in theory. In later ones it does where something may change through time: where ops of the step
    before took a parameter several times, or go along an axis of time.
    """

    def __init__(self, flow: TrainingRecord, model: Watched) -> None:
        self.flow = flow
        self.tensors = named_tensors(model)
        self._names = {id(p): name for name, p in self.tensors.items()}
        self._paths: dict[int, str] = {}
        self._modules = model.modules() if hasattr(model, "modules") else []
        self._own = {*map(id, self._modules)}
        self._counted: Any = None  # the optimizer whose steps are counted
        self._optimized: set[int] = set()  # parameters that an optimizer has
        self._observers: list[Any] = []  # in the step that runs
        self._within = ObservedBy(self._observers)
        self._run_calls = RunCalls()
        self._wants_record = True
        self._request, self._first_layer = Moment(0), ""

    def start(self) -> None:
        self._others = current().observers
        self._within.__enter__()
        after_step.append(self._optimizer_moved)
        self._begin_step()

    def _begin_step(self) -> None:
        """The next step begins."""
        self._run_calls.begin()
        self._recorder = _GraphRecorder()
        self._op_calls: list[OpCall] = []
        self._gradients: dict[Node, Any] = {}  # of what ops made
        self._before: dict[int, Array] = {}  # parameters as the first op took them
        self._times_taken: Counter[int] = Counter()
        self._unrecorded: set[int] = set()  # what ops took under no_grad
        self._arrived: set[int] = set()  # parameters to which a gradient came
        self._stale: set[int] = set()  # of these, those that held another from an earlier step
        self._has_time_axis = False
        self._moment: Moment | None = None
        self._loss: float | None = None
        self._looks = self.flow.steps % self.flow.every == 0
        self._observers[:] = self._others
        if self._looks:
            self._observers.append(self)
        if self._looks and self._wants_record:
            self._observers.append(self._recorder)

    # ------------------------------------------------------------------ events of a step

    def made(
        self, op: Op, inputs: Any, settings: tuple[Any, ...], result: Tensor, seconds: float
    ) -> None:
        context = current()
        is_kept = self._is_kept(context.call)
        if not context.recording:
            self._unrecorded.update(map(id, inputs))
            if is_kept and by_rows(op):
                self._answered(result, f"{context.scope}/A" if context.scope else op.name)
            return
        call = self._run_calls.of(context.call)
        takes = [x for x in inputs if id(x) in self._names]
        for p in takes:
            self._times_taken[id(p)] += 1
            if id(p) not in self._before:
                self._before[id(p)] = p._data.copy("K")
                self._place(p, call.path)
        self._has_time_axis |= op.time_axis is not None
        if is_kept and result.node is not None:
            by_name = dict(zip(op.settings, settings, strict=True))
            self._op_calls.append(OpCall(result.node, result._data, by_name, takes, call))

    def _is_kept(self, call: ScopeCall | None) -> bool:
        """Whether a call is within a module of the model, or within none; of tensors, all are."""
        modules = set()
        while call is not None:
            if call.owner is not None:
                modules.add(id(call.owner()))
            call = call.outer
        return not (self._own and modules) or not modules.isdisjoint(self._own)

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        self._gradients[node] = array_of(gradient)

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        if id(leaf) in self._names and id(leaf) not in self._arrived:
            self._arrived.add(id(leaf))
            if leaf.grad is not None and np.any(leaf.grad):
                self._stale.add(id(leaf))

    def said(self, kind: str, **facts: Any) -> None:
        if kind == "backward":
            self._loss = float(facts["output"]._data.sum())
        elif kind == "update" and self._moment is None and self._gradients:
            moved = map(id, getattr(facts["owner"], "parameters", ()))
            if not self._names.keys().isdisjoint(moved):
                self._measure()

    # ------------------------------------------------------------------ before the update

    def _measure(self) -> Moment:
        """Measure values and gradients."""
        self._moment = moment = Moment(self.flow.steps, self._loss, self._guess())
        times: Counter[str] = Counter()
        after = [*(op_call.call.numbers for op_call in self._op_calls[1:]), ()]
        for op_call, following in zip(self._op_calls, after, strict=True):
            scope, name = op_call.call.path, op_call.node.name or op_call.node.op.name
            if _is_row(op_call, following):
                path = f"{scope}/{name}".lstrip("/")
                number = times[path]
                times[path] += 1
                if number < MOST_REPEATED:
                    self._read(moment, f"{path}[{number}]" if number else path, op_call)
        for p in self.tensors.values():
            self._place(p, "")
            self._read_parameter(moment, p)
        moment.stale = [self._paths[i] for i in self._stale]
        if not self.flow.moments:
            finish(self._recorder.record)
            for p in self.tensors.values():
                entry = self._recorder.find(p)
                if entry and entry.state == "zero in theory":
                    self.flow.in_theory.append(self._paths[id(p)])
        mark_calls(self._recorder.record)
        for change in through_time(self._recorder.record):
            moment.through_time[change.path] = change.first, change.last, change.steps
        most = max(self._times_taken.values(), default=0)
        self._wants_record = most >= LEAST_COPIES or self._has_time_axis
        return moment

    def _guess(self) -> float | None:
        """The best constant guess's loss, where the loss is a cross-entropy: targets' entropy."""
        for op_call in reversed(self._op_calls):
            if op_call.node.op.name == "cross_entropy":
                targets, ignored = op_call.settings["targets"], op_call.settings["ignore_index"]
                loss = float(op_call.value.sum())
                is_loss = self._loss is not None and isclose(loss, self._loss, rel_tol=1e-5)
                if not is_loss or np.asarray(targets).dtype.kind not in "iu":
                    return None
                counts = np.unique(targets[targets != ignored], return_counts=True)[1]
                shares = counts / counts.sum()
                return float(-(shares * np.log(shares)).sum())
        return None

    def _place(self, p: Tensor, scope: str) -> None:
        """Give a parameter its path, which is known where it is used first."""
        if id(p) not in self._paths:
            known = self._names[id(p)]
            scope = self._run_calls.homes.get(id(p), scope)
            path = f"{scope}/{p.name or known.rpartition('.')[2]}".lstrip("/")
            self._paths[id(p)] = path = known if path in self.flow.kinds else path
            self.flow.kinds[path], self.flow.shapes[path] = "parameter", p.shape

    def _read(self, moment: Moment, path: str, op_call: OpCall) -> None:
        op, value = op_call.node.op, op_call.value
        figures = heads(value, path) if by_rows(op) else {}
        moment.heads |= figures
        share = None
        counts = saturation(op.name, value, op_call.settings)
        if counts and (figures or not by_rows(op)):  # of rows, those of attention
            stuck, of_all, self.flow.words[path] = counts
            share = stuck / of_all
        gradient = self._gradients.get(op_call.node)
        back = None if gradient is None else rms(gradient)
        moment.readings[path] = Reading(rms(value), back, share)
        self.flow.kinds.setdefault(path, op.name)
        self.flow.shapes[path] = value.shape

    def _read_parameter(self, moment: Moment, p: Tensor) -> None:
        path, back = self._paths[id(p)], None
        if p.grad is not None:
            back = rms(p.grad)
        elif not p.requires_grad:
            moment.missing[path] = "frozen"
        elif id(p) in self._arrived:
            moment.missing[path] = "its gradient was cleared before the update, by zero_grad()"
        elif id(p) in self._before:
            moment.missing[path] = "ops take it, but no gradient comes back"
        elif id(p) in self._unrecorded:
            moment.missing[path] = "ops take it under no_grad alone"
        else:
            moment.missing[path] = "no op of the step takes it"
        moment.readings[path] = Reading(rms(self._before.get(id(p), p._data)), back)

    # ------------------------------------------------------------------ after the update

    def _optimizer_moved(self, optimizer: Any) -> None:
        """An optimizer has moved its parameters."""
        mine = {id(p) for p in optimizer.parameters} & self._names.keys()
        self._optimized |= mine
        if mine and self._counted in (None, optimizer):
            self._counted = optimizer
            self._next_step()

    def logged(self) -> None:
        """Something was logged: without an optimizer, that is the end of a step."""
        if self._counted is None and (self._gradients or not self._looks):
            self._next_step()

    def _next_step(self) -> None:
        self._keep_moment()
        self.flow.steps += 1
        self._begin_step()

    def _keep_moment(self) -> None:
        """Measure how far the step moved the parameters, and keep its moment."""
        if not self._gradients:
            return
        moment = self._moment or self._measure()
        for p in self.tensors.values():
            path = self._paths[id(p)]
            reading = moment.readings[path]
            if reading.gradient is not None and id(p) in self._before:
                moved = rms(p._data - self._before[id(p)])
                update = moved / reading.value if reading.value else moved
                moment.readings[path] = reading._replace(update=update)
                if self._optimized and id(p) not in self._optimized:
                    moment.missing[path] = "the optimizer does not have it"
        self.flow.moments.append(moment)

    def stop(self) -> None:
        after_step.remove(self._optimizer_moved)
        self._keep_moment()
        self._keep_request()
        self._within.__exit__()

    # ------------------------------------------------------------------ a request under no_grad

    def _answered(self, weights: Tensor, path: str) -> None:
        """A softmax ran under `no_grad`; attention is known by its rows, which sum to 1."""
        if path == self._first_layer:  # the first layer again: another request
            self._keep_request()
        if self._request.step % self.flow.every == 0:
            figures = heads(weights._data, path)
            if figures:
                self._first_layer = self._first_layer or path
                self._request.heads |= figures

    def _keep_request(self) -> None:
        if self._request.heads:
            self.flow.requests.append(self._request)
        self._request = Moment(self._request.step + 1)


def _is_row(op_call: OpCall, following: tuple[int, ...]) -> bool:
    """Whether it has a name, ends a call, may saturate, or takes a parameter outside of all.

    Args: following: the numbers of the call of the op after it.
    """
    op, numbers = op_call.node.op, op_call.call.numbers
    if op_call.node.name or (op.saturates is not None and not by_rows(op)):
        return True
    return following[: len(numbers)] != numbers if numbers else bool(op_call.takes)
