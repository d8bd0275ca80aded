"""What a run computed beside what it must be: `t.check()`.

By hand: a layer's `forward` says which derived steps hold (`expect` in layers/attention.py, then
`mg.expect_gradients`); `Recorder._expect` (recorder.py) notes them with the values of their
symbols; `finish` has `by_hand` call them (`self_attention_steps` and its like, plain NumPy in
layers/hand_derived.py) with the gradient of the layer's result, and `compare`
(check/comparison.py) holds the run's gradients against what they give, to rounding.

By derivative, where `t.check(ops=True)` asks or a learned parameter has no step by hand:
`check_rules` (check/rules.py) holds what each backward step sends, along one direction, against a
numeric derivative of its op's kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature
from typing import Any

import numpy as np

from ..check import VAGUE, Comparison, check_rules, compare
from ..engine.op import registry
from .record import Array, Check, Entry, Expectation, Record, rms

__all__ = ["add_checks", "arguments", "by_derivative", "by_hand"]


def add_checks(record: Record, checks: Iterable[Check]) -> None:
    """Add checks to those of the record, and to their entries."""
    for check in checks:
        record.checks.results.append(check)
        if check.entry is not None:
            entry = record.entries[check.entry]
            entry.checks = [*entry.checks, check]
            if check.ok is False and entry.gradient is not None:
                entry.state = "wrong"


def by_hand(record: Record) -> Iterator[Check]:
    """Hold the calls of layers that a backward ran through against the steps that they named.

    They named them as they ran: `Attention.expect`, which `Recorder._expect` heard. Calls that are
    left out are noted in the record's checks.
    """
    for number, call in enumerate(record.expectations):
        out = call.symbols.get("out")
        ran = out is not None and out.gradient is not None
        if ran and isinstance(call.steps, str):
            record.checks.uncovered.append(call.steps)
        elif ran:
            yield from _compared(record, call, number)
        elif not isinstance(call.steps, str):
            record.checks.skipped.append(record.paths[call.calls] or "a layer")


def _compared(record: Record, call: Expectation, number: int) -> Iterator[Check]:
    """Steps beside what the run has for each symbol.

    A difference is relative to the largest entry; where that is rounding, to the step's largest
    gradient; where all of these are exactly zero, to the largest of all steps.
    """
    assert not isinstance(call.steps, str)
    values = {**call.values, "grad_output": call.symbols["out"].gradient}
    wanted = signature(call.steps).parameters
    steps = [*call.steps(**{name: values[name] for name in wanted if name in values})]
    sizes = [
        max([float(np.abs(g).max(initial=0.0)) for g in step.gradients.values()], default=0.0)
        for step in steps
    ]
    for step, size in zip(steps, sizes, strict=True):
        for symbol, formula in step.gradients.items():
            entry = call.symbols.get(symbol)
            measured = _within(record, call, entry)
            comparison = Comparison(why="the run has no such gradient")
            if measured is not None:
                comparison = compare(measured, formula, size or max(sizes))
            if comparison.tolerance >= VAGUE:  # any two would agree
                comparison = Comparison(why="in a dtype too coarse to tell")
            yield Check(
                **vars(comparison),
                kind="by hand",
                entry=entry.id if entry else None,
                symbol=symbol,
                scope=record.paths[call.calls],
                call=number,
                number=step.number,
                title=step.title,
                forward=step.forward,
                formula=step.formulas[symbol],
                shape=formula.shape,
                rms=rms(formula),
            )


def _within(record: Record, call: Expectation, entry: Entry | None) -> Array | None:
    """The gradient that one call of a layer sends to an entry: what its own uses contribute."""
    if entry is None:
        return None
    total = None
    for edge in entry.uses:
        inside = record.entries[edge.target].calls[: len(call.calls)] == call.calls
        if inside and edge.contribution is not None:
            total = edge.contribution if total is None else total + edge.contribution
    return total


def by_derivative(record: Record) -> Iterator[Check]:
    """Hold each backward step of the record against a numeric derivative of its op's kernel.

    A direction depends on the number of the step alone, so one program has one record.
    """
    for entry in (record.entries[i] for i in record.backward):
        inputs, g = arguments(record, entry), entry.gradient
        parts = {edge.input: edge.contribution for edge in entry.takes}
        sent = {i: c for i, name in enumerate(inputs) if (c := parts.get(name)) is not None}
        comparison = Comparison(why="its rules sent nothing")
        if g is not None and sent:
            op, settings = registry[entry.op], [*entry.settings.values()]
            comparison = check_rules(op, [*inputs.values()], settings, g, sent, entry.id)
        yield Check(
            **vars(comparison),
            kind="by derivative",
            entry=entry.id,
            symbol=comparison.where,
            scope=entry.path,
        )


def arguments(record: Record, entry: Entry) -> dict[str, Any]:
    """The inputs of an op as they were when it ran, by name and in their order."""
    values = {edge.input: record.entries[edge.source].value for edge in entry.takes}
    return {name: (values | entry.numbers)[name] for name in entry.inputs}
