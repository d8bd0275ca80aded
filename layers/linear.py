"""The affine map, and how its weights are drawn."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError

from .module import Module
from .quantized import QuantizedWeight

__all__ = ["Linear", "check_sizes", "draw_affine", "linear"]


def linear(x: Any, W: Any, b: Any = None, method: str = "exact") -> Any:
    """x W + b, or x W without a bias, over the last axis of x: one op.

    Shapes:  x (..., d_in), W (d_in, d_out), b (d_out,) → (..., d_out)
    Raises:  ShapeError if x's last axis is not W's first.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if W.__class__ is QuantizedWeight:
        return W.product(x, b)
    if method == "tiled":
        return mg.linear(x, W, b, shared=True)
    return mg.matmul(x, W) if b is None and method == "exact" else mg.linear(x, W, b)


class Linear(Module):
    """An affine map of the last axis:  out = x W + b.

    Args:    rng: draws W ~ N(0, √(2 / (d_in + d_out))) (Xavier); a Generator, a seed, or None for
             fresh entropy. b starts at zero, and is None without use_bias.
    Shapes:  x (..., d_in) → (..., d_out)
    Raises:  ShapeError if x's last axis is not d_in; ArgumentError for a size below 1.

    >>> Linear(3, 2, rng=np.random.default_rng(0))(np.zeros((5, 7, 3))).shape
    (5, 7, 2)
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        use_bias: bool = True,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("Linear", d_in=d_in, d_out=d_out)
        self.dtype = np.dtype(dtype)
        self.W, self.b = draw_affine(np.random.default_rng(rng), use_bias, dtype, d_in, d_out)

    def forward(self, x: Any) -> Any:
        return linear(x, self.W, self.b)  # (..., d_out)


def draw_affine(
    rng: np.random.Generator, use_bias: bool, dtype: DTypeLike, n_in: int, n_out: int
) -> tuple[mg.Tensor, mg.Tensor | None]:
    """W (n_in, n_out) with entries N(0, σ²), σ = √(2 / (n_in + n_out)), and b = 0, or None.

    So drawn, a signal keeps its variance about equally well forward and backward.
    Source: Glorot & Bengio 2010, https://proceedings.mlr.press/v9/glorot10a.html.
    """
    W = rng.normal(0.0, sqrt(2 / (n_in + n_out)), (n_in, n_out)).astype(dtype)
    b = mg.tensor(np.zeros(n_out, dtype), requires_grad=True) if use_bias else None
    return mg.tensor(W, requires_grad=True), b


def check_sizes(call: str, **sizes: int) -> None:
    """Raise ArgumentError unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ArgumentError(f"{call}: {name} must be an integer of at least 1, got {size!r}")
