"""Tensor: an array, the node that made it, and what Python asks of an object.

`Tensor.__apply__` is where an op meets a Tensor: it runs the kernel on the arrays and, if any input
needs a gradient, records one Node. Operators and methods are attached by `minigrad.ops`.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from .context import current
from .errors import ArgumentError, DTypeError, GradientError, MissingNameError, ShapeError
from .graph import KEEP, Breaker, Handle, Node, backpropagate
from .listener import Listener, notify
from .op import EXPLAINED, NUMERIC, Op, entries_of, is_foreign, is_masked, refuse_masked
from .refusals import NamedClass, explained, runs
from .writes import OUR_PACKAGES, DataView, caller, next_number, writes

__all__ = ["Tensor", "ones", "seed_of", "tensor", "zeros"]

_ndarray = np.ndarray
_AS_IS = {float, int, bool, complex, type(None)}
_frame = sys._getframe
UNPACKED = {  # what layers call their outputs, and how to have more of them
    "out": "attention layers return (out, weights) when called with return_weights=True",
    "O": "layers.scaled_dot_product_attention(Q, K, V) returns (O, A), its output and its weights",
    "H": "recurrent layers return (H, state) when called with return_state=True",
}
ON_DEMAND = 2  # of `_needs`: a gradient is computed only where it is asked for by name


class EntryCount(int):
    """The number of entries, as NumPy's `size` is; calling it says what to write."""

    __slots__ = ()

    def __call__(self, axis: int | None = None) -> Any:
        ours = "x.shape" if axis is None else f"x.shape[{axis}]"
        raise DTypeError(f"x.size is the number of entries, as in NumPy; write {ours}")

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A question about the entries, which is not recorded."""
    return lambda self, other: compare(_seen(self), _array(other))


class Habit:
    """A name that Tensor does not have: asked for, it says what to write.

    A `__getattr__` would slow down every attribute of every tensor.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        raise MissingNameError("'Tensor' object", self.name, "TENSORS")


class Habits:
    """Holds the names of habit, apart from Tensor's own; `minigrad.ops` fills it."""

    __slots__ = ()


