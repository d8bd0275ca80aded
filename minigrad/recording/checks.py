"""Checks: what a run computed beside what it must be. One kind of object for all of them.

`KINDS` lists the kinds of checks: what measures a kind, and its words. The table, the
picture, the page, the derivation and JSON go through it, so that a kind added here is in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import Entry
    from .trace import TraceRecord

__all__ = ["BY_DERIVATIVE", "BY_HAND", "KINDS", "CheckKind", "CheckResult", "Checks"]

BY_HAND, BY_DERIVATIVE = "by hand", "by derivative"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One figure of a run beside what it must be; `difference` is None where none was measured."""

    kind: str  # its name in KINDS
    step: int | None  # the entry whose op, or whose gradient, it is of
    measured: float | None = None  # what the run has, where they differ most or in one direction
    expected: float | None = None
    difference: float | None = None  # relative
    tolerance: float = 0.0
    symbol: str = ""  # whose gradient it is: the op's input whose rule differs most, or a name
    scope: str = ""
    path: str = ""
    op: str = ""  # none of a layer's hand-derived step, which goes through several
    method: str = ""  # of a numeric derivative, such as "complex step"
    why: str = ""  # why nothing was measured
    fault: str = ""  # why it is wrong, if not for the reason that its kind has
    number: int = 0  # of the hand-derived step
    title: str = ""
    forward: str = ""
    formula: str = ""  # of the gradient, in LaTeX
    shape: tuple[int, ...] = ()
    rms: float | None = None  # of what the formula gives
    index: tuple[int, ...] = ()  # of the entry that differs most
    symbols: dict[str, int] = field(default_factory=dict)  # of the layer's call: symbol -> entry

    @property
    def ok(self) -> bool | None:
        """Whether the two agree; False for NaN, None where nothing was measured."""
        return None if self.difference is None else self.difference <= self.tolerance

    @property
    def excess(self) -> float:
        """The difference in units of what is allowed."""
        return (self.difference or 0.0) / self.tolerance


@dataclass(frozen=True)
class CheckKind:
    """A kind of check, and how views speak of it.

    The default sentences serve a kind that gives each backward step one result. They fill in the
    kind's own words; `count` were measured of `ran`, `wrong` of them differ, `most` is the largest
    difference, and `op`, `symbol`, `path`, `title` are those of the first that is wrong. What
    begins a sentence with the count, such as `gradients_equal`, is "1 gradient equals", say.
    """

    name: str
    mark: str = ""  # what is right where it agrees, as in "rule ✓"
    silent: bool = False  # whether the mark is left out beside an op that minigrad declares
    things: str = ""  # what is counted: "backward steps"
    what: str = ""  # of a step is compared: "backward"
    short: str = ""  # the same where room is scarce: "steps"
    against: str = ""  # "numeric derivatives"
    expected: str = ""  # one of them: "a numeric derivative"
    fault: str = ""  # "is no derivative of", which an op's name follows, or "it"
    beside: str = ""  # what a wrong result is measured from: " from a numeric one"
    missing: str = ""  # why a step has no result; empty if not every step has one
    # of an entry of a trace
    measure: Callable[[TraceRecord, Entry], CheckResult | None] | None = None

    agrees: str = "{count} of {ran} {things} agree with {against}, largest difference {most:.0e}"
    differs: str = (
        "{wrong} of {ran} {things} WRONG, first {path}: the {mark} of {op} for {symbol} {fault} "
        "it, relative difference {difference:.1e}"
    )
    nothing: str = ""  # where there are reasons why nothing was measured
    reasons: tuple[str, str, str] = (" (not measured: ", ", ", ")")  # what stands around them
    page_agrees: str = "{count} of {ran} {things} equal {against} of their ops.{reasons}"
    page_differs: str = (
        "{wrong} of {ran} {things} are WRONG, first {link} {op}: "
        "the {mark} for {symbol} {fault} it."
    )
    step_agrees: str = "Measured: equals {expected} of {op}"
    step_differs: str = "WRONG: the {mark} for {symbol} {fault} {op}"
    title_agrees: str = "its {what} agrees with {expected}"
    heading_agrees: str = "{count} {short} measured"
    heading_differs: str = "{wrong} of {count} {short} wrong"
    heading_nothing: str = "none of {ran} {short} could be measured"


