"""The steps of attention that are no one else's: scaling, masking, and their composition."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..op import Call, call, op
from .elementwise import broadcastable, each
from .linalg import matmul
from .reduce import softmax
from .shape import swapaxes

__all__ = ["mask_add", "scale", "scaled_dot_product_attention"]


def _scale_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (2, 3, 5)), 0.5)
    yield call(np.asarray(1.5), 3)
    yield call(np.zeros((0, 3)), 0.5)


@op(
    tex=r"<factor>\, <x>",
    vjp_tex={"x": r"<factor>\, <g>"},
    flops=each(1),
    samples=_scale_samples,
)
def scale(x, factor):
    """The array times one number, as scores are scaled by 1/√d_k: y = factor · x.

    Raises: ArgumentError unless the factor is one number.

    >>> scale(np.array([2.0, 4.0]), 0.5)
    array([1., 2.])
    """
    if np.ndim(factor) != 0:
        raise ArgumentError(f"factor must be one number, got shape {np.shape(factor)}")
    return x * float(factor)


@scale.vjp("x")
def _(g, factor):
    return g * float(factor)


def _mask_samples(rng: np.random.Generator) -> Iterator[Call]:
    scores = rng.uniform(-2, 2, (2, 3, 5, 5))
    yield call(scores, np.tril(np.ones((5, 5), bool)))
    yield call(scores, rng.uniform(-1, 1, (5, 5)))
    yield call(scores, rng.uniform(-1, 1, (2, 1, 1, 5)))
    yield call(np.zeros((0, 5)), np.ones(5, bool))


def _additive(mask: Any, dtype: Any) -> Any:
    """The mask as numbers to add: True becomes 0, False -inf."""
    if mask.dtype == bool:
        return np.where(mask, dtype.type(0), dtype.type(-np.inf))
    return mask


@op(
    tex=r"<scores> + <mask>",
    vjp_tex={"scores": r"<g>", "mask": r"<g>"},
    flops=each(1),
    samples=_mask_samples,
    requires=broadcastable,
)
def mask_add(scores, mask):
    """Scores with a mask added, before softmax: y = scores + mask.

    Args: mask: boolean (True = may attend) or floats to add (0 / -inf), broadcast against the scores.
    Raises: DTypeError for an integer mask, which could mean either.

    >>> mask_add(np.array([1.0, 2.0]), np.array([True, False]))
    array([  1., -inf])
    """
    mask = np.asarray(mask)
    if mask.dtype.kind not in "bfc":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    kind = np.real(scores).dtype if np.iscomplexobj(scores) else np.asarray(scores).dtype
    total = scores + _additive(mask, kind)
    return total.astype(np.result_type(scores), copy=False) if mask.dtype.kind == "f" else total


@mask_add.vjp("scores")
def _(g):
    return g


@mask_add.vjp("mask")
def _(g):
    return g


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    method: str = "auto",
) -> Any:
    """Scaled dot-product attention, each step a node: softmax(q kᵀ · scale + mask) v.

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to (..., n, m).
        is_causal: query i sees keys j ≤ i only (on top of the mask).
        scale: 1/√d_k unless given.
        method: "exact" records every step; "auto" chooses (today: always exact).
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v)
    Raises: ShapeError where these do not fit; ArgumentError for an unknown method.
    Source: Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> q = k = v = np.eye(3)[None]
    >>> scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]
    array([1., 0., 0.])
    """
    if method not in ("auto", "exact"):
        raise ArgumentError(
            f'scaled_dot_product_attention: method must be "auto" or "exact", got {method!r}'
        )
    factor = 1 / sqrt(q.shape[-1]) if scale is None else scale
    S = scale_scores(matmul(q, swapaxes(k, -1, -2)), factor)  # (..., n, m)
    if is_causal:
        S = mask_add(S, np.tri(S.shape[-2], S.shape[-1], dtype=bool))
    if mask is not None:
        S = mask_add(S, mask)
    return matmul(softmax(S), v)  # (..., n, d_v)


scale_scores = scale  # the op, where a parameter of the same name hides it
