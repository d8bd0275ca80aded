"""Functions that tests play with."""

import numpy as np

import minigrad as mg
from layers import SelfAttention, create_causal_mask

WORDS = ["the", "cat", "sat", "on", "it"]
RNG = np.random.default_rng(3)
LAYER = SelfAttention(7, 3, 2, rng=RNG)
X = mg.tensor(RNG.normal(size=(1, 5, 7)), requires_grad=True, name="X")
MASK = create_causal_mask(5)


def attention(temperature: float = 1.0, words: list[str] = WORDS) -> mg.Tensor:
    """Attention over five words, each moved by its length."""
    lengths = np.array([[len(word)] for word in words], float)
    moved = mg.tensor(X.numpy()) * 0.0 + X + 0.1 * lengths
    out = LAYER(mg.scale(moved, 1 / temperature), MASK)
    return mg.mean(out * out).named("loss")


attention.tokens = WORDS


def ratio() -> mg.Tensor:
    """1 / (x + y): infinite at y = −x; raises above 10."""
    x = mg.tensor([1.0], requires_grad=True, name="x")
    y = mg.tensor([2.0], requires_grad=True, name="y")
    if x.data[0] > 10:
        raise RuntimeError("x is too large")
    with np.errstate(divide="ignore"):
        loss = mg.sum(1.0 / (x + y)).named("loss")
        loss.backward()
    return loss
