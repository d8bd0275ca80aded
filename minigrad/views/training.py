"""Views of a training run that was watched: a table, a heat map of the gradient, and CSV.

Rows are values and parameters in the order of the forward pass, columns the steps that were looked
at; the loss stands above, and what was found odd below.
"""

from __future__ import annotations

import csv as lines
from collections.abc import Iterable, Iterator
from html import escape
from io import StringIO
from itertools import groupby
from math import isfinite, log10
from textwrap import fill, wrap

from ..record.diagnose import diagnose
from ..record.training import Reading, TrainingRecord as Flow
from . import words
from .terminal import Column, bar, fitted, grid, wide
from .theme import BINS, END, LIGHT, Scale, svg_box, svg_page, svg_text

__all__ = ["csv", "svg", "table"]

COLUMNS = (
    Column("row", shrink="start"), Column("op", drop=1), Column("value", right=True, drop=2),
    Column("gradient first", right=True), Column("last", right=True),
    Column("low … high", drop=4), Column("update", right=True),
    Column("share", right=True, drop=3), Column("", shrink="end"),
)  # fmt: skip
FIGURES = ("entropy", "sparsity")  # of a head
HEAD_COLUMNS = (
    Column("head", shrink="start"), Column("entropy first", right=True), Column("last", right=True),
    Column("sparsity first", right=True), Column("last", right=True),
)  # fmt: skip
LEFT, PLOT = 210, 640  # points: of names, of columns
ROW = 14
TOP, CURVE = 28, 70  # above all, and of the loss
MOST_ROWS = 120  # drawn
ROW_NAME = Column("", right=True, shrink="start")
NAME_LETTERS = 34


def _paths(flow: Flow) -> list[str]:
    return [*dict.fromkeys(path for moment in flow.moments for path in moment.readings)]


def _scale(flow: Flow) -> Scale:
    """Of the sizes of gradients; what is zero in theory sets none."""
    told = (path for path in _paths(flow) if path not in flow.in_theory)
    return Scale.around(size for path in told for _, size in flow.series(path, "gradient"))


def table(flow: Flow, width: int | None = None) -> str:
    """The run as text: sizes of values, gradients and updates of each row, and what is odd."""
    width, scale = wide(width), _scale(flow)
    if not flow.moments:
        return _requests_table(flow, width) if flow.requests else "nothing was looked at yet"
    last, rows = flow.moments[-1], []
    for path in _paths(flow):
        sizes, now = [size for _, size in flow.series(path, "gradient")], last.readings.get(path)
        ends = (sizes[0], sizes[-1]) if sizes else (None, None)
        value, update, share = (now.value, now.update, now.share) if now else (None, None, None)
        rows.append([
            words.one_line(path), flow.kinds.get(path, ""), words.sized(value),
            *map(words.sized, ends), bar(ends[1], scale), words.sized(update),
            f"{share:.0%}" if share else "", last.missing.get(path, ""),
        ])  # fmt: skip
    steps, losses = words.plural(len(flow.moments), "step"), flow.losses
    title = f"{steps} looked at, from {flow.moments[0].step} to {last.step}"
    if losses:
        told = [f"{words.digits(loss)} at step {step}" for step, loss in (losses[0], losses[-1])]
        title += f"; loss {', '.join(told)}"
    return _below(title, grid(COLUMNS, rows, width), flow, width)


def _requests_table(flow: Flow, width: int) -> str:
    """The heads of a model that only answered: figures of the first request and of the last."""
    rows = []
    for path in flow.requests[0].each_head:
        row = [words.one_line(path)]
        for figure in FIGURES:
            series = flow.series(path, figure)
            row += [words.digits(series[0][1], 3), words.digits(series[-1][1], 3)]
        rows.append(row)
    ends = f"from {flow.requests[0].step} to {flow.requests[-1].step}"
    title = f"{words.plural(len(flow.requests), 'request')} looked at, {ends}"
    return _below(title, grid(HEAD_COLUMNS, rows, width), flow, width)


