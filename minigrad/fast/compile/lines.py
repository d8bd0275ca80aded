"""What a tape holds: lines, and the Values that they read and make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from .reach import PLAIN_KINDS, frozen

__all__ = ["Returned", "TapeLine", "Value", "signed"]


@dataclass(slots=True, eq=False)
class Value:
    """An array of the run.

    Attributes:
        number: in the order in which they came.  name: what to call it.
        path: where it is among the arguments.  thing: what the program is handed, a Tensor or an
            array from elsewhere. A line made it if it has neither.
        is_tensor: whether a Tensor is there, whose array it is.
        fresh: whether it shares no memory with what its line was given.
        key: what two recordings know it by, unless by its path or number.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    path: str = ""
    thing: Any = None
    is_tensor: bool = False
    fresh: bool = False
    key: Any = None

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True)
class Returned:
    """A part of what the step returns.

    Attributes: how: "tensor" (a new one), "array", "itself" (the very Tensor), or "grad".
    """

    how: str
    value: Value


@dataclass(slots=True)
class TapeLine:
    """One thing that the run did.

    Attributes:
        kind: "op", "rule"; or of an effect: "grad", "clear", "call", "write", "keep".
        function: what is called.  given: with what, Values and plain values, in tuples and lists.
        made: the Values that come out, None for one that nobody wants.
        op: its name.  scope: where in the model.  effect: whether it does more than compute.
    """

    kind: str
    function: Any
    given: tuple[Any, ...]
    made: tuple[Value | None, ...] = ()
    op: str = ""
    scope: str = ""
    effect: bool = False

    def signature(self) -> tuple[Any, ...]:
        """What must be the same in another recording."""
        made = tuple([None if v is None else (v.shape, v.dtype) for v in self.made])
        return self.kind, signed(self.function), signed(self.given), made

    def __str__(self) -> str:
        return f"{self.op or self.kind}({', '.join(map(repr, self.given))})"


def signed(x: Any) -> Any:
    """What must be the same of what a line names, or of a result."""
    if x.__class__ is Value:
        return x.key or x.path or x.number
    if x.__class__ is Returned:
        return x.how, x.value.key
    if x.__class__ in (tuple, list):
        return (x.__class__, *map(signed, x))
    if x.__class__ is dict:
        return signed([*x.items()])
    if isinstance(x, partial):  # an update comes as a new one each time
        return signed([x.func, *x.args])
    is_a_value = x.__class__.__eq__ is not object.__eq__ and x.__class__.__hash__
    return x if is_a_value and not isinstance(x, PLAIN_KINDS) else frozen(x)
