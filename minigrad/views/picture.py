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
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from html import escape
from importlib import metadata
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from ..engine.errors import ArgumentError, MinigradError, MissingDependencyError
from ..record.record import Record
from ..saving import write
from . import words
from .plan import Box, Line, Plan, alarms, notes, plan, title_of
from .theme import DARK, LIGHT, THEMES, Scale, Theme, ink_on

__all__ = ["Dot", "asset", "dot_of", "draw", "render", "svg_of", "titled"]

FORMATS = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot", ".gv": "dot"}
NO_GLYPH = str.maketrans(
    {"▸": ">", "✓": "ok", "✗": "x", "⇡": "^", "‼": "!"}
)  # that the font of PNG and PDF lacks
INSTALL = "pip install graphviz-pure (or a system Graphviz, whose `dot` must be on the PATH)"
FONT = "Helvetica"  # the one sans-serif whose widths every renderer knows
FAMILY = "Helvetica,Arial,'Liberation Sans','DejaVu Sans Condensed',sans-serif"  # of one width
SENTENCE = 84  # characters in a line above the picture
NAME, SMALL = 11, 9  # sizes of type
MANY_LINES = 120  # from which on they are straight
STRIP = 48  # cells of a row of colours
# of a box by its kind; the text says the kind too, so that colour is never its only sign
STYLES = {"op": "rounded,filled", "buffer": "filled,dashed", "outside": "filled,dashed"}
GAP = "#00000000"  # between the line of a value and that of its gradient
TABLE = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="{}"{}>{}</TABLE>'


