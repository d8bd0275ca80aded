"""Layers for images and sequences in PyTorch's layout (N, C, length, …)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ShapeError

from .initialisers import Initialiser, init_weights
from .linear import check_sizes
from .module import Module
from .renamed import renamed

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Flatten",
    "GroupNorm",
    "MaxPool1d",
    "MaxPool2d",
]


def check_image(layer: Module, x: Any, axes: int, channels: int | None = None) -> None:
    """Raise ShapeError unless x has so many axes behind (N, C), and so many channels if given."""
    if x.ndim != axes + 2 or channels not in (None, x.shape[1]):
        lengths = "height, width" if axes == 2 else "length"
        raise ShapeError(
            f"{type(layer).__name__}(x): x must be (N, {channels or 'C'}, {lengths}), got {x.shape}"
        )


class _Convolution(Module):
    """What Conv1d and Conv2d share."""

    convolve: ClassVar[Callable[..., Any]]
    axes: ClassVar[int]

    @renamed("in_channels", "out_channels", init=8)
    def __init__(
        self,
        d_in: int,
        d_out: int,
        size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        use_bias: bool = True,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
        *,
        init: Initialiser = "he_normal",
    ) -> None:
        call = type(self).__name__
        sizes = size if isinstance(size, tuple) else (size,) * self.axes
        check_sizes(call, d_in=d_in, d_out=d_out, groups=groups)
        if d_in % groups or d_out % groups:
            raise ShapeError(
                f"{call}: groups must divide d_in and d_out, got {groups}, {d_in} and {d_out}"
            )
        self.d_in, self.dtype = d_in, np.dtype(dtype)
        self.settings = stride, padding, dilation, groups
        shape = (d_out, d_in // groups, *sizes)
        n_in, n_out = prod(shape[1:]), prod(shape[2:]) * d_out // groups
        self.weight = init_weights(init, shape, n_in, n_out, rng, dtype)
        self.bias = init_weights("zeros", (d_out,), 1, 1, None, dtype) if use_bias else None

    def forward(self, x: Any) -> Any:
        check_image(self, x, self.axes, self.d_in)
        return type(self).convolve(x, self.weight, self.bias, *self.settings)


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


class _Pool(Module):
    """What the pooling layers share."""

    pool: ClassVar[Callable[..., Any]]
    axes: ClassVar[int]

    def __init__(self, size: Any, stride: Any = None, padding: Any = 0) -> None:
        self.settings = size, stride, padding

    def forward(self, x: Any) -> Any:
        check_image(self, x, self.axes)
        return type(self).pool(x, *self.settings)


class MaxPool1d(_Pool):
    """The largest entry of each window of a sequence; see mg.max_pool.

    >>> MaxPool1d(2)(np.array([[[1.0, 5.0, 2.0, 3.0]]])).numpy()
    array([[[5., 3.]]])
    """

    pool, axes = mg.max_pool, 1


class MaxPool2d(_Pool):
    """The largest entry of each window of an image; see mg.max_pool.

    >>> MaxPool2d(2)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 3, 4)
    """

    pool, axes = mg.max_pool, 2


class AvgPool1d(_Pool):
    """The mean of each window of a sequence; see mg.avg_pool.

    >>> AvgPool1d(2)(np.array([[[1.0, 5.0, 2.0, 3.0]]])).numpy()
    array([[[3. , 2.5]]])
    """

    pool, axes = mg.avg_pool, 1


class AvgPool2d(_Pool):
    """The mean of each window of an image; see mg.avg_pool.

    >>> AvgPool2d(2)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 3, 4)
    """

    pool, axes = mg.avg_pool, 2


class Flatten(Module):
    """All axes but the first as one, as before a Linear.

    >>> Flatten()(np.zeros((2, 3, 5, 7))).shape
    (2, 105)
    """

    def forward(self, x: Any) -> Any:
        return mg.reshape(x, (x.shape[0], prod(x.shape[1:])))


class BatchNorm(Module):
    """Each channel less its mean over the batch, over its standard deviation, scaled and shifted.

    In training the mean and variance are those of the batch, and running averages of them are kept:
    running ← (1 − momentum) running + momentum · the batch's. In evaluation those are taken.
    `layer_cost` leaves out what keeping them takes.

    Args:
        channels: C.  eps: ε.  momentum: how much a batch counts.
    Attributes: weight starts at 1, bias at 0; running_mean, running_var: saved, never trained (the
        variance with n − 1, as in PyTorch).
    Shapes:  x (N, C, …) → as x
    Raises:  ShapeError if x does not fit.
    Source:  Ioffe & Szegedy 2015, arXiv:1502.03167.

    >>> norm = BatchNorm(1)
    >>> norm(np.array([[1.0], [3.0]])).numpy().round(3).ravel(), norm.running_mean.numpy()
    (array([-1.,  1.]), array([0.2]))
    """

    buffers = ("running_mean", "running_var")

    @renamed(momentum=2)
    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        dtype: DTypeLike = np.float64,
        *,
        momentum: float = 0.1,
    ) -> None:
        check_sizes("BatchNorm", channels=channels)
        self.dtype = np.dtype(dtype)
        self.eps, self.momentum = eps, momentum
        self.weight = mg.tensor(np.ones(channels, dtype), requires_grad=True)
        self.bias = mg.tensor(np.zeros(channels, dtype), requires_grad=True)
        self.running_mean = mg.tensor(np.zeros(channels, dtype))
        self.running_var = mg.tensor(np.ones(channels, dtype))

    def forward(self, x: Any) -> Any:
        if not self.training:
            kept = self.running_mean, self.running_var
            return mg.batch_norm(x, self.weight, self.bias, *kept, eps=self.eps)
        out = mg.batch_norm(x, self.weight, self.bias, eps=self.eps)
        if isinstance(x, mg.Tensor):  # and not a shape in its place, for the cost
            self._keep(x)
        return out

    def _keep(self, x: Any) -> None:
        """Move the running averages towards the batch's mean and variance."""
        axes, n = (0, *range(2, x.ndim)), x.size // x.shape[1]
        with mg.no_grad():
            mean, var = mg.mean(x, axis=axes), mg.var(x, axis=axes, ddof=min(1, n - 1))
            for running, of_batch in ((self.running_mean, mean), (self.running_var, var)):
                running.assign_(running * (1 - self.momentum) + of_batch * self.momentum)


class GroupNorm(Module):
    """Each example's channels in groups, each group normalised by itself; scaled by channel.

    Args:    groups: how many; it divides channels.
    Attributes: weight starts at 1, bias at 0.
    Shapes:  x (N, C, …) → as x
    Source:  Wu & He 2018, arXiv:1803.08494.

    >>> GroupNorm(2, 6)(np.zeros((2, 6, 5))).shape
    (2, 6, 5)
    """

    def __init__(
        self, groups: int, channels: int, eps: float = 1e-5, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("GroupNorm", groups=groups, channels=channels)
        self.dtype = np.dtype(dtype)
        self.groups, self.eps = groups, eps
        self.weight = mg.tensor(np.ones(channels, dtype), requires_grad=True)
        self.bias = mg.tensor(np.zeros(channels, dtype), requires_grad=True)

    def forward(self, x: Any) -> Any:
        return mg.group_norm(x, self.groups, self.weight, self.bias, self.eps)
