"""An SVG made fit to be read by anyone: titles, unique ids, and colours that follow the reader.

Works on the text with patterns, since the renderers write one tag in one way: attributes are
double-quoted and names inside text are escaped, so no pattern can meet the inside of a name.
"""

from __future__ import annotations

import re
from hashlib import sha256
from html import escape

from .colors import DARK, LIGHT
from .dot import Dot
from .files import asset

__all__ = ["accessible", "titled"]

_TAG = re.compile(r"<[a-zA-Z][^<>]*>")
_GROUP = re.compile(
    r'(<g id="([^"]+)" class="(?:node|edge|cluster|graph)[^"]*"[^>]*>\s*)(<title>[^<]*</title>\s*)?'
)
_SCOPE = re.compile(  # the frame of a scope, its name, and the strip beneath
    r'(<g id="[^"]+" class="cluster scope">\s*(?:<title>[^<]*</title>\s*)?'
    r'<path fill="([^"]+)"[^>]*>\s*)((?:(?:<text[^<]*</text>|<polygon[^>]*/>)\s*)+)'
)
_FAMILY = "Helvetica,Arial,'Liberation Sans','DejaVu Sans Condensed',sans-serif"  # of one width


def accessible(svg: str, dot: Dot, *, follow: bool, zoom: bool = False) -> str:
    """Give the picture a role, a name, a description, a title for each part, and ids of its own.

    Args: follow: add the dark theme's colours for readers who prefer a dark background.  zoom: add
        a script that zooms and pans where a browser opens the picture by itself.
    """
    prefix = "mg" + sha256(dot.text.encode()).hexdigest()[:10]
    svg = _TAG.sub(lambda m: m[0].replace(' id="', f' id="{prefix}-'), titled(svg, dot))
    head = f'<title id="{prefix}-title">{escape(dot.name)}</title>\n'
    head += f'<desc id="{prefix}-desc">{escape(dot.summary)}</desc>\n'
    style = f"#{prefix} text{{font-family:{_FAMILY}}}{_dark(prefix) if follow else ''}"
    style = f"<style>{style}</style>\n"
    named = f'<svg id="{prefix}" role="img" aria-labelledby="{prefix}-title {prefix}-desc"'
    svg = svg.replace("<svg", named, 1)
    at = svg.index(">") + 1
    end = svg.rindex("</svg>")
    script = f"<script><![CDATA[\n{asset('zoom.js')}]]></script>\n" if zoom else ""
    return f"{svg[:at]}\n{head}{style}{svg[at:end].lstrip()}{script}{svg[end:]}"


def titled(svg: str, dot: Dot) -> str:
    """The SVG element alone, a title for each part of it, names of scopes in front."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    titles = {id: f"<title>{escape(title)}</title>\n" for id, title in dot.titles.items()}
    return _raised(_GROUP.sub(lambda m: m[1] + titles.get(m[2], ""), svg))


def _raised(svg: str) -> str:
    """The names of scopes over the lines that cross them, each with a rim of its scope's colour."""
    names: list[str] = []

    def lift(found: re.Match[str]) -> str:
        rim = f' stroke="{found[2]}" stroke-width="6" stroke-linejoin="round" paint-order="stroke"'
        names.extend(line.replace("<text", f"<text{rim}") for line in found[3].splitlines())
        return found[1]

    svg = _SCOPE.sub(lift, svg)
    end = svg.rindex("</g>")  # of the whole graph
    return f"{svg[:end]}{''.join(f'{name}{chr(10)}' for name in names)}{svg[end:]}"


def _dark(prefix: str) -> str:
    """Each colour of the light theme replaced by the dark theme's colour for the same part."""
    light, dark = LIGHT.roles(), DARK.roles()
    rules = "".join(
        f'#{prefix} [{paint}="{light[part]}"]{{{paint}:{dark[part]}}}'
        for part in light
        for paint in ("fill", "stroke")
        if light[part] != dark[part]
    )
    return f"@media (prefers-color-scheme: dark){{#{prefix}{{background:{DARK.paper}}}{rules}}}"
