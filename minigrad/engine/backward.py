"""Backward: the traversal that `loss.backward()` runs, from the loss back to the leaves.

`backpropagate` visits the nodes below the loss, newest first (`order`). At each it runs the rules
of its op, which turn the gradient of the result into one for each edge; `Sums` adds up what comes
to an edge, once that has the shape and dtype of what went in (`reduce_to_edge`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import gcd, prod
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np

from .context import current, say
from .declaration import Gradient
from .errors import FreedGraphError, GradientError, ShapeError
from .node import ALWAYS, Edge, Node, run_hooks
from .op import Array, DType, checked_array, is_tensor
from .writes import writes

__all__ = [
    "SparseGradient",
    "at_first_pass",
    "backpropagate",
    "dense",
    "order",
    "reduce_to_edge",
    "seed_of",
]

ndarray = np.ndarray
WIDE = {"e": np.float32, "f": np.float64}  # in which gradients of a dtype are added up
ROWS_AT_ONCE = 256  # rows that one product with ones adds up
COPIED = 512  # entries up to which a copy takes less time than finding out who holds an array

at_first_pass: list[Callable[[], object]] = []  # what is called once, before anything goes back


def seed_of(call: str, output: Any, gradient: Any) -> Gradient:
    """The gradient with which a backward begins at this tensor, checked; 1 unless given."""
    if not output.needs:
        raise GradientError(
            f"{call}: the output requires no gradient: nothing it depends on has "
            "requires_grad=True, or it was computed under no_grad, detached, or given by a "
            "compiled step, which is to call backward itself"
        )
    if gradient is None:
        if output.size != 1:
            raise ShapeError(
                f"{call}: an output of shape {output.shape} needs a gradient of that shape; write "
                "out.sum().backward(), or give one: out.backward(gradient)"
            )
        gradient = np.ones(output.shape, output.dtype)
        say("constant", array=gradient)
        return gradient
    if not is_tensor(gradient):
        array = checked_array(f"{call}(gradient)", gradient)
        gradient = array.astype(output.dtype, copy=False)
    if gradient.shape != output.shape:
        raise ShapeError(
            f"{call}: the gradient's shape {gradient.shape} is not the output's {output.shape}"
        )
    return gradient


def backpropagate(
    root: Edge,
    seed: Gradient,
    *,
    retain: bool = False,
    targets: frozenset[Edge] = frozenset(),
    lift: Callable[[Node], Sequence[Any]] | None = None,
) -> dict[Edge, Gradient]:
    """Send gradients back along every edge; return that of each leaf reached, or of each target.

    Args:
        root, seed: where it begins, a Node or a leaf, and the gradient that arrives there.
        retain: keep what the nodes saved, for another backward.
        targets: only their gradients are wanted, and rules that lead to none are skipped; with
            no targets, those of all leaves.
        lift: see `Node.run_rules`; gradients are Tensors then.
    """
    while at_first_pass:
        at_first_pass.pop()()
    observers = current().observers
    sums = Sums(observed=bool(observers))
    totals = sums.totals
    totals[root] = seed
    nodes = order(root)
    refuse_freed(nodes, targets)
    wanted: set[Edge] | None = None  # edges along which gradients are sent; None for all
    if targets:
        wanted = leading_to(targets, nodes)
        nodes = [node for node in nodes if node in wanted]
    gradients: dict[Edge, Gradient] = {}
    parts: Sequence[Gradient]

    for node in nodes:  # newest first: whatever used a node has run
        gradient = totals.pop(node, None)
        if gradient is None:  # rules gave None
            continue
        if node.hooks:
            gradient = run_hooks(node.hooks, gradient, retain=not targets)
        if node in targets:
            gradients[node] = gradient if lift else np.array(gradient)
            if wanted and wanted.isdisjoint(node.edges):  # it leads to no other target
                continue
        if writes.latest > node.number:
            node.check_saved()
        run = node.plan.run
        start = perf_counter() if observers else 0.0
        if wanted is not None or node.needs != ALWAYS or run is None:
            parts = node.run_rules(gradient, wanted, lift(node) if lift else None)
        else:  # the same, where all parts are wanted, in less time
            parts = run(gradient, *(node.saved or ()))
        if observers:
            seconds = perf_counter() - start
            pairs = zip(node.edges, parts, strict=True)
            parts = [reduce_to_edge(part, edge, node) for edge, part in pairs]
            arrays = [dense(part) for part in parts]
            for observer in observers:
                observer.sent(node, gradient, parts if observer.takes_sparse else arrays, seconds)
        sums.send(node, gradient, parts)
        if not retain:  # free the graph, so that a loss that is kept does not keep it alive
            node.saved = None
            node.edges = node.settings = ()

    for leaf, gradient in totals.items():
        if leaf.__class__ is Node:  # a root that leads to no target
            continue
        is_ours = leaf in sums.ours and not observers  # which may keep the array
        if leaf.hooks:
            gradient = run_hooks(leaf.hooks, gradient, retain=not targets)
            is_ours = False
        for observer in observers:
            observer.arrived(leaf, gradient)
        gradients[leaf] = gradient if is_ours or lift else np.array(gradient)
    return gradients


def order(root: Edge) -> list[Node]:
    """The root and every node it depends on, newest first."""
    seen: set[Node] = set()
    ahead = [root]
    while ahead:
        edge = ahead.pop()
        if edge.__class__ is Node and edge not in seen:
            seen.add(edge)
            ahead += edge.edges
    return sorted(seen, key=attrgetter("number"), reverse=True)


def leading_to(targets: frozenset[Edge], nodes: Sequence[Node]) -> set[Edge]:
    """The targets, and those of the nodes (newest first) from which one is reached."""
    leading = set(targets)
    for node in reversed(nodes):
        if not leading.isdisjoint(node.edges):
            leading.add(node)
    return leading


def refuse_freed(nodes: list[Node], targets: frozenset[Edge]) -> None:
    """Raise FreedGraphError if a node has run before: where it led is forgotten."""
    for node in nodes:
        if node.saved is not None:
            continue
        if node in targets and targets <= {edge for x in nodes for edge in (x, *x.edges)}:
            continue  # wanted itself, as all others are that it may have led to
        remedy = "pass retain_graph=True to that one to go through twice"
        if writes.latest > node.number:  # a parameter, say: what was saved no longer holds
            remedy = "tensors were written since, so cut a state of an earlier step by .detach()"
        raise FreedGraphError(
            f"backward through {node.path} ({node.op.name}, made at {node.place}): what it "
            f"saved was freed by an earlier backward; {remedy}"
        )


# ---------------------------------------------------------------- adding up


class Sums:
    """The gradients that have come to each edge so far, added up.

    The first that comes is borrowed: it may be what a rule was given, or go along other edges too.
    The second makes a new array, which is ours, and later ones are added into that.

    Attributes:
        totals: by edge.  ours: the edges whose total nobody else holds.
        observed: whether observers were given what is sent, and may keep it.
    """

    def __init__(self, observed: bool) -> None:
        self.observed = observed
        self.totals: dict[Edge, Gradient] = {}
        self.ours: set[Edge] = set()

    def send(self, node: Node, gradient: Gradient, parts: Sequence[Gradient]) -> None:
        """Add what a node's rules made of its gradient, each part to its edge."""
        totals = self.totals
        for edge, part in zip(node.edges, parts):  # noqa: B905, the keyword costs 0.2 µs a node
            if part is None:
                continue
            if getattr(part, "shape", None) != edge.shape or part.dtype is not edge.dtype:
                part = reduce_to_edge(part, edge, node)
            if edge in totals or part.__class__ is not ndarray:
                self.add(edge, part)
                continue
            totals[edge] = part
            if edge.__class__ is not Node and not self.observed:
                if is_new(part, gradient, node.saved or (), parts):
                    self.ours.add(edge)

    def add(self, edge: Edge, part: Gradient) -> None:
        """Add a part of the edge's shape and dtype."""
        before = self.totals.get(edge)
        is_ours = edge in self.ours
        if is_ours and part.__class__ is ndarray:
            before += part
        elif isinstance(part, SparseGradient):
            self.totals[edge] = part.onto(before, in_place=is_ours)
            self.ours.add(edge)
        elif before is None:
            self.totals[edge] = part
        else:
            total = self.totals[edge] = before + part
            if total.__class__ is ndarray:  # a sum of arrays without axes is a number
                self.ours.add(edge)


