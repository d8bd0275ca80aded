"""Optimisers: SGD, Adam and AdamW. They overwrite parameters in place, without temporaries.

The update rules and their defaults are PyTorch's, so the same gradients give the same weights to
rounding. Parameters without a gradient are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .engine.context import current
from .engine.errors import ArgumentError, DTypeError
from .engine.graph import caller, writes
from .engine.tensor import Tensor

__all__ = ["SGD", "Adam", "AdamW"]


class _Optimiser:
    """What all share: the parameters, each one's arrays, `zero_grad` and `step`."""

    weight_decay: float
    _states = 0  # arrays kept for each parameter

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
        self._slots: dict[int, _Slot] = {}
        self._scratch: dict[Any, Any] = {}  # one of each dtype, which stays in cache

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
                dtype = np.result_type(p.dtype, np.float32)
                if dtype not in self._scratch:
                    self._scratch[dtype] = np.empty(PART, dtype)
                slot = self._slots[i] = _Slot(p._data, self._states, self._scratch[dtype])
            slot.count += 1
            for scratch, w, g, *state in slot.parts(p._data, p.grad):
                self._update(slot.count, scratch, w, g, *state)
            writes.note(p._data, place)

    def _update(self, t: int, scratch: Any, w: Any, g: Any, *state: Any) -> None:
        """Move the entries w by their gradient g, for the t-th time; scratch may be written to."""
        raise NotImplementedError

    def _decayed(self, w: Any, g: Any, scratch: Any) -> Any:
        """g + λ w, in scratch; g itself without a weight decay λ."""
        if not self.weight_decay:
            return g
        return np.add(np.multiply(w, self.weight_decay, scratch), g, scratch)


PART = 1 << 17  # entries that are updated at once, so that they stay in cache from pass to pass


class _Slot:
    """What an optimiser keeps for one parameter: how often it moved, so many arrays, a scratch.

    They are float32 for float16, whose squares soon are 0 or infinite.
    """

    def __init__(self, w: Any, states: int, scratch: Any) -> None:
        self.count = 0
        self.state = [np.zeros_like(w, scratch.dtype) for _ in range(states)]
        few = w.size <= PART
        self.whole = few or not w.flags.c_contiguous
        if few:
            scratch = scratch[: w.size].reshape(w.shape)
        elif self.whole:
            scratch = np.empty_like(w, scratch.dtype)
        self.scratch = scratch

    def parts(self, w: Any, g: Any) -> Iterator[tuple[Any, ...]]:
        """(scratch, w, g, *state), a part of a large parameter after the other; all are views."""
        g = np.asarray(g, self.scratch.dtype)
        if self.whole:
            yield self.scratch, w, g, *self.state
            return
        flat = [array.reshape(-1) for array in (w, g, *self.state)]
        for i in range(0, w.size, PART):
            part = [array[i : i + PART] for array in flat]
            yield self.scratch[: len(part[0])], *part


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
        self._states = 1 if momentum else 0

    def _update(self, t: int, scratch: Any, w: Any, g: Any, *state: Any) -> None:
        g = self._decayed(w, g, scratch)
        for v in state:
            v *= self.momentum
            v += g
            if self.nesterov:
                w -= np.multiply(g, self.lr, scratch)
                g = np.multiply(v, self.momentum, scratch)
            else:
                g = v
        w -= np.multiply(g, self.lr, scratch)


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

    _states = 2

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

    def _update(self, t: int, scratch: Any, w: Any, g: Any, *state: Any) -> None:
        (m, v), (b1, b2) = state, self.betas  # m less its factor 1-β₁, which comes last
        d = self._decayed(w, g, scratch)
        m *= b1
        m += d
        v *= b2
        v += np.multiply(np.multiply(d, d, scratch), 1 - b2, scratch)
        correction = (1 - b2**t) ** 0.5  # √v̂ + ε = (√v + ε √(1-β₂ᵗ)) / √(1-β₂ᵗ)
        np.sqrt(v, scratch)
        scratch += self.eps * correction
        np.divide(m, scratch, scratch)
        scratch *= self.lr * correction * (1 - b1) / (1 - b1**t)
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

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _update(self, t: int, scratch: Any, w: Any, g: Any, *state: Any) -> None:
        w *= 1 - self.lr * self.weight_decay
        super()._update(t, scratch, w, g, *state)

    def _decayed(self, w: Any, g: Any, scratch: Any) -> Any:
        return g
