"""Views of a training run that was watched: a table, a heat map of the gradient, and CSV.

Rows are values and parameters in the order of the forward pass, columns the steps that were looked
at; the loss stands above, and what was found odd below.
"""

from __future__ import annotations

import csv as lines
from collections.abc import Iterator
from html import escape
from io import StringIO
from itertools import groupby
from math import isfinite, log10
from textwrap import fill, wrap
from typing import TYPE_CHECKING

from ..record.diagnose import diagnose
from . import words
from .terminal import Column, bar, grid, wide
from .theme import BINS, END, THEMES, Scale, svg_box, svg_page, svg_text

if TYPE_CHECKING:
    from ..record.flow import Finding
from ..record.flow import FlowRecord as Flow

__all__ = ["csv", "svg", "table"]

COLUMNS = (
    Column("row", shrink="start"), Column("op", drop=3), Column("value", right=True, drop=2),
    Column("gradient first", right=True), Column("last", right=True),
    Column("smallest to largest", drop=1), Column("update", right=True),
    Column("share", right=True, drop=4), Column("", shrink="end"),
)  # fmt: skip
LEFT, PLOT = 210, 640  # points: of names, of columns
ROW = 14
TOP, CURVE = 28, 70  # above all, and of the loss
MOST_ROWS, NAME_LETTERS = 120, 34  # drawn, and letters of a name


def _sizes(flow: Flow, path: str) -> list[tuple[int, float]]:
    """The gradient of a row, by step."""
    pairs = ((m.step, m.readings[path].gradient) for m in flow.moments if path in m.readings)
    return [(step, size) for step, size in pairs if size is not None]


def _paths(flow: Flow) -> list[str]:
    return [*dict.fromkeys(path for moment in flow.moments for path in moment.readings)]


def _scale(flow: Flow) -> Scale:
    return Scale.around(size for path in _paths(flow) for _, size in _sizes(flow, path))


def table(flow: Flow, width: int | None = None) -> str:
    """The run as text: sizes of values, gradients and updates of each row, and what is odd."""
    width, scale = wide(width), _scale(flow)
    if not flow.moments:
        return "nothing was looked at yet"
    last, rows = flow.moments[-1], []
    for path in _paths(flow):
        sizes, now = _sizes(flow, path), last.readings.get(path)
        share = None if now is None else now.share
        rows.append([
            words.one_line(path), flow.kinds.get(path, ""), words.sized(now.value if now else None),
            words.sized(sizes[0][1]) if sizes else "", words.sized(sizes[-1][1]) if sizes else "",
            bar(sizes[-1][1] if sizes else None, scale), words.sized(now.update if now else None),
            f"{share:.0%}" if share else "", last.missing.get(path, ""),
        ])  # fmt: skip
    losses = flow.losses
    steps = words.plural(len(flow.moments), "step")
    title = f"{steps} looked at, from {flow.moments[0].step} to {last.step}"
    if losses:
        told = [f"{words.digits(loss)} at step {step}" for step, loss in (losses[0], losses[-1])]
        title += f"; loss {', '.join(told)}"
    found = [fill(_said(one), width, subsequent_indent="    ") for one in diagnose(flow)]
    return "\n".join(
        [fill(title, width), grid(COLUMNS, rows, width), "", *(found or ["nothing odd was found"])]
    )


def _said(one: Finding) -> str:
    where = f" in {words.one_line(one.path, 60)}" if one.path else ""
    said = f"{words.one_line(one.text)}; {words.one_line(one.remedy)}"
    return f"{one.kind}{where}, step {one.first}: {said}"


def csv(flow: Flow) -> str:
    """A line for each row and step, for spreadsheets and data frames."""
    out = StringIO()
    writer = lines.writer(out, lineterminator="\n")
    writer.writerow(
        ["step", "row", "kind", "loss", "value", "gradient", "update", "finite", "share"]
    )
    for moment in flow.moments:
        for path, one in moment.readings.items():
            cells = [moment.step, path, flow.kinds.get(path, ""), moment.loss, *one[:2]]
            cells += [one.update, one.finite, one.share]
            writer.writerow(["" if x is None else x for x in cells])
    return out.getvalue()


def svg(flow: Flow, *, theme: str = "auto") -> str:
    """The gradient's rms, rows × steps, on a log scale of colours, with the loss above.

    Raises: ArgumentError for an unknown theme.
    """
    words.one_of("draw", THEMES, theme=theme)
    return _HeatMap(flow).drawn(theme)


