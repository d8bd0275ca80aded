"""The heat map of the gradient, layers × steps, the loss above it, as an SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby, pairwise
from math import isfinite, log10
from pathlib import Path
from textwrap import TextWrapper

from ...engine.errors import ArgumentError
from ...recording.diagnose import diagnose
from ...recording.findings import Findings
from ...recording.flow import FlowRecord, FlowRow
from ...saving import write
from ..colors import AUTO, BINS, DARK, FIXED, LIGHT, SCALES, THEMES, Scale, Theme, ink_on
from ..data import Json
from ..plain import filled, one_line, one_of, sized
from .table import NOTES, last_note, summary

__all__ = ["colours", "draw_flow", "flow_picture", "flow_svg"]

LEFT = 250
PLOT = 620
RIGHT = 90
CELL_HEIGHT = 14
LOSS_HEIGHT = 110
ABOVE = 44
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{width}} {{height}}" width="{{width}}" \
height="{{height}}" role="img" aria-labelledby="flow-title flow-desc" \
font-family="Helvetica,Arial,sans-serif" font-size="10">
<title id="flow-title">The gradient over training</title>
<desc id="flow-desc">{{description}}</desc>
<style>{{style}}</style>
<rect class="paper" width="{{width}}" height="{{height}}"/>
{{body}}
</svg>
"""
NAME_LETTERS = 38
MOST_ROWS_DRAWN = 90
MOST_STEPS_DRAWN = 155  # of 4 pixels each


def draw_flow(flow: FlowRecord, path: str | Path, *, theme: str = AUTO, scale: str = "run") -> Path:
    """Write the heat map, whole or not at all."""
    if Path(path).suffix.lower() != ".svg":
        raise ArgumentError(f"draw: the path must end in .svg, got {str(path)!r}")
    one_of("draw", THEMES, theme=theme)
    one_of("draw", SCALES, scale=scale)
    return write(path, flow_svg(flow, theme=theme, scale=scale))


def flow_svg(flow: FlowRecord, *, theme: str = AUTO, scale: str = "run") -> str:
    """The picture as text; the same record gives the same text."""
    return _Picture(flow, scale).svg(THEMES[theme], follow=theme == AUTO)


def flow_picture(flow: FlowRecord) -> Json:
    """The picture for a page, without colours of a theme, and where its rows and samples stand."""
    made = _Picture(flow, "run")
    places = {path: number for number, path in enumerate(flow.rows)}
    numbers = {id(sample): number for number, sample in enumerate(flow.samples)}
    return {
        "picture": made.svg(LIGHT, follow=False),
        "frame": {
            "left": LEFT,
            "above": ABOVE,
            "top": made.top,
            "bottom": made.bottom,
            "cell": [made.width, CELL_HEIGHT],
            "rows": [places[row.path] for row in made.rows],
            "samples": [numbers[id(sample)] for sample in made.samples],
        },
    }