def is_new(
    part: Gradient, gradient: Gradient, saved: Sequence[Any], parts: Sequence[Gradient]
) -> bool:
    """Whether a rule made this array for one edge alone, so that nobody else holds it.

    What a rule gives is new, or of what it was given, or a view: see the top of declaration.py.
    """
    if part.size <= COPIED or part.base is not None or part is gradient:
        return False
    return len([x for x in (*saved, *parts) if x is part]) == 1


class SparseGradient:
    """What a rule may give in place of an array: zeros of a shape, but for some entries.

    Gradients of many slices of one array are so added into one array: see ops/select.py.
    """

    __slots__ = ()
    shape: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    def onto(self, total: Any, in_place: bool = False) -> Array:
        """The sum of this and `total` (None for zeros), written into `total` if `in_place`."""
        raise NotImplementedError


def dense(part: Gradient) -> Gradient:
    """A part as an array."""
    return part.onto(None) if isinstance(part, SparseGradient) else part


# ---------------------------------------------------------------- the edge rule


def reduce_to_edge(part: Gradient, edge: Edge, node: Node) -> Gradient:
    """Sum over exactly the axes that were broadcast, and cast to the input's dtype; None stays."""
    if part is None:
        return None
    if not hasattr(part, "shape"):
        raise _misfit(f"a {type(part).__name__}, and a gradient is an array", edge, node)
    if part.shape != edge.shape:
        axes = broadcast_axes(edge.shape, part.shape)
        if axes is None:
            what = f"shape {part.shape}, which does not reduce to the input's {edge.shape}"
            raise _misfit(what, edge, node)
        part = sum_to(dense(part), edge.shape, axes)
    if part.dtype == edge.dtype:
        return part
    if part.dtype.kind == "c":
        raise _misfit("a complex gradient of a real input", edge, node)
    return dense(part).astype(edge.dtype)