class _HeatMap:
    def __init__(self, flow: Flow) -> None:
        self.flow, self.scale = flow, _scale(flow)
        self.found = diagnose(flow)
        every = _paths(flow)
        named = {one.path for one in self.found}
        few = [p for p in every if p in named or flow.kinds.get(p) == "parameter"]
        self.rows = (every if len(every) <= MOST_ROWS else few)[:MOST_ROWS]
        self.losses = [(step, loss) for step, loss in flow.losses if isfinite(loss)]
        self.top = TOP + (CURVE + 16) * bool(self.losses)
        self.bottom = self.top + ROW * len(self.rows)
        self.column = PLOT / max(1, len(flow.moments))

    def drawn(self, theme: str) -> str:
        notes = [
            line
            for n, one in enumerate(self.found, 1)
            for line in wrap(f"{n}  {_said(one)}", 150, subsequent_indent="    ")
        ]
        parts = [*self._curve(), *self._cells(), *self._marks(), *self._legend(self.bottom + 26)]
        for n, line in enumerate(notes or ["nothing odd was found"]):
            kind = "alarm" if notes and line[:1] != " " else "muted"
            parts.append(svg_text(12, self.bottom + 80 + 15 * n, line, kind))
        high = self.bottom + 74 + 15 * max(1, len(notes))
        said = f"gradient of {len(self.rows)} rows over {len(self.flow.moments)} steps"
        return svg_page(said, LEFT + PLOT + 90, high, parts, theme)

    def _curve(self) -> Iterator[str]:
        """The loss, in its own range; on a log scale where it spans more than a factor of 20."""
        if not self.losses:
            return
        sizes = [loss for _, loss in self.losses]
        power = min(sizes) > 0 and max(sizes) > 20 * min(sizes)
        ys = [log10(x) if power else x for x in sizes]
        low, span = min(ys), (max(ys) - min(ys)) or 1.0
        ys = [TOP + CURVE * (1 - (y - low) / span) for y in ys]
        places = (step / self.flow.every + 0.5 for step, _ in self.losses)
        xs = [LEFT + min(x, len(self.flow.moments)) * self.column for x in places]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        yield f'<polyline class="curve" points="{line}"/>'
        most = f"loss{' (log)' * power}  {words.digits(max(sizes))}"
        yield svg_text(LEFT - 8, TOP + 8, most, more=END)
        yield svg_text(LEFT - 8, TOP + CURVE, words.digits(min(sizes)), more=END)
        yield svg_text(LEFT + PLOT + 8, ys[-1] + 3, words.digits(sizes[-1]), "ink")

    def _cells(self) -> Iterator[str]:
        """A row of colours for each path, its name before it and its last size behind."""
        moments = self.flow.moments
        for k, path in enumerate(self.rows):
            y, sizes = self.top + ROW * k, _sizes(self.flow, path)
            why = next((m.missing[path] for m in reversed(moments) if path in m.missing), "")
            told = [f"{words.sized(size)} at step {step}" for step, size in sizes[:1] + sizes[-1:]]
            title = f"{path}: {', '.join(told) or f'no gradient, {why}'}"
            yield f"<g><title>{escape(words.one_line(title))}</title>"
            name = words.one_line(path)
            name = name if len(name) <= NAME_LETTERS else "…" + name[1 - NAME_LETTERS :]
            kind = "ink" if self.flow.kinds.get(path) == "parameter" else "muted"
            yield svg_text(LEFT - 8, y + 10, name, kind, END)
            readings = (moment.readings.get(path) for moment in moments)
            paints, x = (
                (self._paint(one.gradient if one else None) for one in readings),
                float(LEFT),
            )
            for paint, run in groupby(paints):
                width = len([*run]) * self.column
                if paint:
                    yield svg_box(paint, x, y, width, ROW - 1)
                x += width
            yield svg_text(LEFT + PLOT + 8, y + 10, words.sized(sizes[-1][1]) if sizes else "–")
            yield "</g>"

    def _marks(self) -> Iterator[str]:
        """Where findings begin, numbered as the list below."""
        moments = self.flow.moments
        for n, one in enumerate(self.found, 1):
            at = next((i for i, m in enumerate(moments) if m.step >= one.first), len(moments) - 1)
            row = self.rows.index(one.path) + 0.5 if one.path in self.rows else -0.5
            x, y = LEFT + at * self.column + min(7, self.column / 2), self.top + ROW * row
            yield f"<g><title>{escape(_said(one))}</title>"
            yield f'<circle class="alarm" cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
            yield svg_text(x - 3, y + 3.2, str(n), "on") + "</g>"

    def _paint(self, size: float | None) -> str:
        if size is None or not size:
            return "" if size is None else "zero"
        return f"b{self.scale.bin(size)}" if isfinite(size) else "alarm"

    def _legend(self, y: float) -> Iterator[str]:
        """The steps along the columns, and what colours mean."""
        moments = self.flow.moments
        for i in range(0, len(moments), max(1, -(-len(moments) // 10))):
            yield svg_text(LEFT + i * self.column, self.bottom + 12, str(moments[i].step))
        yield svg_text(LEFT - 8, self.bottom + 12, "step", more=END)
        yield svg_text(LEFT + PLOT + 8, self.top - 6, "last rms")
        yield svg_text(LEFT - 8, y + 12, "gradient rms", "ink", END)
        for i in range(BINS):
            yield svg_box(f"b{i}", LEFT + 40 * i, y, 39, 14)
        for place, said in zip((0.0, BINS / 2, BINS), self.scale.ends, strict=True):
            yield svg_text(LEFT + 40 * place, y + 27, said)
        for left, kind, said in ((350, "zero", "0"), (400, "alarm", "NaN or ∞")):
            yield svg_box(kind, LEFT + left, y, 14, 14) + svg_text(LEFT + left + 19, y + 12, said)
        said = "blank: no gradient; names in grey: values between layers"
        yield svg_text(LEFT + 350, y + 27, said)
