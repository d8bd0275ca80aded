"""Tokens a second of a small GPT, beside the same in NumPy and PyTorch.

    python -m benchmarks.generation             some two minutes
    python -m benchmarks.generation --quick     half of one

Weights are the same, the tokens are the likeliest; they are compared before anything is timed. The
contestants take turns in one process, one thread each, and seconds are those of the processor: a
figure is the fastest of all rounds, a ratio the median over rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from layers import LanguageModel, generate

from .clock import least, turns
from .generation_peers import in_numpy, in_torch

__all__ = ["main"]

HEADS, PROMPT, NEW, BATCHES = 4, 16, 128, (1, 8)
BASE = "plain NumPy"


def gpt() -> LanguageModel:
    """0.86 M parameters, in float32."""
    model = LanguageModel(
        256, 128, HEADS, n_layers=4, max_len=256,
        activation="gelu_tanh", use_bias=True, rng=0, dtype=np.float32,
    ).eval()  # fmt: skip
    rng = np.random.default_rng(1)
    for parameter in model.parameters():  # biases too, and logits that are apart
        drawn = rng.normal(0, 0.02, parameter.shape).astype(np.float32)
        parameter.assign_(2 * parameter.numpy() + drawn)
    return model


def ours(model: Any) -> Callable[[Any, int], Any]:
    return lambda prompt, count: np.stack(list(generate(model, prompt, count)), axis=1)


def contestants() -> dict[str, Callable[[Any, int], Any]]:
    model = gpt()
    found = {"minigrad": ours(model), BASE: in_numpy(model, HEADS)}
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        found["PyTorch"] = in_torch(model, HEADS)
    return found


def measure(batch: int, rounds: int, found: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each call, by contestant."""
    prompt = np.random.default_rng(2).integers(0, 256, (batch, PROMPT))
    tokens = {who: run(prompt, NEW) for who, run in found.items()}
    for who, mine in tokens.items():
        np.testing.assert_array_equal(mine, tokens[BASE], err_msg=who)
    calls = {who: partial(least, partial(run, prompt, NEW), 0) for who, run in found.items()}
    return {who: [timed.cpu for timed in times] for who, times in turns(rounds, calls).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds = 3 if parser.parse_args().quick else 9
    found = contestants()
    print(f"tokens a second, {NEW} after a prompt of {PROMPT}, and the ratio to {BASE}")
    with threadpool_limits(1):
        for batch in BATCHES:
            seconds = measure(batch, rounds, found)
            print(f"batch of {batch}")
            for who, mine in seconds.items():
                ratio = statistics.median(b / a for a, b in zip(mine, seconds[BASE], strict=True))
                print(f"  {who:12} {batch * NEW / min(mine):8.0f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
