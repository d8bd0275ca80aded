"""Node, the record of one op that ran, and the traversal that sends gradients back along the edges.

A node's number is larger than those of everything it was computed from, so descending numbers are
a valid reverse order: collect what the output depends on with a stack, sort, walk, all of it
without recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from time import perf_counter
from types import CodeType
from typing import Any

import numpy as np

from .context import current
from .errors import FreedGraphError, GradientError
from .op import Plan
from .sparse import SparseGradient, dense
from .writes import SourceLocation, caller, next_number, writes

__all__ = [
    "Handle",
    "Node",
    "SourceLocation",
    "backpropagate",
    "caller",
    "next_number",
    "order",
    "unbroadcast",
    "writes",
]

KEEP = -1  # the key of the hook of retain_grad, which runs last, and never for mg.grad
_by_number = attrgetter("seq")


class Node:
    """One op that ran, and what its backward needs. `Tensor.__apply__` fills it in.

    Attributes:
        edges: for each input that needs a gradient, the Node that made it or the leaf Tensor that
            it is.
        saved: what the rules named; None once backward has used it.
        seq: number in the order of creation.  scope, name: where it stands in the model, and its
            own name.
        source: what can bring `saved` back (see `checkpoint`), or None.
    """

    __slots__ = (
        "__weakref__", "_dtype", "_shape", "after", "code", "edges", "hooks", "name", "offset",
        "plan", "saved", "scope", "seq", "settings", "source",
    )  # fmt: skip

    plan: Plan
    edges: Sequence[Any]
    saved: tuple[Any, ...] | None
    settings: tuple[Any, ...]
    _shape: tuple[int, ...]  # of the result
    _dtype: np.dtype[Any]
    scope: str
    code: CodeType
    offset: int
    seq: int
    name: str | None
    source: Any
    hooks: dict[int, Callable[[Any], Any]] | None
    after: dict[int, Callable[..., Any]] | None

    shape = property(attrgetter("_shape"), doc="The result's shape.")
    dtype = property(attrgetter("_dtype"), doc="The result's dtype.")
    op: Any = property(attrgetter("plan.op"), doc="The Op that ran.")

    @property
    def path(self) -> str:
        """Scope and name, as in `encoder/attn/Q`; an unnamed node goes by its op."""
        own = self.name or self.op.name
        return f"{self.scope}/{own}" if self.scope else own

    @property
    def place(self) -> SourceLocation:
        """File and line that made it."""
        return SourceLocation(self.code, self.offset)

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(contributions, gradient)` after the rules ran; a list replaces them."""
        self.after = {} if self.after is None else self.after
        return Handle(self.after, hook)

    def __repr__(self) -> str:
        return f"<Node {self.seq} {self.path} {self.shape} {self.place}>"


_waiting: list[list[Any]] = []
_draining: list[bool] = []


class Breaker(list[Any]):
    """The edges of one node in sixteen, which are let go of a moment after the node.

    A node that dies lets go of the nodes it was computed from, and these of theirs, each within the
    freeing of the one before. Where edges wait until those above are done, a chain does not nest.
    Which nodes get one is decided by a hash of their numbers, so that no rhythm goes without.
    """

    def __del__(self, waiting: Any = _waiting, draining: Any = _draining) -> None:
        waiting.append(self[:])
        self.clear()
        while waiting and not draining:
            draining.append(True)
            try:
                while waiting:
                    waiting.pop()
            finally:
                draining.clear()


