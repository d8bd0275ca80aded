"""SGD, RMSprop, Adam and AdamW: what each does to the entries of a parameter.

The update rules and their defaults are PyTorch's, so the same gradients give the same weights to
rounding.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.refusals import explained
from ..engine.types import Array
from .optimizer import NoDecay, Optimizer, ParametersOrGroups
from .updates import ObservedSetting

__all__ = ["SGD", "Adam", "AdamW", "RMSprop"]


def _decayed(settings: SimpleNamespace, w: Array, g: Array, scratch: Array) -> Array:
    """g + λ w, in scratch; g itself without a weight decay λ."""
    if not settings.weight_decay:
        return g
    np.multiply(w, settings.weight_decay, scratch)
    scratch += g
    return scratch


class SGD(Optimizer):
    """Stochastic gradient descent: v ← μ v + g, w ← w - lr v.

    With Nesterov's look-ahead, w ← w - lr (g + μ v).

    Raises: as `Optimizer`; ArgumentError for Nesterov without momentum.
    Source: Sutskever et al. 2013.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> SGD([w], lr=0.1).step()
    >>> w.numpy()
    array([0.8])
    """

    @explained
    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        no_decay: NoDecay = False,
    ) -> None:
        settings = dict(momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
        super().__init__(parameters, lr, no_decay=no_decay, **settings)

    def _check_settings(self, **settings: Any) -> None:
        super()._check_settings(**settings)
        if settings["nesterov"] and not settings["momentum"]:
            raise ArgumentError("SGD: nesterov needs a momentum above 0")

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        return ("velocity",) if settings.momentum else ()

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        g = _decayed(settings, w, g, scratch)
        for v in state:
            v *= settings.momentum
            v += g
            if settings.nesterov:
                w -= np.multiply(g, settings.lr, scratch)
                g = np.multiply(v, settings.momentum, scratch)
            else:
                g = v
        w -= np.multiply(g, settings.lr, scratch)


class RMSprop(Optimizer):
    """RMSprop: s ← α s + (1-α) g², w ← w - lr · v with v ← μ v + g / (√s + ε).

    Without a momentum μ, v is the last term alone.  centered: the mean of g, squared, is taken from
    s, which then is a variance.  weight_decay adds λ w to the gradient.
    Raises: ArgumentError for a setting out of range.
    Source: Tieleman & Hinton 2012; Graves 2013, arXiv:1308.0850, for centered.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> RMSprop([w], lr=0.1, alpha=0.0).step()
    >>> w.numpy().round(6)
    array([0.9])
    """

    alpha = ObservedSetting()
    centered = ObservedSetting()

    @explained
    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        no_decay: NoDecay = False,
    ) -> None:
        settings = dict(alpha=alpha, eps=eps, weight_decay=weight_decay)
        settings |= dict(momentum=momentum, centered=centered)
        super().__init__(parameters, lr, no_decay=no_decay, **settings)

    def _check_settings(self, **settings: Any) -> None:
        super()._check_settings(**settings)
        if not settings["alpha"] < 1:
            raise ArgumentError(f"RMSprop: alpha must lie in [0, 1), got {settings['alpha']}")

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        wanted = {"square": True, "mean": settings.centered, "velocity": settings.momentum}
        return tuple(name for name, is_kept in wanted.items() if is_kept)

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        arrays = dict(zip(self.state_names(settings), state, strict=True))
        square = arrays["square"]
        if settings.weight_decay:
            g = g + settings.weight_decay * w
        square *= settings.alpha
        square += np.multiply(np.multiply(g, g, scratch), 1 - settings.alpha, scratch)
        np.copyto(scratch, square)
        if settings.centered:
            mean = arrays["mean"]
            mean += (1 - settings.alpha) * (g - mean)
            np.maximum(scratch - mean * mean, 0, out=scratch)
        np.sqrt(scratch, scratch)
        scratch += settings.eps
        np.divide(g, scratch, scratch)
        if settings.momentum:
            v = arrays["velocity"]
            v *= settings.momentum
            v += scratch
            np.copyto(scratch, v)
        scratch *= settings.lr
        w -= scratch


class Adam(Optimizer):
    """Adam: m ← β₁ m + (1-β₁) g, v ← β₂ v + (1-β₂) g², w ← w - lr · m̂ / (√v̂ + ε).

    The hats are corrected for bias: m̂ = m / (1-β₁ᵗ), v̂ = v / (1-β₂ᵗ).
    weight_decay adds λ w to the gradient.  Raises: ArgumentError for a setting out of range.
    Source: Kingma & Ba 2015, arXiv:1412.6980.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adam([w], lr=0.1).step()
    >>> w.numpy().round(6)
    array([0.9])
    """

    @explained
    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        no_decay: NoDecay = False,
    ) -> None:
        settings = dict(betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(parameters, lr, no_decay=no_decay, **settings)

    def _check_settings(self, **settings: Any) -> None:
        super()._check_settings(**settings)
        betas = settings["betas"]
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ArgumentError(f"{type(self).__name__}: betas must lie in [0, 1), got {betas}")

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        return ("mean", "square")

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        g = _decayed(settings, w, g, scratch)
        self._move_along(settings, t, scratch, w, g, *state)

    def _move_along(
        self,
        settings: SimpleNamespace,
        t: int,
        scratch: Array,
        w: Array,
        g: Array,
        m: Array,
        v: Array,
    ) -> None:
        b1, b2 = settings.betas
        m *= b1  # m without its factor 1-β₁, which comes last
        m += g
        v *= b2
        v += np.multiply(np.multiply(g, g, scratch), 1 - b2, scratch)
        correction = (1 - b2**t) ** 0.5  # √v̂ + ε = (√v + ε √(1-β₂ᵗ)) / √(1-β₂ᵗ)
        np.sqrt(v, scratch)
        scratch += settings.eps * correction
        np.divide(m, scratch, scratch)
        scratch *= settings.lr * correction * (1 - b1) / (1 - b1**t)
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

    @explained
    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        no_decay: NoDecay = False,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, no_decay=no_decay)

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        w *= 1 - settings.lr * settings.weight_decay
        self._move_along(settings, t, scratch, w, g, *state)
