"""The arguments of a call: the key by which its program is found, where arrays are in them, and
what the step does with them while it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...engine.op import owner_of
from ...engine.tensor import Tensor
from ...ops.select import is_basic
from .bindings import PLAIN_KINDS, Binding, frozen

__all__ = [
    "Watched",
    "Watching",
    "add_to_key",
    "described",
    "laid_out",
    "leaves_of",
    "mapped",
    "plain",
    "view_of",
    "watch",
]

ndarray = np.ndarray


def add_to_key(given: Iterable[Any], key: list[Any], tensors: dict[int, int]) -> None:
    """Add what calls that one program serves have in common of arguments; and ids of Tensors."""
    for x in given:
        kind = x.__class__
        if kind is ndarray:
            key += (x.shape, x.strides, x.dtype.str)
        elif kind is Tensor:
            which = tensors.setdefault(id(x), len(tensors))  # the same one may come twice
            array = x._data
            key += (which, array.shape, array.strides, array.dtype.str)
            key += (x.needs, x.hooks is None, x.grad is None)
        elif kind is tuple or kind is list:
            key += (kind, len(x))
            add_to_key(x, key, tensors)
        elif kind is dict:
            key += (kind, *x)
            add_to_key(x.values(), key, tensors)
        else:
            key.append(frozen(x))


def described(x: Any) -> str:
    """An argument in words, as far as it makes another program."""
    if isinstance(x, ndarray | Tensor):
        return f"{x.dtype} {x.shape}"
    return f"{x!r:.40}" if isinstance(x, PLAIN_KINDS) else f"a {type(x).__name__}"


def leaves_of(items: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What is no tuple, list or dict, with the expression that finds it."""
    if items.__class__ in (tuple, list):
        for i, x in enumerate(items):
            yield from leaves_of(x, f"{path}[{i}]")
    elif items.__class__ is dict:
        for name, x in items.items():
            yield from leaves_of(x, f"{path}[{name!r}]")
    else:
        yield path, items


def mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """A structure of tuples, lists and dicts, with something else in place of each leaf."""
    if x.__class__ in (tuple, list):
        return x.__class__([mapped(part, change) for part in x])
    if x.__class__ is dict:
        return {name: mapped(part, change) for name, part in x.items()}
    return change(x)


def laid_out(form: Any, entries: Callable[[int], Any]) -> Any:
    """An array of the shape, dtype and strides of `form`, over entries one after another."""
    steps = [(n - 1) * step for n, step in zip(form.shape, form.strides, strict=True)]
    size = sum(map(abs, steps)) // form.dtype.itemsize + 1
    start = -sum(step for step in steps if step < 0)
    return np.ndarray(form.shape, form.dtype, entries(size), start, form.strides)


# ---------------------------------------------------------------- arrays while a step is recorded

FORM = "base dtype flags itemsize nbytes ndim shape size strides tape".split()
VIEW_METHODS = "reshape squeeze swapaxes transpose astype".split()
VIEW_FUNCTIONS = "expand_dims moveaxis ndim reshape shape size squeeze swapaxes transpose".split()
NUMBER_METHODS = "bool complex contains float index int setitem".split()
NOBODY = SimpleNamespace(notice=lambda what: None, computed=lambda *line: None)


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
        found = super().__getitem__(index)
        if isinstance(found, ndarray) and is_basic(index):
            self.tape.computed(view_of, (self, "__getitem__", (index,), {}), found)
        else:
            self.tape.notice("taking entries out")
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented  # that is for the Tensor to do
        kwargs = {k: plain(x) for k, x in kwargs.items()}
        made = getattr(ufunc, method)(*map(plain, inputs), **kwargs)
        if method == "__call__" and not kwargs and getattr(made, "dtype", None) == np.bool_:
            return self._followed(ufunc, inputs, made)
        self.tape.notice(f"np.{ufunc.__name__}")
        return made

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(kind, Tensor) for kind in types):
            return NotImplemented
        if function is np.where and len(args) == 3:
            return self._followed(function, args, function(*map(plain, args)))
        if function.__name__ not in VIEW_FUNCTIONS:  # which call the methods above
            self.tape.notice(f"np.{function.__name__}")
        return super().__array_function__(function, types, args, kwargs)

    def _followed(self, function: Any, given: Any, made: Any) -> Watched:
        """A comparison or a choice, which is a line."""
        new = watch(np.asarray(made), self.tape)
        self.tape.computed(function, given, new)
        return new


def _view(array: Watched, name: str, *given: Any, **more: Any) -> Any:
    """A view or a cast, which is a line."""
    made = getattr(ndarray, name)(array, *given, **more)
    array.tape.computed(view_of, (array, name, given, more), made)
    return made


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
    """An array, or a tuple of them, that tells nobody."""
    if x.__class__ is tuple:
        return tuple([*map(plain, x)])
    return ndarray.view(x, ndarray) if isinstance(x, Watched) else x


def view_of(x: Any, name: str, given: Any, more: Any) -> Any:
    """What a line of a view or a cast runs."""
    return getattr(x, name)(*given, **more)


class Watching:
    """The arguments of a call, whose arrays are watched while it is recorded.

    Lists and dicts are the caller's own: they hold watched arrays until the end.

    Args: taken: ids of memory that an argument may share; then a copy of it is watched, for lines
        are to tell the two apart.
    """

    def __init__(self, tape: Any, taken: set[int]) -> None:
        self._tape = tape
        self._taken = taken
        self._given: dict[int, tuple[Any, Any]] = {}  # by id of what stands for it, what was given
        self.bindings: list[Binding] = []  # of lists and dicts

    def of(self, x: Any) -> Any:
        new = x
        if id(x) in self._given:  # a list or a dict that comes twice
            return x
        if x.__class__ is ndarray:
            if id(owner_of(x)) in self._taken:
                new = laid_out(x, partial(np.empty, dtype=x.dtype))
                new[...] = x
            self._taken |= {id(owner_of(x)), id(owner_of(new))}
            new = watch(new, self._tape)
        elif x.__class__ is tuple:
            new = tuple([*map(self.of, x)])
        elif x.__class__ in (list, dict):
            _put(x, self.of)
            values = x.values if x.__class__ is dict else x.__iter__
            title = f"a {x.__class__.__name__} among its arguments"
            self.bindings.append(Binding(title, x, lambda: {"": (*values(),)}))
        self._given[id(new)] = new, x
        return new

    def end(self) -> None:
        """Give lists and dicts their own arrays back; nobody is told any more, or the tape and all
        that it holds would wait for the collector of garbage.
        """
        for binding in self.bindings:
            _put(binding.owner, self.own)
        self._tape = NOBODY
        for watched, _ in self._given.values():
            if isinstance(watched, Watched):
                watched.tape = NOBODY

    def own(self, x: Any) -> Any:
        """The caller's own array or tuple, or a plain array."""
        return self._given[id(x)][1] if id(x) in self._given else plain(x)


def _put(container: Any, change: Callable[[Any], Any]) -> None:
    """Put something else in the place of each value."""
    for key in container if container.__class__ is dict else range(len(container)):
        container[key] = change(container[key])