class Tensor(Habits, metaclass=NamedClass):
    """An array that remembers how it was computed. `tensor(...)` makes one, ops make the others.

    Attributes:
        data: the NumPy array, as a view through which writing counts as `assign_`.
        grad: the gradient that `backward` left here, or None.
        node: the Node that made it, None for a leaf.  name: shown in every view.
    """

    # _shape and _dtype: of a leaf that needs a gradient, for the traversal; properties are slow
    __slots__ = (
        "__weakref__", "_data", "_dtype", "_hooks", "_name", "_needs", "_node", "_shape", "grad",
    )  # fmt: skip

    def __init__(self, data: Any, node: Node | None = None, needs: int = 0) -> None:
        if data.__class__ is not _ndarray and not isinstance(data, _ndarray):
            raise DTypeError(
                f"Tensor(data): takes an array, got {type(data).__name__}; write mg.tensor(data)"
            )
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
        context = current()
        if context.listeners:
            notify(Listener.tensor_used, inputs)
            inputs, settings = _other_arguments(context, op, inputs, settings)
        recording, key, arrays, edges = context.recording, 1, [], []
        for value in inputs:
            key *= 4
            if value.__class__ is Tensor:
                if recording and value._needs:
                    key += value._needs
                    edges.append(value._node or value)
                value = value._data
            elif value.__class__ is _ndarray:
                if value.dtype.kind not in NUMERIC:
                    op.array(value)  # raises
            elif value.__class__ not in _AS_IS:
                return _apply_again(op, inputs, settings)
            arrays.append(value)
        for value in settings:
            if value.__class__ is Tensor:
                settings = _unwrapped(op, settings)
                break
        if context.listeners:
            for listener in context.listeners:
                listener.enter(op, inputs, settings)
            start = perf_counter()
        chosen: Any = op
        overlay = op.overlay
        try:
            if overlay is not None and arrays and arrays[0].__class__ is _ndarray:
                when = overlay.when
                if arrays[0].size > overlay.above and (when is None or when(*arrays, *settings)):
                    chosen = overlay
            plan = chosen.plans.get(key) or chosen.plan(key)
            out, saved = plan.forward(*arrays, *settings)
        except EXPLAINED as error:
            raise op.explain(error, inputs, settings) from op.cause(error)
        if edges:
            frame = _frame(2)  # as caller() does, here without the call
            while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
                frame = frame.f_back
            node = Node()
            node.seq = seq = next_number()
            node.edges = edges if seq * 2654435761 & 0xF0000000 else Breaker(edges)
            node.plan, node.settings = plan, settings
            node.saved = saved
            node._shape, node._dtype, node.scope = out.shape, out.dtype, context.scope
            node.code, node.offset = frame.f_code, frame.f_lasti
            node.name = node.source = node.hooks = node.after = None
            result = Tensor(out, node, plan.needs)
        else:
            result = Tensor(out)
        if context.listeners:
            seconds = perf_counter() - start
            for listener in context.listeners:
                listener.forward(op, inputs, settings, result, seconds)
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The array, read-only: a write that is not counted could make a gradient wrong."""
        return np.array(self._shared("np.asarray"), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """The memory itself, marked read-only, for `np.from_dlpack` and the like.

        NumPy and JAX keep to the mark. PyTorch does not look at it, and what it writes there is not
        counted: write to a clone. Who asks in the form that has no mark yet gets a copy.
        """
        array = self._shared("__dlpack__")
        return (array if options.get("max_version") else array.copy()).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    def _shared(self, call: str) -> Any:
        """The array for a library that does not tell what it writes."""
        if self._needs and current().recording:
            raise GradientError(
                f"{call}({self.path or 'tensor'}): no other library would record what it does with "
                "a tensor that requires a gradient; write .numpy() or .detach() to leave the graph"
            )
        array = _seen(self, whole=True)
        if array is self._data:
            array = array.view()
            array.flags.writeable = False
        return array

    # ------------------------------------------------------------------ what it is

    @property
    def data(self) -> Any:
        array = _seen(self)
        if array is not self._data:  # handed over by a listener
            return array
        view = array.view(DataView)
        view.flags.writeable = False
        view.written = array
        return view

    @data.setter
    def data(self, array: Any) -> None:
        if array.__class__ is not DataView or array.written is not self._data:  # of x.data -= step
            self.assign_(array)

    def numpy(self) -> Any:
        """The array, as `data` is: nothing done with it is recorded, and writing to it counts."""
        return self.data

    @property
    def requires_grad(self) -> bool:
        return bool(self._needs)

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
        self._needs = int(bool(value))
        self._shape, self._dtype = self._data.shape, self._data.dtype
        if not value:  # or an optimizer would go on moving it
            self.grad = None

    def requires_grad_(self, flag: bool = True) -> Tensor:
        """Set `requires_grad` of a leaf, and return it."""
        self.requires_grad = flag
        return self

    node = property(attrgetter("_node"), doc="The Node that made it, None for a leaf.")
    shape = property(attrgetter("_data.shape"), doc="The array's shape.")
    dtype = property(attrgetter("_data.dtype"), doc="The array's dtype.")
    ndim = property(attrgetter("_data.ndim"), doc="Number of axes.")
    size = property(lambda self: EntryCount(self._data.size), doc="Number of entries.")

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
        if current().listeners:
            notify(Listener.tensor_named, self)
        return self

    @property
    def path(self) -> str:
        """Scope and name, for errors and views."""
        return self._node.path if self._node is not None else self._name or ""

    def item(self) -> Any:
        """The one entry as a Python number. Raises ShapeError if there are more."""
        if self._data.size != 1:
            raise ShapeError(
                f"item(): takes a tensor of one entry, got shape {self.shape}; write x.numpy(), or "
                "x.data.tolist()"
            )
        return _seen(self).item()

    def detach(self) -> Tensor:
        """The same array, cut from the graph: no gradient flows back through the result."""
        notify(Listener.tensor_used, (self,))
        cut = Tensor(self._data)
        cut._name = self.name
        notify(Listener.tensor_detached, cut)
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
        seed = seed_of("backward", self, gradient)
        listeners = current().listeners
        if listeners and any(notify(Listener.intercept_backward, self, seed, retain_graph)):
            return
        seed = getattr(seed, "_data", seed)
        seed = np.array(seed) if listeners else np.asarray(seed)  # one may keep it
        results = backpropagate([(self._node or self, seed)], retain=retain_graph)
        add_gradients(results)

    def retain_grad(self) -> None:
        """Keep this tensor's gradient in `.grad`, as a leaf's is."""
        self._refuse_without_gradient("retain_grad")
        if self._node is None:
            return
        kept = weakref.ref(self)

        def keep(gradient: Any) -> None:
            owner = kept()
            if owner is not None:
                array = gradient._data if isinstance(gradient, Tensor) else gradient
                add_gradients({owner: np.array(array)})

        if self._node.hooks is None:
            self._node.hooks = {}
        self._node.hooks[KEEP] = keep

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(gradient)` when the whole gradient is known; an array returned replaces it."""
        self._refuse_without_gradient("register_hook")
        owner: Any = self._node or self
        attribute = "hooks" if self._node is not None else "_hooks"
        if getattr(owner, attribute) is None:
            setattr(owner, attribute, {})
        return Handle(getattr(owner, attribute), hook)

    def _refuse_without_gradient(self, call: str) -> None:
        if not self._needs:
            raise GradientError(f"{call}: {self.path or 'this tensor'} does not require a gradient")

    def assign_(self, array: Any) -> Tensor:
        """Overwrite the entries in place: the one in-place write.

        Graphs that saved this memory before now refuse to run backward with the new values.

        Raises: ShapeError or DTypeError unless shape and dtype are this tensor's; GradientError on
            a computed tensor.
        """
        notify(Listener.tensor_used, (array,))
        if is_masked(array):
            raise refuse_masked("assign_(array)")
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
        notify(Listener.tensor_assigned, self, new)
        return self

    def cast_(self, dtype: Any) -> Tensor:
        """Give a leaf's entries another floating dtype, in new memory; its gradient is dropped."""
        if self._node is not None or {self.dtype.kind, np.dtype(dtype).kind} != {"f"}:
            raise DTypeError(f"cast_({dtype}): only floating leaves are cast, to floating dtypes")
        if self.dtype != dtype:
            self._data, self.grad = self._data.astype(dtype), None
            self._shape, self._dtype = self._data.shape, self._data.dtype
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._node is not None or current().recording:
            raise GradientError(
                "x[index] = value: tensors are not written in place while a graph is recorded; "
                "build a new one with where(), or write to a leaf within no_grad()"
            )
        if is_masked(value):
            raise refuse_masked("x[index] = value")
        new = _array(value)
        self._data[index] = new
        writes.note(self._data, caller())
        notify(Listener.tensor_assigned, self, new, index)

    # ------------------------------------------------------------------ as Python sees it

    __hash__ = object.__hash__

    __eq__: Any = _comparison(operator.eq)
    __ne__: Any = _comparison(operator.ne)
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)

    def __bool__(self) -> bool:
        return bool(_seen(self))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return _seen(self).__index__()  # type: ignore[no-any-return]

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.size != 1:
            raise ShapeError(
                f"format(x, {spec!r}): only one number has a format, got shape {self.shape}; "
                f"write np.array2string(x.numpy(), precision=3), or f'{{x.mean():{spec}}}'"
            )
        return format(self.item(), spec)

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Tensor]:
        if self._data.ndim == 0:
            raise ShapeError("iteration over a 0-d tensor")
        if self.name in UNPACKED and runs(_frame(1), "UNPACK_SEQUENCE"):
            raise ShapeError(
                f"unpacking {self.path} {self.shape}: it is one tensor, not several; "
                f"{UNPACKED[self.name]}"
            )
        return (self[i] for i in range(len(self._data)))

    def __pos__(self) -> Tensor:
        return self

    def __repr__(self) -> str:
        body = np.array2string(self._data, separator=", ", prefix="tensor(", threshold=50)
        notes = [f"dtype={self.dtype}"] if self.dtype != np.float64 else []
        notes += [f"name={self.name!r}"] if self.name else []
        notes += [f"op={self._node.op.name}"] if self._node is not None else []
        notes += ["requires_grad=True"] if self._needs and self._node is None else []
        return f"tensor({', '.join([body, *notes])})"

    def __reduce__(self) -> Any:
        if self._node is not None:
            raise GradientError(
                f"copy or pickle: {self.path} was computed by {self._node.op.name}, and a graph is "
                "not copied; take .detach(), or its array by .numpy()"
            )
        return _restored, (np.array(self._data, order="C"), self._needs, self._name, self.grad)

    if TYPE_CHECKING:  # attached in minigrad/__init__.py, and by minigrad/ops from the registry
        _repr_mimebundle_: Callable[..., dict[str, str]]
        T: Tensor
        mT: Tensor

        def __getattr__(self, method: str) -> Callable[..., Tensor]: ...

        def __getitem__(self, index: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__
        __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __add__


@explained
def tensor(
    data: Any,
    requires_grad: bool | str = False,
    name: str | None = None,
    dtype: Any = None,
) -> Tensor:
    """A leaf tensor holding a copy of `data`.

    Arrays keep their dtype, also those of other libraries (by DLPack); Python numbers and lists
    become float64 (booleans and integers too, unless they come as an array).

    Args:
        requires_grad: "on demand" computes its gradient only where `grad` asks for it.
        dtype: what to cast the entries to.
    Raises: DTypeError if a gradient is asked of anything but real floating entries, and for a
        masked array; GradientError for a list of tensors that need one.

    >>> import minigrad as mg
    >>> mg.tensor([1, 2])
    tensor([1., 2.])
    >>> mg.tensor(np.float32([1, 2]), requires_grad=True, name="w")
    tensor([1., 2.], dtype=float32, name='w', requires_grad=True)
    """
    if isinstance(data, Tensor):
        data = data._data
    if is_masked(data):
        raise refuse_masked("tensor(data)")
    typed = isinstance(data, np.ndarray | np.generic) or is_foreign(data)
    first = next(entries_of(data), None)
    if first is not data and is_foreign(first):
        kind = type(first).__name__
        raise DTypeError(f"tensor(data): a list of {kind}s; write mg.stack([mg.tensor(x) for …])")
    try:
        data = np.from_dlpack(data) if is_foreign(data) else data
        array = np.array(data)  # with an eye on its dtype: float64 would make None a NaN
        array = array.astype(np.float64) if not typed and array.dtype.kind in "biuf" else array
    except GradientError:
        raise GradientError(
            "tensor(data): a list of tensors that need a gradient would lose it; write mg.stack"
        ) from None
    except (ValueError, TypeError, OverflowError, BufferError, RuntimeError) as error:
        raise DTypeError(f"tensor(data): not an array of numbers: {error}") from error
    if array.dtype.kind not in "biufc":
        raise DTypeError(f"tensor(data): dtype must be numeric, got {array.dtype}")
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    made = Tensor(array)
    made.requires_grad = bool(requires_grad)
    shown = any(listener.shows_inputs for listener in current().listeners)
    if requires_grad == "on demand" and not shown:
        made._needs = ON_DEMAND
    made.name = name
    notify(Listener.leaf_created, made, data)
    return made


@explained
def zeros(
    *shape: Any, requires_grad: bool | str = False, name: str | None = None, dtype: Any = None
) -> Tensor:
    """A leaf of zeros, of float64 unless a dtype is given.

    >>> import minigrad as mg
    >>> mg.zeros((2, 3)).shape, mg.zeros(2, 3).shape
    ((2, 3), (2, 3))
    """
    return tensor(np.zeros(_shape_of("zeros", shape), dtype), requires_grad, name)


@explained
def ones(
    *shape: Any, requires_grad: bool | str = False, name: str | None = None, dtype: Any = None
) -> Tensor:
    """A leaf of ones, of float64 unless a dtype is given.

    >>> import minigrad as mg
    >>> mg.ones(3, requires_grad=True)
    tensor([1., 1., 1.], requires_grad=True)
    """
    return tensor(np.ones(_shape_of("ones", shape), dtype), requires_grad, name)


def _shape_of(call: str, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as one tuple, or as several integers."""
    shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int | np.integer) else sizes
    try:
        return tuple([operator.index(n) for n in shape])
    except TypeError:
        raise DTypeError(
            f"{call}(shape): a shape is integers, as in (2, 3), got {sizes!r}; a dtype goes by "
            "keyword: dtype=np.float32"
        ) from None


def seed_of(call: str, output: Tensor, gradient: Any) -> Any:
    """The gradient that starts a backward pass, checked; a Tensor only if one was given."""
    notify(Listener.tensor_used, (output,))
    if not isinstance(output, Tensor) or not output._needs:
        raise GradientError(
            f"{call}: the output requires no gradient: nothing it depends on has requires_grad=True"
        )
    if gradient is None:
        if output._data.size != 1:
            raise ShapeError(
                f"{call}: an output of shape {output.shape} needs a gradient of that shape; write "
                "out.sum().backward() or out.mean().backward(), or give one: out.backward(gradient)"
            )
        return np.ones(output.shape, output.dtype)
    if is_masked(gradient):
        raise refuse_masked(f"{call}(gradient)")
    if np.shape(gradient) != output.shape:
        raise ShapeError(
            f"{call}: the gradient's shape {np.shape(gradient)} is not the output's {output.shape}"
        )
    if isinstance(gradient, Tensor):
        return gradient if gradient.dtype == output.dtype else gradient.astype(output.dtype)
    return np.asarray(gradient, output.dtype)


_ADDING = Lock()


def add_gradients(results: dict[Any, Any]) -> None:
    """Add to each leaf's `.grad` an array that nobody else holds; other threads wait meanwhile."""
    with _ADDING:
        while results:
            leaf, total = results.popitem()
            leaf.grad = total if leaf.grad is None else np.asarray(leaf.grad + total)


def _restored(array: Any, needs: int, name: str | None, grad: Any) -> Tensor:
    """A leaf from its copy or its pickle."""
    made = Tensor(array, None, needs)
    made._name, made.grad = name, grad
    return made


_READY = {Tensor, _ndarray, *_AS_IS}


def _apply_again(op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Tensor:
    """The op on the same inputs, with arrays or Tensors for lists and the like."""
    ready = tuple([x if x.__class__ in _READY else op.array(x) for x in inputs])
    return Tensor.__apply__(op, ready, settings)


def _other_arguments(context: Any, op: Op, inputs: Any, settings: Any) -> tuple[Any, Any]:
    """The arguments as those who change values want them, once lists and the like are arrays."""
    for listener in context.listeners:
        if listener.changes_values and all(x.__class__ in _READY for x in inputs):
            inputs, settings = listener.change_arguments(op, inputs, settings)
    return inputs, settings


def _unwrapped(op: Op, settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Settings as plain values; no gradient flows into a setting, so none may be asked for."""
    for name, value in zip(op.settings, settings, strict=True):
        if isinstance(value, Tensor) and value._needs:
            raise GradientError(f"{op.name}: no gradient flows into {name}; pass {name}.detach()")
    return tuple(_array(value) for value in settings)


def _array(value: Any) -> Any:
    return _seen(value) if isinstance(value, Tensor) else value


def _seen(tensor: Tensor, whole: bool = False) -> Any:
    """A tensor's array, for someone outside the graph; whoever listens hears of it."""
    notify(Listener.tensor_used, (tensor,))
    answers = notify(Listener.data_read, tensor, tensor._data, whole)
    return next((array for array in answers if array is not None), tensor._data)
