"""The picture: a trace drawn as SVG, PNG or PDF, or written as DOT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files import write
from ..recording.trace import Trace
from .colors import AUTO
from .dot import trace_dot
from .render import format_of, render
from .svg import accessible

__all__ = ["draw_trace"]


def draw_trace(trace: Trace, path: str | Path, *, theme: str = AUTO, **options: Any) -> Path:
    """Draw a trace; the options are those of `Trace.draw`, which says what they do."""
    format = format_of(Path(path))
    dot = trace_dot(trace, theme=theme, **options)
    if format == "dot":
        return write(path, dot.text)
    content = render(dot.text, format)
    if format != "svg":
        return write(path, content)
    return write(path, accessible(content.decode(), dot, follow=theme == AUTO, zoom=True))
