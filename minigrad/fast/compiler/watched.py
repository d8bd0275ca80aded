"""Watched: an array that tells the recorder when it is computed with outside the ops.

While a step is recorded, its array arguments, the arrays that `.numpy()` and `.data` hand out, and
`.grad` are Watched views. Shapes may be asked for, views taken, and the array passed to ops, stored
or returned: the program knows it. Any other use would go unseen at the next call, so it is
reported, and the step then runs eagerly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.context import Listener, current

__all__ = ["Watched", "Watcher", "plain"]

_HARMLESS = {
    "T",
    "base",
    "dtype",
    "flags",
    "itemsize",
    "mT",
    "nbytes",
    "ndim",
    "reshape",
    "shape",
    "size",
    "squeeze",
    "strides",
    "swapaxes",
    "transpose",
    "view",
}
_QUESTIONS = {
    "shape",
    "ndim",
    "size",
    "result_type",
    "iscomplexobj",
    "isrealobj",
    "may_share_memory",
}


class Watcher(Listener):
    """A listener that hears of it too when a watched array is computed with outside the ops."""

    def looked_at(self, use: str) -> None:
        """That happened, by this function or attribute."""


def _report(use: str) -> None:
    for listener in current().listeners:
        if isinstance(listener, Watcher):
            listener.looked_at(use)


def plain(item: Any) -> Any:
    """The base-class view of an array, anything else as it is."""
    return item.view(np.ndarray) if isinstance(item, Watched) else item


class Watched(np.ndarray):
    """A view that reports what is done with it; once nobody listens it behaves as any array."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _HARMLESS and not name.startswith("__"):
            _report(f".{name}")
        return super().__getattribute__(name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(hasattr(value, "__apply__") for value in inputs):
            return NotImplemented  # a Tensor's turn
        _report(f"np.{ufunc.__name__}")
        kwargs = {
            k: tuple(map(plain, v)) if isinstance(v, tuple) else plain(v) for k, v in kwargs.items()
        }
        return getattr(ufunc, method)(*map(plain, inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(hasattr(kind, "__apply__") for kind in types):
            return NotImplemented
        result = super().__array_function__(function, types, args, kwargs)
        is_view = isinstance(result, np.ndarray) and np.may_share_memory(result, self)
        if not is_view and function.__name__ not in _QUESTIONS:
            _report(f"np.{function.__name__}")
        return result

    def __getitem__(self, index: Any) -> Any:
        result = super().__getitem__(index)
        if not (isinstance(result, np.ndarray) and np.may_share_memory(result, self)):
            _report("[...]")
        return result


def _reporting(name: str) -> Any:
    original = getattr(np.ndarray, name)

    def method(self: Any, *args: Any) -> Any:
        _report(name)
        return original(plain(self), *args)

    return method


for _name in (
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__complex__",
    "__iter__",
    "__contains__",
    "__setitem__",
    "__repr__",
    "__str__",
    "__format__",
    "__copy__",
    "__deepcopy__",
    "__reduce__",
    "__reduce_ex__",
):
    setattr(Watched, _name, _reporting(_name))
