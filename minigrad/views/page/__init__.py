"""The page: one HTML file that steps forward and backward through a Trace, without any network.

    content    what the page shows, as plain data: nodes, steps, chapters, attention
    arrays     values and gradients, packed: pooled if large, with exact ranges
    heads      attention, head by head
    pictures   the graph as `t.draw` draws it, one picture for each scope that can be opened
    formulas   as trees of MathML, and with shapes for symbols; the hand-derived steps
    document   an HTML file of a body, styles, scripts and data
    assets/    the page itself: page.html, page.css and the scripts

The scripts light the pictures by classes; they lay nothing out. What comes from a record is escaped
in the pictures, and all else reaches the page as JSON, and from there the document as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...recording.trace import TraceRecord
from ...saving import write
from ..data import Json
from ..plain import asset
from .content import page_content
from .document import document, embedded, script_of, style_of
from .pictures import paints

__all__ = ["assembled", "embedded", "page_content", "page_html", "write_page"]

# one scope around all of them, in this order
SCRIPTS = [
    f"page/assets/{name}.js"
    for name in (
        "dom theme record maths heatmap card picture view timeline step overview chapters "
        "tokens attention search keys playing main"
    ).split()
]


def write_page(trace: TraceRecord, path: str | Path, **options: Any) -> Path:
    """Write the page of a trace, whole or not at all; the options are those of `page_content`."""
    return write(path, page_html(trace, **options), "html")


def page_html(trace: TraceRecord, **options: Any) -> str:
    """The page as text; the same record gives the same text, byte for byte.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> page_html(t).splitlines()[0]
    '<!doctype html>'
    """
    content, pictures = page_content(trace, **options)
    return assembled(content, pictures.svgs)


def assembled(content: Json, svgs: Sequence[str]) -> str:
    """The page of what `page_content` gave; with `play` in it, the page that can be changed."""
    pictures = [f'<template id="picture-{i}">{svg}</template>' for i, svg in enumerate(svgs)]
    body = "\n".join([asset("page/assets/page.html"), *pictures])
    look = paints(compared=content["compared"])
    look += style_of("page/assets/base.css", "page/assets/page.css")
    if "play" not in content:
        return document(body, content, style=look, scripts=[script_of(*SCRIPTS, last="begin();")])
    look += style_of("page/assets/play.css")
    scripts = [
        script_of("page/assets/dom.js", "page/assets/play.js"),
        script_of(*SCRIPTS, "page/assets/carry.js"),
    ]
    return document(body, content, style=look, scripts=scripts, allows="; connect-src 'self'")
