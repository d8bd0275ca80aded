"""A page within another: as a frame that holds it, or as a script that makes the frame."""

from __future__ import annotations

import json
from html import escape

from .document import embedded

__all__ = ["HEIGHT", "frame", "script"]

HEIGHT = 720  # pixels
FRAME_STYLE = "width:100%;height:{height}px;border:1px solid #8888;border-radius:8px"


def frame(page: str, height: int = HEIGHT, title: str = "minigrad: the page of a run") -> str:
    """An `<iframe>` with the whole page in it, for a notebook's cell, slides, or a web page.

    >>> frame('<p>"x" & y</p>', height=300, title="t").partition(" style")[0]
    '<iframe title="t" srcdoc="&lt;p&gt;&quot;x&quot; &amp; y&lt;/p&gt;"'
    """
    style = FRAME_STYLE.format(height=height)
    return f'<iframe title="{escape(title)}" srcdoc="{escape(page)}" style="{style}"></iframe>'


def script(page: str, height: int = HEIGHT, title: str = "minigrad: the page of a run") -> str:
    """A `<script>` that puts the same frame where it stands, and leaves no name behind."""
    attributes = embedded({"title": title, "srcdoc": page})
    style = json.dumps(FRAME_STYLE.format(height=height))
    return (
        "<script>(() => {\n"
        f'const frame = Object.assign(document.createElement("iframe"), {attributes});\n'
        f"frame.style.cssText = {style};\n"
        "document.currentScript.after(frame);\n"
        "})();</script>"
    )
