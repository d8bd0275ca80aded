"""How a box and a line are drawn: shapes by kind, colours and widths by gradient, and text."""

from __future__ import annotations

from html import escape
from math import isfinite

from . import labels
from .colors import Scale, Theme, ink_on
from .model import STATES, Spread, largest, ranged
from .outline import Box, Line, Outline
from .plain import one_line

__all__ = ["SHAPES", "NodeStyle", "text"]

# kind: (shape, style). Each kind has a shape of its own: colour never tells it alone.
SHAPES = {
    "parameter": ("cylinder", "filled"),
    "input": ("invhouse", "filled"),
    "constant": ("note", "filled"),
    "detached": ("note", "filled,dashed"),
    "op": ("box", "rounded,filled"),
    "loss": ("octagon", "filled"),
    "scope": ("box3d", "filled"),
    "outside": ("box", "filled,dashed"),
    "sum": ("oval", "filled"),
}
TABLE = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" '
LID = '<TR><TD HEIGHT="7"></TD></TR>'  # room for the lid of a cylinder or a box


def text(said: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not said:
        return ""
    body = escape(said).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'


class NodeStyle:
    """Attributes and labels by one theme and one scale."""

    def __init__(self, theme: Theme, scale: Scale) -> None:
        self.theme, self.scale = theme, scale

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
        """A thin line forward; a coloured one back if a gradient came, wider if larger."""
        if not sent:
            return {"class": "forward"}
        back = {"class": "gradient", "dir": "back", "arrowtail": "normal"}
        return self.strength(largest(sent)) | back

    def label(self, line: Line, summed: bool) -> dict[str, str]:
        """The text beside a line, if it has any."""
        colour = self.theme.muted if isfinite(largest(line.sent)) else self.theme.alarm
        rows = [text(f" {said} ", colour, 8) for said in labels.line_label(line, summed)]
        return {"label": f"<{'<BR/>'.join(rows)}>"} if rows else {}

    def table(self, plan: Outline, box: Box) -> str:
        """The text of a box, one row a line, the gradient last."""
        theme, times = self.theme, plan.times(box.stands_for)
        ink, muted = (theme.dim, theme.dim) if box.dimmed else (theme.ink, theme.muted)
        name, made = labels.heading(box)
        head = text(name, ink, 11, bold=True) + text(f"  {made}" if made else "", muted, 10)
        rows = [head + text(f"  ×{times}" if times > 1 else "", muted, 10, bold=True)]
        if box.kind != "outside":
            spread = plan.spreads[box]
            rows += [text(fact, muted, 8) for fact in labels.facts(box)]
            rows.append(self.gradient(spread, labels.why(plan.model, box), box.kind))
            rows.append(self.note(spread))
        body = "".join(f"<TR><TD>{row}</TD></TR>" for row in rows if row)
        lid = LID if box.kind in ("parameter", "scope") else ""
        return f'{TABLE}CELLPADDING="1">{lid}{body}</TABLE>'

    def note(self, spread: Spread) -> str:
        """Which copy differs from the others, and how."""
        bad = spread.state == "non-finite"
        colour = self.theme.alarm if bad else self.theme.muted
        return text(one_line(spread.note, 2 * labels.WIDEST), colour, 8, bold=bad)

    def gradient(self, spread: Spread, why: str, kind: str) -> str:
        """Glyph and size on the colour of its bin, or why there is no gradient."""
        theme, glyph = self.theme, STATES[spread.state][0]
        finite = [size for size in spread.sizes if isfinite(size)]
        if spread.state == "none":  # not said twice: the caption or the heading has it
            return "" if why in ("backward not run", kind) else text(f"{glyph} {why}", theme.dim, 8)
        if spread.sizes and not finite:
            return text(f"{glyph} not finite", theme.alarm, 9, bold=True)
        if not any(finite):
            return text(f"{glyph} zero", theme.muted, 9, bold=True)
        glyph = "" if spread.note and spread.state != "ok" else f"{glyph} "
        fill = theme.bins[self.scale.bin(largest(finite))]
        said = text(f"{glyph}{ranged(finite)}", ink_on(fill), 9, bold=True)
        cell = f"<TR><TD>{said}</TD></TR>"
        return f'{TABLE}CELLPADDING="3" STYLE="ROUNDED" BGCOLOR="{fill}">{cell}</TABLE>'
