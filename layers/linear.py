"""The affine map, and how its weights are drawn."""

from __future__ import annotations

from typing import TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError

from .arrays import Array
from .initialisers import Initialiser, Seed, generator, init_weights
from .module import Module
from .renamed import renamed

__all__ = ["Linear", "linear"]


Weight: TypeAlias = mg.Tensor | Module
"""A matrix, or a Module with a `product` in its place: a QuantizedWeight, a LowRankWeight."""


@overload
def linear(x: Array, W: Weight, b: Array | None = ..., method: str = ...) -> mg.Tensor: ...
@overload
def linear(x: Array, W: Array, b: Array | None = ..., method: str = ...) -> Array: ...
def linear(x: Array, W: Array | Module, b: Array | None = None, method: str = "exact") -> Array:
    """x W + b, or x W without a bias, over the last axis of x: one op.

    Args:    method: of the attention layer around it; "tiled" runs a large product on the threads
             of the tiles.
    Shapes:  x (..., d_in), W (d_in, d_out), b (d_out,) → (..., d_out)
    Raises:  ShapeError if x's last axis is not W's first.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if isinstance(W, Module):
        return W.product(x, b)
    if method == "tiled":
        return mg.linear(x, W, b, shared=True)
    return mg.matmul(x, W) if b is None and method == "exact" else mg.linear(x, W, b)


class Linear(Module):
    """An affine map of the last axis:  out = x W + b.

    Args:    rng: draws W; a Generator, a seed, or None for fresh entropy. b starts at zero, and is
             None without use_bias.  init: how W is drawn, a name of INITIALISERS.
    Shapes:  x (..., d_in) → (..., d_out)
    Raises:  ShapeError if x's last axis is not d_in; ArgumentError for a size below 1.

    >>> Linear(3, 2, rng=np.random.default_rng(0))(np.zeros((5, 7, 3))).shape
    (5, 7, 2)
    """

    @renamed(init=5)
    def __init__(
        self,
        d_in: int,
        d_out: int,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        init: Initialiser = "xavier_normal",
    ) -> None:
        check_sizes("Linear", d_in=d_in, d_out=d_out)
        self.dtype = np.dtype(dtype)
        rng = generator(rng)
        self.W, self.b = draw_affine(rng, use_bias, dtype, d_in, d_out, init)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return linear(x, self.W, self.b)  # (..., d_out)


def draw_affine(
    rng: np.random.Generator,
    use_bias: bool,
    dtype: DTypeLike,
    n_in: int,
    n_out: int,
    init: Initialiser = "xavier_normal",
) -> tuple[mg.Tensor, mg.Tensor | None]:
    """W (n_in, n_out), drawn by an initialiser, and b = 0, or None."""
    W = init_weights(init, (n_in, n_out), n_in, n_out, rng, dtype)
    return W, mg.tensor(np.zeros(n_out, dtype), requires_grad=True) if use_bias else None


def check_sizes(call: str, **sizes: int) -> None:
    """Raise ArgumentError unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ArgumentError(f"{call}: {name} must be an integer of at least 1, got {size!r}")
