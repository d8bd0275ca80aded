"""The record, and the hand-derived steps beside it, as text for a terminal."""

from __future__ import annotations

import textwrap
from itertools import count, groupby

from ..record.finish import finish
from ..record.record import Checks, Entry, Record
from . import words
from .maths import plain
from .terminal import Column, bar, grid, number, paint, wide
from .theme import Scale

__all__ = ["checks_table", "table", "verdict_lines"]

STEP_COLUMNS = number("#"), Column("step", shrink="start"), Column("op")
MS, SIZE_BAR = number("ms", 1), Column("low … high", drop=4)
GRADIENT, REMARK = number("gradient"), Column("", shrink="end")
FORWARD = (
    *STEP_COLUMNS, Column("takes", drop=1), Column("gives"), MS,
    number("FLOPs", 3), number("saves", 2),
    number("rms"), SIZE_BAR, Column("note"),
)  # fmt: skip
BACKWARD = (
    *STEP_COLUMNS, Column("sends back to", shrink="end", drop=1), Column("shape", drop=2), MS,
    GRADIENT, number("gain", 3), SIZE_BAR, REMARK,
)  # fmt: skip
LEAVES = (
    Column("leaf", shrink="start"), Column("kind"), Column("shape", drop=2),
    number("values", 1), GRADIENT, SIZE_BAR, REMARK,
)  # fmt: skip
CHECKS = (
    number("step"), Column("title", drop=3),
    Column("goes back through", shrink="end", drop=2), Column("∂L/∂"), Column("shape", drop=1),
    number("rms"), number("difference"), Column(""),
)  # fmt: skip


def table(record: Record, width: int | None = None) -> str:
    """A record as text: what ran forward, what ran backward, and the gradients of the leaves.

    Args: width: columns to fit in; the terminal's by default. Columns that matter least go first.
    """
    record = finish(record)
    width = wide(width)
    rows = _Rows(record)
    forward = [*map(rows.forward, count(1), record.ops)]
    back = [*map(rows.backward, count(1), (record.entries[i] for i in record.backward))]
    leaves = [rows.leaf(entry) for entry in record.entries if not entry.op]
    steps, back_steps = (words.plural(len(rows), "step") for rows in (forward, back))
    parts = [_titled(words.headline(record), width), ""]
    for title, columns, cells in (
        (f"forward: {steps} · {words.summary(record)}", FORWARD, forward),
        (f"backward: {back_steps} · gradients of what each step made", BACKWARD, back),
        ("leaves: what came in", LEAVES, leaves),
    ):
        if cells or columns is FORWARD:
            parts += [_titled(title, width), grid(columns, cells, width), ""]
    return "\n".join([*parts, *verdict_lines(record.checks, width)]).rstrip()


def _titled(text: str, width: int) -> str:
    return paint("bold", textwrap.fill(text, width))


def verdict_lines(checks: Checks, width: int) -> list[str]:
    """What was measured, a line for each thing: ✓ agrees, ✗ differs, – not measured."""
    verdicts = words.verdicts(checks)
    return [paint(PAINTS[verdict.ok], textwrap.fill(verdict.signed, width)) for verdict in verdicts]


PAINTS = {True: "good", False: "alarm", None: "dim"}


class _Rows:
    def __init__(self, record: Record) -> None:
        self.record = record
        facts = [op.value_facts for op in record.ops]
        self.values = Scale.around(each.rms for each in facts if each is not None)
        self.scale = Scale.around(record.gradient_sizes)

    def forward(self, step: int, entry: Entry) -> list[str]:
        sources = [self.record.entries[edge.source] for edge in entry.takes]
        facts = entry.value_facts
        saved = entry.saved_bytes
        return [
            str(step), words.one_line(entry.path), entry.op,
            ", ".join(words.shaped(source.shape) for source in sources), words.shaped(entry.shape),
            words.lasted(entry.seconds),
            "" if entry.flops is None else words.counted(entry.flops),
            words.of_bytes(saved) if saved else "",
            words.value(entry) or words.sized(facts and facts.rms),
            bar(facts and facts.rms, self.values),
            paint("alarm", "NaN or ∞") if words.is_broken(entry) else entry.note,
        ]  # fmt: skip

    def backward(self, step: int, entry: Entry) -> list[str]:
        sent = [edge for edge in entry.takes if edge.facts is not None]
        names = dict.fromkeys(words.label(self.record.entries[edge.source]) for edge in sent)
        gains = [f"▸×{words.sized(edge.gain)}" for edge in sent if edge.on_way]
        gradient, *more = self._gradient(entry)
        return [
            str(step), words.one_line(entry.path), entry.op, ", ".join(names),
            words.shaped(entry.shape), words.lasted(entry.backward_seconds), gradient,
            "".join(gains[:1]), *more,
        ]  # fmt: skip

    def leaf(self, entry: Entry) -> list[str]:
        values = words.shaped(entry.shape), words.counted(entry.size)
        return [words.one_line(entry.path), entry.kind, *values, *self._gradient(entry)]

    def _gradient(self, entry: Entry) -> list[str]:
        """Size, bar, and what is to be said of it."""
        gradient = words.gradient(entry)
        mark = words.marks(entry)
        if entry.state == "none":
            return ["", "", f"{mark} {gradient}".strip()]
        text = f"{mark} {words.remark(entry)}".strip()
        if entry.state not in ("ok", "zero in theory") or mark.startswith("✗"):
            text = paint("alarm", text)
        return [gradient, bar(words.gradient_size(entry), self.scale), text]


# ---------------------------------------------------------------- hand-derived steps


def checks_table(checks: Checks, width: int | None = None) -> str:
    """The hand-derived steps, each gradient's size, and how far the engine's is from the formula's.

    ✓ is a difference that was measured in this run and is within rounding, ✗ one that is not.
    – stands where the engine made no such tensor, so that nothing was measured.
    """
    width = wide(width)
    by_hand = checks.of("by hand")
    closing = verdict_lines(checks, width)
    if not by_hand:
        return "\n".join(closing) or "no layer with hand-derived steps ran in this trace"
    parts = list[str]()
    for (scope, call), group in groupby(by_hand, key=lambda check: (check.scope, check.call)):
        rows = list[list[str]]()
        last = 0
        for check in group:
            step = ["", "", ""]
            if check.number != last:
                last = check.number
                step = [str(last), check.title, plain(check.forward)]
            rows.append([
                *step, words.one_line(check.symbol), words.shaped(check.shape),
                words.sized(check.rms),
                "" if check.why else f"{check.difference:.1e}",
                paint(PAINTS[check.ok], words.VERDICT_SIGNS[check.ok]),
            ])  # fmt: skip
        where = words.one_line(scope) or "layer"
        if call:
            where += f", call {call + 1}"
        title = f"{where}: engine against hand-derived steps"
        parts += [_titled(title, width), grid(CHECKS, rows, width), ""]
    return "\n".join([*parts, *closing])
