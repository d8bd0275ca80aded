"""Derivatives: grad of a graph; vjp, jvp, hvp, jacobian of a function; and checkpoint.

vjp, jvp, hvp and jacobian call `f` on fresh leaves that hold the inputs' values, so they leave no
`.grad` and need no `requires_grad`. `inputs` is one array or Tensor, or a sequence of them; results
have the same form. checkpoint pays for memory with a second forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeAlias
from weakref import WeakValueDictionary, ref

import numpy as np

from .engine.context import Context, current, enable_grad, use_context
from .engine.creation import tensor
from .engine.errors import GradientError, ShapeError
from .engine.listener import Listener, notify
from .engine.op import Op
from .engine.refusals import explained
from .engine.tensor import Node, Operand, Tensor, backpropagate, seed_of
from .engine.writes import next_number, writes

__all__ = ["checkpoint", "grad", "hvp", "jacobian", "jvp", "vjp"]


Inputs: TypeAlias = "Operand | Sequence[Operand]"  # one input of a function, or all of them


@explained
def grad(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor],
    grad_output: Operand | None = None,
    create_graph: bool = False,
    *,
    retain_graph: bool = False,
) -> Any:
    """∂output/∂inputs, without touching any `.grad`.

    Args:
        output: a tensor; unless it has one entry, `grad_output` (of its shape) is needed.
        inputs: one tensor or a sequence of them, leaves or computed.
        create_graph: return Tensors that are recorded themselves, for derivatives of derivatives.
            The graph is kept then; otherwise it is freed, and arrays are returned.
        retain_graph: keep the graph in any case, so that another call can go through it.
    Returns: one gradient, or a list, like `inputs`; zeros for an input that `output` does not
        depend on.
    Raises: GradientError for an input that requires no gradient.

    >>> import minigrad as mg
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> first = mg.grad(x**3, x, create_graph=True)
    >>> float(mg.grad(first, x))
    12.0
    """
    single = isinstance(inputs, Tensor)
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for i, x in enumerate(wanted):
        if not isinstance(x, Tensor) or not x.requires_grad:
            raise GradientError(
                f"grad(output, inputs): inputs[{i}] is no tensor that requires a gradient"
            )
    seed = seed_of("grad", output, grad_output)
    if not create_graph:
        for answer in notify(Listener.intercept_grad, output, seed, wanted, retain_graph):
            if answer is not None:
                return answer[0] if single else answer
        seed = np.array(getattr(seed, "_data", seed))  # a listener may keep it
    elif not isinstance(seed, Tensor):
        seed = Tensor(seed)
    targets = [x.node or x for x in wanted]
    found = backpropagate(
        [(output.node or output, seed)],
        retain=create_graph or retain_graph,
        targets=targets,
        run=_recorded if create_graph else None,
        textbook=create_graph,
    )
    gradients: list[Any] = []
    for x, target in zip(wanted, targets, strict=True):
        g = found.get(target)
        g = np.zeros(x.shape, x.dtype) if g is None else g
        if create_graph:
            gradients.append(g if isinstance(g, Tensor) else Tensor(np.asarray(g)))
        else:
            again = any(g is other for other in gradients)  # one input named twice
            gradients.append(np.array(g) if again or g.__class__ is not np.ndarray else g)
    return gradients[0] if single else gradients


def _recorded(
    node: Node, rules: Callable[..., Any], gradient: Any, saved: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Run a node's rules on Tensors, so that they are recorded themselves."""
    lifted = []
    for name, value in zip(node.plan.names, saved, strict=True):
        position = node.plan.input_of(name)
        if name == "out":
            value = Tensor(value, node, node.plan.needs)
        elif position in node.plan.needed:
            edge = node.edges[node.plan.needed.index(position)]
            value = Tensor(value, edge, edge.plan.needs) if isinstance(edge, Node) else edge
        lifted.append(value)
    return rules(gradient, tuple(lifted))


def _fresh(inputs: Inputs) -> tuple[list[Tensor], bool]:
    """Leaves that hold the inputs' values, and whether there was only one input, not a sequence."""
    single = not isinstance(inputs, list | tuple)
    given: list[Any] = [inputs] if single else list(inputs)  # type: ignore[arg-type]
    return [tensor(x, requires_grad=True, name=getattr(x, "name", None)) for x in given], single


def _call(call: str, f: Callable[..., Tensor], leaves: list[Tensor]) -> Tensor:
    with enable_grad():
        output = f(*leaves)
    if not isinstance(output, Tensor):
        raise GradientError(f"{call}: f must return a Tensor, got {type(output).__name__}")
    notify(Listener.tensor_used, (output,))
    return output


