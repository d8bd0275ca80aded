"""Training problems planted in an MLP, a CNN, an LSTM and a GPT, and what `flow.diagnose()` says.

    python -m benchmarks.training_problems --seeds 20

prints a table: of how many seeds each problem was found, and what was said of the healthy twins.
The five are those of AutoTrainer (Zhang et al. 2021): vanishing and exploding gradients, dying
relu, oscillating loss, slow convergence.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

import minigrad as mg
from layers import Linear, Module, MultiHeadAttention
from minigrad.optim import SGD, Adam
from minigrad.watching import Flow

__all__ = ["MODELS", "PROBLEMS", "train"]

BATCH = 32


class Settings:
    """Of a model and its training. gain: of the weights. shift: of the biases before relu."""

    def __init__(self, **given: Any) -> None:
        self.activation: Any = mg.relu
        self.depth, self.gain, self.shift, self.residual = 3, 1.0, 0.0, True
        self.lr, self.steps, self.optimizer = 3e-3, 80, Adam
        vars(self).update(given)


def prepared(model: Module, s: Settings, rng: np.random.Generator) -> None:
    """He's weights, times the gain; the shift on every bias that stands before an activation."""
    for name, p in model.named_parameters():
        if p.ndim > 1 and "embed" not in name:
            p.assign_(rng.normal(size=p.shape) * s.gain * np.sqrt(1.6 / p.shape[0]))
        elif s.shift and "hidden" in name:
            p.assign_(np.full(p.shape, s.shift))


class MLP(Module):
    """Six numbers to three classes: which of three centres is nearest."""

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        widths = [6, *[16] * s.depth]
        self.hidden = [Linear(m, n, rng=rng) for m, n in pairwise(widths)]
        self.out, self.f = Linear(16, 3, rng=rng), s.activation
        prepared(self, s, rng)
        self.centres = np.random.default_rng(7).normal(size=(3, 6))

    def forward(self, x: Any) -> Any:
        for layer in self.hidden:
            x = self.f(layer(x))
        return self.out(x)

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any]:
        x = rng.normal(size=(BATCH, 6))
        return x, (x @ self.centres.T).argmax(axis=1)


class CNN(Module):
    """Pictures of 6 × 6, with a horizontal or a vertical bar, or none."""

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        widths = [1, *[8] * s.depth]
        self.hidden = [Linear(9 * m, n, rng=rng) for m, n in pairwise(widths)]
        self.out, self.f = Linear(8 * 9, 3, rng=rng), s.activation
        prepared(self, s, rng)

    def forward(self, x: Any) -> Any:
        for layer in self.hidden:  # 3 × 3 convolutions, channels last
            x = mg.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            around = [x[:, i : i + 6, j : j + 6] for i in range(3) for j in range(3)]
            x = self.f(layer(mg.concatenate(around, axis=-1)))
        x = x.reshape((BATCH, 3, 2, 3, 2, 8)).mean(axis=(2, 4))
        return self.out(x.reshape((BATCH, 72)))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any]:
        kind, at = rng.integers(3, size=BATCH), rng.integers(6, size=BATCH)
        x = rng.normal(0, 0.3, size=(BATCH, 6, 6, 1))
        for k in range(BATCH):
            if kind[k] < 2:
                (x[k] if kind[k] else x[k].swapaxes(0, 1))[at[k]] += 2
        return x, kind


class LSTM(Module):
    """Sixteen numbers one after the other: is their sum positive?"""

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        self.gates = Linear(1 + 12, 48, rng=rng)
        self.hidden, self.out, self.f = (
            Linear(12, 12, rng=rng),
            Linear(12, 2, rng=rng),
            s.activation,
        )
        prepared(self, s, rng)
        bias = np.zeros(48)
        bias[12:24] = s.forget if hasattr(s, "forget") else 2.0
        self.gates.b.assign_(bias)

    def forward(self, x: Any) -> Any:
        h = c = mg.tensor(np.zeros((BATCH, 12)))
        for t in range(x.shape[1]):
            z = self.gates(mg.concatenate([x[:, t : t + 1], h], axis=1))
            i, f, o = (mg.sigmoid(z[:, k : k + 12]) for k in (0, 12, 24))
            c = f * c + i * mg.tanh(z[:, 36:])
            h = o * mg.tanh(c).named("h")
        return self.out(self.f(self.hidden(h)))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any]:
        x = rng.normal(size=(BATCH, 16))
        return x, (x.sum(axis=1) > 0).astype(int)