def _below(title: str, rows: str, flow: Flow, width: int) -> str:
    """A table under its title, and above what is odd."""
    odd = _wrapped(map(str, diagnose(flow)), width)
    return "\n".join([fill(title, width), rows, "", *odd])


def _wrapped(findings: Iterable[str], width: int) -> list[str]:
    every = [words.one_line(line) for text in findings for line in text.splitlines()]
    lines = [line for text in every for line in wrap(text, width, subsequent_indent="    ")]
    return lines or ["nothing odd was found"]


def csv(flow: Flow) -> str:
    """A line for each row and step, for spreadsheets and data frames; a head of attention is one.

    Kind is "request" where the model only answered, under `no_grad`.
    """
    out = StringIO()
    writer = lines.writer(out, lineterminator="\n")
    writer.writerow(["step", "row", "kind", "loss", *Reading._fields, *FIGURES])
    none = [""] * len(Reading._fields)
    for moment in flow.moments:
        for path, reading in moment.readings.items():
            kind = flow.kinds.get(path)
            writer.writerow([moment.step, path, kind, moment.loss, *reading, "", ""])
    for kind, moments in (("head", flow.moments), ("request", flow.requests)):
        for moment in moments:
            for path, head in moment.each_head.items():
                figures = head.entropy, head.sparsity
                writer.writerow([moment.step, path, kind, moment.loss, *none, *figures])
    return out.getvalue()


def svg(flow: Flow, *, theme: str = "auto") -> str:
    """The gradient's rms, rows × steps, on a log scale of colours, with the loss above.

    Raises: ArgumentError for an unknown theme.
    """
    return _HeatMap(flow).drawn(theme)


