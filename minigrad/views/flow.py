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
from .theme import BINS, DARK, THEMES, Scale, Theme

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
LEFT, PLOT, ROW, TOP, CURVE = (
    210,
    640,
    14,
    28,
    70,
)  # points: of names, of columns, of a row, above, of the loss
MOST_ROWS, NAME = 120, 34  # drawn, and letters of a name


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
            cells = [
                moment.step,
                path,
                flow.kinds.get(path, ""),
                moment.loss,
                one.value,
                one.gradient,
            ]
            writer.writerow(
                ["" if x is None else x for x in [*cells, one.update, one.finite, one.share]]
            )
    return out.getvalue()


def svg(flow: Flow, *, theme: str = "auto") -> str:
    """The gradient's rms, rows × steps, on a log scale of colours, with the loss above.

    Raises: ArgumentError for an unknown theme.
    """
    words.one_of("draw", THEMES, theme=theme)
    return "\n".join(_HeatMap(flow).lines(theme))


class _HeatMap:
    def __init__(self, flow: Flow) -> None:
        self.flow, self.scale, self.found = flow, _scale(flow), diagnose(flow)
        every = _paths(flow)
        named = {one.path for one in self.found}
        few = [p for p in every if p in named or flow.kinds.get(p) == "parameter"]
        self.rows = (every if len(every) <= MOST_ROWS else few)[:MOST_ROWS]
        self.losses = [(step, loss) for step, loss in flow.losses if isfinite(loss)]
        self.top = TOP + (CURVE + 16) * bool(self.losses)
        self.bottom = self.top + ROW * len(self.rows)
        self.column = PLOT / max(1, len(flow.moments))

    def lines(self, theme: str) -> Iterator[str]:
        notes = [
            line
            for n, one in enumerate(self.found, 1)
            for line in wrap(f"{n}  {_said(one)}", 150, subsequent_indent="    ")
        ]
        high, wide_ = self.bottom + 74 + 15 * max(1, len(notes)), LEFT + PLOT + 90
        said = f"gradient of {len(self.rows)} rows over {len(self.flow.moments)} steps"
        size = f'width="{wide_}" height="{high}" viewBox="0 0 {wide_} {high}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" {size}>'
        dark = f"@media (prefers-color-scheme: dark){{{_style(DARK)}}}" if theme == "auto" else ""
        yield f"<style>{_style(THEMES[theme])}{dark}</style>"
        yield '<rect class="paper" width="100%" height="100%"/>'
        yield from self._curve()
        yield from self._cells()
        yield from self._steps()
        yield from self._legend(self.bottom + 26)
        for n, line in enumerate(notes or ["nothing odd was found"]):
            yield _text(
                12,
                self.bottom + 80 + 15 * n,
                line,
                "alarm" if notes and line[:1] != " " else "muted",
            )
        yield "</svg>"

    def _curve(self) -> Iterator[str]:
        """The loss, in its own range; on a log scale where it spans more than a factor of 20."""
        if not self.losses:
            return
        sizes = [loss for _, loss in self.losses]
        power = min(sizes) > 0 and max(sizes) > 20 * min(sizes)
        ys = [log10(x) if power else x for x in sizes]
        low, span = min(ys), (max(ys) - min(ys)) or 1.0
        xs = [
            LEFT + min(step / self.flow.every + 0.5, len(self.flow.moments)) * self.column
            for step, _ in self.losses
        ]
        points = [(x, TOP + CURVE * (1 - (y - low) / span)) for x, y in zip(xs, ys, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline class="curve" points="{line}"/>'
        yield _text(
            LEFT - 8,
            TOP + 8,
            f"loss{' (log)' * power}  {words.digits(max(sizes))}",
            "muted",
            end=True,
        )
        yield _text(LEFT - 8, TOP + CURVE, words.digits(min(sizes)), "muted", end=True)
        yield _text(LEFT + PLOT + 8, points[-1][1] + 3, words.digits(sizes[-1]), "ink")

    def _cells(self) -> Iterator[str]:
        moments = self.flow.moments
        for k, path in enumerate(self.rows):
            y, sizes = self.top + ROW * k, _sizes(self.flow, path)
            kind = "ink" if self.flow.kinds.get(path) == "parameter" else "muted"
            why = next((m.missing[path] for m in reversed(moments) if path in m.missing), "")
            ends = [
                f"{words.sized(size)} at step {step}" for step, size in (sizes[:1] + sizes[-1:])
            ]
            title = f"{path}: {', '.join(ends) or f'no gradient, {why}'}"
            yield f"<g><title>{escape(words.one_line(title))}</title>"
            name = words.one_line(path)
            yield _text(
                LEFT - 8,
                y + 10,
                name if len(name) <= NAME else "…" + name[1 - NAME :],
                kind,
                end=True,
            )
            start = 0
            for paint, run in groupby(
                self._paint(m.readings[path].gradient if path in m.readings else None)
                for m in moments
            ):
                count = len([*run])
                if paint:
                    yield _rectangle(
                        paint, LEFT + start * self.column, y, count * self.column, ROW - 1
                    )
                start += count
            yield (
                _text(LEFT + PLOT + 8, y + 10, words.sized(sizes[-1][1]) if sizes else "–", "muted")
                + "</g>"
            )
        for n, one in enumerate(self.found, 1):
            at = next((i for i, m in enumerate(moments) if m.step >= one.first), len(moments) - 1)
            row = self.rows.index(one.path) + 0.5 if one.path in self.rows else -0.5
            middle = self.top + ROW * row
            x = LEFT + at * self.column + min(7, self.column / 2)
            yield f"<g><title>{escape(_said(one))}</title>"
            yield f'<circle class="alarm" cx="{x:.1f}" cy="{middle:.1f}" r="6.5"/>'
            yield f'<text class="on" x="{x - 3:.1f}" y="{middle + 3.2:.1f}">{n}</text></g>'

    def _paint(self, size: float | None) -> str:
        if size is None:
            return ""
        return (
            f"b{self.scale.bin(size)}" if size and isfinite(size) else "alarm" if size else "zero"
        )

    def _steps(self) -> Iterator[str]:
        moments = self.flow.moments
        for i in range(0, len(moments), max(1, -(-len(moments) // 10))):
            yield _text(LEFT + i * self.column, self.bottom + 12, str(moments[i].step), "muted")
        yield _text(LEFT - 8, self.bottom + 12, "step", "muted", end=True)
        yield _text(LEFT + PLOT + 8, self.top - 6, "last rms", "muted")

    def _legend(self, y: float) -> Iterator[str]:
        yield _text(LEFT - 8, y + 12, "gradient rms", "ink", end=True)
        for i in range(BINS):
            yield _rectangle(f"b{i}", LEFT + 40 * i, y, 39, 14)
        for place, said in zip((0.0, BINS / 2, BINS), self.scale.ends, strict=True):
            yield _text(LEFT + 40 * place, y + 27, said, "muted")
        for left, kind, said in ((350, "zero", "0"), (400, "alarm", "NaN or ∞")):
            yield _rectangle(kind, LEFT + left, y, 14, 14)
            yield _text(LEFT + left + 19, y + 12, said, "muted")
        yield _text(
            LEFT + 350, y + 27, "blank: no gradient; names in grey: values between layers", "muted"
        )


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height}"/>'


def _text(x: float, y: float, said: str, kind: str, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(said)}</text>'


def _style(t: Theme) -> str:
    bins = "".join(f".b{i}{{fill:{colour}}}" for i, colour in enumerate(t.bins))
    return (
        "text{font:10px Helvetica,Arial,'Liberation Sans',sans-serif;white-space:pre}"
        f".paper,.on{{fill:{t.paper}}}"
        f".ink{{fill:{t.ink}}}.muted{{fill:{t.muted}}}.zero{{fill:{t.cluster};stroke:{t.border}}}.alarm{{fill:{t.alarm}}}"
        f".curve{{fill:none;stroke-width:1.6;stroke:{t.ink}}}{bins}"
    )