def sum_to(x: Gradient, shape: tuple[int, ...], axes: tuple[int, ...]) -> Gradient:
    """The sum over some axes, added up in a wider dtype; over the first ones as one of rows."""
    if is_tensor(x):
        x = x.sum(axis=axes)
    elif len(axes) == x.ndim - len(shape) and x.size and x.dtype.char in "fd":
        x = sum_of_rows(x.reshape((-1, prod(shape))))
    else:
        x = x.sum(axis=axes, dtype=WIDE.get(x.dtype.char))
    return x if x.shape == shape else x.reshape(shape)


def sum_of_rows(rows: Gradient) -> Gradient:
    """The sum of rows as a product with ones, in a third of the time that `sum` takes.

    Blocks of 256 rows, and then their sums in a wider dtype: so float32 is added up as exactly as
    by PyTorch, to 3e-7 of the largest sum.
    """
    n, width = rows.shape
    if n <= ROWS_AT_ONCE:
        return ones(rows.dtype, n) @ rows
    block = gcd(n, ROWS_AT_ONCE)
    if block >= 4:
        rows = ones(rows.dtype, block) @ rows.reshape((n // block, block, width))
    return rows.sum(axis=0, dtype=WIDE.get(rows.dtype.char))


@cache
def ones(dtype: Any, size: int) -> Any:
    return np.ones(size, dtype)


@lru_cache(maxsize=1024)
def broadcast_axes(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which `shape` was repeated to make `wide`, None if it does not broadcast."""
    extra = len(wide) - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, wide[extra:], strict=True)):
        return None
    return (*range(extra), *(i for i, n in enumerate(shape, extra) if n == 1 != wide[i]))


def _misfit(gave: str, edge: Edge, node: Node) -> GradientError:
    """The error of a rule that gave what is no gradient of its input."""
    name = next(name for name, x in zip(node.plan.names, node.edges, strict=True) if x is edge)
    rule = f"{node.op.name}: the rule for {name}"
    return GradientError(f"{rule} gave {gave}\n  at {node.path}, {node.place}")
