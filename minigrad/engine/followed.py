"""Followed: a view of an array that reports what NumPy computes of it outside the ops.

While compile records a run, the run's array arguments and what `.data` and
`.numpy()` return are Followed views. Each NumPy call on one goes to a `Follower`, which may record
it as a step, and which returns its result. Without a Follower, a Followed array is as any array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .context import current
from .listener import Listener
from .tensor import Tensor
from .types import Arguments, Array

__all__ = ["Followed", "Follower", "plain"]

_FACTS = set("base dtype flags itemsize nbytes ndim shape size strides view".split())
_FOLLOWED_METHODS = set(
    """
    all any argmax argmin argsort astype clip copy cumsum flatten max mean min prod ravel repeat
    reshape squeeze std sum swapaxes take transpose var
    """.split()
)
_QUESTIONS = set(
    """
    can_cast iscomplexobj isrealobj issubdtype iterable may_share_memory ndim result_type shape
    shares_memory size
    """.split()
)
_LOOKS = """
    __float__ __int__ __index__ __complex__ __contains__ __repr__ __str__ __format__ __copy__
    __deepcopy__ __reduce__ __reduce_ex__ __dlpack__
""".split()


class Follower(Listener):
    """A listener that is notified of what is done with Followed arrays."""

    def computed(
        self, name: str, call: Callable[..., Any], args: Arguments, kwargs: dict[str, Any]
    ) -> Any:
        """The result of `call`, of this name in NumPy; among its arguments are Followed arrays."""
        return call(*plain(args), **plain(kwargs))

    def looked_at(self, use: str) -> None:
        """Entries were read by this function or attribute, which no step can repeat."""

    def guard(self, array: Followed) -> None:
        """The program branches on the truth of an array."""


def plain(item: Any) -> Any:
    """The array that a Followed one is a view of, also within containers; all else as it is."""
    if item.__class__ in (tuple, list):
        return item.__class__(map(plain, item))
    if item.__class__ is dict:
        return {key: plain(value) for key, value in item.items()}
    return np.ndarray.view(item, np.ndarray) if isinstance(item, Followed) else item


def _follower() -> Follower | None:
    return next((x for x in current().listeners if isinstance(x, Follower)), None)


def _compute(name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    follower = _follower()
    if follower is None:
        return call(*plain(args), **plain(kwargs))
    return follower.computed(name, call, args, kwargs)


def _report(use: str) -> None:
    follower = _follower()
    if follower is not None:
        follower.looked_at(use)


def _method(name: str, x: Array, *args: Any, **kwargs: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


class Followed(np.ndarray[Any, Any]):
    """A view that reports what is done with it."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name in _FACTS or _follower() is None:
            return super().__getattribute__(name)
        if name in _FOLLOWED_METHODS:
            return partial(_compute, name, partial(_method, name), self)
        if name == "T":
            return _compute("transpose", np.transpose, self)
        if name == "mT":
            return _compute("swapaxes", np.swapaxes, self, -1, -2)
        if name == "real":
            return _compute("real", np.real, self)
        _report(f".{name}")
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        """What NumPy's numbers have and arrays lack, as `is_integer`."""
        return getattr(plain(self)[()], name)

    def __hash__(self) -> int:  # type: ignore[override]
        _report("__hash__")
        return hash(plain(self)[()])

    def __round__(self, digits: int | None = None) -> Any:
        _report("__round__")
        return round(plain(self)[()], digits)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            _report(".view")
        return super().view(*args, **kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented  # Tensor's method runs instead
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return _compute(name, getattr(ufunc, method), *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(kind, Tensor) for kind in types):
            return NotImplemented
        if function.__name__ in _QUESTIONS:
            return super().__array_function__(function, types, args, kwargs)
        return _compute(function.__name__, function, *args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return _compute("getitem", operator.getitem, self, index)

    def __setitem__(self, index: Any, x: Any) -> None:
        alike = isinstance(x, Followed) and (x.shape, x.dtype) == (self.shape, self.dtype)
        if alike and (index is Ellipsis or index == slice(None)):
            _compute("positive", np.positive, x, out=self)
            return
        _report("[...] =")
        plain(self)[plain(index)] = plain(x)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        follower = _follower()
        if follower is not None:
            follower.guard(self)
        return bool(plain(self))


def _reporting(name: str) -> Any:
    original = getattr(np.ndarray, name)

    def method(self: Any, *args: Any) -> Any:
        _report(name)
        return original(plain(self), *args)

    return method


for _name in _LOOKS:
    setattr(Followed, _name, _reporting(_name))
