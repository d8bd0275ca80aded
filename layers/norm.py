"""Normalisation: of each token by itself, and of channels (N, C, …) over the batch or in groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .basic import check_sizes, parameter
from .module import Module

__all__ = ["BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Each token less its mean, over its standard deviation, then scaled and shifted.

        out = (x − μ) / √(σ² + ε) ⊙ weight + bias      μ, σ² over the last axis

    Attributes: weight (the paper's g, elsewhere γ), starts at 1; bias (b or β), starts at 0.
    Shapes:  x (..., d) → as x
    Raises:  ShapeError if x's last axis is not d; ArgumentError for a size below 1.
    Source:  Ba, Kiros, Hinton 2016, arXiv:1607.06450.

    >>> LayerNorm(2, eps=0.0)(np.array([[1.0, 3.0]])).numpy()
    array([[-1.,  1.]])
    """

    def __init__(self, d: int, eps: float = 1e-5, dtype: DTypeLike = np.float64) -> None:
        check_sizes("LayerNorm", d=d)
        self.eps, self.dtype = eps, np.dtype(dtype)
        self.weight, self.bias = parameter(np.ones(d), dtype), parameter(np.zeros(d), dtype)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.layer_norm(x, self.weight, self.bias, eps=self.eps).named("X_norm")


class RMSNorm(Module):
    """Each token over the root of its mean square, then scaled.

        out = x / √(mean(x²) + ε) ⊙ weight

    Attributes: weight (the paper's g), starts at 1.
    Shapes:  x (..., d) → as x
    Raises:  as LayerNorm.
    Source:  Zhang & Sennrich 2019, arXiv:1910.07467.

    >>> RMSNorm(2, eps=0.0)(np.array([[3.0, -3.0]])).numpy()
    array([[ 1., -1.]])
    """

    def __init__(self, d: int, eps: float = 1e-5, dtype: DTypeLike = np.float64) -> None:
        check_sizes("RMSNorm", d=d)
        self.eps, self.dtype = eps, np.dtype(dtype)
        self.weight = parameter(np.ones(d), dtype)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.rms_norm(x, self.weight, eps=self.eps).named("X_norm")


class BatchNorm(Module):
    """Each channel less its mean over the batch, over its standard deviation, scaled and shifted.

    In training the mean and variance are those of the batch, and running averages of them are kept:
    running ← (1 − momentum) running + momentum · the batch's. In evaluation those are taken.

    Attributes: weight starts at 1, bias at 0; running_mean, running_var: saved, never trained (the
        variance with n − 1, as in PyTorch).
    Shapes:  x (N, C, …) → as x
    Raises:  ShapeError if x does not fit, or in training has one value a channel, whose variance
             says nothing.
    Source:  Ioffe & Szegedy 2015, arXiv:1502.03167.

    >>> norm = BatchNorm(1)
    >>> norm(np.array([[1.0], [3.0]])).numpy().round(3).ravel(), norm.running_mean.numpy()
    (array([-1.,  1.]), array([0.2]))
    """

    buffers = ("running_mean", "running_var")

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        dtype: DTypeLike = np.float64,
        *,
        momentum: float = 0.1,
    ) -> None:
        check_sizes("BatchNorm", channels=channels)
        self.eps, self.momentum = eps, momentum
        self.dtype = np.dtype(dtype)
        self.weight = parameter(np.ones(channels), dtype)
        self.bias = parameter(np.zeros(channels), dtype)
        self.running_mean = mg.tensor(np.zeros(channels, dtype))
        self.running_var = mg.tensor(np.ones(channels, dtype))

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        if not self.training:
            kept = self.running_mean, self.running_var
            return mg.batch_norm(x, self.weight, self.bias, *kept, eps=self.eps)
        if x.size < 2 * self.weight.size:
            raise ShapeError(f"BatchNorm: a variance needs two values a channel, got {x.shape}")
        out = mg.batch_norm(x, self.weight, self.bias, eps=self.eps)
        axes = (0, *range(2, x.ndim))
        with mg.no_grad():
            of_batch = mg.mean(x, axis=axes), mg.var(x, axis=axes, ddof=1)
            for running, now in zip((self.running_mean, self.running_var), of_batch, strict=True):
                running.assign_(running * (1 - self.momentum) + now * self.momentum)
        return out


class GroupNorm(Module):
    """Each example's channels in groups, each group normalised by itself; scaled by channel.

    Args:    groups: how many; it divides channels.
    Attributes: weight starts at 1, bias at 0.
    Shapes:  x (N, C, …) → as x
    Raises:  ArgumentError if groups does not divide channels; ShapeError if x does not fit.
    Source:  Wu & He 2018, arXiv:1803.08494.

    >>> GroupNorm(2, 6)(np.zeros((2, 6, 5))).shape
    (2, 6, 5)
    """

    def __init__(
        self, groups: int, channels: int, eps: float = 1e-5, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("GroupNorm", groups=groups, channels=channels)
        if channels % groups:
            raise ArgumentError(
                f"GroupNorm: groups must divide channels, got {groups} and {channels}"
            )
        self.groups, self.eps = groups, eps
        self.dtype = np.dtype(dtype)
        self.weight = parameter(np.ones(channels), dtype)
        self.bias = parameter(np.zeros(channels), dtype)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        channels = self.weight.size
        if x.ndim < 2 or x.shape[1] != channels:
            raise ShapeError(f"GroupNorm: x must be (N, {channels}, …), got {x.shape}")
        groups = mg.reshape(x, (len(x), self.groups, -1))
        x_hat = mg.reshape(mg.layer_norm(groups, None, None, self.eps), x.shape)
        weight, bias = (mg.reshape(v, (-1, *[1] * (x.ndim - 2))) for v in (self.weight, self.bias))
        return mg.add(mg.multiply(x_hat, weight), bias)
