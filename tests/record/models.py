"""Small models of every ordinary kind, by name or drawn at random, traced forward and backward."""

from functools import cache
from itertools import pairwise

import numpy as np

import layers as L
import minigrad as mg
from layers import GRU, LSTM, RNN, LayerNorm, Linear, Module, Sequential
from minigrad.record.finish import finish

ACTIVATIONS = [mg.relu, mg.tanh, mg.sigmoid, mg.gelu]


def leaf(*shape, name=None, seed=0):
    return mg.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True, name=name)


def traced(f):
    """A trace of a function's loss, forward and backward."""
    with mg.trace() as t:
        f().backward()
    finish(t)
    return t


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


def chained(kind, step):
    """Blocks in turn, each of what the one before it gave; what is given is said by the kind."""

    def called(x, blocks):
        made = [x]
        for block in blocks:
            made.append(step(block, made[-1], x))
        return gathered(kind, made[1:])

    return called


def listed(rng):
    f, kind = one_of(rng, ACTIVATIONS), one_of(rng, ["plain", "collected", "reversed", "added"])
    return Net(chained(kind, lambda block, x, _: f(block(x))), blocks=linears(rng, *widths(rng)))


def residual(rng):
    norm, again = bool(rng.integers(2)), bool(rng.integers(2))
    called = chained(one_of(rng, ["plain", "collected", "reversed", "added"]), Block.__call__)
    return Net(called, blocks=[Block(rng, norm, again) for _ in range(rng.integers(2, 7))])


def again(rng):
    """The same blocks again and again: weights are shared."""
    times = int(rng.integers(2, 5))
    called = chained("plain", lambda block, x, _: mg.relu(block(x)))
    blocks = linears(rng, *[5] * rng.integers(2, 5))
    return Net(lambda x, blocks: called(x, blocks * times), blocks=blocks)


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


DRAWN = (raw, listed, residual, again, u_net, recurrent, each_step)


@cache
def trained(seed):
    """One step of a model that this number chooses."""
    rng = np.random.default_rng(seed)
    model = DRAWN[seed % len(DRAWN)](rng)
    x = mg.tensor(rng.normal(size=(7, 5)), name="x", requires_grad=bool(seed % 3 == 0))

    def loss():
        out = model(x)
        return mg.mean(out * out).named("loss")

    return traced(loss)


# ---------------------------------------------------------------- by name


def rng(seed=0):
    return np.random.default_rng(seed)


def run(model, x, loss=lambda y: mg.mean(mg.square(y)).named("loss")):
    return traced(lambda: loss(model(x)))


def last_state(y):
    return mg.sum(y[0][:, -1])


def neuron():
    """Of micrograd's introduction: ∂o/∂x1 = −1.5."""
    values = {"x1": 2.0, "x2": 0.0, "w1": -3.0, "w2": 1.0, "b": 6.8813735870195432}
    x = {name: mg.tensor(v, requires_grad=True, name=name) for name, v in values.items()}

    def o():
        n = (x["x1"] * x["w1"] + x["x2"] * x["w2"] + x["b"]).named("n")
        return mg.tanh(n).named("o")

    return traced(o)


def mlp(depth, activation=mg.tanh):
    *inner, out = linears(rng(), *[5] * depth, 3)
    return Sequential(*(part for layer in inner for part in (layer, activation)), out)


def cnn():
    """Two convolutions with norms, and one pooling that both share."""

    def called(x, conv1, norm1, conv2, norm2, pool, out):
        x = pool(mg.relu(norm1(conv1(x))))
        x = pool(mg.relu(norm2(conv2(x))))
        return out(mg.reshape(x, (x.shape[0], -1)))

    g = rng()
    first = {"conv1": L.Conv2d(1, 3, 3, rng=g), "norm1": L.BatchNorm(3)}
    second = {"conv2": L.Conv2d(3, 5, 3, rng=g), "norm2": L.BatchNorm(5)}
    model = Net(called, **first, **second, pool=L.MaxPool2d(2), out=Linear(20, 3, rng=g))
    return run(
        model, g.normal(size=(7, 1, 14, 14)), lambda y: mg.cross_entropy(y, np.arange(7) % 3)
    )


