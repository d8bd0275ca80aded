"""Optimisers: SGD, Adam and AdamW. They overwrite parameters in place, with one scratch array each.

The update rules, their order of operations and their defaults are PyTorch's, so the same gradients
give the same weights. Parameters without a gradient are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .context import current
from .errors import ArgumentError, DTypeError
from .graph import caller, writes
from .tensor import Tensor

__all__ = ["SGD", "Adam", "AdamW"]


class _Optimiser:
    """What all share: the parameters, each one's arrays, `zero_grad` and `step`."""

    _state: tuple[str, ...] = ()

    def __init__(self, parameters: Iterable[Tensor], lr: float, **settings: float) -> None:
        name = type(self).__name__
        self.parameters = list(parameters)
        if not self.parameters:
            raise ArgumentError(f"{name}(parameters): got no parameters")
        for p in self.parameters:
            if not isinstance(p, Tensor) or not p.is_leaf:
                raise DTypeError(f"{name}(parameters): each must be a leaf Tensor, got {p!r:.80}")
        for key, value in {"lr": lr, **settings}.items():
            if not value >= 0:
                raise ArgumentError(f"{name}: {key} must be at least 0, got {value}")
        self.lr, self.steps = lr, 0
        self._slots: dict[int, dict[str, Any]] = {}

    def zero_grad(self) -> None:
        """Forget every gradient."""
        for p in self.parameters:
            p.grad = None

    def step(self) -> None:
        """Move each parameter that has a gradient, in place.

        Graphs that saved it before refuse to run backward with the new values.
        """
        for listener in current().listeners:
            listener.updating(self)
        self.steps += 1
        place = caller()
        for i, p in enumerate(self.parameters):
            if p.grad is None:
                continue
            slot = self._slots.get(i)
            if slot is None:
                slot = self._slots[i] = {"scratch": np.empty_like(p._data), "count": 0}
                slot |= {name: np.zeros_like(p._data) for name in self._state}
            slot["count"] += 1
            self._update(p._data, p.grad, slot)
            writes.note(p._data, place)

    def _update(self, w: Any, g: Any, slot: dict[str, Any]) -> None:
        raise NotImplementedError


class SGD(_Optimiser):
    """Stochastic gradient descent: v ← μ v + g, w ← w - lr v.

    With Nesterov's look-ahead, w ← w - lr (g + μ v).

    Raises: ArgumentError for a negative setting, or Nesterov without momentum.
    Source: Sutskever et al. 2013.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> SGD([w], lr=0.1).step()
    >>> w.data
    array([0.8])
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and not momentum:
            raise ArgumentError("SGD: nesterov needs a momentum above 0")
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self._state = ("velocity",) if momentum else ()

    def _update(self, w: Any, g: Any, slot: dict[str, Any]) -> None:
        step = slot["scratch"]
        np.copyto(step, g)
        if self.weight_decay:
            step += self.weight_decay * w
        if self.momentum:
            v = slot["velocity"]
            v *= self.momentum
            v += step
            if self.nesterov:
                step += self.momentum * v
            else:
                np.copyto(step, v)
        step *= self.lr
        w -= step


class Adam(_Optimiser):
    """Adam: m ← β₁ m + (1-β₁) g, v ← β₂ v + (1-β₂) g², w ← w - lr · m̂ / (√v̂ + ε).

    The hats are corrected for bias: m̂ = m / (1-β₁ᵗ), v̂ = v / (1-β₂ᵗ).
    weight_decay adds λ w to the gradient.  Raises: ArgumentError for a setting out of range.
    Source: Kingma & Ba 2015, arXiv:1412.6980.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adam([w], lr=0.1).step()
    >>> w.data.round(6)
    array([0.9])
    """

    _state = ("m", "v")
    _decoupled = False

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, eps=eps, weight_decay=weight_decay)
        if not all(0 <= beta < 1 for beta in betas):
            raise ArgumentError(f"{type(self).__name__}: betas must lie in [0, 1), got {betas}")
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay

    def _update(self, w: Any, g: Any, slot: dict[str, Any]) -> None:
        (b1, b2), t = self.betas, slot["count"]
        m, v, scratch = slot["m"], slot["v"], slot["scratch"]
        if self.weight_decay and self._decoupled:
            w *= 1 - self.lr * self.weight_decay
        elif self.weight_decay:
            g = g + self.weight_decay * w
        m *= b1
        m += np.multiply(g, 1 - b1, out=scratch)
        v *= b2
        np.multiply(g, g, out=scratch)
        scratch *= 1 - b2
        v += scratch
        np.sqrt(v, out=scratch)
        scratch *= (1 - b2**t) ** -0.5
        scratch += self.eps
        np.divide(m, scratch, out=scratch)
        scratch *= self.lr / (1 - b1**t)
        w -= scratch


class AdamW(Adam):
    """Adam with weight decay of its own, w ← (1 - lr λ) w, before each step.

    Source: Loshchilov & Hutter 2019, arXiv:1711.05101.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> AdamW([w], lr=0.1, weight_decay=0.1).step()
    >>> w.data.round(6)
    array([0.89])
    """

    _decoupled = True

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)