def _like(call: str, name: str, values: Any, wanted: list[Tensor], single: bool) -> list[Any]:
    """One array for each leaf, of its shape; ones if none are given for a single entry."""
    given = [values] if single else list(values)
    shapes, expected = [np.shape(v) for v in given], [x.shape for x in wanted]
    if shapes != expected:
        raise ShapeError(f"{call}: {name} must have shapes {expected}, got {shapes}")
    return [np.asarray(v, x.dtype) for v, x in zip(given, wanted, strict=True)]


def grad_or_zeros(output: Any, inputs: list[Tensor], *seed: Any, **options: Any) -> Any:
    """`grad`, or zeros where the output depends on none of the inputs."""
    if isinstance(output, Tensor) and output.requires_grad:
        return grad(output, inputs, *seed, **options)
    return [np.zeros(x.shape, x.dtype) for x in inputs]


@explained
def vjp(
    f: Callable[..., Tensor], inputs: Inputs, grad_output: Operand | None = None
) -> tuple[Any, Any]:
    """f(inputs), and grad_outputᵀ · ∂f/∂inputs: reverse mode, one backward pass.

    `grad_output` may be left out when f returns one entry.

    >>> import minigrad as mg
    >>> out, g = mg.vjp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    >>> g
    array([ 2., 40.])
    """
    leaves, single = _fresh(inputs)
    output = _call("vjp", f, leaves)
    gradients = grad_or_zeros(output, leaves, grad_output)
    return output.numpy(), gradients[0] if single else gradients


@explained
def jvp(f: Callable[..., Tensor], inputs: Inputs, tangents: Inputs) -> tuple[Any, Any]:
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
    with enable_grad():
        u = tensor(np.zeros(output.shape, output.dtype), requires_grad=True)
        pulled = grad_or_zeros(output, leaves, u, create_graph=True)
        linear = sum((g * v).sum() for g, v in zip(pulled, along, strict=True))
    return output.numpy(), grad_or_zeros(linear, [u])[0]


@explained
def hvp(f: Callable[..., Tensor], inputs: Inputs, vectors: Inputs) -> tuple[Any, Any]:
    """f(inputs), one entry, and ∂²f/∂inputs² · vectors, without the matrix.

    >>> import minigrad as mg
    >>> out, h = mg.hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    >>> h
    array([ 6., 12.])
    """
    leaves, single = _fresh(inputs)
    along = _like("hvp", "vectors", vectors, leaves, single)
    output = _call("hvp", f, leaves)
    with enable_grad():
        first = grad_or_zeros(output, leaves, create_graph=True)
        slope = sum((g * v).sum() for g, v in zip(first, along, strict=True))
    products = grad_or_zeros(slope, leaves)
    return output.numpy(), products[0] if single else products


