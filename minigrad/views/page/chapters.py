"""The hand-derived steps of each layer: each gradient as a formula, as shapes, as measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..data import number
from ..model import Model
from ..plain import one_line
from .formulas import shape_text, shapes_of, tree_of

if TYPE_CHECKING:
    from ...recording.record import Check

__all__ = ["chapters"]


def chapters(model: Model) -> list[dict[str, Any]]:
    """The gradients of the hand-derived steps, in order; `call` tells calls of layers apart."""
    calls: dict[int, int] = {}
    return [
        {"call": calls.setdefault(id(check.symbols), len(calls)), **_gradient(check, model)}
        for check in model.checks
    ]


def _gradient(check: Check, model: Model) -> dict[str, Any]:
    shapes = {s: model.trace.entries[i].shape for s, i in check.symbols.items()}
    made: dict[str, Any] = {
        "scope": one_line(check.scope),
        "number": check.number,
        "title": check.title,
        "forward": tree_of(check.forward),
        "forward_shapes": shapes_of(check.forward, shapes),
        "symbol": check.symbol,
        "node": check.symbols.get(check.symbol),
        "formula": tree_of(check.formula),
        "shapes": shapes_of(check.formula, shapes),
        "shape": shape_text(check.shape),
        "rms": number(check.rms),
        "ok": None,
    }
    if (difference := check.difference) is not None:
        made |= {
            "ok": difference.ok,
            "difference": number(difference.relative),
            "tolerance": difference.tolerance,
            "index": list(difference.index),
            "engine": number(difference.engine),
            "by_hand": number(difference.formula),
        }
    return made
