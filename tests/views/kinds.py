"""Eighteen kinds of model that people build, each traced forward and backward."""

from functools import cache

import numpy as np

import layers as L
import minigrad as mg

KINDS = {}


def kind(function):
    """A kind of model by its name, run once."""
    KINDS[function.__name__.replace("_", " ")] = run = cache(function)
    return run


def rng(seed=0):
    return np.random.default_rng(seed)


def traced(model, x, loss=lambda y: mg.mean(mg.square(y))):
    with mg.trace() as t:
        loss(model(x)).backward()
    return t


def given(*shape, seed=1, name="x"):
    return mg.tensor(rng(seed).normal(size=shape), requires_grad=True, name=name)


@kind
def neuron():
    """Of micrograd's introduction: ∂o/∂x1 = −1.5."""
    values = {"x1": 2.0, "x2": 0.0, "w1": -3.0, "w2": 1.0, "b": 6.8813735870195432}
    x = {name: mg.tensor(v, requires_grad=True, name=name) for name, v in values.items()}
    with mg.trace() as t:
        n = (x["x1"] * x["w1"] + x["x2"] * x["w2"] + x["b"]).named("n")
        mg.tanh(n).named("o").backward()
    return t


def mlp(depth, width=5, activation=mg.tanh):
    g, parts = rng(), []
    for _ in range(depth - 1):
        parts += [L.Linear(width, width, rng=g), activation]
    return L.Sequential(*parts, L.Linear(width, 3, rng=g))


@kind
def mlp_of_2():
    return traced(mlp(2), given(4, 5), lambda y: mg.cross_entropy(y, np.array([0, 1, 2, 0])))


@kind
def mlp_of_6():
    return traced(mlp(6), given(4, 5))


class CNN(L.Module):
    """Two convolutions with norms, and one pooling that both share."""

    def __init__(self, rng):
        self.conv1, self.norm1 = L.Conv2d(1, 3, 3, rng=rng), L.BatchNorm(3)
        self.conv2, self.norm2 = L.Conv2d(3, 5, 3, rng=rng), L.BatchNorm(5)
        self.pool, self.out = L.MaxPool2d(2), L.Linear(20, 3, rng=rng)

    def forward(self, x):
        x = self.pool(mg.relu(self.norm1(self.conv1(x))))
        x = self.pool(mg.relu(self.norm2(self.conv2(x))))
        return self.out(mg.reshape(x, (x.shape[0], -1)))


@kind
def cnn():
    images = rng().normal(size=(7, 1, 14, 14))
    return traced(CNN(rng()), images, lambda y: mg.cross_entropy(y, np.arange(7) % 3))


@kind
def attention():
    return traced(L.SelfAttention(5, 3, 4, rng=rng()), given(2, 7, 5, name="X"))


@kind
def masked_attention():
    layer = L.SelfAttention(5, 3, 4, rng=rng())
    return traced(lambda x: layer(x, L.create_causal_mask(7)), given(2, 7, 5, name="X"))


@kind
def block():
    return traced(L.TransformerBlock(6, 2, rng=rng()), given(2, 7, 6, name="X"))


@kind
def twelve_blocks():
    model = L.LanguageModel(n_tokens=13, d_model=24, n_heads=2, n_layers=12, max_len=11, rng=0)
    ids = rng().integers(0, 13, (1, 12))
    return traced(model, ids[:, :-1], lambda y: mg.cross_entropy(y, ids[:, 1:]))


@kind
def lstm_of_10():
    return traced(L.LSTM(3, 5, rng=rng()), given(2, 10, 3, name="X"), lambda y: mg.sum(y[0][:, -1]))


@kind
def lstm_of_50():
    return traced(L.LSTM(3, 5, rng=rng()), given(2, 50, 3, name="X"), lambda y: mg.sum(y[0][:, -1]))


@kind
def lstm_of_50_by_hand():
    layer = L.LSTM(3, 5, rng=rng(), method="steps")
    return traced(layer, given(2, 50, 3, name="X"), lambda y: mg.sum(y[0][:, -1]))


@kind
def encoder_decoder():
    encoder, decoder = (kind(2, 6, 2, rng=rng(n)) for n, kind in enumerate([L.Encoder, L.Decoder]))
    target = given(1, 5, 6, seed=2, name="target")
    return traced(lambda x: decoder(target, encoder(x), L.create_causal_mask(5)), given(1, 7, 6))


class VAE(L.Module):
    def __init__(self, rng):
        self.encoder, self.decoder = L.Linear(7, 6, rng=rng), L.Linear(3, 7, rng=rng)

    def forward(self, x, noise):
        h = self.encoder(x)
        mean, spread = h[:, :3].named("mean"), h[:, 3:].named("log variance")
        z = (mean + mg.exp(spread * 0.5) * noise).named("z")
        fit = mg.mean(mg.square(self.decoder(z) - x)).named("reconstruction")
        apart = mg.mean(mg.square(mean) + mg.exp(spread) - spread - 1.0).named("KL")
        return (fit + apart * 0.5).named("ELBO")


@kind
def vae():
    noise = rng(3).normal(size=(5, 3))
    return traced(lambda x: VAE(rng())(x, noise), rng(1).normal(size=(5, 7)), lambda y: y)


class Tied(L.Module):
    """One cell three times, and its embedding as the output's weight."""

    def __init__(self, rng):
        self.embedding, self.cell = L.Embedding(11, 5, rng=rng), L.Linear(5, 5, rng=rng)
        self.norm = L.LayerNorm(5)

    def forward(self, ids):
        x = self.embedding(ids)
        for _ in range(3):
            x = self.norm(mg.tanh(self.cell(x)))
        return x @ self.embedding.W.T


@kind
def tied():
    ids = np.array([[3, 1, 4, 1, 5, 9]])
    return traced(Tied(rng()), ids[:, :-1], lambda y: mg.cross_entropy(y, ids[:, 1:]))


@kind
def frozen():
    model = mlp(3)
    for p in model.layers[0].parameters():
        p.requires_grad = False
    return traced(model, rng(1).normal(size=(4, 5)))


@kind
def twenty_sigmoids():
    return traced(mlp(20, activation=mg.sigmoid), given(4, 5))


@kind
def exploding():
    model = mlp(12, activation=lambda x: mg.leaky_relu(x) * 9.0)
    return traced(model, given(4, 5))


@kind
def not_finite():
    with np.errstate(all="ignore"):
        return traced(lambda x: mg.log(mlp(2)(x)), given(4, 5))


@kind
def gan():
    G, D = mlp(2), L.Sequential(L.Linear(3, 5, rng=rng(2)), mg.relu, L.Linear(5, 1, rng=rng(3)))
    return traced(lambda z: D(G(z)), rng(1).normal(size=(4, 5)), lambda y: mg.mean(mg.softplus(-y)))
