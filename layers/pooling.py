"""Layers that bring images and sequences, (N, C, length, …), to other lengths; and Flatten."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import ClassVar

import minigrad as mg

from .convolution import Lengths, check_image
from .module import Module

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "Flatten",
    "MaxPool1d",
    "MaxPool2d",
]


class _Pool(Module):
    """What the pooling layers share."""

    pool: ClassVar[Callable[..., mg.Tensor]]
    axes: ClassVar[int]

    def __init__(
        self,
        size: Lengths,
        stride: Lengths | None = None,
        padding: Lengths = 0,
    ) -> None:
        stride = size if stride is None else stride
        self.settings = dict(size=size, stride=stride, padding=padding)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        check_image(self, x, self.axes)
        return type(self).pool(x, **self.settings)


class MaxPool1d(_Pool):
    """The largest entry of each window of a sequence; see mg.max_pool.

    >>> import numpy as np
    >>> MaxPool1d(2)(np.array([[[1.0, 5.0, 2.0, 3.0]]])).numpy()
    array([[[5., 3.]]])
    """

    pool, axes = mg.max_pool, 1


class MaxPool2d(_Pool):
    """The largest entry of each window of an image; see mg.max_pool.

    >>> import numpy as np
    >>> MaxPool2d(2)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 3, 4)
    """

    pool, axes = mg.max_pool, 2


class AvgPool1d(_Pool):
    """The mean of each window of a sequence; see mg.avg_pool.

    >>> import numpy as np
    >>> AvgPool1d(2)(np.array([[[1.0, 5.0, 2.0, 3.0]]])).numpy()
    array([[[3. , 2.5]]])
    """

    pool, axes = mg.avg_pool, 1


class AvgPool2d(_Pool):
    """The mean of each window of an image; see mg.avg_pool.

    >>> import numpy as np
    >>> AvgPool2d(2)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 3, 4)
    """

    pool, axes = mg.avg_pool, 2


class Flatten(Module):
    """All axes but the first as one, as before a Linear.

    >>> import numpy as np
    >>> Flatten()(np.zeros((2, 3, 5, 7))).shape
    (2, 105)
    """

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.reshape(x, (x.shape[0], prod(x.shape[1:])))