class Handle:
    """A registered hook; `remove()` takes it off again."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._hooks, self._key = hooks, next_number()
        hooks[self._key] = hook

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


# ------------------------------------------------------------------ the traversal


def backpropagate(
    seeds: Sequence[tuple[Any, Any]],
    *,
    retain: bool = False,
    targets: Sequence[Any] | None = None,
    run: Callable[[Node, Callable[..., Any], Any, tuple[Any, ...]], Any] | None = None,
    textbook: bool = False,
) -> dict[Any, Any]:
    """Send the seeds' gradients back along every edge; return that of each leaf and target reached.

    Nobody else holds the arrays that are returned.

    Args:
        seeds: pairs of an edge (a Node or a leaf) and the gradient that arrives there.
        retain: keep what the nodes saved, for another backward.
        targets: only these edges are wanted; nodes and rules that do not lead to one are skipped.
        run: calls a node's rules in place of `rules(gradient, saved)`, for gradients that are not
            arrays: with Tensors the rules record themselves.
        textbook: take the ops' own rules, not those of overlays.
    """
    nodes, useful = _reached([edge for edge, _ in seeds], targets)
    wanted = frozenset(targets or ())
    gradients: dict[Any, Any] = {}
    results: dict[Any, Any] = {}
    own: set[Any] = set()  # where the gradient is an array that nobody else holds
    for edge, gradient in seeds:
        _accumulate(gradients, own, edge, gradient)
    listeners = current().listeners
    for node in nodes:
        gradient = gradients.pop(node, None)
        if node.hooks and gradient is not None:
            gradient = _hooked(node, node.hooks, gradient, own, keep=targets is None)
        if wanted and node in wanted:
            results[node] = gradient if run else np.array(gradient)
        rules = node.plan.backward if useful is None else _rules(node, useful, textbook)
        if rules is None or gradient is None:  # nothing is wanted further on
            node.saved = node.saved if retain or targets is not None else None
            continue
        saved = node.saved if node.saved is not None else node.source.recover(node)
        if writes.latest > node.seq:
            writes.check(node, saved)
        start = perf_counter() if listeners else 0.0
        parts = rules(gradient, saved) if run is None else run(node, rules, gradient, saved)
        if not retain:
            node.saved = node.source = None
        fresh = run is None  # nobody else keeps the parts
        if listeners or node.after:
            fresh, parts = False, _announce(node, gradient, parts, start)
        for edge, part in zip(node.edges, parts):  # noqa: B905, the keyword costs 0.2 µs a node
            if part is None:  # of a rule that was not wanted
                continue
            if part.shape != edge._shape or part.dtype is not edge._dtype:
                part = unbroadcast(part, edge, node)
            if edge in gradients or part.__class__ is SparseGradient:
                _accumulate(gradients, own, edge, part)
            else:
                gradients[edge] = part
                if fresh and edge.__class__ is not Node and _is_new(part, gradient, saved, parts):
                    own.add(edge)
    return results | _arrived(gradients, own, keep=targets is None, copied=run is None)


def order(roots: Iterable[Any]) -> list[Node]:
    """Every node the roots depend on, newest first."""
    seen = {root for root in roots if root.__class__ is Node}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge.__class__ is Node and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return sorted(seen, key=_by_number, reverse=True)


def _reached(roots: list[Any], targets: Sequence[Any] | None) -> tuple[list[Node], Any]:
    """The nodes to visit, and the edges from which a target is reached: None for all of them."""
    nodes, useful = order(roots), None
    if targets is not None:
        useful = set(targets)
        for node in reversed(nodes):
            if not useful.isdisjoint(node.edges):
                useful.add(node)
        nodes = [node for node in nodes if node in useful]
    _refuse_freed(nodes, useful)
    return nodes, useful


def _rules(node: Node, useful: set[Any], textbook: bool) -> Callable[..., Any] | None:
    """The rules to run at a node; None at a target from which no gradient is wanted further."""
    asked = tuple([edge in useful for edge in node.edges])
    return node.plan.partial(asked, textbook) if any(asked) else None


def _refuse_freed(nodes: list[Node], useful: set[Any] | None) -> None:
    for node in nodes:
        if node.saved is None and node.source is None:
            if useful is not None and useful.isdisjoint(node.edges):
                continue
            raise FreedGraphError(
                f"backward through {node.path} ({node.op.name}, made at {node.place}): "
                "its saved arrays were freed by an earlier backward; "
                "pass retain_graph=True to that one to go through twice"
            )


def _accumulate(gradients: dict[Any, Any], own: set[Any], edge: Any, part: Any) -> None:
    """Add a gradient: the first is borrowed, the second makes a new array, later ones go there."""
    if part.__class__ is SparseGradient:
        gradients[edge] = part.onto(gradients.get(edge), in_place=edge in own)
        own.add(edge)
    elif edge not in gradients:
        gradients[edge] = part
    elif edge in own:
        gradients[edge] += part
    else:
        total = gradients[edge] = gradients[edge] + part
        if total.__class__ is np.ndarray:
            own.add(edge)


def _is_new(part: Any, gradient: Any, saved: tuple[Any, ...], parts: Iterable[Any]) -> bool:
    """Whether a rule made this array, so that nobody else holds it; see the contract in op.py."""
    if part is gradient or part.__class__ is not np.ndarray or part.base.__class__ is np.ndarray:
        return False
    for value in saved:
        if part is value:
            return False
    given = 0
    for other in parts:
        given += part is other
    return given == 1


def _arrived(gradients: dict[Any, Any], own: set[Any], keep: bool, copied: bool) -> dict[Any, Any]:
    """The leaves' gradients, after hooks; told to listeners, copied where others hold them."""
    results: dict[Any, Any] = {}
    listeners = current().listeners
    for leaf, gradient in gradients.items():
        if leaf.__class__ is Node:  # an output that leads to no target
            continue
        if leaf._hooks:
            gradient = _hooked(leaf, leaf._hooks, gradient, own, keep)
        for listener in listeners:
            listener.arrived(leaf, gradient)
        shared = copied and (listeners or leaf not in own)
        results[leaf] = np.array(gradient) if shared else gradient
    return results


