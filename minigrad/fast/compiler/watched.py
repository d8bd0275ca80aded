"""Watched: an array that writes down what NumPy computes of it outside the ops.

While a step is recorded, its array arguments, the arrays that `.numpy()` and `.data` hand out, and
`.grad` are Watched views. What NumPy computes of them becomes part of the program where a Symbol
can follow it. A number that Python takes out of one (`float`, a loop) would be the same at every
later call: that is reported, and the step then runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, getitem
from typing import Any

import numpy as np

from ...engine.context import current

__all__ = ["Watched", "Watcher", "plain"]

_FACTS = set("base dtype flags itemsize nbytes ndim shape size strides view".split())
_PROPERTIES = {"T", "mT", "real"}
_METHODS = set("reshape ravel squeeze swapaxes transpose copy astype clip take cumsum".split())
_METHODS |= set("sum mean max min prod any all".split())
_QUESTIONS = {"shape", "ndim", "size", "result_type", "iscomplexobj", "isrealobj"}
_QUESTIONS |= {"may_share_memory", "shares_memory", "issubdtype", "can_cast", "iterable"}


class Watcher:
    """What a listener does that hears of watched arrays."""

    def looked_at(self, use: str) -> None:
        """Numbers were taken out of one, by this function or attribute."""

    def computed(self, use: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """NumPy is asked to compute with one."""

    def guard(self, array: Any) -> None:
        """The truth of one was asked for."""


def _watcher() -> Watcher | None:
    listeners = (one for one in current().listeners if isinstance(one, Watcher))
    return next(listeners, None)


def plain(item: Any) -> Any:
    """The base-class view of an array, anything else as it is."""
    if item.__class__ in (tuple, list):
        return item.__class__(map(plain, item))
    return np.ndarray.view(item, np.ndarray) if isinstance(item, Watched) else item


def _compute(use: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    watcher = _watcher()
    if watcher is not None:
        return watcher.computed(use, call, args, kwargs)
    return call(*plain(args), **{key: plain(value) for key, value in kwargs.items()})


class Watched(np.ndarray):
    """A view that tells what is done with it; once nobody listens it behaves as any array."""

    def __getattribute__(self, name: str) -> Any:
        watcher = None if name.startswith("__") or name in _FACTS else _watcher()
        if watcher is None:
            return super().__getattribute__(name)
        if name in _PROPERTIES:
            return _compute(f".{name}", attrgetter(name), self)
        if name in _METHODS:
            return partial(_compute, f".{name}", partial(_method, name), self)
        watcher.looked_at(f".{name}")
        return super().__getattribute__(name)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            _report(".view")
        return super().view(*args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(hasattr(value, "__apply__") for value in inputs):
            return NotImplemented  # a Tensor's turn
        return _compute(f"np.{ufunc.__name__}", getattr(ufunc, method), *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(hasattr(kind, "__apply__") for kind in types):
            return NotImplemented
        if function.__name__ in _QUESTIONS:
            return super().__array_function__(function, types, args, kwargs)
        return _compute(f"np.{function.__name__}", function, *args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return _compute("[...]", getitem, self, index)

    def __setitem__(self, index: Any, x: Any) -> None:
        alike = isinstance(x, Watched) and (x.shape, x.dtype) == (self.shape, self.dtype)
        if alike and (index is Ellipsis or index == slice(None)):
            _compute("[...] =", np.positive, x, out=self)
            return
        _report("[...] =")
        plain(self)[index] = plain(x)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        watcher = _watcher()
        if watcher is not None:
            watcher.guard(self)
        return bool(plain(self))


def _method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


def _report(use: str) -> None:
    watcher = _watcher()
    if watcher is not None:
        watcher.looked_at(use)


def _reporting(name: str) -> Any:
    original = getattr(np.ndarray, name)

    def method(self: Any, *args: Any) -> Any:
        _report(name)
        return original(plain(self), *args)

    return method


for _name in (
    "__float__ __int__ __index__ __complex__ __contains__ __repr__ __str__ __format__ "
    "__copy__ __deepcopy__ __reduce__ __reduce_ex__ __dlpack__"
).split():
    setattr(Watched, _name, _reporting(_name))
