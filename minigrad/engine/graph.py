"""Node, the record of one op that ran, and the traversal that sends gradients back along the edges.

A node's number is larger than those of everything it was computed from, so descending numbers are
a valid reverse order: collect what the output depends on with a stack, sort, walk, all of it
without recursion.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count
from operator import attrgetter
from sys import getrefcount
from time import perf_counter
from types import CodeType
from typing import Any

import numpy as np

from ..fast.blas_sums import column_sums, sums
from ..fast.memory import ALONE, owns
from .context import current
from .errors import FreedGraphError, GradientError, OverwrittenError
from .op import Op, Plan
from .sparse import SparseGradient, dense

__all__ = [
    "OUR_PACKAGES",
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

next_number = count().__next__
KEEP = -1  # the key of the hook of retain_grad, which runs last, and never for mg.grad
_by_number = attrgetter("seq")


class SourceLocation:
    """A position in a program: a code object and an offset in it, decoded only when shown."""

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int) -> None:
        self.code, self.offset = code, offset

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        positions = list(self.code.co_positions())
        return positions[self.offset // 2][0] or self.code.co_firstlineno

    def __str__(self) -> str:
        return (
            f"{os.path.relpath(self.file) if os.path.isabs(self.file) else self.file}:{self.line}"
        )


OUR_PACKAGES = {
    "minigrad",
    "minigrad.engine",
    "minigrad.fast",
    "minigrad.fast.compiler",
    "minigrad.fast.tiles",
    "minigrad.ops",
    "minigrad.optim",
    "minigrad.recording",
}  # frames of these are never where a user made something


def caller() -> SourceLocation:
    """Where the engine was called from."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
        frame = frame.f_back
    return SourceLocation(frame.f_code, frame.f_lasti)


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
        "__weakref__",
        "_dtype",
        "_shape",
        "after",
        "code",
        "edges",
        "hooks",
        "name",
        "offset",
        "plan",
        "saved",
        "scope",
        "seq",
        "settings",
        "source",
    )

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

    @property
    def op(self) -> Op:
        return self.plan.op

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


class Handle:
    """A registered hook; `remove()` takes it off again."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._hooks, self._key = hooks, next_number()
        hooks[self._key] = hook

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


class _Writes:
    """When and where memory was last overwritten by `assign_`, by the array that owns the memory.

    Writes are numbered together with nodes: memory written after a node was made is no longer what
    it saved.
    """

    def __init__(self) -> None:
        self.latest = -1
        self._by_owner: dict[int, tuple[Any, int, SourceLocation]] = {}

    @staticmethod
    def _owner(array: Any) -> Any:
        while isinstance(getattr(array, "base", None), np.ndarray):
            array = array.base
        return array

    def note(self, array: Any, place: SourceLocation) -> None:
        owner = self._owner(array)
        key = id(owner)
        forget = weakref.ref(owner, lambda _: self._by_owner.pop(key, None))
        self.latest = next_number()
        self._by_owner[key] = (forget, self.latest, place)

    def check(self, node: Node, saved: tuple[Any, ...]) -> None:
        """Raise if anything `node` saved was written after it was made."""
        for name, value in zip(node.plan.names, saved, strict=True):
            self.check_since(node.seq, node, name, value)

    def check_since(self, began: int, node: Node, name: str, value: Any) -> None:
        """Raise if `value`, which `node` needs as `name`, was written after number `began`."""
        if isinstance(value, np.ndarray):
            _, number, place = self._by_owner.get(id(self._owner(value)), (None, -1, None))
            if number > began:
                raise OverwrittenError(
                    f"backward of {node.path}: {name} {value.shape} was overwritten "
                    "after it was saved\n"
                    f"  saved by {node.op.name} at {node.place}\n"
                    f"  overwritten at {place}"
                )


writes = _Writes()


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


@lru_cache(maxsize=1024)
def _broadcast_axes(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which `shape` was repeated to make `wide`, None if it does not broadcast."""
    extra = len(wide) - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, wide[extra:], strict=True)):
        return None
    repeated = (i for i, n in enumerate(shape, extra) if n == 1 != wide[i])
    return (*range(extra), *repeated)


def unbroadcast(gradient: Any, edge: Any, node: Node) -> Any:
    """The edge rule: sum over exactly the axes that were broadcast, cast to the input's dtype."""
    shape = edge.shape
    if gradient.shape != shape:
        axes = _broadcast_axes(shape, gradient.shape)
        if axes is None:
            k = [e is edge for e in node.edges].index(True)
            position = node.plan.needed[k]
            name = node.op.inputs[0] if node.op.variadic else node.op.inputs[position]
            raise GradientError(
                f"{node.op.name}: the rule for {name} gave shape {gradient.shape}, "
                f"which does not reduce to the input's {shape}\n  at {node.path}, {node.place}"
            )
        gradient = dense(gradient)
        first = len(axes) == len(gradient.shape) - len(shape)  # all of them before the input's own
        gradient = column_sums(gradient, len(axes)) if first else sums(gradient, axes)
        gradient = gradient if gradient.shape == shape else gradient.reshape(shape)
    return gradient if gradient.dtype == edge.dtype else dense(gradient).astype(edge.dtype)


