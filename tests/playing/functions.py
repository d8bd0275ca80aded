"""Functions that return a loss, for the live page."""

import numpy as np

import layers as L
import minigrad as mg

WORDS = ["the", "lion", "s"]
LAYER = L.SelfAttention(4, 3, 3, rng=np.random.default_rng(0))
TABLE = np.random.default_rng(1).normal(size=(9, 4))


def small(words: list[str] = WORDS, factor: float = 2.0):
    """Attention over words, named by their lengths."""
    X = mg.tensor(TABLE[[len(word) for word in words]][None], requires_grad=True, name="X")
    return mg.mean(mg.square(mg.scale(LAYER(X), factor).named("out"))).named("loss")


small.tokens = WORDS
