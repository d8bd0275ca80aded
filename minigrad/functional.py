"""Derivatives of functions: vjp, jvp, hvp, jacobian; and checkpoint: memory for a second forward.

Each of the first four calls `f` on fresh leaves that hold the inputs' values, so it leaves no
`.grad` and needs no `requires_grad`. `inputs` is one array or Tensor, or a sequence of them;
results have the same form.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from .engine.context import Context, Listener, current, enable_grad, within
from .engine.errors import GradientError, ShapeError
from .engine.graph import Node, backpropagate, next_number, writes
from .engine.op import Op
from .engine.tensor import Tensor, grad, tensor

__all__ = ["checkpoint", "grad", "hvp", "jacobian", "jvp", "vjp"]


def _fresh(inputs: Any) -> tuple[list[Tensor], bool]:
    """Leaves that hold the inputs' values, and whether there was only one input, not a sequence."""
    single = not isinstance(inputs, list | tuple)
    given = [inputs] if single else list(inputs)
    return [tensor(x, requires_grad=True, name=getattr(x, "name", None)) for x in given], single


def _call(call: str, f: Callable[..., Any], leaves: list[Tensor]) -> Tensor:
    with enable_grad():
        output = f(*leaves)
    if not isinstance(output, Tensor):
        raise GradientError(f"{call}: f must return a Tensor, got {type(output).__name__}")
    return output


def _like(call: str, name: str, values: Any, wanted: list[Tensor], single: bool) -> list[Any]:
    """One array for each leaf, of its shape; ones if none are given for a single entry."""
    given = [values] if single else list(values)
    shapes, expected = [np.shape(v) for v in given], [x.shape for x in wanted]
    if shapes != expected:
        raise ShapeError(f"{call}: {name} must have shapes {expected}, got {shapes}")
    return [np.asarray(v, x.dtype) for v, x in zip(given, wanted, strict=True)]


def vjp(f: Callable[..., Any], inputs: Any, grad_output: Any = None) -> tuple[Any, Any]:
    """f(inputs), and grad_outputᵀ · ∂f/∂inputs: reverse mode, one backward pass.

    `grad_output` may be left out when f returns one entry.

    >>> import minigrad as mg
    >>> out, g = mg.vjp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    >>> g
    array([ 2., 40.])
    """
    leaves, single = _fresh(inputs)
    output = _call("vjp", f, leaves)
    if not output.requires_grad:
        zeros = [np.zeros(x.shape, x.dtype) for x in leaves]
        return output.numpy(), zeros[0] if single else zeros
    gradients = grad(output, leaves, grad_output)
    return output.numpy(), gradients[0] if single else gradients


def jvp(f: Callable[..., Any], inputs: Any, tangents: Any) -> tuple[Any, Any]:
    """f(inputs), and ∂f/∂inputs · tangents: forward mode, as the vjp of a vjp.

    The vjp is linear in its cotangent u, so its own vjp in u is the Jacobian itself, applied to the
    tangents.

    >>> import minigrad as mg
    >>> out, t = mg.jvp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    >>> t
    array([ 2., 40.])
    """
    leaves, single = _fresh(inputs)
    along = _like("jvp", "tangents", tangents, leaves, single)
    output = _call("jvp", f, leaves)
    if not output.requires_grad:
        return output.numpy(), np.zeros(output.shape, output.dtype)
    with enable_grad():
        u = tensor(np.zeros(output.shape, output.dtype), requires_grad=True)
        pulled = grad(output, leaves, u, create_graph=True)
        linear = sum((g * v).sum() for g, v in zip(pulled, along, strict=True))
    return output.numpy(), grad(linear, u) if linear.requires_grad else np.zeros_like(u.data)


def hvp(f: Callable[..., Any], inputs: Any, vectors: Any) -> tuple[Any, Any]:
    """f(inputs), one entry, and ∂²f/∂inputs² · vectors, without the matrix.

    >>> import minigrad as mg
    >>> out, h = mg.hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    >>> h
    array([ 6., 12.])
    """
    leaves, single = _fresh(inputs)
    along = _like("hvp", "vectors", vectors, leaves, single)
    output = _call("hvp", f, leaves)
    products = [np.zeros(x.shape, x.dtype) for x in leaves]
    if output.requires_grad:
        with enable_grad():
            first = grad(output, leaves, create_graph=True)
            slope = sum((g * v).sum() for g, v in zip(first, along, strict=True))
        if slope.requires_grad:
            products = grad(slope, leaves)
    return output.numpy(), products[0] if single else products


