"""Normalisation: of each token by itself, and of channels (N, C, …) over the batch or in groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .linear import check_sizes
from .module import Module, named, with_shapes
from .renamed import renamed

__all__ = ["BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Each token less its mean, over its standard deviation, then scaled and shifted.

        out = (x − μ) / √(σ² + ε) ⊙ weight + bias      μ, σ² over the last axis, or the last few

    Args:
        shape: the length of the last axis, or the lengths of the last few.
        eps: ε.  use_weight, use_bias: without, weight or bias is None.
    Attributes: weight (the paper's g, elsewhere γ), starts at 1; bias (b or β), starts at 0.
    Shapes:  x (..., *shape) → as x
    Raises:  ShapeError if x does not end in `shape`; ArgumentError for a size below 1, or an ε
             that is more than 1.
    Source:  Ba, Kiros, Hinton 2016, arXiv:1607.06450.

    >>> LayerNorm(2, eps=0.0)(np.array([[1.0, 3.0]])).numpy()
    array([[-1.,  1.]])
    """

    @renamed(use_bias=2)
    def __init__(
        self,
        shape: int | tuple[int, ...],
        eps: float = 1e-5,
        dtype: DTypeLike = np.float64,
        *,
        use_bias: bool = True,
        use_weight: bool = True,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.shape, self.eps = _checked_shape("LayerNorm", shape, eps), eps
        self.weight = _filled(1, self.shape, dtype) if use_weight else None
        self.bias = _filled(0, self.shape, dtype) if use_bias else None

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        normalise = partial(mg.layer_norm, eps=self.eps)
        return _over_last(normalise, "LayerNorm", x, self.shape, self.weight, self.bias)


class RMSNorm(Module):
    """Each token over the root of its mean square, then scaled.

        out = x / √(mean(x²) + ε) ⊙ weight      or  ⊙ (1 + weight), as Gemma stores it

    Args:
        shape: the length of the last axis, or the lengths of the last few.
        eps: ε; None is the dtype's own (as in PyTorch), also after `to(dtype)`.
        plus_one: scale by 1 + weight, which then starts at 0.  use_weight: without, it is None.
    Attributes: weight (the paper's g).
    Shapes:  x (..., *shape) → as x
    Source:  Zhang & Sennrich 2019, arXiv:1910.07467.

    >>> RMSNorm(2, eps=0.0)(np.array([[3.0, -3.0]])).numpy()
    array([[ 1., -1.]])
    """

    @renamed(plus_one=2)
    def __init__(
        self,
        shape: int | tuple[int, ...],
        eps: float | None = 1e-5,
        dtype: DTypeLike = np.float64,
        *,
        plus_one: bool = False,
        use_weight: bool = True,
    ) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape, self.plus_one = _checked_shape("RMSNorm", shape, eps), plus_one
        self._eps = eps
        self.weight = _filled(0 if plus_one else 1, self.shape, dtype) if use_weight else None

    @property
    def eps(self) -> float:
        return float(np.finfo(self.dtype).eps) if self._eps is None else self._eps

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        normalise = partial(mg.rms_norm, eps=self.eps)
        plus_one = self.plus_one and self.weight is not None
        weight = mg.add(self.weight, 1).named("gain") if plus_one else self.weight
        return _over_last(normalise, "RMSNorm", x, self.shape, weight)


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
        self.weight = _filled(1, channels, dtype)
        self.bias = _filled(0, channels, dtype)
        self.running_mean = mg.tensor(np.zeros(channels, dtype))
        self.running_var = mg.tensor(np.ones(channels, dtype))

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        if not self.training:
            kept = self.running_mean, self.running_var
            return mg.batch_norm(x, self.weight, self.bias, *kept, eps=self.eps)
        out = mg.batch_norm(x, self.weight, self.bias, eps=self.eps)
        if isinstance(x, mg.Tensor) and x.size:  # and not a shape in its place, for the cost
            self._keep(x)
        return out

    def _keep(self, x: mg.Tensor) -> None:
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
        self.weight = _filled(1, channels, dtype)
        self.bias = _filled(0, channels, dtype)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return mg.group_norm(x, self.groups, self.weight, self.bias, self.eps)


def _over_last(
    normalise: Callable[..., mg.Tensor],
    call: str,
    x: mg.Tensor,
    shape: tuple[int, ...],
    *parameters: mg.Tensor | None,
) -> mg.Tensor:
    """Normalise over the last axes: several are flattened to one, and back."""
    if np.shape(x)[-len(shape) :] != shape:
        raise ShapeError(with_shapes(f"{call}(x): x must end in {shape}, got {np.shape(x)}", x=x))
    if len(shape) == 1:
        return named("X_norm", normalise(x, *parameters))
    lead, width = x.shape[: -len(shape)], (prod(shape),)
    flat = [None if p is None else mg.reshape(p, width) for p in parameters]
    return named("X_norm", mg.reshape(normalise(mg.reshape(x, lead + width), *flat), x.shape))


def _checked_shape(call: str, shape: int | tuple[int, ...], eps: float | None) -> tuple[int, ...]:
    if eps is not None and eps > 1:
        raise ArgumentError(
            f"{call}: eps must be at most 1, got {eps}; the lengths of several axes go as one tuple"
        )
    sizes = shape if isinstance(shape, tuple) else (shape,)
    check_sizes(call, **{f"shape[{i}]": size for i, size in enumerate(sizes)})
    return sizes


def _filled(value: float, shape: int | tuple[int, ...], dtype: DTypeLike) -> mg.Tensor:
    return mg.tensor(np.full(shape, value, dtype), requires_grad=True)
