"""The traversal that `loss.backward()` runs: gradients go back along every edge."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from math import gcd, prod
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from .context import current, say
from .errors import FreedGraphError, GradientError, ShapeError
from .node import Edge, Node, leading_to, order
from .op import Gradient, as_array
from .writes import writes

__all__ = ["Retained", "add_gradients", "backpropagate", "fit", "seed_of", "sum_to"]

ndarray = np.ndarray
WIDE = {"e": np.float32, "f": np.float64}  # in which gradients of a dtype are added up
ROWS_AT_ONCE = 256  # rows that one product with ones adds up
COPIED = 512  # entries up to which a copy takes less time than finding out who holds an array


def backpropagate(
    seeds: Sequence[tuple[Edge, Gradient]],
    *,
    retain: bool = False,
    targets: Iterable[Edge] | None = None,
    lift: Callable[[Node], Sequence[Any]] | None = None,
) -> dict[Edge, Gradient]:
    """Send gradients back along every edge; return that of each leaf, and of each target, reached.

    Args:
        seeds: pairs of an edge (a Node or a leaf) and the gradient that arrives there.
        retain: keep what the nodes saved, for another backward.
        targets: only these edges are wanted; rules that do not lead to one are skipped.
        lift: see `Node.run_rules`; gradients are Tensors then.
    """
    observers = current().observers
    total: dict[Edge, Gradient] = {}  # what has come so far to each node and leaf
    owned: set[Edge] = set()  # those whose array was made here, and may be added to in place
    found: dict[Edge, Gradient] = {}  # the gradients of targets that are nodes
    for edge, gradient in seeds:
        add(total, owned, edge, gradient)

    nodes = order(total)
    ends: frozenset[Edge] = frozenset(targets or ())
    useful = None  # every edge that is not on demand
    plain = targets is None and lift is None
    refuse_freed(nodes, ends)
    if targets is not None:
        useful = leading_to(ends, nodes)
        nodes = [node for node in nodes if node in useful]

    for node in nodes:  # newest first: whatever used a node has run
        gradient = total.pop(node, None)
        if gradient is None:  # rules gave None
            continue
        if node.hooks:
            gradient = run_hooks(node.hooks, gradient, targets is None)
        if targets is not None and node in ends:
            found[node] = gradient if lift else np.array(gradient)
        if useful is not None and useful.isdisjoint(node.edges):
            continue  # a target itself, whose rules do not run
        if writes.latest > node.number:
            node.check_saved()
        start = perf_counter() if observers else 0.0
        edges, saved = node.edges, node.saved or ()
        if plain and node.needs == 1 and node.plan.run is not None:
            parts: Sequence[Gradient] = node.plan.run(gradient, saved)
        else:
            parts = node.run_rules(gradient, useful, lift)
        if observers:
            seconds = perf_counter() - start
            pairs = zip(edges, parts, strict=True)
            parts = [part if part is None else dense(fit(part, edge, node)) for edge, part in pairs]
            for observer in observers:
                observer.sent(node, gradient, parts, seconds)
        for edge, part in zip(edges, parts):  # noqa: B905, the keyword costs 0.2 µs a node
            if part is None:
                continue
            if getattr(part, "shape", None) != edge.shape or part.dtype is not edge.dtype:
                part = fit(part, edge, node)
            if edge in total or part.__class__ is not ndarray:
                add(total, owned, edge, part)
                continue
            total[edge] = part
            if edge.__class__ is not Node and not observers:  # which may keep the array
                if is_new(part, gradient, saved, parts):
                    owned.add(edge)
        if not retain:  # a loss that is kept holds its number, not the batch
            node.saved = None
            node.edges = node.settings = ()

    for leaf, gradient in total.items():
        if leaf.__class__ is Node:  # an output that leads to no target
            continue
        if leaf.hooks:
            gradient = run_hooks(leaf.hooks, gradient, targets is None)
            owned.discard(leaf)
        for observer in observers:
            observer.arrived(leaf, gradient)
        is_ours = lift is not None or (leaf in owned and not observers)
        found[leaf] = gradient if is_ours else np.array(gradient)
    return found


def add(total: dict[Edge, Gradient], owned: set[Edge], edge: Edge, part: Gradient) -> None:
    """Add a part: the first is borrowed, the second makes a new array, later ones go into that."""
    before = total.get(edge)
    if edge in owned and part.__class__ is ndarray:
        total[edge] += part
    elif hasattr(part.__class__, "onto"):  # zeros but for some entries: see `SparseGradient`
        total[edge] = part.onto(before, in_place=edge in owned)
        owned.add(edge)
    elif before is None:
        total[edge] = part
    else:
        total[edge] = before + part
        if total[edge].__class__ is ndarray:
            owned.add(edge)


def dense(part: Gradient) -> Gradient:
    """A part as an array."""
    return part.onto(None) if hasattr(part.__class__, "onto") else part


def is_new(
    part: Gradient, gradient: Gradient, saved: Sequence[Any], parts: Sequence[Gradient]
) -> bool:
    """Whether a rule made this array for one edge alone, so that nobody else holds it.

    What a rule gives is new, or of what it was given, or a view: see the top of op.py.
    """
    if part.size <= COPIED or part.base is not None or part is gradient:
        return False
    return not any([x is part for x in saved]) and len([x for x in parts if x is part]) == 1


def refuse_freed(nodes: list[Node], ends: frozenset[Edge]) -> None:
    """Raise FreedGraphError if a node has run before: where it led is forgotten."""
    for node in nodes:
        if node.saved is None:
            if node in ends and ends <= {edge for x in nodes for edge in (x, *x.edges)}:
                continue  # wanted itself, as all others are that it may have led to
            raise FreedGraphError(
                f"backward through {node.path} ({node.op.name}, made at {node.place}): what it "
                "saved was freed by an earlier backward; pass retain_graph=True to that one to go "
                "through twice"
            )


class Retained:
    """The hook of `retain_grad`, which runs last, and in no `mg.grad`: it adds to `.grad`."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = weakref.ref(tensor)  # or the graph would keep the tensor alive

    def __call__(self, gradient: Gradient) -> None:
        if (tensor := self.tensor()) is not None:
            add_gradients({tensor: np.array(getattr(gradient, "_data", gradient))})


