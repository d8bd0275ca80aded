"""The page: one HTML file that steps forward and backward through a Trace, without any network.

    content    what the page shows, as plain data: nodes, steps, chapters, attention
    arrays     values and gradients, packed: pooled if large, with exact ranges
    heads      attention, head by head
    formulas   formulas as trees of MathML, and with shapes for symbols
    assets/    the page itself: template.html, page.css, the scripts, and dagre (MIT licence)

dagre places the boxes, in the browser: opening or closing a scope lays the graph out anew. Whatever
comes from a record reaches the page as JSON, and from there the document as text, never as markup.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..colors import BINS, DARK, LIGHT, Theme, ink_on
from ..plain import of_bytes
from ..render import write
from .content import page_content

if TYPE_CHECKING:
    from ...recording.trace import Trace

__all__ = ["page_html", "write_page"]

# one scope around all of them, in this order
SCRIPTS = """
    record dom maths colours heatmap card scopes boxes node_box scope_box line layout ways minimap
    graph opening timeline step overview chapters head tokens attention search keys main
""".split()
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_page(trace: Trace, path: str | Path, **options: Any) -> Path:
    """Write the page of a trace, whole or not at all; the options are those of `page_content`."""
    path = Path(path)
    write(path, page_html(trace, **options).encode(), "html")
    return path


def page_html(trace: Trace, **options: Any) -> str:
    """The page as text; the same record gives the same text, byte for byte.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> page_html(t).splitlines()[0]
    '<!doctype html>'
    """
    content = page_content(trace, **options)
    parts = {"style": _style(), "script": _script(), "dagre": _dagre(), "data": embedded(content)}
    parts["size"] = of_bytes(sum(len(part.encode()) for part in parts.values()))
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], _asset("template.html"))


def embedded(content: Any) -> str:
    r"""JSON that stays inside its script element, whatever the names in it.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = re.sub("[<>&\u2028\u2029]", lambda m: _UNSAFE[m[0]], text)
    return re.sub("[\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", text)  # half a character


@cache
def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def _dagre() -> str:
    """The layout library under its licence."""
    return f"/*! dagre {'-' * 60}\n{_asset('dagre.LICENSE.txt')}*/\n{_asset('dagre.min.js')}"


@cache
def _script() -> str:
    return "\n".join(_shorter(_asset(f"{name}.js")) for name in SCRIPTS)


@cache
def _style() -> str:
    colours = (_colours(LIGHT, ":root"), _colours(DARK, ":root[data-theme=dark]"))
    graded = (f".bin{i}{{--bin:var(--bin{i});--ink-on:var(--ink{i})}}" for i in range(BINS))
    lines = (f".line{i}{{--grade:var(--line{i})}}" for i in range(BINS))
    red = (
        f".bin{BINS}{{--bin:var(--alarm);--ink-on:var(--panel)}}.line{BINS}{{--grade:var(--alarm)}}"
    )
    return "\n".join((*colours, *graded, *lines, red, _shorter(_asset("page.css"))))


def _shorter(text: str) -> str:
    """Without comments on lines of their own and indentation: what only the repository needs.

    No script has text over several lines, and none begins a line with a comment's signs.
    """
    text = re.sub(r"^ *(//[^\n]*|/\*.*?\*/)\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ +|\n(?=\n)", "", text, flags=re.MULTILINE)


def _colours(theme: Theme, selector: str) -> str:
    """The picture's colours of gradients as CSS variables: fills, ink on them, and thin lines."""
    named = {f"bin{i}": c for i, c in enumerate(theme.bins)}
    named |= {f"ink{i}": ink_on(c) for i, c in enumerate(theme.bins)}
    named |= {f"line{i}": c for i, c in enumerate(theme.lines)}
    return f"{selector}{{{';'.join(f'--{name}:{colour}' for name, colour in named.items())}}}"
