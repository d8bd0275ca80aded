"""Views of a training run that was watched: a table, a heat map of the gradient, and CSV.

Rows are values and parameters in the order of the forward pass, columns the steps looked at.
The loss stands above, and what was found odd below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from csv import DictWriter
from html import escape
from io import StringIO
from itertools import groupby
from math import isfinite, log10
from textwrap import fill, wrap

from ..record.diagnose import diagnose
from ..record.training import Reading, TrainingRecord as Flow
from . import words
from .terminal import Column, bar, fitted, grid, number, wide
from .theme import BINS, END, Light, Scale, svg_box, svg_page, svg_text

__all__ = ["csv", "svg", "table"]

LAST = number("last")
COLUMNS = (
    Column("row", shrink="start"), Column("op", drop=1), number("value", 2),
    number("gradient first"), LAST, Column("low … high", drop=4),
    number("update"), number("share", 3), Column("", shrink="end"),
)  # fmt: skip
HEAD_COLUMNS = (
    Column("head", shrink="start"), number("entropy first"), LAST,
    number("sparsity first"), LAST,
)  # fmt: skip
FIGURES = ("entropy", "sparsity")  # of a head
LEFT = 210  # points, of names
PLOT = 640  # of columns
ROW = 14
TOP = 28  # above all
CURVE = 70  # of the loss
MOST_ROWS = 120  # drawn
ROW_NAME = Column("", right=True, shrink="start")
NAME_LETTERS = 34


def _paths(flow: Flow) -> list[str]:
    return [*dict.fromkeys(path for moment in flow.moments for path in moment.readings)]


def _scale(flow: Flow) -> Scale:
    """Of the sizes of gradients; what is zero in theory sets none."""
    paths = [path for path in _paths(flow) if path not in flow.in_theory]
    return Scale.around(size for path in paths for _, size in flow.series(path, "gradient"))


def table(flow: Flow, width: int | None = None) -> str:
    """The run as text: sizes of values, gradients and updates of each row, and what is odd."""
    width = wide(width)
    moments = flow.moments or flow.requests
    if not moments:
        return "nothing was looked at yet"
    if flow.moments:
        looks = words.plural(len(moments), "step")
        body = grid(COLUMNS, _rows(flow), width)
    else:
        looks = words.plural(len(moments), "request")
        body = grid(HEAD_COLUMNS, _head_rows(flow), width)
    title = f"{looks} looked at, from {moments[0].step} to {moments[-1].step}"
    if losses := flow.losses:
        ends = [f"{words.digits(loss)} at step {step}" for step, loss in (losses[0], losses[-1])]
        title += f"; loss {', '.join(ends)}"
    notes = _wrapped(map(str, diagnose(flow)), width)
    return "\n".join([fill(title, width), body, "", *notes])


def _rows(flow: Flow) -> list[list[str]]:
    last = flow.moments[-1]
    scale = _scale(flow)
    rows = []
    for path in _paths(flow):
        value, _, share, update = last.readings.get(path, (None,) * 4)
        sizes: list[float | None] = [size for _, size in flow.series(path, "gradient")] or [None]
        rows.append([
            words.one_line(path), flow.kinds.get(path, ""), words.sized(value),
            words.sized(sizes[0]), words.sized(sizes[-1]), bar(sizes[-1], scale),
            words.sized(update), f"{share:.0%}" if share else "", last.missing.get(path, ""),
        ])  # fmt: skip
    return rows


def _head_rows(flow: Flow) -> list[list[str]]:
    """The heads of a model that only answered: figures of the first request and of the last."""
    rows = []
    for path in flow.requests[0].heads:
        row = [words.one_line(path)]
        for figure in FIGURES:
            sizes = [size for _, size in flow.series(path, figure)]
            row += [words.digits(sizes[0], 3), words.digits(sizes[-1], 3)]
        rows.append(row)
    return rows


def _wrapped(findings: Iterable[str], width: int) -> list[str]:
    lines = [words.one_line(line) for text in findings for line in text.splitlines()]
    parts = [part for line in lines for part in wrap(line, width, subsequent_indent="    ")]
    return parts or ["nothing odd was found"]


def csv(flow: Flow) -> str:
    """A line for each row and step, for spreadsheets and data frames; a head of attention is one.

    Kind is "request" where the model only answered, under `no_grad`.
    """
    out = StringIO()
    names = ["step", "row", "kind", "loss", *Reading._fields, *FIGURES]
    writer = DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for kind, moments in (("head", flow.moments), ("request", flow.requests)):
        for moment in moments:
            row = {"step": moment.step, "loss": moment.loss}
            for path, reading in moment.readings.items():
                own = {"row": path, "kind": flow.kinds.get(path)}
                writer.writerow(row | own | reading._asdict())
            for path, head in moment.heads.items():
                writer.writerow(row | {"row": path, "kind": kind} | head._asdict())
    return out.getvalue()


def svg(flow: Flow, *, theme: str = "auto") -> str:
    """The gradient's rms, rows × steps, on a log scale of colours, with the loss above.

    Raises: ArgumentError for an unknown theme.
    """
    return _HeatMap(flow).drawn(theme)


class _HeatMap:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.scale = _scale(flow)
        self.findings = diagnose(flow)
        self.rows = _paths(flow)
        if len(self.rows) > MOST_ROWS:
            named = {*flow.parameters, *(finding.path for finding in self.findings)}
            self.rows = [path for path in self.rows if path in named][:MOST_ROWS]
        self.losses = [(step, loss) for step, loss in flow.losses if isfinite(loss)]
        self.top = TOP + CURVE + 24 if self.losses else TOP
        self.bottom = self.top + ROW * len(self.rows)
        self.column = PLOT / max(1, len(flow.moments))

    def drawn(self, theme: str) -> str:
        parts = [*self._curve(), *self._cells(), *self._legend(self.bottom + 26)]
        high = self.bottom + 65
        for line in _wrapped(map(str, self.findings), 150):
            high += 15
            paint = Light.muted if line[0] == " " or not self.findings else Light.alarm
            parts.append(svg_text(12, high, line, paint))
        label = f"gradient of {len(self.rows)} rows over {len(self.flow.moments)} steps"
        return svg_page(label, LEFT + PLOT + 90, high + 9, parts, theme)

    def _x(self, column: float) -> float:
        return LEFT + min(column, len(self.flow.moments)) * self.column

    def _curve(self) -> Iterator[str]:
        """The loss, in its own range; on a log scale where it spans more than a factor of 20."""
        if not self.losses:
            return
        sizes = [loss for _, loss in self.losses]
        heights = sizes
        name = "loss"
        if min(sizes) > 0 and max(sizes) > 20 * min(sizes):
            heights = [log10(x) for x in sizes]
            name = "loss (log)"
        low = min(heights)
        span = max(heights) - low or 1.0
        ys = [TOP + CURVE * (1 - (height - low) / span) for height in heights]
        xs = [self._x(step / self.flow.every) for step, _ in self.losses]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        pen = f'fill="none" stroke="{Light.ink}" stroke-width="1.6"'
        yield f'<polyline {pen} points="{line}"/>'
        yield svg_text(LEFT - 8, TOP + 8, f"{name}  {words.digits(max(sizes))}", more=END)
        yield svg_text(LEFT - 8, TOP + CURVE, words.digits(min(sizes)), more=END)
        yield svg_text(LEFT + PLOT + 8, ys[-1] + 3, words.digits(sizes[-1]), Light.ink)

    def _cells(self) -> Iterator[str]:
        """A row of colours for each path, its name before it and its last size behind."""
        moments = self.flow.moments
        for k, path in enumerate(self.rows):
            y = self.top + ROW * k
            column = 0
            sizes = [words.sized(size) for _, size in self.flow.series(path, "gradient")]
            ink = Light.ink if self.flow.kinds.get(path) == "parameter" else Light.muted
            name = fitted(words.one_line(path), NAME_LETTERS, ROW_NAME).strip()
            change = f"gradient rms {sizes[0]} to {sizes[-1]}" if sizes else "no gradient"
            yield f"<g><title>{escape(words.one_line(path))}: {change}</title>"
            yield svg_text(LEFT - 8, y + 10, name, ink, END)
            for paint, cells in groupby(
                self._fill(moment.readings.get(path)) for moment in moments
            ):
                count = len([*cells])
                if paint:
                    yield svg_box(paint, self._x(column), y, count * self.column, ROW - 1)
                column += count
            yield svg_text(LEFT + PLOT + 8, y + 10, sizes[-1] if sizes else "–") + "</g>"

    def _fill(self, reading: Reading | None) -> str:
        if reading is None or reading.gradient is None:
            return ""
        size = reading.gradient
        if size == 0:
            return Light.edge
        return BINS[self.scale.bin(size)] if isfinite(size) else Light.alarm

    def _legend(self, y: float) -> Iterator[str]:
        """The steps along the columns, and what colours mean."""
        moments = self.flow.moments
        for i in range(0, len(moments), max(1, -(-len(moments) // 10))):
            yield svg_text(self._x(i), self.bottom + 12, str(moments[i].step))
        yield svg_text(LEFT - 8, self.bottom + 12, "step", more=END)
        yield svg_text(LEFT + PLOT + 8, self.top - 6, "last rms")
        yield svg_text(LEFT - 8, y + 12, "gradient rms", Light.ink, END)
        for i, paint in enumerate(BINS):
            yield svg_box(paint, LEFT + 40 * i, y, 39, 14)
        for i, size in enumerate(self.scale.ends):
            yield svg_text(LEFT + 160 * i, y + 27, size)
        for x, paint, text in ((350, Light.edge, "0"), (400, Light.alarm, "NaN or ∞")):
            yield svg_box(paint, LEFT + x, y, 14, 14) + svg_text(LEFT + x + 19, y + 12, text)
        blank = "blank: no gradient; names in grey: values between layers"
        yield svg_text(LEFT + 350, y + 27, blank)
