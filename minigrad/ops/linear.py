"""The affine map as one op: a product and a bias in one step, without a sum between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.errors import ShapeError
from ..engine.op import Call, call, op
from ..fast.blas_sums import as_rows, column_sums
from ..fast.memory import FEW, in_place_buffer
from ..fast.threads import one_threaded_blas, product
from .linalg import best_product

__all__ = ["linear"]


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    yield call(draw(3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7))
    yield call(draw(5), draw(5, 7), draw(7))
    yield call(draw(0, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7), shared=True)


def _inner(x: Any, W: Any, b: Any = None, *_: Any) -> str | None:
    """The rule that the shapes break, in words."""
    if np.ndim(W) != 2:
        return f"W must have two axes, got {np.ndim(W)}"
    if np.shape(x)[-1:] != (n := np.shape(W)[0],):
        last = np.shape(x)[-1] if np.ndim(x) else "none"
        return f"x's last axis must equal W's first, got {last} != {n}"
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
def linear(x, W, b=None, shared=False):
    """x W + b over the last axis of x.

    Args: shared: for use beside tiled attention: a large product goes on its threads, and BLAS's
        own, which spin on for a while, stay out of their way.
    Shapes: x (..., d_in), W (d_in, d_out), b (d_out,) or None → (..., d_out)
    Raises: ShapeError where these do not fit.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    fits = getattr(W, "ndim", 0) == 2 and getattr(x, "ndim", 0) > 0
    if not fits or (b is not None and getattr(b, "shape", ()) != W.shape[1:]):
        raise ShapeError(_inner(x, W, b))
    out = _along_last(x, W, shared)
    return out if b is None else np.add(out, b, in_place_buffer(out, b))


def _along_last(x: Any, W: Any, shared: bool) -> Any:
    """x W over the last axis of x."""
    if not shared and x.__class__ is ndarray and x.size <= FEW:
        return np.matmul(x, W)
    return _product(as_rows(x), W, shared).reshape(x.shape[:-1] + W.shape[1:])


def _product(a: Any, b: Any, shared: bool) -> Any:
    if shared and a.__class__ is ndarray is b.__class__:
        return product(a, b)
    return best_product(a, b)


@linear.vjp("x")
def _(g, W, shared):
    return _along_last(g, W.T, shared)


@linear.vjp("W")
def _(g, x, shared):
    return _product(as_rows(x).T, as_rows(g), shared)


@linear.vjp("b")
def _(g, shared):
    rows = as_rows(g)
    if shared and g.__class__ is ndarray:
        with one_threaded_blas:  # BLAS's own threads stay asleep
            return column_sums(rows)
    return column_sums(rows)
