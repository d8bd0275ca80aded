"""The record, and the hand-derived steps beside it, as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

from ..record.finish import finish
from ..record.record import Check, Checks, Entry, Record
from . import words
from .maths import plain
from .terminal import Column, bar, grid, paint, wide
from .theme import Scale

__all__ = ["checks_table", "table", "verdict_lines"]

FORWARD = (
    Column("#", right=True), Column("step", shrink="start"), Column("op"), Column("takes", drop=1),
    Column("gives"), Column("ms", right=True, drop=1), Column("FLOPs", right=True, drop=3),
    Column("saves", right=True, drop=2), Column("rms", right=True), Column("low … high", drop=4),
    Column("note"),
)  # fmt: skip
BACKWARD = (
    Column("#", right=True), Column("step", shrink="start"), Column("op"),
    Column("sends back to", shrink="end", drop=1), Column("shape", drop=2),
    Column("ms", right=True, drop=1), Column("gradient", right=True),
    Column("gain", right=True, drop=3), Column("low … high", drop=4), Column("", shrink="end"),
)  # fmt: skip
LEAVES = (
    Column("leaf", shrink="start"), Column("kind"), Column("shape", drop=2),
    Column("values", right=True, drop=1), Column("gradient", right=True),
    Column("low … high", drop=3), Column("", shrink="end"),
)  # fmt: skip
CHECKS = (
    Column("step", right=True), Column("title", drop=3),
    Column("goes back through", shrink="end", drop=2), Column("∂L/∂"), Column("shape", drop=1),
    Column("rms", right=True), Column("difference", right=True), Column(""),
)  # fmt: skip


def table(record: Record, width: int | None = None) -> str:
    """A record as text: what ran forward, what ran backward, and the gradients of the leaves.

    Args: width: columns to fit in; the terminal's by default. Columns that matter least go first.
    """
    record, width = finish(record), wide(width)
    rows = _Rows(record)
    forward = [record.entries[i] for i in record.forward]
    back = [record.entries[i] for i in record.backward]
    leaves = [entry for entry in record.entries if not entry.op]
    steps = words.plural(len(forward), "step")
    back_title = f"backward: {words.plural(len(back), 'step')} · gradients of what each step made"
    parts = [_titled(words.headline(record), width), ""]
    for title, columns, cells in (
        (f"forward: {steps} · {words.summary(record)}", FORWARD, [*map(rows.forward, forward)]),
        (back_title, BACKWARD, [*map(rows.backward, back)]),
        ("leaves: what came in", LEAVES, [*map(rows.leaf, leaves)]),
    ):
        if columns[0].title == "#":
            cells = [[str(number), *row] for number, row in enumerate(cells, 1)]
        if cells or columns is FORWARD:
            parts += [_titled(title, width), grid(columns, cells, width), ""]
    return "\n".join([*parts, *verdict_lines(record.checks, width)]).rstrip()


def _titled(text: str, width: int) -> str:
    return paint("bold", textwrap.fill(text, width))


def verdict_lines(checks: Checks, width: int) -> list[str]:
    """What was measured, a line for each thing: ✓ agrees, ✗ differs, – not measured."""
    said = (textwrap.fill(one.signed, width) for one in words.verdicts(checks))
    return [paint(VERDICT_PAINTS[line[0]], line) for line in said]


VERDICT_PAINTS = {"✓": "good", "✗": "alarm", "–": "dim"}


class _Rows:
    def __init__(self, record: Record) -> None:
        self.record = record
        facts = [record.entries[i].value_facts for i in record.forward]
        self.values = Scale.around(one.rms for one in facts if one is not None)
        self.scale = Scale.around(record.gradient_range)

    def forward(self, entry: Entry) -> list[str]:
        sources = [self.record.entries[edge.source] for edge in self.record.into(entry)]
        facts = entry.value_facts
        broken = facts is not None and not facts.finite
        return [
            words.one_line(entry.path), entry.op,
            ", ".join(words.shaped(source.shape) for source in sources), words.shaped(entry.shape),
            words.lasted(entry.seconds),
            words.counted(entry.flops) if entry.flops is not None else "",
            words.of_bytes(entry.saved_bytes) if entry.saved_bytes else "",
            words.value(entry) or words.sized(facts and facts.rms),
            bar(facts and facts.rms, self.values),
            paint("alarm", "NaN or ∞") if broken else entry.note,
        ]  # fmt: skip

    def backward(self, entry: Entry) -> list[str]:
        sent = [edge for edge in self.record.into(entry) if edge.facts is not None]
        names = dict.fromkeys(words.label(self.record.entries[edge.source]) for edge in sent)
        gains = [f"▸×{words.sized(edge.gain)}" for edge in sent if edge.on_way]
        told, *more = self._gradient(entry)
        head = [words.one_line(entry.path), entry.op, ", ".join(names), words.shaped(entry.shape)]
        taken = words.lasted(entry.backward_seconds)
        return [*head, taken, told, "".join(gains[:1]), *more]

    def leaf(self, entry: Entry) -> list[str]:
        values = words.shaped(entry.shape), words.counted(entry.size)
        return [words.one_line(entry.path), entry.kind, *values, *self._gradient(entry)]

    def _gradient(self, entry: Entry) -> list[str]:
        """Size, bar, and what is to be said of it."""
        state, said = entry.state, words.gradient(entry)
        note = words.remark(entry)
        if state == "none":
            said, note = "", said
        mark = words.marks(entry)
        fine = state in ("ok", "none", "zero in theory") and not mark.startswith("✗")
        size = None if state == "zero in theory" else entry.gradient_rms
        text = " ".join(filter(None, [mark, note]))
        return [said, bar(size, self.scale), text if fine else paint("alarm", text)]


# ---------------------------------------------------------------- hand-derived steps


def checks_table(checks: Checks, width: int | None = None) -> str:
    """The hand-derived steps, each gradient's size, and how far the engine's is from the formula's.

    ✓ is a difference that was measured in this run and is within rounding, ✗ one that is not; – is
    where the engine made no such tensor, so that nothing was measured.
    """
    width, by_hand = wide(width), checks.of("by hand")
    closing = verdict_lines(checks, width)
    if not by_hand:
        return "\n".join(closing) or "no layer with hand-derived steps ran in this trace"
    parts: list[str] = []
    for (scope, call), group in groupby(by_hand, key=lambda check: (check.scope, check.call)):
        steps = [list(step) for _, step in groupby(group, key=lambda check: check.number)]
        rows = [row for step in steps for row in _step_rows(step)]
        where = words.one_line(scope) or "layer"
        if call:
            where += f", call {call + 1}"
        title = f"{where}: engine against hand-derived steps"
        parts += [_titled(title, width), grid(CHECKS, rows, width), ""]
    return "\n".join([*parts, *closing])


def _step_rows(step: Sequence[Check]) -> list[list[str]]:
    """A step's gradients, one a row, with its number, its title and its equations beside them."""
    rows, equations = [], plain(step[0].forward)
    for number, check in enumerate(step):
        head = ["", "", ""] if number else [str(check.number), check.title, equations]
        off = "" if check.difference is None else f"{check.difference:.1e}"
        told = [words.one_line(check.symbol), words.shaped(check.shape), words.sized(check.rms)]
        sign = words.VERDICT_SIGNS[check.ok]
        rows.append([*head, *told, off, paint(VERDICT_PAINTS[sign], sign)])
    return rows
