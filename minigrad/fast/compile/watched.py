"""What a step does with the arrays that it is handed, while it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from ...ops.select import is_basic
from .lines import mapped, view_of

__all__ = ["Watched", "laid_out", "plain", "watch"]

ndarray = np.ndarray


def laid_out(form: Any, entries: Callable[[int], Any]) -> Any:
    """An array of the shape, dtype and strides of `form`, over entries one after another."""
    steps = [(n - 1) * step for n, step in zip(form.shape, form.strides, strict=True)]
    size = sum(map(abs, steps)) // form.dtype.itemsize + 1
    start = -sum(step for step in steps if step < 0)
    return np.ndarray(form.shape, form.dtype, entries(size), start, form.strides)


FORM = "base dtype flags itemsize nbytes ndim shape size strides tape".split()
VIEW_METHODS = "reshape squeeze swapaxes transpose astype".split()
VIEW_FUNCTIONS = "expand_dims moveaxis ndim reshape shape size squeeze swapaxes transpose".split()
NUMBER_METHODS = "bool complex contains float index int setitem".split()


class Watched(np.ndarray):
    """An array while a step is recorded.

    The step may ask for its form, take views and casts, compare, and choose by `np.where`, each of
    which is a line. A program knows nothing of whatever else it does with it: that is noticed.
    """

    tape: Any = None

    def __array_finalize__(self, made_from: Any) -> None:
        self.tape = getattr(made_from, "tape", None)

    def __getattribute__(self, name: str) -> Any:
        if name[:2] == "__" or name in FORM or not hasattr(ndarray, name):
            return super().__getattribute__(name)
        if name in VIEW_METHODS:
            return partial(_view, self, name)
        if name in ("T", "mT"):
            return self.transpose() if name == "T" else self.swapaxes(-1, -2)
        self.tape.notice(f"its {name}")
        return getattr(plain(self), name)

    def __getitem__(self, index: Any) -> Any:
        entries = super().__getitem__(index)
        if isinstance(entries, ndarray) and is_basic(index):
            self.tape.computed(view_of, (self, "__getitem__", (index,), {}), entries)
        else:
            self.tape.notice("taking entries out")
        return entries

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented  # that is for the Tensor to do
        kwargs = mapped(kwargs, plain)
        result = getattr(ufunc, method)(*map(plain, inputs), **kwargs)
        if method == "__call__" and not kwargs and getattr(result, "dtype", None) == np.bool_:
            return self._followed(ufunc, inputs, result)
        self.tape.notice(f"np.{ufunc.__name__}")
        return result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(kind, Tensor) for kind in types):
            return NotImplemented
        if function is np.where and len(args) == 3:
            return self._followed(function, args, function(*map(plain, args)))
        if function.__name__ not in VIEW_FUNCTIONS:  # which call the methods above
            self.tape.notice(f"np.{function.__name__}")
        return super().__array_function__(function, types, args, kwargs)

    def _followed(self, function: Any, given: Any, result: Any) -> Watched:
        """A comparison or a choice, which is a line."""
        array = watch(np.asarray(result), self.tape)
        self.tape.computed(function, given, array)
        return array


def _view(array: Watched, name: str, *given: Any, **more: Any) -> Any:
    """A view or a cast, which is a line."""
    result = getattr(ndarray, name)(array, *given, **more)
    array.tape.computed(view_of, (array, name, given, more), result)
    return result


def _number(array: Watched, name: str, *given: Any) -> Any:
    array.tape.notice(f"its {name}")
    return getattr(ndarray, name)(plain(array), *given)


for _name in NUMBER_METHODS:
    setattr(Watched, f"__{_name}__", partialmethod(_number, f"__{_name}__"))


def watch(array: Any, tape: Any) -> Watched:
    """A view of an array that tells a tape what the step does with it."""
    view: Watched = array.view(Watched)
    view.tape = tape
    return view


def plain(x: Any) -> Any:
    """An array that tells nobody; anything else as it is."""
    return ndarray.view(x, ndarray) if isinstance(x, Watched) else x
