"""Reductions by roots and products: std, norm, prod."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Axes, Call, call, cast_back, floating, widen, widen_half
from .notation import axes_of, axis_letters, entries, letters
from .reduce import (
    broadcast_tex,
    centred_tex,
    count,
    mean,
    reduction,
    shape_with_ones,
    sign_tex,
    var,
)
from .samples import reductions

__all__ = ["norm", "prod", "std"]


def _std_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in reductions(rng):
        if np.ndim(sample.args[0]):  # one entry has no spread
            yield sample
    yield call(rng.uniform(-1, 1, (3, 5)), axis=1, ddof=1)


def _std_vjp_tex(x, axis, ddof):
    n = count(x.shape, axis) - ddof
    slope = broadcast_tex(x, axis, r"<g> \oslash <out>")
    return rf"\tfrac1n {slope} \odot {centred_tex(x, axis)}, \quad n = {n}"


@reduction(
    lambda x, axis, ddof: (
        rf"\sqrt{{\tfrac1n \sum_{{{axis_letters(x, axis)}}} {centred_tex(x, axis)}^{{\circ 2}}}},"
        rf" \quad n = {count(x.shape, axis) - ddof}"
    ),
    _std_vjp_tex,
    lambda x, out: 4 * x.size + out.size,
    _std_samples,
)
def std(x, axis=None, ddof=0, keepdims=False):
    """Takes the standard deviation over an axis, several, or all: the root of `var`.

    Where all entries are equal it is 0, and so is the gradient.  Raises: as var.

    >>> std(np.array([1.0, 5.0]))
    np.float64(2.0)
    """
    x = floating(x)
    return cast_back(np.sqrt(var.kernel(widen(x), axis, ddof, keepdims)), x)


@std.vjp("x")
def _(g, x, out, axis, ddof):
    """The gradient is multiplied by the difference from the mean, over the deviation, averaged."""
    shape = shape_with_ones(x.shape, axis)
    centred = widen_half(x) - mean(widen_half(x), axis, True)
    slope = g / np.where(out == 0, 1, out) / (count(x.shape, axis) - ddof)
    return np.where(out == 0, 0, slope).reshape(shape) * centred


# ---------------------------------------------------------------- norm


@reduction(
    lambda x, axis: rf"\sqrt{{\sum_{{{axis_letters(x, axis)}}} <x>{entries(x)}^{{\circ 2}}}}",
    lambda x, axis: broadcast_tex(x, axis, r"<g> \oslash <out>") + r" \odot <x>",
    lambda x, out: 2 * x.size + out.size,
)
def norm(x, ord=None, axis: Axes = None, keepdims: bool = False):
    """Takes the Euclidean length over an axis, several, or all: √Σ x². At 0 its gradient is 0.

    Args: ord: None, or 2 along one axis, as np.linalg.norm has it.
    Raises: ArgumentError for another norm; write abs(x).sum(axis) or abs(x).max(axis).

    >>> norm(np.array([3.0, 4.0]))
    np.float64(5.0)
    """
    x = floating(x)
    one_axis = x.ndim == 1 if axis is None else np.ndim(axis) == 0
    if ord is not None and not (ord == 2 and one_axis):
        raise ArgumentError(
            f"ord must be None, or 2 along one axis, got {ord!r}; "
            "write abs(x).sum(axis) or abs(x).max(axis)"
        )
    wide = widen(x)
    total = (wide * wide).sum(axis=axis, keepdims=keepdims)
    return cast_back(np.sqrt(total), x)


@norm.vjp("x")
def _(g, x, out, axis):
    """The gradient is multiplied by each entry and divided by the length."""
    slope = np.where(out == 0, 0, g / np.where(out == 0, 1, out))
    return slope.reshape(shape_with_ones(x.shape, axis)) * x


# ---------------------------------------------------------------- prod


def _prod_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(0.5, 1.5, (2, 3, 5))
    for axis in (None, 0, -1, (0, 2)):
        yield call(x[:, :2, :3], axis=axis)
    x[0, 1, 2] = x[1, 0, 0] = x[1, 0, 1] = 0.0  # rows with one zero, and with two
    yield call(x, axis=2, keepdims=True)
    yield call(np.zeros((0, 3)), axis=1)


def _others_tex(x, axis):
    if not axes_of(x, axis):
        return "<g>"
    known, reduced = letters(x.ndim), axes_of(x, axis)
    primed = [f"{name}'" if k in reduced else name for k, name in enumerate(known)]
    other = ",".join(primed[k] for k in reduced)
    this = axis_letters(x, axis)
    if len(reduced) > 1:
        other, this = f"({other})", f"({this})"
    others = rf"\prod_{{{other} \ne {this}}} <x>_{{{','.join(primed)}}}"
    return rf"{broadcast_tex(x, axis)} \odot {others}"


@reduction(
    sign_tex(r"\prod"),
    _others_tex,
    1,
    _prod_samples,
)
def prod(x, axis: Axes = None, keepdims: bool = False):
    """Multiplies all entries over an axis, several, or all.

    >>> prod(np.array([2.0, 3.0, 4.0]))
    np.float64(24.0)
    """
    return np.prod(x, axis=axis, keepdims=keepdims)


@prod.vjp("x")
def _(g, x, axis):
    """The gradient is multiplied by the product of all the other entries."""
    shape = shape_with_ones(x.shape, axis)
    reduced = tuple(axes_of(x, axis))
    rest = tuple(k for k in range(x.ndim) if k not in reduced)
    n, order = count(x.shape, axis), rest + reduced
    rows = np.transpose(x, order).reshape((x.size // n if n else 0, n))
    others = np.where(np.eye(n, dtype=bool), 1, np.expand_dims(rows, 1)).prod(axis=2)
    back = tuple(order.index(k) for k in range(x.ndim))
    others = np.transpose(others.reshape([x.shape[k] for k in order]), back)
    return g.reshape(shape) * others
