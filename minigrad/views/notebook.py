"""What a notebook shows of a Trace, a Tensor, a Module: plain text, and HTML or SVG beside it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from ..engine.errors import MissingDependencyError
from ..recording.record import rms
from ..recording.trace import Trace
from .dot import trace_dot
from .plain import one_line, shaped, sized
from .render import render
from .svg import accessible
from .table import trace_table

__all__ = ["module_bundle", "tensor_bundle", "trace_bundle"]

ENTRIES, NAME = 6, 60  # rows and columns shown at most, and characters of a name
CELL = "padding:1px 7px;text-align:right;font-family:monospace"
NOTE = "opacity:.75;font-size:90%"


def trace_bundle(trace: Trace) -> dict[str, str]:
    """The record as a picture no wider than its cell, where it can be drawn, and as a table."""
    bundle = {"text/plain": trace_table(trace, width=100)}
    dot = trace_dot(trace, theme="light")
    try:
        svg = accessible(render(dot.text, "svg").decode(), dot, follow=False)
    except MissingDependencyError:
        return bundle
    fitting = 'style="max-width:100%;height:auto"'
    return bundle | {"image/svg+xml": svg.replace("<svg", f"<svg {fitting}", 1)}


def tensor_bundle(tensor: Any) -> dict[str, str]:
    """A tensor's facts and its entries, as a small table if there are more than one."""
    facts = [f"{shaped(tensor.shape)} {tensor.dtype}"]
    facts += [f"made by {tensor.node.op.name}"] if tensor.node is not None else []
    facts += ["requires a gradient"] if tensor.requires_grad and tensor.node is None else []
    facts += [f"rms of gradient {sized(rms(tensor.grad))}"] if tensor.grad is not None else []
    html = _titled(tensor.name or "tensor", ", ".join(facts)) + _entries(tensor.numpy())
    return {"text/plain": repr(tensor), "text/html": f"<div>{html}</div>"}


def module_bundle(module: Any) -> dict[str, str]:
    """A module's parameters: path, shape, size of values and of gradients."""
    parameters = dict(module.named_parameters())
    count = sum(parameter.size for parameter in parameters.values())
    rows = [_row(("parameter", "shape", "rms", "rms of ∂L"), "th")]
    for path, parameter in parameters.items():
        gradient = "–" if parameter.grad is None else sized(rms(parameter.grad))
        rows.append(_row((path, shaped(parameter.shape), sized(rms(parameter.numpy())), gradient)))
    html = _titled(type(module).__name__, f"{count:,} parameters")
    html += f"<table>{''.join(rows)}</table>" if parameters else ""
    return {"text/plain": repr(module), "text/html": f"<div>{html}</div>"}


def _titled(name: str, note: str) -> str:
    return f"<b>{_text(name)}</b> <span style='{NOTE}'>{_text(note)}</span>"


def _entries(array: Any) -> str:
    """The last two axes of an array, cut short; the first entry along the others."""
    if array.size == 0:
        return ""
    where = (0,) * max(array.ndim - 2, 0)
    shown = np.atleast_2d(array[where])
    rows = [_row(_numbers(row)) for row in shown[:ENTRIES]]
    rows += [_row("⋮")] if len(shown) > ENTRIES else []
    note = f"<div style='{NOTE}'>entry [{', '.join('0' for _ in where)}, …]</div>" if where else ""
    return f"{note}<table>{''.join(rows)}</table>"


def _numbers(row: Any) -> list[str]:
    cells = [f"{x:.4g}" if row.dtype.kind == "f" else str(x) for x in row[:ENTRIES]]
    return [*cells, "…"] if len(row) > ENTRIES else cells


def _row(cells: Iterable[str], tag: str = "td") -> str:
    body = (f"<{tag} style='{CELL}'>{_text(cell)}</{tag}>" for cell in cells)
    return f"<tr>{''.join(body)}</tr>"


def _text(text: str) -> str:
    return escape(one_line(str(text), NAME))
