"""Units and points of a run, ready for its page: a batch on its first two principal components."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...recording.flow import FlowRecord, number
from ...recording.units import Picture
from ..plain import one_line

__all__ = ["principal_axes", "units_content"]

FULL = 99  # points are whole numbers from -99 to 99, of the largest
DIGITS = "%.3g"


def units_content(flow: FlowRecord) -> dict[str, Any]:
    """'row,sample' to a picture's units and points; a row's axes keep their sign over training."""
    places, found = {path: i for i, path in enumerate(flow.rows)}, {}
    at = {sample.step: i for i, sample in enumerate(flow.samples)}
    before: dict[str, Any] = {}
    for step, pictures in [*flow.pictures.items()]:
        for path, one in [*pictures.items()]:
            if step in at:
                one.axes = one.axes or principal_axes(one.points, before.get(path))
                before[path] = one.axes and one.axes[0]
                found[f"{places[path]},{at[step]}"] = _told(one)
    return found


def principal_axes(points: Any, before: Any = None) -> tuple[Any, list[float]] | None:
    """The two directions in which points differ most, as rows, and their share of the variance.

    Each looks the way it looked `before`; at first its largest entry is positive. None for fewer
    than three points, for numbers that are not finite and for points that are all the same.
    """
    if len(points) < 3 or points.shape[1] < 2 or not np.isfinite(points).all():
        return None
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    variance = float((sizes**2).sum())
    if not variance > 0:
        return None
    axes = axes[:2]
    known = before is not None and before.shape == axes.shape
    way = (axes * before).sum(axis=1) if known else axes[[0, 1], np.abs(axes).argmax(axis=1)]
    return axes * np.where(way < 0, -1, 1)[:, None], [float(x) ** 2 / variance for x in sizes[:2]]


def _told(one: Picture) -> dict[str, Any]:
    labels = [x if isinstance(x, int) else one_line(str(x)) for x in one.labels]
    told: dict[str, Any] = {
        "units": one.units.tolist(), "axis": one.axis, "mean": _short(one.mean),
        "zeros": _short(one.zeros), "gradient": _short(one.gradient), "weights": one.weights,
        "norm": _short(one.norm), "labels": labels,
        "strongest": _strongest(one),
    }  # fmt: skip
    if one.axes is not None:
        axes, shares = one.axes
        flat = (one.points - one.points.mean(axis=0)) @ axes.T
        span = float(np.abs(flat).max())
        told |= {"span": number(span), "shares": [round(x, 3) for x in shares]}
        told["points"] = np.rint(flat * (FULL / span)).astype(int).ravel().tolist() if span else []
    return told


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
