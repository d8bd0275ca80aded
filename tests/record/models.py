"""Small models of every ordinary kind, drawn at random, each traced forward and backward."""

from functools import cache
from itertools import pairwise

import numpy as np

import minigrad as mg
from layers import GRU, LSTM, RNN, LayerNorm, Linear, Module, Sequential, TransformerBlock
from minigrad.record.finish import finish

ACTIVATIONS = [mg.relu, mg.tanh, mg.sigmoid, mg.gelu]


class Net(Module):
    """Layers, or lists of them, and how they are called."""

    def __init__(self, called, **layers):
        self.called, self.names = called, [*layers]
        for name, each in layers.items():
            setattr(self, name, each)

    def forward(self, x):
        return self.called(x, *(getattr(self, name) for name in self.names))


class Block(Module):
    """x + f(x W + b), with a norm or without, and with the model's input added again or not."""

    def __init__(self, rng, norm, again):
        self.fc, self.again = Linear(5, 5, rng=rng), again
        self.norm = LayerNorm(5) if norm else None

    def forward(self, x, first):
        y = mg.tanh(self.fc(x if self.norm is None else self.norm(x)))
        return x + y + first if self.again else x + y


def linears(rng, *sizes):
    return [Linear(a, b, rng=rng) for a, b in pairwise(sizes)]


def widths(rng):
    """Of 2 to 7 layers: one width, or few."""
    if rng.integers(2):
        return [5] * int(rng.integers(3, 9))
    return [5, *rng.choice([3, 5], int(rng.integers(2, 8))).tolist()]


def one_of(rng, several):
    return several[rng.integers(len(several))]


def gathered(kind, made):
    """What a model gives of what its blocks made."""
    if kind == "collected":
        return mg.concatenate(made, axis=-1)
    if kind == "reversed":
        return mg.concatenate([*reversed(made), made[-1]], axis=-1)
    return sum(map(mg.mean, made)) if kind == "added" else made[-1]


def raw(rng):
    """A loop over weights, shared, tied or each its own, without any module."""
    kind, f, b = rng.integers(4), one_of(rng, ACTIVATIONS), leaf(5, name="b")
    Ws = [leaf(5, 5, name=f"W{k}", seed=k) for k in range(rng.integers(2, 7))]

    def model(x):
        h, before = x, x
        for W in Ws:
            W = Ws[0] if kind == 1 else W
            h, before = f(h @ W * 0.5 + b) + (before if kind == 2 else h), h
            h = h @ W.T if kind == 3 else h
        return h

    return model


def fields(rng):
    """fc1, fc2, … with an activation called between them."""
    f = one_of(rng, ACTIVATIONS)

    def called(x, *layers):
        for layer in layers[:-1]:
            x = f(layer(x))
        return layers[-1](x)

    return Net(called, **{f"fc{k}": fc for k, fc in enumerate(linears(rng, *widths(rng)), 1)})


def sequential(rng):
    made = []
    f, norm = one_of(rng, ACTIVATIONS), rng.integers(2)
    for layer in linears(rng, *widths(rng)):
        made += [layer, *[LayerNorm(layer.W.shape[1])] * int(norm), f]
        f = f if rng.integers(4) else one_of(rng, ACTIVATIONS)
    return Sequential(*made[: len(made) - int(rng.integers(2))])


def listed(rng):
    f = one_of(rng, ACTIVATIONS)
    kind = one_of(rng, ["plain", "last differs", "collected", "reversed", "added", "skip"])

    def called(x, blocks):
        made = []
        for block in blocks:
            plain = kind == "last differs" and block is blocks[-1]
            y = block(x) if plain else f(block(x))
            x = x + y if kind == "skip" and x.shape == y.shape else y
            made.append(x)
        return gathered(kind, made)

    return Net(called, blocks=linears(rng, *widths(rng)))


def residual(rng):
    norm, again = bool(rng.integers(2)), bool(rng.integers(2))
    kind = one_of(rng, ["plain", "collected", "reversed", "added"])

    def called(x, blocks):
        made = [x]
        for block in blocks:
            made.append(block(made[-1], x))
        return gathered(kind, made[1:])

    return Net(called, blocks=[Block(rng, norm, again) for _ in range(rng.integers(2, 7))])


def again(rng):
    """The same blocks again and again: weights are shared."""
    times = int(rng.integers(2, 5))

    def called(x, blocks):
        for block in blocks * times:
            x = mg.relu(block(x))
        return x

    return Net(called, blocks=linears(rng, *[5] * rng.integers(2, 5)))


def parallel(rng):
    """Heads beside one another; no chain."""
    count = rng.integers(2, 5)
    return Net(
        lambda x, heads: mg.concatenate([head(x) for head in heads], axis=-1),
        heads=[Linear(5, 3, rng=rng) for _ in range(count)],
    )


def u_net(rng):
    """What went down is added on the way up, the last first."""

    def called(x, down, up):
        kept = []
        for layer in down:
            x = mg.relu(layer(x))
            kept.append(x)
        for layer in up:
            x = mg.relu(layer(x + kept.pop()))
        return x

    sizes = [5] * rng.integers(3, 6)
    return Net(called, down=linears(rng, *sizes), up=linears(rng, *sizes))


def transformer(rng):
    blocks = [TransformerBlock(6, 2, rng=rng) for _ in range(rng.integers(1, 4))]
    stack = Sequential(Linear(5, 6, rng=rng), *blocks)
    return lambda x: stack(mg.reshape(x, (1, 7, 5)))


def recurrent(rng):
    kind, both = one_of(rng, [RNN, LSTM, GRU]), bool(rng.integers(2))
    layers = int(rng.integers(1, 4))
    layer = kind(5, 3, n_layers=layers, bidirectional=both, rng=rng, method="steps")
    return lambda x: layer(mg.reshape(x, (1, 7, 5)))


def each_step(rng):
    """A loop over time that keeps its states, and a loop that reads each of them out."""
    U, W, V = linears(rng, 5, 5, 5, 5)
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
    raw, fields, sequential, listed, residual, again, parallel, u_net, transformer, recurrent,
    each_step,
)  # fmt: skip


def leaf(*shape, name=None, seed=0):
    return mg.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True, name=name)


def traced(f):
    """A trace of a function's loss, forward and backward."""
    with mg.trace() as t:
        f().backward()
    finish(t)
    return t


@cache
def trained(seed):
    """One step of a model that this number chooses."""
    rng = np.random.default_rng(seed)
    model = KINDS[seed % len(KINDS)](rng)
    x = mg.tensor(rng.normal(size=(7, 5)), name="x", requires_grad=bool(seed % 3 == 0))

    def loss():
        out = model(x)
        return mg.mean(out * out).named("loss")

    return traced(loss)
