"""Normalisation of channels, (N, C, …): over the batch, in groups, or each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ShapeError

from .linear import check_sizes
from .module import Module
from .renamed import renamed

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm"]


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

    def forward(self, x: mg.Tensor) -> Any:
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

    def forward(self, x: mg.Tensor) -> Any:
        return mg.group_norm(x, self.groups, self.weight, self.bias, self.eps)


class InstanceNorm(Module):
    """Each channel of each example normalised over its places by itself; scaled by channel.

    Args:    channels: C.  eps: ε.  use_weight, use_bias: without, weight or bias is None (in
             PyTorch both are, unless affine=True).
    Attributes: weight starts at 1, bias at 0.
    Shapes:  x (N, C, length, …) → as x
    Raises:  ShapeError if x does not fit, or has one entry a channel.
    Source:  Ulyanov et al. 2016, arXiv:1607.08022.

    >>> InstanceNorm(2)(np.array([[[1.0, 3.0], [5.0, 9.0]]])).numpy().round(3)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        dtype: DTypeLike = np.float64,
        *,
        use_weight: bool = True,
        use_bias: bool = True,
    ) -> None:
        check_sizes("InstanceNorm", channels=channels)
        self.dtype = np.dtype(dtype)
        self.channels, self.eps = channels, eps
        self.weight = (
            mg.tensor(np.ones(channels, dtype), requires_grad=True) if use_weight else None
        )
        self.bias = mg.tensor(np.zeros(channels, dtype), requires_grad=True) if use_bias else None

    def forward(self, x: mg.Tensor) -> Any:
        if x.ndim < 2 or x.shape[1] != self.channels:
            raise ShapeError(
                f"InstanceNorm(x): x must be (N, {self.channels}, length, …), got {x.shape}"
            )
        return mg.instance_norm(x, self.weight, self.bias, self.eps)
