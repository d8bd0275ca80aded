"""The time and memory of single ops, forward and backward, beside PyTorch's.

Each engine works in a process of its own, and only one at a time; a figure is the least of
interleaved rounds: a neighbour that wants the machine can only add to it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from . import memory
from .clock import Times, is_quiet, least, turns
from .processes import Process
from .report import NONE, Report, number
from .single_ops import OPS

__all__ = ["Figures", "compare", "figures_of", "measure_ops"]

REST = 0.1  # seconds for which an engine's threads may go on waiting for more work


class Figures(NamedTuple):
    """Of one step: seconds that passed, seconds of all cores, and bytes beyond what it is given."""

    wall: float
    cpu: float
    peak: float
    quiet: bool = True


# ---------------------------------------------------------------- in the engine's own process

_engine: Any = None
_step: Callable[[], list[Any]]


def _load(name: str) -> None:
    global _engine
    _engine = import_module(name)


def _as_images(array: Any) -> Any:
    """(N, C, …) with its batch last in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)


def _build(title: str) -> tuple[list[Any], float]:
    global _step
    op = OPS[title]
    arrays, constants = op.arrays()
    ours = _engine.__name__ == "minigrad"
    if ours and op.images:
        arrays[0] = _as_images(arrays[0])
    leaves: list[Any] = (
        [_engine.tensor(a, requires_grad=True) for a in arrays]
        if ours
        else [_engine.from_numpy(a).requires_grad_() for a in arrays]
    )
    others = constants if ours else [_engine.from_numpy(a) for a in constants]
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
    peak = memory.growth(step)
    return [x if x.__class__ is np.ndarray else x.detach().numpy() for x in answer], peak


def _sample(seconds: float) -> Times:
    gc.collect()
    found = least(_step, seconds)
    sleep(REST)
    return found


# ---------------------------------------------------------------- both


def compare(title: str, answers: Sequence[list[Any]]) -> str:
    """What differs between two engines' answers, "" if nothing."""
    if len(answers) < 2:
        return ""
    for i, (ours, theirs) in enumerate(zip(*answers, strict=True)):
        error = np.max(np.abs(ours - theirs)) / max(1e-6, float(np.max(np.abs(theirs))))
        if not error < 1e-3:
            what = "the result" if i == 0 else f"the gradient of input {i - 1}"
            return f"{title}: {what} differs from PyTorch's by {error:.1e} of its largest entry"
    return ""


def measure_ops(
    titles: Iterable[str], rounds: int, seconds: float, say: Callable[[str], object]
) -> Report:
    """Wall and CPU time and memory of each op, and its time to PyTorch's, if that is here."""
    modules = {"minigrad": "minigrad"} | ({"PyTorch": "torch"} if find_spec("torch") else {})
    engines = {who: Process() for who in modules}
    report = Report(
        "Single ops, forward and backward, float32",
        ["op", *(f"{what}, {who}" for what in ("ms", "CPU ms", "MiB") for who in engines), "ratio"],
        notes=[
            "ms: wall time, the least of interleaved rounds; CPU ms: of all threads; MiB: the "
            f"growth of {memory.METHODS[memory.method()].removeprefix('the ')}. "
            "~: other load made half of the rounds a quarter slower."
        ],
    )
    try:
        for who, engine in engines.items():
            engine.ask(_load, modules[who])
        for title in titles:
            say(f"ops: {title}")
            built = {who: engine.ask(_build, title) for who, engine in engines.items()}
            if wrong := compare(title, [answer for answer, _ in built.values()]):
                report.notes.append(wrong)
                continue
            samples = turns(
                rounds, {w: partial(engine.ask, _sample, seconds) for w, engine in engines.items()}
            )
            figures = [figures_of(samples[who], built[who][1]) for who in engines]
            report.rows.append([title, *_row(figures)])
    finally:
        for engine in engines.values():
            engine.close()
    return report


def figures_of(samples: list[Times], peak: float) -> Figures:
    """The least of each, and whether half of them are near it."""
    walls, cpus = zip(*samples, strict=True)
    return Figures(min(walls), min(cpus), peak, is_quiet(walls))


def _row(figures: list[Figures]) -> list[str]:
    walls = [number(1e3 * figure.wall) + ("" if figure.quiet else "~") for figure in figures]
    cpus = [number(1e3 * figure.cpu) for figure in figures]
    peaks = [f"{figure.peak / 2**20:.0f}" for figure in figures]
    ratio = number(figures[0].wall / figures[-1].wall) if len(figures) > 1 else NONE
    return [*walls, *cpus, *peaks, ratio]
