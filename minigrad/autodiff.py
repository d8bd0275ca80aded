"""Derivatives: grad of a graph; vjp, jvp, hvp and jacobian of a function.

vjp, jvp, hvp and jacobian call `f` on fresh leaves that hold the inputs' values, so they leave no
`.grad` and need no `requires_grad`. `inputs` is one array or Tensor, or a sequence of them; results
have the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .engine.backward import backpropagate, seed_of
from .engine.context import enable_grad, say
from .engine.declaration import Gradient
from .engine.errors import DTypeError, GradientError, ShapeError
from .engine.node import Node
from .engine.op import Array, array_of, checked_array
from .engine.tensor import Operand, Tensor, mark_constant, tensor

__all__ = ["grad", "hvp", "jacobian", "jvp", "vjp"]

Inputs: TypeAlias = "Operand | Sequence[Operand]"  # one input of a function, or all of them
Gradients: TypeAlias = Any  # an array or a Tensor, or a list of them, as the inputs are


def grad(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor] = (),
    grad_output: Operand | None = None,
    create_graph: bool = False,
    *,
    retain_graph: bool = False,
) -> Gradients:
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
    if not isinstance(output, Tensor):
        raise DTypeError(
            "grad(output, inputs): the output must be a Tensor, got a "
            f"{type(output).__name__}; of a function write mg.vjp(f, x)"
        )
    single = isinstance(inputs, Tensor) or not isinstance(inputs, Iterable)
    wanted: list[Any] = [inputs] if single else list(inputs)
    if not wanted:
        raise GradientError("grad(output, inputs): there is no input to differentiate by")
    for i, x in enumerate(wanted):
        if not isinstance(x, Tensor) or not x.requires_grad:
            raise GradientError(
                f"grad(output, inputs): inputs[{i}] is no tensor that requires a gradient"
            )
    seed = seed_of("grad", output, grad_output)
    if create_graph:
        seed = seed if isinstance(seed, Tensor) else Tensor(seed)
    else:
        seed = array_of(seed)
        say("grad", output=output, seed=seed)
        seed = np.array(seed)  # it may be the gradient of an input
    gradients = _backpropagated(output, seed, wanted, create_graph, retain_graph)
    if not create_graph:
        for answer in say("found", wanted=wanted, gradients=gradients):
            gradients = answer or gradients
    return gradients[0] if single else gradients


def _backpropagated(
    output: Tensor, seed: Any, wanted: list[Tensor], create_graph: bool, retain_graph: bool
) -> list[Gradient]:
    targets = [x.node or x for x in wanted]
    by_target = backpropagate(
        output.node or output,
        seed,
        retain=create_graph or retain_graph,
        targets=frozenset(targets),
        lift=lifted if create_graph else None,
    )
    gradients: list[Gradient] = []
    for x, target in zip(wanted, targets, strict=True):
        g = by_target.get(target)
        if g is None:
            g = mark_constant(np.zeros(x.shape, x.dtype))
        if create_graph:
            gradients.append(g if isinstance(g, Tensor) else Tensor(np.asarray(g)))
        else:
            is_own = x.is_leaf and not any(g is other for other in gradients)
            gradients.append(np.asarray(g) if is_own else np.array(g))
    return gradients


def lifted(node: Node) -> list[Any]:
    """What a node saved, with Tensors for its result and for the inputs that need a gradient."""
    edges = dict(zip(node.plan.names, node.edges, strict=True)) | {"out": node}

    def tensor_of(name: str, value: Any) -> Any:
        edge = edges.get(name)
        if edge is None:
            return Tensor(value).read() if isinstance(value, np.ndarray) else value
        return Tensor(value, edge, edge.needs) if isinstance(edge, Node) else edge

    several = ("others", node.op.inputs[0]) if node.op.variadic else ()  # what these names hold
    tensors = []
    for name, value in zip(node.plan.saves, node.saved or (), strict=True):
        if name.rstrip("0123456789") in several:
            value = [tensor_of(node.op.input_name(i), x) for i, x in enumerate(value)]
        tensors.append(tensor_of(name, value))
    return tensors


def grad_or_zeros(
    output: object,
    inputs: list[Tensor],
    grad_output: Operand | None = None,
    create_graph: bool = False,
) -> list[Gradient]:
    """`grad`, or zeros where the output depends on none of the inputs."""
    if isinstance(output, Tensor) and output.requires_grad:
        return grad(output, inputs, grad_output, create_graph)
    return [np.zeros(x.shape, x.dtype) for x in inputs]


# ---------------------------------------------------------------- of a function


def vjp(
    f: Callable[..., Tensor], inputs: Inputs, grad_output: Operand | None = None
) -> tuple[Array, Gradients]:
    """f(inputs), and grad_outputᵀ · ∂f/∂inputs: reverse mode, one backward pass.

    `grad_output` may be left out when f returns one entry.

    >>> import minigrad as mg
    >>> out, g = mg.vjp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    >>> g
    array([ 2., 40.])
    """
    leaves, single, output = _call("vjp", f, inputs)
    gradients = grad_or_zeros(output, leaves, grad_output)
    return output.numpy(), gradients[0] if single else gradients


def jvp(f: Callable[..., Tensor], inputs: Inputs, tangents: Inputs) -> tuple[Array, Array]:
    """f(inputs), and ∂f/∂inputs · tangents: forward mode, as the vjp of a vjp.

    The vjp is linear in its cotangent u, so its own vjp in u is the Jacobian itself, applied to the
    tangents.

    >>> import minigrad as mg
    >>> out, t = mg.jvp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    >>> t
    array([ 2., 40.])
    """
    leaves, single, output = _call("jvp", f, inputs)
    along = _like("jvp", "tangents", tangents, leaves, single)
    u = tensor(np.zeros(output.shape, output.dtype), requires_grad=True)
    return output.numpy(), grad_or_zeros(slope(output, leaves, along, u), [u])[0]


def hvp(f: Callable[..., Tensor], inputs: Inputs, vectors: Inputs) -> tuple[Array, Gradients]:
    """f(inputs), one entry, and ∂²f/∂inputs² · vectors, without the matrix.

    >>> import minigrad as mg
    >>> out, h = mg.hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    >>> h
    array([ 6., 12.])
    """
    leaves, single, output = _call("hvp", f, inputs)
    along = _like("hvp", "vectors", vectors, leaves, single)
    products = grad_or_zeros(slope(output, leaves, along), leaves)
    return output.numpy(), products[0] if single else products


def jacobian(f: Callable[..., Tensor], inputs: Inputs) -> Gradients:
    """∂f/∂inputs whole, of shape f.shape + input.shape: one backward pass for each entry of f.

    >>> import minigrad as mg
    >>> mg.jacobian(lambda x: x[::-1] * 2, np.array([1.0, 2.0]))
    array([[0., 2.],
           [2., 0.]])
    """
    leaves, single, output = _call("jacobian", f, inputs)
    rows = [np.zeros((output.size, *x.shape), x.dtype) for x in leaves]
    for i in range(output.size if output.requires_grad else 0):
        seed = np.zeros(output.size, output.dtype)
        seed[i] = 1
        gradients = grad(output, leaves, seed.reshape(output.shape), retain_graph=True)
        for row, gradient in zip(rows, gradients, strict=True):
            row[i] = gradient
    whole = [row.reshape(output.shape + x.shape) for row, x in zip(rows, leaves, strict=True)]
    return whole[0] if single else whole


def slope(
    output: Tensor, leaves: list[Tensor], along: Sequence[Array], u: Operand | None = None
) -> Any:
    """The derivative of ⟨u, output⟩ along these vectors, one for each leaf, in the graph."""
    with enable_grad():
        gradients = grad_or_zeros(output, leaves, u, create_graph=True)
        return sum((g * v).sum() for g, v in zip(gradients, along, strict=True))


def _call(call: str, f: Callable[..., Tensor], inputs: Inputs) -> tuple[list[Tensor], bool, Tensor]:
    """Leaves that hold the inputs, whether there was one, no sequence, and f of them."""
    single = not isinstance(inputs, list | tuple)
    values: Any = [inputs] if single else inputs
    leaves = [tensor(x, requires_grad=True, name=getattr(x, "name", None)) for x in values]
    with enable_grad():
        output = f(*leaves)
    if not isinstance(output, Tensor):
        raise GradientError(f"{call}: f must return a Tensor, got {type(output).__name__}")
    return leaves, single, output


def _like(call: str, name: str, vectors: Any, leaves: list[Tensor], single: bool) -> list[Array]:
    """The vectors as one array for each leaf, of its shape."""
    if single:
        vectors = [vectors]
    arrays = [checked_array(f"{call}: {name}", array_of(vector)) for vector in vectors]
    shapes = [array.shape for array in arrays]
    expected = [x.shape for x in leaves]
    if shapes != expected:
        raise ShapeError(f"{call}: {name} must have shapes {expected}, got {shapes}")
    return [array.astype(x.dtype) for array, x in zip(arrays, leaves, strict=True)]
