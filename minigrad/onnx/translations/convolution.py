"""Convolutions, transposed ones too, and pooling."""

from __future__ import annotations

from ...ops import avg_pool, conv1d, conv2d, conv_transpose1d, conv_transpose2d, max_pool
from ...ops.convolution import paddings, per_axis
from ..translation import translation


@translation(conv1d, conv2d)
def _(to, x, weight, bias, stride, padding, dilation, groups, out):
    given = [to.cast(v, out.dtype) for v in (x, weight, bias) if v is not None]
    size = weight.shape[2:]
    n = len(size)
    return to.Conv(
        *given,
        kernel_shape=[*size],
        strides=[*per_axis(stride, n, "stride")],
        dilations=[*per_axis(dilation, n, "dilation")],
        group=int(groups),
        **_pads(padding, size, stride, dilation),
    )


@translation(conv_transpose1d, conv_transpose2d)
def _(to, x, weight, bias, stride, padding, output_padding, groups, dilation, out):
    given = [to.cast(v, out.dtype) for v in (x, weight, bias) if v is not None]
    size = weight.shape[2:]
    n = len(size)
    return to.ConvTranspose(
        *given,
        kernel_shape=[*size],
        strides=[*per_axis(stride, n, "stride")],
        dilations=[*per_axis(dilation, n, "dilation")],
        output_padding=[*per_axis(output_padding, n, "output_padding")],
        group=int(groups),
        **_pads(padding, size, 1, dilation),
    )


def _pads(padding, size, stride, dilation):
    n = len(size)
    steps, gaps = per_axis(stride, n, "stride"), per_axis(dilation, n, "dilation")
    pairs = paddings(padding, tuple(size), steps, gaps)
    return {"pads": [*(a for a, _ in pairs), *(b for _, b in pairs)]}


def _pooled(operator, **more):
    def translated(to, x, size, stride, padding, out):
        n = x.ndim - 2
        size = per_axis(size, n, "size")
        steps = size if stride is None else per_axis(stride, n, "stride")
        return to.emit(
            operator,
            to.cast(x, out.dtype),
            kernel_shape=[*size],
            strides=[*steps],
            **_pads(padding, size, steps, 1),
            **more,
        )

    return translated


translation(max_pool)(_pooled("MaxPool"))
translation(avg_pool)(_pooled("AveragePool", count_include_pad=1))
