"""Node: one op that ran and was recorded: where gradients go from it, and hooks that see them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Sequence
from threading import Lock
from types import CodeType
from typing import Any, TypeAlias

import numpy as np

from .context import ScopeCall
from .declaration import Arguments, Gradient
from .errors import GradientError, OverwrittenError
from .op import DType, Op, array_of, is_tensor
from .plan import Plan
from .writes import Place, writes

__all__ = ["Edge", "Node"]

# What `needs` may be, as bits: where some inputs are of one kind and some of the other, both.
ALWAYS = 1  # its gradient is computed in every backward
ON_DEMAND = 2  # only where `grad` names it, or an observer shows it

Edge: TypeAlias = Any  # what an input was: the Node that made it, or the leaf Tensor that it is


class Node:
    """One op that ran, and what its backward needs. `run_op` fills it in.

    Attributes:
        edges: for each input that needs a gradient, the Node that made it, or the leaf that it is.
        op, settings: what ran.  plan: see `Plan`; that of the faster op, if one ran in its place,
            which saves at least what the rules of `op` need.
        saved: what the plan's rules need; None once backward has used it.
        shape, dtype: of the result.
        number: in the order of creation: larger than those of all that it was computed from.
        needs: ALWAYS, ON_DEMAND, or both bits: those of its inputs.
        call, name: the scope in which it was made, and its name.
        code, offset: where it was made: see `Place`.
        hooks: functions of the result's gradient.
    """

    __slots__ = (
        "__weakref__", "call", "code", "dtype", "edges", "hooks", "name", "needs", "number",
        "offset", "op", "plan", "saved", "settings", "shape",
    )  # fmt: skip

    op: Op
    settings: Arguments
    edges: Sequence[Edge]
    plan: Plan
    saved: Arguments | None
    hooks: list[Callable[[Any], Any]] | None
    shape: tuple[int, ...]
    dtype: DType
    number: int
    needs: int
    call: ScopeCall
    name: str | None
    code: CodeType
    offset: int

    @property
    def scope(self) -> str:
        return self.call.path

    @property
    def path(self) -> str:
        """Scope and name, as in `encoder/attn/Q`; an unnamed node goes by its op."""
        own = self.name or self.op.name
        return f"{self.scope}/{own}" if self.scope else own

    @property
    def place(self) -> Place:
        """File and line that made it."""
        return Place(self.code, self.offset)

    def run_rules(
        self,
        g: Gradient,
        wanted: Container[Edge] | None,
        saved: Sequence[Any] | None = None,
    ) -> list[Gradient]:
        """What the node sends along each of its edges, None along those that are not wanted.

        Args:
            g: the gradient of the result.
            wanted: edges, others than which get None; None for all that are not on demand.
            saved: what was saved, as Tensors, so that the rules themselves are recorded.
        """
        plan = self.plan
        saved = saved or self.saved or ()
        names = {
            name
            for name, edge in zip(plan.names, self.edges, strict=True)
            if (edge.needs != ON_DEMAND if wanted is None else edge in wanted)
        }
        parts: list[Gradient] = []
        joint: Sequence[Gradient] | None = None  # what the rule gave that serves several inputs
        for name, rule, places in zip(plan.names, plan.rules, plan.places, strict=True):
            arguments = [saved[k] for k in places]
            if name not in names:
                parts.append(None)
            elif len(rule.inputs) == 1:
                parts.append(rule.function(g, *arguments))
            else:
                if rule.takes_needed:
                    arguments.append(tuple([x in names for x in rule.inputs]))
                if joint is None:
                    joint = rule.function(g, *arguments)
                parts.append(joint[rule.inputs.index(name)])
        return parts

    def check_saved(self) -> None:
        """Raise OverwrittenError if an array that was saved has been written since."""
        for name, value in zip(self.plan.saves, self.saved or (), strict=True):
            for array in value if isinstance(value, tuple | list) else [value]:
                if not isinstance(array, np.ndarray):
                    continue
                if place := writes.since(self.number, array):
                    raise OverwrittenError(
                        f"backward of {self.path}: {name} {array.shape} was overwritten after it "
                        f"was saved\n  saved by {self.op.name} at {self.place}\n  overwritten at "
                        f"{place}\n"
                        "  run forward again; what an earlier step left goes in by .detach()"
                    )


# ---------------------------------------------------------------- hooks


class Handle:
    """A registered hook; `remove()` takes it off again."""

    __slots__ = ("_hook", "_owner")

    def __init__(self, owner: Edge, hook: Callable[[Any], Any]) -> None:
        self._owner, self._hook = owner, hook
        hooks = [*(owner.hooks or []), hook]
        owner.hooks = sorted(hooks, key=lambda hook: hook.__class__ is Retained)  # that runs last

    def remove(self) -> None:
        kept = [hook for hook in self._owner.hooks or [] if hook is not self._hook]
        self._owner.hooks = kept or None


class Retained:
    """The hook of `retain_grad`, which runs last, and in no `mg.grad`: it adds to `.grad`."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = weakref.ref(tensor)  # or the graph would keep the tensor alive

    def __call__(self, gradient: Gradient) -> None:
        if (tensor := self.tensor()) is not None:
            add_gradients({tensor: np.array(array_of(gradient))})


def run_hooks(hooks: list[Callable[[Any], Any]], gradient: Gradient, retain: bool) -> Gradient:
    """Let each hook see the gradient, read-only, and replace it.

    Args: retain: whether the hook of `retain_grad` runs.
    """
    for hook in hooks:
        if hook.__class__ is Retained and not retain:
            continue
        if gradient.__class__ is np.ndarray:
            gradient = gradient.view()
            gradient.flags.writeable = False
        new = hook(gradient)
        if new is None:
            continue
        if np.shape(new) != gradient.shape:
            raise GradientError(
                f"hook: replaced a gradient {gradient.shape} by one of shape {np.shape(new)}"
            )
        if not (is_tensor(new) and is_tensor(gradient)):
            new = np.asarray(array_of(new))
        gradient = new if new.dtype == gradient.dtype else new.astype(gradient.dtype)
    return gradient


_ADDING = Lock()


def add_gradients(gradients: dict[Any, Any]) -> None:
    """Add each gradient to its leaf's `.grad`, one thread at a time."""
    with _ADDING:
        for leaf, total in gradients.items():
            leaf.grad = total if leaf.grad is None else np.asarray(leaf.grad + total)