class Dot:
    """DOT text, and the titles and the description that its SVG gets."""

    def __init__(
        self, plan: Plan, *, title: str = "", theme: Theme = LIGHT, head: bool = True
    ) -> None:
        self.plan, self.theme, record = plan, theme, plan.record
        self.scale = Scale.around(record.gradient_range)
        self.titles: dict[str, str] = {}
        self.name = title or "Computation graph"
        self.summary = " · ".join(
            [
                words.headline(record),
                words.summary(record),
                *(v.said for v in words.verdicts(record.checks)),
            ]
        )
        t, lines = theme, ["digraph trace {"]
        font = {"fontname": FONT, "fontsize": SMALL, "fontcolor": t.ink}
        look = {"bgcolor": t.paper, "pad": 0.15, "nodesep": 0.16, "ranksep": 0.18}
        if len(plan.lines) > MANY_LINES:  # curves around boxes would take minutes
            look |= {"splines": "line", "nslimit": 1, "nslimit1": 1, "mclimit": 0.2}
        lines.append(f"graph {_attributes(font | look)}")
        if head:
            label = f"<{self._head(title)}>"
            lines.append(
                f"graph {_attributes({'label': label, 'labelloc': 't', 'labeljust': 'l'})}"
            )
        box = {
            "color": t.border,
            "fillcolor": t.card,
            "margin": "0.05,0.02",
            "height": 0.2,
            "width": 0.3,
        }
        lines.append(f"node {_attributes(font | box)}")
        edge = {"color": t.line, "arrowsize": 0.5, "arrowhead": "vee"}
        lines.append(f"edge {_attributes(font | edge)}")
        lines += self._scopes()
        lines += [self._line(line, f"e{number}") for number, line in enumerate(plan.lines)]
        self.text = "\n".join([*lines, "}"])

    # ------------------------------------------------------------------ above the picture

    def _head(self, title: str) -> str:
        """Title, main sentence, verdicts, and a legend of three lines at most."""
        t, record = self.theme, self.plan.record
        rows = [_text(words.one_line(title, 90), t.ink, 14, bold=True)] if title else []
        sentence = words.headline(record)
        rows += [_text(line, t.ink, NAME, bold=True) for line in textwrap.wrap(sentence, SENTENCE)]
        for said, ok in words.verdicts(record.checks):
            sign = {True: "✓ ", False: "✗ ", None: "– "}[ok]
            for line in textwrap.wrap(sign + said, SENTENCE, subsequent_indent="   "):
                rows.append(
                    _text(line, t.alarm if ok is False else t.muted, SMALL, bold=ok is False)
                )
        rows += [row for row in (self._colours(), self._meanings(), self._alike()) if row]
        body = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
        return TABLE.format(2, "", body)

    def _colours(self) -> str:
        """What the colours of gradients mean."""
        if not self.plan.record.backward:
            return ""
        t, (low, _, high) = self.theme, self.scale.ends
        cells = "".join(f'<TD BGCOLOR="{colour}" WIDTH="26" HEIGHT="10"></TD>' for colour in t.bins)
        said = [f"<TD>{_text(f'{text} ', t.muted, SMALL)}</TD>" for text in ("gradient rms", low)]
        said[1] += cells + f"<TD>{_text(f' {high}', t.muted, SMALL)}</TD>"
        return TABLE.format(1, "", f"<TR>{''.join(said)}</TR>")

    def _meanings(self) -> str:
        """What lines and signs mean, of those that there are."""
        boxes, lines = self.plan.boxes, self.plan.lines
        said = ["grey dots ↓ values"]
        said += ["coloured ⇡ gradients, wider is larger"] if self.plan.record.backward else []
        said += (
            ["Σ: gradients add (agreement 1: they point one way)"]
            if any(self._sum(b) for b in boxes)
            else []
        )
        said += ["×: gain on the way"] if any(map(self._gains, lines)) else []
        said += (
            ["×N: alike modules, drawn once, with the gradient of each"]
            if self.plan.fold.times
            else []
        )
        return _text(" · ".join(said), self.theme.muted, SMALL)

    def _alike(self) -> str:
        """What all boxes share, so that none repeats it."""
        record, states = self.plan.record, {box.told.state for box in self.plan.boxes}
        dtypes = {entry.dtype for entry in record.entries if entry.op}
        said = [f"all {dtype}" for dtype in dtypes] if len(dtypes) == 1 else []
        said += (
            ["dashed: takes no part in backward"]
            if any(box.idle for box in self.plan.boxes)
            else []
        )
        for state in ("zero in theory", "vanishing", "exploding", "not finite"):
            said += [" ".join(filter(None, words.STATES[state]))] if state in states else []
        return _text(" · ".join([*said, *filter(None, [self.plan.note])]), self.theme.muted, SMALL)

    # ------------------------------------------------------------------ boxes, each in its scope

    def _scopes(self) -> Iterator[str]:
        """A cluster for each scope, the inner ones in the outer."""
        inside: dict[str, list[str]] = {"": []}
        children: dict[str, list[str]] = {}
        for box in self.plan.boxes:
            scope = box.scope
            while scope not in inside:
                inside[scope] = []
                parent = scope.rpartition("/")[0]
                children.setdefault(parent, []).append(scope)
                scope = parent
            inside[box.scope].append(self._box(box))
        numbers = {scope: f"c{number}" for number, scope in enumerate(inside)}

        def written(scope: str) -> Iterator[str]:
            if scope:
                yield f"subgraph cluster_{numbers[scope]} {{"
                yield f"graph {self._cluster(scope, numbers[scope])}"
            yield from inside[scope]
            for child in children.get(scope, ()):
                yield from written(child)
            if scope:
                yield "}"

        return written("")

    def _cluster(self, scope: str, id: str) -> str:
        t, times = self.theme, self.plan.fold.times.get(scope, 1)
        label = _text(words.one_line(self.plan.fold.name(scope), 40), t.ink, SMALL, bold=True)
        label += _text(f"  ×{times}" if times > 1 else "", t.muted, SMALL, bold=True)
        strip = self._strip(scope) if times > 1 else ""
        label = (
            TABLE.format(1, "", f'<TR><TD ALIGN="LEFT">{label}</TD></TR><TR><TD>{strip}</TD></TR>')
            if strip
            else label
        )
        self.titles[id] = f"{words.one_line(scope)}" + f", {times} alike, drawn once" * (times > 1)
        look = {
            "label": f"<{label}>",
            "labeljust": "l",
            "style": "rounded,filled",
            "id": id,
            "margin": 7,
        }
        return _attributes(look | {"fillcolor": t.cluster, "color": t.edge, "class": "scope"})

    def _strip(self, scope: str) -> str:
        """The gradient of what each of the alike modules hands on, as colours."""
        fold, record = self.plan.fold, self.plan.record
        lead = max(
            (i for i in record.forward if fold.leader(i) == i and scope in fold.numbers(i)),
            default=None,
        )
        sizes = (
            [record.entries[i].gradient_rms for i in fold.twins(lead)] if lead is not None else []
        )
        if not any(sizes):
            return ""
        wide = -(-len(sizes) // STRIP)
        fills = [
            self.theme.bins[self.scale.bin(size)] if size else self.theme.card
            for size in sizes[::wide]
        ]
        cells = "".join(f'<TD BGCOLOR="{fill}" WIDTH="6" HEIGHT="9"></TD>' for fill in fills)
        ends = [
            _text(f" {words.sized(size)} ", self.theme.muted, SMALL)
            for size in (sizes[0], sizes[-1])
        ]
        return TABLE.format(0, "", f"<TR><TD>{ends[0]}</TD>{cells}<TD>{ends[1]}</TD></TR>")

    def _box(self, box: Box) -> str:
        t, told = self.theme, box.told
        style = STYLES.get(box.kind, "filled")
        style += ",dashed" if box.idle and "dashed" not in style else ""
        own = {"parameter", "input", "loss", "outside", "cluster"}
        kind = {"leaf": "parameter", "scope": "cluster"}.get(box.kind, box.kind)
        look: dict[str, object] = {
            "shape": "box",
            "style": style,
            "fillcolor": getattr(t, kind) if kind in own else t.card,
        }
        look |= {"peripheries": 2} if box.kind == "loss" else {}
        look |= self._strength(told.size) if told.size else {}
        look |= (
            {"color": t.alarm, "penwidth": "2.5"} if told.state in ("wrong", "not finite") else {}
        )
        look |= {"label": f"<{self._label(box)}>", "id": box.id}
        self.titles[box.id] = title_of(self.plan, box)
        return f"{box.id} {_attributes(look | {'class': f'{box.kind} {told.state}'})}"

    def _strength(self, size: float) -> dict[str, str]:
        """The colour and width that a gradient of this size gives to an outline or a line."""
        bin = self.scale.bin(size)
        colour = self.theme.lines[bin] if size > 0 else self.theme.line
        return {
            "color": colour if isfinite(size) else self.theme.alarm,
            "penwidth": f"{1 + 0.3 * bin:.2f}",
        }

    def _label(self, box: Box) -> str:
        """One thing a line: what it is, its gradient, what is odd, and what it alone takes."""
        t = self.theme
        ink, muted = (t.muted, t.muted) if box.idle else (t.ink, t.muted)
        made = "" if box.kind == "scope" or box.one.op == box.label else box.one.op or box.made
        said = words.shaped(box.one.shape)
        if box.kind == "scope":
            said = words.plural(sum(bool(entry.op) for entry in box.entries), "op")
        head = _name("▸ " * (box.kind == "scope") + box.label, ink) + _text(
            f"  {made}  {said}  ".replace("    ", "  "), muted, SMALL
        )
        head += _text(f"  ×{box.times}" if box.times > 1 else "", muted, SMALL, bold=True)
        rows = [head]
        if box.kind != "outside":
            rows += [self._gradient(box)]
            rows += [_text(line, t.alarm, SMALL, bold=True) for line in alarms(box)]
            rows += [_text(line, muted, SMALL) for line in notes(box)]
        rows += [self._held(name, inner) for name, inner in box.inside]
        return TABLE.format(1, "", "".join(f"<TR><TD>{row}</TD></TR>" for row in rows if row))

    def _held(self, name: str, box: Box) -> str:
        """A parameter inside the box of its op: name, shape and gradient beside one another."""
        t, one = self.theme, box.one
        unnamed = one.kind == "constant" and not one.name
        label = (
            f"{name} = {words.digits(float(one.value.flat[0]))}"
            if one.number and one.value is not None
            else box.label
        )
        said = _name(
            name if unnamed and not one.number else label, t.muted if box.idle else t.ink, SMALL
        )
        said += _text(f" {words.shaped(one.shape)} " if one.shape else "", t.muted, SMALL)
        cells = f"<TD>{said}</TD><TD>{self._gradient(box)}</TD>"
        return TABLE.format(1, f' BGCOLOR="{t.parameter}"', f"<TR>{cells}</TR>")

    def _gradient(self, box: Box) -> str:
        """The gradient's size on the colour of its bin, or in words why there is none."""
        t, told = self.theme, box.told
        if not told.size:
            silent = (
                box.kind in ("input", "constant", "buffer") or box.one.why == "backward not run"
            )
            silent = told.state == "none" and silent
            return (
                ""
                if silent
                else _text(told.text, t.alarm if told.state == "not finite" else t.muted, SMALL)
            )
        sign = words.STATES[told.state][0] if told.state in ("vanishing", "exploding") else ""
        fill = t.alarm if told.state == "wrong" else t.bins[self.scale.bin(told.size)]
        text = " ".join(filter(None, [sign, told.text])) + "\u00a0" * (len(told.text) // 4)
        text = _text(text, ink_on(fill), SMALL, bold=True)
        cell = TABLE.format(2, f' STYLE="ROUNDED" BGCOLOR="{fill}"', f"<TR><TD>{text}</TD></TR>")
        total = self._sum(box)
        if not total:
            return cell
        return TABLE.format(
            0, "", f"<TR><TD>{cell}</TD><TD>{_text(f' {total}', t.muted, SMALL)}</TD></TR>"
        )

    def _sum(self, box: Box) -> str:
        """Σ and the agreement of the gradients that add here."""
        found = [self.plan.record.agreement(e) for e in box.entries if self.plan.record.sums(e)]
        known = [one for one in found if one is not None]
        return f"Σ {words.ranged(known)}" if known and box.kind not in ("scope", "outside") else ""

    # ------------------------------------------------------------------ lines

    def _gains(self, line: Line) -> str:
        found = [edge.gain for edge in line.edges if words.changes(edge) and edge.gain is not None]
        return f"×{words.ranged(found)}" if found else ""

    def _line(self, line: Line, id: str) -> str:
        """A use of a value, and beside it the gradient that it sent back."""
        t, sent = self.theme, line.sent
        look: dict[str, object] = {"id": id, "class": "gradient" if sent else "forward"}
        if sent:
            strength = self._strength(max(sent))
            look |= strength | {
                "dir": "both",
                "arrowtail": "normal",
                "color": f"{t.line}:{GAP}:{strength['color']}",
            }
        if line.step:  # from the end of a block back to its beginning
            look |= {"constraint": "false", "tailport": "e", "headport": "e"}
        rows = [_text(f" {line.said} ", t.muted, SMALL)] if line.said else []
        if sent and (self._sum(line.source) or line.step):
            rows.append(_text(f" {words.ranged(sent)} ", t.muted, SMALL))
        if gains := self._gains(line):
            rows.append(_text(f" {gains} ", t.ink, SMALL, bold=True))
        look |= {"label": f"<{'<BR/>'.join(rows)}>"} if rows else {}
        names = (line.source.label, line.target.label, line.edges[0].input)
        used = "{} is used by {} as {}".format(*names) + f" ({line.said})" * bool(line.said)
        back = f"gradient back: rms {words.ranged(sent)}" if sent else "no gradient back"
        self.titles[id] = "; ".join(filter(None, [used, back, words.one_line(line.edges[0].says)]))
        return f"{line.source.id} -> {line.target.id} {_attributes(look)}"


# ---------------------------------------------------------------- DOT text


def _attributes(given: dict[str, object]) -> str:
    pairs = []
    for name, value in given.items():
        text = str(value)
        html = name == "label" and text.startswith("<")
        pairs.append(f"{name}={text}" if html else f'{name}="{text}"')
    return f"[{' '.join(pairs)}]"


def _text(said: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not said:
        return ""
    body = escape(said).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'


def _name(said: str, colour: str, size: int = NAME) -> str:
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
    words.one_of("draw", THEMES, theme=theme)
    chosen = plan(record.finish(), depth=depth, focus=focus, fold=fold)
    return Dot(chosen, title=title, theme=THEMES[theme])


@cache
def renderer(format: str) -> str:
    """The program that makes this format. Raises: MissingDependencyError if there is none."""
    try:
        shipped: Iterable[metadata.PackagePath] = metadata.files("graphviz-pure") or []
    except metadata.PackageNotFoundError:
        shipped = []
    places = [
        str(f.locate())
        for f in shipped
        if f.stem == "graphviz-pure" and f.parts[-2].lower() == "bin"
    ]
    places += [os.path.join(sysconfig.get_path("scripts"), "graphviz-pure")]
    ours = next((f for f in places if os.access(f, os.X_OK)), shutil.which("graphviz-pure"))
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


def svg_of(dot: Dot, *, follow: bool, zoom: bool = False) -> str:
    """The picture as an SVG with a role, a name, a description, titles, and ids of its own.

    Args: follow: add the dark theme's colours for readers who prefer a dark background.  zoom: add
        a script that zooms and pans where a browser opens the picture by itself.
    """
    prefix = "mg" + sha256(dot.text.encode()).hexdigest()[:10]
    svg = titled(render(dot.text, "svg").decode(), dot)
    svg = re.sub(r'(<[a-z]+[^<>]*) id="', rf'\1 id="{prefix}-', svg)
    parts = [f'<title id="{prefix}-title">{escape(dot.name)}</title>']
    parts += [f'<desc id="{prefix}-desc">{escape(dot.summary)}</desc>']
    dark = _dark(prefix) if follow else ""
    parts += [f"<style>#{prefix} text{{font-family:{FAMILY}}}{dark}</style>"]
    named = f'<svg id="{prefix}" role="img" aria-labelledby="{prefix}-title {prefix}-desc"'
    svg = svg.replace("<svg", named, 1)
    start, end = svg.index(">") + 1, svg.rindex("</svg>")
    script = f"<script><![CDATA[\n{asset('zoom.js')}]]></script>\n" if zoom else ""
    return "\n".join([svg[:start], *parts, svg[start:end].strip(), script + svg[end:]])


def _dark(prefix: str) -> str:
    """Each colour of the light theme replaced by the dark theme's colour for the same part."""
    light, dark = LIGHT.roles(), DARK.roles()
    rules = "".join(
        f'#{prefix} [{paint}="{light[part]}"]{{{paint}:{dark[part]}}}'
        for part in light
        for paint in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark){{#{prefix}{{background:{DARK.paper}}}{rules}}}"
