"""What a tape holds: lines, and the Values that they read and make."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...engine.backward import SparseGradient, reduce_to_edge
from ...engine.op import EXPLAINED, owner_of, view_key
from .bindings import PLAIN_KINDS, frozen

__all__ = [
    "Handed",
    "KnownArrays",
    "Returned",
    "TapeLine",
    "Value",
    "added",
    "explained",
    "fitted",
    "leaves_of",
    "mapped",
    "signed",
    "view_of",
]


@dataclass(slots=True)
class Handed:
    """What a program is handed: a Tensor, an array, a layer's attributes, an optimizer's step.

    Attributes:
        name: what to call it.
        path: where it is among the arguments, if it is one.
        key: what two recordings know it by, unless by its path or identity.
    """

    name: str
    thing: Any
    path: str = ""
    key: Any = None

    def __repr__(self) -> str:
        return f"{self.thing!r:.60}" if self.name == "constant" else self.name


@dataclass(eq=False)
class Value:
    """An array of the run, and how the program writes it.

    Attributes:
        number: in the order in which they came.  name: what to call it.
        strides: None if it is a SparseGradient.
        source, attribute: what the program is handed, and what the array is of it, as "._data" of a
            Tensor; a line made it if there is none.
        is_new: whether a statement made it, and nobody else holds its memory.
        text: how it is written, once it is.  readers: the statements that read it, last first.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: Any
    strides: Any
    source: Handed | None = None
    attribute: str = ""
    is_new: bool = False
    text: str = ""

    def __post_init__(self) -> None:
        self.readers: list[Any] = []
        self.form = self.shape, self.dtype, self.strides
        self.nbytes = prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return repr(self.source) if self.source else self.name


@dataclass(slots=True)
class Returned:
    """An array that outlives the step, so that nobody else may hold it: a gradient or a result.

    Attributes: is_tensor: whether it becomes a new Tensor.
    """

    value: Value
    is_tensor: bool


@dataclass(slots=True)
class TapeLine:
    """One thing that the run did.

    Attributes:
        function: what is called; of an effect, a statement, with {0} and so on for what is given.
        given: Values and plain values, in tuples and lists.
        made: the Values that come out, None for one that nobody wants.
        op: its name, and whether it goes back.  scope: where in the model.
        effect: whether it does more than compute.
    """

    function: Any
    given: tuple[Any, ...]
    made: Sequence[Value | None] = ()
    op: str = ""
    scope: str = ""
    effect: bool = False

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.given))})"


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


def signed(x: Any) -> Any:
    """What must be the same of a line, or of a result, in another recording."""
    if x.__class__ is TapeLine:
        return signed([x.function, x.given, [v and (v.shape, v.dtype) for v in x.made]])
    if x.__class__ is Value:
        return signed([x.source, x.attribute]) if x.source else x.number or id(x)
    if x.__class__ is Returned:
        return x.is_tensor, signed(x.value)
    if x.__class__ is Handed:
        return x.key or x.path or id(x.thing)
    if x.__class__ in (tuple, list):
        return (x.__class__, *map(signed, x))
    if x.__class__ is dict:
        return signed([*x.items()])
    if isinstance(x, partial):  # which is a new one each time
        return signed([x.func, *x.args])
    is_a_value = x.__class__.__eq__ is not object.__eq__ and x.__class__.__hash__
    return x if is_a_value and not isinstance(x, PLAIN_KINDS) else frozen(x)


class KnownArrays:
    """Values, by the entries that an array shows, as long as somebody holds its memory."""

    def __init__(self) -> None:
        self._count = 0
        self._known: dict[Any, tuple[Callable[[], Any], Value]] = {}

    def value(self, array: Any, name: str, *source: Any) -> Value:
        """A Value of this form, by which nothing is known yet."""
        self._count += 1
        strides = getattr(array, "strides", None)
        return Value(self._count, name, array.shape, array.dtype, strides, *source)

    def new(self, array: Any, name: str, *source: Any) -> Value:
        """A Value, by which the array is known from here on."""
        value = self.value(array, name, *source)
        self.know(array, value)
        return value

    def know(self, array: Any, value: Value) -> None:
        if self.seen(array) is None:
            owner = owner_of(array)
            held = weakref.ref(owner) if isinstance(owner, np.ndarray) else lambda: owner
            self._known[_shown(array)] = held, value

    def seen(self, array: Any) -> Value | None:
        owner, value = self._known.get(_shown(array), (lambda: None, None))
        return value if owner() is not None else None


def _shown(x: Any) -> Any:
    """Which entries an array shows; of a number of NumPy's, which object it is."""
    return view_key(x) if isinstance(x, np.ndarray) else id(x)


# ---------------------------------------------------------------- what lines call


def explained(op: Any, kernel: Callable[..., Any], *given: Any) -> Any:
    """What an op's kernel gives, or an error as of its call."""
    try:
        return kernel(*given)
    except EXPLAINED as error:
        n = len(given) - len(op.settings)
        raise op.explain(error, given[:n], given[n:]) from op.cause(error)


def fitted(rule: Callable[..., Any], wanted: Sequence[Any], *given: Any) -> Any:
    """Gradients that a rule gives, each summed over what was broadcast, and cast, as by the engine.

    Args: wanted: the form of each; None for one that nobody wants.
    """
    node: Any = None  # which only errors name
    parts = rule(*given)
    if len(wanted) == 1:
        return reduce_to_edge(parts, wanted[0], node)
    pairs = zip(parts, wanted, strict=True)
    return tuple(
        [None if form is None else reduce_to_edge(part, form, node) for part, form in pairs]
    )


def added(total: Any, part: Any) -> Any:
    """A sum as of the engine: in the layout of its first term, if there is one."""
    if isinstance(part, SparseGradient):
        return part.onto(total)
    if part.strides == total.strides:
        return total + part
    return np.add(total, part, out=np.empty_like(total))


def view_of(x: Any, name: str, given: Any, more: Any) -> Any:
    """What a line of a view or a cast runs."""
    return getattr(x, name)(*given, **more)
