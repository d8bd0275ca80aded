"""Ops of networks: losses, normalisation, dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from ..engine.op import Call, call, op
from ..fast.blas_sums import as_rows
from ..fast.memory import in_place_buffer, out_buffer
from .masked import masked
from .reduce import row_dot, row_sum, several, shifted, softmax, total_of
from .samples import arrayed, floating, recorded

__all__ = ["cross_entropy", "dropout", "layer_norm", "rms_norm"]


def _cross_entropy_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (3, 5)), np.array([0, 4, 2]))
    yield call(rng.uniform(-2, 2, (2, 3, 5)), rng.integers(0, 5, (2, 3)))
    yield call(rng.uniform(-2, 2, 5), np.array(3))
    yield call(rng.uniform(-2, 2, (3, 5)) * 800, np.array([0, 4, 2]))


def _one_hot(targets: Any, logits: Any) -> Any:
    return (np.arange(logits.shape[-1]) == targets[..., None]).astype(logits.dtype)


@op(
    tex=r"-\operatorname{mean}_i \log \operatorname{softmax}(<logits>)_{i, t_i}",
    vjp_tex={
        "logits": r"\tfrac1N <g> \odot"
        r" (\operatorname{softmax}(<logits>) - \operatorname{onehot}(t))"
    },
    flops=lambda logits: 5 * np.size(logits),
    samples=_cross_entropy_samples,
    auxiliary=("peak", "total"),
)
def cross_entropy(logits, targets):
    """Cross-entropy of integer targets, mean over rows: -mean_i log softmax(logits)_{i, t_i}.

    Shapes: logits (..., C), targets (...) of integers in [0, C) → ().
    Raises: ShapeError, DTypeError or OutOfRangeError where the targets do not fit; ShapeError
        without rows.

    >>> cross_entropy(np.zeros((2, 4)), np.array([1, 3])).round(4)
    np.float64(1.3863)
    """
    targets = arrayed(targets)
    if np.ndim(logits) < 1 or targets.shape != logits.shape[:-1]:
        raise ShapeError(
            f"targets {targets.shape} must have logits' shape without its last axis, "
            f"{np.shape(logits)[:-1]}"
        )
    if targets.dtype.kind not in "iu":
        raise DTypeError(f"targets must be integers, got {targets.dtype}")
    if targets.size == 0:
        raise ShapeError("a mean over no rows; logits need at least one")
    classes = logits.shape[-1]
    if targets.min() < 0 or targets.max() >= classes:
        worst = targets.min() if targets.min() < 0 else targets.max()
        raise OutOfRangeError(f"targets must lie in [0, {classes}), got {worst}")
    less, peak = shifted(logits, -1)
    picked: Any = np.take_along_axis(less, targets[..., None], axis=-1)
    total = total_of(np.exp(less, in_place_buffer(less)), -1)
    return np.mean(np.log(total) - picked), peak, total


@cross_entropy.vjp("logits")
def _(g, logits, targets, peak, total):
    targets = arrayed(targets)
    if logits.__class__ is not np.ndarray:
        return (softmax(logits) - _one_hot(targets, logits)) * (g / targets.size)
    d_logits = np.subtract(logits, peak, out_buffer(logits, peak))
    np.exp(d_logits, d_logits)
    d_logits /= total
    d_logits[(*np.indices(targets.shape, sparse=True), targets)] -= 1
    d_logits *= g / targets.size
    return d_logits


def _dropout_samples(rng: np.random.Generator) -> Iterator[Call]:
    for p in (0.0, 0.3, 1.0):
        yield call(rng.uniform(-2, 2, (3, 5)), p, np.random.default_rng(7))
    yield call(np.zeros((0, 3)), 0.5, np.random.default_rng(7))
    yield call(np.asarray(1.5), 0.5, np.random.default_rng(7))


def _factor(p: float) -> float:
    """What a kept entry is multiplied by."""
    return 1 / (1 - p) if p < 1 else 0.0


@op(
    tex=r"\tfrac{1}{1 - <p>}\, <x> \odot \text{keep}",
    vjp_tex={"x": r"\tfrac{1}{1 - <p>}\, <g> \odot \text{keep}"},
    flops=several(2),
    samples=_dropout_samples,
    auxiliary=("keep",),
)
def dropout(x, p, rng):
    """Each entry zeroed with probability p, the rest divided by 1 - p, so that the mean stays.

    Args: rng: the np.random.Generator that draws, anew at every call.
    Raises: ArgumentError unless 0 ≤ p ≤ 1; DTypeError without a Generator.
    Source: Srivastava et al. 2014.

    >>> dropout(np.ones(4), 0.5, np.random.default_rng(0))
    array([2., 0., 0., 0.])
    """
    if not isinstance(rng, np.random.Generator):
        raise DTypeError(f"rng must be a np.random.Generator, got {type(rng).__name__}")
    if not 0 <= p <= 1:
        raise ArgumentError(f"p must lie in [0, 1], got {p}")
    keep = rng.random(np.shape(x)) >= p
    return masked(x * _factor(p), keep), keep


@dropout.vjp("x")
def _(g, p, keep):
    return masked(g * _factor(p), keep)


# ---------------------------------------------------------------- normalisation


def _layer_norm_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (2, 3, 5))
    w, b = rng.uniform(0.5, 1.5, 5), rng.uniform(-1, 1, 5)
    yield call(x, w, b)
    yield call(x, w, b, eps=0.1)
    yield call(x[0, 0], w, b)
    yield call(np.zeros((0, 5)), w, b)


def _matches_last(x: Any, weight: Any, bias: Any = None, *_: Any) -> str | None:
    width = np.shape(x)[-1:]
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and np.shape(value) != width:
            return f"{name} must have the shape of x's last axis, {width}, got {np.shape(value)}"
    return None


def _checked(x: Any, weight: Any, bias: Any = None) -> None:
    broken = _matches_last(x, weight, bias) if np.ndim(x) else None
    if broken or np.ndim(x) == 0:
        raise ShapeError(broken or "x needs at least one axis")


def _centred(x: Any) -> tuple[Any, Any]:
    """The mean of each row, and x less that."""
    mean = row_sum(x) / x.shape[-1]
    return mean, np.subtract(x, mean, out_buffer(x, mean))


def _inverse_root(x: Any, eps: float) -> Any:
    """1 / √(mean(x²) + ε) of each row."""
    return (row_dot(x, x) / x.shape[-1] + eps) ** -0.5


def _back_to_scaled(g: Any, x: Any, weight: Any, inverse: Any, needed: Any) -> tuple[Any, Any]:
    """The gradients of x and w in (x · inverse) ⊙ w, as if `inverse` were a constant.

    ĝ · inverse,    Σ over rows of (g · inverse) ⊙ x,    with ĝ = g ⊙ w
    """
    d_x = np.multiply(g, inverse, out_buffer(g, inverse))
    d_weight = np.einsum("ri,ri->i", as_rows(d_x), as_rows(x)) if needed[1] else None
    if weight is not None and needed[0]:
        d_x *= weight
    return d_x, d_weight


@op(
    tex=r"\frac{<x> - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot <weight> + <bias>",
    vjp_tex={
        "x": r"\tfrac{1}{\sqrt{\sigma^2 + \varepsilon}} (\hat g - \operatorname{rowmean}(\hat g)"
        r" - \hat x \odot \operatorname{rowmean}(\hat g \odot \hat x)),"
        r" \quad \hat g = <g> \odot <weight>",
        "weight": r"\textstyle\sum_{\text{rows}} <g> \odot \hat x",
        "bias": r"\textstyle\sum_{\text{rows}} <g>",
    },
    flops=several(8),
    samples=_layer_norm_samples,
    auxiliary=("mean", "inverse"),
)
def layer_norm(x, weight, bias, eps=1e-5):
    """Layer normalisation over the last axis: x̂ ⊙ weight + bias, x̂ = (x - μ) / √(σ² + ε).

    Args: weight, bias: of the last axis' shape; None leaves either out.
    Raises: ShapeError where they do not fit.  Source: Ba et al. 2016, arXiv:1607.06450.

    >>> layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), eps=0.0)
    array([[-1.,  1.]])
    """
    _checked(x, weight, bias)
    x = floating(x)
    mean, out = _centred(x)
    inverse = _inverse_root(out, eps)
    out *= inverse
    if weight is not None:
        out = np.multiply(out, weight, in_place_buffer(out, weight))
    if bias is not None:
        out = np.add(out, bias, in_place_buffer(out, bias))
    return out, mean, inverse


@layer_norm.vjp("x", "weight")
def _(g, x, weight, eps, mean, inverse, needed):
    if recorded(x):
        mean, centred = _centred(x)
        inverse = _inverse_root(centred, eps)
    else:
        centred = np.subtract(x, mean, out_buffer(x, mean))
    d_x, d_weight = _back_to_scaled(g, centred, weight, inverse, needed)
    if not needed[0]:
        return None, d_weight
    mean_of_d_x = row_sum(d_x) / x.shape[-1]
    centred *= row_dot(d_x, centred) * inverse / x.shape[-1] * inverse
    d_x -= centred
    d_x -= mean_of_d_x
    return d_x, d_weight


@layer_norm.vjp("bias")
def _(g):
    return g


def _rms_norm_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in _layer_norm_samples(rng):
        yield call(*sample.args[:2], **sample.kwargs)


@op(
    tex=r"\frac{<x>}{\sqrt{\operatorname{mean}(<x>^2) + \varepsilon}} \odot <weight>",
    vjp_tex={
        "x": r"\tfrac1r (\hat g - \hat x \odot \operatorname{rowmean}(\hat g \odot \hat x)),"
        r" \quad \hat g = <g> \odot <weight>",
        "weight": r"\textstyle\sum_{\text{rows}} <g> \odot \hat x",
    },
    flops=several(5),
    samples=_rms_norm_samples,
    auxiliary=("inverse",),
)
def rms_norm(x, weight, eps=1e-5):
    """Root-mean-square normalisation over the last axis: x / r ⊙ weight, r = √(mean(x²) + ε).

    Args: weight: of the last axis' shape, or None.
    Raises: ShapeError where it does not fit.  Source: Zhang & Sennrich 2019, arXiv:1910.07467.

    >>> rms_norm(np.array([[3.0, 3.0]]), np.ones(2), eps=0.0)
    array([[1., 1.]])
    """
    _checked(x, weight)
    x = floating(x)
    inverse = _inverse_root(x, eps)
    out = np.multiply(x, inverse, out_buffer(x, inverse))
    if weight is not None:
        out = np.multiply(out, weight, in_place_buffer(out, weight))
    return out, inverse


@rms_norm.vjp("x", "weight")
def _(g, x, weight, eps, inverse, needed):
    if recorded(x):
        inverse = _inverse_root(x, eps)
    d_x, d_weight = _back_to_scaled(g, x, weight, inverse, needed)
    if not needed[0]:
        return None, d_weight
    along = row_dot(d_x, x) * inverse / x.shape[-1] * inverse
    d_x -= np.multiply(x, along, out_buffer(x, along))
    return d_x, d_weight
