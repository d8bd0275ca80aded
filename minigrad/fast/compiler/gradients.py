"""What `.grad` of each leaf holds while a step is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.followed import Followed, plain
from ...engine.tensor import Tensor
from .program import Step, Value
from .symbol import Symbol
from .values import ValueMap

__all__ = ["Gradients", "form"]


def form(gradient: Any) -> Any:
    """What a program needs to know of a `.grad` that it reads."""
    return None if gradient is None else (gradient.shape, gradient.strides)


class _Held:
    """One leaf's.

    Attributes:
        before: what it was at the start, as the caller has it.
        entry: the same as a followed array.  told: what the program has set it to, so far.
        settled: whether what it was at the start is asked for already, or does not matter.
    """

    __slots__ = ("before", "entry", "leaf", "settled", "told")

    def __init__(self, leaf: Tensor) -> None:
        self.leaf, self.before = leaf, leaf.grad
        self.entry = self.before.view(Followed) if type(self.before) is np.ndarray else self.before
        leaf.grad = self.told = self.entry
        self.settled = False

    @property
    def is_untouched(self) -> bool:
        return self.told is self.entry


class Gradients:
    """Those of every leaf that a step reaches, as followed arrays.

    Attributes:
        needed: the form of what `.grad` was at the start, where that matters, by the leaf's id.
    """

    def __init__(self, values: ValueMap) -> None:
        self.values, self.needed = values, {}  # type: ValueMap, dict[int, Any]
        self._held = {id(leaf): _Held(leaf) for leaf in values.tensors()}

    def arrive(self, leaf: Tensor, total: Symbol) -> None:
        """What a backward sends to a leaf is added to its `.grad`."""
        outside = self.values.value_of(leaf).kind in ("leaf", "argument")
        if id(leaf) not in self._held:
            self._held[id(leaf)] = _Held(leaf)
        held = self._held[id(leaf)]
        if leaf.grad is None:
            if outside and held.entry is None and held.told is None and not held.settled:
                self.needed[id(leaf)] = form(None)
            made, array = total, np.array(total.a)
        else:
            made = np.add(self.values.symbol_of(leaf.grad), total)
            made.value.name = f"d_{leaf.name or 'w'}"
            array = np.asarray(plain(leaf.grad) + total.a)
        leaf.grad = array.view(Followed)
        self.values.know(leaf.grad, made.value)

    def cleared(self, parameters: Any) -> None:
        """The step set these gradients to None: before anything else, the program does so too.

        What `.grad` was at the start does not matter then, not even whether there was any.
        """
        for leaf in parameters:
            held = self._held.get(id(leaf))
            if held is not None and held.told is held.entry and not held.settled:
                held.told, held.settled = None, True
                args = leaf, self.values.placed(leaf)
                self.values.program.write(Step("forget", "forget", None, args))

    def entry(self, array: Any) -> Value | None:
        """The Value of an array that was some leaf's `.grad` at the start."""
        for held in self._held.values():
            if any(one is array for one in (held.before, held.entry, held.told)):
                self.values.value_of(held.leaf)
                what = held.leaf, self.values.placed(held.leaf)
                value = Value("grad", what, array.shape, array.dtype)
                if held.is_untouched:
                    held.settled = True
                    self.needed[id(held.leaf)] = form(array)
                    self.values.know(held.before, value)
                return self.values.know(held.told, value)
        return None

    def tell(self) -> None:
        """The program sets each `.grad` to what the step has made of it."""
        for key, held in self._held.items():
            now, leaf = held.leaf.grad, held.leaf
            if now is held.told or not (key in self.values.leaves or self.values.is_outside(leaf)):
                continue
            if now is not None and not isinstance(now, np.ndarray):
                self.values.refuse("the step sets a .grad to something that is no array")
                continue
            args = leaf, self.values.placed(leaf)
            step = Step("clear", "clear", None, args)
            if now is not None:
                step = Step("grad", "grad", None, (*args, self.values.value_of(now)))
            self.values.program.write(step)
            held.told = now

    def bare(self) -> None:
        """Plain arrays, for an update."""
        for held in self._held.values():
            if isinstance(held.told, Followed):
                known = self.values.known(held.told)
                grad = held.before if held.is_untouched else plain(held.told)
                if known is not None:
                    self.values.know(grad, known)
                held.leaf.grad = grad

    def follow(self) -> None:
        """Followed ones again, after it."""
        for held in self._held.values():
            if type(held.leaf.grad) is np.ndarray:
                held.leaf.grad = held.leaf.grad.view(Followed)
            held.told = held.leaf.grad

    def release(self) -> None:
        """Leave plain arrays, as the caller may have them."""
        for held in self._held.values():
            grad = held.leaf.grad
            held.leaf.grad = held.before if grad is held.entry else plain(grad)
