"""What a record was held against, in the words of each kind of check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ..recording.checks import BY_HAND, KINDS, CheckKind, CheckResult, Checks
from ..recording.record import Entry
from .plain import one_line

__all__ = [
    "Verdict", "by_hand", "by_step", "by_value", "fault", "mark", "of_kind", "reasons", "verdicts",
    "words",
]  # fmt: skip


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
    """All that was measured, or was to be and could not; what is wrong first."""
    hand = by_hand(checks)
    found = [by_value(checks), *by_step(checks), *([hand] if hand.ok is not None else [])]
    return sorted((one for one in found if one.said), key=lambda one: one.ok is not False)


def by_step(checks: Checks) -> list[Verdict]:
    """Of each kind that has results of the steps, as they ran, what they say together."""
    return [of_kind(kind, checks, _short) for kind in KINDS.values() if kind.name != BY_HAND]


def by_hand(checks: Checks, quoted: Quote = _short) -> Verdict:
    """The gradients of layers against the steps derived by hand. Args: quoted: writes a name."""
    return of_kind(KINDS[BY_HAND], checks, quoted)


def by_value(checks: Checks) -> Verdict:
    """Whether NaN or infinity came up."""
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
    """Why some of a kind were not measured, and how many."""
    left = Counter(result.why for result in checks.of(kind.name) if result.ok is None)
    said = [f"{count} {_short(why)}" for why, count in left.items()]
    if kind.name == BY_HAND and checks.skipped:
        said.append(f"no backward ran through {', '.join(map(quoted, checks.skipped))}")
    if kind.name == BY_HAND and checks.uncovered:
        calls = Counter(map(quoted, checks.uncovered)).items()
        each = [f"{call} ({n} times)" if n > 1 else call for call, n in calls]
        said.append(f"they do not cover {', '.join(each)}")
    return said


def words(kind: CheckKind, checks: Checks, quoted: Quote = _short) -> dict[str, Any]:
    """What a kind's sentences are filled in with: its words, its counts, what is wrong first."""
    all_of_it, wrong = checks.of(kind.name), checks.wrong(kind.name)
    differences = [r.difference for r in all_of_it if r.difference is not None]
    found = {
        **vars(kind),
        "ran": len(all_of_it),
        "count": len(differences),
        "wrong": len(wrong),
        "most": max(differences, default=0.0),
    }
    return found | (_named(wrong[0], quoted) if wrong else {})


def _named(first: CheckResult, quoted: Quote) -> dict[str, Any]:
    return {
        "number": first.number,
        "title": quoted(first.title),
        "symbol": quoted(first.symbol) if first.kind == BY_HAND else first.symbol,
        "within": f" in {quoted(first.scope)}" if first.scope else "",
        "path": _short(first.path),
        "op": first.op,
        "difference": first.difference,
    }


def fault(check: CheckResult, it: str = "it", symbol: str = "") -> str:
    """What is wrong, as in "rule of tanh for x is no derivative of it"."""
    kind = KINDS[check.kind]
    return f"{kind.mark} of {check.op} for {symbol or check.symbol} {kind.fault} {it}"


def mark(entry: Entry, check: CheckResult) -> str:
    """What its ✓ is of: nothing is said of an op of minigrad's, whose formulas tests hold."""
    kind = KINDS[check.kind]
    return "" if kind.silent and not entry.own_op else f"{kind.mark} "
