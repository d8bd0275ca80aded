"""Overlays: a second Op of the same signature, which runs in place of an op where it is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine.declaration import Arguments, F, Kernel, Rule
from ..engine.op import Op, is_tensor
from .limits import LIMITS

__all__ = ["Overlay", "Overlays", "faster", "of_one_dtype", "overlays_of"]


class Overlay(Op):
    """An op's faster kernel, with rules of its own.

    Where it has no rule, the op's own serves; and where gradients are Tensors, so that the rules
    record themselves, the op's own run, too. So a node saves what both need.

    Attributes: of: the op.  when: which arguments it takes.
    """

    of: Op
    when: Callable[..., bool]

    def vjp(self, *inputs: str) -> Callable[[F], F]:
        """Declare a rule for arrays beside the op's own of the same inputs."""

        def declare(function: F) -> F:
            super(Overlay, self).vjp(*inputs)(function)
            quick = self.rules[inputs[0]]
            own = [*dict.fromkeys(self.of.rules[name] for name in inputs)]
            needs = tuple(dict.fromkeys(name for rule in (quick, *own) for name in rule.needs))

            def either(g: Any, *values: Any) -> Any:
                known = dict(zip((*needs, "needed"), values, strict=False))
                gradients: dict[str, Any] = {}
                for rule in own if is_tensor(g) else [quick]:
                    names = (*rule.needs, *["needed"] * rule.takes_needed)
                    parts = rule.function(g, *[known[name] for name in names])
                    gradients |= zip(
                        rule.inputs, parts if len(rule.inputs) > 1 else [parts], strict=True
                    )
                parts = tuple([gradients[name] for name in inputs])
                return parts if len(inputs) > 1 else parts[0]

            rule = Rule(either, needs, inputs, len(inputs) > 1)
            self.rules |= dict.fromkeys(inputs, rule)
            return function

        return declare


class Overlays:
    """Those of one op, the fastest first.

    Attributes: load: called before the first choice, to declare more of them; None once it was.
    """

    def __init__(self, of: Op) -> None:
        self.of = of
        self.load: Callable[[], object] | None = None
        self.every: list[Overlay] = []

    @property
    def above(self) -> int:
        """They take first inputs of more entries."""
        return self.of.above

    @above.setter
    def above(self, entries: int) -> None:
        self.of.above = entries

    def choose(self, arrays: Sequence[Any], settings: Arguments) -> Op | None:
        """The one that runs on these in place of the op, if any does."""
        if arrays[0].__class__ is not np.ndarray:
            return None
        if self.load is not None:
            load = self.load
            self.load = None
            load()
        for overlay in self.every:
            if overlay.when(*arrays, *settings):
                return overlay
        return None


def overlays_of(op: Op, above: int = LIMITS.small_entries) -> Overlays:
    """What an op asks for a faster one, where its first input has more than so many entries."""
    if op.faster is None:
        op.faster = Overlays(op).choose
        op.above = above
    overlays: Overlays = op.faster.__self__  # type: ignore[attr-defined]
    return overlays


def faster(
    op: Op,
    when: Callable[..., bool],
    auxiliary: tuple[str, ...] = (),
    above: int = LIMITS.small_entries,
) -> Callable[[Kernel], Overlay]:
    """Declare a faster kernel of an op, which is asked before those that were declared earlier.

        @faster(gelu, of_one_dtype)
        def fast_gelu(x, approximate): ...

        @fast_gelu.vjp("x")
        def _(g, x): ...

    Args: when: `when(*inputs, *settings)` says whether it takes them.
    """

    def declare(kernel: Kernel) -> Overlay:
        overlay = Overlay(kernel, tex=op.tex, vjp_tex=op.vjp_tex, auxiliary=auxiliary)
        overlay.of = op
        overlay.when = when
        overlay.rules = {**op.rules}
        overlays_of(op, above).every.insert(0, overlay)
        return overlay

    return declare


def of_one_dtype(x: Any, *others: Any) -> bool:
    """Whether x is of a dtype that BLAS takes, and so are the arrays among the others."""
    dtype = x.dtype
    for y in others:  # a generator would take a microsecond more
        if y.__class__ is np.ndarray and y.dtype is not dtype and y.dtype != dtype:
            return False
    return dtype.char in "fd" and dtype.isnative
