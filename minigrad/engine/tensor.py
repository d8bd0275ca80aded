"""Tensor: an array, the node that made it, and NumPy's operators and methods.

`Tensor.__apply__` is where an op meets a Tensor: it runs the kernel on the arrays and, if any input
needs a gradient, records one Node.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter
from sys import getrefcount
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from ..fast.memory import ALONE, owns
from .context import current
from .errors import ArgumentError, DTypeError, GradientError, ShapeError
from .graph import KEEP, OUR_PACKAGES, Handle, Node, backpropagate, caller, next_number, writes
from .op import Op, registry

__all__ = ["Tensor", "grad", "tensor"]

_AS_IS = {np.ndarray, float, int, bool, complex, type(None)}
_QUESTIONS = {
    np.shape,
    np.ndim,
    np.size,
    np.result_type,
    np.iscomplexobj,
    np.isrealobj,
    np.allclose,
    np.array_equal,
}
_NUMPY_NAMES = {"absolute": "abs", "amax": "max", "amin": "min", "permute_dims": "transpose"}
_frame = sys._getframe


class Tensor:
    """An array that remembers how it was computed. `tensor(...)` makes one, ops make the others.

    Attributes:
        data: the NumPy array.  grad: the gradient that `backward` left here, or None.
        node: the Node that made it, None for a leaf.  name: shown in every view.
    """

    # _shape and _dtype: of a leaf that needs a gradient, for the traversal; properties are slow
    __slots__ = (
        "__weakref__",
        "_data",
        "_dtype",
        "_hooks",
        "_name",
        "_needs",
        "_node",
        "_shape",
        "grad",
    )

    def __init__(self, data: Any, node: Node | None = None, needs: bool = False) -> None:
        self._data, self._node, self._needs = data, node, needs
        if needs and node is None:
            self._shape, self._dtype = data.shape, data.dtype
        self.grad: Any = None
        self._name: str | None = None
        self._hooks: dict[int, Callable[[Any], Any]] | None = None

    # ------------------------------------------------------------------ an op meets a Tensor

    @staticmethod
    def __apply__(op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Tensor:
        """Run `op`, and record a node if an input needs a gradient."""
        context, key, given = current(), 1, inputs
        recording = context.recording
        for value in inputs:  # an octal digit of the plan's key for each
            key *= 8
            if value.__class__ is Tensor:
                key += 2 if value._needs and recording else 1
            elif value.__class__ not in _AS_IS:
                given = _arrayed(op, inputs)
        for value in settings:
            if value.__class__ is Tensor:
                settings = _unwrapped(op, settings)
                break
        if context.listeners:
            for listener in context.listeners:
                listener.enter(op, inputs, settings)
            start = perf_counter()
        plan = op.plans.get(key) or op.plan(key)
        try:
            out, saved, edges = plan.forward(*given, *settings)
        except (ValueError, TypeError, IndexError) as error:
            raise op.explain(error, inputs, settings) from error
        node = None
        if edges:
            frame = _frame(2)  # as caller() does, here without the call
            while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
                frame = frame.f_back
            node = Node()
            node.plan, node.edges, node.settings = plan, edges, settings
            node.saved = saved
            node._shape, node._dtype, node.scope = out.shape, out.dtype, context.scope
            node.code, node.offset = frame.f_code, frame.f_lasti
            node.seq = next_number()
            node.name = node.source = node.hooks = node.after = None
        result = Tensor(out, node, node is not None)
        if context.listeners:
            seconds = perf_counter() - start
            for listener in context.listeners:
                listener.forward(op, inputs, settings, result, seconds)
        return result

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """A NumPy ufunc on a Tensor is the op of that name: `np.exp(x)` records `exp`."""
        if {"d->?", "dd->?"}.intersection(ufunc.types):  # a comparison: a question, not a step
            return getattr(ufunc, method)(*map(_array, inputs), **kwargs)
        found = _op_like(ufunc)
        if method != "__call__" or found is None or kwargs:
            raise DTypeError(_not_recorded(f"np.{ufunc.__name__}", found))
        return found(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A NumPy function on a Tensor is the op of its name: `np.sum(x, axis=0)` records `sum`."""
        if function in _QUESTIONS:
            return function(*map(_array, args), **kwargs)
        found = _op_like(function)
        if found is None:
            raise DTypeError(_not_recorded(f"np.{function.__name__}", found))
        return found(*args, **kwargs)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(_seen(self, whole=True), dtype=dtype, copy=copy)

    # ------------------------------------------------------------------ what it is

    @property
    def data(self) -> Any:
        return _seen(self)

    @data.setter
    def data(self, array: Any) -> None:
        if array is self._data:  # x.data -= step: NumPy wrote in place already
            writes.note(array, caller())
        else:
            self.assign_(array)

    @property
    def requires_grad(self) -> bool:
        return self._needs

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._node is not None and not value:
            raise GradientError(
                f"requires_grad: {self.path} was computed by {self._node.op.name}; use detach()"
            )
        if value and self._data.dtype.kind != "f":
            raise DTypeError(
                f"requires_grad: only real floating tensors have gradients, got {self.dtype}"
            )
        self._needs = bool(value)
        self._shape, self._dtype = self._data.shape, self._data.dtype

    @property
    def node(self) -> Node | None:
        return self._node

    @property
    def is_leaf(self) -> bool:
        return self._node is None

    @property
    def name(self) -> str | None:
        return self._node.name if self._node is not None else self._name

    @name.setter
    def name(self, name: str | None) -> None:
        if name is not None:
            self.named(name)
            return
        self._name = None
        if self._node is not None:
            self._node.name = None

    def named(self, name: str) -> Tensor:
        """Give this tensor the name that views show, and return it.

        >>> import minigrad as mg
        >>> mg.tensor([1.0]).named("w").name
        'w'
        """
        if name.__class__ is not str or not name:
            raise ArgumentError(f"named(name): a name is a non-empty string, got {name!r}")
        self._name = name
        if self._node is not None:
            self._node.name = name
        return self

    @property
    def path(self) -> str:
        """Scope and name, for errors and views."""
        return self._node.path if self._node is not None else self._name or ""

    shape = property(attrgetter("_data.shape"), doc="The array's shape.")
    dtype = property(attrgetter("_data.dtype"), doc="The array's dtype.")
    ndim = property(attrgetter("_data.ndim"), doc="Number of axes.")
    size = property(attrgetter("_data.size"), doc="Number of entries.")

    def numpy(self) -> Any:
        """The array itself (not a copy); writing to it goes unseen, so use `assign_` for that."""
        return _seen(self)

    def item(self) -> Any:
        """The one entry as a Python number. Raises ShapeError if there are more."""
        if self._data.size != 1:
            raise ShapeError(f"item(): takes a tensor of one entry, got shape {self.shape}")
        return _seen(self).item()

    def detach(self) -> Tensor:
        """The same array, cut from the graph: no gradient flows back through the result."""
        cut = Tensor(self._data)
        cut._name = self.name
        return cut

    # ------------------------------------------------------------------ gradients

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add ∂L/∂leaf to `.grad` of every leaf this tensor depends on.

        Args:
            gradient: ∂L/∂self, of self's shape; may be left out when self has one entry (it is then
                1).
            retain_graph: keep the saved arrays, so that backward can run again.
        Raises: GradientError without a graph; ShapeError for a gradient of another shape;
            FreedGraphError the second time.

        >>> import minigrad as mg
        >>> x = mg.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> float(x.grad)
        6.0
        """
        seed, listeners = _seed("backward", self, gradient), current().listeners
        if listeners and any(one.intercept_backward(self, seed, retain_graph) for one in listeners):
            return
        seed = np.array(seed) if listeners else np.asarray(seed)  # a listener may keep it
        results = backpropagate([(self._node or self, seed)], retain=retain_graph)
        while results:
            leaf, total = results.popitem()
            if leaf.grad is not None:
                leaf.grad = np.asarray(leaf.grad + total)
            else:  # a leaf never shares its gradient: it is copied if anyone else holds it
                alone = getrefcount(total) == ALONE and owns(total)
                leaf.grad = total if alone else np.array(total)

    def retain_grad(self) -> None:
        """Keep this tensor's gradient in `.grad`, as a leaf's is."""
        if not self._needs:
            raise GradientError(
                f"retain_grad: {self.path or 'this tensor'} does not require a gradient"
            )
        if self._node is None:
            return
        kept = weakref.ref(self)

        def keep(gradient: Any) -> None:
            owner = kept()
            if owner is not None:
                array = gradient._data if isinstance(gradient, Tensor) else gradient
                owner.grad = np.array(array) if owner.grad is None else owner.grad + array

        if self._node.hooks is None:
            self._node.hooks = {}
        self._node.hooks[KEEP] = keep

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(gradient)` when the whole gradient is known; an array returned replaces it."""
        if not self._needs:
            raise GradientError(
                f"register_hook: {self.path or 'this tensor'} does not require a gradient"
            )
        owner: Any = self._node or self
        attribute = "hooks" if self._node is not None else "_hooks"
        if getattr(owner, attribute) is None:
            setattr(owner, attribute, {})
        return Handle(getattr(owner, attribute), hook)

    def assign_(self, array: Any) -> Tensor:
        """Overwrite the entries in place: the one in-place write.

        Graphs that saved this memory before now refuse to run backward with the new values.

        Raises: ShapeError or DTypeError unless shape and dtype are this tensor's; GradientError on
            a computed tensor.
        """
        new = array._data if isinstance(array, Tensor) else np.asarray(array)
        if self._node is not None:
            raise GradientError(
                f"assign_: {self.path} was computed by {self._node.op.name}; "
                "only leaves are written"
            )
        if new.shape != self.shape:
            raise ShapeError(
                f"assign_(array): {self.path or 'tensor'} has shape {self.shape}, got {new.shape}"
            )
        if new.dtype != self.dtype:
            raise DTypeError(
                f"assign_(array): {self.path or 'tensor'} has dtype {self.dtype}, got {new.dtype}"
            )
        self._data[...] = new
        writes.note(self._data, caller())
        for listener in current().listeners:
            listener.assigned(self, new)
        return self

    # ------------------------------------------------------------------ as NumPy and Python see it

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return _seen(self) == _array(other)

    def __ne__(self, other: object) -> Any:
        return _seen(self) != _array(other)

    def __lt__(self, other: Any) -> Any:
        return _seen(self) < _array(other)

    def __le__(self, other: Any) -> Any:
        return _seen(self) <= _array(other)

    def __gt__(self, other: Any) -> Any:
        return _seen(self) > _array(other)

    def __ge__(self, other: Any) -> Any:
        return _seen(self) >= _array(other)

    def __bool__(self) -> bool:
        return bool(_seen(self))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return _seen(self).__index__()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Tensor]:
        if self._data.ndim == 0:
            raise ShapeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self._data)))

    def __pos__(self) -> Tensor:
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        raise GradientError(
            "x[index] = value: tensors are not written in place; build a new one with where()"
        )

    def __repr__(self) -> str:
        body = np.array2string(self._data, separator=", ", prefix="tensor(", threshold=50)
        notes = [f"dtype={self.dtype}"] if self.dtype != np.float64 else []
        notes += [f"name={self.name!r}"] if self.name else []
        notes += [f"op={self._node.op.name}"] if self._node is not None else []
        notes += ["requires_grad=True"] if self._needs and self._node is None else []
        return f"tensor({', '.join([body, *notes])})"

    def __reduce__(self) -> Any:
        raise GradientError("pickle: tensors are not pickled; save x.numpy()")

    if TYPE_CHECKING:  # attached in minigrad/tracing.py
        _repr_mimebundle_: Callable[..., dict[str, str]]

    if TYPE_CHECKING:  # attached in minigrad/ops/__init__.py, from the registry
        T: Tensor
        mT: Tensor

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __getattr__(self, method: str) -> Callable[..., Tensor]: ...


