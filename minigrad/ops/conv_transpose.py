r"""Transposed convolution: each entry of the input spreads the weights, so that lengths grow.

It is what a convolution's rule computes for its input, and its own rules are that convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import Call, call, floating, op, widen_half
from .convolution import (
    PerAxis,
    bias_tex,
    check_axes,
    check_bias,
    conv1d,
    conv2d,
    entry_place,
    group_channel,
    per_axis,
    spread_products,
    window_products,
)
from .samples import Samples

__all__ = ["conv_transpose1d", "conv_transpose2d"]


def spread_lengths(
    lengths: Sequence[int], size: Sequence[int], settings: dict[str, PerAxis]
) -> tuple[int, ...]:
    """The lengths of the result: (m - 1) stride - 2 padding + dilation (size - 1) + 1 +
    output_padding.

    Raises: ArgumentError for a setting out of range; ShapeError if nothing is left.
    """
    n = len(size)
    each = {name: per_axis(value, n, name) for name, value in settings.items()}
    for name, least in (("stride", 1), ("dilation", 1), ("padding", 0), ("output_padding", 0)):
        if min(each[name]) < least:
            raise ArgumentError(f"{name} must be at least {least}, got {settings[name]}")
    if any(extra >= s for extra, s in zip(each["output_padding"], each["stride"], strict=True)):
        raise ArgumentError(
            f"output_padding must be below the stride, got {settings['output_padding']} with "
            f"stride {settings['stride']}: what lies further out would get the bias alone"
        )
    strides = each["stride"]
    paddings = each["padding"]
    behind = each["output_padding"]
    axes = zip(lengths, size, strides, paddings, behind, each["dilation"], strict=True)
    out = tuple((m - 1) * s - 2 * p + d * (k - 1) + 1 + extra for m, k, s, p, extra, d in axes)
    if min(out) < 1:
        raise ShapeError(f"the result would have lengths {out}: the padding takes all of it")
    return out


def transposed(n, spread, x, weight, bias, stride, padding, output_padding, groups, dilation):
    """The result over n axes; `spread` is a convolution's rule for its input."""
    x, weight = floating(x), floating(weight)
    check_axes(n, x, weight, "C, O / groups")
    C, O = x.shape[1], weight.shape[1] * groups
    if groups < 1 or C % groups or len(weight) != C:
        raise ShapeError(
            f"weight must be (C, O / groups, …) with groups dividing both, got C = {C}, "
            f"groups = {groups} and weight {weight.shape}"
        )
    check_bias(bias, O)
    settings = dict(
        stride=stride, padding=padding, output_padding=output_padding, dilation=dilation
    )
    shape = (len(x), O, *spread_lengths(x.shape[2:], weight.shape[2:], settings))
    y = spread(x, shape, weight, stride, padding, dilation, groups)
    return y if bias is None else y + np.reshape(bias, (-1, *[1] * n))


