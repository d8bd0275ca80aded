"""Layers of each entry or token by itself: affine maps, embedding, feed-forward, dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError

from .call import ArrayOrTensor, array_or_tensor
from .module import Module

__all__ = [
    "Dropout",
    "Embedding",
    "FeedForward",
    "Flatten",
    "GatedFeedForward",
    "Linear",
    "Sequential",
    "linear",
]

# What layers take as rng: a generator, a seed, or None for fresh entropy.
Seed: TypeAlias = "np.random.Generator | int | None"

# A Module, an activation, or any other function of one Tensor.
Function: TypeAlias = Callable[[Any], Any]


# ---------------------------------------------------------------- how weights are drawn


def generator(rng: Seed) -> np.random.Generator:
    """The generator that a layer draws from."""
    return np.random.default_rng(rng)


def parameter(drawn: ArrayLike, dtype: DTypeLike) -> mg.Tensor:
    """A leaf of these entries in this dtype, which needs a gradient."""
    return mg.tensor(np.asarray(drawn, dtype), requires_grad=True)


def draw_affine(
    rng: Seed, use_bias: bool, dtype: DTypeLike, n_in: int, n_out: int
) -> tuple[mg.Tensor, mg.Tensor | None]:
    """W (n_in, n_out), drawn N(0, σ²) with σ² = 2 / (n_in + n_out), and b = 0, or None.

    So a signal's variance is kept about equally well forward and backward.
    Source: Glorot & Bengio 2010, "Xavier", https://proceedings.mlr.press/v9/glorot10a.html.
    """
    W = generator(rng).normal(0.0, sqrt(2 / (n_in + n_out)), (n_in, n_out))
    return parameter(W, dtype), parameter(np.zeros(n_out), dtype) if use_bias else None


def check_sizes(call: str, **sizes: int) -> None:
    """Raise ArgumentError unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ArgumentError(f"{call}: {name} must be an integer of at least 1, got {size!r}")


# ---------------------------------------------------------------- layers