def tensor(data: Any, requires_grad: bool = False, name: str | None = None) -> Tensor:
    """A leaf tensor holding a copy of `data`.

    Arrays keep their dtype; Python numbers and lists become float64 (booleans and integers too,
    unless they come as an array). Raises: DTypeError if a gradient is asked of anything but real
    floating entries.

    >>> import minigrad as mg
    >>> mg.tensor([1, 2])
    tensor([1., 2.])
    >>> mg.tensor(np.float32([1, 2]), requires_grad=True, name="w")
    tensor([1., 2.], dtype=float32, name='w', requires_grad=True)
    """
    if isinstance(data, Tensor):
        data = data._data
    typed = isinstance(data, np.ndarray | np.generic)
    try:
        array = np.array(data)  # with an eye on its dtype: float64 would make None a NaN
        array = array.astype(np.float64) if not typed and array.dtype.kind in "biuf" else array
    except (ValueError, TypeError) as error:
        raise DTypeError(f"tensor(data): not an array of numbers: {error}") from error
    if array.dtype.kind not in "biufc":
        raise DTypeError(f"tensor(data): dtype must be numeric, got {array.dtype}")
    made = Tensor(array)
    made.requires_grad = requires_grad
    made.name = name
    for listener in current().listeners:
        listener.made(made, data)
    return made


