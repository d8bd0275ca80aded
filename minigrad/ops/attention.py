"""Attention step by step, to look inside, or as a faster method computes it; its own two ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..engine.errors import ArgumentError, GradientError, ShapeError
from ..engine.listener import mark_constant
from ..engine.op import Call, as_array, call, cast_back, floating, op
from ..engine.refusals import explained
from ..engine.tensor import SameArray, Tensor, TensorOrArray
from .arithmetic import broadcastable
from .functions import elementwise
from .mask_rules import MaskRule
from .masks import check_mask, check_meaning
from .products import matmul
from .samples import each
from .shape import swapaxes
from .softmax import softmax

__all__ = ["mask_add", "scale", "scaled_dot_product_attention"]


def _scale_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (2, 3, 5)), 0.5)
    yield call(np.asarray(1.5), 3)
    yield call(np.zeros((0, 3)), 0.5)


@elementwise(r"<factor>\, <x>", r"<factor>\, <g>", 1, samples=_scale_samples)
def scale(x, factor):
    """Multiplies every entry by one number: y = factor · x, as attention's scores by 1/√d_k.

    Raises: ArgumentError unless the factor is one number.

    >>> scale(np.array([2.0, 4.0]), 0.5)
    array([1., 2.])
    """
    if factor.__class__ is not float and np.ndim(factor) != 0:
        raise ArgumentError(f"factor must be one number, got shape {np.shape(factor)}")
    return np.multiply(x, float(factor))


@scale.vjp("x")
def _(g, factor):
    """The gradient is multiplied by the same number."""
    return g * float(factor)


def _mask_samples(rng: np.random.Generator) -> Iterator[Call]:
    scores = rng.uniform(-2, 2, (2, 3, 5, 5))
    yield call(scores, np.tril(np.ones((5, 5), bool)))
    yield call(scores, rng.uniform(-1, 1, (5, 5)))
    yield call(scores, rng.uniform(-1, 1, (2, 1, 1, 5)))
    yield call(np.zeros((0, 5)), np.ones(5, bool))


@op(
    tex=r"<scores> + <mask>",
    vjp_tex={"scores": r"<g>", "mask": r"<g>"},
    flops=each(1),
    samples=_mask_samples,
    requires=broadcastable,
)
def mask_add(scores, mask):
    """Adds a mask to scores before softmax: y = scores + mask.

    Args: mask: boolean (True = may attend) or floats to add (0 / -inf), broadcast against the
        scores.
    Raises: DTypeError for an integer mask, which could mean either; ArgumentError if it holds NaN
        or +inf, or floats that are all 0 or 1, which were meant as booleans.

    >>> mask_add(np.array([1.0, 2.0]), np.array([True, False]))
    array([  1., -inf])
    """
    scores, mask = floating(scores), as_array(mask)
    check_mask(mask)
    total = scores + in_dtype_of(scores, mask)
    return total if mask.dtype.kind == "c" else cast_back(total, scores)


def in_dtype_of(scores, mask):
    """What is added to the scores, in their dtype: a wider mask would make wider scores."""
    dtype = np.real(scores).dtype if scores.dtype.kind == "c" else scores.dtype
    if mask.dtype.kind == "b":
        return np.where(mask, *np.array([0, -np.inf], dtype))
    if mask.dtype.kind != "f" or mask.dtype == dtype:
        return mask
    with np.errstate(over="ignore"):  # -1e9 is -inf to float16, and means it
        return mask.astype(dtype)


@mask_add.vjp("scores")
@mask_add.vjp("mask")
def _(g):
    """The gradient passes unchanged to the scores and to the mask."""
    return g


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