class _HeatMap:
    def __init__(self, flow: Flow) -> None:
        self.flow, self.scale = flow, _scale(flow)
        self.findings = diagnose(flow)
        self.rows = _paths(flow)
        if len(self.rows) > MOST_ROWS:
            odd = {finding.path for finding in self.findings}
            held = (p for p in self.rows if p in odd or flow.kinds.get(p) == "parameter")
            self.rows = [*held][:MOST_ROWS]
        self.losses = [(step, loss) for step, loss in flow.losses if isfinite(loss)]
        self.top = TOP + CURVE + 24 if self.losses else TOP
        self.bottom = self.top + ROW * len(self.rows)
        self.column = PLOT / max(1, len(flow.moments))

    def drawn(self, theme: str) -> str:
        parts = [*self._curve(), *self._cells(), *self._marks(), *self._legend(self.bottom + 26)]
        notes = _wrapped((f"{n}  {finding}" for n, finding in enumerate(self.findings, 1)), 150)
        for n, line in enumerate(notes):
            paint = LIGHT.alarm if line[0].isdigit() else LIGHT.muted
            parts.append(svg_text(12, self.bottom + 80 + 15 * n, line, paint))
        label = f"gradient of {len(self.rows)} rows over {len(self.flow.moments)} steps"
        high = self.bottom + 74 + 15 * len(notes)
        return svg_page(label, LEFT + PLOT + 90, high, parts, theme)

    def _x(self, column: float) -> float:
        return LEFT + min(column, len(self.flow.moments)) * self.column

    def _curve(self) -> Iterator[str]:
        """The loss, in its own range; on a log scale where it spans more than a factor of 20."""
        if not self.losses:
            return
        sizes = [loss for _, loss in self.losses]
        power = min(sizes) > 0 and max(sizes) > 20 * min(sizes)
        heights = [log10(x) if power else x for x in sizes]
        low, span = min(heights), (max(heights) - min(heights)) or 1.0
        ys = [TOP + CURVE * (1 - (height - low) / span) for height in heights]
        xs = [self._x(step / self.flow.every + 0.5) for step, _ in self.losses]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        pen = f'fill="none" stroke="{LIGHT.ink}" stroke-width="1.6"'
        yield f'<polyline {pen} points="{line}"/>'
        name = "loss (log)" if power else "loss"
        yield svg_text(LEFT - 8, TOP + 8, f"{name}  {words.digits(max(sizes))}", more=END)
        yield svg_text(LEFT - 8, TOP + CURVE, words.digits(min(sizes)), more=END)
        yield svg_text(LEFT + PLOT + 8, ys[-1] + 3, words.digits(sizes[-1]), LIGHT.ink)

    def _cells(self) -> Iterator[str]:
        """A row of colours for each path, its name before it and its last size behind."""
        moments = self.flow.moments
        for k, path in enumerate(self.rows):
            y = self.top + ROW * k
            column = 0
            sizes = [words.sized(size) for _, size in self.flow.series(path, "gradient")]
            held = self.flow.kinds.get(path) == "parameter"
            name = fitted(words.one_line(path), NAME_LETTERS, ROW_NAME).strip()
            told = f"gradient rms {sizes[0]} to {sizes[-1]}" if sizes else "no gradient"
            yield f"<g><title>{escape(words.one_line(path))}: {told}</title>"
            yield svg_text(LEFT - 8, y + 10, name, LIGHT.ink if held else LIGHT.muted, END)
            readings = (moment.readings.get(path) for moment in moments)
            for paint, run in groupby(self._fill(r and r.gradient) for r in readings):
                start, column = column, column + len([*run])
                if paint:
                    width = (column - start) * self.column
                    yield svg_box(paint, self._x(start), y, width, ROW - 1)
            yield svg_text(LEFT + PLOT + 8, y + 10, sizes[-1] if sizes else "–") + "</g>"

    def _marks(self) -> Iterator[str]:
        """Where findings begin, numbered as the list below."""
        moments = self.flow.moments
        for n, finding in enumerate(self.findings, 1):
            at = sum(moment.step < finding.first for moment in moments)
            row = self.rows.index(finding.path) + 0.5 if finding.path in self.rows else -0.5
            x = self._x(min(at, len(moments) - 1)) + min(7, self.column / 2)
            y = self.top + ROW * row
            yield f"<g><title>{escape(words.one_line(str(finding)))}</title>"
            yield f'<circle fill="{LIGHT.alarm}" stroke="{LIGHT.paper}" '
            yield f'cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
            yield svg_text(x - 3, y + 3.2, str(n), LIGHT.paper) + "</g>"

    def _fill(self, size: float | None) -> str:
        if not size:
            return "" if size is None else LIGHT.edge
        return BINS[self.scale.bin(size)] if isfinite(size) else LIGHT.alarm

    def _legend(self, y: float) -> Iterator[str]:
        """The steps along the columns, and what colours mean."""
        moments = self.flow.moments
        for i in range(0, len(moments), max(1, -(-len(moments) // 10))):
            yield svg_text(self._x(i), self.bottom + 12, str(moments[i].step))
        yield svg_text(LEFT - 8, self.bottom + 12, "step", more=END)
        yield svg_text(LEFT + PLOT + 8, self.top - 6, "last rms")
        yield svg_text(LEFT - 8, y + 12, "gradient rms", LIGHT.ink, END)
        for i, paint in enumerate(BINS):
            yield svg_box(paint, LEFT + 40 * i, y, 39, 14)
        for left, size in zip((0, 160, 320), self.scale.ends, strict=True):
            yield svg_text(LEFT + left, y + 27, size)
        for left, paint, name in ((350, LIGHT.edge, "0"), (400, LIGHT.alarm, "NaN or ∞")):
            yield svg_box(paint, LEFT + left, y, 14, 14) + svg_text(LEFT + left + 19, y + 12, name)
        blank = "blank: no gradient; names in grey: values between layers"
        yield svg_text(LEFT + 350, y + 27, blank)
