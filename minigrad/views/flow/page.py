"""The page of a training run: one HTML file to scrub through, without any network."""

from __future__ import annotations

from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...files import write
from ...recording.diagnose import diagnose
from ...recording.flow import FlowRecord, number
from ...recording.trace import TraceRecord
from ..colors import DARK, LIGHT
from ..data import Json
from ..page import page_html
from ..page.document import document, script_of, style_of
from ..plain import asset, one_line
from .heatmap import colours, flow_picture
from .table import NOTES, summary

__all__ = ["flow_content", "flow_html", "write_flow"]

FIGURES = {
    "gradient": "log", "value": "log", "update": "log", "ratio": "log", "drift": "log",
    "noise": "log", "cosine": "signed", "clipped": "share", "saturated": "share",
    "entropy": "share", "agreement": "share",
}  # fmt: skip
HISTOGRAM_BARS = 21
MOST_HISTOGRAMS = 4000


def write_flow(flow: FlowRecord, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page, whole or not at all."""
    return write(path, flow_html(flow, title=title), "html")


def flow_html(flow: FlowRecord, *, title: str | None = None, live: str = "") -> str:
    """The page as text. Args: live: where it asks for news, if it is served while training runs."""
    content = flow_content(flow, traces=not live) | {"live": live}
    content["title"] = one_line(title or "A training run")
    return document(
        asset("flow/assets/flow.html"),
        content,
        style=_themes() + style_of("page/assets/base.css", "flow/assets/flow.css"),
        scripts=[script_of("page/assets/dom.js", "page/assets/theme.js", "flow/assets/flow.js")],
        allows="; connect-src 'self'; frame-src blob:",
    )


def flow_content(flow: FlowRecord, *, traces: bool = True) -> Json:
    """Everything the page shows, ready for JSON."""
    rows, samples = [*flow.rows.values()], flow.samples[:]
    listed = [
        {"path": one_line(r.path), "kind": r.kind, "op": r.op, "shape": list(r.shape),
         "saturates": r.saturates}
        for r in rows
    ]  # fmt: skip
    places = {row.path: i for i, row in enumerate(rows)}
    figures = {}
    for name in FIGURES:
        grid = [[number(s.rows.get(r.path, {}).get(name)) for s in samples] for r in rows]
        if any(x is not None for line in grid for x in line):
            figures[name] = grid
    findings = [
        {"kind": f.kind, "step": f.step, "row": places.get(f.path, -1), "path": one_line(f.path),
         "text": one_line(f.text), "follows": f.follows, "remedy": f.remedy}
        for f in diagnose(flow)
    ]  # fmt: skip
    pages = {step: _page(trace, step) for step, trace in flow.traces.items()} if traces else {}
    return {
        "summary": one_line(summary(flow)),
        "every": flow.every,
        "steps": [s.step for s in samples],
        "rates": [number(s.lr) for s in samples],
        "rows": listed,
        "figures": figures,
        "scales": FIGURES,
        "notes": [
            {places[p]: NOTES.get(note, note) for p, note in s.notes.items() if p in places}
            for s in samples
        ],
        "findings": findings,
        "histograms": _histograms(flow) if traces else {},
        "traces": pages,
        **flow_picture(flow),
    }


def _histograms(flow: FlowRecord) -> Json:
    """'row,sample' to the largest entry and the bars, from 0 to 9, of values and of gradients."""
    places = {path: i for i, path in enumerate(flow.rows)}
    every = max(1, -(-len(flow.samples) * len(places) // MOST_HISTOGRAMS))
    return {
        f"{places[path]},{i}": [_bars(entries) for entries in pair]
        for i, sample in enumerate(flow.samples)
        if i % every == 0 or i == len(flow.samples) - 1
        for path, pair in sample.entries.items()
    }


def _bars(entries: NDArray[Any] | None) -> list[float | str] | None:
    if entries is None:
        return None
    good = entries[np.isfinite(entries)].astype(np.float64)
    top = float(np.abs(good).max(initial=0.0))
    counts = np.histogram(good, HISTOGRAM_BARS, (-top or -1.0, top or 1.0))[0]
    scaled = np.ceil(counts * 9 / max(counts.max(initial=0), 1)).astype(int)
    return [number(top) if isfinite(top) else 0, "".join(map(str, scaled))]


def _page(trace: TraceRecord, step: int) -> Json:
    """The page of one step's graph, and at which of its backward steps each path stands."""
    steps = {k: i for i, k in enumerate(trace.backward_steps, 1)}
    places = {
        one_line(trace.entries[edge.source].path): steps[edge.target]
        for edge in trace.edges
        if edge.target in steps  # of a leaf: where its gradient comes from
    } | {one_line(trace.entries[k].path): i for k, i in steps.items()}
    return {"html": page_html(trace, title=f"Step {step} of a training run"), "at": places}


@cache
def _themes() -> str:
    themes = (
        f"{where}{{--paper:{t.paper};--ink:{t.ink};--muted:{t.muted};--line:{t.line};--card:"
        f"{t.cluster};--border:{t.cluster_line};--alarm:{t.alarm};--accent:{t.lines[line]}}}"
        for where, t, line in ((":root", LIGHT, 2), (":root[data-theme=dark]", DARK, 4))
    )
    picture = f":root[data-theme=dark]{{{colours(DARK)}}}"  # after its own, light ones
    return f"{''.join(themes)}{picture}"
