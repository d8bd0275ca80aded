"""What a record was held against, in sentences: hand-derived steps, and numeric derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plain import one_line

if TYPE_CHECKING:
    from ..recording.record import Checks

__all__ = ["by_derivative", "by_hand", "verdict"]

WIDEST = 60  # characters of a name in a sentence


def verdict(checks: Checks) -> tuple[str, bool]:
    """All that was measured, and whether all of it agrees; no words if nothing was."""
    parts = [by_derivative(checks), by_hand(checks)]
    wrong_first = sorted(parts, key=lambda part: part[1])
    return "; ".join(said for said, _ in wrong_first if said), all(ok for _, ok in parts)


def by_derivative(checks: Checks) -> tuple[str, bool]:
    """The backward steps against numeric derivatives of their own ops."""
    steps, wrong = checks.steps, checks.wrong_step
    ran = len(steps) + sum(checks.unchecked.values())
    reasons = (f"{count} {one_line(why, WIDEST)}" for why, count in checks.unchecked.items())
    rest = f" (not measured: {', '.join(reasons)})" if checks.unchecked else ""
    if not ran:
        return "", True
    if wrong is None:
        most = max((step.difference for step in steps), default=0.0)
        said = f"{len(steps)} of {ran} backward steps agree with numeric derivatives"
        return f"{said}, largest difference {most:.0e}{rest}", True
    count = sum(not step.ok for step in steps)
    return (
        f"{count} of {ran} backward steps WRONG, first {one_line(wrong.path, WIDEST)}: the rule of "
        f"{wrong.op} for {wrong.input} is no derivative of it, relative difference "
        f"{wrong.difference:.1e}{rest}"
    ), False


def by_hand(checks: Checks) -> tuple[str, bool]:
    """The gradients of layers against the steps derived by hand."""
    wrong, measured = checks.first_wrong, checks.measured
    skipped = ", ".join(one_line(scope, WIDEST) for scope in checks.skipped)
    rest = f"; not checked, as no backward ran through it: {skipped}" if skipped else ""
    if wrong is None:
        said = f"{len(measured)} gradients equal the hand-derived steps{rest}"
        return said if measured else "", True
    differ = sum(not check.difference.ok for check in measured if check.difference)
    where = f"step {wrong.number}, {one_line(wrong.title, WIDEST)}"
    return (
        f"{differ} of {len(measured)} gradients differ from the hand-derived steps, first in "
        f"{where}: that of {one_line(wrong.symbol, WIDEST)}{rest}"
    ), False
