"""Layers that act on each entry or token by itself: feed-forward, activations, dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError

from .initialisers import Seed, generator
from .linear import check_sizes, draw_affine, linear
from .module import Module

__all__ = ["Dropout", "FeedForward", "GatedFeedForward", "Identity"]

ActivationFunction: TypeAlias = Callable[[mg.Tensor], mg.Tensor]

gelu_tanh = partial(mg.gelu, approximate="tanh")
ACTIVATIONS: dict[str, ActivationFunction] = {
    "gelu": mg.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": mg.relu,
    "sigmoid": mg.sigmoid,
    "silu": mg.silu,
    "tanh": mg.tanh,
}
"""The activations that layers take by name."""


class FeedForward(Module):
    """Two affine maps with an activation in between, for each token by itself.

        out = f(X W_1 + b_1) W_2 + b_2      f: relu in the paper; gelu in BERT and GPT-2

    Args:
        d_ff: width in between; 4 · d_model unless given.
        activation: one of ACTIVATIONS ("gelu_tanh" is the approximate form), or any function.
        use_bias: without, b_1 and b_2 are None.
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
    Shapes:  X (..., d_model) → as X
    Raises:  ArgumentError for a size below 1 or an activation of another name.
    Source:  Vaswani et al. 2017, eq. (2), arXiv:1706.03762.

    >>> FeedForward(3, 5, rng=np.random.default_rng(0))(np.zeros((2, 7, 3))).shape
    (2, 7, 3)
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: str | ActivationFunction = "gelu",
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_sizes("FeedForward", d_model=d_model, d_ff=d_ff)
        self.activation = activation_of("FeedForward", activation)
        self.dtype = np.dtype(dtype)
        drawn = partial(draw_affine, generator(rng), use_bias, dtype)
        self.W_1, self.b_1 = drawn(d_model, d_ff)
        self.W_2, self.b_2 = drawn(d_ff, d_model)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        H = linear(X, self.W_1, self.b_1).named("H")  # (..., d_ff)
        F = self.activation(H).named("F")  # (..., d_ff)
        return linear(F, self.W_2, self.b_2).named("out")  # (..., d_model)   eq. (2)


class GatedFeedForward(Module):
    """A feed-forward layer whose hidden entries are gated by those of a second map.

        out = (f(X W) ⊙ X V) W_2      f: silu is SwiGLU, gelu GeGLU, relu ReGLU, sigmoid GLU

    W is often called the gate, V up and W_2 down.

    Args:    as FeedForward; activation is "silu" and use_bias False unless given. With biases,
             they are b (the gate's), c and b_2.
    Shapes:  X (..., d_model) → as X
    Source:  Shazeer 2020, eq. (6), arXiv:2002.05202.

    >>> GatedFeedForward(3, 5, rng=np.random.default_rng(0))(np.zeros((2, 7, 3))).shape
    (2, 7, 3)
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: str | ActivationFunction = "silu",
        use_bias: bool = False,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_sizes("GatedFeedForward", d_model=d_model, d_ff=d_ff)
        self.activation = activation_of("GatedFeedForward", activation)
        self.dtype = np.dtype(dtype)
        drawn = partial(draw_affine, generator(rng), use_bias, dtype)
        self.W, self.b = drawn(d_model, d_ff)
        self.V, self.c = drawn(d_model, d_ff)
        self.W_2, self.b_2 = drawn(d_ff, d_model)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        G = self.activation(linear(X, self.W, self.b)).named("G")  # (..., d_ff)
        H = linear(X, self.V, self.c).named("H")  # (..., d_ff)
        F = mg.multiply(G, H).named("F")  # (..., d_ff)
        return linear(F, self.W_2, self.b_2).named("out")  # (..., d_model)   eq. (6)


class Identity(Module):
    """x itself: to take a layer's place, as in model.head = Identity().

    >>> Identity()(np.array([1.0, 2.0])).numpy()
    array([1., 2.])
    """

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return x


class Dropout(Module):
    """In training each entry is zeroed with probability p, the rest divided by 1 − p; else nothing.

    Args:    rng: draws what is dropped, anew at every call.
    Raises:  ArgumentError unless 0 ≤ p ≤ 1.
    Source:  Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html.

    >>> drop = Dropout(0.5, rng=np.random.default_rng(0))
    >>> drop(np.ones(4)).numpy(), drop.eval()(np.ones(4)).numpy()
    (array([2., 0., 0., 0.]), array([1., 1., 1., 1.]))
    """

    def __init__(self, p: float = 0.1, rng: Seed = None) -> None:
        self.p, self.rng = check_probability("Dropout", p), generator(rng)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.dropout(x, self.p, self.rng) if self.training and self.p else x


def activation_of(call: str, activation: str | ActivationFunction) -> ActivationFunction:
    """The function of an activation's name; a function is its own."""
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        names = ", ".join(ACTIVATIONS)
        raise ArgumentError(f"{call}: activation must be one of {names}, got {activation!r}")
    return ACTIVATIONS[activation]


def check_probability(call: str, p: float) -> float:
    """p, in [0, 1]. Raises: ArgumentError otherwise."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{call}: p must lie in [0, 1], got {p}")
    return p