class _Picture:
    def __init__(self, flow: FlowRecord, scale: str) -> None:
        self.flow, self.findings = flow, diagnose(flow)
        every = max(1, -(-len(flow.samples) // MOST_STEPS_DRAWN))
        self.samples = flow.samples[::every]
        self.rows = shown_rows(flow, self.findings)
        # a gradient that cancels is rounding alone, which the colours need not span
        shown = [row for row in self.rows if last_note(flow, row.path) != "cancels"]
        sizes = [x for row in shown for _, x in flow.series(row.path, "gradient")]
        self.scale = FIXED if scale == "fixed" else Scale.around(sizes)
        self.width = PLOT / max(1, len(self.samples))
        self.top = ABOVE + (LOSS_HEIGHT + 30 if flow.logged else 0)  # of the heat map
        self.bottom = self.top + CELL_HEIGHT * len(self.rows)

    def svg(self, theme: Theme, follow: bool) -> str:
        lines = [*self._head(), *self._loss(), *self._cells(), *self._steps(), *self._marks()]
        said = list(self._findings(self.bottom + 82))
        parts = {
            "width": str(LEFT + PLOT + RIGHT),
            "height": str(self.bottom + 90 + 15 * len(said)),
            "description": escape(self._description()),
            "style": _style(theme, follow),
            "body": "\n".join([*lines, *self._legend(self.bottom + 34), *said]),
        }
        return filled(SVG, parts)

    def _description(self) -> str:
        said = "; ".join(f"{f.kind} from step {f.step}" for f in self.findings)
        rows = f"gradient rms of {len(self.rows)} rows at {len(self.samples)} steps"
        return f"{one_line(summary(self.flow))}; {rows}; {said or 'no problem found'}"

    def _head(self) -> Iterator[str]:
        yield text(12, 20, "ink", "The gradient over training", size=14, weight="bold")
        yield text(12, 35, "muted", one_line(summary(self.flow), 150))

    # ------------------------------------------------------------------ the loss

    def _loss(self) -> Iterator[str]:
        """Curves of at most two losses, or else of what was logged, on one scale."""
        names = [name for name in self.flow.log_names if "loss" in name] or self.flow.log_names
        logged = {name: self.flow.logs(name) for name in names[:2]}
        curves = {name: [(s, x) for s, x in logs if isfinite(x)] for name, logs in logged.items()}
        numbers = [x for points in curves.values() for _, x in points]
        if not numbers:
            return
        logs = min(numbers) > 0 and max(numbers) > 20 * min(numbers)
        low, high = (log10(f(numbers)) if logs else f(numbers) for f in (min, max))

        def height(x: float) -> float:
            part = ((log10(x) if logs else x) - low) / (high - low or 1)
            return ABOVE + LOSS_HEIGHT - (LOSS_HEIGHT - 8) * part

        for end in dict.fromkeys((max(numbers), min(numbers))):
            yield text(LEFT - 8, height(end) + 3, "muted", sized(end), anchor="end")
        axes = f"M{LEFT} {ABOVE + 8}V{ABOVE + LOSS_HEIGHT}H{LEFT + PLOT}"
        yield f'<path class="axis" d="{axes}"/>'
        yield from self._curves(curves, height, " (log)" * logs)

    def _curves(
        self,
        curves: dict[str, list[tuple[int, float]]],
        height: Callable[[float], float],
        scale: str,
    ) -> Iterator[str]:
        """Each curve with its name at its end, the names one above the other."""
        ends = list[tuple[float, float, int, str]]()  # y and x of a curve's last point
        for i, (name, points) in enumerate(curves.items()):
            some = points[:: max(1, len(points) // PLOT)]
            spots = [(self.x(step), height(x)) for step, x in some]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            title = f"<title>{escape(one_line(name))}</title>"
            yield f'<polyline class="curve curve{i}" points="{line}">{title}</polyline>'
            ends += [(y, x, i, f"{one_line(name, 14)}{scale}") for x, y in spots[-1:]]
        lowest = float(ABOVE + LOSS_HEIGHT)
        for y, x, i, shown in sorted(ends, reverse=True):
            yield text(x + 6, min(y, lowest) + 3, f"label{i}", shown)
            lowest = min(y, lowest) - CELL_HEIGHT

    def x(self, step: int) -> float:
        """The x of a step: between the column of the sample before it and the next."""
        steps = [s.step for s in self.samples] or [0]
        after = sum(s <= step for s in steps)
        start = steps[max(after - 1, 0)]
        end = steps[after] if after < len(steps) else start + self.flow.every
        part = min(1.0, (step - start) / max(end - start, 1))
        return LEFT + (max(after - 1, 0) + part) * self.width

    # ------------------------------------------------------------------ the cells

    def _cells(self) -> Iterator[str]:
        for k, row in enumerate(self.rows):
            y = self.top + CELL_HEIGHT * k
            sizes, note = self.flow.series(row.path, "gradient"), last_note(self.flow, row.path)
            yield f"<g><title>{escape(_title(row.path, sizes, note))}</title>"
            name = one_line(row.path)
            name = name if len(name) <= NAME_LETTERS else "…" + name[1 - NAME_LETTERS :]
            kind = "ink" if row.kind == "weight" else "muted"
            yield text(LEFT - 8, y + 10, kind, name, anchor="end")
            bins = [self._bin(s.rows.get(row.path, {}).get("gradient")) for s in self.samples]
            start = 0
            for bin, run in groupby(bins):
                count = len(list(run))
                if bin != "none":
                    x, width = LEFT + start * self.width, count * self.width
                    yield rect(bin, x, y, width, CELL_HEIGHT - 1)
                start += count
            yield text(LEFT + PLOT + 8, y + 10, "muted", sized(sizes[-1][1]) if sizes else note)
            yield "</g>"

    def _bin(self, size: float | None) -> str:
        if size is None:
            return "none"
        kind = f"b{self.scale.bin(size)}" if size else "zero"
        return kind if isfinite(size) else "alarm"

    def _steps(self) -> Iterator[str]:
        for i in range(0, len(self.samples), max(1, -(-len(self.samples) // 10))):
            at = LEFT + i * self.width
            yield text(at, self.bottom + 12, "muted", str(self.samples[i].step))
        yield text(LEFT - 8, self.bottom + 12, "muted", "step", anchor="end")
        yield text(LEFT + PLOT + 8, self.top - 6, "muted", "last rms")

    def _marks(self) -> Iterator[str]:
        """Where findings begin, numbered as the list below."""
        places = [row.path for row in self.rows]
        for i, finding in enumerate(self.findings, 1):
            known = finding.path in places
            y = self.top + CELL_HEIGHT * places.index(finding.path) + 6.5 if known else self.top - 8
            said = escape(one_line(str(finding)))
            x = self.x(finding.step) + min(7, self.width / 2)
            yield f'<g class="mark"><title>{said}</title><circle cx="{x:.1f}" cy="{y}" r="6.5"/>'
            yield text(x, y + 3.2, "on-mark", str(i), anchor="middle", size=9, weight="bold")
            yield "</g>"

    def _legend(self, y: int) -> Iterator[str]:
        bounds = pairwise(self.scale.ends)
        yield text(LEFT - 8, y + 12, "ink", "gradient rms", anchor="end", weight="bold")
        for i, (low, high) in enumerate(bounds):
            x = LEFT + 64 * i
            yield rect(f"b{i}", x, y, 63, 17)
            label = f"{low} – {high}"
            yield text(x + 31, y + 12, f"on{i}", label, anchor="middle", size=8)
        for x, kind, label in ((0, "zero", "0"), (54, "alarm", "NaN")):
            yield rect(kind, LEFT + 520 + x, y, 17, 17)
            yield text(LEFT + 541 + x, y + 12, "muted", label)
        said = "names in grey: values between layers; others: parameters; blank: no gradient"
        yield text(LEFT, y + 32, "muted", said)

    def _findings(self, y: int) -> Iterator[str]:
        for i, finding in enumerate(self.findings, 1):
            first, _, remedy = str(finding).partition("\n")
            for line in [*_wrapped(f"{i}  {first}"), *_wrapped(f"    {remedy.strip()}")]:
                yield text(12, y, "alarm-text" if line.startswith(f"{i}  ") else "muted", line)
                y += 15
        if not self.findings:
            yield text(12, y, "muted", "nothing found by flow.diagnose()")


def _title(path: str, sizes: list[tuple[int, float]], note: str) -> str:
    """What a row's tooltip says: its gradient first and last, and its note in words."""
    said = NOTES.get(note, "")
    if not sizes:
        return f"{one_line(path)}: no gradient, {said}"
    (first, a), (last, b) = sizes[0], sizes[-1]
    title = f"{one_line(path)}: {sized(a)} at step {first}, {sized(b)} at step {last}"
    return f"{title}; {said}" if said else title


def shown_rows(flow: FlowRecord, findings: Findings) -> Sequence[FlowRow]:
    """The rows a picture has room for: all, or the weights and those that findings name."""
    rows = [*flow.rows.values()]
    if len(rows) > MOST_ROWS_DRAWN:
        named = {finding.path for finding in findings}
        rows = [row for row in rows if row.path in named or row.is_matrix]
    return rows[:MOST_ROWS_DRAWN]


def rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}"/>'


def text(
    x: float, y: float, kind: str, said: str, *, anchor: str = "", size: int = 0, weight: str = ""
) -> str:
    given = {"text-anchor": anchor, "font-size": size, "font-weight": weight}
    more = "".join(f' {name}="{value}"' for name, value in given.items() if value)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{more}>{escape(said)}</text>'


def _wrapped(said: str) -> list[str]:
    """Lines of a finding; a NaN's operands stand on lines of their own."""
    lines = TextWrapper(160, subsequent_indent="    ", break_on_hyphens=False)
    return [one_line(part) for line in said.splitlines() for part in lines.wrap(line)]


def _style(theme: Theme, follow: bool) -> str:
    bins = "".join(f".b{i}{{fill:{c}}}.on{i}{{fill:{ink_on(c)}}}" for i, c in enumerate(theme.bins))
    fixed = ".axis,.curve{fill:none}.curve{stroke-width:1.6}.curve1{stroke-dasharray:4 3}"
    dark = f"@media (prefers-color-scheme: dark){{{colours(DARK)}}}" if follow else ""
    return bins + fixed + colours(theme) + dark


def colours(t: Theme) -> str:
    """CSS: what the classes of the picture are in a theme."""
    line = t.lines[2 if t.paper == "#ffffff" else BINS - 2]
    return (
        f".paper{{fill:{t.paper}}}.ink{{fill:{t.ink}}}.muted{{fill:{t.muted}}}"
        f".zero{{fill:{t.cluster};stroke:{t.border}}}.alarm{{fill:{t.alarm}}}"
        f".alarm-text{{fill:{t.alarm}}}.axis{{stroke:{t.line}}}.curve{{stroke:{line}}}"
        f".label0,.label1{{fill:{line}}}"
        f".mark circle{{fill:{t.alarm};stroke:{t.paper}}}.on-mark{{fill:{t.paper}}}"
    )
