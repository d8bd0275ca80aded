"""Training steps at sizes people train, beside PyTorch: `python -m benchmarks.training [case …]`.

A step is forward, backward and Adam in float32, PyTorch's as it is by default, not fused. Each
contestant has a process of its own, and they take turns; weights and data are the same, and losses
are compared before anything is timed. Wall time and CPU time are minimums over the rounds, in
milliseconds; memory is the peak of the resident set over the first nine steps, above what was there
before them, in MiB. With numba installed ops run as loops; `MINIGRAD_LOOPS=0` in the environment
measures without, and `--without gelu`, say, or `--without adam` without that one.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.engine.op import FASTER
from minigrad.fast.loops import IS_WANTED, load
from minigrad.fast.overlay import overlays_of

from . import memory
from .clock import Times, least, turns
from .processes import Process
from .training_models import CASES, Step, step_of

CONTESTANTS = ("PyTorch", "eager", "compiled")
FIRST = 9  # steps: of a compiled one, the recorded calls 1 and 2 and some that are not


_step: Step
_given: tuple[Any, Any]


def _leave_out(name: str) -> None:
    """Do without the loop of this op, or of Adam."""
    load()
    if name in FASTER:
        del FASTER[name]
    elif name:
        every = overlays_of(mg.registry[name]).every
        every[:] = [overlay for overlay in every if ".loops." not in overlay.when.__module__]


def _begin(who: str, name: str, without: str) -> tuple[list[float], float]:
    """Make the step and take it a few times: the losses, and the peak of memory in bytes."""
    global _step, _given
    if IS_WANTED:
        _leave_out(without)
    if who == "PyTorch":
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
    rng = np.random.default_rng(0)
    warm = CASES["mlp"]
    step_of(who.replace("compiled", "eager"), warm)(*warm.batch(rng))
    _step, _given = step_of(who, CASES[name]), CASES[name].batch(rng)
    losses: list[float] = []
    peak = memory.growth(lambda: losses.extend(_step(*_given).item() for _ in range(FIRST)))
    return losses, peak


def _time(seconds: float) -> Times:
    return least(lambda: _step(*_given), seconds)


def measure(
    name: str, rounds: int, contestants: tuple[str, ...], without: str = ""
) -> dict[str, tuple[float, ...]]:
    """Wall and CPU seconds of a step, and its peak of memory in bytes, by contestant."""
    processes = {who: Process() for who in contestants}
    try:
        begun = {who: process.ask(_begin, who, name, without) for who, process in processes.items()}
        for who, (losses, _) in begun.items():
            wanted = begun[contestants[0]][0]
            np.testing.assert_allclose(losses, wanted, rtol=1e-2, err_msg=f"{name}: {who}")
        calls = {who: partial(process.ask, _time, 0.25) for who, process in processes.items()}
        found = turns(rounds, calls)
        return {w: (*map(min, zip(*found[w], strict=True)), begun[w][1]) for w in contestants}
    finally:
        for process in processes.values():
            process.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=CONTESTANTS, choices=CONTESTANTS)
    parser.add_argument("--without", default="", help="an op, or adam, whose loop is left out")
    options = parser.parse_args()
    title = " ".join(f"{who:>9}" for who in options.only)
    print(f"{'wall ms, CPU ms, peak MiB':34} {title}   {title}   {title}", flush=True)
    for name in options.cases or CASES:
        found = measure(name, options.rounds, tuple(options.only), options.without)
        scales = (1e3, 1e3, 2**-20)
        columns = [
            " ".join(f"{found[who][k] * scales[k]:9.2f}" for who in options.only) for k in range(3)
        ]
        print(f"{CASES[name].title:34} {'   '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
