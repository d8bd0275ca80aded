"""What a tape holds: lines, and the Values that they read and make."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from numpy import ndarray

from ...engine.op import EXPLAINED, owner_of, view_key
from .bindings import PLAIN_KINDS, frozen

__all__ = [
    "NO_LINE",
    "Itself",
    "KnownArrays",
    "Returned",
    "TapeLine",
    "Value",
    "failing_as",
    "shown",
    "signed",
]


@dataclass(eq=False)
class Value:
    """An array of the run, and how the program writes it.

    Attributes:
        number: in the order in which they came.  name: what to call it.
        strides: None if it is a SparseGradient.
        path: where it is among the arguments.  thing: what the program is handed, a Tensor or an
            array from elsewhere. A line made it if it has neither.
        is_tensor: whether a Tensor is there, whose array it is.
        fresh: whether it shares no memory with what its line was given.
        key: what two recordings know it by, unless by its path or number.
        bases: the Values whose memory it may show, itself among them if it has its own.
        stays: whether its memory is somebody else's, too, or outlives the step.
        text: how it is written, once it is.
        readers: the statements that read it, last first.  last: the last one that reads its memory.
        over: in whose place it is written.  root: the first of those that share its name.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: Any
    strides: Any
    path: str = ""
    thing: Any = None
    is_tensor: bool = False
    fresh: bool = False
    key: Any = None
    bases: list[Value] = field(default_factory=list)
    stays: bool = True
    text: str = ""
    last: Any = None
    over: Value | None = None

    def __post_init__(self) -> None:
        self.bases = self.bases or [self]
        self.readers: list[Any] = []
        self.root = self
        self.size = prod(self.shape)

    def __repr__(self) -> str:
        return f"{self.thing!r:.60}" if self.name == "constant" else self.name

    def is_from_outside(self) -> bool:
        return bool(self.path) or self.thing is not None

    def is_alone(self) -> bool:
        """Whether it shows all of one array that a statement made, and that the step lets go of."""
        base, *others = self.bases
        return not (others or base.stays) and base.size == self.size

    def can_go_over(self, x: Value) -> bool:
        """Whether it may be written where x lies, after which nobody reads x."""
        form = (self.shape, self.dtype, self.strides)
        return (
            bool(self.shape and self.size)
            and form == (x.shape, x.dtype, x.strides)
            and x.is_alone()
        )


@dataclass(slots=True)
class Itself:
    """What a line is given as it is, and not its array: a Tensor, a layer's attributes, a function.

    Attributes: attribute: if that is meant, as ".grad".  Else as of a Value.
    """

    name: str
    thing: Any
    path: str = ""
    attribute: str = ""

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True)
class Returned:
    """An array that the step returns.

    Attributes:
        is_tensor: whether as a new Tensor.
        is_own: whether its memory is none that the step was handed.
    """

    value: Value
    is_tensor: bool
    is_own: bool


@dataclass(slots=True)
class TapeLine:
    """One thing that the run did.

    Attributes:
        kind: "op", "rule", "sum" (of gradients); "grad", which becomes a leaf's; "keep", which a
            layer does; or another "effect".
        function: what is called; of an effect, a statement, with {0} and so on for what is given.
        given: Values and plain values, in tuples and lists.
        made: the Values that come out, None for one that nobody wants.
        op: its name.  scope: where in the model.  effect: whether it does more than compute.
        whole: an op's kernel, whose errors are those of the op's call.
    """

    kind: str
    function: Any
    given: tuple[Any, ...]
    made: tuple[Value | None, ...] = ()
    op: str = ""
    scope: str = ""
    effect: bool = False
    whole: Any = None

    def signature(self) -> tuple[Any, ...]:
        """What must be the same in another recording."""
        made = tuple([None if v is None else (v.shape, v.dtype) for v in self.made])
        return self.kind, signed(self.function), signed(self.given), made

    def __str__(self) -> str:
        return f"{self.op or self.kind}({', '.join(map(repr, self.given))})"


NO_LINE = TapeLine("nothing", None, ())


def signed(x: Any) -> Any:
    """What must be the same of what a line names, or of a result."""
    if x.__class__ is Value:
        return x.key or x.path or x.number
    if x.__class__ is Returned:
        return x.is_tensor, x.value.key
    if x.__class__ is Itself:
        return x.path or (
            signed(x.thing) if isinstance(x.thing, partial) else id(x.thing)
        ), x.attribute
    if x.__class__ in (tuple, list):
        return (x.__class__, *map(signed, x))
    if x.__class__ is dict:
        return signed([*x.items()])
    if isinstance(x, partial):  # an update comes as a new one each time
        return signed([x.func, *x.args])
    is_a_value = x.__class__.__eq__ is not object.__eq__ and x.__class__.__hash__
    return x if is_a_value and not isinstance(x, PLAIN_KINDS) else frozen(x)


class ArrayOfPath(ndarray):
    """An array that an error calls by the path of the Tensor that it was."""

    path = ""


def failing_as(op: Any, kernel: Callable[..., Any], paths: Sequence[str]) -> Callable[..., Any]:
    """A kernel, with errors as of the op's call.  paths: of the op's inputs."""

    def run(*given: Any) -> Any:
        try:
            return kernel(*given)
        except EXPLAINED as error:
            inputs = [*given[: len(paths)]]
            for i, path in enumerate(paths):
                if isinstance(inputs[i], ndarray):
                    inputs[i] = inputs[i].view(ArrayOfPath)
                    inputs[i].path = path
            raise op.explain(error, inputs, given[len(paths) :]) from op.cause(error)

    return run


class KnownArrays:
    """Values, by the entries that an array shows, as long as somebody holds its memory."""

    def __init__(self) -> None:
        self._count = 0
        self._known: dict[Any, tuple[Callable[[], Any], Value]] = {}

    def value(self, array: Any, name: str, **about: Any) -> Value:
        """A Value of this form, by which nothing is known yet."""
        self._count += 1
        strides = getattr(array, "strides", None)
        return Value(self._count, name, array.shape, array.dtype, strides, **about)

    def new(self, array: Any, name: str, **about: Any) -> Value:
        """A Value, by which the array is known from here on."""
        value = self.value(array, name, **about)
        self.know(array, value)
        return value

    def know(self, array: Any, value: Value) -> None:
        if self.seen(array) is None:
            owner = owner_of(array)
            held = weakref.ref(owner) if isinstance(owner, ndarray) else lambda: owner
            self._known[shown(array)] = held, value

    def seen(self, array: Any) -> Value | None:
        owner, value = self._known.get(shown(array), (lambda: None, None))
        return value if owner() is not None else None


def shown(x: Any) -> tuple[Any, ...]:
    """Which entries an array shows; of a number of NumPy's, which object it is."""
    if not isinstance(x, ndarray):
        return ("number", id(x))
    return view_key(x)
