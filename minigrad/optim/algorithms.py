"""SGD, RMSprop, Adam and AdamW: what each does to the entries of a parameter.

The update rules and their defaults are PyTorch's, so the same gradients give the same weights to
rounding.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ..engine.op import FASTER, Array
from .optimizer import Optimizer, ParametersOrGroups

__all__ = ["SGD", "Adam", "AdamW", "RMSprop"]


class SGD(Optimizer):
    """Stochastic gradient descent: v ← μ v + g, w ← w - lr v.

    momentum is μ. weight_decay adds λ w to the gradient.
    Source: Sutskever et al. 2013.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> SGD([w], lr=0.1).step()
    >>> w.numpy()
    array([0.8])
    """

    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay)

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        return ("velocity",) if settings.momentum else ()

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        g = self.decayed(settings, w, g, scratch)
        for v in state:
            v *= settings.momentum
            v += g
            g = v
        w -= np.multiply(g, settings.lr, scratch)


class RMSprop(Optimizer):
    """RMSprop: s ← α s + (1-α) g², w ← w - lr · g / (√s + ε).

    weight_decay adds λ w to the gradient.
    Source: Tieleman & Hinton 2012.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> RMSprop([w], lr=0.1, alpha=0.0).step()
    >>> w.numpy().round(6)
    array([0.9])
    """

    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, alpha=alpha, eps=eps, weight_decay=weight_decay)

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        return ("square",)

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        (square,) = state
        g = g + settings.weight_decay * w
        square *= settings.alpha
        square += (1 - settings.alpha) * g * g
        w -= settings.lr * g / (np.sqrt(square) + settings.eps)


class Adam(Optimizer):
    """Adam: m ← β₁ m + (1-β₁) g, v ← β₂ v + (1-β₂) g², w ← w - lr · m̂ / (√v̂ + ε).

    The hats are corrected for bias: m̂ = m / (1-β₁ᵗ), v̂ = v / (1-β₂ᵗ).
    weight_decay adds λ w to the gradient.
    Source: Kingma & Ba 2015, arXiv:1412.6980.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adam([w], lr=0.1).step()
    >>> w.numpy().round(6)
    array([0.9])
    """

    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        return ("mean", "square")

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        m, v = state
        b1, b2 = settings.betas
        g = self.decayed(settings, w, g, scratch)
        correction = (1 - b2**t) ** 0.5  # √v̂ + ε = (√v + ε √(1-β₂ᵗ)) / √(1-β₂ᵗ)
        rate = settings.lr * correction * (1 - b1) / (1 - b1**t)
        eps = settings.eps * correction
        if "adam" in FASTER and FASTER["adam"](w, g, m, v, b1, b2, 1 - b2, eps, rate):
            return
        m *= b1  # m without its factor 1-β₁, which is in the rate
        m += g
        v *= b2
        v += np.multiply(np.multiply(g, g, scratch), 1 - b2, scratch)
        np.sqrt(v, scratch)
        scratch += eps
        np.divide(m, scratch, scratch)
        scratch *= rate
        w -= scratch


class AdamW(Adam):
    """Adam with weight decay of its own, w ← (1 - lr λ) w, before each step.

    Source: Loshchilov & Hutter 2019, arXiv:1711.05101.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> AdamW([w], lr=0.1, weight_decay=0.1).step()
    >>> w.numpy().round(6)
    array([0.89])
    """

    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def decayed(self, settings: SimpleNamespace, w: Array, g: Array, scratch: Array) -> Array:
        w *= 1 - settings.lr * settings.weight_decay
        return g