def run_hooks(hooks: list[Callable[[Any], Any]], gradient: Gradient, retain: bool) -> Gradient:
    """Let each hook see the gradient, read-only, and replace it; `retain_grad` sees it last."""
    for hook in hooks:
        if hook.__class__ is Retained:
            continue
        if gradient.__class__ is ndarray:
            gradient = gradient.view()
            gradient.flags.writeable = False
        new = hook(gradient)
        if new is not None:
            if np.shape(new) != gradient.shape:
                raise GradientError(
                    f"hook: replaced a gradient {gradient.shape} by one of shape {np.shape(new)}"
                )
            if not (hasattr(new, "__apply__") and hasattr(gradient, "__apply__")):
                new = np.asarray(getattr(new, "_data", new))
            gradient = new if new.dtype == gradient.dtype else new.astype(gradient.dtype)
    for hook in hooks:
        if hook.__class__ is Retained and retain:
            hook(gradient)
    return gradient


# ---------------------------------------------------------------- the edge rule


def fit(part: Gradient, edge: Edge, node: Node) -> Gradient:
    """Sum over exactly the axes that were broadcast, and cast to the input's dtype."""
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
    if hasattr(x, "__apply__"):
        x = x.sum(axis=axes)
    elif len(axes) == x.ndim - len(shape) and x.size and x.dtype.char in "fd":
        x = sum_of_rows(x.reshape((x.size // prod(shape), prod(shape))))
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
    name = node.plan.names[[other is edge for other in node.edges].index(True)]
    text = f"{node.op.name}: the rule for {name} gave {gave}"
    return GradientError(f"{text}\n  at {node.path}, {node.place}")


_ADDING = Lock()


def add_gradients(gradients: dict[Any, Any]) -> None:
    """Add each gradient to its leaf's `.grad`, one thread at a time."""
    with _ADDING:
        for leaf, total in gradients.items():
            leaf.grad = total if leaf.grad is None else np.asarray(leaf.grad + total)


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
        seed = np.ones(output.shape, output.dtype)
        say("constant", array=seed)
        return seed
    seed = gradient
    if not hasattr(gradient, "__apply__"):  # no Tensor
        seed = as_array(f"{call}(gradient)", gradient).astype(output.dtype, copy=False)
    if seed.shape != output.shape:
        raise ShapeError(
            f"{call}: the gradient's shape {seed.shape} is not the output's {output.shape}"
        )
    return seed
