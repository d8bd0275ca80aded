"""Runs that the tests of views look at, each traced forward and backward."""

import re
from functools import cache

import numpy as np

import layers as L
import minigrad as mg

WORDS = ["the", "cat", "sat", "on", "a", "mat", "."]


class Net(L.Module):
    def __init__(self, rng):
        self.first, self.second = L.Linear(5, 7, rng=rng), L.Linear(7, 3, rng=rng)

    def forward(self, x):
        return self.second(mg.tanh(self.first(x)))


@cache
def mlp():
    rng = np.random.default_rng(0)
    net = Net(rng)
    with mg.trace() as t:
        out = net(mg.tensor(rng.normal(size=(4, 5)), name="x"))
        mg.cross_entropy(out, np.array([0, 1, 2, 0])).named("loss").backward()
    return t


@cache
def attention():
    rng = np.random.default_rng(1)
    layer = L.SelfAttention(5, 3, 4, rng=rng)
    x = mg.tensor(rng.normal(size=(2, 7, 5)), requires_grad=True, name="X")
    with mg.trace() as t:
        mg.sum(mg.square(layer(x, L.create_causal_mask(7)))).named("loss").backward()
    return t


@cache
def language_model():
    model = L.LanguageModel(n_tokens=11, d_model=12, n_heads=3, n_layers=4, max_len=9, rng=0)
    ids = np.array([[3, 1, 4, 1, 5, 9, 2]])
    with mg.trace() as t:
        mg.cross_entropy(model(ids[:, :-1]), ids[:, 1:]).named("loss").backward()
    return t


@cache
def two_uses():
    """x is used twice, and its gradients partly cancel."""
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        (mg.sum(x * 3.0) - mg.sum(x * 1.0)).named("loss").backward()
    return t


RUNS = {"mlp": mlp, "attention": attention, "language model": language_model, "sum": two_uses}


def drawn_names(dot):
    """The bold texts of a picture: names of boxes, of what is in them, and numbers."""
    return re.findall(r"<B>([^<]*)</B>", dot.text)
