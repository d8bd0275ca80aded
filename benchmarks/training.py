"""A training step of four models, beside the same in PyTorch: `python -m benchmarks.training`.

Weights, data and optimizer (Adam) are the same; losses are compared before anything is timed. The
contestants take turns in one process, one BLAS thread each; a figure is the median over rounds of
the ratio to PyTorch's step in the same round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import minigrad as mg
from layers import LSTM, Conv2d, LanguageModel, Linear, MaxPool2d, Module, Sequential
from minigrad.optim import Adam

BATCH, LETTERS = 32, 61
Step = Callable[..., Any]


class Tagger(Module):
    """An LSTM over 50 steps, and what comes next after the last."""

    def __init__(self, **settings: Any) -> None:
        self.lstm, self.out = LSTM(16, 64, **settings), Linear(64, 10, **settings)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[:, -1])


def mlp(**settings: Any) -> Sequential:
    sizes = ((64, 128), (128, 64), (64, 10))
    first, second, last = (Linear(a, b, **settings) for a, b in sizes)
    return Sequential(first, mg.relu, second, mg.relu, last)


def cnn(**settings: Any) -> Sequential:
    return Sequential(
        Conv2d(1, 16, 3, padding=1, **settings), mg.relu, MaxPool2d(2),
        Conv2d(16, 32, 3, padding=1, **settings), mg.relu, MaxPool2d(2),
        lambda x: x.reshape(-1, 32 * 16), Linear(32 * 16, 10, **settings),
    )  # fmt: skip


def gpt(**settings: Any) -> LanguageModel:
    return LanguageModel(LETTERS, 64, n_heads=4, n_layers=2, max_len=32, **settings)


MODELS: dict[str, Callable[..., Module]] = {"mlp": mlp, "cnn": cnn, "lstm": Tagger, "gpt": gpt}
SHAPES = {"mlp": (64,), "cnn": (1, 16, 16), "lstm": (50, 16)}


def batch(name: str, rng: np.random.Generator, dtype: Any) -> tuple[Any, Any]:
    """What a step is given: inputs and classes, or tokens and the next ones."""
    if name == "gpt":
        tokens = rng.integers(0, LETTERS, (BATCH, 33))
        return tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1).copy()
    return rng.normal(size=(BATCH, *SHAPES[name])).astype(dtype), rng.integers(0, 10, BATCH)


def ours(model: Module) -> Step:
    """One step of training: the loss as a Tensor."""
    optimizer = Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        loss = mg.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def theirs(name: str, model: Module) -> Step:
    """The same in PyTorch, from copies of the model's weights."""
    import torch
    from torch import nn

    def copy(target: Any, source: Any) -> None:
        with torch.no_grad():
            target.copy_(torch.from_numpy(np.array(source)))

    def affine(source: Any) -> Any:
        d_in, d_out = source.W.shape
        made = nn.Linear(d_in, d_out, dtype=dtype)
        copy(made.weight, source.W.numpy().T)
        copy(made.bias, source.b.numpy())
        return made

    def convolution(source: Any) -> Any:
        d_out, d_in, *size = source.weight.shape
        made = nn.Conv2d(d_in, d_out, tuple(size), padding=1, dtype=dtype)
        copy(made.weight, source.weight.numpy())
        copy(made.bias, source.bias.numpy())
        return made

    first: Any = model.parameters()[0]
    dtype = getattr(torch, str(first.dtype))
    forward: Step
    if name == "lstm":
        kept: Any = model
        lstm = nn.LSTM(16, 64, batch_first=True, dtype=dtype)
        cell = next(module for module in kept.lstm.modules() if hasattr(module, "weight_ih"))
        for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            copy(getattr(lstm, f"{key}_l0"), getattr(cell, key).numpy())
        out = affine(kept.out)
        forward, parts = lambda x: out(lstm(x)[0][:, -1]), [lstm, out]
    elif name == "gpt":
        from .training_gpt import torch_gpt

        made = torch_gpt(model, dtype, affine, copy)
        forward, parts = made, [made]
    else:
        made_of = {Linear: affine, Conv2d: convolution, MaxPool2d: lambda x: nn.MaxPool2d(2)}
        listed: Any = model
        net = nn.Sequential(
            *[
                made_of[type(x)](x) if type(x) in made_of
                else nn.ReLU() if x is mg.relu else nn.Flatten()
                for x in listed.layers
            ]
        )  # fmt: skip
        forward, parts = net, [net]
    optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = forward(torch.from_numpy(x))
        logits = logits.reshape(-1, logits.shape[-1])
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        return loss

    return step


def contestants(name: str, dtype: Any) -> dict[str, Step]:
    """Steps that begin at the same weights."""
    drawn = [MODELS[name](rng=0, dtype=dtype) for _ in range(3)]
    compiled = mg.compile(ours(drawn[1]))
    return {"minigrad": ours(drawn[0]), "compiled": compiled, "PyTorch": theirs(name, drawn[2])}


def measure(name: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of a step, and the ratio to PyTorch's, by contestant."""
    steps, rng = contestants(name, np.float32), np.random.default_rng(0)
    losses = {who: [] for who in steps}  # type: dict[str, list[float]]
    for _ in range(5):
        x, y = batch(name, rng, np.float32)
        for who, step in steps.items():
            losses[who].append(step(x, y).item())
    for who, found in losses.items():
        np.testing.assert_allclose(found, losses["PyTorch"], rtol=1e-3, err_msg=f"{name}: {who}")
    times = {who: [] for who in steps}  # type: dict[str, list[float]]
    for _ in range(rounds):
        x, y = batch(name, rng, np.float32)
        for who, step in steps.items():
            began, count = perf_counter(), 0
            while perf_counter() - began < 0.1:
                step(x, y)
                count += 1
            times[who].append((perf_counter() - began) / count * 1e3)
    return {
        who: (
            statistics.median(mine),
            statistics.median(a / b for a, b in zip(mine, times["PyTorch"], strict=True)),
        )
        for who, mine in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    print(f"{'model':6} {'PyTorch, ms':>12} {'minigrad':>9} {'compiled':>9}   ratios to PyTorch")
    with threadpool_limits(1):
        for name in MODELS:
            found = measure(name, given.rounds)
            ratios = [f"{found[who][1]:9.2f}" for who in ("minigrad", "compiled")]
            print(f"{name:6} {found['PyTorch'][0]:12.2f} {' '.join(ratios)}")


if __name__ == "__main__":
    main()
