"""Runs that the tests of views look at, each traced forward and backward."""

import json
from functools import cache

import numpy as np

import layers as L
import minigrad as mg
from minigrad.views.derivation import derivation
from minigrad.views.page import content
from minigrad.views.picture import dot_of
from minigrad.views.table import table
from tests.record.models import KINDS, Net, leaf, linears, run, traced

WORDS = ["the", "cat", "sat", "on", "a", "mat", "."]


attention = KINDS["masked attention"]


@cache
def mlp():
    first, second = linears(np.random.default_rng(0), 5, 7, 3)
    net = Net(lambda x, first, second: second(mg.tanh(first(x))), first=first, second=second)
    x = mg.tensor(leaf(4, 5).data, name="x")
    return run(net, x, lambda y: mg.cross_entropy(y, np.array([0, 1, 2, 0])).named("loss"))


@cache
def language_model():
    model = L.LanguageModel(n_tokens=11, d_model=12, n_heads=3, n_layers=4, max_len=9, rng=0)
    ids = np.array([[3, 1, 4, 1, 5, 9, 2]])
    return run(model, ids[:, :-1], lambda y: mg.cross_entropy(y, ids[:, 1:]).named("loss"))


@cache
def two_uses():
    """x is used twice, and its gradients partly cancel."""
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    return traced(lambda: (mg.sum(x * 3.0) - mg.sum(x * 1.0)).named("loss"))


RUNS = {"mlp": mlp, "attention": attention, "language model": language_model, "sum": two_uses}


def views_of(t):
    """Each view of a run as text."""
    page = {name: x for name, x in content(t).items() if name != "states"}
    picture = dot_of(t, depth=9)
    return {
        "picture": picture.text + picture.summary,
        "page": json.dumps(page, ensure_ascii=False),
        "table": " ".join(table(t, 400).split()),
        "derivation": derivation(t).replace("\\", ""),
    }