def twelve_blocks():
    model = L.LanguageModel(n_tokens=13, d_model=24, n_heads=2, n_layers=12, max_len=11, rng=0)
    ids = rng().integers(0, 13, (1, 12))
    return run(model, ids[:, :-1], lambda y: mg.cross_entropy(y, ids[:, 1:]))


def encoder_decoder():
    encoder, decoder = L.Encoder(2, 6, 2, rng=rng(0)), L.Decoder(2, 6, 2, rng=rng(1))
    target = leaf(1, 5, 6, seed=2, name="target")
    return run(lambda x: decoder(target, encoder(x), L.create_causal_mask(5)), leaf(1, 7, 6))


def vae():
    def called(x, encoder, decoder):
        h = encoder(x)
        mean, spread = h[:, :3].named("mean"), h[:, 3:].named("log variance")
        z = (mean + mg.exp(spread * 0.5) * rng(3).normal(size=(5, 3))).named("z")
        fit = mg.mean(mg.square(decoder(z) - x)).named("reconstruction")
        apart = mg.mean(mg.square(mean) + mg.exp(spread) - spread - 1.0).named("KL")
        return (fit + apart * 0.5).named("ELBO")

    model = Net(called, encoder=Linear(7, 6, rng=rng()), decoder=Linear(3, 7, rng=rng(1)))
    return run(model, rng(1).normal(size=(5, 7)), lambda y: y)


def tied():
    """One cell three times, and its embedding as the output's weight."""

    def called(ids, embedding, cell, norm):
        x = embedding(ids)
        for _ in range(3):
            x = norm(mg.tanh(cell(x)))
        return x @ embedding.W.T

    parts = {"embedding": L.Embedding(11, 5, rng=rng()), "cell": Linear(5, 5, rng=rng(1))}
    ids = np.array([[3, 1, 4, 1, 5, 9]])
    model = Net(called, **parts, norm=LayerNorm(5))
    return run(model, ids[:, :-1], lambda y: mg.cross_entropy(y, ids[:, 1:]))


def frozen():
    model = mlp(3)
    for p in model.layers[0].parameters():
        p.requires_grad = False
    return run(model, rng(1).normal(size=(4, 5)))


def not_finite():
    with np.errstate(all="ignore"):
        return run(lambda x: mg.log(mlp(2)(x)), leaf(4, 5))


def gan():
    D = Sequential(Linear(3, 5, rng=rng(2)), mg.relu, Linear(5, 1, rng=rng(3)))
    G = mlp(2)
    return run(lambda z: D(G(z)), rng(1).normal(size=(4, 5)), lambda y: mg.mean(mg.softplus(-y)))


def attention(*mask):
    layer = L.SelfAttention(5, 3, 4, rng=rng())
    return run(lambda x: layer(x, *mask), leaf(2, 7, 5, name="X"))


def lstm(steps, **method):
    return run(LSTM(3, 5, rng=rng(), **method), leaf(2, steps, 3, name="X"), last_state)


def classified():
    return run(mlp(2), leaf(4, 5), lambda y: mg.cross_entropy(y, np.array([0, 1, 2, 0])))


KINDS = {  # each run once
    name: cache(f)
    for name, f in {
        "neuron": neuron,
        "mlp of 2": classified,
        "mlp of 6": lambda: run(mlp(6), leaf(4, 5)),
        "cnn": cnn,
        "attention": attention,
        "masked attention": lambda: attention(L.create_causal_mask(7)),
        "block": lambda: run(L.TransformerBlock(6, 2, rng=rng()), leaf(2, 7, 6, name="X")),
        "twelve blocks": twelve_blocks,
        "lstm of 10": lambda: lstm(10),
        "lstm of 50": lambda: lstm(50),
        "lstm of 50 by hand": lambda: lstm(50, method="steps"),
        "encoder decoder": encoder_decoder,
        "vae": vae,
        "tied": tied,
        "frozen": frozen,
        "twenty sigmoids": lambda: run(mlp(20, mg.sigmoid), leaf(4, 5)),
        "exploding": lambda: run(mlp(12, lambda x: mg.leaky_relu(x) * 9.0), leaf(4, 5)),
        "not finite": not_finite,
        "gan": gan,
    }.items()
}