def _of_kind(gradient: Any, new: Any) -> Any:
    """What a hook gave, as an array; a Tensor stays one where gradients are Tensors."""
    recorded = hasattr(gradient, "__apply__") and hasattr(new, "__apply__")
    return new if recorded else np.asarray(new)


def _hooked(hooks: dict[int, Callable[[Any], Any]], gradient: Any, keep: bool) -> Any:
    """Let each hook see the gradient, read-only, and replace it; keep the outcome if wanted."""
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


def _sum(total: Any, part: Any) -> Any:
    """The sum of two gradients, in place if nobody but the caller had the first."""
    if getrefcount(total) == ALONE and owns(total):
        total += part
        return total
    return total + part


def backpropagate(
    seeds: Sequence[tuple[Any, Any]],
    *,
    retain: bool = False,
    targets: Sequence[Any] | None = None,
    run: Callable[[Node, Callable[..., Any], Any, tuple[Any, ...]], Any] | None = None,
) -> dict[Any, Any]:
    """Send the seeds' gradients back along every edge; return that of each leaf and target reached.

    Args:
        seeds: pairs of an edge (a Node or a leaf) and the gradient that arrives there.
        retain: keep what the nodes saved, for another backward.
        targets: only these edges are wanted; nodes and rules that do not lead to one are skipped.
        run: calls a node's rules in place of `rules(gradient, saved)`, for gradients that are not
            arrays: with Tensors the rules record themselves.
    """
    nodes = order(edge for edge, _ in seeds)
    wanted = useful = None
    ends: set[Node] = set()  # targets with nothing wanted below: their rules do not run
    if targets is not None:
        wanted, useful = set(targets), set(targets)
        for node in reversed(nodes):
            if not useful.isdisjoint(node.edges):
                useful.add(node)
        nodes = [node for node in nodes if node in useful]
        ends = {node for node in nodes if useful.isdisjoint(node.edges)}
    for node in nodes:
        if node.saved is None and node.source is None and node not in ends:
            raise FreedGraphError(
                f"backward through {node.path} ({node.op.name}, made at {node.place}): "
                "its saved arrays were freed by an earlier backward; "
                "pass retain_graph=True to that one to go through twice"
            )
    gradients: dict[Any, Any] = {}
    for edge, gradient in seeds:
        gradients[edge] = gradients[edge] + gradient if edge in gradients else gradient
    results: dict[Any, Any] = {}
    listeners = current().listeners
    for node in nodes:
        gradient = gradients.pop(node)
        if node.hooks:
            gradient = _hooked(node.hooks, gradient, keep=wanted is None)
        if wanted is not None and node in wanted:
            results[node] = gradient
            if node in ends:
                continue
        saved = node.saved if node.saved is not None else node.source.recover(node)
        if writes.latest > node.seq:
            writes.check(node, saved)
        rules = node.plan.backward
        edges: Iterable[Any] = node.edges
        if useful is not None:
            rules = node.plan.partial(tuple([edge in useful for edge in edges]))
        start = perf_counter() if listeners else 0.0
        contributions: Any = (
            rules(gradient, saved) if run is None else run(node, rules, gradient, saved)
        )
        if not retain:
            node.saved = node.source = None
        if listeners or node.after:
            contributions = _announce(node, gradient, contributions, start)
        for edge, part in zip(edges, contributions):  # noqa: B905, the keyword costs 0.2 µs a node
            if part is None:  # a rule that was not wanted
                continue
            if part.shape != edge._shape or part.dtype is not edge._dtype:
                part = unbroadcast(part, edge, node)
            if part.__class__ is SparseGradient:
                gradients[edge] = part.onto(gradients.pop(edge, None))
            else:
                gradients[edge] = _sum(gradients.pop(edge), part) if edge in gradients else part
    for leaf, gradient in gradients.items():
        if leaf.__class__ is Node:  # an output that leads to no target
            continue
        if leaf._hooks:
            gradient = _hooked(leaf._hooks, gradient, keep=wanted is None)
        for listener in listeners:
            listener.arrived(leaf, gradient)
        results[leaf] = gradient
    return results


def _announce(node: Node, gradient: Any, contributions: Any, start: float) -> list[Any]:
    """Tell the listeners and the node's own hooks what it sends along each edge."""
    seconds = perf_counter() - start
    parts = [
        part if part is None else unbroadcast(part, edge, node)
        for part, edge in zip(contributions, node.edges, strict=True)
    ]
    heard = [dense(part) for part in parts]
    for hook in list((node.after or {}).values()):
        new = hook(list(heard), gradient)
        if new is not None:
            parts = [
                part if part is None else unbroadcast(_of_kind(gradient, part), edge, node)
                for part, edge in zip(new, node.edges, strict=True)
            ]
            heard = parts
    for listener in current().listeners:
        listener.backward(node, gradient, heard, seconds)
    return parts
