"""What watching and tracing cost: `python -m benchmarks.watching [case …]`.

A training step is forward, backward and Adam in float32, eager or compiled. Watched: within
`mg.watch(every=10)`, with `flow.log`; time of ten steps over that of ten without. Traced: a whole
step within `mg.trace()` over one without; checked: `t.check(ops=True)` beside such a step. Both
sides take turns, and of each of the ten steps the least time over the rounds counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextvars import copy_context
from time import perf_counter
from typing import Any

import numpy as np

import minigrad as mg
from layers import LanguageModel, Linear, Module, Sequential
from minigrad.optim import Adam

from .clock import turns
from .training_models import CASES as TRAINING
from .training_models import Case

__all__ = ["CASES", "measure"]

EVERY = 10


def _small(**settings: Any) -> Module:
    widths = ((64, 128), (128, 128), (128, 10))
    first, second, last = (Linear(a, b, **settings) for a, b in widths)
    return Sequential(first, mg.relu, second, mg.relu, last)


def _gpt(**settings: Any) -> Module:
    return LanguageModel(256, 64, 4, 2, max_len=64, **settings)


CASES = {
    "small": Case("MLP 64-128-128-10, batch 128", _small, (128, 64)),
    "mlp": TRAINING["mlp"],
    "small gpt": Case("GPT 2 × 64, batch 4 × 64", _gpt, (4, 64), 256),
    "large mlp": TRAINING["large mlp"],
    "cnn": TRAINING["cnn"],
    "lstm": TRAINING["lstm"],
}


class _Run:
    """A model that trains, on the same batch again and again."""

    def __init__(self, case: Case, compiled: bool) -> None:
        self.model = case.make(rng=0, dtype=np.float32)
        self.given = case.batch(np.random.default_rng(0))
        self.optimizer = Adam(self.model.parameters(), lr=1e-4)
        self.step = mg.compile(self._step) if compiled else self._step
        self.flow: Any = None

    def _step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        out = self.model(mg.tensor(x) if x.dtype.kind == "f" else x)
        loss = mg.cross_entropy(out.reshape((-1, out.shape[-1])), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def take(self) -> float:
        began = perf_counter()
        loss = self.step(*self.given)
        if self.flow is not None:
            self.flow.log(loss=loss)
        return perf_counter() - began


def _least(rounds: int, runs: list[Callable[[], list[float]]]) -> list[list[float]]:
    """Of each run the least of each of its times."""
    found = turns(rounds, {str(i): run for i, run in enumerate(runs)})
    return [[min(times) for times in zip(*taken, strict=True)] for taken in found.values()]


def measure(case: Case, compiled: bool, rounds: int) -> tuple[float, float]:
    """Seconds of a step, and what watching multiplies it by."""
    plain, watched = _Run(case, compiled), _Run(case, compiled)
    own = copy_context()  # in which the watch listens, and nowhere else
    watch = mg.watch(watched.model, every=EVERY)

    def ten(run: _Run) -> list[float]:
        return [run.take() for _ in range(EVERY)]

    watched.flow = own.run(watch.__enter__)
    for _ in range(9):  # a compiled step's first calls, and its checks of itself
        ten(plain)
        own.run(ten, watched)
    plain_times, watched_times = _least(rounds, [lambda: ten(plain), lambda: own.run(ten, watched)])
    own.run(watch.__exit__)
    return sum(plain_times) / EVERY, sum(watched_times) / sum(plain_times)


def trace(case: Case, rounds: int) -> tuple[float, float]:
    """What tracing multiplies an eager step by, and what `check(ops=True)` adds to that."""
    run = _Run(case, compiled=False)

    def traced() -> list[float]:
        began = perf_counter()
        with mg.trace() as t:
            run.step(*run.given)
        ran = perf_counter() - began
        t.check(ops=True)
        return [ran, perf_counter() - began - ran]

    (plain,), (ran, checked) = _least(rounds, [lambda: [run.take()], traced])
    return ran / plain, checked / plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    head = f"{'case':34} {'eager ms':>9} {'watched':>8} {'compiled':>9} {'watched':>8}"
    print(f"{head} {'traced':>8} {'checked':>8}")
    for name in options.cases or CASES:
        case = CASES[name]
        eager = measure(case, False, options.rounds)
        compiled = measure(case, True, options.rounds)
        traced = trace(case, options.rounds)
        cells = f"{eager[0] * 1e3:9.2f} {eager[1]:8.3f} {compiled[0] * 1e3:9.2f} {compiled[1]:8.3f}"
        print(f"{case.title:34} {cells} {traced[0]:8.2f} {traced[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
