"""The models in which `benchmarks.findings` plants problems: an MLP, a CNN, an LSTM and a GPT.

Each has what the problems change: activations, depth, gain of the weights, biases, a norm, dropout,
a branch; and makes batches of its own: inputs, classes and, but for the GPT, numbers to predict.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import minigrad as mg
from layers import LSTM, BatchNorm, Conv2d, Dropout, Linear, Module, MultiHeadAttention
from minigrad.optim import Adam

__all__ = ["MODELS", "Settings", "Task"]

BATCH = 32
LETTERS = 8  # that the GPT's texts have


class Settings:
    """Of a model, its data and its training; each problem changes a few."""

    def __init__(self, **changes: Any) -> None:
        self.activation: Any = mg.relu
        self.depth, self.gain, self.shift, self.recurrent_gain = 3, 1.0, 0.0, 1.0
        self.norm = self.dropout = self.numbers = False
        self.residual, self.causal, self.branch = True, np.tril, ""
        self.cell, self.forget, self.length, self.rows = LSTM, 2.0, 16, LETTERS
        self.lr, self.steps, self.optimizer, self.dtype = 3e-3, 80, Adam, np.float64
        self.model: Callable[..., None] | None = None  # changes the model
        self.data: Callable[..., Any] | None = None  # of x, y and the step: another batch
        self.scores: Callable[..., Any] | None = None  # of the model's result
        self.loss: Callable[..., Any] | None = None  # of the model's result and the targets
        self.gradients: Callable[..., None] | None = None  # changes them before the update
        self.schedule: Callable[..., Any] | None = None  # of the optimizer
        self.trained: Callable[..., Any] | None = None  # of the model: what the optimizer is given
        self.zero_grad, self.held_out, self.evaluated = True, False, True
        vars(self).update(changes)


class Task(Module):
    """What the models share: how their hidden layers are put together, and a branch beside them."""

    width: int

    def prepare(self, s: Settings, rng: np.random.Generator) -> None:
        """He's weights, times the gain; the shift on every bias that stands before an activation.

        A model is float32 or float64, by `Settings.dtype`, from here on.
        """
        self.s = s
        self.side = Linear(self.width, self.width, rng=rng) if s.branch else None
        self.drop = Dropout(0.2, rng=rng) if s.dropout else None
        self.norms = [BatchNorm(self.width) for _ in range(s.depth)] if s.norm else []
        for name, p in self.named_parameters():
            if p.ndim > 1 and "embedding" not in name and "cell" not in name:
                fan = int(np.prod(p.shape[1:])) if p.ndim > 2 else p.shape[0]
                p.assign_(rng.normal(size=p.shape) * s.gain * np.sqrt(1.6 / fan))
            elif s.shift and "hidden" in name:
                p.assign_(np.full(p.shape, s.shift))

    def activated(self, x: Any, k: int) -> Any:
        """A norm where there is one, the activation, dropout."""
        x = self.s.activation(self.norms[k](x) if self.s.norm else x)
        return self.drop(x) if self.drop is not None else x

    def with_branch(self, x: Any) -> Any:
        """A second path beside the last hidden layer, cut off as the problem says."""
        if self.side is None:
            return x
        if self.s.branch == "unused":
            return x
        if self.s.branch == "no_grad":
            with mg.no_grad():
                beside = self.side(x)
            return x + 0.1 * beside
        beside = self.side(x)
        return x + 0.1 * (beside.detach() if self.s.branch == "detached" else beside)


class MLP(Task):
    """Six numbers to three classes: which of three centres is nearest."""

    width = 16

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        widths = [6, *[16] * s.depth]
        self.hidden = [Linear(m, n, rng=rng) for m, n in pairwise(widths)]
        self.out = Linear(16, 1 if s.numbers else 3, rng=rng)
        self.prepare(s, rng)
        self.centres = np.random.default_rng(7).normal(size=(3, 6))

    def forward(self, x: Any) -> Any:
        for k, layer in enumerate(self.hidden):
            x = self.activated(layer(x), k)
        return self.out(self.with_branch(x))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        x = rng.normal(size=(BATCH, 6))
        near = x @ self.centres.T
        return x, near.argmax(axis=1), np.tanh(near[:, 0])


class CNN(Task):
    """Pictures of 6 × 6, with a horizontal or a vertical bar, or none."""

    width = 8

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        widths = [1, *[8] * s.depth]
        self.hidden = [Conv2d(m, n, 3, padding=1, rng=rng) for m, n in pairwise(widths)]
        self.out = Linear(8 * 4, 1 if s.numbers else 3, rng=rng)
        self.prepare(s, rng)

    def forward(self, x: Any) -> Any:
        for k, layer in enumerate(self.hidden):
            x = self.activated(layer(x), k)
        x = mg.avg_pool(x, (3, 3))  # (B, 8, 2, 2)
        if self.side is not None:
            x = self.with_branch(x.transpose((0, 2, 3, 1)))
        return self.out(x.reshape((x.shape[0], 32)))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        kind, at = rng.integers(3, size=BATCH), rng.integers(6, size=BATCH)
        x = rng.normal(0, 0.3, size=(BATCH, 1, 6, 6))
        for k in range(BATCH):
            if kind[k] < 2:
                (x[k, 0] if kind[k] else x[k, 0].T)[at[k]] += 2
        return x, kind, kind - 1.0


class Recurrent(Task):
    """Numbers one after the other: is their sum positive?"""

    width = 12

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        self.cell = s.cell(1, 12, rng=rng)
        widths = [12] * max(2, s.depth - 1)
        self.hidden = [Linear(m, n, rng=rng) for m, n in pairwise(widths)]
        self.out = Linear(12, 1 if s.numbers else 2, rng=rng)
        self.prepare(s, rng)
        (cell,) = self.cell.cells
        cell.weight_hh.assign_(cell.weight_hh.numpy() * s.recurrent_gain)
        if s.cell is LSTM:
            bias = cell.bias_ih.numpy().copy()
            bias[12:24] = s.forget
            cell.bias_ih.assign_(bias)

    def forward(self, x: Any) -> Any:
        h = self.cell(mg.expand_dims(x, -1))[:, -1]
        for k, layer in enumerate(self.hidden):
            h = self.activated(layer(h), k)
        return self.out(self.with_branch(h))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        x = rng.normal(size=(BATCH, self.s.length))
        total = x.sum(axis=1)
        return x, (total > 0).astype(int), np.tanh(total / 4)


class Block(Module):
    """One layer of the GPT: attention and a feed-forward net, each on a norm, both added."""

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        self.attention = MultiHeadAttention(16, 2, rng=rng)
        self.hidden, self.back = Linear(16, 32, rng=rng), Linear(32, 16, rng=rng)
        self.s, self.scale = s, np.ones(16)

    def forward(self, x: Any, mask: Any, drop: Any) -> Any:
        if not self.s.residual:
            f = self.s.activation
            return f(self.back(f(self.hidden(self.attention(x, mask)))))
        x = x + self.attention(mg.rms_norm(x, self.scale), mask)
        more = self.s.activation(self.hidden(mg.rms_norm(x, self.scale)))
        return x + self.back(drop(more) if drop is not None else more)


class GPT(Task):
    """Eight letters, each the one two before it in most places: predict the next."""

    width = 16

    def __init__(self, s: Settings, rng: np.random.Generator) -> None:
        self.embedding = mg.tensor(rng.normal(0, 0.5, size=(s.rows, 16)), requires_grad=True)
        self.position_embedding = mg.tensor(rng.normal(0, 0.5, size=(8, 16)), requires_grad=True)
        self.blocks = [Block(s, rng) for _ in range(s.depth - 1)]
        self.out = Linear(16, s.rows, rng=rng)
        self.prepare(s, rng)
        self.mask = s.causal(np.ones((8, 8), bool))

    def forward(self, tokens: Any) -> Any:
        x = self.embedding[tokens] + self.position_embedding
        for block in self.blocks:
            x = block(x, self.mask, self.drop)
        return self.out(self.with_branch(x)).reshape((-1, self.s.rows))

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        text = rng.integers(LETTERS, size=(BATCH, 9))
        for t in range(2, 9):
            text[:, t] = np.where(rng.random(BATCH) < 0.9, text[:, t - 2], text[:, t])
        return text[:, :-1], text[:, 1:].reshape(-1), None


MODELS: dict[str, Callable[..., Any]] = {"MLP": MLP, "CNN": CNN, "LSTM": Recurrent, "GPT": GPT}
