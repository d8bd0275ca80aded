"""Convolutions, transposed ones too, over (N, C, length) and (N, C, height, width)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ShapeError

from .arrays import Array
from .initialisers import Initialiser, Seed, init_weights
from .linear import check_sizes
from .module import Module
from .renamed import renamed

__all__ = ["Conv1d", "Conv2d"]

Lengths: TypeAlias = int | tuple[int, ...]  # the same along every axis, or one each


def check_image(layer: Module, x: Array, axes: int, channels: int | None = None) -> None:
    """Raise ShapeError unless x has so many axes behind (N, C), and so many channels if given."""
    shape = np.shape(x)
    if len(shape) != axes + 2 or channels not in (None, shape[1]):
        lengths = "height, width" if axes == 2 else "length"
        remedy = ""
        if len(shape) == axes + 2 and shape[-1] == channels:
            remedy = "; write mg.moveaxis(x, -1, 1)"
        elif len(shape) == axes + 1 and channels == 1:
            remedy = "; write x[:, None]"
        raise ShapeError(
            f"{type(layer).__name__}(x): x must be (N, {channels or 'C'}, {lengths}), "
            f"got {shape}{remedy}"
        )


class _Convolution(Module):
    """What the convolutions share: weights, settings, and the op."""

    convolve: ClassVar[Callable[..., mg.Tensor]]
    axes: ClassVar[int]
    settings: dict[str, Any]

    def _draw(
        self,
        d_in: int,
        d_out: int,
        size: Lengths,
        use_bias: bool,
        rng: Seed,
        dtype: DTypeLike,
        init: Initialiser,
        transposed: bool = False,
    ) -> None:
        """Check the sizes and draw weight and bias; a transposed weight has d_in first.

        An entry of the result depends on all weights of its channel, of a transposed one on those
        that the stride leaves.
        """
        call, groups = type(self).__name__, self.settings["groups"]
        sizes = tuple(size) if isinstance(size, tuple | list) else (size,) * self.axes
        check_sizes(call, d_in=d_in, d_out=d_out, groups=groups)
        for length in sizes:
            check_sizes(call, size=length)
        if d_in % groups or d_out % groups:
            raise ShapeError(
                f"{call}: groups must divide d_in and d_out, got {groups}, {d_in} and {d_out}"
            )
        self.d_in, self.dtype = d_in, np.dtype(dtype)
        n_in, n_out = prod(sizes) * d_in // groups, prod(sizes) * d_out // groups
        shape = (d_out, d_in // groups, *sizes)
        if transposed:
            shape = (d_in, d_out // groups, *sizes)
            stride = self.settings["stride"]
            skipped = prod(stride) if isinstance(stride, tuple | list) else stride**self.axes
            n_in = max(n_in // max(skipped, 1), 1)
        self.weight = init_weights(init, shape, n_in, n_out, rng, dtype)
        self.bias = init_weights("zeros", (d_out,), 1, 1, None, dtype) if use_bias else None

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        check_image(self, x, self.axes, self.d_in)
        return type(self).convolve(x, self.weight, self.bias, **self.settings)


class _Convolving(_Convolution):
    """What Conv1d and Conv2d share."""

    @renamed("in_channels", "out_channels", init=8)
    def __init__(
        self,
        d_in: int,
        d_out: int,
        size: Lengths,
        stride: Lengths = 1,
        padding: Lengths | str = 0,
        dilation: Lengths = 1,
        groups: int = 1,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        init: Initialiser = "he_normal",
    ) -> None:
        self.settings = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        self._draw(d_in, d_out, size, use_bias, rng, dtype, init)


class Conv1d(_Convolving):
    """A convolution over sequences; see Conv2d.

    Shapes:  x (N, C, length) → (N, O, length')

    >>> Conv1d(3, 5, 2, rng=0)(np.zeros((2, 3, 7))).shape
    (2, 5, 6)
    """

    convolve, axes = mg.conv1d, 1


class Conv2d(_Convolving):
    """A convolution over images:  y_{n,o,i,j} = Σ_{c,k,l} w_{o,c,k,l} x_{n,c,i+k,j+l} + b_o.

    Args:
        d_in, d_out: channels, C and O.  size: of the windows, K × L.
        stride, padding, dilation, groups: as mg.conv2d takes them.
        init: how weights are drawn, by name. Biases start at 0, and there are none without
            use_bias.  rng: a Generator, a seed, or None for fresh entropy.
    Attributes: weight (O, C / groups, K, L), bias (O,), as in PyTorch.
    Shapes:  x (N, C, height, width) → (N, O, height', width')
    Raises:  ShapeError if x does not fit, or groups does not divide the channels; ArgumentError for
             a size below 1.

    >>> Conv2d(3, 5, 3, stride=2, padding=1, rng=0)(np.zeros((2, 3, 7, 7))).shape
    (2, 5, 4, 4)
    """

    convolve, axes = mg.conv2d, 2
