"""Activations that have settings or parameters, and Identity; all others are functions of mg."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg

from .linear import check_sizes
from .module import Module

__all__ = ["GLU", "Identity", "PReLU"]


class GLU(Module):
    """The first half of x along an axis, gated by the second:  out = a ⊙ σ(b).

    GatedFeedForward is the layer with the two maps before it.

    Shapes:  x (..., 2 n, ...) → (..., n, ...)
    Raises:  ShapeError if the axis is not of even length.
    Source:  Dauphin et al. 2016, arXiv:1612.08083.

    >>> GLU()(np.array([[1.0, 2.0, 0.0, 0.0]])).numpy()
    array([[0.5, 1. ]])
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: mg.Tensor) -> Any:
        return mg.glu(x, self.axis)


class PReLU(Module):
    """x above 0, and below it a multiple that is learned:  out = max(x, 0) + weight · min(x, 0).

    Args:    channels: one weight for all entries, or one for each channel of x (N, C, …).
             start: what the weights begin as.
    Attributes: weight (channels,)
    Shapes:  x (N, C, …) → as x
    Raises:  ShapeError if x does not have so many channels; ArgumentError for a size below 1.
    Source:  He et al. 2015, arXiv:1502.01852.

    >>> PReLU()(np.array([-1.0, 2.0])).numpy()
    array([-0.25,  2.  ])
    """

    def __init__(
        self, channels: int = 1, start: float = 0.25, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("PReLU", channels=channels)
        self.dtype = np.dtype(dtype)
        self.weight = mg.tensor(np.full(channels, start, dtype), requires_grad=True)

    def forward(self, x: mg.Tensor) -> Any:
        return mg.prelu(x, self.weight)


class Identity(Module):
    """x itself: to take a layer's place, as in model.head = Identity().

    >>> Identity()(np.array([1.0, 2.0])).numpy()
    array([1., 2.])
    """

    def forward(self, x: mg.Tensor) -> Any:
        return x
