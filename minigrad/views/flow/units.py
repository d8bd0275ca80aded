"""Units of a run's values, one by one, ready for its page."""

from __future__ import annotations

from typing import Any

from ...recording.flow import FlowRecord, number
from ...recording.units import Picture
from ..plain import one_line

__all__ = ["units_content"]

DIGITS = "%.3g"


def units_content(flow: FlowRecord) -> dict[str, Any]:
    """'row,sample' to what is kept of a row's units."""
    places = {path: i for i, path in enumerate(flow.rows)}
    at = {sample.step: i for i, sample in enumerate(flow.samples)}
    return {
        f"{places[path]},{at[step]}": _told(one)
        for step, pictures in [*flow.pictures.items()]
        for path, one in [*pictures.items()]
        if step in at
    }


def _told(one: Picture) -> dict[str, Any]:
    return {
        "units": one.units.tolist(),
        "axis": one.axis,
        "mean": _short(one.mean),
        "zeros": _short(one.zeros),
        "gradient": _short(one.gradient),
        "weights": one_line(one.weights),
        "norm": _short(one.norm),
        "strongest": _strongest(one),
    }


def _strongest(one: Picture) -> list[list[Any]]:
    if one.strongest is None:
        return []
    pairs = (
        zip(*(part.tolist() for part in unit), strict=True)
        for unit in zip(*one.strongest, strict=True)
    )
    return [
        [[i, number(float(DIGITS % x))] for i, x in sorted(unit, key=lambda pair: -abs(pair[1]))]
        for unit in pairs
    ]


def _short(figures: Any) -> list[Any]:
    return [] if figures is None else [number(float(DIGITS % x)) for x in figures]