@explained
def jacobian(f: Callable[..., Tensor], inputs: Inputs) -> Any:
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
    """Listens to the first run of a checkpointed function, and drops what its nodes saved.

    When backward reaches one of them, the function runs again in the same surroundings with the
    same random state, and every node gets back what its twin in the second run saved.
    """

    def __init__(self, f: Callable[..., Any], inputs: tuple[Any, ...], context: Context) -> None:
        self.f = f
        self.inputs = inputs
        self.context = context
        self.began = next_number()
        self.nodes: list[ref[Node]] = []  # weak: the graph owns its nodes
        self.leaves: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # by id
        self.states: list[tuple[np.random.Generator, Any]] = []
        self.written: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self.effects: list[Any] = []  # what they gave, which the second run takes from here
        self.result: list[tuple[float, float]] = []
        self.name = getattr(f, "__name__", "f")

    def run(self) -> Any:
        """The first run. This listener is the first, so the others see nodes that saved nothing."""
        with use_context(Context(True, self.context.scope, (self, *self.context.listeners))):
            output = self.f(*self.inputs)
        self.result = _sums(output)
        return output

    def intercept_backward(self, output: Any, seed: Any, retain: bool) -> bool:
        raise GradientError(
            f"checkpoint: {self.name} calls backward(), which would add its gradients twice: "
            "backward runs it again"
        )

    def update_started(self, owner: Any, again: Callable[[], Any]) -> None:
        raise GradientError(
            f"checkpoint: {self.name} updates weights or gradients, which would happen twice: "
            "backward runs it again"
        )

    def tensor_assigned(self, tensor: Tensor, array: Any, index: Any = ...) -> None:
        self.written[id(tensor)] = tensor

    def effect_finished(self, result: Any) -> None:
        self.effects.append(result)

    def enter(self, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> None:
        for value in inputs:
            if isinstance(value, Tensor) and value.is_leaf:
                self.leaves[id(value)] = value
        for value in settings:
            known = any(value is generator for generator, _ in self.states)
            if isinstance(value, np.random.Generator) and not known:
                self.states.append((value, deepcopy(value.bit_generator.state)))

    def forward(self, op: Op, inputs: Any, settings: Any, output: Tensor, seconds: float) -> None:
        if output.node is not None:
            self.nodes.append(ref(output.node))
            if output.node.source is None:  # else a checkpoint within this one has it
                output.node.saved, output.node.source = None, self

    def recover(self, wanted: Node) -> tuple[Any, ...]:
        """Run again; give every node what its twin saved, and return what `wanted` had."""
        for leaf in self.leaves.values():
            writes.check_since(self.began, wanted, leaf.path or "an input", leaf._data)
        twins, result = self._run_again()
        nodes = [reference() for reference in self.nodes]
        same = len(nodes) == len(twins) and all(
            node is None or (node.op, node.shape) == (twin.op, twin.shape)
            for node, twin in zip(nodes, twins, strict=True)
        )
        if not same:
            raise GradientError(
                f"checkpoint: {self.name} took other steps when backward ran it again"
            )
        if not _agree(result, self.result):
            raise GradientError(
                f"checkpoint: {self.name} gave other numbers when backward ran it again; "
                "give the generator it draws from to an op, and let it change no state"
            )
        for node, twin in zip(nodes, twins, strict=True):
            if node is not None and node.source is self:
                node.saved, node.source = twin.saved, None
        return wanted.saved  # type: ignore[return-value]

    def _run_again(self) -> tuple[list[Node], list[tuple[float, float]]]:
        """Nodes and sums of a second run, after which all that it wrote is as it was."""
        second = _Keep(self.effects)
        leaves = [*self.written.values()]
        arrays = [leaf.numpy().copy() for leaf in leaves]
        now = [deepcopy(generator.bit_generator.state) for generator, _ in self.states]
        try:
            for generator, state in self.states:
                generator.bit_generator.state = state
            changing = [other for other in self.context.listeners if other.changes_values]
            with use_context(Context(True, self.context.scope, (second, *changing))):
                result = _sums(self.f(*self.inputs))
        finally:
            for (generator, _), state in zip(self.states, now, strict=True):
                generator.bit_generator.state = state
            for leaf, array in zip(leaves, arrays, strict=True):
                leaf.assign_(array)
        return second.nodes, result


def _sums(output: Any) -> list[tuple[float, float]]:
    """Σ |y| and Σ i yᵢ / n of each Tensor that a function returned, to compare two runs by."""
    several = output if isinstance(output, list | tuple) else [output]
    arrays = [one._data.reshape(-1) for one in several if isinstance(one, Tensor)]
    return [
        (float(np.abs(y).sum(dtype=float)), float(y.real @ np.linspace(0.0, 1.0, y.size)))
        for y in arrays
    ]


def _agree(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> bool:
    """Whether the sums of two runs are the same but for rounding."""
    return len(first) == len(second) and all(
        np.allclose(one, other, rtol=0.0, atol=np.nan_to_num(1e-5 * one[0]), equal_nan=True)
        for one, other in zip(first, second, strict=True)
    )


class _Keep(Listener):
    """Listens to the second run: keeps its nodes, and answers effects with their first results."""

    def __init__(self, effects: list[Any]) -> None:
        self.nodes: list[Node] = []
        self.effects = iter(effects)

    def effect_repeated(self) -> tuple[Any]:
        for result in self.effects:
            return (result,)
        raise GradientError("checkpoint: more was sent when backward ran the function again")

    def forward(self, op: Op, inputs: Any, settings: Any, output: Tensor, seconds: float) -> None:
        if output.node is not None:
            self.nodes.append(output.node)


def run_once(effect: Callable[[], Any]) -> Any:
    """What `effect` gives; within the second run of a checkpoint, what it gave in the first."""
    answers = [answer for answer in notify(Listener.effect_repeated) if answer is not None]
    result = answers[0][0] if answers else effect()
    notify(Listener.effect_finished, result)
    return result


def checkpoint(f: Callable[..., Any], *inputs: Any) -> Any:
    """f(*inputs), keeping none of its activations: backward runs f again to get them.

    The graph, its scopes and its random draws are those of a plain call; only memory and time
    differ. What f writes by `assign_` is written once, and what it sends to other ranks is sent
    once: what collectives give is kept. A generator that f draws from must be an
    argument of an op, as dropout's is.
    Raises: GradientError if f runs backward or updates weights; in backward if f takes other steps
        the second time, or gives other numbers.
    Source: Chen et al. 2016, arXiv:1604.06174.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> mg.checkpoint(lambda x: mg.exp(x * x).sum(), x).backward()
    >>> (x.grad / (2 * x.data * np.exp(x.data**2))).tolist()
    [1.0, 1.0]
    """
    context = current()
    return _Recompute(f, inputs, context).run() if context.recording else f(*inputs)
