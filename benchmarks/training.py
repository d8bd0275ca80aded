"""Training steps at sizes people train, beside PyTorch: `python -m benchmarks.training [case …]`.

A step is forward, backward and Adam in float32. Each contestant has a process of its own, and they
take turns; weights and data are the same, and losses are compared before anything is timed. Wall
time and CPU time are minimums over the rounds, in milliseconds; memory is the peak of the resident
set over the first nine steps, above what was there before them, in MiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter, process_time
from typing import Any

import numpy as np

from . import memory, worker
from .training_models import CASES, Step, step_of

CONTESTANTS = ("PyTorch", "eager", "compiled")
FIRST = 9  # steps until the audits of calls 2, 4 and 8 are over


class _Training:
    """What a contestant's process does when asked."""

    step: Step
    given: tuple[Any, Any]

    def begin(self, who: str, name: str) -> tuple[list[float], float]:
        """Make the step and take it a few times: the losses, and the peak of memory in bytes."""
        if who == "PyTorch":
            import torch

            torch.set_num_threads(len(os.sched_getaffinity(0)))
        rng = np.random.default_rng(0)
        warm = CASES["mlp"]
        step_of(who.replace("compiled", "eager"), warm)(*warm.batch(rng))
        self.step, self.given = step_of(who, CASES[name]), CASES[name].batch(rng)
        losses: list[float] = []

        def first() -> None:
            losses.extend(self.step(*self.given).item() for _ in range(FIRST))

        peak = memory.growth(first)
        return losses, peak

    def time(self, seconds: float) -> tuple[float, float]:
        """The least wall and CPU seconds of a step, over about so many seconds."""
        least, began = (float("inf"), float("inf")), perf_counter()
        while perf_counter() - began < seconds:
            wall, cpu = perf_counter(), process_time()
            self.step(*self.given)
            wall, cpu = perf_counter() - wall, process_time() - cpu
            least = min(least[0], wall), min(least[1], cpu)
        return least


_training = _Training()


def _answer(name: str, *args: Any) -> Any:
    return getattr(_training, name)(*args)


def measure(name: str, rounds: int, contestants: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    """Wall and CPU seconds of a step, and its peak of memory in bytes, by contestant."""
    spawn = multiprocessing.get_context("spawn")
    processes = {who: ProcessPoolExecutor(1, spawn, worker.quiet) for who in contestants}
    try:
        begun = {
            who: p.submit(_answer, "begin", who, name).result() for who, p in processes.items()
        }
        for who, (losses, _) in begun.items():
            wanted = begun[contestants[0]][0]
            np.testing.assert_allclose(losses, wanted, rtol=1e-2, err_msg=f"{name}: {who}")
        found = {who: (float("inf"), float("inf")) for who in contestants}
        for _ in range(rounds):
            for who, process in processes.items():
                mine = process.submit(_answer, "time", 0.25).result()
                found[who] = min(found[who][0], mine[0]), min(found[who][1], mine[1])
        return {who: (*found[who], begun[who][1]) for who in contestants}
    finally:
        for process in processes.values():
            process.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=CONTESTANTS, choices=CONTESTANTS)
    given = parser.parse_args()
    title = " ".join(f"{who:>9}" for who in given.only)
    print(f"{'wall ms, CPU ms, peak MiB':34} {title}   {title}   {title}", flush=True)
    for name in given.cases or CASES:
        found = measure(name, given.rounds, tuple(given.only))
        scales = (1e3, 1e3, 2**-20)
        columns = [
            " ".join(f"{found[who][k] * scales[k]:9.2f}" for who in given.only) for k in range(3)
        ]
        print(f"{CASES[name].title:34} {'   '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
