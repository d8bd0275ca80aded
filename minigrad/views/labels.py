"""What a box or a line says: lines of text, a state, and the title a screen reader reads out."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import TYPE_CHECKING

from .colors import STATES, WORST_FIRST
from .outline import Box, Line
from .plain import counted, of_bytes, one_line, shaped, sized

if TYPE_CHECKING:
    from ..recording.trace import Trace

__all__ = [
    "cancellation",
    "dimmed",
    "facts",
    "gradients",
    "heading",
    "largest",
    "line_title",
    "node_title",
    "ranged",
    "state",
    "sum_title",
    "summary",
    "verdict",
    "why",
]

WIDEST = 40  # characters of a name in a box; its title has them all


def ranged(sizes: Iterable[float]) -> str:
    """Sizes as one number, or from the least to the largest.

    >>> ranged([0.5, 0.5]), ranged([0.5, 2.0]), ranged([])
    ('0.50', '0.50 to 2.0', '')
    """
    texts = [sized(size) for size in sorted(sizes, key=rank)]
    return " to ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else ""


def rank(size: float) -> float:
    """What is not finite is larger than anything."""
    return size if isfinite(size) else inf


def largest(sizes: Iterable[float]) -> float:
    return max(map(rank, sizes), default=0.0)


def gradients(box: Box) -> list[float]:
    return [size for entry in box.entries if (size := entry.gradient_rms) is not None]


def state(box: Box) -> str:
    """The state of what a box stands for; of several, the most alarming."""
    states = {entry.state for entry in box.entries}
    if box.kind == "scope":  # constants within it have no gradient and need none
        states = states - {"none"} or states
    return next(name for name in WORST_FIRST if name in states)


def why(trace: Trace, box: Box) -> str:
    reasons = dict.fromkeys(trace.explain_missing(entry) for entry in box.entries)
    return ", ".join(reasons) if len(reasons) < 3 else "several reasons"


def dimmed(box: Box) -> bool:
    """Whether nothing that a box stands for takes part in backward."""
    return not any(entry.needs or entry.gradient is not None for entry in box.entries)


# ---------------------------------------------------------------- the lines of text in a box


def heading(box: Box) -> tuple[str, str]:
    """A name, and what made it."""
    name = one_line(box.label, WIDEST)
    if box.kind == "scope":
        return name, ""
    made = box.one.op or box.one.kind
    return name, "" if made == box.label else made


def facts(box: Box) -> list[str]:
    """Shape and dtype; then cost, parameters and what is kept."""
    entries = box.entries
    ops = [e for e in entries if e.op is not None]
    held = sum(e.size for e in entries if e.kind == "parameter")
    kept, flops = sum(e.saved_bytes for e in ops), sum(e.flops or 0 for e in ops)
    cost = [f"{counted(held)} value{'s' * (held != 1)}"] if held else []
    cost += [f"{counted(flops)} FLOPs"] if flops else []
    cost += [f"saves {of_bytes(kept)}"] if kept else []
    if box.kind == "scope":
        first = f"{len(ops)} op{'s' * (len(ops) != 1)}"
    else:
        first = f"{shaped(box.one.shape)}  {box.one.dtype}"
    return [first, " · ".join(cost)] if cost else [first]


# ---------------------------------------------------------------- titles


def node_title(trace: Trace, box: Box) -> str:
    """One sentence with all that a box shows, and where it was made."""
    name = box.label if box.kind == "scope" else box.one.path
    what = {"scope": "scope", "loss": "loss", "outside": "outside the focus"}.get(
        box.kind, box.one.kind
    )
    made = f", made by {box.one.op}" if box.kind != "scope" and box.one.op else ""
    said = [f"{one_line(name)}: {what}{made}", *facts(box), gradient_said(trace, box)]
    if box.kind != "scope" and box.one.settings:
        said.append(", ".join(f"{k}={one_line(v, 60)}" for k, v in box.one.settings.items()))
    if box.kind != "scope" and len(box.entries) > 1:
        said.append(f"one of {len(box.entries)} alike")
    if box.kind != "scope" and box.one.place:
        said.append(f"at {one_line(box.one.place)}")
    return "; ".join(said)


def gradient_said(trace: Trace, box: Box) -> str:
    now, sizes = state(box), gradients(box)
    if now == "none":
        return f"no gradient: {why(trace, box)}"
    return f"gradient rms {ranged(sizes)}, {STATES[now][2]}"


def line_title(line: Line) -> str:
    name, target = one_line(line.source.label), one_line(line.target.label)
    used = f"{name} is used by {target} as {one_line(line.edges[0].input)}"
    return (
        f"{used}; gradient back: rms {ranged(line.sent)}"
        if line.sent
        else f"{used}; no gradient back"
    )


def cancellation(box: Box, lines: list[Line]) -> list[float]:
    """‖Σg‖ / Σ‖g‖ for each entry of a box: 1 if all terms point one way, near 0 if they cancel."""
    terms: dict[int, float] = {}
    for line in lines:
        for edge in line.edges:
            terms[edge.source] = terms.get(edge.source, 0.0) + (edge.contribution_rms or 0.0)
    ratios = []
    for entry in box.entries:
        total, size = terms.get(entry.id, 0.0), entry.gradient_rms
        if size is not None and total > 0:
            ratios.append(size / total)
    return ratios


def sum_title(box: Box, lines: list[Line]) -> str:
    terms = " + ".join(f"{ranged(line.sent)} from {one_line(line.target.label)}" for line in lines)
    kept = ranged(cancellation(box, lines)) or "not defined"
    return f"gradient of {one_line(box.label)} is a sum: {terms}; cancellation ratio {kept}"


# ---------------------------------------------------------------- the whole


def summary(trace: Trace) -> str:
    """One sentence: what was computed, what it cost, and whether backward ran."""
    ops = [e for e in trace.entries if e.op is not None]
    held = sum(e.size for e in trace.entries if e.kind == "parameter")
    flops, kept = sum(e.flops or 0 for e in ops), sum(e.saved_bytes for e in ops)
    said = [f"{len(ops)} ops", f"{counted(held)} parameter values"]
    said += [f"{counted(flops)} FLOPs"] if flops else []
    said += [f"{of_bytes(kept)} saved for backward"] if kept else []
    ends = [trace.entries[i] for i in trace.roots]
    said += [
        f"{one_line(e.label, WIDEST)} = {sized(e.value_rms)}"
        for e in ends
        if e.shape == () and e.value is not None
    ]
    said += [] if trace.backward_steps else ["backward not run"]
    return " · ".join(said)


def verdict(trace: Trace) -> tuple[str, bool]:
    """What holding the gradients against hand-derived steps found, and whether they agree."""
    checks = trace.checked()
    wrong, measured = checks.first_wrong, len(checks.measured)
    if wrong is None:
        return f"{measured} gradients equal the hand-derived steps" if measured else "", True
    differ = sum(not check.difference.ok for check in checks.measured if check.difference)
    return (
        f"{differ} of {measured} gradients differ from the hand-derived steps, first in step "
        f"{wrong.number}, {one_line(wrong.title, WIDEST)}: that of {one_line(wrong.symbol, WIDEST)}"
    ), False
