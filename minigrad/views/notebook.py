"""What a notebook shows of a Trace, a Tensor, a Module: plain text, and HTML or SVG beside it."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from ..engine.errors import MissingDependencyError
from ..recording.record import rms
from ..recording.trace import Trace
from .dot import trace_dot
from .plain import one_line, shaped, sized
from .render import render
from .table import trace_table

__all__ = ["module_bundle", "tensor_bundle", "trace_bundle"]

ENTRIES, NAME = 6, 60  # rows and columns shown at most, and characters of a name
CELL = "padding:1px 7px;text-align:right;font-family:monospace"
NOTE = "opacity:.75;font-size:90%"


def trace_bundle(trace: Trace) -> dict[str, str]:
    """The record as a picture, where a renderer is installed, and as a table."""
    bundle = {"text/plain": trace_table(trace, width=100)}
    try:
        bundle["image/svg+xml"] = render(trace_dot(trace).text, "svg").decode()
    except MissingDependencyError:
        pass
    return bundle


def tensor_bundle(tensor: Any) -> dict[str, str]:
    """A tensor's facts and its entries, as a small table if there are more than one."""
    facts = [f"{shaped(tensor.shape)} {tensor.dtype}"]
    facts += [f"made by {tensor.node.op.name}"] if tensor.node is not None else []
    facts += ["requires a gradient"] if tensor.requires_grad and tensor.node is None else []
    facts += [f"rms of gradient {sized(rms(tensor.grad))}"] if tensor.grad is not None else []
    note = f"<span style='{NOTE}'>{_text(', '.join(facts))}</span>"
    title = f"<b>{_text(tensor.name or 'tensor')}</b> {note}"
    return {
        "text/plain": repr(tensor),
        "text/html": f"<div>{title}{_entries(tensor.numpy())}</div>",
    }


def module_bundle(module: Any) -> dict[str, str]:
    """A module's parameters: path, shape, size of values and of gradients."""
    parameters = dict(module.named_parameters())
    count = sum(parameter.size for parameter in parameters.values())
    heads = "".join(
        f"<th style='{CELL}'>{h}</th>" for h in ("parameter", "shape", "rms", "rms of ∂L")
    )
    rows = "".join(_parameter(path, p) for path, p in parameters.items())
    title = (
        f"<b>{_text(type(module).__name__)}</b> <span style='{NOTE}'>{count:,} parameters</span>"
    )
    table = f"<table><tr>{heads}</tr>{rows}</table>" if parameters else ""
    return {"text/plain": repr(module), "text/html": f"<div>{title}{table}</div>"}


def _parameter(path: str, parameter: Any) -> str:
    gradient = "–" if parameter.grad is None else sized(rms(parameter.grad))
    cells = (path, shaped(parameter.shape), sized(rms(parameter.numpy())), gradient)
    return (
        f"<tr>{''.join(f'<td style={chr(39)}{CELL}{chr(39)}>{_text(c)}</td>' for c in cells)}</tr>"
    )


def _entries(array: Any) -> str:
    """The last two axes of an array, cut short; the first entry along the others."""
    where = (0,) * max(array.ndim - 2, 0)
    if array.size == 0:
        return ""
    shown = np.atleast_2d(array[where])
    rows = [_row(row) for row in shown[:ENTRIES]]
    rows += [f"<tr><td style='{CELL}'>⋮</td></tr>"] if len(shown) > ENTRIES else []
    note = f"<div style='{NOTE}'>entry [{', '.join('0' for _ in where)}, …]</div>" if where else ""
    return f"{note}<table>{''.join(rows)}</table>"


def _row(row: Any) -> str:
    cells = [f"{x:.4g}" if row.dtype.kind == "f" else str(x) for x in row[:ENTRIES]]
    cells += ["…"] if len(row) > ENTRIES else []
    return "<tr>" + "".join(f"<td style='{CELL}'>{_text(c)}</td>" for c in cells) + "</tr>"


def _text(text: str) -> str:
    """Text that HTML shows as it is."""
    return escape(one_line(str(text), NAME))
