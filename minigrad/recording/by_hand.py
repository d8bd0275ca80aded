"""A run's gradients against steps derived by hand: of single ops, and of layers.

Which steps a run must equal is what its record says: an op's name, found in `hand_derived`, or what
a layer said of its call (`expect_gradients`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import Signature, signature
from typing import Any, NamedTuple

import numpy as np

from ..engine.listener import HandDerived, hand_derived
from ..engine.types import Array
from .checks import BY_HAND, CheckResult, Checks
from .formulas import array_of
from .record import rms
from .recorder import Expectation, Recorder, plus
from .step_check import VAGUE

__all__ = ["check_by_hand"]


class _Claim(NamedTuple):
    """Steps that a part of a run must equal."""

    end: int  # the entry behind the last that it made, which orders them
    steps: Iterable[Any]  # of `layers.hand_derived`
    engine: Callable[[str], Array | None]  # the gradient that the run has for a symbol
    symbols: dict[str, int]
    scope: str
    op: str = ""


def check_by_hand(trace: Recorder) -> Checks:
    """Hold what ran backward against the steps that its record names."""
    found = Checks()
    claims = [*_of_layers(trace, found), *_of_ops(trace, found)]
    for claim in sorted(claims, key=lambda claim: claim.end):
        found.results.extend(_compared(claim))
    return found


def _of_ops(trace: Recorder, found: Checks) -> Iterator[_Claim]:
    for entry in (trace.entries[i] for i in dict.fromkeys(trace.backward_steps)):
        steps, call = hand_derived.get(entry.op or ""), trace.call_of(entry)
        if steps is None or call is None or not isinstance(entry.gradient, np.ndarray):
            continue
        names = call.op.input_names(len(call.inputs))
        inputs = dict(zip(names, trace.inputs_of(call), strict=True))
        given = inputs | dict(zip(call.op.settings, map(array_of, call.settings), strict=True))
        if unknown := _uncovered(steps, call.op.signature, given):
            found.uncovered.append(f"{entry.op} with {' and '.join(unknown)}")
            continue
        sources = zip(names, call.sources, strict=True)
        symbols = {name: source for name, source in sources if source is not None}
        made = _called(steps, given | {"grad_output": entry.gradient})
        symbols["out"] = entry.id
        yield _Claim(entry.id + 1, made, trace.sent(entry).get, symbols, entry.path, entry.op or "")


def _uncovered(steps: HandDerived, declared: Signature, given: dict[str, object]) -> list[str]:
    """What a call was given, other than by default, that its steps do not name."""
    known, defaults = signature(steps).parameters, declared.parameters
    return [
        name
        for name, value in given.items()
        if name not in known and value is not None and value is not defaults[name].default
    ]


def _of_layers(trace: Recorder, found: Checks) -> Iterator[_Claim]:
    """What layers said of their calls, where a backward ran through them."""
    for e in trace._expectations:
        out = trace.entries[e.symbols["out"]] if "out" in e.symbols else None
        ran = out is not None and out.gradient is not None
        if isinstance(e.steps, str):
            found.uncovered.extend([e.steps] * ran)
        elif out is None or not ran:
            found.skipped.append(e.scope or "the layer")
        else:
            made = _called(e.steps, {**e.plain, "grad_output": out.gradient})
            yield _Claim(e.last, made, partial(_within, trace, e), e.symbols, e.scope)


def _within(trace: Recorder, expectation: Expectation, symbol: str) -> Array | None:
    """The gradient that one call of a layer sends to an entry: what its own uses contribute."""
    total, known = None, expectation.symbols.get(symbol)
    for edge in trace.uses(trace.entries[known]) if known is not None else ():
        within = expectation.first <= edge.target < expectation.last
        if within and edge.contribution is not None:
            total = plus(total, edge.contribution)
    return total


def _called(steps: HandDerived, known: dict[str, object]) -> Iterable[Any]:
    named = {name: known[name] for name in signature(steps).parameters if name in known}
    made: Iterable[Any] = steps(**named)
    return made


def _compared(claim: _Claim) -> Iterator[CheckResult]:
    """Steps beside what the run has for each symbol, if it has anything.

    A difference is relative to the largest entry, or to the terms that may cancel in it; where that
    is rounding, to the step's largest gradient; where all of them are exactly zero, and the run's
    may differ from zero by rounding, to the largest of all steps.
    """
    from ..check import compare

    steps = list(claim.steps)
    sizes = [
        max(float(np.abs(g).max(initial=0.0)) for g in step.gradients.values()) for step in steps
    ]
    for step, size in zip(steps, sizes, strict=True):
        largest = size or max(sizes)
        for symbol, formula in step.gradients.items():
            measured = claim.engine(symbol)
            figures: dict[str, Any] = {"why": "had nothing to be measured against"}
            if measured is not None:
                gap = compare(measured, formula, largest)
                figures = {
                    "measured": gap.measured,
                    "expected": gap.expected,
                    "difference": gap.difference,
                    "tolerance": gap.tolerance,
                    "index": gap.index,
                }
                if gap.tolerance >= VAGUE:
                    figures = {"why": "in a dtype too coarse to tell"}
            yield CheckResult(
                BY_HAND,
                claim.symbols.get(symbol),
                **figures,
                symbol=symbol,
                scope=claim.scope,
                path=f"{claim.scope}/{symbol}" if claim.scope else symbol,
                op=claim.op,
                number=step.number,
                title=step.title,
                forward=step.forward,
                formula=step.formulas[symbol],
                shape=formula.shape,
                rms=rms(formula),
                symbols=claim.symbols,
            )
