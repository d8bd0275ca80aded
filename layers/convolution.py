"""Convolutions and pooling, over (N, C, length) and (N, C, height, width)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .basic import Seed, check_sizes, generator, parameter
from .module import Module

__all__ = ["AvgPool2d", "Conv1d", "Conv2d", "MaxPool2d"]

Lengths: TypeAlias = int | tuple[int, ...]  # the same along every axis, or one each


class _Convolution(Module):
    """What Conv1d and Conv2d share."""

    convolve: ClassVar[Callable[..., mg.Tensor]]
    axes: ClassVar[int]

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
    ) -> None:
        call = type(self).__name__
        sizes = (size,) * self.axes if isinstance(size, int) else tuple(size)
        check_sizes(call, d_in=d_in, d_out=d_out, groups=groups)
        for length in sizes:
            check_sizes(call, size=length)
        if d_in % groups or d_out % groups:
            raise ArgumentError(
                f"{call}: groups must divide d_in and d_out, got {groups}, {d_in} and {d_out}"
            )
        self.dtype = np.dtype(dtype)
        self.settings: dict[str, Any] = {
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups
        }  # fmt: skip
        shape = (d_out, d_in // groups, *sizes)
        sigma = sqrt(2 / prod(shape[1:]))
        self.weight = parameter(generator(rng).normal(0.0, sigma, shape), dtype)
        self.bias = parameter(np.zeros(d_out), dtype) if use_bias else None

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return type(self).convolve(x, self.weight, self.bias, **self.settings)


class Conv1d(_Convolution):
    """A convolution over sequences; see Conv2d.

    Shapes:  x (N, C, length) → (N, O, length')

    >>> Conv1d(3, 5, 2, rng=0)(np.zeros((2, 3, 7))).shape
    (2, 5, 6)
    """

    convolve, axes = mg.conv1d, 1


class Conv2d(_Convolution):
    """A convolution over images:  y_{n,o,i,j} = Σ_{c,k,l} w_{o,c,k,l} x_{n,c,i+k,j+l} + b_o.

    Args:
        d_in, d_out: channels, C and O.  size: of the windows, K × L.
        stride, padding, dilation, groups: as mg.conv2d takes them.
        use_bias: without, bias is None; it starts at 0.
        rng: draws the weights, N(0, 2 / n) for windows of n entries (He et al. 2015,
            arXiv:1502.01852); a Generator, a seed, or None for fresh entropy.
    Attributes: weight (O, C / groups, K, L), bias (O,), as in PyTorch.
    Shapes:  x (N, C, height, width) → (N, O, height', width')
    Raises:  ShapeError if x does not fit; ArgumentError for a size below 1, or groups that do not
             divide the channels.

    >>> Conv2d(3, 5, 3, stride=2, padding=1, rng=0)(np.zeros((2, 3, 7, 7))).shape
    (2, 5, 4, 4)
    """

    convolve, axes = mg.conv2d, 2


class _Pool(Module):
    """What the pooling layers share."""

    pool: ClassVar[Callable[..., mg.Tensor]]

    def __init__(self, size: Lengths, stride: Lengths | None = None, padding: Lengths = 0) -> None:
        self.settings: dict[str, Any] = {"size": size, "stride": stride, "padding": padding}

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        if x.ndim != 4:
            kind = type(self).__name__
            raise ShapeError(f"{kind}: x must be (N, C, height, width), got {x.shape}")
        return type(self).pool(x, **self.settings)


class MaxPool2d(_Pool):
    """The largest entry of each window of an image; see mg.max_pool.

    Args:    size, stride, padding: of the windows; stride is size unless given.
    Shapes:  x (N, C, height, width) → (N, C, height', width')

    >>> MaxPool2d(2)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 3, 4)
    """

    pool = mg.max_pool


class AvgPool2d(_Pool):
    """The mean of each window of an image; see mg.avg_pool, and MaxPool2d for the arguments.

    >>> AvgPool2d(2)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 3, 4)
    """

    pool = mg.avg_pool
