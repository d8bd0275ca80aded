"""The time and memory of single ops, forward and backward, beside PyTorch's.

Each engine works in a process of its own, and only one at a time; a figure is the least of
interleaved rounds: a neighbour that wants the machine can only add to it.
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from time import perf_counter, process_time, sleep
from typing import Any, NamedTuple

import numpy as np

from . import memory
from .clock import FAR
from .report import NONE, Report, number
from .single_ops import OPS

__all__ = ["Engine", "Figures", "compare", "figures_of", "measure_ops"]

REST = 0.1  # seconds for which an engine's threads may go on waiting for more work
RANDOM = ("dropout",)  # answers differ by what is drawn


class Figures(NamedTuple):
    """Of one step: seconds that passed, seconds of all cores, and bytes beyond what it is given."""

    wall: float
    cpu: float
    peak: float
    quiet: bool = True


class Engine:
    """minigrad (`path`: a checkout) or PyTorch in a process of its own."""

    def __init__(self, path: str | None) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, spawn)
        self._ask(_load, path)

    def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._process.submit(function, *args).result()

    def build(self, title: str) -> tuple[list[Any], float]:
        """Make the step: its result and gradients, and the bytes it takes at most."""
        answer: tuple[list[Any], float] = self._ask(_build, title)
        return answer

    def sample(self, least: float) -> tuple[float, float]:
        """Seconds of the fastest step among those of `least` seconds: wall, and of all cores."""
        found: tuple[float, float] = self._ask(_sample, least)
        return found

    def close(self) -> None:
        self._process.shutdown()


# ---------------------------------------------------------------- in the engine's own process

_engine: Any = None
_step: Callable[[], list[Any]]


def _load(path: str | None) -> None:
    global _engine
    if path is None:
        import torch

        _engine = torch
        return
    sys.path.insert(0, path)
    import minigrad

    _engine = minigrad


def _as_images(array: Any) -> Any:
    """(N, C, …) with its channels last in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def _build(title: str) -> tuple[list[Any], float]:
    global _step
    op = OPS[title]
    arrays, given = op.arrays()
    ours = _engine.__name__ == "minigrad"
    if ours and op.images:
        arrays[0] = _as_images(arrays[0])
    leaves: list[Any] = (
        [_engine.tensor(a, requires_grad=True) for a in arrays]
        if ours
        else [_engine.from_numpy(a).requires_grad_() for a in arrays]
    )
    others = given if ours else [_engine.from_numpy(a) for a in given]
    call = op.ours if ours else op.theirs
    out = call(_engine, *leaves, *others)
    g = np.random.default_rng(1).standard_normal(tuple(out.shape)).astype(np.float32)
    if ours and op.images:
        g = _as_images(g)
    gradient = g if ours else _engine.from_numpy(g)

    def step() -> list[Any]:
        for leaf in leaves:
            leaf.grad = None
        out = call(_engine, *leaves, *others)
        out.backward(gradient)
        return [out, *(leaf.grad for leaf in leaves)]

    _step = step
    answer = step()
    _release()
    peak = memory.growth(step)
    return [x if x.__class__ is np.ndarray else x.detach().numpy() for x in answer], peak


def _sample(least: float) -> tuple[float, float]:
    gc.collect()
    wall = cpu = float("inf")
    begun = perf_counter()
    while perf_counter() - begun < least:
        start = perf_counter(), process_time()
        _step()
        wall = min(wall, perf_counter() - start[0])
        cpu = min(cpu, process_time() - start[1])
    sleep(REST)
    return wall, cpu


def _release() -> None:
    """Give back what minigrad keeps to use again."""
    if _engine.__name__ == "minigrad" and "minigrad.fast.memory" in sys.modules:
        sys.modules["minigrad.fast.memory"].release()


# ---------------------------------------------------------------- both


def compare(title: str, answers: Sequence[list[Any]]) -> str:
    """What differs between two engines' answers, "" if nothing."""
    if title in RANDOM or len(answers) < 2:
        return ""
    for i, (ours, theirs) in enumerate(zip(*answers, strict=True)):
        error = np.max(np.abs(ours - theirs)) / max(1e-6, float(np.max(np.abs(theirs))))
        if not error < 1e-3:
            what = "the result" if i == 0 else f"the gradient of input {i - 1}"
            return f"{title}: {what} differs from PyTorch's by {error:.1e} of its largest entry"
    return ""


def measure_ops(
    titles: Iterable[str], path: str, rounds: int, least: float, say: Callable[[str], object]
) -> Report:
    """Wall and CPU time and memory of each op, and its time to PyTorch's, if that is here."""
    engines = {"minigrad": Engine(path)}
    if find_spec("torch"):
        engines["PyTorch"] = Engine(None)
    report = Report(
        "Single ops, forward and backward, float32",
        ["op", *(f"{what}, {who}" for what in ("ms", "CPU ms", "MiB") for who in engines), "ratio"],
        notes=[
            "ms: wall time, the least of interleaved rounds; CPU ms: of all threads; MiB: the "
            f"growth of {memory.METHODS[memory.method()].removeprefix('the ')}. "
            "~: other load made half of the rounds a quarter slower."
        ],
        data={},
    )
    try:
        for title in titles:
            say(f"ops: {title}")
            built = {who: one.build(title) for who, one in engines.items()}
            if wrong := compare(title, [answer for answer, _ in built.values()]):
                report.notes.append(wrong)
                continue
            samples: dict[str, list[tuple[float, float]]] = {who: [] for who in engines}
            for _ in range(rounds):
                for who, one in engines.items():
                    samples[who].append(one.sample(least))
            figures = [figures_of(samples[who], built[who][1]) for who in engines]
            report.data[title] = dict(zip(engines, [one._asdict() for one in figures], strict=True))
            report.rows.append([title, *_row(figures)])
    finally:
        for one in engines.values():
            one.close()
    return report


def figures_of(samples: list[tuple[float, float]], peak: float) -> Figures:
    """The least of each, and whether half of them are near it."""
    walls = [wall for wall, _ in samples]
    quiet = statistics.median(walls) < FAR * min(walls)
    return Figures(min(walls), min(cpu for _, cpu in samples), peak, quiet)


def _row(figures: list[Figures]) -> list[str]:
    walls = [number(1e3 * one.wall) + ("" if one.quiet else "~") for one in figures]
    cpus = [number(1e3 * one.cpu) for one in figures]
    peaks = [f"{one.peak / 2**20:.0f}" for one in figures]
    ratio = number(figures[0].wall / figures[-1].wall) if len(figures) > 1 else NONE
    return [*walls, *cpus, *peaks, ratio]
