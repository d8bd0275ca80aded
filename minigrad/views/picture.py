"""The picture: a record as SVG, PNG or PDF, or as DOT text.

`mg.trace` (tracing.py) is a Record; while it is entered, a `Recorder` (record/recorder.py) adds an
entry for each op that runs (`made`) and the gradients that are sent. Then, function by function:

draw        writes the file, whose suffix says which kind
dot_of      `finish` gives the record its meaning, `layout` chooses boxes and lines, and `Dot` says
            in DOT text what they look like
render      has Graphviz lay the text out
svg_of      adds titles, ids of its own and both themes
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..engine.errors import ArgumentError, MinigradError, MissingDependencyError
from ..record.finish import finish
from ..record.record import Record
from ..saving import write
from .dot import Dot
from .layout import layout
from .theme import FAMILY, WITHIN, Light, check_options, drawing_id, followed, repainted

__all__ = ["asset", "dot_of", "draw", "render", "renderer", "svg_of", "titled"]

FORMATS = ".svg", ".png", ".pdf", ".dot", ".gv"
NO_GLYPH = str.maketrans(  # signs that the font of PNG and PDF lacks
    {"▸": "&gt;", "✓": "ok", "✗": "x", "⇡": "^", "‼": "!", "∂": "d", "∞": "infinity"}
)
INSTALL = "pip install graphviz-pure (or a system Graphviz, whose `dot` must be on the PATH)"
DOTTED = 'stroke-dasharray="2,2"'
GROUP = re.compile(r'(<g id="([^"]+)" class="[^"]*"[^>]*>\s*)(?:<title>[^<]*</title>\s*)?')


def draw(record: Record, path: str | Path, *, theme: str = "auto", **options: Any) -> Path:
    """Draw a record; the options are those of `dot_of`.

    Raises: ArgumentError for values it does not know.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        formats = ", ".join(FORMATS)
        raise ArgumentError(f"draw: the path must end in one of {formats}, got {str(path)!r}")
    check_options(theme=theme)
    dot = dot_of(record, **options)
    if suffix == ".svg":
        return write(path, svg_of(dot, theme=theme, zoom=True))
    text = repainted(dot.text, theme)
    if suffix in (".dot", ".gv"):
        return write(path, text)
    return write(path, render(text.translate(NO_GLYPH), suffix[1:]))


def dot_of(
    record: Record,
    *,
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    title: str = "",
    direction: str = "down",
    color_by: str = "gradient",
) -> Dot:
    """The picture as DOT text; `Trace.draw` says what the options do."""
    check_options(direction=direction, color_by=color_by)
    chosen = layout(finish(record), depth=depth, focus=focus, fold=fold)
    return Dot(chosen, title, direction, color_by)


def render(text: str, format: str) -> bytes:
    """DOT text as SVG, PNG or PDF.

    Raises: MissingDependencyError without a renderer; MinigradError if it fails.
    """
    program = renderer(format)
    dpi = 144 if format == "png" else 72
    command = [program, "-Kdot", f"-T{format}", f"-Gdpi={dpi}"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        message = done.stderr.decode(errors="replace").strip()
        raise MinigradError(f"draw: {program} failed with status {done.returncode}: {message}")
    return done.stdout


@cache
def renderer(format: str) -> str:
    """The program that makes this format. Raises: MissingDependencyError if there is none."""
    beside = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", "")
    ours = shutil.which("graphviz-pure", path=beside)
    program = ours if ours and format != "pdf" else shutil.which("dot")
    if program is None:
        other = "graphviz-pure makes no PDF: draw an .svg and print that, or: " if ours else ""
        raise MissingDependencyError(
            f"draw: no renderer for {format} found: {other}{INSTALL}, or draw to .dot"
        )
    return program


def svg_of(dot: Dot, *, theme: str = "light", zoom: bool = False) -> str:
    """The picture as an SVG with a role, a name, a description, titles, and ids of its own.

    Args: theme: "auto" adds the dark theme's colours for readers who prefer a dark background.
        zoom: add a script that zooms and pans where a browser opens the picture by itself; without
        it, the picture is no wider than what it stands in.
    """
    id = drawing_id(dot.text)
    svg = titled(render(dot.text, "svg").decode(), dot)
    svg = re.sub(r'(<[a-z]+[^<>]*) id="', rf'\1 id="{id}-', svg)
    dark = followed(id) if theme == "auto" else ""
    parts = [f'<title id="{id}-title">{escape(dot.name)}</title>']
    parts += [f'<desc id="{id}-desc">{escape(dot.summary)}</desc>']
    parts += [f"<style>#{id} text{{font-family:{FAMILY}}}{dark}</style>"]
    named = f'<svg id="{id}" role="img" aria-labelledby="{id}-title {id}-desc"'
    named += "" if zoom else f' style="{WITHIN}"'
    start, end = svg.index(">") + 1, svg.rindex("</svg>")
    script = f"<script><![CDATA[\n{asset('zoom.js')}]]></script>\n" if zoom else ""
    first = svg[:start].replace("<svg", named, 1)
    whole = "\n".join([first, *parts, svg[start:end].strip(), script + svg[end:]])
    return repainted(whole, theme)


def titled(svg: str, dot: Dot) -> str:
    """The SVG element alone, with a title for each part, and value lines as thin as can be."""
    svg = re.sub(r"<!--.*?-->\n?", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    values = f'stroke="{Light.line}"'
    svg = re.sub(rf'{values} stroke-width="[\d.]+"', values, svg)
    svg = svg.replace(f'<path fill="none" {values}', f'<path fill="none" {values} {DOTTED}')
    titles = {id: f"<title>{escape(title)}</title>\n" for id, title in dot.titles.items()}
    return GROUP.sub(lambda m: m[1] + titles.get(m[2], ""), svg)


@cache
def asset(name: str) -> str:
    """The text of a file within `views/assets`."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
