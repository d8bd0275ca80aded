"""Convolutions, transposed ones too, and pooling."""

from __future__ import annotations

from ...ops import avg_pool, conv1d, conv2d, conv_transpose1d, conv_transpose2d, max_pool
from ...ops.convolution import paddings, per_axis
from ..translation import translation


def _windows(size, stride, padding, **more):
    """The attributes of windows of this size; a number is that of all axes."""
    n, each = len(size), {"strides": stride, **more}
    pairs = paddings(padding, tuple(size), 1, more.get("dilations", 1))
    attributes = {name: [*per_axis(x, n, name)] for name, x in each.items()}
    pads = [*(a for a, _ in pairs), *(b for _, b in pairs)]
    return attributes | {"kernel_shape": [*size], "pads": pads}


@translation(conv1d, conv2d)
def _(to, x, weight, bias, stride, padding, dilation, groups, out):
    given = [to.cast(v, out.dtype) for v in (x, weight, bias) if v is not None]
    attributes = _windows(weight.shape[2:], stride, padding, dilations=dilation)
    return to.Conv(*given, group=int(groups), **attributes)


@translation(conv_transpose1d, conv_transpose2d)
def _(to, x, weight, bias, stride, padding, output_padding, groups, dilation, out):
    given = [to.cast(v, out.dtype) for v in (x, weight, bias) if v is not None]
    more = {"dilations": dilation, "output_padding": output_padding}
    attributes = _windows(weight.shape[2:], stride, padding, **more)
    return to.ConvTranspose(*given, group=int(groups), **attributes)


def _pooled(operator, **more):
    def translated(to, x, size, stride, padding, out):
        size = per_axis(size, x.ndim - 2, "size")
        attributes = _windows(size, size if stride is None else stride, padding)
        return to.emit(operator, to.cast(x, out.dtype), **attributes, **more)

    return translated


translation(max_pool)(_pooled("MaxPool"))
translation(avg_pool)(_pooled("AveragePool", count_include_pad=1))