def grad(output: Tensor, inputs: Any, grad_output: Any = None, create_graph: bool = False) -> Any:
    """∂output/∂inputs, without touching any `.grad`.

    Args:
        output: a tensor; unless it has one entry, `grad_output` (of its shape) is needed.
        inputs: one tensor or a sequence of them, leaves or computed.
        create_graph: return Tensors that are recorded themselves, for derivatives of derivatives.
            The graph is kept then; otherwise it is freed, and arrays are returned.
    Returns: one gradient, or a list, like `inputs`; zeros for an input that `output` does not
        depend on.

    >>> import minigrad as mg
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> first = mg.grad(x**3, x, create_graph=True)
    >>> float(mg.grad(first, x))
    12.0
    """
    single = isinstance(inputs, Tensor)
    wanted: list[Tensor] = [inputs] if single else list(inputs)
    for i, x in enumerate(wanted):
        if not isinstance(x, Tensor) or not x._needs:
            raise GradientError(
                f"grad(output, inputs): inputs[{i}] is no tensor that requires a gradient"
            )
    seed = _seed("grad", output, grad_output)
    if not create_graph:
        seed = np.array(seed)  # a listener may keep it
    elif not isinstance(seed, Tensor):
        seed = Tensor(seed)
    results = backpropagate(
        [(output._node or output, seed)],
        retain=create_graph,
        targets=[x._node or x for x in wanted],
        run=_recorded if create_graph else None,
    )
    found = [results.get(x._node or x) for x in wanted]
    arrays = [
        np.zeros(x.shape, x.dtype) if g is None else g for x, g in zip(wanted, found, strict=True)
    ]
    if create_graph:
        arrays = [g if isinstance(g, Tensor) else Tensor(np.asarray(g)) for g in arrays]
    else:
        arrays = [np.array(g) for g in arrays]
    return arrays[0] if single else arrays


