"""Overlays: second kernels of ops, with rules of their own, for the arrays they are faster on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.errors import DeclarationError
from ..engine.op import Op
from ..engine.plan import Plan, Rule, declare_rule, parameters_of

__all__ = ["Overlay", "of_one_dtype"]


class Overlay:
    """A second kernel of an op, for plain arrays it runs faster on, with rules of its own.

        @softmax.fast(above=4096)          # taken where the first input has more entries
        def _(x, axis): ...

        @softmax.fast.vjp("x")             # where one is missing, the op's own rule serves
        def _(g, out, axis): ...

    Costs and formulas stay the op's, and gradients that are Tensors go through the op's own rules.
    """

    __slots__ = (
        "above",
        "auxiliary",
        "forward",
        "kernel",
        "op",
        "plans",
        "rules",
        "traced",
        "when",
    )
    kernel: Callable[..., Any]
    forward: Callable[..., Any]

    def __init__(self, op: Op) -> None:
        self.op = op
        self.rules: dict[str, Rule] = {}
        self.plans: dict[int, Plan] = {}

    def __call__(
        self,
        above: int = 0,
        when: Callable[..., bool] | None = None,
        auxiliary: tuple[str, ...] = (),
        traced: bool = False,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare the kernel; `when(*inputs, *settings)` may ask for more than entries. One that is
        `traced` is what compile follows, for few entries too.
        """

        def declare(kernel: Callable[..., Any]) -> Callable[..., Any]:
            if parameters_of(kernel) != parameters_of(self.op.kernel):
                raise DeclarationError(f"op {self.op.name}: its overlay takes other parameters")
            self.above = above
            self.when = when
            self.auxiliary = auxiliary
            self.kernel = kernel
            self.traced, self.forward = traced, self.op.flat(kernel)
            self.plans.clear()
            self.op.overlay = self
            return kernel

        return declare

    def takes(self, inputs: Any, settings: Any) -> bool:
        """Whether it runs in place of the op's own kernel, on these plain arrays."""
        first = inputs[0] if inputs else None
        if first.__class__ is not np.ndarray:
            return self.traced and hasattr(first, "elementwise")
        return first.size > self.above and (self.when is None or self.when(*inputs, *settings))

    def vjp(self, *inputs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare a rule for one or several inputs, as `Op.vjp` does."""
        return declare_rule(self.op, self.rules, self.plans, self.auxiliary, inputs)

    def plan(self, key: int) -> Plan:
        self.plans[key] = plan = Plan(self.op, key, self)
        return plan


def of_one_dtype(x: Any, *others: Any) -> bool:
    """Whether the arrays among the others have x's dtype, so that the result has it too."""
    dtype = x.dtype
    for y in others:  # a generator would take a microsecond more
        if y.__class__ is np.ndarray and y.dtype is not dtype and y.dtype != dtype:
            return False
    return True


Op.fast = property(lambda op: op.overlay or Overlay(op))
