"""The arguments of a call: the key by which its program is found, and where arrays are in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from .reach import PLAIN_KINDS, frozen

__all__ = ["Watched", "Watching", "key_of", "leaves_of", "plain", "watch"]

ndarray = np.ndarray


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What two calls have in common for which one program serves."""
    key: list[Any] = []
    tensors: dict[int, int] = {}
    _add(args, key, tensors)
    for name in kwargs:
        key.append(name)
        _add((kwargs[name],), key, tensors)
    return tuple(key)


def _add(given: Any, key: list[Any], tensors: dict[int, int]) -> None:
    for x in given:
        kind = x.__class__
        if kind is ndarray:
            key += (x.shape, x.dtype.str)
        elif kind is Tensor:
            which = tensors.setdefault(id(x), len(tensors))  # the same one may come twice
            key += (Tensor, which, x._data.shape, x._data.dtype.str, x.requires_grad)
        elif kind is tuple or kind is list:
            key += (kind, len(x))
            _add(x, key, tensors)
        elif kind is dict:
            key += (kind, *x)
            _add(x.values(), key, tensors)
        elif isinstance(x, PLAIN_KINDS):
            key += (kind, x if x.__class__ is not slice else repr(x))
        elif isinstance(x, ndarray):
            key += (kind, x.shape, x.dtype.str)
        else:
            key.append(frozen(x))


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


# ---------------------------------------------------------------- NumPy on arguments

SHAPES = {"shape", "ndim", "size", "result_type", "may_share_memory", "shares_memory"}
VIEWS = {
    "atleast_1d", "atleast_2d", "broadcast_to", "diagonal", "expand_dims", "moveaxis",
    "permute_dims", "ravel", "reshape", "rollaxis", "squeeze", "swapaxes", "transpose",
}  # fmt: skip
GIVING_NUMBERS = (
    "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "argmax",
    "argmin", "argsort", "item", "nonzero", "searchsorted", "tobytes", "tolist", "__setitem__",
)  # fmt: skip


class Watched(np.ndarray):
    """An array while a step is recorded, of which NumPy may compute.

    Functions of each entry are lines; views are followed. Of the rest a program knows nothing, so
    it is noticed.
    """

    tape: Any = None

    def __array_finalize__(self, made_from: Any) -> None:
        self.tape = getattr(made_from, "tape", None)

    def notice(self, what: str) -> None:
        if self.tape is not None and not _an_op_runs():
            self.tape.refuse(
                f"numbers are taken out of an array, by {what},",
                "do that outside the step, or compute by ops: mg.tensor(x) makes a Tensor of it",
            )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented  # that is for the Tensor to do
        kwargs = {k: plain(x) for k, x in kwargs.items()}
        made = getattr(ufunc, method)(*map(plain, inputs), **kwargs)
        if self.tape is None or _an_op_runs():
            return made
        if method == "__call__" and not kwargs and ufunc.nout == 1:
            made = watch(np.asarray(made), self.tape)
            self.tape.computed(ufunc, inputs, made)
        else:
            self.notice(f"np.{ufunc.__name__}")
        return made

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(kind, Tensor) for kind in types):
            return NotImplemented
        if function.__name__ not in SHAPES | VIEWS:
            self.notice(f"np.{function.__name__}")
        return super().__array_function__(function, types, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if not isinstance(found, np.ndarray):
            self.notice("taking an entry out")
        return found


COMPUTING = ("minigrad.ops", "minigrad.optim", "minigrad.fast", "minigrad.distributed")
RUNNING = {"__apply__", "record", "backpropagate", "run_rules"}  # functions that call an op's


def watch(array: Any, tape: Any) -> Watched:
    """A view of an array that tells a tape what NumPy computes of it."""
    view = array.view(Watched)
    view.tape = tape
    return view


def _an_op_runs() -> bool:
    """Whether it is minigrad that computes, in a kernel or a rule: those are lines."""
    frame: Any = sys._getframe(2)
    first = True
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(__package__):
            if frame.f_code.co_name == "_record":
                return False
        elif first and not module.startswith("numpy"):
            first = False
            if module.startswith(COMPUTING):
                return True
        elif module.startswith("minigrad.engine") and frame.f_code.co_name in RUNNING:
            return True
        frame = frame.f_back
    return False


def _noticing(name: str) -> Any:
    real = getattr(np.ndarray, name)

    def method(self: Watched, *args: Any, **kwargs: Any) -> Any:
        self.notice(f"its {name}")
        return real(self.view(np.ndarray), *args, **kwargs)

    return method


for _name in GIVING_NUMBERS:
    setattr(Watched, _name, _noticing(_name))


def plain(x: Any) -> Any:
    if x.__class__ is tuple:
        return tuple([*map(plain, x)])
    return x.view(np.ndarray) if isinstance(x, Watched) else x


class Watching:
    """The arguments of a call that is recorded, arrays watched, containers copied."""

    def __init__(self) -> None:
        self._arrays: list[Watched] = []
        self._owners: dict[int, Any] = {}
        self._copies: list[tuple[Any, Any, list[Any]]] = []  # a container, its copy, what it held

    def of(self, x: Any) -> Any:
        if x.__class__ is ndarray:
            owner = x
            while isinstance(owner.base, ndarray):
                owner = owner.base
            if id(owner) in self._owners:  # of two that share memory, a view is to be of one alone
                x = x.copy(order="K")
            self._owners[id(owner)] = owner
            self._arrays.append(x.view(Watched))
            return self._arrays[-1]
        if x.__class__ is tuple:
            return tuple([*map(self.of, x)])
        if x.__class__ is list or x.__class__ is dict:
            values: Any = x if x.__class__ is list else x.values()  # type: ignore[union-attr]
            held = [*map(self.of, values)]
            copy: Any = [*held] if x.__class__ is list else dict(zip(x, held, strict=True))
            self._copies.append((x, copy, held))
            return copy
        return x

    def begin(self, tape: Any) -> None:
        for array in self._arrays:
            array.tape = tape

    def end(self) -> None:
        for array in self._arrays:
            array.tape = None

    def changed(self) -> str:
        """What of the containers the step changed, in words."""
        for _, copy, held in self._copies:
            now = [*copy.values()] if copy.__class__ is dict else copy
            if [*map(id, now)] != [*map(id, held)]:
                return f"a {copy.__class__.__name__} among its arguments"
        return ""

    def give_back(self) -> None:
        """Do to the containers of the caller what the step did to their copies."""
        for given, copy, held in self._copies:
            now = [*copy.values()] if copy.__class__ is dict else copy
            if [*map(id, now)] != [*map(id, held)]:
                new = self.plain(copy)
                given.clear()
                given.update(new) if copy.__class__ is dict else given.extend(new)

    def plain(self, x: Any) -> Any:
        """What the step returned, without watched arrays."""
        if isinstance(x, Watched):
            return x.view(np.ndarray)
        if x.__class__ in (tuple, list):
            return x.__class__([*map(self.plain, x)])
        return {k: self.plain(v) for k, v in x.items()} if x.__class__ is dict else x
