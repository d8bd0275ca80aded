"""Sequential: layers one after another."""

from __future__ import annotations

from typing import Any

from .module import Module

__all__ = ["Sequential"]


class Sequential(Module):
    """Each layer applied to the output of the one before; activations and other functions too.

    >>> import numpy as np, minigrad as mg
    >>> from layers import Linear
    >>> mlp = Sequential(Linear(3, 5, rng=0), mg.relu, Linear(5, 2, rng=1))
    >>> mlp(np.zeros((7, 3))).shape, [path for path, _ in mlp.named_parameters()]
    ((7, 2), ['layers.0.W', 'layers.0.b', 'layers.2.W', 'layers.2.b'])
    """

    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)

    def forward(self, X: Any) -> Any:
        for layer in self.layers:
            X = layer(X)
        return X

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> Any:
        return self.layers[index]
