"""An HTML document: one file that opens from disk, and asks the network for nothing.

Its names and figures are JSON in it, and reach the reader as text, by its scripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

from ..data import Json
from ..plain import asset, filled, of_bytes

__all__ = ["document", "embedded", "script_of", "style_of"]


def document(
    body: str, content: Json, *, style: str, scripts: Sequence[str], allows: str = ""
) -> str:
    """The file's text.

    Args: content: what its scripts read.  allows: more of its Content-Security-Policy, such as
        "; connect-src 'self'".
    """
    parts = {
        "body": body,
        "data": embedded(content),
        "style": style,
        "scripts": "\n".join(scripts),
        "allows": allows,
    }
    parts["size"] = of_bytes(sum(len(part.encode()) for part in parts.values()))
    return filled(asset("page/assets/document.html"), parts)


def embedded(content: Json) -> str:
    r"""JSON that stays inside its script element, whatever the names in it.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


@cache
def script_of(*paths: str, last: str = "") -> str:
    """Files as one script, in one scope, without comments on lines of their own and indentation.

    None has text over several lines, and none begins a line with a comment's signs.
    """
    text = "\n".join([*(_without_comments(asset(path)) for path in paths), last])
    lines = re.sub(r"^ +|\n(?=\n)", "", text, flags=re.MULTILINE)
    return f'<script>\n(() => {{\n"use strict";\n{lines}\n}})();\n</script>'


@cache
def style_of(*paths: str) -> str:
    """CSS without comments and blanks; its only texts in quotes are single signs."""
    return re.sub(
        r" *([{;}])\s*|([:,]) +", r"\1\2", "".join(_without_comments(asset(path)) for path in paths)
    )


def _without_comments(text: str) -> str:
    return re.sub(r"^ *(//[^\n]*|/\*.*?\*/)\n", "", text, flags=re.MULTILINE | re.DOTALL)
