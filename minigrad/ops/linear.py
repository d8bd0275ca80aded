"""The affine map as one op, its products on the threads that tiled attention uses."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..op import Call, call, op
from ..parallel import product

__all__ = ["linear"]


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    yield call(draw(3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7))
    yield call(draw(5), draw(5, 7), draw(7))
    yield call(draw(0, 5), draw(5, 7), draw(7))


def _inner(x: Any, W: Any, b: Any = None) -> str | None:
    """The rule that the shapes break, in words."""
    if np.ndim(W) != 2:
        return f"W must have two axes, got {np.ndim(W)}"
    if np.shape(x)[-1:] != np.shape(W)[:1]:
        return f"x's last axis must equal W's first, got {np.shape(x)} and {np.shape(W)}"
    if b is not None and np.shape(b) != np.shape(W)[1:]:
        return f"b must have W's last axis, got {np.shape(b)} and {np.shape(W)}"
    return None


@op(
    tex=r"<x> <W> + <b>",
    vjp_tex={"x": r"<g> <W>^\top", "W": r"<x>^\top <g>", "b": r"\textstyle\sum <g>"},
    flops=lambda x, b, out: 2 * out.size * np.shape(x)[-1] + (0 if b is None else out.size),
    samples=_samples,
    requires=_inner,
)
def linear(x, W, b=None):
    """x W + b over the last axis of x, on the threads that tiled attention uses and never on
    BLAS's own.

    Large products are shared among Python threads. Between other ops `matmul` is as good or better.

    Shapes: x (..., d_in), W (d_in, d_out), b (d_out,) or None → (..., d_out)
    Raises: ShapeError where these do not fit.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if broken := _inner(x, W, b):
        raise ValueError(broken)
    out = product(_rows(x), W).reshape(*x.shape[:-1], W.shape[-1])
    if b is not None:
        out += b
    return out


def _rows(x: Any) -> Any:
    """All axes but the last as one."""
    return x.reshape((prod(x.shape[:-1]), x.shape[-1]))


def _product(a: Any, b: Any) -> Any:
    """Of arrays by our threads; of Tensors recorded."""
    return product(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a @ b


@linear.vjp("x")
def _(g, x_shape, W):
    return _product(_rows(g), W.T).reshape(x_shape)


@linear.vjp("W")
def _(g, x):
    return _product(_rows(x).T, _rows(g))


@linear.vjp("b")
def _(g):
    return _rows(g).sum(axis=0)
