"""Training in float16: the loss is scaled up, so that small gradients do not become zero."""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

import numpy as np

from ..engine.errors import ArgumentError, GradientError
from ..engine.tensor import Tensor
from ..engine.types import StateDict
from .clip import is_part
from .optimizer import Optimizer
from .updates import ObservedSetting, check_state, update

__all__ = ["LossScale"]

_log = logging.getLogger("minigrad.optim")


class Collecting(Protocol):
    """Ranks of a parallel run: each gives a value, and each gets those of all ranks."""

    def collect(self, value: bool) -> list[bool]: ...


class LossScale:
    """Backward from s · loss, and steps along gradient / s, computed in float32.

    The smallest number above 0 that float16 holds is 6e-8; gradients below it would be lost. Where
    a scaled gradient overflows, the step is skipped, that is logged as a warning, and s is halved;
    after `interval` steps without one, s is doubled. The optimizer moves float32 copies of float16
    weights by itself.

    Args:
        optimizer: whose steps are taken.
        scale: s at first, a power of two, so that scaling changes no bit.
        largest: s never grows beyond it; float16 itself ends at 65,504.
        ranks: those that hold parts of the model: if one of them overflows, all skip the step.
    Attributes:
        scale: s now.  skipped: how many steps were skipped.
    Raises: ArgumentError unless 1 ≤ scale ≤ largest; GradientError for an overflow at s = 1, which
        no smaller scale can mend.
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

    scale = ObservedSetting()

    def __init__(
        self,
        optimizer: Optimizer,
        scale: float = 2.0**12,
        interval: int = 1000,
        largest: float = 2.0**15,
        ranks: Collecting | None = None,
    ) -> None:
        if not 1 <= scale <= largest or interval < 1:
            raise ArgumentError(
                "LossScale: 1 <= scale <= largest and interval >= 1 must hold, "
                f"got scale={scale}, largest={largest}, interval={interval}"
            )
        if ranks is None and any(is_part(p) for p in optimizer.parameters):
            raise ArgumentError(
                "LossScale: the parameters are this rank's part of a model, and all ranks must "
                "skip the same steps; pass ranks=, the group that shares the model"
            )
        self.optimizer = optimizer
        self.interval = interval
        self.largest = largest
        self.ranks = ranks
        self._seed = Tensor(np.array(scale, np.float32))
        self.skipped = 0
        self._good = 0
        self._unscaled = False
        self.scale = scale

    def __repr__(self) -> str:
        steps = self.optimizer.steps
        return f"LossScale(scale={self.scale:g}): {steps} steps taken, {self.skipped} skipped"

    def backward(self, loss: Tensor) -> None:
        """Add s · ∂loss/∂leaf to `.grad` of every leaf; call it once for each part of a batch."""
        self._scale_again()
        wide = np.result_type(loss.dtype, np.float32)
        (loss.astype(wide) * self._seed).backward()

    def unscale(self) -> None:
        """Divide every `.grad` by s, in float32: before clipping. Else `step` does it."""
        with update(self, partial(LossScale.unscale, self)):
            if not self._unscaled:
                for p in self.optimizer.parameters:
                    if p.grad is not None:
                        wide = np.result_type(p.dtype, np.float32)
                        p.grad = np.asarray(p.grad, wide) / wide.type(self.scale)
                self._unscaled = True

    def _scale_again(self) -> None:
        """Multiply gradients that `unscale` divided, if no step has followed, by s again."""
        with update(self, partial(LossScale._scale_again, self)):
            if self._unscaled:
                for p in self.optimizer.parameters:
                    if p.grad is not None:
                        p.grad = np.asarray(p.grad * p.grad.dtype.type(self.scale))
                self._unscaled = False

    def step(self) -> None:
        """Take the optimizer's step, or skip it where a gradient is not finite; adapt s."""
        with update(self, partial(LossScale.step, self)):
            LossScale.unscale(self)
            self._unscaled = False
            gradients = [p.grad for p in self.optimizer.parameters if p.grad is not None]
            finite = all(bool(np.isfinite(g).all()) for g in gradients)
            if finite if self.ranks is None else all(self.ranks.collect(finite)):
                self.optimizer.step()
                self._good += 1
                if self._good % self.interval == 0:
                    self._set(min(self.scale * 2, self.largest))
            else:
                self._skip()

    def _skip(self) -> None:
        if self.scale == 1:
            raise GradientError(
                "LossScale.step(): a gradient is not finite, and the scale is 1 already; the run "
                "itself overflows: lower the learning rate, or look for it within mg.anomaly()"
            )
        self.skipped, self._good = self.skipped + 1, 0
        self._set(max(self.scale / 2, 1.0))
        _log.warning(
            "LossScale: a gradient overflowed; the step after %d was skipped, the scale is now %g",
            self.optimizer.steps,
            self.scale,
        )

    def _set(self, scale: float) -> None:
        self.scale = scale
        self._seed.assign_(np.array(scale, np.float32))

    def state_dict(self) -> StateDict:
        """The scale, and what decides when it changes."""
        return {"scale": self.scale, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave.  Raises: ArgumentError for what is no such state."""
        check_state("LossScale", state, ("scale", "good", "skipped"))
        self._good, self.skipped = state["good"], state["skipped"]
        self._set(state["scale"])
