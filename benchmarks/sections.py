"""The sections of the benchmark: each measures, and gives a Report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from . import footprint, memory
from .cases import CHAINS, LENGTHS, QUICK, TABLE, Case, Chain
from .contestants import ENGINES
from .peers import Unsupported
from .remote import PeerError, Remote
from .report import NONE, Report, cell, number
from .rounds import BASE, Result, Settings, measure
from .spent import KINDS, OPTIMISER, PYTHON, Spent

__all__ = [
    "SECTIONS",
    "Options",
    "footprints",
    "memories",
    "nodes",
    "profile",
    "say",
    "scaling",
    "table",
]


LEGEND = (
    "minigrad: eager, every step a node; compiled: by mg.compile; tiled: attention as one node. "
    "~: disturbed by other load; –: there is no such step."
)


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    path: str  # of the minigrad to measure
    settings: Settings = field(default_factory=Settings)
    quick: bool = False
    cases: tuple[str, ...] = ()

    def chosen(self, pool: dict[str, Case], quick: Sequence[str]) -> list[Case]:
        """Those of the pool that were asked for; unless any was, all, or with --quick, a few."""
        names = self.cases or (quick if self.quick else pool)
        return [pool[name] for name in names if name in pool]


def table(remotes: Sequence[Remote], options: Options) -> Report:
    """One training step of every case, as ratios to hand-best."""
    others = [one for one in remotes if one.name != BASE]
    report = Report(
        "Forward and backward: time as a ratio to the best NumPy written by hand",
        [f"case, {options.settings.dtype}", f"{BASE}, ms", *(one.title for one in others)],
        notes=[LEGEND],
    )
    results = _measured(options.chosen(TABLE, QUICK), remotes, options, report)
    for result in results:
        base = cell(result, BASE, result.seconds(BASE), 1e3)
        ratios = [cell(result, one.name, result.ratio(one.name)) for one in others]
        report.rows.append([result.case.title, base, *ratios])
    return report


def nodes(remotes: Sequence[Remote], options: Options) -> Report:
    """What a node costs beyond the NumPy work it stands for."""
    some = _only(remotes, BASE, "eager", "compiled", "torch", "autograd")
    others = [one for one in some if one.name != BASE]
    report = Report(
        "The engine's own cost: µs a node, forward and backward, beyond bare NumPy's",
        [f"4×4, {options.settings.dtype}", "bare NumPy", *(one.title for one in others)],
    )
    for result in _measured(options.chosen(CHAINS, tuple(CHAINS)), some, options, report):
        assert isinstance(result.case, Chain)
        scale = 1e6 / result.case.nodes
        bare = cell(result, BASE, result.seconds(BASE), scale)
        beyond = [cell(result, one.name, result.beyond(one.name), scale) for one in others]
        report.rows.append([result.case.title, bare, *beyond])
    for one in _only(remotes, "eager"):
        count = 100_000 if options.quick else 1_000_000
        try:
            taken = report.data[f"chain of {count}"] = one.long_chain(count)
        except PeerError as error:
            report.notes.append(f"A chain of {count:,} additions: {error}")
            continue
        parts = ", ".join(f"{number(1e6 * s / count)} {what}" for what, s in taken.items())
        report.notes.append(f"A chain of {count:,} additions takes, in µs a node: {parts}.")
    return report


def scaling(remotes: Sequence[Remote], options: Options) -> Report:
    """How time grows when a sequence doubles: by 4, once the scores are most of the work."""
    lengths = [1024, 2048] if options.quick else [1024, 2048, 4096, 8192]
    some = _only(remotes, BASE, *ENGINES, "torch-sdpa")
    report = Report(
        "Time as n doubles (single head, causal, d 64)",
        [options.settings.dtype, f"n = {lengths[0]}, ms", *(f"to {n}" for n in lengths[1:])],
    )
    results = _measured([LENGTHS[n] for n in lengths], some, options, report)
    for one in some:
        row = [one.title, cell(results[0], one.name, results[0].seconds(one.name), 1e3)]
        for shorter, longer in pairwise(results):
            row.append(cell(longer, one.name, longer.growth(one.name, shorter)))
            row[-1] = f"×{row[-1]}" if row[-1][0].isdigit() else row[-1]
        report.rows.append(row)
    return report


def memories(remotes: Sequence[Remote], options: Options) -> Report:
    """What a step needs beyond its inputs, as sequences grow."""
    lengths = [1024, 4096] if options.quick else [1024, 2048, 4096, 8192]
    report = Report(
        "Memory a step needs beyond its inputs, MiB (single head, causal, d 64)",
        [options.settings.dtype, *(f"n = {n}" for n in lengths)],
        notes=[f"Measured, in a fresh process each: {memory.METHODS[memory.method()]}."],
        data={"method": memory.method(), "bytes": {}},
    )
    for one in _only(remotes, BASE, *ENGINES, "torch", "torch-sdpa"):
        row, taken = [one.title], report.data["bytes"].setdefault(one.name, {})
        for n in lengths:
            say(f"memory, n = {n}: {one.title}")
            fresh = Remote(one.peer)
            try:
                fresh.load()
                taken[n] = fresh.memory(LENGTHS[n], options.settings.dtype)
                row.append(f"{taken[n] / 2**20:.0f}")
            except PeerError as error:
                row.append("failed")
                report.notes.append(f"{one.title}, n = {n}: {error}")
            finally:
                fresh.close()
        report.rows.append(row)
    return report


def profile(remotes: Sequence[Remote], options: Options) -> Report:
    """What a step of minigrad spends its time on."""
    default = ("tiny", "m-1k") if options.quick else ("tiny", "medium", "m-1k", "gpt")
    found: dict[str, Spent] = {}
    failed: list[str] = []
    for case in [TABLE[name] for name in options.cases or default if name in TABLE]:
        for one in _only(remotes, *ENGINES):
            say(f"profile: {case.name}, {one.title}")
            seconds = 0.5 if options.quick else 3.0
            title = f"{case.name}, {one.title}"
            try:
                found[title] = one.spent(case, options.settings.dtype, seconds)
            except (PeerError, Unsupported) as error:
                failed.append(f"{title}: {error}")
    kinds = [k for k in (*KINDS, OPTIMISER, PYTHON) if any(k in s.shares for s in found.values())]
    report = Report("What a step spends its time on, %", ["", *kinds, "ms", "cores", "faults"])
    for title, spent in found.items():
        shares = [f"{100 * spent.shares[k]:.0f}" if k in spent.shares else NONE for k in kinds]
        rest = [number(spent.cores), f"{spent.faults:.0f}"]
        ms = number(1e3 * spent.seconds) + ("" if spent.quiet else "~")
        report.rows.append([title, *shares, ms, *rest])
    report.notes = [
        "A listener times each kernel and each backward rule, its whole call; of a compiled step, "
        "each line is timed, which adds 0.2 µs to it and so hides what Python takes of the tiny; "
        "its softmax is written out, and shows as its parts. What these leave of an unwatched step "
        "is Python: recording, the traversal, sums on edges. Cores: busy on average. Faults: pages "
        "of memory that the kernel had to provide, a step.",
        *failed,
    ]
    report.data = {title: asdict(spent) for title, spent in found.items()}
    return report


def footprints(remotes: Sequence[Remote], options: Options) -> Report:
    """Import time and installed size."""
    ours = "minigrad + layers"
    modules = {ours: "minigrad, layers"} | {
        title: module
        for name, title, module in (
            ("torch", "PyTorch", "torch"),
            ("jax", "JAX", "jax.numpy"),
            ("autograd", "autograd", "autograd.numpy"),
        )
        if _only(remotes, name)
    }
    say("footprint: importing in fresh interpreters")
    seconds = footprint.imports(options.path, modules, 3 if options.quick else 15)
    packages = ["minigrad", *footprint.dependencies(options.path)]
    sizes = {name: footprint.size(options.path, name) for name in packages}
    report = Report("Weight: import time beyond NumPy's, and size on disk", ["", "ms", "MB"])
    for name in modules:
        mine = f"{sum(filter(None, sizes.values())) / 1e6:.1f}" if name == ours else NONE
        report.rows.append([name, number(1e3 * seconds[name]), mine])
    parts = ", ".join(
        f"{name} {'not installed' if size is None else f'{size / 1e6:.1f}'}"
        for name, size in sizes.items()
    )
    report.notes = [
        f"Of the MB, with bytecode, without NumPy: {parts}.",
        f"NumPy's own import: {1e3 * seconds['NumPy']:.0f} ms.",
    ]
    report.data = {"import seconds": seconds, "bytes": sizes}
    return report


SECTIONS: dict[str, Callable[[Sequence[Remote], Options], Report]] = {
    "table": table,
    "nodes": nodes,
    "scaling": scaling,
    "memory": memories,
    "profile": profile,
    "footprint": footprints,
}


def _only(remotes: Sequence[Remote], *names: str) -> list[Remote]:
    return [one for one in remotes if one.name in names]


def _measured(
    cases: Sequence[Case], remotes: Sequence[Remote], options: Options, report: Report
) -> list[Result]:
    """Measure each case; failures become notes, everything becomes data."""
    results = []
    for case in cases:
        say(case.title)
        result = measure(case, remotes, options.settings)
        results.append(result)
        titles = {one.name: one.title for one in remotes}
        for name, why in result.failures.items():
            report.notes.append(f"{case.title}, {titles[name]}: {why}")
    report.data = {"cases": [result.data() for result in results]}
    return results


def say(what: str = "") -> None:
    """Show what is going on, or that nothing is any more, to who watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
