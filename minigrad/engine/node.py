"""Node: one op that ran and was recorded; and the order of nodes for a walk back.

A node's number is larger than those of everything it was computed from. So descending numbers are a
valid order for backward, and nothing here is recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from operator import attrgetter
from types import CodeType
from typing import Any, TypeAlias

from .context import ScopeCall
from .op import DType, Op
from .plan import Arguments, Gradient, Plan, Rule
from .writes import Place, writes

__all__ = ["ON_DEMAND", "Edge", "Node", "leading_to", "order"]

ON_DEMAND = 2  # of `needs`: its gradient is computed only where `grad` names it

Edge: TypeAlias = Any  # what an input was: the Node that made it, or the leaf Tensor that it is


class Node:
    """One op that ran, and what its backward needs. `record` fills it in.

    Attributes:
        edges: for each input that needs a gradient, the Node that made it, or the leaf that it is.
        op, settings: what ran.  plan: see `Plan`; that of a faster op, if one ran.
        saved: what the plan's rules need; None once backward has used it.
        shape, dtype: of the result.
        number: in the order of creation.
        needs: 1; 2 where only inputs on demand need a gradient; 3 where some of both do.
        call, name: the scope in which it was made, and its name.  code, offset: where it was made.
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
        useful: Container[Edge] | None,
        lift: Callable[[Node], Sequence[Any]] | None = None,
    ) -> list[Gradient]:
        """What the node sends along each of its edges, None along those that are not wanted.

        Args:
            g: the gradient of the result.
            useful: the edges that are wanted; None for all that are not on demand.
            lift: gives what was saved as Tensors, so that the rules themselves are recorded.
        """
        plan = self.plan
        saved: Sequence[Any] = (self.saved or ()) if lift is None else lift(self)
        parts: list[Gradient] = []
        joint: Sequence[Gradient] | None = None  # what the rule gave that serves several inputs
        each = zip(self.edges, plan.names, plan.rules, plan.places, strict=True)
        for edge, name, rule, at in each:
            if not is_wanted(edge, useful):
                parts.append(None)
            elif len(rule.inputs) == 1:
                parts.append(rule.function(g, *[saved[k] for k in at]))
            else:
                if joint is None:
                    told = self._needed(rule, useful)
                    joint = rule.function(g, *[saved[k] for k in at], *told)
                parts.append(joint[rule.inputs.index(name)])
        return parts

    def _needed(self, rule: Rule, useful: Container[Edge] | None) -> tuple[Any, ...]:
        """What tells a rule for several inputs which of them are wanted, if it asks."""
        if not rule.takes_needed:
            return ()
        by_name = zip(self.plan.names, self.edges, strict=True)
        wanted = [n for n, e in by_name if is_wanted(e, useful)]
        return (tuple([name in wanted for name in rule.inputs]),)

    def check_saved(self) -> None:
        """Raise OverwrittenError if an array that was saved has been written since."""
        named = zip(self.plan.saves, self.saved or (), strict=True)
        writes.check(self.number, named, self.path, self.op.name, self.place)

    def __repr__(self) -> str:
        return f"<Node {self.number} {self.path} {self.shape} {self.place}>"


def is_wanted(edge: Edge, useful: Container[Edge] | None) -> bool:
    """Whether a gradient is to go along an edge: see `Node.run_rules`."""
    return edge.needs != ON_DEMAND if useful is None else edge in useful


def order(roots: Iterable[Edge]) -> list[Node]:
    """Every node the roots depend on, newest first."""
    seen = {root for root in roots if root.__class__ is Node}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge.__class__ is Node and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return sorted(seen, key=attrgetter("number"), reverse=True)


def leading_to(targets: frozenset[Edge], nodes: Sequence[Node]) -> set[Edge]:
    """The targets, and those of the nodes (newest first) from which one is reached."""
    found = set(targets)
    for node in reversed(nodes):
        if not found.isdisjoint(node.edges):
            found.add(node)
    return found
