"""How a gradient's size style, on a line and on a box, and the text that a box holds."""

from __future__ import annotations

from math import isfinite

from . import labels
from .colors import STATES, Scale, Theme, ink_on
from .outline import Box
from .shapes import text

__all__ = ["NodeStyle"]

TABLE = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" '
LID = '<TR><TD HEIGHT="7"></TD></TR>'  # room for the lid of a cylinder or a box


class NodeStyle:
    """Colours and widths by one theme and one scale."""

    def __init__(self, theme: Theme, scale: Scale) -> None:
        self.theme, self.scale = theme, scale

    def colour(self, size: float) -> str:
        if not isfinite(size):
            return self.theme.alarm
        return self.theme.lines[self.scale.bin(size)] if size > 0 else self.theme.line

    def width(self, size: float) -> str:
        return f"{1.0 + 0.4 * self.scale.bin(size):.1f}"

    def flow(self, sent: list[float]) -> dict[str, str]:
        """A thin line forward; a coloured one back if a gradient came, wider if larger."""
        if not sent:
            return {"class": "forward"}
        size = labels.largest(sent)
        style = {"color": self.colour(size), "penwidth": self.width(size)}
        return style | {"class": "gradient", "dir": "back", "arrowtail": "normal"}

    def edge_of(self, box: Box) -> dict[str, str]:
        """Colour and width of a box's outline: its gradient's."""
        size = labels.largest(labels.gradients(box))
        return {"color": self.colour(size), "penwidth": self.width(size)} if size else {}

    def table(self, box: Box, state: str, why: str, times: int) -> str:
        """The text of a box, one row a line, the gradient last."""
        theme, dim = self.theme, labels.dimmed(box)
        ink, muted = (theme.dim, theme.dim) if dim else (theme.ink, theme.muted)
        name, made = labels.heading(box)
        head = text(name, ink, 11, bold=True) + text(f"  {made}" if made else "", muted, 10)
        rows = [head + text(f"  ×{times}" if times > 1 else "", muted, 10, bold=True)]
        if box.kind != "outside":
            rows += [text(fact, muted, 8) for fact in labels.facts(box)]
            rows.append(self.gradient(box, state, why))
        body = "".join(f"<TR><TD>{row}</TD></TR>" for row in rows if row)
        lid = LID if box.kind in ("parameter", "scope") else ""
        return f'{TABLE}CELLPADDING="1">{lid}{body}</TABLE>'

    def gradient(self, box: Box, state: str, why: str) -> str:
        """Glyph and size on the colour of its bin, or why there is no gradient."""
        theme, glyph = self.theme, STATES[state][0]
        if state == "none":  # not said twice: the caption says the first, the heading the other
            told = why in ("backward not run", box.kind)
            return "" if told else text(f"{glyph} {why}", theme.dim, 8)
        if state == "zero":
            return text(f"{glyph} zero", theme.muted, 9, bold=True)
        if state == "non-finite":
            return text(f"{glyph} not finite", theme.alarm, 9, bold=True)
        sizes = labels.gradients(box)
        fill = theme.bins[self.scale.bin(labels.largest(sizes))]
        said = text(f"{glyph} {labels.ranged(sizes)}", ink_on(fill), 9, bold=True)
        cell = f"<TR><TD>{said}</TD></TR>"
        return f'{TABLE}CELLPADDING="3" STYLE="ROUNDED" BGCOLOR="{fill}">{cell}</TABLE>'
