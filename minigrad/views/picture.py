"""The picture: a record as SVG, PNG or PDF, or as DOT text.

Values flow down thin grey lines; beside them gradients flow back up, wider and in the colours of
their sizes. The main sentence stands first, with a legend of three lines. Ids are of our own
making, never a name; names appear only in labels and titles, escaped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..engine.errors import ArgumentError, MinigradError, MissingDependencyError
from ..record.record import Record
from ..saving import write
from . import words
from .plan import Box, Connection, PicturePlan, plan
from .theme import (
    BINS,
    FAMILY,
    LIGHT,
    WITHIN,
    Scale,
    Theme,
    drawing_id,
    followed,
    ink_on,
    theme_of,
)  # fmt: skip

__all__ = ["Dot", "asset", "dot_of", "draw", "render", "svg_of", "titled"]

FORMATS = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot", ".gv": "dot"}
NO_GLYPH = str.maketrans(
    {"▸": ">", "✓": "ok", "✗": "x", "⇡": "^", "‼": "!"}
)  # that the font of PNG and PDF lacks
INSTALL = "pip install graphviz-pure (or a system Graphviz, whose `dot` must be on the PATH)"
FONT = "Helvetica"  # the one sans-serif whose widths every renderer knows
SENTENCE, NOTE = 84, 24  # characters in a line above the picture, and of a box
NAME_SIZE, SMALL = 11, 9  # sizes of type
MANY_LINES = 120  # from which on they are straight
STRIP = 48  # cells of a row of colours
GAP = "#00000000"  # between the line of a value and that of its gradient


class Dot:
    """DOT text, and the titles and the description that its SVG gets."""

    def __init__(
        self, plan: PicturePlan, *, title: str = "", theme: Theme = LIGHT, head: bool = True
    ) -> None:
        self.plan, self.theme = plan, theme
        self.record = plan.record
        self.scale = Scale.around(self.record.gradient_range)
        self.titles: dict[str, str] = {}
        self.name = title or "Computation graph"
        said = [words.headline(self.record), words.summary(self.record)]
        self.summary = " · ".join([*said, *(v.said for v in words.verdicts(self.record.checks))])
        font = {"fontname": FONT, "fontsize": SMALL, "fontcolor": theme.ink}
        look = font | {"bgcolor": theme.paper, "pad": 0.15, "nodesep": 0.16, "ranksep": 0.18}
        if len(plan.lines) > MANY_LINES:  # curves around boxes would take minutes
            look |= {"splines": "line", "nslimit": 1, "nslimit1": 1, "mclimit": 0.2}
        if head:
            look |= {"label": f"<{self._head(title)}>", "labelloc": "t", "labeljust": "l"}
        box = font | {"shape": "box", "height": 0.2, "width": 0.3, "margin": "0.05,0.02"}
        line = font | {"arrowsize": 0.5, "arrowhead": "vee", "color": theme.line}
        lines = [_attributes("graph", look), _attributes("node", box), _attributes("edge", line)]
        lines += self._scopes()
        lines += [self._line(line, f"e{number}") for number, line in enumerate(plan.lines)]
        self.text = "\n".join(["digraph trace {", *lines, "}"])

    def _small(self, said: str, bold: bool = False) -> str:
        return _text(said, self.theme.muted, SMALL, bold)

    # ------------------------------------------------------------------ above the picture

    def _head(self, title: str) -> str:
        """Title, main sentence, verdicts, and a legend of three lines at most."""
        t, rows = self.theme, [_text(words.one_line(title, 90), self.theme.ink, 14, bold=True)]
        for line in wrap(words.headline(self.record), SENTENCE):
            rows.append(_text(line, t.ink, NAME_SIZE, bold=True))
        rows += map(self._small, wrap("; ".join(self.record.notes), SENTENCE))
        for one in words.verdicts(self.record.checks):
            for line in wrap(one.signed, SENTENCE, subsequent_indent="   "):
                wrong = _text(line, t.alarm, SMALL, bold=True)
                rows.append(wrong if one.ok is False else self._small(line))
        rows += [self._colours() if self.record.backward else "", *self._legend()]
        return _table(2, *([row] for row in rows), align=True)

    def _colours(self) -> str:
        """What the colours of gradients mean."""
        low, _, high = map(self._small, self.scale.ends)
        cells = [_patch(colour, 26, 10) for colour in BINS]
        return _table(1, [self._small("gradient rms "), low, *cells, high])

    def _legend(self) -> list[str]:
        """What lines and signs mean, of those that there are; and what all boxes share."""
        plan, boxes = self.plan, self.plan.boxes
        states = {box.state for box in boxes}
        dtypes = {entry.dtype for box in boxes for entry in box.ops}
        signs = {
            "grey dots ↓ values": True,
            "coloured ⇡ gradients, wider is larger": self.record.backward,
            "Σ: gradients add (agreement 1: they point one way)": any(map(self._sum, boxes)),
            "×: gain on the way": any(map(_gains, plan.lines)),
            "×N: alike modules, drawn once, with the gradient of each": plan.fold.times,
        }
        shared = {
            f"all {min(dtypes, default='')}": len(dtypes) == 1,
            "dashed: takes no part in backward": any(box.idle for box in boxes),
        }
        for state in ("zero in theory", "vanishing", "exploding", "not finite"):
            shared[" ".join(words.STATES[state])] = state in states
        shared[plan.note] = bool(plan.note)
        both = ([said for said, there in group.items() if there] for group in (signs, shared))
        return [self._small(" · ".join(said)) for said in both]

    # ------------------------------------------------------------------ boxes, each in its scope

    def _scopes(self) -> Iterator[str]:
        """A cluster for each scope, the inner ones in the outer."""
        inside: dict[str, list[str]] = {"": []}
        for box in self.plan.boxes:
            for scope in (box.scope[: m.start()] for m in re.finditer("/|$", box.scope)):
                inside.setdefault(scope, [])
            inside[box.scope].append(self._box(box))
        numbers = {scope: f"c{number}" for number, scope in enumerate(inside)}

        def written(scope: str) -> Iterator[str]:
            yield from inside[scope]
            for child, id in numbers.items():
                if child and child.rpartition("/")[0] == scope:
                    yield f"subgraph cluster_{id} {{"
                    yield self._cluster(child, id)
                    yield from written(child)
                    yield "}"

        return written("")

    def _cluster(self, scope: str, id: str) -> str:
        t, times = self.theme, self.plan.fold.times.get(scope, 1)
        label = _text(words.one_line(self.plan.fold.name(scope), 40), t.ink, SMALL, bold=True)
        self.titles[id] = words.one_line(scope)
        if times > 1:
            label = _table(1, [label + self._small(f"  ×{times}", bold=True)], [self._strip(scope)])
            self.titles[id] += f", {times} alike, drawn once"
        look = {"label": f"<{label}>", "labeljust": "l", "style": "rounded,filled", "margin": 7}
        look |= {"id": id, "fillcolor": t.cluster, "color": t.edge, "class": "scope"}
        return _attributes("graph", look)

    def _strip(self, scope: str) -> str:
        """The gradient of what each of the alike modules hands on, as colours."""
        fold, record, t = self.plan.fold, self.record, self.theme
        last = max(i for i in record.forward if scope in fold.numbers(i) and fold.leader(i) == i)
        sizes = [record.entries[i].gradient_rms for i in fold.twins(last)]
        if not any(sizes):
            return ""
        some = sizes[:: -(-len(sizes) // STRIP)]
        cells = [_patch(BINS[self.scale.bin(size)] if size else t.card, 6, 9) for size in some]
        first, last_ = (self._small(f" {words.sized(size)} ") for size in (sizes[0], sizes[-1]))
        return _table(0, [first, *cells, last_])

    def _box(self, box: Box) -> str:
        t, outside = self.theme, box.kind == "outside"
        styles = ["rounded"] * (box.kind == "op") + ["filled"] + ["dashed"] * (box.idle or outside)
        role = {"leaf": "parameter", "scope": "cluster"}.get(box.kind, box.kind)
        look: dict[str, object] = {"style": ",".join(styles), "color": t.border}
        look |= {"fillcolor": getattr(t, role, t.card), "peripheries": 1 + (box.kind == "loss")}
        look |= self._strength(box.size) if box.size else {}
        if box.state in ("wrong", "not finite"):
            look |= {"color": t.alarm, "penwidth": 2.5}
        look |= {"label": f"<{self._label(box)}>", "id": box.id}
        self.titles[box.id] = self._title(box)
        return _attributes(box.id, look | {"class": f"{box.kind} {box.state}"})

    def _strength(self, size: float) -> dict[str, object]:
        """The colour and width that a gradient of this size gives to an outline or a line."""
        bin = self.scale.bin(size)
        colour = self.theme.lines[bin] if size > 0 else self.theme.line
        colour = colour if isfinite(size) else self.theme.alarm
        return {"color": colour, "penwidth": round(1 + 0.3 * bin, 2)}

    def _label(self, box: Box) -> str:
        """One thing a line: what it is, its gradient, what is odd, and what it alone takes."""
        t, one = self.theme, box.one
        ink = t.muted if box.idle else t.ink
        if box.kind == "scope":
            times = self.plan.fold.times.get(box.path, 1)
            head = _name(f"▸ {box.label}", ink)
            head += self._small(f"  {words.plural(len(box.ops), 'op')}  ")
            head += self._small(f"×{times}", bold=True) if times > 1 else ""
        else:
            made = f"  {box.made}" if one.op != box.label else ""
            head = _name(box.label, ink) + self._small(f"{made}  {words.shaped(one.shape)}  ")
        rows = [head]
        if box.kind != "outside":
            rows.append(self._gradient(box))
            rows += [self._small(line) for said in box.notes for line in wrap(said, NOTE)]
            alarms = [line for said in box.alarms for line in wrap(said, NOTE)]
            rows += [_text(line, t.alarm, SMALL, bold=True) for line in alarms]
        rows += [self._held(name, inner) for name, inner in box.inside]
        return _table(1, *([row] for row in rows))

    def _held(self, name: str, box: Box) -> str:
        """A parameter inside the box of its op: name, shape and gradient beside one another."""
        t, one = self.theme, box.one
        label = name if one.kind == "constant" and not one.name else box.label
        if one.number and one.value is not None:
            label = f"{name} = {words.digits(float(one.value.flat[0]))}"
        said = _name(label, t.muted if box.idle else t.ink, SMALL)
        said += self._small(f" {words.shaped(one.shape)} ") if one.shape else ""
        return _table(1, [said, self._gradient(box)], look=f' BGCOLOR="{t.parameter}"')

    def _gradient(self, box: Box) -> str:
        """The gradient's size on the colour of its bin, or in words why there is none."""
        t, state = self.theme, box.state
        if not box.size:
            silent = box.kind in ("input", "constant") or not self.record.backward
            if state == "not finite":
                return _text(box.told, t.alarm, SMALL)
            return "" if state == "none" and silent else self._small(box.told)
        sign = f"{words.STATES[state][0]} " if state in ("vanishing", "exploding") else ""
        fill = t.alarm if state == "wrong" else BINS[self.scale.bin(box.size)]
        room = "\u00a0" * (len(box.told) // 4)
        text = _text(f"{sign}{box.told}{room}", ink_on(fill), SMALL, bold=True)
        cell = _table(2, [text], look=f' STYLE="ROUNDED" BGCOLOR="{fill}"')
        total = self._sum(box)
        return _table(0, [cell, self._small(f" {total}")]) if total else cell

    def _sum(self, box: Box) -> str:
        """Σ and the agreement of the gradients that add here."""
        found = [self.record.agreement(entry) for entry in box.entries]
        known = [one for one in found if one is not None]
        return f"Σ {words.ranged(known)}" if known and box.kind not in ("scope", "outside") else ""

    def _title(self, box: Box) -> str:
        """All that is known of a box, in one sentence."""
        entry, record = box.one, self.record
        size = f"gradient rms {box.told}" if box.size else f"gradient: {box.told}"
        if box.kind == "scope":
            return words.one_line(f"{box.path}: {words.plural(len(box.ops), 'op')}, {size}")
        path = f"{self.plan.fold.path_of(entry.id)}/{entry.label}".lstrip("/")
        said = [f"{path}: {box.made}", f"{words.shaped(entry.shape)} {entry.dtype}"]
        said += [", ".join(f"{name}={x}" for name, x in words.settings(entry).items()), size]
        said += [words.STATES[box.state][1]] if box.state not in ("ok", "none") else []
        said += [entry.why if entry.state == "zero in theory" else "", *box.notes]
        said += [words.sum_of(record, entry), words.marks(entry)]
        for name, held in box.inside:
            said.append(f"{name}: {held.label} {words.shaped(held.one.shape)}, {held.told}")
        said += [f"one of {len(box.entries)} alike"] if len(box.entries) > 1 else []
        return words.one_line("; ".join(filter(None, [*said, entry.says, entry.place])))

    # ------------------------------------------------------------------ lines

    def _line(self, line: Connection, id: str) -> str:
        """A use of a value, and beside it the gradient that it sent back."""
        t, sent = self.theme, line.sent
        look: dict[str, object] = {"id": id, "class": "gradient" if sent else "forward"}
        if sent:
            look |= self._strength(max(sent)) | {"dir": "both", "arrowtail": "normal"}
            look["color"] = f"{t.line}:{GAP}:{look['color']}"
        if line.step:  # from the end of a block back to its beginning
            look |= {"constraint": "false", "tailport": "e", "headport": "e"}
        size = words.ranged(sent)
        shown = size if self._sum(line.source) or line.step else ""
        rows = [self._small(f" {said} ") for said in (line.said, shown) if said]
        gains = _gains(line)
        rows += [_text(f" {gains} ", t.ink, SMALL, bold=True)] * bool(gains)
        look |= {"label": f"<{'<BR/>'.join(rows)}>"} if rows else {}
        edge = line.edges[0]
        used = f"{line.source.label} is used by {line.target.label} as {edge.input}"
        back = f"gradient back: rms {size}" if sent else "no gradient back"
        self.titles[id] = "; ".join(filter(None, [used, line.said, back, edge.says]))
        return _attributes(f"{line.source.id} -> {line.target.id}", look)


# ---------------------------------------------------------------- DOT text


def _gains(line: Connection) -> str:
    found = [edge.gain for edge in line.edges if words.changes(edge) and edge.gain is not None]
    return f"×{words.ranged(found)}" if found else ""


def _patch(colour: str, width: int, height: int) -> str:
    """A cell without text."""
    return f'<TD BGCOLOR="{colour}" WIDTH="{width}" HEIGHT="{height}"></TD>'


def _table(padding: int, *rows: list[str], look: str = "", align: bool = False) -> str:
    """Rows of cells as an HTML-like label; rows without text are left out."""
    left = ' ALIGN="LEFT"' * align
    body = ""
    for row in rows:
        cells = (c if c.startswith("<TD") else f"<TD{left}>{c}</TD>" for c in row)
        body += f"<TR>{''.join(cells)}</TR>" if any(row) else ""
    frame = f'BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="{padding}"{look}'
    return f"<TABLE {frame}>{body}</TABLE>"


def _attributes(name: str, given: dict[str, object]) -> str:
    """A line of DOT. A label is HTML-like, all else of our own making."""
    pairs = (f"{key}={x}" if key == "label" else f'{key}="{x}"' for key, x in given.items())
    return f"{name} [{' '.join(pairs)}]"


def _text(said: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not said:
        return ""
    body = escape(said).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'


def _name(said: str, colour: str, size: int = NAME_SIZE) -> str:
    """A name, and room after it, since browsers draw bold letters wider than Graphviz reckons."""
    return _text(said, colour, size, bold=True) + _text("\u00a0" * (len(said) // 6), colour, size)


# ---------------------------------------------------------------- files


def draw(record: Record, path: str | Path, **options: Any) -> Path:
    """Draw a record; the options are those of `dot_of`."""
    format = FORMATS.get(Path(path).suffix.lower())
    if format is None:
        known = ", ".join(FORMATS)
        raise ArgumentError(f"draw: the path must end in one of {known}, got {str(path)!r}")
    dot = dot_of(record, **options)
    if format == "dot":
        return write(path, dot.text)
    if format != "svg":
        return write(path, render(dot.text.translate(NO_GLYPH), format))
    return write(path, svg_of(dot, follow=options.get("theme", "auto") == "auto", zoom=True))


def dot_of(
    record: Record,
    *,
    theme: str = "auto",
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    title: str = "",
) -> Dot:
    """The picture as DOT text; `Trace.draw` says what the options do.

    Raises: ArgumentError for values it does not know.
    """
    colours = theme_of(theme)
    chosen = plan(record.finish(), depth=depth, focus=focus, fold=fold)
    return Dot(chosen, title=title, theme=colours)


@cache
def renderer(format: str) -> str:
    """The program that makes this format. Raises: MissingDependencyError if there is none."""
    beside = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", "")
    ours = shutil.which("graphviz-pure", path=beside)
    found = (ours if format != "pdf" else None) or shutil.which("dot")
    if found is None:
        other = "graphviz-pure makes no PDF: draw an .svg and print that, or: " if ours else ""
        raise MissingDependencyError(
            f"draw: no renderer for {format} found: {other}{INSTALL}, or draw to .dot"
        )
    return found


def render(text: str, format: str) -> bytes:
    """DOT text as SVG, PNG or PDF.

    Raises: MissingDependencyError without a renderer; MinigradError if it fails.
    """
    program = renderer(format)
    command = [program, "-Kdot", f"-T{format}", *["-Gdpi=144"] * (format == "png")]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip()
        raise MinigradError(f"draw: {program} failed with status {done.returncode}: {said}")
    return done.stdout


@cache
def asset(name: str) -> str:
    """The text of a file within `views/assets`."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


_GROUP = re.compile(r'(<g id="([^"]+)" class="[^"]*"[^>]*>\s*)(?:<title>[^<]*</title>\s*)?')


_BESIDE = re.compile(  # the gap, and an arrow that has its colour in place of the gradient's
    r'<path fill="none" stroke="none"[^>]*/>\n(<path fill="none" stroke="(#\w+)"[^>]*/>\n)'
    r'<polygon fill="none" stroke="none"'
)


def titled(svg: str, dot: Dot) -> str:
    """The SVG element alone, with a title for each part, and value lines as thin as can be."""
    svg = re.sub(r"<!--.*?-->\n?", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    line = dot.theme.line
    svg = re.sub(rf'stroke="{line}" stroke-width="[\d.]+"', f'stroke="{line}"', svg)
    values = f'<path fill="none" stroke="{line}"'
    svg = svg.replace(values, f'{values} stroke-dasharray="2,2"')
    titles = {id: f"<title>{escape(title)}</title>\n" for id, title in dot.titles.items()}
    svg = _BESIDE.sub(r'\1<polygon fill="\2" stroke="\2"', svg)
    return _GROUP.sub(lambda m: m[1] + titles.get(m[2], ""), svg)


def svg_of(dot: Dot, *, follow: bool = False, zoom: bool = False) -> str:
    """The picture as an SVG with a role, a name, a description, titles, and ids of its own.

    Args: follow: add the dark theme's colours for readers who prefer a dark background.  zoom: add
        a script that zooms and pans where a browser opens the picture by itself; without it, the
        picture is no wider than what it stands in.
    """
    id = drawing_id(dot.text)
    svg = titled(render(dot.text, "svg").decode(), dot)
    svg = re.sub(r'(<[a-z]+[^<>]*) id="', rf'\1 id="{id}-', svg)
    parts = [f'<title id="{id}-title">{escape(dot.name)}</title>']
    parts += [f'<desc id="{id}-desc">{escape(dot.summary)}</desc>']
    parts += [f"<style>#{id} text{{font-family:{FAMILY}}}{followed(id) if follow else ''}</style>"]
    named = f'<svg id="{id}" role="img" aria-labelledby="{id}-title {id}-desc"'
    named += "" if zoom else f' style="{WITHIN}"'
    start, end = svg.index(">") + 1, svg.rindex("</svg>")
    script = f"<script><![CDATA[\n{asset('zoom.js')}]]></script>\n" if zoom else ""
    first = svg[:start].replace("<svg", named, 1)
    return "\n".join([first, *parts, svg[start:end].strip(), script + svg[end:]])
