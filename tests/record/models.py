"""Small models of every ordinary kind, drawn at random, each traced forward and backward."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import minigrad as mg
from layers import GRU, LSTM, RNN, LayerNorm, Linear, Module, Sequential, TransformerBlock

ACTIVATIONS = [mg.relu, mg.tanh, mg.sigmoid, mg.gelu]
Model = Callable[[Any], Any]


class Fields(Module):
    """fc1, fc2, … with an activation called between them, all of one width or not."""

    def __init__(self, rng, widths):
        self.f = ACTIVATIONS[rng.integers(4)]
        self.count = len(widths) - 1
        for k, (a, b) in enumerate(pairwise(widths), 1):
            setattr(self, f"fc{k}", Linear(a, b, rng=rng))

    def forward(self, x):
        x = self.f(self.fc1(x))
        x = self.f(self.fc2(x)) if self.count > 2 else x  # lines of their own, and a loop
        for k in range(3, self.count):
            x = self.f(getattr(self, f"fc{k}")(x))
        return getattr(self, f"fc{self.count}")(x)


class Block(Module):
    """x + f(x W + b), with a norm or without, and with the model's input added again or not."""

    def __init__(self, rng, width, norm, again):
        self.fc, self.again = Linear(width, width, rng=rng), again
        self.norm = LayerNorm(width) if norm else None

    def forward(self, x, first):
        y = mg.tanh(self.fc(x if self.norm is None else self.norm(x)))
        return x + y + first if self.again else x + y


class Listed(Module):
    """Blocks of a list, one after the other; what each makes may be collected."""

    def __init__(self, rng, blocks, kind):
        self.blocks, self.kind = blocks, kind
        self.f = ACTIVATIONS[rng.integers(4)]

    def forward(self, x):
        made, first = [], x
        for k, block in enumerate(self.blocks):
            if isinstance(block, Block):
                x = block(x, first)
            elif self.kind == "last differs" and k == len(self.blocks) - 1:
                x = block(x)
            elif self.kind == "skip":
                x = x + self.f(block(x)) if x.shape[-1] == block(x).shape[-1] else block(x)
            else:
                x = self.f(block(x))
            made.append(x)
        if self.kind == "collected":
            return mg.concatenate(made, axis=-1)
        if self.kind == "reversed":
            return mg.concatenate([*reversed(made), x], axis=-1)
        if self.kind == "added":
            return sum((mg.mean(one) for one in made[1:]), mg.mean(made[0]))
        return x


class Again(Module):
    """The same blocks again and again: weights are shared."""

    def __init__(self, rng):
        self.blocks = [Linear(5, 5, rng=rng) for _ in range(int(rng.integers(1, 4)))]
        self.times = int(rng.integers(2, 5))

    def forward(self, x):
        for _ in range(self.times):
            for block in self.blocks:
                x = mg.relu(block(x))
        return x


class Parallel(Module):
    """Heads beside one another; no chain."""

    def __init__(self, rng):
        self.heads = [Linear(5, 3, rng=rng) for _ in range(int(rng.integers(2, 5)))]

    def forward(self, x):
        return mg.concatenate([head(x) for head in self.heads], axis=-1)


class UNet(Module):
    """What went down is added on the way up, the last first."""

    def __init__(self, rng):
        count = int(rng.integers(2, 5))
        self.down = [Linear(5, 5, rng=rng) for _ in range(count)]
        self.up = [Linear(5, 5, rng=rng) for _ in range(count)]

    def forward(self, x):
        kept = []
        for layer in self.down:
            x = mg.relu(layer(x))
            kept.append(x)
        for layer in self.up:
            x = mg.relu(layer(x + kept.pop()))
        return x


def widths(rng):
    """Of 2 to 7 layers: one width, or few."""
    if rng.integers(2):
        return [5] * int(rng.integers(3, 9))
    return [5, *rng.choice([3, 5], int(rng.integers(2, 8))).tolist()]


def raw(rng):
    """A loop over weights, shared, tied or each its own, without any module."""
    count, kind = int(rng.integers(2, 7)), rng.integers(4)
    Ws = [
        mg.tensor(rng.normal(size=(5, 5)) / 2, requires_grad=True, name=f"W{k}")
        for k in range(count)
    ]
    b = mg.tensor(rng.normal(size=5), requires_grad=True, name="b")
    f = ACTIVATIONS[rng.integers(4)]

    def model(x):
        h, before = x, x
        for W in Ws:
            W = Ws[0] if kind == 1 else W
            h, before = f(h @ W + b) + (before if kind == 2 else h), h
            h = h @ W.T if kind == 3 else h
        return h

    return model


def fields(rng):
    return Fields(rng, widths(rng))


def sequential(rng):
    made = []
    sizes = widths(rng)
    f, norm = ACTIVATIONS[rng.integers(4)], rng.integers(2)
    for a, b in pairwise(sizes):
        made += [Linear(a, b, rng=rng), *[LayerNorm(b)] * int(norm), f]
        f = f if rng.integers(4) else ACTIVATIONS[rng.integers(4)]
    return Sequential(*made[: len(made) - int(rng.integers(2))])


def listed(rng):
    sizes = widths(rng)
    kinds = ["plain", "last differs", "collected", "reversed", "added", "skip"]
    blocks = [Linear(a, b, rng=rng) for a, b in pairwise(sizes)]
    return Listed(rng, blocks, kinds[rng.integers(len(kinds))])


def residual(rng):
    norm, again = bool(rng.integers(2)), bool(rng.integers(2))
    blocks = [Block(rng, 5, norm, again) for _ in range(int(rng.integers(2, 7)))]
    kind = ["plain", "collected", "reversed", "added"][rng.integers(4)]
    return Listed(rng, blocks, kind)


def transformer(rng):
    blocks = [TransformerBlock(6, 2, rng=rng) for _ in range(int(rng.integers(1, 4)))]
    embed = Linear(5, 6, rng=rng)
    stack = Sequential(*blocks)
    return lambda x: stack(embed(mg.reshape(x, (1, 7, 5))))


def recurrent(rng):
    kind = [RNN, LSTM, GRU][rng.integers(3)]
    layer = kind(
        5,
        3,
        n_layers=int(rng.integers(1, 4)),
        bidirectional=bool(rng.integers(2)),
        rng=rng,
        method="steps",
    )
    return lambda x: layer(mg.reshape(x, (1, 7, 5)))


def each_step(rng):
    """A loop over time that keeps its states, and a loop that reads each of them out."""
    U, W, V = (Linear(5, 5, rng=rng) for _ in range(3))
    kind = rng.integers(4)

    def model(x):
        h, states = np.zeros(5), []
        for k in range(7):
            h = mg.tanh(U(x[k]) + W(h))
            states.append(h)
        if kind == 3:
            states = [state.detach() * 2.0 for state in states]
        made = [mg.mean(V(state)) for state in states]
        if kind == 0:
            return mg.stack(made[::-1])
        return sum(made[kind:], made[0])

    return model


KINDS = (
    raw,
    fields,
    sequential,
    listed,
    residual,
    Again,
    Parallel,
    UNet,
    transformer,
    recurrent,
    each_step,
)


@cache
def trained(seed):
    """One step of a model that this number chooses."""
    rng = np.random.default_rng(seed)
    model = KINDS[seed % len(KINDS)](rng)
    x = mg.tensor(rng.normal(size=(7, 5)), name="x", requires_grad=bool(seed % 3 == 0))
    with mg.trace() as t:
        out = model(x)
        mg.mean(out * out).named("loss").backward()
    return t
