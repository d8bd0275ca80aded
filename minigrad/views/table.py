"""The record, and the hand-derived steps beside it, as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from ..recording.checks import CheckResult, Checks
from ..recording.record import Entry
from ..recording.trace import TraceRecord
from .colors import Scale
from .formula import plain
from .labels import Verdict, by_hand, by_step, by_value, costs, mark
from .model import STATES, AnnotatedTrace
from .plain import counted, of_bytes, one_line, shaped, sized
from .terminal import Column, Paint, bar, finished, grid, wide

__all__ = ["checks_table", "trace_table"]

# the colour and the mark of a check: not measured, right, wrong
MARKS = {None: ("dim", "–"), True: ("good", "✓"), False: ("alarm", "✗")}
MOST_ZEROS = 24  # paths that are listed, of gradients that are zero in theory
SCALE = Column("smallest to largest", drop=3)
TIME = Column("time", right=True)  # left out, like any empty column, unless times are shown
FORWARD = (
    Column("#", right=True),
    Column("step", shrink="start"),
    Column("op"),
    Column("takes", drop=1),
    Column("gives"),
    TIME,
    Column("FLOPs", right=True, drop=3),
    Column("saves", right=True, drop=2),
    Column("rms", right=True),
    Column("", drop=4),
    Column("note"),
)
BACKWARD = (
    Column("#", right=True),
    Column("step", shrink="start"),
    Column("op"),
    Column("sends back to", shrink="end", drop=1),
    Column("shape", drop=2),
    TIME,
    Column("rms", right=True),
    Column("gain", right=True, drop=4),
    SCALE,
    Column("state", shrink="end"),
)
LEAVES = (
    Column("leaf", shrink="start"),
    Column("kind"),
    Column("shape", drop=2),
    Column("values", right=True, drop=1),
    Column("rms", right=True),
    SCALE,
    Column("state", shrink="end"),
)
CHECKS = (
    Column("step", right=True),
    Column("title", drop=3),
    Column("goes back through", shrink="end", drop=2),
    Column("∂L/∂"),
    Column("shape", drop=1),
    Column("rms", right=True),
    Column("difference", right=True),
    Column(""),
)


def trace_table(
    trace: TraceRecord,
    width: int | None = None,
    *,
    times: bool = False,
    words: bool = False,
) -> str:
    """A trace as text: what ran forward, what ran backward, and the gradients of the leaves.

    Args:
        width: columns to fit in; the terminal's by default. Columns that matter least go first.
        times: a column of how long each step took, as it ran in this trace.
        words: what each op that ran does, and its rules with the gradient, in a sentence each.
    """
    paint, width = Paint(), wide(width)
    model = AnnotatedTrace(trace, fold=False)
    rows = _Rows(model, paint, times)
    forward = [trace[i] for i in trace.forward_steps]
    backward = [trace[i] for i in trace.backward_steps]
    leaves = [rows.leaf(entry) for entry in trace.entries if entry.op is None]

    def titled(facts: list[str], columns: Sequence[Column], lines: list[list[str]]) -> list[str]:
        title = textwrap.fill(", ".join(filter(None, facts)), width)
        return [paint.bold(title), grid(columns, lines, width)]

    facts = [_steps("forward", forward), _cost(trace), rows.time(*(e.seconds for e in forward))]
    parts = titled(facts, FORWARD, [rows.forward(i, e) for i, e in enumerate(forward, 1)])
    if backward:
        spent = rows.time(*(e.backward_seconds or 0.0 for e in backward))
        facts = [_steps("backward", backward), "gradients of what each step made", spent]
        back = [rows.backward(i, e) for i, e in enumerate(backward, 1)]
        parts += ["", *titled(facts, BACKWARD, back)]
    else:
        parts += ["", "backward: not run"]
    if leaves:
        parts += ["", *titled(["leaves: what came in"], LEAVES, leaves)]
    if words and (found := _words(trace, width)):
        parts += ["", paint.bold("what the ops do"), *found]
    closing = [*_zeros(model), *filter(None, [AnnotatedTrace(trace).flow])]
    lines = [textwrap.fill(line, width) for line in closing]
    measured = [by_value(model.checks), *by_step(model.checks)]
    lines += _verdict_lines(measured, paint, width)
    parts += ["", *lines] if lines else []
    return finished("\n".join(parts))


def _steps(way: str, entries: Sequence[Entry]) -> str:
    return f"{way}: {len(entries)} step{'s' * (len(entries) != 1)}"


def _verdict_lines(verdicts: Iterable[Verdict], paint: Paint, width: int) -> list[str]:
    return [paint(one.paint, textwrap.fill(one.said, width)) for one in verdicts if one.said]


def _words(trace: TraceRecord, width: int) -> list[str]:
    """A paragraph for each op that ran; a rule is said of the inputs that it sent gradients to."""
    known: dict[str, dict[str, None]] = {}
    for entry in trace.entries:
        if entry.op is not None:
            sent = [edge.input for edge in trace.into(entry) if edge.contribution is not None]
            rules = [
                f"  back to {name}: {said}" for name in sent if (said := entry.rule_says(name))
            ]
            if entry.says or rules:
                known.setdefault(f"{entry.op}: {entry.says}", {}).update(dict.fromkeys(rules))
    lines = [one_line(line) for op, rules in known.items() for line in (op, *rules)]
    return [textwrap.fill(line, width, subsequent_indent="    ") for line in lines]


def _zeros(model: AnnotatedTrace) -> list[str]:
    named: dict[str, list[str]] = {}
    for entry in model.trace.entries:
        if entry.state == "cancels":
            named.setdefault(entry.why, []).append(one_line(model.path_of(entry), 60))
    return [
        f"zero in theory, as {why}: {', '.join(paths[:MOST_ZEROS])}"
        + f" and {len(paths) - MOST_ZEROS} more" * (len(paths) > MOST_ZEROS)
        for why, paths in named.items()
    ]


def _cost(trace: TraceRecord) -> str:
    """What all of it cost; ops that declare no cost are named."""
    ops = [entry for entry in trace.entries if entry.op is not None]
    unknown = dict.fromkeys(entry.op for entry in ops if entry.flops is None)
    without = f" without {one_line(', '.join(map(str, unknown)), 60)}" if unknown else ""
    _, _, flops, kept = costs(ops)
    peak = of_bytes(trace.memory.peak)
    spent = f"{counted(flops)} FLOPs{without}, {of_bytes(kept)} saved for backward"
    return f"{spent}, at the forward's peak {peak}"


class _Rows:
    def __init__(self, model: AnnotatedTrace, paint: Paint, times: bool) -> None:
        self.model = model
        self.times = times
        self.trace = model.trace
        self.paint = paint
        ran = (self.trace[i] for i in self.trace.forward_steps)
        sizes = [size for entry in ran if (size := entry.value_rms) is not None]
        self.values = Scale.around(sizes)
        edges = model.path.edges if model.path else []
        self.on_path = {edge.target for edge in edges}

    def forward(self, number: int, entry: Entry) -> list[str]:
        sources = [self.trace[edge.source] for edge in self.trace.into(entry)]
        size = entry.value_rms
        return [
            str(number),
            one_line(self.model.path_of(entry)),
            entry.op or "",
            ", ".join(shaped(source.shape) for source in sources),
            shaped(entry.shape),
            self.time(entry.seconds),
            counted(entry.flops),
            of_bytes(entry.saved_bytes) if entry.saved_bytes else "",
            sized(size),
            bar(size, self.values),
            self.paint("alarm", "NaN or +inf") if entry.broken else self.model.unresponsive(entry),
        ]

    def backward(self, number: int, entry: Entry) -> list[str]:
        targets = [e for e in self.trace.into(entry) if e.contribution is not None]
        names = dict.fromkeys(one_line(self.trace[e.source].label) for e in targets)
        gain = self.model.gain(entry)
        mark = "▸" if entry.id in self.on_path else ""
        return [
            str(number),
            one_line(self.model.path_of(entry)),
            entry.op or "",
            ", ".join(names),
            shaped(entry.shape),
            self.time(entry.backward_seconds or 0.0),
            sized(entry.gradient_rms),
            f"{mark}×{sized(gain)}" if gain is not None else "",
            *self.gradient(entry),
        ]

    def leaf(self, entry: Entry) -> list[str]:
        path = one_line(self.model.path_of(entry))
        facts = [path, entry.role, shaped(entry.shape), counted(entry.size)]
        return [*facts, sized(entry.gradient_rms), *self.gradient(entry)]

    def time(self, *seconds: float) -> str:
        """How long steps took, as a person would write it, if times are shown."""
        if not self.times:
            return ""
        whole = sum(seconds)
        return f"{whole * 1e6:.0f} µs" if whole < 1e-3 else f"{whole * 1e3:.1f} ms"

    def gradient(self, entry: Entry) -> list[str]:
        """Bar and state of an entry's gradient."""
        state = entry.state
        glyph, meaning = STATES[state]
        said = f"{glyph} {meaning}"
        if state == "none":
            said += f": {self.trace.explain_missing(entry)}"
        for check in entry.checks.values():
            about = mark(entry, check)
            if check.ok:
                said += f" {about}✓ {check.difference:.0e}"
            elif check.ok is False:
                said += f" {about}for {check.symbol}, {check.difference:.0e} off"
        kind = {"ok": "", "none": "dim", "cancels": ""}.get(state, "alarm")
        return [bar(entry.gradient_rms, self.model.scale), self.paint(kind, said)]


