"""Products of matrices: matmul in every case NumPy knows, and the affine map as one op."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..engine.errors import ShapeError
from ..engine.op import Call, call, op

__all__ = ["linear", "matmul"]


def as_rows(x):
    """All axes but the last as one: (..., d) → (rows, d)."""
    return x.reshape((prod(x.shape[:-1]), x.shape[-1]))


def _matmul_samples(rng: np.random.Generator) -> Iterator[Call]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((3, 5), (2, 5, 7)),
        ((2, 1, 3, 5), (7, 5, 2)), ((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 7)),
        ((5,), (2, 5, 7)), ((2, 3, 5), (5,)), ((0, 5), (5, 7)), ((3, 0), (0, 7)),
        ((1, 3, 5), (2, 5, 7)),
    ]  # fmt: skip
    for a, b in shapes:
        yield call(rng.uniform(-1, 1, a), rng.uniform(-1, 1, b))


def _inner_axes(a: Any, b: Any) -> str | None:
    """The rule of matmul that two shapes break, in words."""
    first, second = np.shape(a), np.shape(b)
    if not first or not second:
        return "both need at least one axis"
    n, m = first[-1], second[-2] if len(second) > 1 else second[0]
    turned = len(first) == len(second) > 2 and second[0] == n  # what K.T is of a batch of keys
    remedy = "; .T turns round all axes, the batch too: write a @ b.mT" if turned else ""
    if n != m:
        which = "second-to-last" if len(second) > 1 else "only axis"
        return f"a's last axis must equal b's {which}, got {n} != {m}{remedy}"
    for axis in range(3, min(len(first), len(second)) + 1):
        if first[-axis] != second[-axis] and 1 not in (first[-axis], second[-axis]):
            n, m = first[-axis], second[-axis]
            return f"batch axes must broadcast, but axis -{axis} has {n} and {m}{remedy}"
    return None


@op(
    tex=r"<a> <b>",
    vjp_tex={"a": r"<g> <b>^\top", "b": r"<a>^\top <g>"},
    flops=lambda a, out: 2 * out.size * np.shape(a)[-1],
    samples=_matmul_samples,
    requires=_inner_axes,
)
def matmul(a, b):
    """Multiplies matrices, rows by columns: y_ij = Σ_k a_ik b_kj; axes before these broadcast.

    One-axis inputs are a row on the left, a column on the right, as in np.matmul.
    Raises: ShapeError unless a's last axis equals b's second-to-last.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    return np.matmul(a, b)


@matmul.vjp("a")
def _(g, a_shape, b):
    """The gradient is multiplied by the second matrix, transposed."""
    if b.ndim == 1:  # y_i = Σ_k a_ik b_k
        return np.expand_dims(g, -1) * b
    if len(a_shape) == 1:  # a row, whose axis the result lacks
        return np.squeeze(np.matmul(np.expand_dims(g, -2), b.mT), -2)
    return np.matmul(g, b.mT)


@matmul.vjp("b")
def _(g, a, b_shape):
    """The first matrix, transposed, is multiplied by the gradient."""
    if a.ndim == 1:
        return np.expand_dims(a, -1) * np.expand_dims(g, -2) if len(b_shape) > 1 else g * a
    if len(b_shape) == 1:
        return np.squeeze(np.matmul(a.mT, np.expand_dims(g, -1)), -1)
    if len(b_shape) == 2:  # every matrix of a stack meets the same b: their rows as one matrix
        return np.matmul(as_rows(a).T, as_rows(g))
    return np.matmul(a.mT, g)


# ---------------------------------------------------------------- linear


def _linear_samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    yield call(draw(3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7))
    yield call(draw(5), draw(5, 7), draw(7))
    yield call(draw(0, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7), shared=True)


def check_inner(x: Any, W: Any, b: Any = None, *_: Any) -> str | None:
    """The rule of linear that the shapes break, in words."""
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
    vjp_tex={"x": r"<g> <W>^\top", "W": r"<x>^\top <g>", "b": r"<g>"},
    flops=lambda x, b, out: 2 * out.size * np.shape(x)[-1] + (0 if b is None else out.size),
    samples=_linear_samples,
    requires=check_inner,
)
def linear(x, W, b=None, shared=False):
    """Multiplies each row by the weights and adds the bias if there is one: x W + b.

    Args: shared: for use beside tiled attention: a large product goes on its threads, and BLAS's
        own, which spin on for a while, stay out of their way.
    Shapes: x (..., d_in), W (d_in, d_out), b (d_out,) or None → (..., d_out)
    Raises: ShapeError where these do not fit.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if np.ndim(W) != 2 or (b is not None and np.shape(b) != W.shape[1:]):  # would broadcast
        raise ShapeError(check_inner(x, W, b))
    return np.matmul(x, W) if b is None else np.matmul(x, W) + b


@linear.vjp("x")
def _(g, W):
    """The gradient is multiplied by the weights, transposed."""
    return np.matmul(g, W.T)


@linear.vjp("W")
def _(g, x):
    """The rows of the input, transposed, are multiplied by the rows of the gradient."""
    return np.matmul(as_rows(x).T, as_rows(g))


@linear.vjp("b")
def _(g):
    """The gradient is summed over the rows."""
    return g  # summed over the rows by the edge rule
