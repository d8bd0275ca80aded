"""Contestants whose answers and times are given, so that nothing here depends on a clock."""

from collections.abc import Sequence

from benchmarks.answers import reference
from benchmarks.cases import Case


class Given:
    """A contestant that answers rightly and takes the times it is given, on an idle machine.

    `calls` lists, for all that share it, who was asked for a sample.
    """

    def __init__(self, name: str, times: Sequence[float] = (), calls: list | None = None):
        self.name, self.title, self.times = name, name, list(times)
        self.calls = [] if calls is None else calls

    def build(self, case: Case, dtype: str):
        return reference(case, dtype)

    def sample(self, seconds: float, patience: float) -> tuple[float, bool]:
        self.calls.append(self.name)
        return self.times.pop(0) if self.times else 1.0, True