def linear(x: ArrayOrTensor, W: ArrayOrTensor | Module, b: ArrayOrTensor | None = None) -> Any:
    """x W + b, or x W without a bias, over the last axis of x. A Module in W's place multiplies.

    Shapes:  x (..., d_in), W (d_in, d_out), b (d_out,) → (..., d_out)

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if isinstance(W, Module):
        return W.product(x, b)  # see quantized.py
    return mg.matmul(x, W) if b is None else mg.linear(x, W, b)


class Linear(Module):
    """An affine map of the last axis:  out = x W + b.

    Args:    use_bias: without, b is None.
             rng: draws W (Xavier); a Generator, a seed, or None for fresh entropy.
    Scale:   a fresh square W has √3 times the standard deviation of PyTorch's.
    Shapes:  x (..., d_in) → (..., d_out)
    Raises:  ShapeError if x's last axis is not d_in; ArgumentError for a size below 1.

    >>> Linear(3, 2, rng=0)(np.zeros((5, 7, 3))).shape
    (5, 7, 2)
    """

    products = ("W",)

    def __init__(
        self,
        d_in: int,
        d_out: int,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("Linear", d_in=d_in, d_out=d_out)
        self.dtype = np.dtype(dtype)
        self.W, self.b = draw_affine(rng, use_bias, dtype, d_in, d_out)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return linear(x, self.W, self.b)  # (..., d_out)


class Embedding(Module):
    """Row t of W for each token t. `as_linear` reads the same rows backwards: logits X Wᵀ.

    Args:    rng: draws W ~ N(0, 1 / d_model); a Generator, a seed, or None for fresh entropy.
    Shapes:  tokens (...) of integers → (..., d_model)
    Raises:  OutOfRangeError or DTypeError for tokens that are no row numbers.
    Source:  Vaswani et al. 2017, section 3.4; tying: Press & Wolf 2017, arXiv:1608.05859.

    >>> embedding = Embedding(5, 3, rng=0)
    >>> X = embedding(np.array([[4, 0]]))
    >>> X.shape, embedding.as_linear(X).shape
    ((1, 2, 3), (1, 2, 5))
    """

    def __init__(
        self, n_tokens: int, d_model: int, rng: Seed = None, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("Embedding", n_tokens=n_tokens, d_model=d_model)
        drawn = generator(rng).normal(0.0, 1 / sqrt(d_model), (n_tokens, d_model))
        self.W = parameter(drawn, dtype)

    def forward(self, tokens: Any) -> mg.Tensor:
        tokens = array_or_tensor(tokens)
        if tokens.dtype.kind not in "iu":
            raise DTypeError(f"Embedding: tokens must be integers, got {tokens.dtype}")
        return mg.take(self.W, tokens, axis=0, negative=False).named("X")  # (..., d_model)

    def as_linear(self, X: ArrayOrTensor) -> mg.Tensor:
        """Logits X Wᵀ of each row: (..., d_model) → (..., n_tokens)."""
        with mg.scope(f"{self._scope.name}_tied"):
            return mg.matmul(X, mg.swapaxes(self.W, 0, 1)).named("logits")


class FeedForward(Module):
    """Two affine maps with an activation in between, for each token by itself.

        out = f(X W_1 + b_1) W_2 + b_2      f: relu in the paper; gelu in BERT and GPT-2

    Args:    d_ff: width in between; 4 · d_model unless given.  use_bias: without, b_1 and b_2 are
             None.  rng: draws the weights (Xavier); a Generator, a seed, or None.
    Shapes:  X (..., d_model) → as X
    Source:  Vaswani et al. 2017, eq. (2), arXiv:1706.03762.

    >>> FeedForward(3, 5, rng=0)(np.zeros((2, 7, 3))).shape
    (2, 7, 3)
    """

    products = ("W_1", "W_2")

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: Function = mg.gelu,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_sizes("FeedForward", d_model=d_model, d_ff=d_ff)
        self.activation, self.dtype = activation, np.dtype(dtype)
        draw = partial(draw_affine, generator(rng), use_bias, dtype)
        self.W_1, self.b_1 = draw(d_model, d_ff)
        self.W_2, self.b_2 = draw(d_ff, d_model)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        H = linear(X, self.W_1, self.b_1).named("H")  # (..., d_ff)
        F = self.activation(H).named("F")  # (..., d_ff)
        return linear(F, self.W_2, self.b_2).named("out")  # (..., d_model)   eq. (2)


class GatedFeedForward(Module):
    """A feed-forward layer whose hidden entries are gated by those of a second map.

        out = (f(X W + b) ⊙ (X V + c)) W_2 + b_2      f: silu is SwiGLU, as in Llama

    W is often called the gate, V up and W_2 down.

    Args:    as FeedForward; activation is silu and use_bias False unless given.
    Shapes:  X (..., d_model) → as X
    Source:  Shazeer 2020, eq. (6), arXiv:2002.05202.

    >>> GatedFeedForward(3, 5, rng=0)(np.zeros((2, 7, 3))).shape
    (2, 7, 3)
    """

    products = ("W", "V", "W_2")

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: Function = mg.silu,
        use_bias: bool = False,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_sizes("GatedFeedForward", d_model=d_model, d_ff=d_ff)
        self.activation, self.dtype = activation, np.dtype(dtype)
        draw = partial(draw_affine, generator(rng), use_bias, dtype)
        self.W, self.b = draw(d_model, d_ff)
        self.V, self.c = draw(d_model, d_ff)
        self.W_2, self.b_2 = draw(d_ff, d_model)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        G = self.activation(linear(X, self.W, self.b)).named("G")  # (..., d_ff)
        H = linear(X, self.V, self.c).named("H")  # (..., d_ff)
        F = mg.multiply(G, H).named("F")  # (..., d_ff)
        return linear(F, self.W_2, self.b_2).named("out")  # (..., d_model)   eq. (6)


class Dropout(Module):
    """In training each entry is zeroed with probability p, the rest divided by 1 − p; else nothing.

    Args:    rng: draws what is dropped, anew at every call.
    Raises:  ArgumentError unless 0 ≤ p ≤ 1.
    Source:  Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html.

    >>> drop = Dropout(0.5, rng=0)
    >>> drop(np.ones(4)).numpy(), drop.eval()(np.ones(4)).numpy()
    (array([2., 0., 0., 0.]), array([1., 1., 1., 1.]))
    """

    def __init__(self, p: float = 0.1, rng: Seed = None) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout: p must lie in [0, 1], got {p}")
        self.p, self.rng = p, generator(rng)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.dropout(x, self.p, self.rng) if self.training and self.p else x


class Flatten(Module):
    """All axes but the first as one, as before a Linear.

    >>> Flatten()(np.zeros((2, 3, 5, 7))).shape
    (2, 105)
    """

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.reshape(x, (x.shape[0], prod(x.shape[1:])))


class Sequential(Module):
    """Each layer applied to the output of the one before; activations and other functions too.

    Args:   layers: in order.
    Raises: DTypeError for a layer that is no function.

    >>> mlp = Sequential(Linear(3, 5, rng=0), mg.relu, Linear(5, 2, rng=1))
    >>> mlp(np.zeros((7, 3))).shape, [path for path, _ in mlp.named_parameters()]
    ((7, 2), ['layers.0.W', 'layers.0.b', 'layers.2.W', 'layers.2.b'])
    """

    def __init__(self, *layers: Function) -> None:
        for k, layer in enumerate(layers):
            if not callable(layer):
                kind = type(layer).__name__
                raise DTypeError(f"Sequential: layer {k} must be a function, got {kind}")
        self.layers = list(layers)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        for layer in self.layers:
            X = layer(X)
        return X

    def __getitem__(self, index: int) -> Any:
        return self.layers[index]
