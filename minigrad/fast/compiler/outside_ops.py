"""What NumPy computes within a step outside the ops, as part of its program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.followed import Followed, Follower, plain
from .program import Program, Step, Value, substitute
from .symbol import Symbol, Untraceable
from .values import ValueMap

__all__ = ["OutsideOps"]

_AS_ARRAY = "write it as an op of minigrad, or pass the number as an argument"


class OutsideOps(Follower):
    """Hears of followed arrays.

    Attributes:
        quiet: within an op: what it does with arrays is known.
        reason: why the step must run eagerly, or None.
    """

    program: Program
    values: ValueMap
    quiet = False
    reason: str | None = None

    def __init__(self) -> None:
        self.scalars: dict[int, Any] = {}  # arrays that stand for NumPy's scalars

    def refuse(self, why: str, remedy: str = "") -> None:
        raise NotImplementedError

    def looked_at(self, use: str) -> None:
        if not self.quiet:
            self.refuse(f"numbers are taken out of an array ({use})", _AS_ARRAY)

    def computed(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What NumPy makes of followed arrays: written down, or computed and reported."""
        bare = substitute((args, kwargs), plain)
        if self.quiet or self.reason is not None:
            return call(*bare[0], **bare[1])
        out = kwargs.pop("out", None)
        before = len(self.program.steps)
        self.program.op, self.program.path = name, ""
        self.quiet = True
        try:
            symbols = substitute((args, kwargs), self.values.symbol_of)
            made = call(*symbols[0], **symbols[1])
            if made.__class__ is not Symbol:
                raise Untraceable(name)
            if out is not None:
                return self._written(out[0] if isinstance(out, tuple) else out, made)
        except Exception:
            self.program.forget(before)
            self.quiet = False
            self.looked_at(name)
            return call(*bare[0], **bare[1])
        finally:
            self.quiet = False
        return self._seen(made)

    def _seen(self, made: Symbol) -> Any:
        """What was computed, as the step sees it; np.asarray of it is known too."""
        array = np.asarray(made.a)
        followed = array.view(Followed)
        self.values.know(array, made.value)
        self.values.know(followed, made.value)
        if not array.shape:
            self.scalars[id(followed)] = followed  # kept, so that its id stays its own
        return followed

    def _written(self, out: Any, made: Symbol) -> Any:
        """`x *= y` of a followed array: of a leaf's, or of what NumPy made in the step."""
        value = self.values.known(out)
        if value is None or (out.shape, out.dtype) != (made.shape, made.dtype):
            raise Untraceable("an array of the caller's is written")
        if value.kind == "leaf" and out.shape == value.shape:
            self.assign(value.what, value, made.value)
        elif value.kind != "step" or self.values.is_shared(out):
            raise Untraceable("an array of the caller's, or a view, is written")
        else:
            self.values.know(out, made.value)
        plain(out)[...] = made.a
        return out

    def assign(self, tensor: Any, value: Value, new: Value, index: Any = ...) -> None:
        """A leaf's array is overwritten, or its entries at an index."""
        of = self.values.value_of
        index = substitute(index, lambda part: of(part) if isinstance(part, np.ndarray) else part)
        args = tensor, self.values.placed(tensor), value, new, index
        self.program.write(Step("assign", "assign", None, args))

    def guard(self, array: Any) -> None:
        """The truth of an array is part of the program, where nothing was written yet."""
        if self.quiet or self.reason is not None:
            return
        try:
            symbol = self.values.symbol_of(array)
            if symbol.__class__ is Symbol:
                bool(symbol)
        except Untraceable:
            self.refuse("a condition is asked after random numbers or updates", _AS_ARRAY)
