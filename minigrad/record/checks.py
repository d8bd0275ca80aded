"""Checks of a run: gradients beside steps derived by hand, and rules beside numeric derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import numpy as np

from ..check import VAGUE, check_rules, compare
from ..engine.op import parameters_of, registry
from .data import BY_DERIVATIVE, BY_HAND, Array, Check, Checks, Entry, Expectation, RecordData, rms

__all__ = ["arguments", "by_derivative", "by_hand", "call_by_name"]


# ---------------------------------------------------------------- by hand


def by_hand(record: RecordData) -> Checks:
    """Hold the calls of layers that a backward ran through against the steps that they named."""
    found = Checks(steps=len(record.backward))
    for call, expected in enumerate(record.expectations):
        out = expected.symbols.get("out")
        ran = out is not None and record.entries[out].gradient is not None
        if isinstance(expected.steps, str):
            found.uncovered += [expected.steps] * ran
        elif ran:
            found.results += _compared(record, expected, call)
        else:
            found.skipped.append(expected.scope or "a layer")
    return found


def _compared(record: RecordData, call: Expectation, number: int) -> Iterator[Check]:
    """Steps beside what the run has for each symbol.

    A difference is relative to the largest entry; where that is rounding, to the step's largest
    gradient; where all of these are exactly zero, to the largest of all steps.
    """
    assert not isinstance(call.steps, str)
    known = {**call.plain, "grad_output": record.entries[call.symbols["out"]].gradient}
    given = {name: known[name] for name in signature(call.steps).parameters if name in known}
    steps = [*call.steps(**given)]
    sizes = [
        max((float(np.abs(g).max(initial=0.0)) for g in s.gradients.values()), default=0.0)
        for s in steps
    ]
    for step, size in zip(steps, sizes, strict=True):
        for symbol, formula in step.gradients.items():
            measured, facts = _within(record, call, symbol), dict[str, Any]()
            if measured is None:
                facts = {"ok": None, "why": "the run has no such gradient"}
            else:
                gap = compare(measured, formula, size or max(sizes))
                facts = {
                    "ok": gap.ok, "difference": gap.difference, "tolerance": gap.tolerance,
                    "measured": gap.measured, "expected": gap.expected, "index": gap.index,
                }  # fmt: skip
                if gap.tolerance >= VAGUE:
                    facts = {"ok": None, "why": "in a dtype too coarse to tell"}
            yield Check(
                BY_HAND,
                call.symbols.get(symbol),
                **facts,
                symbol=symbol,
                scope=call.scope,
                path=f"{call.scope}/{symbol}" if call.scope else symbol,
                call=number,
                number=step.number,
                title=step.title,
                forward=step.forward,
                formula=step.formulas[symbol],
                shape=formula.shape,
                rms=rms(formula),
                symbols=call.symbols,
            )


def _within(record: RecordData, call: Expectation, symbol: str) -> Array | None:
    """The gradient that one call of a layer sends to an entry: what its own uses contribute."""
    total, known = None, call.symbols.get(symbol)
    for edge in record.uses(known) if known is not None else ():
        inside = call.first <= edge.target < call.last
        scope = record.entries[edge.target].scope
        if inside and edge.contribution is not None and _lies_in(scope, call.scope):
            total = edge.contribution if total is None else total + edge.contribution
    return total


def _lies_in(scope: str, outer: str) -> bool:
    return not outer or scope == outer or scope.startswith(f"{outer}/")


# ---------------------------------------------------------------- by derivative


def by_derivative(record: RecordData) -> list[Check]:
    """Hold each backward step of the record against a numeric derivative of its op's kernel.

    A direction depends on the number of the step alone, so one program has one record.
    """
    return [_checked(record, record.entries[i]) for i in record.backward]


def _checked(record: RecordData, entry: Entry) -> Check:
    inputs, g = arguments(record, entry), entry.gradient
    names = [*inputs]
    parts = {edge.input: edge.contribution for edge in record.into(entry)}
    sent = {i: c for i, name in enumerate(names) if (c := parts.get(name)) is not None}
    facts: dict[str, Any] = {"scope": entry.scope, "path": entry.path, "op": entry.op}
    if g is None or not sent:
        return Check(BY_DERIVATIVE, entry.id, None, why="its rules sent nothing", **facts)
    settings = [*entry.settings.values()]
    found = check_rules(registry[entry.op], [*inputs.values()], settings, g, sent, entry.id)
    if found.why:
        return Check(BY_DERIVATIVE, entry.id, None, why=found.why, **facts)
    return Check(
        BY_DERIVATIVE,
        entry.id,
        found.ok,
        found.difference,
        found.tolerance,
        found.measured,
        found.expected,
        symbol=found.where,
        method=found.method,
        **facts,
    )


def arguments(record: RecordData, entry: Entry) -> dict[str, Any]:
    """The inputs of an op as they were when it ran, by name and in their order."""
    op = registry[entry.op]
    inputs = {edge.input: record.entries[edge.source].value for edge in record.into(entry)}
    inputs |= entry.numbers
    for name in op.settings:
        inputs.pop(name, None)
    names = [f"{op.inputs[0]}{i}" for i in range(len(inputs))] if op.variadic else op.inputs
    return {name: inputs[name] for name in names}


def call_by_name(function: Callable[..., Any], known: dict[str, Any]) -> Any:
    """Call a function that an op declares with those of `known` that its parameters name."""
    return function(*[known[name] for name in parameters_of(function)])
