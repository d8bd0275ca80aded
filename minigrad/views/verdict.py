"""What a record was held against, in sentences: hand-derived steps, and numeric derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..recording.record import Checks
from .plain import one_line

__all__ = ["Verdict", "by_derivative", "by_hand", "by_value", "verdicts"]


class Verdict(NamedTuple):
    """A sentence, and whether what was measured agrees; None where nothing was."""

    said: str
    ok: bool | None

    @property
    def paint(self) -> str:
        return {True: "good", False: "alarm", None: "dim"}[self.ok]


def _short(name: str) -> str:
    return one_line(name, 60)


def verdicts(checks: Checks) -> list[Verdict]:
    """All that was measured, what is wrong first."""
    found = [by_value(checks), by_derivative(checks), by_hand(checks)]
    return sorted((one for one in found if one.ok is not None), key=lambda one: bool(one.ok))


def by_value(checks: Checks) -> Verdict:
    """Whether NaN or infinity came up."""
    if not checks.broken:
        return Verdict("", None)
    return Verdict(f"NaN or infinity in this run: {one_line(checks.broken, 120)}", False)


def by_derivative(checks: Checks) -> Verdict:
    """The backward steps against numeric derivatives of their own ops."""
    steps, wrong = checks.steps, checks.wrong_step
    ran = len(steps) + sum(checks.unchecked.values())
    reasons = (f"{count} {_short(why)}" for why, count in checks.unchecked.items())
    rest = f" (not measured: {', '.join(reasons)})" if checks.unchecked else ""
    if not ran:
        return Verdict("", None)
    if wrong is None:
        most = max((step.difference for step in steps), default=0.0)
        said = f"{len(steps)} of {ran} backward steps agree with numeric derivatives"
        return Verdict(f"{said}, largest difference {most:.0e}{rest}", True)
    count = sum(not step.ok for step in steps)
    said = (
        f"{count} of {ran} backward steps WRONG, first {_short(wrong.path)}: the rule of "
        f"{wrong.op} for {wrong.input} is no derivative of it, relative difference "
        f"{wrong.difference:.1e}{rest}"
    )
    return Verdict(said, False)


def by_hand(checks: Checks, quoted: Callable[[str], str] = _short) -> Verdict:
    """The gradients of layers against the steps derived by hand. Args: quoted: writes a name."""
    wrong, differences = checks.first_wrong, [c.difference for c in checks.measured if c.difference]
    left, skipped = len(checks) - len(differences), ", ".join(map(quoted, checks.skipped))
    rest = f"; {left} had nothing to be measured against" if left else ""
    rest += f"; no backward ran through {skipped}" if skipped else ""
    if not differences:
        return Verdict(f"no gradient was held against hand-derived steps{rest}" * bool(rest), None)
    if wrong is None:
        most = max(difference.relative for difference in differences)
        said = f"{len(differences)} gradients equal the hand-derived steps, largest difference"
        return Verdict(f"{said} {most:.1e}{rest}", True)
    count = sum(not difference.ok for difference in differences)
    where = f"step {wrong.number}, {quoted(wrong.title)}: that of {quoted(wrong.symbol)}"
    where += f" in {quoted(wrong.scope)}" if wrong.scope else ""
    said = f"{count} of {len(differences)} gradients differ from the hand-derived steps, first in"
    return Verdict(f"{said} {where}{rest}", False)
