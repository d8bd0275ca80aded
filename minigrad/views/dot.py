"""A trace as DOT text: what each box and line looks like, and a legend that says what that means.

Text alone, no program is run. Ids and classes are of our own making, never a name; names appear
only in HTML-like labels, escaped. Titles for screen readers come beside the text, by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

from ..engine.errors import MissingDependencyError
from ..recording.trace import TraceRecord
from . import labels
from .colors import FIXED, RATIO_LINES, RATIOS, SCALES, THEMES, ink_on
from .fold import parts, prefixes
from .labels import verdicts
from .model import STATES, AnnotatedTrace, Strip, largest, ranged
from .outline import Box, Line, Outline, outline, with_parameters_inside
from .plain import one_line, one_of

if TYPE_CHECKING:
    from graphviz import Digraph

__all__ = ["Dot", "marks", "outline_dot", "trace_dot"]

FONT = "Helvetica"  # the one sans-serif whose widths every renderer knows
DIRECTIONS = {"down": "TB", "right": "LR"}
PARAMETERS = ("beside", "inside")  # in boxes of their own, or inside the box of their op
MANY_BOXES = 40  # from here on parameters stand inside their ops
MOST_BOXES_DRAWN = 300  # of a picture that can still be read
BLANK = "\u00a0"
LETTERS_PER_BLANK = 6  # blanks make room, since a reader's font may be wider than Graphviz's
BOLD_WIDTH = 4.8  # points of a small bold letter in browsers; Graphviz reckons with fewer
MOST_STRIP_CELLS = 60
CARD = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" '
ROWS = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="2">'
LID = '<TR><TD HEIGHT="7"></TD></TR>'  # room for the lid of a cylinder or a box
# kind: (shape, style). Each kind has a shape of its own, so that colour is never the only sign.
SHAPES = {
    "parameter": ("cylinder", "filled"),
    "leaf": ("tab", "filled"),
    "input": ("invhouse", "filled"),
    "constant": ("note", "filled"),
    "detached": ("note", "filled,dashed"),
    "op": ("box", "rounded,filled"),
    "loss": ("octagon", "filled"),
    "scope": ("box3d", "filled"),
    "outside": ("box", "filled,dashed"),
    "sum": ("oval", "filled"),
}
SHAPE_NAMES = {
    "leaf": "leaf with a gradient",
    "scope": "closed scope",
    "outside": "out of focus",
    "sum": "Σ ratio",
}


@dataclass(frozen=True)
class Look:
    """How much a picture says, and in which sizes of type, in points."""

    name: int  # of a box
    text: int  # all else
    facts: int  # lines of facts in a box: shape, then cost
    slide: bool = False  # 16:9, with no legend of shapes


LOOKS = {
    "standard": Look(name=12, text=9, facts=1),
    "slide": Look(name=22, text=16, facts=0, slide=True),
    "full": Look(name=12, text=9, facts=2),
}


@dataclass
class Dot:
    """DOT text, a title for each id in it, and one sentence and a name for the whole."""

    text: str
    titles: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    name: str = "Computation graph"


def trace_dot(
    trace: TraceRecord,
    *,
    theme: str = "auto",
    scale: str = "run",
    style: str = "standard",
    direction: str | None = None,
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    saved: bool = False,
    parameters: str | None = None,
    title: str | None = None,
    against: Any = None,
) -> Dot:
    """Write a trace as DOT. The arguments are those of `Trace.draw`.

    Args: against: a Comparison with another run, for colours of the ratio.
    Raises: ArgumentError for a value it does not know; MissingDependencyError without graphviz.
    """
    one_of("draw", THEMES, theme=theme)
    one_of("draw", SCALES, scale=scale)
    one_of("draw", LOOKS, style=style)
    one_of("draw", (None, *DIRECTIONS), direction=direction)
    one_of("draw", (None, *PARAMETERS), parameters=parameters)
    model = AnnotatedTrace(trace, fold=fold, against=against)
    most = None if style == "full" else MOST_BOXES_DRAWN
    plan = outline(model, depth=depth, focus=focus, limit=most)
    many = len(plan.boxes) >= MANY_BOXES and style != "full"
    if (parameters or PARAMETERS[many]) == "inside":
        plan = with_parameters_inside(plan)
    if direction is None:
        direction = "right" if style == "slide" else "down"
    writer = _DotWriter(plan, theme, scale, style, saved)
    return writer.dot(direction, title, legend=style != "slide")


def outline_dot(plan: Outline, scale: str) -> Dot:
    """A part of a record as DOT, for a page, which has a legend of its own."""
    return _DotWriter(plan, "light", scale, "standard", saved=False).dot("down")


def _digraph(name: str) -> Digraph:
    try:
        import graphviz
    except ImportError:
        raise MissingDependencyError(
            "draw: the package graphviz is missing: pip install graphviz"
        ) from None
    return graphviz.Digraph(name)


class _DotWriter:
    def __init__(self, plan: Outline, theme: str, scale: str, style: str, saved: bool) -> None:
        self.plan = plan
        self.model = plan.model
        self.theme = THEMES[theme]
        if self.model.against is not None:
            self.theme = replace(self.theme, bins=RATIOS, lines=RATIO_LINES)
        self.scale = FIXED if scale == "fixed" else self.model.scale
        self.look = LOOKS[style]
        self.saved = plan.saved if saved else []
        self.by_products: dict[Box, list[tuple[str, str]]] = {}
        for number, (_, target, name) in enumerate(self.saved):
            if name:
                self.by_products.setdefault(target, []).append((f"k{number}from", name))
        self.sums = set(plan.sums)
        self.titles: dict[str, str] = {}
        self.graph = _digraph("trace")

    def dot(self, direction: str, title: str | None = None, legend: bool = False) -> Dot:
        t, attr = self.theme, self.graph.attr
        font = {"fontname": FONT, "fontsize": "10", "fontcolor": t.ink}
        attr("graph", **font, bgcolor=t.paper, pad="0.2", nodesep="0.22", ranksep="0.32")
        attr("graph", rankdir=DIRECTIONS[direction])
        if self.look.slide:
            attr("graph", ratio="0.5625", label=f"<{self.caption()}>")
        elif title:
            attr("graph", label=f"<{_text(one_line(title), t.ink, 13)}>", labelloc="t")
        box = {"color": t.border, "fillcolor": t.card, "margin": "0.1,0.05", "height": "0.2"}
        attr("node", **font, **box)
        attr("edge", **font, color=t.line, penwidth="1", arrowsize="0.55", arrowhead="vee")
        self.scopes()
        for number, line in enumerate(self.plan.lines):
            self.line(line, f"e{number}")
        for number, (source, target, name) in enumerate(self.saved):
            self.keep(source, target, name, f"k{number}")
        if legend:
            self.legend()
        measured = "; ".join(one.said for one in verdicts(self.model.checks))
        said = [labels.summary(self.model), *([measured] if measured else [])]
        name = title or labels.picture_name(self.model)
        return Dot(self.graph.source, self.titles, " · ".join(said), one_line(name))

    # ------------------------------------------------------------------ boxes, each in its scope

    def scopes(self) -> None:
        """A cluster for each scope, the inner ones in the outer."""
        by_scope: dict[str, list[Box]] = {"": []}
        for box in self.plan.boxes:
            for scope in prefixes(box.scope):
                by_scope.setdefault(scope, [])
            by_scope[box.scope].append(box)
        graphs = {"": self.graph}
        for number, (scope, boxes) in enumerate(by_scope.items()):
            if scope:
                graphs[scope] = self.cluster(scope, f"c{number}")
            for box in boxes:
                self.box(graphs[scope], box)
        for scope in sorted(by_scope, key=lambda scope: -len(parts(scope))):  # innermost first
            if scope:
                graphs[scope.rpartition("/")[0]].subgraph(graphs[scope])

    def cluster(self, scope: str, id: str) -> Digraph:
        t, fold = self.theme, self.model.fold
        times = fold.times.get(scope, 1)
        name = one_line(fold.name(scope), 2 * labels.WIDEST)
        size, strip = self.look.name - 2, self.model.strips.get(scope)
        label = _name(name, t.ink, size)
        label += _text(f"  ×{times}" if times > 1 else "", t.muted, size, bold=True)
        if strip is not None:
            rows = f'<TR><TD ALIGN="LEFT">{label}</TD></TR>{self.strip(strip)}'
            label = f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1">{rows}</TABLE>'
        child = _digraph(f"cluster_{id}")
        child.attr(label=f"<{label}>", labeljust="l", style="rounded,filled", id=id, margin="10")
        child.attr(fillcolor=t.cluster, color=t.cluster_line, penwidth="1", **{"class": "scope"})
        alike = f", {times} alike, drawn once" if times > 1 else ""
        alike += f"; {strip.text}" if strip is not None else ""
        self.titles[id] = f"scope {one_line(scope)}{alike}"
        return child

    def box(self, graph: Digraph, box: Box) -> None:
        """A box, and with it the Σ of its gradient and what else its op saved."""
        spread = self.plan.spreads[box]
        look = self.shape(box.kind, box.dimmed)
        look |= self.strength(spread.largest) if spread.largest else {}
        if spread.state in ("wrong", "non-finite"):
            look["color"] = self.theme.alarm
        look["class"] = " ".join([box.kind, spread.state, *["dim"] * box.dimmed])
        graph.node(box.id, label=f"<{self.box_label(box)}>", id=box.id, **look)
        self.titles[box.id] = labels.node_title(self.plan, box)
        if box in self.sums:
            self.sum(graph, box)
        for id, name in self.by_products.get(box, []):
            label = self.small(one_line(name), self.theme.muted)  # dropout's mask, say
            graph.node(id, label=f"<{label}>", shape="plaintext", id=id, **{"class": "kept"})
            self.titles[id] = f"{one_line(name)}, a by-product of {one_line(box.label)}"

    def sum(self, graph: Digraph, box: Box) -> None:
        """The Σ of a value that is used more than once: its gradients add there, and may cancel."""
        id, spread = f"{box.id}sum", self.plan.spreads[box]
        ratio = ranged(labels.cancellation(self.model, box))
        label = _text("Σ", self.theme.ink, 12, bold=True)
        label += self.small(f" {ratio}" if ratio else "", self.theme.muted)
        look = self.shape("sum") | {"margin": "0.03,0.01", "class": "sum"}
        look["color"] = self.strength(spread.largest)["color"]
        graph.node(id, label=f"<{label}>", id=id, **look)
        self.titles[id] = labels.sum_title(self.plan, box)
        graph.edge(box.id, id, id=f"{id}line", weight="4", **self.flow(spread.sizes))
        self.titles[f"{id}line"] = f"gradient of {one_line(box.label)}, the sum of its terms"

    def shape(self, kind: str, dimmed: bool = False) -> dict[str, str]:
        """Shape, fill and, of a loss, the double outline."""
        shape, style = SHAPES[kind]
        style += ",dashed" if dimmed and "dashed" not in style else ""
        made = {"shape": shape, "style": style, "fillcolor": self.theme.fill(kind)}
        return made | ({"peripheries": "2"} if kind == "loss" else {})

    def strength(self, size: float) -> dict[str, str]:
        """The colour and width that a gradient of this size gives to an outline or a line."""
        theme, bin = self.theme, self.scale.bin(size)
        colour = theme.lines[bin] if size > 0 else theme.line
        return {
            "color": colour if isfinite(size) else theme.alarm,
            "penwidth": f"{1.0 + 0.4 * bin:.1f}",
        }

    # ------------------------------------------------------------------ the text of a box

    def box_label(self, box: Box) -> str:
        """The text of a box, one row a line, the gradient last."""
        theme, size = self.theme, self.look.name
        ink, muted = (theme.dim, theme.dim) if box.dimmed else (theme.ink, theme.muted)
        name, made = labels.heading(box)
        size -= 2 * (box.kind in ("parameter", "leaf", "constant"))  # names of values are larger
        head = _name(name, ink, size)
        head += _text(f"  {made}" if made else "", muted, size - 1)
        head += _text(f"  ×{box.times}" if box.times > 1 else "", muted, size - 1, bold=True)
        rows = [head + _text(labels.ticks(box), muted, size - 1)]
        if box.kind != "outside":
            rows += [self.small(fact, muted) for fact in labels.facts(box)[: self.look.facts]]
            rows += [self.gradient(box, "×" * (self.model.against is not None)), self.note(box)]
            rows += [self.small(f"✗ {said}", theme.alarm, bold=True) for said in labels.alarms(box)]
            rows += [self.small(said, muted) for said in labels.notes(self.model, box)]
        rows += [self.inner(one) for one in box.parameters]
        body = "".join(f"<TR><TD>{row}</TD></TR>" for row in rows if row)
        lid = LID if box.kind in ("parameter", "scope") else ""
        return f'{CARD}CELLPADDING="1">{lid}{body}</TABLE>'

    def inner(self, box: Box) -> str:
        """A parameter inside the box of its op: name, shape and gradient beside one another."""
        fill, ink = self.theme.fill(box.kind), self.theme.dim if box.dimmed else self.theme.ink
        said = _name(labels.heading(box)[0], ink, self.look.text)
        said += self.small(f" {labels.facts(box)[0].split('  ')[0]} ", self.theme.muted)
        cells = f"<TR><TD>{said}</TD><TD>{self.gradient(box, '')}</TD></TR>"
        return f'{CARD}CELLPADDING="2" BGCOLOR="{fill}">{cells}</TABLE>'

    def note(self, box: Box) -> str:
        """Which copy differs from the others, and how."""
        spread = self.plan.spreads[box]
        bad = spread.state in ("non-finite", "wrong")
        said = one_line(spread.note, 2 * labels.WIDEST)
        room = BLANK * (len(said) // 12)
        colour = self.theme.alarm if bad else self.theme.muted
        return self.small(f"{room}{said}{room}" if said else "", colour, bold=bad)

    def gradient(self, box: Box, times: str) -> str:
        """Glyph and size on the colour of its bin, or why there is no gradient."""
        theme, spread = self.theme, self.plan.spreads[box]
        glyph = STATES[spread.state][0]
        finite = [size for size in spread.sizes if isfinite(size)]
        if spread.state == "none":  # the caption or the heading may have it already
            why = labels.why(self.model, box)
            said = why in ("backward not run", box.kind)
            return "" if said else self.small(f"{glyph} {why}", theme.dim)
        if spread.sizes and not finite:
            return self.small(f"{glyph} not finite", theme.alarm, bold=True)
        if times and not spread.sizes:
            return self.small("not to be compared", theme.muted)
        if not any(finite) or spread.state == "cancels":
            return self.small(f"{glyph} zero", theme.muted, bold=True)
        glyph = "" if spread.note and spread.state != "ok" else f"{glyph} "
        wrong = spread.state == "wrong"
        fill = theme.alarm if wrong else theme.bins[self.scale.bin(largest(finite))]
        size = f"{times or glyph}{ranged(finite)}{' WRONG' * wrong}"
        size += BLANK * (len(size) // LETTERS_PER_BLANK)
        cell = f"<TR><TD>{self.small(size, ink_on(fill), bold=True)}</TD></TR>"
        return f'{CARD}CELLPADDING="3" STYLE="ROUNDED" BGCOLOR="{fill}">{cell}</TABLE>'

    def strip(self, strip: Strip) -> str:
        """One cell for each copy, in the colour of its gradient, from the first to the last."""
        theme, sizes = self.theme, strip.sizes
        wide = -(-len(sizes) // MOST_STRIP_CELLS)
        groups = [[x for x in sizes[i : i + wide] if x] for i in range(0, len(sizes), wide)]
        fills = [theme.bins[self.scale.bin(largest(g))] if g else theme.card for g in groups]
        cells = "".join(f'<TD BGCOLOR="{fill}" WIDTH="5" HEIGHT="12"></TD>' for fill in fills)
        ends = [self.small(f"{name} ", theme.muted) for name in strip.ends]
        row = f"<TR><TD>{ends[0]}</TD>{cells}<TD> {ends[1]}</TD></TR>"
        said = self.small(strip.text, theme.muted)
        return f'<TR><TD ALIGN="LEFT">{said}</TD></TR><TR><TD>{CARD}>{row}</TABLE></TD></TR>'

    def small(self, said: str, colour: str, bold: bool = False) -> str:
        return _text(said, colour, self.look.text, bold=bold)

    # ------------------------------------------------------------------ lines

    def line(self, line: Line, id: str) -> None:
        """A use of a value, and the gradient sent back along it."""
        summed = line.source in self.sums
        look = self.flow(line.sent) | self.line_label(line, summed)
        if line.source.dimmed:
            look["style"] = "dashed"
        if line.link.step:  # from the end of a block back to its beginning
            look |= {"constraint": "false", "tailport": "e", "headport": "e"}
        tail = f"{line.source.id}sum" if summed else line.source.id
        self.graph.edge(tail, line.target.id, id=id, **look)
        self.titles[id] = labels.line_title(self.plan, line)

    def flow(self, sent: list[float]) -> dict[str, str]:
        """A thin arrow forward where only values flow, a coloured one back along a gradient."""
        if not sent:
            return {"class": "forward"}
        back = {"class": "gradient", "dir": "back", "arrowtail": "normal"}
        return self.strength(largest(sent)) | back

    def line_label(self, line: Line, summed: bool) -> dict[str, str]:
        colour = self.theme.muted if isfinite(largest(line.sent)) else self.theme.alarm
        rows = [self.small(f" {said} ", colour) for said in labels.line_label(line, summed)]
        if gain := labels.gains(self.model, line):
            rows.append(self.small(f" {gain} ", self.theme.ink, bold=True))
        return {"label": f"<{'<BR/>'.join(rows)}>"} if rows else {}

    def keep(self, source: Box, target: Box, name: str, id: str) -> None:
        tail = f"{id}from" if name else source.id
        look = {"style": "dotted", "arrowhead": "odot", "arrowsize": "0.5", "class": "saved"}
        look |= {} if name else {"constraint": "false"}
        look |= {"headport": "e", "tailport": "e"} if tail == target.id else {}
        self.graph.edge(tail, target.id, id=id, **look)
        what = one_line(name or source.label)
        self.titles[id] = f"{what} is saved for the backward of {one_line(target.label)}"

    # ------------------------------------------------------------------ legend

    def legend(self) -> None:
        """A cluster of its own, below everything else: a sample of each shape, and the caption."""
        key, boxes = _digraph("cluster_key"), self.plan.boxes
        label = f"<{self.caption()}>"
        key.attr(label=label, labelloc="b", labeljust="l", style="rounded", id="key")
        key.attr(color=self.theme.cluster_line, margin="8", **{"class": "legend"})
        self.titles["key"] = "legend"
        ends = [box.id for box in boxes if box.kind == "loss"] or [box.id for box in boxes[-1:]]
        present = {box.kind for box in boxes} | ({"sum"} if self.sums else set())
        for kind in (kind for kind in SHAPES if kind in present):
            id, label = f"key{kind}", _text(SHAPE_NAMES.get(kind, kind), self.theme.ink, 9)
            names = {"id": id, "class": f"key {kind}"}
            key.node(id, label=f"<{label}>", **self.shape(kind), **names)
            self.titles[id] = f"legend: {kind}"
            self.graph.edge(ends[-1], id, style="invis")
        self.graph.subgraph(key)

    def caption(self) -> str:
        """The rows beneath: the scale, lines, states, a sentence on the whole, the verdict."""
        theme, model = self.theme, self.model
        states = {spread.state for spread in self.plan.spreads.values()}
        rows = [self.bins()] if states - {"none"} else []
        if not self.look.slide:
            legend = [*marks(self.plan, bool(self.saved))]
            legend += [(glyph, means) for name, (glyph, means) in STATES.items() if name in states]
            cells = [
                self.small(_wide(mark), theme.ink, bold=True) + self.small(f" {means}", theme.muted)
                for mark, means in legend
            ]
            gap = self.small("     ", theme.muted)
            rows += [gap.join(cells[i : i + 3]) for i in range(0, len(cells), 3)]
        rows.append(self.small(model.flow, theme.ink, bold=True))
        rows += [self.small(s, theme.muted) for s in (self.plan.left_out, labels.summary(model))]
        body = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows if row)
        return f"{ROWS}{body}{self.verdict()}</TABLE>"

    def bins(self) -> str:
        """The colours of the bins, each with its bounds; where the loss is."""
        theme, trace = self.theme, self.model.trace
        compared = self.model.against is not None
        of = _wide("gradient there / here" if compared else "gradient rms")
        cells = [f"<TD>{self.small(of, theme.ink, bold=True)}</TD>"]
        roots = [trace.entries[i].gradient_rms or 0.0 for i in trace.roots]
        losses = set() if compared else {self.scale.bin(size) for size in roots}
        ends = self.scale.ends
        for i, colour in enumerate(theme.bins):
            said = f"{ends[i]} – {ends[i + 1]}" + " (loss)" * (i in losses)
            label = self.small(said, ink_on(colour))
            cells.append(f'<TD BGCOLOR="{colour}" CELLPADDING="4">{label}</TD>')
        return f"{ROWS}<TR>{''.join(cells)}</TR></TABLE>"

    def verdict(self) -> str:
        """What was measured, a line for each thing, on red if something disagrees."""
        found = verdicts(self.model.checks)
        agrees = all(one.ok is not False for one in found)
        colour = self.theme.muted if agrees else self.theme.paper
        said = [part for one in found for part in one.said.split("; ")]
        width = BOLD_WIDTH * max(map(len, said), default=0)
        ground = "" if agrees else f' BGCOLOR="{self.theme.alarm}" WIDTH="{width:.0f}"'
        rows = [self.small(part, colour, bold=not agrees) for part in said]
        lines = '<BR ALIGN="LEFT"/>'.join([*rows, ""] if rows[1:] else rows)
        return f'<TR><TD ALIGN="LEFT"{ground}>{lines}</TD></TR>' if found else ""


def marks(plan: Outline, saved: bool) -> Iterator[tuple[str, str]]:
    """The meaning of each kind of line and mark in the picture."""
    lines, model = plan.lines, plan.model
    if any(not line.sent for line in lines):
        yield "↓ thin", "values, forward"
    if any(line.sent for line in lines):
        yield "↑ thick", "gradients, backward; wider is larger"
    if plan.sums:
        yield "Σ", "sum of gradients, and ‖Σg‖ / Σ‖g‖"
    if any(labels.gains(model, line) for line in lines):
        yield "×1.6", "change of size, on the way named below"
    if model.against is not None:
        yield "×0.5", "a gradient there, in the other run, over the same one here"
    if saved:
        yield "dotted, ○ at its end", "saved for backward"
    if any(box.dimmed for box in plan.boxes):
        yield "↓ dashed", "takes no part in backward"
    if model.fold.times:
        yield f"×{max(model.fold.times.values())}", "alike blocks drawn once, with least to largest"
    if any(line.link.step or line.link.each for line in lines):
        yield "to the next, from each", "copies of a block"
    if model.strips:
        yield "row of colours", "a gradient in each copy"


def _text(said: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not said:
        return ""
    body = escape(said).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'


def _name(said: str, colour: str, size: int) -> str:
    """A name, and room after it that a wider font than Graphviz's may need."""
    room = BLANK * (len(said) // LETTERS_PER_BLANK)
    return _text(said, colour, size, bold=True) + _text(room, colour, size)


def _wide(said: str) -> str:
    """Text with blanks after it, since browsers draw bold letters wider than Graphviz reckons."""
    return said + BLANK * -(-len(said) // LETTERS_PER_BLANK)
