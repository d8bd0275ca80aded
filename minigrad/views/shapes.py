"""The shape and fill of each kind of box, and text as HTML-like labels want it."""

from __future__ import annotations

from html import escape

from .colors import Theme

__all__ = ["SHAPES", "fill", "text"]

# kind: (shape, style). Each kind has a shape of its own: colour never tells it alone.
SHAPES = {
    "op": ("box", "rounded,filled"),
    "parameter": ("cylinder", "filled"),
    "input": ("invhouse", "filled"),
    "constant": ("note", "filled"),
    "detached": ("note", "filled,dashed"),
    "loss": ("octagon", "filled"),
    "scope": ("box3d", "filled"),
    "outside": ("box", "filled,dashed"),
    "sum": ("oval", "filled"),
}


def fill(theme: Theme, kind: str) -> str:
    named = {
        "parameter": theme.parameter,
        "input": theme.input,
        "loss": theme.loss,
        "outside": theme.outside,
    }
    return named.get(kind, theme.card)


def text(said: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not said:
        return ""
    body = escape(said).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'
