"""Training in float16: the loss is scaled up, so that small gradients do not become zero."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, GradientError
from ..engine.tensor import Tensor
from .clip import refuse_parts
from .optimizer import Optimizer, at_least_float32, update

__all__ = ["LossScale"]


class LossScale:
    """Backward from s · loss, and steps along gradient / s, computed in float32.

    The smallest number above 0 that float16 holds is 6e-8; gradients below it would be lost. Where
    a scaled gradient overflows, the step is skipped and s is halved; after `interval` steps without
    one, s is doubled. The optimizer moves float32 copies of float16 weights by itself.

    Args:
        optimizer: whose steps are taken.
        scale: s at first, a power of two, so that scaling changes no bit.
        largest: s never grows beyond it; float16 itself ends at 65,504.
    Attributes:
        scale: s now.  skipped: how many steps were skipped.
    Raises: ArgumentError unless 1 ≤ scale ≤ largest, and for a rank's part of a model;
        GradientError for an overflow at s = 1, which no smaller scale can mend.
    Source: Micikevicius et al. 2018, arXiv:1710.03740.

    >>> import minigrad as mg
    >>> from minigrad.optim import SGD, LossScale
    >>> w = mg.tensor(np.float16([1e-4]), requires_grad=True)
    >>> scaler = LossScale(SGD([w], lr=1.0))
    >>> scaler.backward((w * w * np.float16(1e-4)).sum())
    >>> scaler.unscale()
    >>> print(f"{w.grad[0]:.0e}")
    2e-08
    >>> scaler.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        scale: float = 2.0**12,
        interval: int = 1000,
        largest: float = 2.0**15,
    ) -> None:
        if not 1 <= scale <= largest or interval < 1:
            raise ArgumentError(
                "LossScale: 1 <= scale <= largest and interval >= 1 must hold, got "
                f"{scale=}, {largest=}, {interval=}"
            )
        why = "another rank might take the step that this one skips; train it in float32"
        refuse_parts("LossScale(optimizer)", optimizer.parameters, why)
        self.optimizer = optimizer
        self.interval = interval
        self.largest = largest
        self.skipped = self._good = 0
        self._unscaled = False
        self._seed = Tensor(np.array(scale, np.float32))
        self.scale = scale

    def backward(self, loss: Tensor) -> None:
        """Add s · ∂loss/∂leaf to `.grad` of every leaf; call it once for each part of a batch."""
        self._rescale(unscaled=False)
        (loss.astype(at_least_float32(loss.dtype)) * self._seed).backward()

    def unscale(self) -> None:
        """Divide every `.grad` by s, in float32: before clipping. Else `step` does it."""
        self._rescale(unscaled=True)

    def _rescale(self, unscaled: bool) -> None:
        """Divide every gradient by s, or multiply it by s again, unless that was done."""
        with update(self, partial(LossScale._rescale, self, unscaled)):
            if self._unscaled != unscaled:
                factor = 1 / self.scale if unscaled else self.scale
                for p in self.optimizer.parameters:
                    if p.grad is not None:
                        wide = at_least_float32(p.dtype)
                        p.grad = np.asarray(p.grad, wide) * wide.type(factor)
                self._unscaled = unscaled

    def step(self) -> None:
        """Take the optimizer's step, or skip it where a gradient is not finite; adapt s."""
        with update(self, partial(LossScale.step, self)):
            self._rescale(unscaled=True)
            self._unscaled = False
            gradients = [p.grad for p in self.optimizer.parameters if p.grad is not None]
            if all(bool(np.isfinite(g).all()) for g in gradients):
                self.optimizer.step()
                self._good += 1
                if self._good % self.interval == 0:
                    self._set(min(self.scale * 2, self.largest))
            elif self.scale == 1:
                raise GradientError(
                    "LossScale.step(): a gradient is not finite at scale 1: lower the learning "
                    "rate, or look for the op within mg.anomaly()"
                )
            else:
                self.skipped += 1
                self._good = 0
                self._set(max(self.scale / 2, 1.0))

    def _set(self, scale: float) -> None:
        self.scale = scale
        self._seed.assign_(np.array(scale, np.float32))

    def state_dict(self) -> dict[str, Any]:
        """The scale, and what decides when it changes."""
        return {"scale": self.scale, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._good = state["good"]
        self.skipped = state["skipped"]
        self._set(state["scale"])
