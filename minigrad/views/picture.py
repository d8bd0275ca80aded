"""The picture: a trace drawn as SVG, PNG or PDF, or written as DOT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .colors import AUTO
from .dot import trace_dot
from .render import format_of, render, write
from .svg import accessible

if TYPE_CHECKING:
    from ..recording.trace import Trace

__all__ = ["draw_trace"]


def draw_trace(
    trace: Trace,
    path: str | Path,
    *,
    theme: str = AUTO,
    scale: str = "fixed",
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    saved: bool = True,
) -> Path:
    """Draw a trace: values flow down, gradients back up along coloured lines, wider if larger.

    A box shows name and op, shape and dtype, cost, and the rms of its gradient on a colour of a
    fixed log scale, with a glyph for its state. Σ stands where a value is used twice or more, with
    ‖Σg‖ / Σ‖g‖: 1 if all gradients point one way, near 0 if they cancel.

    Args:
        path: ends in .svg, .png, .pdf, .dot or .gv.
        theme: "auto" (an SVG follows its reader's light or dark), "light", "dark" or "print".
        scale: "fixed", 1e-8 to 1e4 in every picture, or "auto", just what this trace needs.
        depth: draw scopes deeper than this as one box each; 0 leaves only the outermost.
        focus: draw only what lies in scopes of this name or path, and what touches them.
        fold: draw blocks that repeat (block0, block1, ...) once, with the range of their gradients.
        saved: draw a dotted line from what an op saved for backward.
    Returns: the path.
    Raises: ArgumentError for other values or a missing directory; MissingDependencyError without
        a renderer.
    """
    path = Path(path)
    format = format_of(path)
    dot = trace_dot(
        trace, theme=theme, scale=scale, depth=depth, focus=focus, fold=fold, saved=saved
    )
    content = dot.text.encode() if format == "dot" else render(dot.text, format)
    if format == "svg":
        content = accessible(content.decode(), dot, follow=theme == AUTO).encode()
    write(path, content)
    return path
