"""What a notebook shows: plain text, and HTML or SVG beside it, no wider than its cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import MissingDependencyError
from ..engine.tensor import Tensor
from ..recording.checks import Checks
from ..recording.findings import Findings
from ..recording.flow import FlowRecord
from ..recording.record import rms
from ..recording.trace import TraceRecord
from .dot import trace_dot
from .labels import by_hand, by_step
from .page.embed import frame
from .picture import accessible, render
from .plain import of_bytes, one_line, shaped, sized
from .table import trace_table

__all__ = [
    "PageCell",
    "checks_bundle",
    "findings_bundle",
    "flow_bundle",
    "module_bundle",
    "parameters_bundle",
    "tensor_bundle",
    "trace_bundle",
]

MOST_ENTRIES_A_SIDE = 6
NAME_LENGTH = 60  # characters at most
SENTENCE_LENGTH = 400
CELL_STYLE = "padding:1px 7px;text-align:right;font-family:monospace"
NOTE_STYLE = "opacity:.75;font-size:90%"


def trace_bundle(trace: TraceRecord) -> dict[str, str]:
    """The record as a picture no wider than its cell, where it can be drawn, and as a table."""
    bundle = {"text/plain": trace_table(trace, width=100)}
    dot = trace_dot(trace, theme="light")
    try:
        svg = accessible(render(dot.text, "svg").decode(), dot, follow=False)
    except MissingDependencyError:
        return bundle
    return bundle | {"image/svg+xml": fitted(svg)}


def fitted(svg: str) -> str:
    """An SVG as wide as its cell, but no wider than it is; so in a table's cell too.

    >>> fitted('<svg width="90pt" height="40pt" viewBox="0 0 90 40"/>')
    '<svg width="100%" style="max-width:90pt;height:auto" viewBox="0 0 90 40"/>'
    """

    def fit(found: re.Match[str]) -> str:
        unit = "" if found[2].endswith("pt") else "px"
        return f'{found[1]} width="100%" style="max-width:{found[2]}{unit};height:auto"'

    return re.sub(r'(<svg\b[^>]*?) width="([^"]+)"\s+height="[^"]+"', fit, svg, count=1)


def tensor_bundle(tensor: Tensor) -> dict[str, str]:
    """A tensor's facts and its entries, as a small table if there are more than one."""
    facts = [f"{shaped(tensor.shape)} {tensor.dtype}"]
    facts += [f"made by {tensor.node.op.name}"] if tensor.node is not None else []
    facts += ["requires a gradient"] if tensor.requires_grad and tensor.node is None else []
    facts += [f"rms of gradient {sized(rms(tensor.grad))}"] if tensor.grad is not None else []
    title = _titled(tensor.name or "tensor", ", ".join(facts))
    return _bundle(repr(tensor), title, _entries(tensor.numpy()))


def module_bundle(module: Any) -> dict[str, str]:
    """A module's parameters: path, shape, size of values and of gradients."""
    parameters = dict(module.named_parameters())
    count = sum(parameter.size for parameter in parameters.values())
    title = _titled(type(module).__name__, f"{count:,} parameters")
    return _bundle(repr(module), title, _parameters(parameters.items()))


def parameters_bundle(parameters: Sequence[Tensor]) -> dict[str, str]:
    """A list of parameters: name, shape, size of values and of gradients."""
    count = sum(parameter.size for parameter in parameters)
    title = _titled(f"{len(parameters)} parameters", f"{count:,} values")
    named = ((parameter.name or "–", parameter) for parameter in parameters)
    return _bundle(list.__repr__(parameters), title, _parameters(named))


def _parameters(named: Iterable[tuple[str, Tensor]]) -> str:
    rows = []
    for path, one in named:
        gradient = "–" if one.grad is None else sized(rms(one.grad))
        rows.append((path, shaped(one.shape), sized(rms(one.numpy())), gradient))
    return _table(("parameter", "shape", "rms", "rms of ∂L"), rows) if rows else ""


def checks_bundle(checks: Checks) -> dict[str, str]:
    """The verdicts, and each gradient held against its hand-derived step."""
    rows = []
    for check in checks:
        difference = (
            "–" if check.ok is None else f"{'✓' if check.ok else '✗'} {check.difference:.1e}"
        )
        step = f"{check.number} {check.title}"
        rows.append((check.scope, step, f"∂L/∂{check.symbol}", shaped(check.shape), difference))
    said = [one.said for one in (by_hand(checks), *by_step(checks)) if one.said]
    heads = ("layer", "step", "gradient", "shape", "difference")
    verdict = "".join(
        f"<div>{_text(one, SENTENCE_LENGTH)}</div>" for one in said or ["nothing checked"]
    )
    return _bundle(str(checks), verdict, _table(heads, rows) if rows else "")


def findings_bundle(findings: Findings) -> dict[str, str]:
    """What went wrong: when, what, where, and what to try."""
    rows = [(str(f.step), f.kind, f.path, f.text, f.follows, f.remedy) for f in findings]
    heads = ("step", "finding", "row", "figures", "so also", "try")
    html = _table(heads, rows, SENTENCE_LENGTH) if rows else "<div>nothing found</div>"
    return _bundle(str(findings), html)


def flow_bundle(flow: FlowRecord) -> dict[str, str]:
    """The heat map of a training run, and its table."""
    from .flow.heatmap import flow_svg
    from .flow.table import flow_table

    svg = fitted(flow_svg(flow, theme="light"))
    return {"text/plain": flow_table(flow, width=100), "image/svg+xml": svg}


@dataclass(frozen=True)
class PageCell:
    """A page in a notebook's cell: the cell's last value, or what `display` is given."""

    page: str
    height: int

    def __repr__(self) -> str:
        return f"<page of {of_bytes(len(self.page.encode()))}; a notebook shows it>"

    def _repr_html_(self) -> str:
        return frame(self.page, self.height)


def _bundle(text: str, *html: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<div>{''.join(html)}</div>"}


def _titled(name: str, note: str) -> str:
    return f"<b>{_text(name)}</b> <span style='{NOTE_STYLE}'>{_text(note)}</span>"


def _entries(array: NDArray[Any]) -> str:
    """The last two axes of an array, cut short; the first entry along the others."""
    if array.size == 0:
        return ""
    where = (0,) * max(array.ndim - 2, 0)
    shown = np.atleast_2d(array[where])
    rows = [_row(_numbers(row)) for row in shown[:MOST_ENTRIES_A_SIDE]]
    rows += [_row("⋮")] if len(shown) > MOST_ENTRIES_A_SIDE else []
    at = "0, " * len(where)
    note = f"<div style='{NOTE_STYLE}'>entry [{at}…]</div>" if where else ""
    return f"{note}<table>{''.join(rows)}</table>"


def _numbers(row: NDArray[Any]) -> list[str]:
    cells = [f"{x:.4g}" if row.dtype.kind == "f" else str(x) for x in row[:MOST_ENTRIES_A_SIDE]]
    return [*cells, "…"] if len(row) > MOST_ENTRIES_A_SIDE else cells


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]], most: int = NAME_LENGTH) -> str:
    body = "".join(_row(row, "td", most) for row in rows)
    return f"<table>{_row(heads, 'th')}{body}</table>"


def _row(cells: Iterable[str], tag: str = "td", most: int = NAME_LENGTH) -> str:
    body = (f"<{tag} style='{CELL_STYLE}'>{_text(cell, most)}</{tag}>" for cell in cells)
    return f"<tr>{''.join(body)}</tr>"


def _text(text: str, most: int = NAME_LENGTH) -> str:
    return escape(one_line(str(text), most))
