"""What a picture says of boxes and lines, and what views say of the checks of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import isfinite
from typing import NamedTuple

from ..recording.checks import BY_HAND, KINDS, CheckKind, CheckResult, Checks
from ..recording.record import Entry
from .fold import parts
from .model import STATES, AnnotatedTrace, ranged
from .outline import Box, Line, Outline
from .plain import counted, of_bytes, one_line, shaped, sized

__all__ = [
    "WIDEST", "Verdict", "alarms", "by_hand", "by_step", "by_value", "cancellation", "costs",
    "facts", "gains", "heading", "line_label", "line_title", "mark", "node_title", "notes",
    "of_kind", "picture_name", "reasons", "sum_title", "summary", "ticks", "verdicts", "why",
    "words",
]  # fmt: skip

WIDEST = 40  # characters of a name in a box; the box's title has all of them
DRAWN = {"scope": "scope", "loss": "loss", "outside": "outside the focus"}


def why(model: AnnotatedTrace, box: Box) -> str:
    reasons = dict.fromkeys(model.trace.explain_missing(entry) for entry in box.entries)
    return ", ".join(reasons) if len(reasons) < 3 else "several reasons"


# ---------------------------------------------------------------- the lines of text in a box


def heading(box: Box) -> tuple[str, str]:
    made = "" if box.kind == "scope" else box.one.op or box.one.role
    return one_line(box.label, WIDEST), "" if made == box.label else made


def costs(entries: list[Entry]) -> tuple[int, int, int, int]:
    """How many ops, values of leaves that learn, FLOPs, and bytes that are kept for backward."""
    ops = [entry for entry in entries if entry.op is not None]
    learned = sum(e.size for e in entries if e.learns and e.value_number == 1)
    return len(ops), learned, sum(e.flops or 0 for e in ops), sum(e.saved_bytes for e in ops)


def held_values(entries: list[Entry]) -> list[str]:
    """The number of values of parameters, and of other leaves with a gradient."""
    words = {"parameter": "parameter values", "leaf": "values of leaves with a gradient"}
    first = [e for e in entries if e.value_number == 1]
    sizes = {kind: sum(e.size for e in first if e.kind == kind) for kind in words}
    return [f"{counted(size)} {words[kind]}" for kind, size in sizes.items() if size]


def facts(box: Box) -> list[str]:
    """Shape and dtype; then parameters, cost and what is kept."""
    ops, learned, flops, kept = costs(box.entries)
    first = f"{shaped(box.one.shape)}  {box.one.dtype}"
    if box.kind == "scope":
        first = f"{ops} op{'s' * (ops != 1)}"
    cost = [f"{counted(learned)} value{'s' * (learned != 1)}"] if learned else []
    cost += [f"{counted(flops)} FLOPs"] if flops else []
    cost += [f"saves {of_bytes(kept)}"] if kept else []
    return [first, " · ".join(cost)] if cost else [first]


def alarms(box: Box) -> list[str]:
    """What is wrong with a box: a wrong rule, a value that is not finite."""
    wrong = [c for e in box.entries for c in e.checks.values() if c.ok is False]
    said = [
        f"{KINDS[c.kind].mark} of {one_line(c.op)} for {c.symbol}: {c.difference:.0e} off"
        for c in wrong[:1]
    ]
    broken = sum(entry.broken for entry in box.entries if entry.op is not None)
    return said + (
        ["value NaN or +inf" + f", {broken} of {len(box.entries)}" * (broken > 1)] if broken else []
    )


def notes(model: AnnotatedTrace, box: Box) -> list[str]:
    """What is particular to a box: why its gradient is zero, units that are dead or saturated."""
    zero = dict.fromkeys(e.why for e in box.entries if e.state == "cancels")
    said = [f"0: {why}" for why in zero] if box.kind != "scope" else []
    flat = [text for e in box.entries if (text := model.unresponsive(e))]
    more = f" (of {len(flat)} such)" if len(flat) > 1 else ""
    return said + [text + more for text in flat[:1]]


def checked(box: Box) -> dict[str, str]:
    """The kinds of checks in which all steps of a box agree, each with its mark."""
    steps = [e for e in box.entries if e.op is not None and e.gradient is not None]
    found = {}
    for kind in KINDS if steps else ():
        results = [entry.checks.get(kind) for entry in steps]
        if all(result is not None and result.ok for result in results):
            pairs = zip(steps, results, strict=True)
            found[kind] = max((mark(e, r) for e, r in pairs if r is not None), key=len)
    return found


def ticks(box: Box) -> str:
    return "".join(f"  {about}✓" for about in checked(box).values())


# ---------------------------------------------------------------- titles


def node_title(plan: Outline, box: Box) -> str:
    """One sentence with all that a box shows, and where it was made."""
    spread, entry = plan.spreads[box], box.one
    gradient = f"gradient rms {spread.text}, {STATES[spread.state][1]}"
    if spread.state == "none":
        gradient = f"no gradient: {why(plan.model, box)}"
    said = [*facts(box), gradient, *([one_line(spread.note)] if spread.note else [])]
    said += [*alarms(box), *notes(plan.model, box)]
    kinds = [KINDS[kind] for kind in checked(box)]
    said += [kind.title_agrees.format(**vars(kind)) for kind in kinds]
    if box.kind == "scope":
        return "; ".join([f"{one_line(box.label)}: scope", *said])
    made = f", made by {entry.op}" if entry.op else ""
    if entry.settings:
        said.append(", ".join(f"{k}={one_line(v, 60)}" for k, v in entry.settings.items()))
    for one in box.parameters:
        size = plan.spreads[one].text or "none"
        said.append(f"takes {one_line(one.label)} {facts(one)[0]}, gradient rms {size}")
    said += [f"one of {len(box.entries)} alike"] if len(box.entries) > 1 else []
    said += [f"at {one_line(entry.place)}"] if entry.place else []
    said += [one_line(entry.says)] if entry.says else []
    path = plan.model.path_of(entry)
    return "; ".join([f"{one_line(path)}: {DRAWN.get(box.kind, entry.role)}{made}", *said])


def gains(model: AnnotatedTrace, line: Line) -> str:
    """The factor by which the gradient changes along a line of the worst path."""
    on = model.path_gains
    found = [on[id(edge)] for edge in line.edges if id(edge) in on]
    return f"×{ranged(found)}" if found and not all(0.9 < gain < 1.1 for gain in found) else ""


def line_label(line: Line, summed: bool) -> list[str]:
    """The copy to which a line leads, how often, and the size of a term of a sum."""
    said = _copies(line)
    return [*said, ranged(line.sent)] if line.sent and (summed or line.link.step) else said


def _copies(line: Line) -> list[str]:
    """Which copies of a block a line connects, unless it stays within each of them.

    A line into a block leads to its first copy, and a line out of it comes from the last, if
    nothing else is written.
    """
    link, times = line.link, f"{len(line.edges)} times"
    said = [f"to {_further(link.step)}"] if link.step else []
    if link.leaves:
        said.append("from each to its own" if link.enters else "from each")
    elif link.enters:
        said.append("to each")
    return [", ".join([*said, times, *["the last first"] * link.backwards])] if said else []


def _further(step: int) -> str:
    """Which copy of a folded block a line leads to."""
    return {1: "the next", -1: "the one before"}.get(step, f"{step:+d}")


def line_title(plan: Outline, line: Line) -> str:
    name, target = one_line(line.source.label), one_line(line.target.label)
    copy = "".join(f" ({said})" for said in _copies(line))
    used = f"{name} is used by {target}{copy} as {one_line(line.edges[0].input)}"
    if not line.sent:
        return f"{used}; no gradient back"
    edge = line.edges[0]
    says = one_line(plan.model.trace[edge.target].rule_says(edge.input))
    return f"{used}; gradient back: rms {ranged(line.sent)}" + f"; {says}" * bool(says)


def cancellation(model: AnnotatedTrace, box: Box) -> list[float]:
    """‖Σg‖ / Σ‖g‖ for each entry of a box: 1 if all terms point one way, near 0 if they cancel."""
    ratios = []
    for entry in box.entries:
        total, size = sum(model.terms(entry)), entry.gradient_rms
        if size is not None and 0 < total and isfinite(total):
            ratios.append(size / total)
    return ratios


def sum_title(plan: Outline, box: Box) -> str:
    lines = [line for line in plan.lines if line.source is box and line.sent]
    terms = " + ".join(f"{ranged(line.sent)} from {one_line(line.target.label)}" for line in lines)
    ratio = ranged(cancellation(plan.model, box)) or "not defined"
    return f"gradient of {one_line(box.label)} is a sum: {terms}; cancellation ratio {ratio}"


# ---------------------------------------------------------------- the whole


def picture_name(model: AnnotatedTrace) -> str:
    """What a picture is of: the outermost scopes that ran, or two runs that are compared."""
    if model.against is not None:
        return "Two runs compared: computation graph"
    scopes = dict.fromkeys(parts(place)[0] for place in model.place.values() if place)
    names = [one_line(model.fold.name(scope), WIDEST) for scope in scopes]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Computation graph of {', '.join(names[:3])}{more}" if names else "Computation graph"


def summary(model: AnnotatedTrace) -> str:
    """One sentence: what was computed, what it cost, and whether backward ran."""
    trace = model.trace
    ops, _, flops, kept = costs(trace.entries)
    said = [f"{ops} op{'s' * (ops != 1)}", *held_values(trace.entries)]
    said += [f"{counted(flops)} FLOPs"] if flops else []
    said += [f"{of_bytes(kept)} saved for backward"] if kept else []
    for entry in (trace.entries[i] for i in trace.roots):
        if entry.shape == () and (value := entry.value_facts) is not None:
            said.append(f"{one_line(entry.label, WIDEST)} = {sized(value.low)}")
    said += [] if trace.backward_steps else ["backward not run"]
    return " · ".join(said)


class Verdict(NamedTuple):
    """A sentence, and whether what was measured agrees; None where nothing was."""

    said: str
    ok: bool | None

    @property
    def paint(self) -> str:
        return {True: "good", False: "alarm", None: "dim"}[self.ok]


Quote = Callable[[str], str]


def _short(name: str) -> str:
    return one_line(name, 60)


def verdicts(checks: Checks) -> list[Verdict]:
    """All that was measured, or could not be measured; what is wrong first."""
    hand = by_hand(checks)
    found = [by_value(checks), *by_step(checks), *([hand] if hand.ok is not None else [])]
    return sorted((one for one in found if one.said), key=lambda one: one.ok is not False)


def by_step(checks: Checks) -> list[Verdict]:
    """For each kind of check of the steps, what its results say together."""
    return [of_kind(kind, checks, _short) for kind in KINDS.values() if kind.name != BY_HAND]


def by_hand(checks: Checks, quoted: Quote = _short) -> Verdict:
    """The gradients of layers against the steps derived by hand. Args: quoted: writes a name."""
    return of_kind(KINDS[BY_HAND], checks, quoted)


def by_value(checks: Checks) -> Verdict:
    """Whether the run has NaN or infinity."""
    if not checks.broken:
        return Verdict("", None)
    return Verdict(f"NaN or infinity in this run: {one_line(checks.broken, 120)}", False)


def of_kind(kind: CheckKind, checks: Checks, quoted: Quote = _short) -> Verdict:
    """What the results of one kind say together."""
    before, between, after = kind.reasons
    why = reasons(kind, checks, quoted)
    rest = f"{before}{between.join(why)}{after}" if why else ""
    found = words(kind, checks, quoted)
    if not found["count"]:
        return Verdict(f"{kind.nothing.format(**found)}{rest}" * bool(rest), None)
    said = kind.differs if found["wrong"] else kind.agrees
    return Verdict(said.format(**found) + rest, not found["wrong"])


def reasons(kind: CheckKind, checks: Checks, quoted: Quote = _short) -> list[str]:
    """Why some checks of a kind were not measured, and how many."""
    left = Counter(result.why for result in checks.of(kind.name) if result.ok is None)
    said = [f"{count} {_short(why)}" for why, count in left.items()]
    if kind.name == BY_HAND and checks.skipped:
        said.append(f"no backward ran through {', '.join(map(quoted, checks.skipped))}")
    if kind.name == BY_HAND and checks.uncovered:
        calls = Counter(map(quoted, checks.uncovered)).items()
        each = [f"{call} ({n} times)" if n > 1 else call for call, n in calls]
        said.append(f"they do not cover {', '.join(each)}")
    return said


def words(kind: CheckKind, checks: Checks, quoted: Quote = _short) -> dict[str, object]:
    """The words in a kind's sentences: its own, its counts, and those of the first wrong result."""
    all_of_it, wrong = checks.of(kind.name), checks.wrong(kind.name)
    differences = [r.difference for r in all_of_it if r.difference is not None]
    count = len(differences)
    found = {
        **vars(kind),
        "ran": len(all_of_it),
        "count": count,
        "gradients_equal": "1 gradient equals" if count == 1 else f"{count} gradients equal",
        "formulas_agree": "1 formula agrees" if count == 1 else f"{count} formulas agree",
        "gradients_agree": "The gradient measured agrees"
        if count == 1
        else f"All {count} gradients measured agree",
        "wrong": len(wrong),
        "most": max(differences, default=0.0),
    }
    return found | (_named(wrong[0], quoted) if wrong else {})


def _named(first: CheckResult, quoted: Quote) -> dict[str, object]:
    return {
        "number": first.number,
        "title": quoted(first.title),
        "symbol": quoted(first.symbol) if first.kind == BY_HAND else first.symbol,
        "fault": first.fault or KINDS[first.kind].fault,
        "within": f" in {quoted(first.scope)}" if first.scope else "",
        "path": _short(first.path),
        "op": first.op,
        "difference": first.difference,
    }


def mark(entry: Entry, check: CheckResult) -> str:
    """What its ✓ is of; nothing for the rule of an op that minigrad declares."""
    kind = KINDS[check.kind]
    return "" if kind.silent and not entry.own_op else f"{kind.mark} "
