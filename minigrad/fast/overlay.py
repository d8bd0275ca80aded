"""Overlays: a second Op of the same signature, which runs in place of an op where it is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine.op import Arguments, F, Kernel, Op, Rule

__all__ = ["Overlay", "faster", "of_one_dtype"]


class Overlay(Op):
    """An op's faster kernel, with rules of its own.

    Where it has no rule, the op's own serves; and where gradients are Tensors, so that the rules
    record themselves, the op's own run, too. So a node saves what both need.
    """

    of: Op
    above: int  # it takes first inputs of more entries
    when: Callable[..., bool]  # and which arguments

    def takes(self, arrays: Sequence[Any], settings: Arguments) -> Op | None:
        """Itself, if it runs on these in place of the op."""
        first = arrays[0]
        is_large = first.__class__ is np.ndarray and first.size > self.above
        return self if is_large and self.when(*arrays, *settings) else None

    def vjp(self, *inputs: str) -> Callable[[F], F]:
        """Declare a rule for arrays beside the op's own of the same inputs."""

        def declare(function: F) -> F:
            super(Overlay, self).vjp(*inputs)(function)
            quick = self.rules[inputs[0]]
            own = [*dict.fromkeys(self.of.rules[name] for name in inputs)]
            needs = tuple(dict.fromkeys(name for rule in (quick, *own) for name in rule.needs))

            def either(g: Any, *values: Any) -> Any:
                known = dict(zip((*needs, "needed"), values, strict=False))
                rules = own if hasattr(g, "__apply__") else [quick]
                named = [(*rule.needs, *["needed"] * rule.takes_needed) for rule in rules]
                found = [
                    rule.function(g, *[known[name] for name in names])
                    for rule, names in zip(rules, named, strict=True)
                ]
                return found[0] if len(found) == 1 else tuple(found)

            rule = Rule(either, needs, inputs, len(inputs) > 1)
            self.rules |= dict.fromkeys(inputs, rule)
            return function

        return declare


def faster(
    op: Op,
    when: Callable[..., bool],
    above: int = 0,
    auxiliary: tuple[str, ...] = (),
) -> Callable[[Kernel], Overlay]:
    """Declare a faster kernel of an op, for first inputs of more than `above` entries.

        @faster(softmax, of_one_dtype, above=4096)
        def fast_softmax(x, axis): ...

        @fast_softmax.vjp("x")
        def _(g, out, axis): ...

    Args: when: `when(*inputs, *settings)` says whether it takes them.
    """

    def declare(kernel: Kernel) -> Overlay:
        made = Overlay(kernel, tex=op.tex, vjp_tex=op.vjp_tex, auxiliary=auxiliary)
        made.of = op
        made.above = above
        made.when = when
        made.rules = {**op.rules}
        op.faster = made.takes
        return made

    return declare


def of_one_dtype(x: Any, *others: Any) -> bool:
    """Whether x is of a dtype that BLAS takes, and so are the arrays among the others."""
    dtype = x.dtype
    for y in others:  # a generator would take a microsecond more
        if y.__class__ is np.ndarray and y.dtype is not dtype and y.dtype != dtype:
            return False
    return dtype.char in "fd" and dtype.isnative
