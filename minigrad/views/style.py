"""How boxes, lines and scopes of a picture look, and the legend that says what that means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any

from . import labels
from .colors import Scale, Theme, ink_on
from .labels import verdicts
from .model import STATES, Spread, Strip, largest, ranged
from .outline import Box, Line, Outline
from .plain import one_line

__all__ = [
    "LOOKS",
    "SHAPES",
    "NodeStyle",
    "caption",
    "marks",
    "powers",
    "samples",
    "text",
]

# kind: (shape, style). Each kind has a shape of its own: colour never tells it alone.
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
CARD = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" '
FONT_ROOM = "\u00a0"  # for a wider font in its place
CELLS, WIDTH = 60, 5  # of a strip at most, and how wide each
LID = '<TR><TD HEIGHT="7"></TD></TR>'  # room for the lid of a cylinder or a box


def text(said: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not said:
        return ""
    body = escape(said).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'


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


class NodeStyle:
    """Attributes and labels by one theme, one scale and one look."""

    def __init__(self, theme: Theme, scale: Scale, look: Look) -> None:
        self.theme = theme
        self.scale = scale
        self.look = look

    def small(self, said: str, colour: str, bold: bool = False) -> str:
        return text(said, colour, self.look.text, bold=bold)

    def shape(self, kind: str, dimmed: bool = False) -> dict[str, str]:
        """Shape, fill and, of a loss, the double outline."""
        shape, style = SHAPES[kind]
        style += ",dashed" if dimmed and "dashed" not in style else ""
        made = {"shape": shape, "style": style, "fillcolor": self.theme.fill(kind)}
        return made | ({"peripheries": "2"} if kind == "loss" else {})

    def strength(self, size: float) -> dict[str, str]:
        """The colour and width that a gradient of this size gives to an outline or a line."""
        theme = self.theme
        colour = theme.lines[self.scale.bin(size)] if size > 0 else theme.line
        width = f"{1.0 + 0.4 * self.scale.bin(size):.1f}"
        return {"color": colour if isfinite(size) else theme.alarm, "penwidth": width}

    def flow(self, sent: list[float]) -> dict[str, str]:
        """A thin arrow forward where only values flow; a coloured one back if a gradient came."""
        if not sent:
            return {"class": "forward"}
        back = {"class": "gradient", "dir": "back", "arrowtail": "normal"}
        return self.strength(largest(sent)) | back

    def label(self, plan: Outline, line: Line, summed: bool) -> dict[str, str]:
        colour = self.theme.muted if isfinite(largest(line.sent)) else self.theme.alarm
        rows = [self.small(f" {said} ", colour) for said in labels.line_label(line, summed)]
        if gain := labels.gains(plan.model, line):
            rows.append(self.small(f" {gain} ", self.theme.ink, bold=True))
        return {"label": f"<{'<BR/>'.join(rows)}>"} if rows else {}

    def table(self, plan: Outline, box: Box) -> str:
        """The text of a box, one row a line, the gradient last."""
        theme = self.theme
        times = box.times
        size = self.look.name
        ink, muted = (theme.dim, theme.dim) if box.dimmed else (theme.ink, theme.muted)
        name, made = labels.heading(box)
        size -= 2 * (box.kind in ("parameter", "leaf", "constant"))  # the flow is of values
        head = text(name, ink, size, bold=True) + text(f"  {made}" if made else "", muted, size - 1)
        head += text(f"  ×{times}" if times > 1 else "", muted, size - 1, bold=True)
        rows = [head + text(labels.ticks(box), muted, size - 1)]
        if box.kind != "outside":
            spread = plan.spreads[box]
            rows += [self.small(fact, muted) for fact in labels.facts(box)[: self.look.facts]]
            why, compared = labels.why(plan.model, box), plan.model.against is not None
            rows.append(self.gradient(spread, why, box.kind, "×" * compared))
            rows.append(self.note(spread))
            rows += [self.small(f"✗ {said}", theme.alarm, bold=True) for said in labels.alarms(box)]
            rows += [self.small(said, muted) for said in labels.notes(plan.model, box)]
        rows += [self.inner(plan, one) for one in box.parameters]
        body = "".join(f"<TR><TD>{row}</TD></TR>" for row in rows if row)
        lid = LID if box.kind in ("parameter", "scope") else ""
        return f'{CARD}CELLPADDING="1">{lid}{body}</TABLE>'

    def inner(self, plan: Outline, box: Box) -> str:
        """A parameter inside the box of its op: name, shape and gradient beside one another."""
        fill, ink = self.theme.fill(box.kind), self.theme.dim if box.dimmed else self.theme.ink
        said = self.small(labels.heading(box)[0], ink, bold=True)
        said += self.small(f" {labels.facts(box)[0].split('  ')[0]} ", self.theme.muted)
        gradient = self.gradient(plan.spreads[box], labels.why(plan.model, box), box.kind, "")
        cells = f"<TR><TD>{said}</TD><TD>{gradient}</TD></TR>"
        return f'{CARD}CELLPADDING="2" BGCOLOR="{fill}">{cells}</TABLE>'

    def note(self, spread: Spread) -> str:
        """Which copy differs from the others, and how."""
        bad = spread.state in ("non-finite", "wrong")
        colour = self.theme.alarm if bad else self.theme.muted
        said = one_line(spread.note, 2 * labels.WIDEST)
        room = FONT_ROOM * (len(said) // 12)
        return self.small(f"{room}{said}{room}" if said else "", colour, bold=bad)

    def gradient(self, spread: Spread, why: str, kind: str, times: str) -> str:
        """Glyph and size on the colour of its bin, or why there is no gradient."""
        theme, glyph = self.theme, STATES[spread.state][0]
        finite = [size for size in spread.sizes if isfinite(size)]
        if spread.state == "none":  # not said twice: the caption or the heading has it
            said = why in ("backward not run", kind)
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
        said_size = f"{times or glyph}{ranged(finite)}{' WRONG' * wrong}"
        said_size += FONT_ROOM * (len(said_size) // 6)
        cell = f"<TR><TD>{self.small(said_size, ink_on(fill), bold=True)}</TD></TR>"
        return f'{CARD}CELLPADDING="3" STYLE="ROUNDED" BGCOLOR="{fill}">{cell}</TABLE>'

    def strip(self, strip: Strip) -> str:
        """One cell for each copy, in the colour of its gradient, from the first to the last."""
        theme, sizes = self.theme, strip.sizes
        wide = -(-len(sizes) // CELLS)
        groups = [[x for x in sizes[i : i + wide] if x] for i in range(0, len(sizes), wide)]
        fills = [theme.bins[self.scale.bin(largest(g))] if g else theme.card for g in groups]
        cells = "".join(f'<TD BGCOLOR="{fill}" WIDTH="{WIDTH}" HEIGHT="12"></TD>' for fill in fills)
        ends = [self.small(f"{name} ", theme.muted) for name in strip.ends]
        row = f"<TR><TD>{ends[0]}</TD>{cells}<TD> {ends[1]}</TD></TR>"
        said = self.small(strip.text, theme.muted)
        return f'<TR><TD ALIGN="LEFT">{said}</TD></TR><TR><TD>{CARD}>{row}</TABLE></TD></TR>'


BOX_KINDS = (
    "parameter", "leaf", "input", "constant", "detached", "op", "loss", "scope", "outside", "sum",
)  # fmt: skip
WORDS = {
    "leaf": "leaf with a gradient",
    "scope": "closed scope",
    "outside": "out of focus",
    "sum": "Σ ratio",
}
BOLD = 4.8  # points a character takes in browsers, for which Graphviz keeps less room
TABLE = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="2">'


def samples(graph: Any, plan: Outline, style: NodeStyle) -> list[str]:
    """One small box of each shape that occurs; their ids."""
    present = {box.kind for box in plan.boxes} | ({"sum"} if plan.sums else set())
    kinds = [kind for kind in BOX_KINDS if kind in present]
    for kind in kinds:
        label = f"<{text(WORDS.get(kind, kind), style.theme.ink, 9)}>"
        names = {"id": f"key{kind}", "class": f"key {kind}"}
        graph.node(f"key{kind}", label=label, **style.shape(kind), **names)
    return [f"key{kind}" for kind in kinds]


def caption(plan: Outline, style: NodeStyle, saved: bool) -> str:
    """The rows beneath: the scale, kinds of lines, states, a sentence on the whole, the verdict."""
    theme = style.theme
    states = {spread.state for spread in plan.spreads.values()}
    rows = [_scale(plan, style)] if states - {"none"} else []
    if not style.look.slide:
        told = [*marks(plan, saved)]
        told += [(glyph, means) for name, (glyph, means) in STATES.items() if name in states]
        cells = [
            style.small(_wide(mark), theme.ink, bold=True) + style.small(f" {means}", theme.muted)
            for mark, means in told
        ]
        gap = style.small("     ", theme.muted)
        rows += [gap.join(cells[i : i + 3]) for i in range(0, len(cells), 3)]
    rows.append(style.small(plan.model.flow, theme.ink, bold=True))
    rows += [style.small(s, theme.muted) for s in (plan.left_out, labels.summary(plan.model))]
    body = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows if row)
    return f"{TABLE}{body}{_verdict(plan, style)}</TABLE>"


def _wide(said: str) -> str:
    """With room behind it: browsers draw bold letters wider than the layout reckons."""
    return said + FONT_ROOM * -(-len(said) // 6)


def _scale(plan: Outline, style: NodeStyle) -> str:
    """The colours of the bins, each with its bounds; where the loss is."""
    bounds, theme = style.scale.bounds, style.theme
    compared = plan.model.against is not None
    of = "gradient there / here" if compared else "gradient rms"
    cells = [f"<TD>{style.small(_wide(of), theme.ink, bold=True)}</TD>"]
    roots = [plan.model.trace.entries[i].gradient_rms or 0.0 for i in plan.model.trace.roots]
    losses = set() if compared else {style.scale.bin(size) for size in roots}
    ends = powers(bounds)
    for i, colour in enumerate(theme.bins):
        said = f"{ends[i]} – {ends[i + 1]}" + " (loss)" * (i in losses)
        label = style.small(said, ink_on(colour))
        cells.append(f'<TD BGCOLOR="{colour}" CELLPADDING="4">{label}</TD>')
    return f"{TABLE}<TR>{''.join(cells)}</TR></TABLE>"


def marks(plan: Outline, saved: bool) -> Iterator[tuple[str, str]]:
    """What each kind of line and mark that occurs means, lines with their arrowheads."""
    lines = plan.lines
    model = plan.model
    path = plan.model.path
    if any(not line.sent for line in lines):
        yield "↓ thin", "values, forward"
    if any(line.sent for line in lines):
        yield "↑ thick", "gradients, backward; wider is larger"
    if plan.sums:
        yield "Σ", "sum of gradients, and ‖Σg‖ / Σ‖g‖"
    if path is not None and any(labels.gains(model, line) for line in lines):
        yield "×1.6", "change of size, on the way named below"
    if model.against is not None:
        yield "×0.5", "a gradient there, in the other run, over the same one here"
    if saved:
        yield "dotted, ○ at its end", "saved for backward"
    if any(box.dimmed for box in plan.boxes):
        yield "↓ dashed", "takes no part in backward"
    if plan.model.fold.times:
        yield f"×{max(model.fold.times.values())}", "alike blocks drawn once, with least to largest"
    if any(line.link.step or line.link.each for line in lines):
        yield "to the next, from each", "copies of a block"
    if model.strips:
        yield "row of colours", "a gradient in each copy"


def _verdict(plan: Outline, style: NodeStyle) -> str:
    """What was measured, a line for each thing, on red if something disagrees."""
    found = verdicts(plan.model.checks)
    agrees = all(one.ok is not False for one in found)
    colour = style.theme.muted if agrees else style.theme.paper
    said = [part for one in found for part in one.said.split("; ")]
    width = BOLD * max(map(len, said), default=0)
    ground = "" if agrees else f' BGCOLOR="{style.theme.alarm}" WIDTH="{width:.0f}"'
    parts = [style.small(part, colour, bold=not agrees) for part in said]
    lines = '<BR ALIGN="LEFT"/>'.join([*parts, ""] if parts[1:] else parts)
    return f'<TR><TD ALIGN="LEFT"{ground}>{lines}</TD></TR>' if found else ""


def powers(exponents: Sequence[float]) -> list[str]:
    """The bounds of a scale in a few characters, with a second digit where they need one.

    >>> powers([-8.0, -6.5, 0.0, 2.5, 4.0])
    ['1e-8', '3e-7', '1', '300', '1e4']
    >>> powers([-0.1, 0.0, 0.1])
    ['0.79', '1', '1.3']
    """
    short, long = ([_power(e, digits) for e in exponents] for digits in (0, 1))
    return short if len({*short}) == len(short) else long


def _power(exponent: float, digits: int) -> str:
    number, _, ten = f"{10**exponent:.{digits}e}".partition("e")
    if -2.5 < exponent < 3:
        return f"{float(f'{number}e{ten}'):g}"
    return f"{number}e{int(ten)}"
