"""Overlays: a second Op of the same signature, which runs in place of an op where it is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine.op import Arguments, Kernel, Op, Plan, Rule

__all__ = ["Overlay", "faster", "of_one_dtype"]


class Overlay(Op):
    """An op's faster kernel, with rules of its own.

    Where it has no rule, the op's own serves; and where gradients are Tensors, so that the rules
    record themselves, the op's own run, too. So a node saves what both need.
    """

    of: Op
    above: int  # it takes first inputs of more entries
    when: Callable[..., bool] | None  # and which arguments

    def takes(self, arrays: Sequence[Any], settings: Arguments) -> Op | None:
        """Itself, if it runs on these in place of the op."""
        first = arrays[0]
        if first.__class__ is not np.ndarray or first.size <= self.above:
            return None
        return self if self.when is None or self.when(*arrays, *settings) else None

    def plan(self, key: int) -> Plan:
        """See `Op.plan`."""
        self.rules = self.of.rules | self.rules
        for rule in {*self.rules.values()} - {*self.of.rules.values()}:
            if rule.function not in _made:  # of several inputs it is one rule still
                self.rules |= dict.fromkeys(rule.inputs, self._either(rule))
        return super().plan(key)

    def _either(self, quick: Rule) -> Rule:
        """The faster rule for arrays, the op's own rules for Tensors."""
        own = [self.of.rules[name] for name in quick.inputs]
        needs = tuple(dict.fromkeys([*quick.needs, *(x for rule in own for x in rule.needs)]))
        several = len(quick.inputs) > 1

        def either(g: Any, *values: Any) -> Any:
            known = dict(zip((*needs, *["needed"] * several), values, strict=True))

            def run(rule: Rule) -> Any:
                told = [known["needed"]] if rule.takes_needed else []
                return rule.function(g, *[known[x] for x in rule.needs], *told)

            if not hasattr(g, "__apply__"):
                return run(quick)
            if own[0].inputs == quick.inputs:
                return run(own[0])
            wanted = zip(own, known["needed"], strict=True)
            return tuple([run(rule) if is_wanted else None for rule, is_wanted in wanted])

        _made.add(either)
        return Rule(either, needs, quick.inputs, several)


_made: set[Kernel] = set()  # of two rules


def faster(
    op: Op,
    above: int = 0,
    when: Callable[..., bool] | None = None,
    auxiliary: tuple[str, ...] = (),
) -> Callable[[Kernel], Overlay]:
    """Declare a faster kernel of an op, for first inputs of more than `above` entries.

        @faster(softmax, above=4096)
        def fast_softmax(x, axis): ...

        @fast_softmax.vjp("x")
        def _(g, out, axis): ...

    Args: when: `when(*inputs, *settings)` may ask for more.
    """

    def declare(kernel: Kernel) -> Overlay:
        made = Overlay(kernel, tex=op.tex, vjp_tex=op.vjp_tex, auxiliary=auxiliary)
        made.of = op
        made.above = above
        made.when = when
        op.faster = made.takes
        return made

    return declare


def of_one_dtype(x: Any, *others: Any) -> bool:
    """Whether the arrays among the others have x's dtype, so that the result has it too."""
    dtype = x.dtype
    for y in others:  # a generator would take a microsecond more
        if y.__class__ is np.ndarray and y.dtype is not dtype and y.dtype != dtype:
            return False
    return True
