"""The arguments of one call: of what kind they are, and which Tensors and arrays are among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...engine.context import current
from ...engine.tensor import Tensor
from .dependencies import PLAIN

__all__ = ["Arguments", "leaves_of"]


class Arguments:
    """One call's arguments.

    Attributes:
        key: equal for calls that one program may serve. It holds plain values by type and value;
            arrays and Tensors by shape, strides, dtype, flags and which are one and the same; other
            objects by identity; and whether a graph is recorded.
        arrays: every Tensor and array, in order, as often as it is given.
    """

    __slots__ = ("arrays", "key")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.arrays: list[Any] = []
        key: list[Any] = [current().recording]
        if args or kwargs:
            self._add(args, key)
            self._add(kwargs, key)
            if len(self.arrays) > 1:
                first: dict[int, int] = {}
                key += [first.setdefault(id(x), i) for i, x in enumerate(self.arrays)]
        self.key = tuple(key)

    def _add(self, item: Any, key: list[Any]) -> None:
        kind = item.__class__
        if kind is np.ndarray:
            key += kind, item.shape, item.strides, item.dtype
            self.arrays.append(item)
        elif kind is Tensor:
            array, needs = item._data, item._needs
            key += kind, array.shape, array.strides, array.dtype, needs, bool(item._hooks)
            key.append(needs and item._node is not None)
            self.arrays.append(item)
        elif kind is tuple or kind is list or kind is dict:
            key += kind, (tuple(item) if kind is dict else len(item))
            for entry in item.values() if kind is dict else item:
                self._add(entry, key)
        else:  # as text, 0.0 is not -0.0, and NaN equals itself
            key += kind, repr(item) if isinstance(item, PLAIN) else id(item)


def leaves_of(expression: str, item: Any, name: str = "") -> Iterator[tuple[str, str, Any]]:
    """(expression, name, item) of everything in nested arguments, by which the source finds it.

    >>> list(leaves_of("args[0]", {"x": 1, "more": [2]}))
    [("args[0]['x']", 'x', 1), ("args[0]['more'][0]", 'more', 2)]
    """
    if item.__class__ in (tuple, list, dict):
        pairs = item.items() if isinstance(item, dict) else enumerate(item)
        for key, entry in pairs:
            known = key if isinstance(key, str) else name
            yield from leaves_of(f"{expression}[{key!r}]", entry, known)
    else:
        yield expression, name, item
