"""Sequential: layers one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import minigrad as mg
from minigrad.errors import DTypeError, OutOfRangeError

from .module import Module

__all__ = ["Sequential"]

Layer: TypeAlias = Callable[[mg.Tensor], mg.Tensor]
"""A Module, or any other function of one Tensor."""


class Sequential(Module):
    """Each layer applied to the output of the one before; activations and other functions too.

    Args: layers: in order; those given by keyword come after, under their names.
    Raises: DTypeError for a layer that is neither a Module nor a function.

    >>> import numpy as np, minigrad as mg
    >>> from layers import Linear
    >>> mlp = Sequential(Linear(3, 5, rng=0), mg.relu, Linear(5, 2, rng=1))
    >>> mlp(np.zeros((7, 3))).shape, [path for path, _ in mlp.named_parameters()]
    ((7, 2), ['layers.0.W', 'layers.0.b', 'layers.2.W', 'layers.2.b'])
    >>> mlp = Sequential(hidden=Linear(3, 5, rng=0), act=mg.relu, head=Linear(5, 2, rng=1))
    >>> [path for path, _ in mlp.named_parameters()], mlp["act"]
    (['layers.hidden.W', 'layers.hidden.b', 'layers.head.W', 'layers.head.b'], <op relu(x)>)
    """

    def __init__(self, *layers: Layer, **named: Layer) -> None:
        for name, layer in [*enumerate(layers), *named.items()]:
            if not callable(layer):
                of, stars = ("dict", "**") if isinstance(layer, dict) else ("list", "*")
                raise DTypeError(
                    f"Sequential: layer {name} must be a Module or a function, got "
                    f"{type(layer).__name__}; the layers of a {of} go by Sequential({stars}layers)"
                )
        numbered = {str(k): layer for k, layer in enumerate(layers)}
        self.layers: Any = numbered | named if named else list(layers)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        for layer in self:
            X = layer(X)
        return X

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers.values() if isinstance(self.layers, dict) else self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int | str) -> Any:
        try:
            return self.layers[index] if isinstance(index, str) else list(self)[index]
        except (LookupError, TypeError):
            names = [*self.layers] if isinstance(self.layers, dict) else f"0 to {len(self) - 1}"
            raise OutOfRangeError(f"Sequential[{index!r}]: its layers are {names}") from None