# ---------------------------------------------------------------- hand-derived steps


def checks_table(checks: Checks, width: int | None = None) -> str:
    """The hand-derived steps, each gradient's size, and how far the engine's is from the formula's.

    ✓ is a difference that was measured in this run and is within rounding, ✗ one that is not; – is
    where the engine made no such tensor, so that nothing was measured. Width: as for `trace_table`.
    """
    paint, width = Paint(), wide(width)
    found = [
        by_value(checks),
        *([by_hand(checks)] if checks or checks.uncovered else []),
        *by_step(checks),
    ]
    closing = _verdict_lines(found, paint, width)
    if not checks:
        none = "no layer with hand-derived steps ran in this trace"
        return finished("\n".join(closing) or none)
    parts: list[str] = []
    for (scope, _), group in groupby(checks, key=lambda check: (check.scope, id(check.symbols))):
        rows = []
        for _, step in groupby(group, key=lambda check: check.number):
            rows += _step_rows(list(step), paint)
        title = f"{one_line(scope) or 'layer'}: engine against hand-derived steps"
        parts += [paint.bold(textwrap.fill(title, width)), grid(CHECKS, rows, width), ""]
    return finished("\n".join([*parts, *closing]))


def _step_rows(step: list[CheckResult], paint: Paint) -> list[list[str]]:
    """A step's gradients, one a row, with its number, its title and its equations beside them."""
    equations = plain(step[0].forward).split(", ")
    equations[len(step) - 1 :] = [", ".join(equations[len(step) - 1 :])]
    equations += [""] * (len(step) - len(equations))
    heads = [[str(step[0].number), step[0].title], *[["", ""]] * (len(step) - 1)]
    return [
        [*head, equation, *_check_cells(check, paint)]
        for head, equation, check in zip(heads, equations, step, strict=True)
    ]


def _check_cells(check: CheckResult, paint: Paint) -> list[str]:
    kind, glyph = MARKS[check.ok]
    off = "" if check.difference is None else f"{check.difference:.1e}"
    return [check.symbol, shaped(check.shape), sized(check.rms), off, paint(kind, glyph)]
