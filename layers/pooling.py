"""Layers that bring images and sequences, (N, C, length, …), to other lengths; and Flatten."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import minigrad as mg
from minigrad.errors import ArgumentError

from .convolution import Lengths, check_image
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "Flatten",
    "MaxPool1d",
    "MaxPool2d",
    "Upsample",
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


class _Adaptive(Module):
    """What the adaptive pooling layers share."""

    axes: ClassVar[int]

    def __init__(self, size: int | tuple[int | None, ...] | None) -> None:
        self.size = size

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        check_image(self, x, self.axes)
        return mg.adaptive_avg_pool(x, self.size)


class AdaptiveAvgPool1d(_Adaptive):
    """A sequence of any length to `size` means of windows; see mg.adaptive_avg_pool.

    >>> import numpy as np
    >>> AdaptiveAvgPool1d(2)(np.array([[[1.0, 5.0, 2.0, 3.0]]])).numpy()
    array([[[3. , 2.5]]])
    """

    axes = 1


class AdaptiveAvgPool2d(_Adaptive):
    """Images of any size to means of `size` windows; 1 is global average pooling.

    Args: size: height and width of the result, or one number for both; None keeps a length.

    >>> import numpy as np
    >>> AdaptiveAvgPool2d(1)(np.zeros((2, 3, 6, 8))).shape
    (2, 3, 1, 1)
    """

    axes = 2


class Upsample(Module):
    """Images or sequences with more entries, by copies or straight lines; see mg.upsample.

    Args:    size: the new lengths; or scale_factor: by how much they grow. mode: "nearest",
             "linear" for sequences, "bilinear" for images. align_corners: whether the ends stay.
    Shapes:  x (N, C, length, …) → (N, C, length', …)
    Raises:  as mg.upsample, at the call.

    >>> import numpy as np
    >>> Upsample(scale_factor=2, mode="bilinear")(np.zeros((2, 3, 5, 7))).shape
    (2, 3, 10, 14)
    """

    def __init__(
        self,
        size: Lengths | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        if (size is None) == (scale_factor is None):
            raise ArgumentError("Upsample: give one of size and scale_factor")
        self.settings: dict[str, Any] = dict(
            size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners
        )

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.upsample(x, **self.settings)


class Flatten(Module):
    """All axes but the first as one, as before a Linear.

    >>> import numpy as np
    >>> Flatten()(np.zeros((2, 3, 5, 7))).shape
    (2, 105)
    """

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.reshape(x, (x.shape[0], prod(x.shape[1:])))