KINDS = {
    kind.name: kind
    for kind in (
        CheckKind(
            BY_DERIVATIVE,
            mark="rule",
            silent=True,
            things="backward steps",
            what="backward",
            short="steps",
            against="numeric derivatives",
            expected="a numeric derivative",
            fault="is no derivative of",
            beside=" from a numeric one",
            missing="no numbers of it were kept",
            nothing="none of {ran} backward steps could be held against numeric derivatives",
            measure=lambda trace, entry: trace.measure_step(entry),
        ),
        CheckKind(
            BY_HAND,  # measured as layers declare them, by `Trace`
            agrees="{gradients_equal} the hand-derived steps, largest difference {most:.1e}",
            differs=(
                "{wrong} of {count} gradients differ from the hand-derived steps, first in step "
                "{number}, {title}: that of {symbol}{within}"
            ),
            nothing="no gradient was held against hand-derived steps",
            reasons=("; ", "; ", ""),
            page_agrees="{gradients_agree} with the formulas derived by hand.",
            page_differs=("{wrong} of {count} gradients differ from the formulas derived by hand."),
            heading_agrees="{formulas_agree}",
            heading_differs="{wrong} of {count} formulas differ",
        ),
    )
}
"""By name, in the order in which verdicts are given. A kind added here is in every view."""


class Checks(list[CheckResult]):
    """What a trace was held against; `ok` says whether it agrees, None where nothing was measured.

    Items are the gradients held against hand-derived steps; `steps` the backward steps held against
    numeric derivatives, in the order they ran, and `unchecked` how many were not, by the reason;
    `results` those of every kind.
    """

    def __init__(
        self,
        results: Iterable[CheckResult] = (),
        skipped: Iterable[str] = (),
        uncovered: Iterable[str] = (),
    ) -> None:
        self.results = list(results)
        super().__init__(self.of(BY_HAND))
        self.skipped = list(skipped)  # scopes of layers that no backward ran through
        self.uncovered = list(uncovered)  # calls with settings that hand-derived steps leave out
        self.broken = ""  # where NaN or infinity came first, if it did

    def of(self, kind: str) -> list[CheckResult]:
        """The results of one kind, measured or not."""
        return [result for result in self.results if result.kind == kind]

    def wrong(self, kind: str) -> list[CheckResult]:
        return [result for result in self.of(kind) if result.ok is False]

    @property
    def measured(self) -> list[CheckResult]:
        return [result for result in self if result.ok is not None]

    @property
    def steps(self) -> list[CheckResult]:
        return [result for result in self.of(BY_DERIVATIVE) if result.ok is not None]

    @property
    def unchecked(self) -> dict[str, int]:
        return dict(Counter(r.why for r in self.of(BY_DERIVATIVE) if r.ok is None))

    @property
    def agree(self) -> bool | None:
        """Whether all that was measured agrees; None where nothing was."""
        found = [result.ok for result in self.results if result.ok is not None]
        return all(found) if found else None

    @property
    def ok(self) -> bool | None:
        """Whether all that was measured agrees, without NaN; None where nothing was measured."""
        return False if self.broken else self.agree

    @property
    def first_wrong(self) -> CheckResult | None:
        return next(iter(self.wrong(BY_HAND)), None)

    @property
    def wrong_step(self) -> CheckResult | None:
        """The first backward step, as they ran, that its numeric derivative contradicts."""
        return next(iter(self.wrong(BY_DERIVATIVE)), None)