def _seed(call: str, output: Tensor, gradient: Any) -> Any:
    """The gradient that starts a backward pass, checked; a Tensor only if one was given."""
    if not isinstance(output, Tensor) or not output._needs:
        raise GradientError(
            f"{call}: the output requires no gradient: nothing it depends on has requires_grad=True"
        )
    if gradient is None:
        if output.size != 1:
            raise ShapeError(
                f"{call}: an output of shape {output.shape} needs a gradient of that shape"
            )
        return np.ones(output.shape, output.dtype)
    if np.shape(gradient) != output.shape:
        raise ShapeError(
            f"{call}: the gradient's shape {np.shape(gradient)} is not the output's {output.shape}"
        )
    if isinstance(gradient, Tensor):
        return gradient if gradient.dtype == output.dtype else gradient.astype(output.dtype)
    return np.asarray(gradient, output.dtype)


def _recorded(
    node: Node, rules: Callable[..., Any], gradient: Any, saved: tuple[Any, ...]
) -> tuple[Any, ...]:
    """A node's rules on Tensors: what it saved, its inputs and output in the graph again."""
    lifted = []
    for name, value in zip(node.plan.names, saved, strict=True):
        position = node.plan.input_of(name)
        if name == "out":
            value = Tensor(value, node, True)
        elif position in node.plan.needed:
            edge = node.edges[node.plan.needed.index(position)]
            value = Tensor(value, edge, True) if isinstance(edge, Node) else edge
        lifted.append(value)
    return rules(gradient, tuple(lifted))  # type: ignore[no-any-return]


def _arrayed(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, with arrays for lists and the like."""
    as_is = {Tensor, *_AS_IS}
    return tuple([x if x.__class__ in as_is else op.array(x) for x in inputs])


def _unwrapped(op: Op, settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Settings as plain values; no gradient flows into a setting, so none may be asked for."""
    for name, value in zip(op.settings, settings, strict=True):
        if isinstance(value, Tensor) and value._needs:
            raise GradientError(f"{op.name}: no gradient flows into {name}; pass {name}.detach()")
    return tuple(_array(value) for value in settings)


def _op_like(function: Any) -> Op | None:
    """The op that has a NumPy function's name."""
    name: str = function.__name__
    return registry.get(_NUMPY_NAMES.get(name, name))


def _array(value: Any) -> Any:
    return _seen(value) if isinstance(value, Tensor) else value


def _seen(tensor: Tensor, whole: bool = False) -> Any:
    """A tensor's array, for someone outside the graph; whoever listens hears of it."""
    array = tensor._data
    for listener in current().listeners:
        array = listener.read(tensor, array, whole)
    return array


def _not_recorded(name: str, found: Op | None) -> str:
    remedy = (
        f"call minigrad.{found.name} with its own arguments"
        if found
        else "use x.numpy() to leave the graph"
    )
    return f"{name} on a Tensor would not be recorded; {remedy}"
