"""What the checks of one op or layer found, and all of it as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..views.plain import one_line
from ..views.terminal import Paint

__all__ = ["CheckResult", "ResultLines"]

NAME, METHOD = "op or layer", 19
MOST_FAILURES = 3  # shown of one op


@dataclass
class CheckResult:
    """What the checks of one op or layer found; only what `measured` counts was compared."""

    name: str
    method: str = ""
    samples: int = 0
    measured: int = 0
    worst: float = 0.0  # relative error
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was measured and all of it agrees."""
        return self.measured > 0 and not self.failures

    def note(self, error: float) -> None:
        """Keep the largest error; NaN counts as infinite."""
        self.worst = max(self.worst, error) if error == error else float("inf")

    def broke(self, where: str, error: Exception) -> None:
        """A check that could not even be made."""
        self.note(float("inf"))
        first = one_line((str(error).splitlines() or [""])[0])
        self.failures.append(f"{where}: {type(error).__name__}: {first}")


class ResultLines:
    """Lines for results as they come in, for a terminal so wide."""

    def __init__(self, names: Sequence[str], width: int) -> None:
        self.longest = max(len(name) for name in [*names, NAME])
        self.method = width >= self.longest + METHOD + 26
        self.width, self.paint = max(width, 20), Paint()

    def head(self) -> str:
        return self._line(NAME, "method", "samples", "worst error", "")

    def row(self, result: CheckResult) -> str:
        mark = self.paint("good", "✓") if result.ok else self.paint("alarm", "✗")
        samples, worst = str(result.samples), f"{result.worst:.1e}"
        return self._line(result.name, result.method, samples, worst, mark)

    def failures(self, result: CheckResult) -> list[str]:
        """Where it disagrees: its first failures, and how many there are besides."""
        shown = result.failures[:MOST_FAILURES]
        lines = [self._painted("alarm", f"✗ {result.name}: {failure}") for failure in shown]
        more = len(result.failures) - len(shown)
        return lines + ([f"  {result.name}: {more} more of its samples disagree"] if more else [])

    def verdict(self, done: Sequence[CheckResult], layers: int, order: int, seed: int) -> str:
        """What all of it comes to."""
        ops = len(done) - layers
        what = f"{ops} op{'s' * (ops != 1)}" + (f" and {layers} layers" if layers else "")
        wrong = [result.name for result in done if not result.ok]
        if wrong:
            return self._painted("alarm", f"{len(wrong)} of {what} disagree: {', '.join(wrong)}")
        samples = sum(result.samples for result in done)
        orders = "first and second order" if order == 2 else "first order"
        return self._painted("good", f"{what} agree on {samples} samples, {orders}, seed {seed}")

    def _line(self, name: str, method: str, samples: str, worst: str, mark: str) -> str:
        how = f"{method:<{METHOD}}  " if self.method else ""
        return f"{name:<{self.longest}}  {how}{samples:>7}  {worst:>11}  {mark}"

    def _painted(self, kind: str, text: str) -> str:
        lines = textwrap.wrap(text, self.width, subsequent_indent="  ", break_on_hyphens=False)
        return "\n".join(self.paint(kind, line) for line in lines)
