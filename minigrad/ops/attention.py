"""Attention step by step, to look inside, or as a faster method computes it; its own two ops."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..engine.errors import ArgumentError, GradientError, ShapeError
from ..engine.listener import mark_constant
from ..engine.refusals import explained
from ..engine.tensor import SameArray, Tensor, TensorOrArray
from .arithmetic import scale
from .dtypes import as_array
from .mask_rules import MaskRule
from .masks import check_meaning, mask_add
from .products import matmul
from .shape import swapaxes
from .softmax import softmax

__all__ = ["scaled_dot_product_attention"]


# ---------------------------------------------------------------- scaled dot-product attention


_CALL = "scaled_dot_product_attention(q, k, v, mask)"


@explained
def scaled_dot_product_attention(
    q: SameArray,
    k: TensorOrArray,
    v: TensorOrArray,
    mask: TensorOrArray | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    method: str = "auto",
    rule: MaskRule | None = None,
) -> SameArray:
    """Scaled dot-product attention: O = softmax(q kᵀ · scale + mask) v, and O alone.

    For O and the weights A, as texts have it, call its twin: O, A =
    layers.scaled_dot_product_attention(Q, K, V). A Tensor from here refuses to be unpacked so.

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to (..., n, m).
        is_causal: query i sees keys j ≤ i only (on top of the mask).
        scale: 1/√d_k unless given.
        method: "exact" records every step; "tiled" is one node, in memory that grows with n, and
            skips what the mask closes; "auto" takes the faster one (see `attention_method`). They
            agree to rounding.
        rule: a mask as a rule (see minigrad.ops.mask_rules), on top of the mask: in tiles there is
            no (n, m) array then. It may also be given as the mask.
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v)
    Raises: ShapeError where these do not fit, or a mask (n, m) could be (B, m);
        ArgumentError for an unknown method; GradientError for "tiled" with a mask that requires a
        gradient.
    Source: Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> q = k = v = np.eye(3)[None]
    >>> scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]
    array([1., 0., 0.])
    """
    q = as_array(q)
    k = as_array(k)
    v = as_array(v)
    if q.ndim < 2 or k.ndim < 2:
        raise ShapeError(f"{_CALL}: q and k need at least two axes, got {q.ndim} and {k.ndim}")
    if isinstance(mask, MaskRule):
        mask, rule = None, mask if rule is None else mask & rule
    if mask is not None:
        check_meaning(_CALL, mask, np.shape(q)[:-2], np.shape(q)[-2], np.shape(k)[-2])
    if method == "auto":
        method = _method_for(q, k, v, mask)
    if method == "exact":
        A = attention_weights(q, k, mask, is_causal, scale, rule)  # (..., n, m)
        return _named(matmul(A, v))  # (..., n, d_v)
    faster = _find(method)
    if _needs(mask):
        raise GradientError(
            f'scaled_dot_product_attention: no gradient flows into the mask with method="{method}"'
            '; use "exact", or pass mask.detach()'
        )
    return _named(faster.attend(q, k, v, mask, is_causal=is_causal, scale=scale, rule=rule))


def attention_weights(
    q: TensorOrArray,
    k: TensorOrArray,
    mask: TensorOrArray | None,
    is_causal: bool,
    scale_by: float | None,
    rule: MaskRule | None = None,
) -> Any:
    """A = softmax(q kᵀ · scale + mask), each step an op: (..., n, m)."""
    scale_by = 1 / sqrt(q.shape[-1]) if scale_by is None else scale_by
    S = scale(matmul(q, swapaxes(k, -1, -2)), scale_by)
    n, m = S.shape[-2:]
    if is_causal:
        S = mask_add(S, mark_constant(np.tri(n, m, dtype=bool)))
    if rule is not None:
        S = mask_add(S, mark_constant(rule.array(n, m)))
    if mask is not None:
        S = mask_add(S, mask)
    return softmax(S)


# ---------------------------------------------------------------- which method runs


class Method(NamedTuple):
    """A faster way to compute attention, declared by minigrad/fast.

    attend: (q, k, v, mask, is_causal=, scale=, rule=) → O.
    is_faster: whether "auto" takes it, by the number of scores.
    form: the name of what runs, by the number of scores.
    """

    attend: Callable[..., Any]
    is_faster: Callable[[int], bool]
    form: Callable[[int], str]


METHODS: dict[str, Method] = {}  # all but "exact"; the module that declares one adds it


def attention_method(
    heads: int, n: int, m: int, mask: TensorOrArray | None = None, method: str = "auto"
) -> str:
    """The name of the method that runs, for so many heads in the whole batch, n queries and m keys.

    "auto" takes "tiled" where it is faster, but "exact" for a mask that requires a gradient. Who
    listens makes no difference: a trace shows, and `compile` writes, what runs without them.
    "tiled" itself comes to "one tile" where there are few scores: BLAS then keeps its own threads.

    >>> attention_method(8, 128, 128)
    'exact'
    """
    scores = heads * n * m
    if method == "exact":
        return method
    if method == "auto":
        faster = [name for name, one in METHODS.items() if one.is_faster(scores)]
        return faster[0] if faster and not _needs(mask) else "exact"
    return _find(method).form(scores)


def _find(method: str) -> Method:
    if method in METHODS:
        return METHODS[method]
    if method == "tiled":
        raise ArgumentError(
            'scaled_dot_product_attention: method="tiled" is part of minigrad/fast, which is '
            'missing or turned off by MINIGRAD_FAST=0; use "exact" or "auto"'
        )
    raise ArgumentError(
        f'scaled_dot_product_attention: method must be "auto", "exact" or "tiled", got {method!r}'
    )


def _method_for(
    q: TensorOrArray, k: TensorOrArray, v: TensorOrArray, mask: TensorOrArray | None
) -> str:
    shapes = [np.shape(x) for x in (q, k, v)]
    try:
        heads = prod(np.broadcast_shapes(*(shape[:-2] for shape in shapes)))
        return attention_method(heads, shapes[0][-2], shapes[1][-2], mask)
    except (ValueError, IndexError):  # the op says what is wrong
        return "exact"


def _named(O: Any) -> Any:
    return O.named("O") if isinstance(O, Tensor) else O


def _needs(x: TensorOrArray | None) -> bool:
    return isinstance(x, Tensor) and x.requires_grad
