"""The legend of a picture: what shapes, colours, glyphs and lines mean, for those that occur."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import labels
from .colors import ink_on
from .model import STATES
from .node_style import FONT_ROOM, NodeStyle, text
from .outline import Outline
from .verdict import verdicts

__all__ = ["caption", "marks", "powers", "samples"]

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