def jacobian(f: Callable[..., Any], inputs: Any) -> Any:
    """∂f/∂inputs whole, of shape f.shape + input.shape: one backward pass for each entry of f.

    >>> import minigrad as mg
    >>> mg.jacobian(lambda x: x[::-1] * 2, np.array([1.0, 2.0]))
    array([[0., 2.],
           [2., 0.]])
    """
    leaves, single = _fresh(inputs)
    output = _call("jacobian", f, leaves)
    rows = [np.zeros((output.size, *x.shape), x.dtype) for x in leaves]
    if output.requires_grad:
        targets = [leaf.node or leaf for leaf in leaves]
        for i in range(output.size):
            seed = np.zeros(output.size, output.dtype)
            seed[i] = 1
            seeds = [(output.node or output, seed.reshape(output.shape))]
            found = backpropagate(seeds, retain=True, targets=targets)
            for row, target in zip(rows, targets, strict=True):
                row[i] = found.get(target, 0)
    whole = [row.reshape(output.shape + x.shape) for row, x in zip(rows, leaves, strict=True)]
    return whole[0] if single else whole


class _Recompute(Listener):
    """Hears the first run of a checkpointed function: keeps its nodes, and drops what they saved.

    When backward reaches one of them, the function runs again in the same surroundings with the
    same random state, and every node gets back what its twin in the second run saved.
    """

    def __init__(self, f: Callable[..., Any], inputs: tuple[Any, ...], context: Context) -> None:
        self.f, self.inputs, self.context = f, inputs, context
        self.began = next_number()
        self.nodes: list[weakref.ref[Node]] = []  # weak: the graph owns its nodes
        self.leaves: list[weakref.ref[Tensor]] = []
        self.states: list[tuple[np.random.Generator, Any]] = []

    def enter(self, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> None:
        for value in inputs:
            if isinstance(value, Tensor) and value.is_leaf:
                self.leaves.append(weakref.ref(value))
        for value in settings:
            known = any(value is generator for generator, _ in self.states)
            if isinstance(value, np.random.Generator) and not known:
                self.states.append((value, deepcopy(value.bit_generator.state)))

    def forward(self, op: Op, inputs: Any, settings: Any, output: Tensor, seconds: float) -> None:
        if output.node is not None:
            self.nodes.append(weakref.ref(output.node))
            if output.node.source is None:  # else a checkpoint within this one has it
                output.node.saved, output.node.source = None, self

    def recover(self, wanted: Node) -> tuple[Any, ...]:
        """Run again; give every node what its twin saved, and return what `wanted` had."""
        for reference in self.leaves:
            leaf = reference()
            if leaf is not None:
                writes.check_since(self.began, wanted, leaf.path or "an input", leaf.data)
        twins = self._run_again()
        nodes = [reference() for reference in self.nodes]
        same = len(nodes) == len(twins) and all(
            node is None or (node.op, node.shape) == (twin.op, twin.shape)
            for node, twin in zip(nodes, twins, strict=True)
        )
        if not same:
            name = getattr(self.f, "__name__", "f")
            raise GradientError(f"checkpoint: {name} took other steps when backward ran it again")
        for node, twin in zip(nodes, twins, strict=True):
            if node is not None and node.source is self:
                node.saved, node.source = twin.saved, None
        return wanted.saved  # type: ignore[return-value]

    def _run_again(self) -> list[Node]:
        second = _Keep()
        now = [deepcopy(generator.bit_generator.state) for generator, _ in self.states]
        try:
            for generator, state in self.states:
                generator.bit_generator.state = state
            with within(Context(True, self.context.scope, (second,))):
                self.f(*self.inputs)
        finally:
            for (generator, _), state in zip(self.states, now, strict=True):
                generator.bit_generator.state = state
        return second.nodes


class _Keep(Listener):
    """Keeps every node it hears of."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def forward(self, op: Op, inputs: Any, settings: Any, output: Tensor, seconds: float) -> None:
        if output.node is not None:
            self.nodes.append(output.node)


def checkpoint(f: Callable[..., Any], *inputs: Any) -> Any:
    """f(*inputs), keeping none of its activations: backward runs f again to get them.

    The graph, its scopes and its random draws are those of a plain call; only memory and time
    differ.
    Raises: GradientError in backward if f does something else the second time.
    Source: Chen et al. 2016, arXiv:1604.06174.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> mg.checkpoint(lambda x: mg.exp(x * x).sum(), x).backward()
    >>> (x.grad / (2 * x.data * np.exp(x.data**2))).tolist()
    [1.0, 1.0]
    """
    context = current()
    if not context.recording:
        return f(*inputs)
    first = _Recompute(f, inputs, context)  # hears before others do, who then see nothing saved
    with within(Context(True, context.scope, (first, *context.listeners))):
        return f(*inputs)
