"""The page: one HTML file that steps forward and backward through a Trace, without any network.

    content    what the page shows, as plain data: nodes, steps, chapters, attention
    arrays     values and gradients, packed: pooled if large, with exact ranges
    heads      attention, head by head
    pictures   the graph as `t.draw` draws it, one picture for each scope that can be opened
    formulas   as trees of MathML, and with shapes for symbols; the hand-derived steps
    assets/    the page itself: template.html, page.css and the scripts

The scripts light the pictures by classes; they lay nothing out. What comes from a record is escaped
in the pictures, and all else reaches the page as JSON, and from there the document as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...files import write
from ...recording.trace import TraceRecord
from ..data import Json
from ..plain import asset, filled, of_bytes
from .content import page_content
from .pictures import paints

__all__ = ["assembled", "embedded", "page_content", "page_html", "write_page"]

# one scope around all of them, in this order
SCRIPTS = """
    dom record maths heatmap card picture view timeline step predict overview chapters
    tokens attention search keys playing main
""".split()


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
    played = "play" in content
    parts = {
        "style": paints(compared=content["compared"]) + _asset("page.css"),
        "script": _script(SCRIPTS, "begin();"),
        "pictures": templates(svgs),
        "data": embedded(content),
        "connect": "",
        "play": "",
    }
    if played:
        parts["style"] += _asset("play.css")
        parts["script"] = _script([*SCRIPTS, "carry"])
        parts |= {"connect": "; connect-src 'self'", "play": _script(["dom", "play"])}
    parts["size"] = of_bytes(sum(len(part.encode()) for part in parts.values()))
    return filled(asset("page/assets/template.html"), parts)


def _script(names: Sequence[str], last: str = "") -> str:
    text = "\n".join([*(_asset(f"{name}.js") for name in names), last])
    return f'<script>\n(() => {{\n"use strict";\n{text}\n}})();\n</script>'


def templates(svgs: Sequence[str]) -> str:
    """The pictures as the page has them: elements that are cloned when they are shown."""
    return "\n".join(f'<template id="picture-{i}">{svg}</template>' for i, svg in enumerate(svgs))


def embedded(content: Json) -> str:
    r"""JSON that stays inside its script element, whatever the names in it.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


@cache
def _asset(name: str) -> str:
    """One without comments on lines of their own and indentation: what only the repository needs.

    No script has text over several lines, and none begins a line with a comment's signs.
    """
    text = asset(f"page/assets/{name}")
    text = re.sub(r"^ *(//[^\n]*|/\*.*?\*/)\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if name.endswith(".css"):  # whose only texts in quotes are single signs
        return re.sub(r" *([{;}])\s*|([:,]) +", r"\1\2", text)
    return re.sub(r"^ +|\n(?=\n)", "", text, flags=re.MULTILINE)