class Block(Module):
    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        self.attention = MultiHeadAttention(16, 2, rng=rng)
        self.hidden, self.back = Linear(16, 32, rng=rng), Linear(32, 16, rng=rng)
        self.f, self.residual = s.activation, s.residual

    def forward(self, x: Any, mask: Any) -> Any:
        if not self.residual:
            return self.back(self.f(self.hidden(self.attention(x, mask))))
        x = x + self.attention(mg.rms_norm(x, np.ones(16)), mask)
        return x + self.back(self.f(self.hidden(mg.rms_norm(x, np.ones(16)))))


class GPT(Module):
    """Eight letters, each the one two before it in most places: predict the next."""

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        self.embedding = mg.tensor(rng.normal(0, 0.5, size=(8, 16)), requires_grad=True)
        self.position_embedding = mg.tensor(rng.normal(0, 0.5, size=(8, 16)), requires_grad=True)
        self.blocks = [Block(s, rng) for _ in range(s.depth - 1)]
        self.out = Linear(16, 8, rng=rng)
        prepared(self, s, rng)
        self.mask = np.tril(np.ones((8, 8), bool))

    def forward(self, tokens: Any) -> Any:
        x = self.embedding[tokens] + self.position_embedding
        for block in self.blocks:
            x = block(x, self.mask)
        return self.out(x).reshape((-1, 8))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any]:
        text = rng.integers(8, size=(BATCH, 9))
        for t in range(2, 9):
            text[:, t] = np.where(rng.random(BATCH) < 0.9, text[:, t - 2], text[:, t])
        return text[:, :-1], text[:, 1:].reshape(-1)


MODELS: dict[str, Callable[..., Any]] = {"MLP": MLP, "CNN": CNN, "LSTM": LSTM, "GPT": GPT}
PROBLEMS: dict[str, dict[str, Any]] = {
    "healthy": {},
    "vanishing": {"activation": mg.sigmoid, "depth": 8, "residual": False, "forget": -9.0},
    "exploding": {"gain": 20.0, "depth": 6, "residual": False, "optimizer": SGD, "lr": 1e-3},
    "dead units": {"shift": -30.0},
    "oscillating": {"activation": mg.tanh, "lr": 1.0},
    "slow": {"lr": 1e-6},
}


def train(model: str, problem: str, seed: int, every: int = 4) -> Flow:
    """One run, watched."""
    rng, s = np.random.default_rng(seed), Settings(**PROBLEMS[problem])
    net = MODELS[model](s, rng)
    optimizer = s.optimizer(net.parameters(), lr=s.lr)
    with mg.watch(net, every=every, traces=0) as flow, np.errstate(all="ignore"):
        for _ in range(s.steps):
            x, y = net.batch(rng)
            optimizer.zero_grad()
            loss = mg.cross_entropy(net(x if x.dtype.kind == "i" else mg.tensor(x)), y)
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
    return flow


def sweep(seeds: int, models: list[str], problems: list[str]) -> Iterator[str]:
    for problem in problems:
        for model in models:
            said = Counter[str]()
            for seed in range(seeds):
                said.update({finding.kind for finding in train(model, problem, seed).diagnose()})
            hits = f"{said[problem]:3} of {seeds}" if problem != "healthy" else " " * 8
            others = ", ".join(f"{k} {n}" for k, n in said.items() if k != problem)
            yield f"{problem:12} {model:5} {hits}   {others}"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--seeds", type=int, default=20)
    asked.add_argument("--models", nargs="*", default=[*MODELS])
    asked.add_argument("--problems", nargs="*", default=[*PROBLEMS])
    given = asked.parse_args()
    for line in sweep(given.seeds, given.models, given.problems):
        print(line, flush=True)


if __name__ == "__main__":
    main()