def _channel(x, weight, groups):
    """The channel of the result that entry f of the weights of c goes to: those of c's group."""
    return group_channel("f", weight.shape[1], "c", x.shape[1] // groups, groups)


def _tex(x, weight, bias, stride, padding, dilation, groups):
    terms = r"<weight>_{c,f,k} \odot <x>_{n,c,i}"
    at = rf"[m = {entry_place(stride, padding, dilation)}]"
    shift = "" if bias is None else " + <bias>_f" if groups == 1 else " + <bias>_d"
    if groups == 1:
        return rf"\sum_{{c,k,i}} {terms} \odot {at}{shift}"
    made = rf"[d = {_channel(x, weight, groups)}]"
    return rf"\sum_{{c,f,k,i}} {terms} \odot {made} \odot {at}{shift}"


def _x_tex(x, weight, stride, padding, dilation, groups):
    read = f"{_channel(x, weight, groups)},{entry_place(stride, padding, dilation)}"
    return rf"\sum_{{f,k}} <weight>_{{c,f,k}} \odot <g>_{{n,{read}}}"


def _weight_tex(x, weight, stride, padding, dilation, groups):
    read = f"{_channel(x, weight, groups)},{entry_place(stride, padding, dilation)}"
    return rf"\sum_{{n,i}} <x>_{{n,c,i}} \odot <g>_{{n,{read}}}"


def _flops(x, weight, bias, out):
    """A multiplication and an addition for each entry of x and weight of its channel."""
    return 2 * x.size * prod(weight.shape[1:]) + (0 if bias is None else out.size)


def _samples(n: int) -> Samples:
    def samples(rng: np.random.Generator) -> Iterator[Call]:
        x, size = rng.uniform(-1, 1, (2, 4, 3, 5)[: n + 2]), (2, 3)[:n]
        bias = rng.uniform(-1, 1, 6)
        yield call(x, rng.uniform(-1, 1, (4, 6, *size)), bias)
        yield call(x[:1], rng.uniform(-1, 1, (4, 3, *size)), None, 2, 1, 1, 2, 2)
        yield call(x[:0], rng.uniform(-1, 1, (4, 6, *size)), bias)

    return samples


_TRANSPOSED: dict[str, Any] = {
    "tex": _tex,
    "vjp_tex": {"x": _x_tex, "weight": _weight_tex, "bias": bias_tex},
    "flops": _flops,
}


@op(**_TRANSPOSED, samples=_samples(1))
def conv_transpose1d(
    x, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1
):
    """Spreads each entry of a sequence by a filter and adds what overlaps, so that it grows:
    y_{n,o,si+k} = Σ_{c,k} w_{c,o,k} x_{n,c,i} + b_o.

    Args, errors: as conv_transpose2d.
    Shapes: x (N, C, length), weight (C, O / groups, K), bias (O,).

    >>> conv_transpose1d(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]]), stride=2)
    array([[[ 1., 10.,  2., 20.]]])
    """
    given = (stride, padding, output_padding, groups, dilation)
    return transposed(1, spread_products, x, weight, bias, *given)


@op(**_TRANSPOSED, samples=_samples(2))
def conv_transpose2d(
    x, weight, bias=None, stride=1, padding=0, output_padding=0, groups: int = 1, dilation=1
):
    """Spreads each entry of an image by a filter and adds what overlaps, so that images grow:
    y_{n,o,si+k,sj+l} = Σ_{c,k,l} w_{c,o,k,l} x_{n,c,i,j} + b_o.

    Args: stride: from where one entry's weights begin to the next's; dilation: between the weights;
        padding: so much is cut off on both sides; output_padding: so much of it is kept behind, to
        reach lengths that the stride skips; each an integer or one an axis. groups: channels are
        split into so many, each with weights of its own.
    Shapes: x (N, C, height, width), weight (C, O / groups, K, L), bias (O,) or None →
        (N, O, height', width'), height' = (height - 1) stride - 2 padding + dilation (K - 1) + 1 +
        output_padding.
    Raises: ShapeError where these do not fit; ArgumentError for a setting that is no integer or out
        of range.
    Source: as torch.nn.functional.conv_transpose2d.

    >>> conv_transpose2d(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)))[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    given = (stride, padding, output_padding, groups, dilation)
    return transposed(2, spread_products, x, weight, bias, *given)


@conv_transpose1d.vjp("x")
@conv_transpose2d.vjp("x")
def _(g, weight, stride, padding, dilation, groups):
    """The gradient is convolved with the filter."""
    convolve = conv1d if g.ndim == 3 else conv2d
    return convolve(g, weight, None, stride, padding, dilation, groups)


@conv_transpose1d.vjp("weight")
@conv_transpose2d.vjp("weight")
def _(g, x, weight_shape, stride, padding, dilation, groups):
    """The input is multiplied by the gradient at all places that it was spread to, and summed."""
    return window_products(x, g, weight_shape, stride, padding, dilation, groups)


@conv_transpose1d.vjp("bias")
@conv_transpose2d.vjp("bias")
def _(g):
    """The gradient is summed over images and places, for each channel."""
    return widen_half(g).sum(axis=(0, *range(2, g.ndim)))
