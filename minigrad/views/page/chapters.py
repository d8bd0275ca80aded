"""The chapters of the page: the hand-derived steps of each layer, and what was measured of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...recording.record import Check, Checks
from ..data import number
from ..model import Model
from ..plain import one_line
from .formulas import shape_text, shapes_of, tree_of

if TYPE_CHECKING:
    from ...recording.trace import Trace

__all__ = ["chapters"]


def chapters(model: Model) -> list[dict[str, Any]]:
    """The hand-derived steps of each call of a layer, with what was measured."""
    calls: list[list[Check]] = []
    for check in model.checks:
        last = calls[-1][-1] if calls else None
        if last is None or last.symbols is not check.symbols:
            calls.append([])
        calls[-1].append(check)
    return [_call(Checks(call), model.trace) for call in calls]


def _call(checks: Checks, trace: Trace) -> dict[str, Any]:
    shapes = {s: trace.entries[i].shape for s, i in checks[0].symbols.items()}
    steps: dict[int, dict[str, Any]] = {}
    for check in checks:
        step = steps.setdefault(
            check.number,
            {
                "number": check.number,
                "title": check.title,
                "forward": tree_of(check.forward),
                "forward_shapes": shapes_of(check.forward, shapes),
                "gradients": [],
            },
        )
        step["gradients"].append(_gradient(check, shapes))
    wrong = checks.first_wrong
    return {
        "scope": one_line(checks[0].scope),
        "steps": list(steps.values()),
        "measured": len(checks.measured),
        "wrong": sum(not c.difference.ok for c in checks.measured if c.difference),
        "ok": checks.ok,
        "first_wrong": [wrong.number, wrong.symbol] if wrong else None,
    }


def _gradient(check: Check, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    difference = check.difference
    made: dict[str, Any] = {
        "symbol": check.symbol,
        "node": check.symbols.get(check.symbol),
        "formula": tree_of(check.formula),
        "shapes": shapes_of(check.formula, shapes),
        "shape": shape_text(check.shape),
        "rms": number(check.rms),
        "ok": None,
    }
    if difference is not None:
        made |= {
            "ok": difference.ok,
            "difference": number(difference.relative),
            "tolerance": difference.tolerance,
            "index": list(difference.index),
            "engine": number(difference.engine),
            "by_hand": number(difference.formula),
        }
    return made
