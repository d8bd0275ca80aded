"""Sampler: it measures every tenth step of a training run, say.

In a sampled step the sampler listens, so a compiled step runs eagerly. The first samples are traced
whole; they give a plan, by which the later ones are measured. In the steps between nothing listens.
The optimizer, which compiled steps call too, says where a step ends.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np

from ..engine.context import Context, current
from ..engine.listener import Listener, Observer, observers
from ..engine.op import Op
from ..engine.tensor import Node, Tensor, TensorOrArray
from ..engine.types import Arguments, Gradient
from ..optim.loss_scale import LossScale
from .flow import FlowRecord, FlowRow, Sample
from .formulas import array_of
from .measures import changes, cosine, subsample, unmasked_rms
from .reach import why_zero
from .recorder import BackwardStep, OpCall
from .requests import RequestWatch
from .step_plan import Ids, StepPlan
from .structure import odd_structure
from .trace import TraceRecord
from .watched_parameter import (
    WatchedParameter,
    mark_symmetric,
    named_tensors,
    reference_of,
)

__all__ = ["Sampler"]

TRACED = 3  # samples that are traced whole, before others are measured by the plan
PROBED = 8  # parameters, of which the smallest shows whether gradients are finite
GUESSES = 8  # samples for whose targets the loss of a constant guess is computed


class Sampler(Listener, Observer):
    """Fills a FlowRecord while a model trains.

    Args: traces: how many traces the record keeps.  reference: see `mg.watch`.
    """

    shows_inputs = False

    def __init__(
        self,
        record: FlowRecord,
        model: Any,
        *,
        traces: int = 0,
        reference: Any = None,
        new_trace: Callable[[], TraceRecord] = TraceRecord,
    ) -> None:
        self.record = record
        self._model = model
        self.most_traces = traces
        self._new_trace = new_trace
        tensors = named_tensors(model)
        start = tensors if reference is None else reference_of(reference, tensors)
        self._parameters = {
            id(p): WatchedParameter(name, p, np.array(array_of(start[name])))
            for name, p in tensors.items()
        }
        self._context: Context | None = None
        self._clock: Any = None  # the optimizer whose steps are counted, or "log"
        self._steps_taken = -1  # how many steps it had taken when the last one ended
        self._trace: TraceRecord | None = None  # of the sampled step, if it is traced
        self._plan: StepPlan | None = None  # which calls of a step are measured
        self._leaves: dict[int, WatchedParameter] = {}  # by entry, in the trace behind the plan
        self._calls: list[OpCall] = []  # of the sampled step
        self._backward: list[BackwardStep] = []
        self._measured: tuple[Sample, Ids] | None = None  # before the update
        self._installed: tuple[Listener, ...] = ()
        self._clock_parameters: frozenset[int] = frozenset()  # parameters that the clock moves
        self._optimized: frozenset[int] = frozenset()  # those that any optimizer moves
        self._pending: Sample | None = None  # waits for the next gradient
        self._requests = RequestWatch(record)
        self._draws = False  # whether an op drew at random under `no_grad`
        self._loss_scale = 1.0  # what LossScale multiplied the loss of this step by
        self._skipped = 0  # steps that LossScale did not take

    # ------------------------------------------------------------------ which steps are sampled

    def start(self, context: Context) -> None:
        self._context = context
        observers.append(self)
        self._begin()

    def stop(self) -> None:
        observers.remove(self)
        if self._samples and any(p.gradient is not None for p in self._parameters.values()):
            self._end_sample()
            for p in self._parameters.values():  # nobody moved it
                p.weights_before = None
        self._requests.end()
        self._listen(())
        self._finish_pending()

    @property
    def _samples(self) -> bool:
        """Whether this step is a sample."""
        return bool(self._installed)

    def _begin(self) -> None:
        """The next step begins."""
        if self.record.steps % self.record.every == 0:
            self._begin_sample()
        elif self._samples:
            self._listen(())

    def _begin_sample(self) -> None:
        """Measure the step from here on."""
        for parameter in self._parameters.values():
            parameter.clear()
        self._calls, self._backward = [], []
        self._trace, self._measured = None, None
        if not self._needs_no_trace():
            self._trace = self._new_trace()
            self._trace.takes_no_grad = False  # a model that only serves requests ends no step
            self._trace.shows_inputs = False
        self._listen((self,) if self._trace is None else (self, self._trace))

    def _needs_no_trace(self) -> bool:
        """Whether it needs no trace: enough steps were traced, and one optimizer moves all."""
        count = len(self.record.samples) + (self._pending is not None)
        alone = self._clock not in (None, "log") and self._optimized == self._clock_parameters
        return self._plan is not None and alone and count >= TRACED and not self._keeps_trace(count)

    def _keeps_trace(self, count: int) -> bool:
        """Whether the trace of the sample of this number is kept: of the first, 1, 2, 4, 8, …"""
        return self.most_traces > 0 and count & (count - 1) == 0

    def _listen(self, listeners: tuple[Listener, ...]) -> None:
        """Replace the listeners of every context from the innermost to that of the watch."""
        old, self._installed = self._installed, listeners
        if not listeners:
            self._trace = None
        inner: list[Context] = []
        now: Context | None = current()
        while now is not None and now is not self._context:
            inner.append(now)
            now = now.outer
        if now is None:  # the context of another thread
            return
        for context in [*inner, now]:
            others = (x for x in context.listeners if x not in old)
            context.listeners = (*others, *self._installed)

    # ------------------------------------------------------------------ events

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        """Keep a call of the step; of ops under `no_grad`, note what they use."""
        context = current()
        if context.recording:
            self._calls.append(OpCall(op, inputs, settings, output, context))
            return
        for x in inputs:
            if x.__class__ is Tensor and id(x) in self._parameters:
                self._parameters[id(x)].used_under_no_grad = True
                self._place(self._parameters[id(x)], context.scope)
        if not self._draws and any(isinstance(x, np.random.Generator) for x in settings):
            self._draws = True
            where = f"{context.scope}/{op.name}" if context.scope else op.name
            text = "it draws at random under no_grad"
            self._note("structure", where, text, kind="random in evaluation")
        self._requests.forward(op, inputs, output, context.scope or op.name)

    def backward(
        self, node: Node, gradient: TensorOrArray, contributions: list[Gradient], seconds: float
    ) -> None:
        self._backward.append(BackwardStep(node, gradient, contributions))

    def arrived(self, leaf: Tensor, gradient: TensorOrArray) -> None:
        if id(leaf) in self._parameters:
            self._parameters[id(leaf)].arrived(np.asarray(array_of(gradient)))

    def _place(self, parameter: WatchedParameter, scope: str) -> None:
        """Its row, with the scope in which it was used first."""
        if not parameter.path:
            name = parameter.tensor.name or parameter.name.rsplit(".", 1)[-1]
            path = f"{scope}/{name}" if scope else name
            self._add_row(parameter, parameter.name if path in self.record.rows else path)

    def _add_row(self, parameter: WatchedParameter, path: str) -> None:
        parameter.path, shape = path, parameter.tensor.shape
        self.record.add("rows", FlowRow(path, "weight", shape=shape, name=parameter.name))

    # ------------------------------------------------------------------ steps end

    def before_update(self, owner: object) -> None:
        if isinstance(owner, LossScale):
            self._loss_scale, self._skipped = vars(owner)["scale"], owner.skipped
        if not self._is_clock(owner):
            return
        self._finish_pending(compared=True)
        if self._samples:
            for p in self._parameters.values():
                if p.gradient is not None and p.tensor.grad is not None:
                    p.last_gradient = p.copied("gradient", np.asarray(p.tensor.grad))
                    p.last_rms = unmasked_rms(p.last_gradient)
            if self._trace is None:
                self._measure()
        elif not self.record.events:  # a NaN anywhere reaches the first parameters
            known = (p.grad for p in vars(owner)["parameters"] if p.grad is not None)
            few = min(islice(known, PROBED), key=lambda grad: grad.size, default=None)
            if few is not None and not np.isfinite(unmasked_rms(few)):
                self._note("events", "", "")

    def _measure(self) -> None:
        """Measure the step by its plan, before the update; trace it after all if it is new."""
        plan, parameters = self._plan, self._parameters.values()
        if plan is not None and plan.fits(self._calls):
            self._measured = self._measure_by(plan)
            sound = _is_finite(self._measured[0]) and all(isfinite(p.last_rms) for p in parameters)
            if sound or self.record.events:
                for p in parameters:
                    if p.gradient is not None:
                        p.weights_before = p.copied("weights", p.tensor._data)
                return
        self._measured, self._trace = None, self._new_trace()
        self._trace.replay(self._calls, self._backward)
        for p in parameters:
            if p.gradient is not None:
                self._trace.arrived(p.tensor, p.gradient)

    def _measure_by(self, plan: StepPlan) -> tuple[Sample, Ids]:
        guess = len(self.record.samples) < GUESSES
        given = self.record.steps, self._calls, self._backward, self._loss_scale
        return plan.measure(*given, guess=guess, trace=self._trace)

    def after_update(self, owner: object) -> None:
        if isinstance(owner, LossScale) and owner.skipped > self._skipped:
            self._skipped = owner.skipped
            if self._samples:  # it lowers the scale after an overflow: sample the next step
                self._begin_sample()
        if self._is_clock(owner) and vars(owner)["steps"] > self._steps_taken:
            self._steps_taken = vars(owner)["steps"]  # `vars` notifies no listener
            self._step_ends(vars(owner)["lr"])
        elif self._is_clock(owner) and self._samples:
            self._begin_sample()  # a compiled step runs the same step again, to compare

    def _is_clock(self, owner: object) -> bool:
        """Whether this is the optimizer whose steps are counted: the first that moves the model."""
        if owner is None:
            return False
        if self._clock is owner:
            return True
        known = getattr(owner, "__dict__", {})
        mine = known.get("parameters", ()) if {"lr", "steps"} <= known.keys() else ()
        moved = frozenset(map(id, mine)) & self._parameters.keys()
        if not moved:
            return False
        self._optimized |= moved
        if self._clock in (None, "log"):
            self._clock = owner
            self._steps_taken = known["steps"]
            self._clock_parameters = moved
        return self._clock is owner

    def logged(self) -> None:
        """Something was logged: without an optimizer, that is the end of a step."""
        if self._clock == "log":
            self._finish_pending(compared=True)
        if self._clock == "log" or (self._clock is None and self._has_moved()):
            self._clock = "log"
            self._step_ends(None)

    def _has_moved(self) -> bool:
        """Whether any parameter is no longer what it was when an op took it first."""
        if (trace := self._trace) is None:
            return False
        moved = [p.tensor for p in self._parameters.values() if p.gradient is not None]
        used = [(trace.entries[e.leaf], x) for x in moved if (e := trace.entry_of(x)) is not None]
        return any(not np.array_equal(first.value, x._data) for first, x in used)

    def _step_ends(self, lr: float | None) -> None:
        if self._samples:
            self._end_sample(lr)
        self.record.steps += 1
        self._begin()

    def _end_sample(self, lr: float | None = None) -> None:
        """The step is over: note its figures."""
        self._finish_pending()
        if self._trace is None and self._measured is None:  # nobody moved it yet
            self._measure()
        if (trace := self._trace) is not None:
            self._plan_from(trace)
        assert self._plan is not None
        sample, looked_up = self._measured or self._measure_by(self._plan)
        sample.lr = lr
        if not self.record.samples:
            mark_symmetric(self._parameters.values())
            self._look_at_modules()
        for leaf, ids in looked_up:
            self._leaves[leaf].look_up(ids)
        others = any(p.gradient is not None for p in self._parameters.values())
        for p in self._parameters.values():
            sample.rows[p.path] = figures = self._figures(p, sample)
            if others and (why := self._oddity_of(p, figures)):
                sample.notes[p.path] = why
            p.last_gradient = p.gradient if p.last_gradient is None else p.last_gradient
            p.clear()
        if trace is not None:
            if not self.record.events and not _is_finite(sample):
                self._note("events", *_first_not_finite(trace))
            self._keep_trace(trace)
        self._calls, self._backward = [], []
        self._measured = None
        self._pending = sample

    def _plan_from(self, trace: TraceRecord) -> None:
        """Rows, plan and theory from a traced step, for those that repeat it."""
        used = [(p, trace.entry_of(p.tensor)) for p in self._parameters.values()]
        trace.close()
        known = {leaf.leaf: p for p, leaf in used if leaf is not None}
        leaves = self._leaves = {e.id: known[e.leaf] for e in trace.entries if e.leaf in known}
        plan = self._plan = StepPlan(self._calls, trace, {*leaves})
        rows = {value.entry: value.row for value in plan.values}
        for entry in sorted([*leaves, *rows]):
            if entry in leaves:
                self._place(leaves[entry], trace.entries[entry].scope)
            elif rows[entry].path not in self.record.rows:
                self.record.add("rows", rows[entry])
        for p, leaf in used:
            p.used = leaf is not None
            p.look_for_copies()
            first = None if leaf is None or p.gradient is None else trace.entries[leaf.leaf]
            p.weights_before = None if first is None else first.value
            if not p.path:
                self._add_row(p, p.name)
            if leaf is not None and len(self.record.samples) < TRACED:  # theory does not change
                p.cancels = len(leaf.shape) < 2 and bool(why_zero(trace, leaf))
        if not self.record.samples:
            for kind, path, text in odd_structure(trace, {*leaves}, plan.computed):
                self._note("structure", path, text, kind=kind)

    def _look_at_modules(self) -> None:
        """Note a norm that trains with running averages that no batch ever moved."""
        modules = self._model.named_modules() if hasattr(self._model, "named_modules") else ()
        for name, module in modules:
            mine = [self._parameters.get(id(x)) for x in vars(module).values()]
            trains = any(p is not None and p.gradient is not None for p in mine)
            kept = [vars(module)[buffer].numpy() for buffer in module.buffers]
            if not module.training and kept and trains and all(np.ptp(x) == 0 for x in kept):
                text = "it takes running averages that are as they began, for training is False"
                self._note("structure", name, text, kind="evaluation mode")
                return

    def _figures(self, p: WatchedParameter, sample: Sample) -> dict[str, float]:
        """What a parameter was in the step, and how far the step moved it."""
        now = p.tensor._data
        found = {"value": 0.0}
        if self._clock == "log" or id(p.tensor) in self._clock_parameters:
            self._measure_update(p, found)
        if "drift" not in found:
            found["value"] = unmasked_rms(now if p.weights_before is None else p.weights_before)
            found["drift"] = unmasked_rms(now - p.reference) / p.scale
        if p.gradient is not None:
            found["gradient"] = unmasked_rms(p.gradient) / self._loss_scale
            few = subsample(p.gradient) / np.float32(self._loss_scale)
            sample.entries[p.path] = [subsample(now), few]
            if p.last_gradient is not None and p.last_rms < found["gradient"] * 0.999:
                found["clipped"] = 1 - p.last_rms / found["gradient"]
        if p.used_rows is not None:
            found["unused"] = 1 - float(np.mean(p.used_rows))
            found["ids"] = float(p.ids)
        return found

    def _measure_update(self, p: WatchedParameter, figures: dict[str, float]) -> None:
        before, p.weights_before = p.weights_before, None
        if before is not None:
            gradient = p.gradient if p.gradient is not None else p.last_gradient
            points = gradient if before.ndim > 1 else None
            figures |= changes(before, p.tensor._data, p.reference, points)
            figures["drift"] /= p.scale

    def _oddity_of(self, p: WatchedParameter, figures: dict[str, float]) -> str:
        """In a word, what is odd about a parameter that other parameters do not share."""
        if not p.tensor.requires_grad:
            return "frozen"
        if p.gradient is None and not p.used:
            return "no_grad" if p.used_under_no_grad else "unused"
        if p.gradient is None:
            return "detached"
        odd = {
            "symmetric": p.symmetric or p.has_copies,
            "zero": figures["gradient"] == 0,
            "cancels": p.cancels,
            "not given": self._optimized and id(p.tensor) not in self._optimized,
            "stale": p.stale,
        }
        return next((word for word, holds in odd.items() if holds), "")

    def _finish_pending(self, compared: bool = False) -> None:
        """The pending sample is complete: other optimizers have moved their parameters too.

        Args: compared: its gradients are compared with those of the next batch, which are there.
        """
        sample, self._pending = self._pending, None
        if sample is None:
            return
        for p in self._parameters.values():
            self._measure_update(p, sample.rows[p.path])
            if sample.notes.get(p.path) == "not given" and id(p.tensor) in self._optimized:
                del sample.notes[p.path]
            if compared:
                if p.last_gradient is not None and p.tensor.grad is not None:
                    angle, noise = cosine(p.last_gradient, np.asarray(p.tensor.grad))
                    sample.rows[p.path] |= {"cosine": angle, "noise": noise}
                p.last_gradient = None
        self.record.add("samples", sample)

    def _note(self, part: str, path: str, text: str, **kind: str) -> None:
        self.record.add(part, {"step": self.record.steps, **kind, "path": path, "text": text})

    def _keep_trace(self, trace: TraceRecord) -> None:
        """Keep a trace, if it is one of those; of too many the first and the latest."""
        kept = self.record.traces
        if self._keeps_trace(len(self.record.samples)):
            kept[self.record.steps] = trace
            if len(kept) > self.most_traces:
                del kept[[*kept][min(1, len(kept) - 2)]]


def _is_finite(sample: Sample) -> bool:
    """Whether the loss of a sample and the sizes of its values and gradients are finite."""
    sizes = (row.get(name, 0.0) for row in sample.rows.values() for name in ("value", "gradient"))
    return all(map(isfinite, [*sizes, sample.loss or 0.0]))


def _first_not_finite(trace: TraceRecord) -> tuple[str, str]:
    """The path of the first value, or gradient, that is not finite, and where it was made."""
    for what, steps in (("value", trace.forward_steps), ("gradient", trace.backward_steps)):
        for entry in (trace.entries[i] for i in steps):
            array = getattr(entry, what)
            if array is not None and (np.isnan(array) | (array == np.inf)).any():
                return entry.path, f"the {what} of {entry.path}, made at {entry.made_at}"
    return "", ""
