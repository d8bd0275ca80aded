"""The sections of the benchmark: each measures, and gives a Report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .cases import QUICK, TABLE, Case
from .ops import measure_ops
from .remote import Remote
from .report import Report, cell, number
from .rounds import BASE, Result, Settings, measure
from .single_ops import OPS

__all__ = [
    "SECTIONS",
    "Options",
    "say",
    "single_ops",
    "table",
]


LEGEND = (
    "Median of the rounds' ratios/ratio of the least times. "
    "minigrad: eager, every step a node; compiled: by mg.compile; tiled: attention as one node. "
    "~: disturbed by other load; –: there is no such step."
)
QUIET = 1.1  # the longest round of hand-best to its shortest, up to which nothing else ran


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    settings: Settings = field(default_factory=Settings)
    quick: bool = False
    cases: tuple[str, ...] = ()

    def chosen(self, pool: dict[str, Case], quick: Sequence[str]) -> list[Case]:
        """Those of the pool that were asked for; unless any was, all, or with --quick, a few."""
        names = self.cases or (quick if self.quick else pool)
        return [pool[name] for name in names if name in pool]


def table(remotes: Sequence[Remote], options: Options) -> Report:
    """One training step of every case, as ratios to hand-best."""
    others = [remote for remote in remotes if remote.name != BASE]
    report = Report(
        "Forward and backward: time as a ratio to the best NumPy written by hand",
        [f"case, {options.settings.dtype}", f"{BASE}, ms", *(remote.title for remote in others)],
        notes=[LEGEND],
    )
    results = _measured(options.chosen(TABLE, QUICK), remotes, options, report)
    for result in results:
        base = cell(result, BASE, result.seconds(BASE), 1e3)
        ratios = [cell(result, remote.name, result.ratio(remote.name)) for remote in others]
        for i, remote in enumerate(others):
            if result.samples.get(remote.name) and result.samples.get(BASE):
                ratios[i] += f"/{number(result.least_ratio(remote.name))}"
        report.rows.append([result.case.title, base, *ratios])
    worst = max(results, key=Result.spread, default=None)
    if worst is not None and worst.spread() > QUIET:
        report.notes.append(
            f"The machine was not quiet: {BASE} of {worst.case.title} took up to "
            f"{number(worst.spread())} times its least time."
        )
    return report


def single_ops(remotes: Sequence[Remote], options: Options) -> Report:
    """Each op by itself beside PyTorch's, in processes of their own."""
    rounds = 3 if options.quick else options.settings.rounds
    titles = [title for title in OPS if not options.cases or title in options.cases]
    return measure_ops(titles, rounds, 0.05 if options.quick else 0.15, say)


SECTIONS: dict[str, Callable[[Sequence[Remote], Options], Report]] = {
    "table": table,
    "ops": single_ops,
}


def _measured(
    cases: Sequence[Case], remotes: Sequence[Remote], options: Options, report: Report
) -> list[Result]:
    """Measure each case; failures become notes."""
    results = []
    for case in cases:
        say(case.title)
        result = measure(case, remotes, options.settings)
        results.append(result)
        titles = {remote.name: remote.title for remote in remotes}
        for name, why in result.failures.items():
            report.notes.append(f"{case.title}, {titles[name]}: {why}")
    return results


def say(what: str = "") -> None:
    """Show what is going on, or that nothing is any more, to who watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