# ------------------------------------------------------------------ the edge rule


def unbroadcast(gradient: Any, edge: Any, node: Node) -> Any:
    """The edge rule: sum over exactly the axes that were broadcast, cast to the input's dtype."""
    shape = edge.shape
    if gradient.shape != shape:
        axes = _broadcast_axes(shape, gradient.shape)
        if axes is None:
            name = node.op.input_name(node.plan.needed[[e is edge for e in node.edges].index(True)])
            raise GradientError(
                f"{node.op.name}: the rule for {name} gave shape {gradient.shape}, "
                f"which does not reduce to the input's {shape}\n  at {node.path}, {node.place}"
            )
        gradient = sum_over(dense(gradient), axes)
        gradient = gradient if gradient.shape == shape else gradient.reshape(shape)
    if gradient.dtype == edge.dtype:
        return gradient
    if gradient.dtype.kind == "c":
        raise GradientError(
            f"{node.op.name}: a complex gradient came to a real input; gradients of complex values "
            f"are not defined here\n  at {node.path}, {node.place}"
        )
    return dense(gradient).astype(edge.dtype)


def sum_over(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum over some axes, added up in a wider dtype. What is faster may be put in its place."""
    wide = {"e": np.float32, "f": np.float64}.get(x.dtype.char)
    return x.sum(axis=axes, dtype=wide) if wide and x.__class__ is np.ndarray else x.sum(axis=axes)


@lru_cache(maxsize=1024)
def _broadcast_axes(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which `shape` was repeated to make `wide`, None if it does not broadcast."""
    extra = len(wide) - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, wide[extra:], strict=True)):
        return None
    repeated = (i for i, n in enumerate(shape, extra) if n == 1 != wide[i])
    return (*range(extra), *repeated)


# ------------------------------------------------------------------ hooks and listeners


def _of_kind(gradient: Any, new: Any) -> Any:
    """What a hook gave, as an array; a Tensor stays one where gradients are Tensors."""
    recorded = hasattr(gradient, "__apply__") and hasattr(new, "__apply__")
    return new if recorded else np.asarray(new)


def _hooked(
    edge: Any, hooks: dict[int, Callable[[Any], Any]], gradient: Any, own: set[Any], keep: bool
) -> Any:
    """Let each hook see the gradient, read-only, and replace it; keep the outcome if wanted."""
    own.discard(edge)
    for key, hook in list(hooks.items()):
        if key == KEEP:
            continue
        if isinstance(gradient, np.ndarray):
            gradient = gradient.view()
            gradient.flags.writeable = False
        new = hook(gradient)
        if new is not None:
            if np.shape(new) != gradient.shape:
                raise GradientError(
                    f"hook: replaced a gradient {gradient.shape} by one of shape {np.shape(new)}"
                )
            new = _of_kind(gradient, new)
            gradient = new if new.dtype == gradient.dtype else new.astype(gradient.dtype)
    if keep and KEEP in hooks:
        hooks[KEEP](gradient)
    return gradient


def _announce(node: Node, gradient: Any, parts: Any, start: float) -> Any:
    """Tell the node's own hooks and the listeners what it sends along each edge."""
    seconds = perf_counter() - start

    def fitted(parts: Any) -> list[Any]:
        pairs = zip(parts, node.edges, strict=True)
        return [part if part is None else unbroadcast(part, edge, node) for part, edge in pairs]

    parts = fitted(parts)
    heard = [dense(part) for part in parts]
    for hook in list((node.after or {}).values()):
        new = hook(list(heard), gradient)
        if new is not None:
            heard = parts = fitted([p if p is None else _of_kind(gradient, p) for p in new])
    for listener in current().listeners:
        listener.backward(node, gradient, heard, seconds)
    return parts
