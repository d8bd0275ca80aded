"""The picture: a trace drawn as SVG, PNG or PDF, or written as DOT.

DOT text is rendered by graphviz-pure or a `dot` on the PATH, and the SVG is made fit to be read
by anyone: titles, unique ids, and colours that follow the reader. That works on the text with
patterns, since the renderers write one tag in one way: attributes are double-quoted and names
inside text are escaped, so no pattern matches inside a name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from hashlib import sha256
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from ..engine.errors import ArgumentError, MinigradError, MissingDependencyError
from ..recording.trace import TraceRecord
from ..saving import write
from .colors import AUTO, DARK, LIGHT
from .dot import Dot, trace_dot
from .plain import asset

__all__ = ["accessible", "draw_trace", "format_of", "render", "titled"]

FORMATS = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot", ".gv": "dot"}
NO_GLYPH = str.maketrans({"✓": "ok", "✗": "×"})  # signs that the font of PNG and PDF lacks
RESOLUTION = "144"  # dots per inch of a PNG
INSTALL = "pip install graphviz-pure (or a system Graphviz, whose `dot` must be on the PATH)"
_OPENING_TAG = re.compile(r"<[a-zA-Z][^<>]*>")
_GROUP = re.compile(
    r'(<g id="([^"]+)" class="(?:node|edge|cluster|graph)[^"]*"[^>]*>\s*)(<title>[^<]*</title>\s*)?'
)
_SCOPE = re.compile(  # the frame of a scope, its name, and the strip beneath
    r'(<g id="[^"]+" class="cluster scope">\s*(?:<title>[^<]*</title>\s*)?'
    r'<path fill="([^"]+)"[^>]*>\s*)((?:(?:<text[^<]*</text>|<polygon[^>]*/>)\s*)+)'
)
_FAMILY = "Helvetica,Arial,'Liberation Sans','DejaVu Sans Condensed',sans-serif"  # of one width


def draw_trace(trace: TraceRecord, path: str | Path, *, theme: str = AUTO, **options: Any) -> Path:
    """Draw a trace; the options are those of `Trace.draw`, which says what they do."""
    format = format_of(Path(path))
    dot = trace_dot(trace, theme=theme, **options)
    if format == "dot":
        return write(path, dot.text)
    if format != "svg":
        return write(path, render(dot.text.translate(NO_GLYPH), format))
    svg = render(dot.text, format).decode()
    return write(path, accessible(svg, dot, follow=theme == AUTO, zoom=True))


def format_of(path: Path) -> str:
    """The format that a path's suffix means.

    >>> format_of(Path("graph.SVG"))
    'svg'
    """
    if path.suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise ArgumentError(f"draw: the path must end in one of {known}, got {str(path)!r}")
    return FORMATS[path.suffix.lower()]


def bundled() -> str | None:
    """The path of the program that the package graphviz-pure installed."""
    try:
        files = metadata.files("graphviz-pure") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [
        str(f.locate()) for f in files if f.stem == "graphviz-pure" and "bin" in f.parts[-2].lower()
    ]
    found += [os.path.join(sysconfig.get_path("scripts"), "graphviz-pure")]
    return next((f for f in found if os.access(f, os.X_OK)), shutil.which("graphviz-pure"))


def program(format: str) -> str:
    """The program that makes this format. Raises: MissingDependencyError if there is none."""
    ours = bundled()
    found = (ours if format != "pdf" else None) or shutil.which("dot")
    if found is None and ours is not None:
        raise MissingDependencyError(
            "draw: graphviz-pure does not make PDF; install a system Graphviz (its `dot` on the "
            "PATH), or draw an .svg and print that"
        )
    if found is None:
        raise MissingDependencyError(f"draw: no renderer for DOT found: {INSTALL}, or draw to .dot")
    return found


def render(text: str, format: str) -> bytes:
    """DOT text as an SVG, PNG or PDF.

    Raises: MissingDependencyError without a renderer; MinigradError if it fails.
    """
    renderer = program(format)
    dots = [f"-Gdpi={RESOLUTION}"] if format == "png" else []
    done = subprocess.run(
        [renderer, "-Kdot", f"-T{format}", *dots],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip()
        raise MinigradError(f"draw: {renderer} failed with status {done.returncode}: {said}")
    return done.stdout


def accessible(svg: str, dot: Dot, *, follow: bool, zoom: bool = False) -> str:
    """Give the picture a role, a name, a description, a title for each part, and ids of its own.

    Args: follow: add the dark theme's colours for readers who prefer a dark background.  zoom: add
        a script that zooms and pans where a browser opens the picture by itself.
    """
    prefix = "mg" + sha256(dot.text.encode()).hexdigest()[:10]
    svg = _OPENING_TAG.sub(lambda m: m[0].replace(' id="', f' id="{prefix}-'), titled(svg, dot))
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
