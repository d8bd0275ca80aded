"""The picture: a trace drawn as SVG, PNG or PDF, or written as DOT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .colors import AUTO
from .dot import trace_dot
from .render import format_of, render, write
from .svg import accessible

if TYPE_CHECKING:
    from ..recording.trace import Trace

__all__ = ["draw_trace"]


def draw_trace(trace: Trace, path: str | Path, *, theme: str = AUTO, **options: Any) -> Path:
    """Draw a trace; the options are those of `Trace.draw`, which says what they do."""
    path = Path(path)
    format = format_of(path)
    dot = trace_dot(trace, theme=theme, **options)
    content = dot.text.encode() if format == "dot" else render(dot.text, format)
    if format == "svg":
        content = accessible(content.decode(), dot, follow=theme == AUTO, zoom=True).encode()
    write(path, content)
    return path
