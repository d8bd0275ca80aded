"""Tensor: an array that remembers how it was computed; and `run_op`, by which an op runs on it.

What Python and NumPy need of an array, minigrad/array_protocol.py attaches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .backward import backpropagate, seed_of
from .context import current, say
from .declaration import Arguments
from .errors import ArgumentError, DTypeError, GradientError, ShapeError, kind_of
from .node import ON_DEMAND, Edge, Handle, Node, Retained, add_gradients
from .op import EXPLAINED, NUMBERS, NUMERIC, Array, Axes, Op, array_of, checked_array, users_frame
from .plan import plan_of
from .writes import next_number, writes

__all__ = [
    "Operand", "SameArray", "Tensor", "TensorOrArray", "clear_gradients", "expect_gradients",
    "is_marked_parameter", "leaf_on_demand", "mark_constant", "mark_input", "mark_parameter",
    "ones", "run_op", "tensor", "zeros",
]  # fmt: skip

Operand: TypeAlias = "Tensor | ArrayLike"  # what an op takes
TensorOrArray: TypeAlias = "Tensor | Array"
SameArray = TypeVar("SameArray", bound=TensorOrArray)  # a Tensor for a Tensor, else an array

ndarray = np.ndarray
_getframe = sys._getframe
new = object.__new__


class Tensor:
    """An array that remembers how it was computed. `tensor(...)` makes one, ops make the others.

    Attributes:
        grad: the gradient that `backward` left here, or None.
        node: the Node that made it, None for a leaf.
        needs: 0 if it needs no gradient; else see `Node`.
    """

    __slots__ = (
        "__weakref__", "_data", "_name", "grad", "hooks", "is_parameter", "needs", "node",
        "undivided",
    )  # fmt: skip

    __apply__: Callable[[Op, Arguments, Arguments], Tensor]
    is_parameter: bool  # see `mark_parameter`; of most tensors it is never set
    undivided: str  # of what a layer gave in place of two: the layer's argument that gives two

    def __init__(self, data: Array, node: Node | None = None, needs: int = 0) -> None:
        if data.__class__ is not ndarray:
            kind = type(data).__name__
            raise DTypeError(f"Tensor(data): data is an array, got {kind}; write mg.tensor(data)")
        self._data = data
        self.node = node
        self.needs = needs
        self.grad: Array | None = None
        self.hooks: list[Callable[[Any], Any]] | None = None
        self._name: str | None = None

    shape = property(attrgetter("_data.shape"), doc="The array's shape.")
    dtype = property(attrgetter("_data.dtype"), doc="The array's dtype.")
    ndim = property(attrgetter("_data.ndim"), doc="Number of axes.")
    size = property(attrgetter("_data.size"), doc="Number of entries.")

    # ------------------------------------------------------------------ its place in the graph

    @property
    def is_leaf(self) -> bool:
        return self.node is None

    @property
    def requires_grad(self) -> bool:
        return self.needs > 0

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self.node is not None and not value:
            by = self.node.op.name
            raise GradientError(f"requires_grad: {self.path} was computed by {by}; use detach()")
        if value and self.dtype.kind != "f":
            raise DTypeError(f"requires_grad: only real floats have gradients, got {self.dtype}")
        self.needs = int(bool(value))
        self.grad = self.grad if value else None  # or an optimizer would go on moving it

    @property
    def name(self) -> str | None:
        return self._name if self.node is None else self.node.name

    @name.setter
    def name(self, name: str) -> None:
        self.named(name)

    def named(self, name: str) -> Tensor:
        """Give this tensor the name that views show, and return it.

        An observer may give another tensor back, as `mg.replace` does; so go on with the result.

        >>> import minigrad as mg
        >>> mg.tensor([1.0]).named("w").name
        'w'
        """
        if name.__class__ is not str or not name:
            raise ArgumentError(f"named(name): a name is a non-empty string, got {name!r}")
        self._name = name
        if self.node is not None:
            self.node.name = name
        named = self
        for observer in current().observers:
            other = observer.named(named)
            named = named if other is None else other
        return named

    @property
    def path(self) -> str:
        """Scope and name, for errors and views."""
        return self.node.path if self.node is not None else self._name or ""

    def detach(self) -> Tensor:
        """The same array, cut from the graph: no gradient flows back through the result."""
        cut = Tensor(self._data)
        cut._name = self.name
        return cut

    # ------------------------------------------------------------------ gradients

    def backward(self, gradient: Operand | None = None, retain_graph: bool = False) -> None:
        """Add ∂L/∂leaf to `.grad` of every leaf this tensor depends on.

        Args:
            gradient: ∂L/∂self, of self's shape; 1 unless given, where self has one entry.
            retain_graph: keep what was saved, so that backward can run again.
        Raises: GradientError without a graph; ShapeError for a gradient of another shape;
            FreedGraphError the second time; OverwrittenError if an array that it needs was written.

        >>> import minigrad as mg
        >>> x = mg.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> float(x.grad)
        6.0
        """
        seed = seed_of("backward", self, gradient)
        observed = bool(current().observers)
        if observed:
            say("backward", output=self, seed=seed)
            seed = np.array(array_of(seed))  # an observer may keep it
        seed = array_of(seed)
        gradients = backpropagate(self.node or self, seed, retain=retain_graph)
        add_gradients(gradients)
        if observed:
            say("added", gradients=gradients)

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(gradient)` when the whole gradient is known; an array returned replaces it.

        Returns: a handle, whose `remove()` takes the hook off again.
        """
        if not self.needs:
            raise GradientError(f"register_hook: {self.path or 'this'} does not require a gradient")
        return Handle(self.node or self, hook)

    def retain_grad(self) -> None:
        """Keep this tensor's gradient in `.grad`, as a leaf's is."""
        if not self.needs:
            raise GradientError(f"retain_grad: {self.path or 'this'} does not require a gradient")
        if self.node is not None:
            self.register_hook(Retained(self))

    # ------------------------------------------------------------------ entries

    def read(self) -> Array:
        """The array itself, for use outside the graph; an observer may replace it."""
        if current().observers:
            for array in say("read", tensor=self, array=self._data):
                if array is not None:
                    return array
        return self._data

    def numpy(self) -> Array:
        """The array, read-only: a write that is not noted could make a gradient wrong."""
        array = self.read()
        if array is self._data:
            array = array.view()
            array.flags.writeable = False
        return array

    def item(self) -> float:
        """The one entry as a Python number. Raises: ShapeError if there are more."""
        if self.size != 1:
            raise ShapeError(
                f"item(): takes a tensor of one entry, got shape {self.shape}; write x.numpy()"
            )
        return self.read().item()

    @property
    def data(self) -> Array:
        return self.numpy()

    def assign_(self, array: Operand) -> Tensor:
        """Overwrite the entries in place: the one in-place write.

        Graphs that saved this memory before now refuse to run backward with the new values.

        Raises: ShapeError or DTypeError unless shape and dtype are this tensor's; GradientError on
            a computed tensor.
        """
        what = f"assign_(array): {self.path or 'the tensor'}"
        fresh = checked_array("assign_(array)", array_of(array))
        if self.node is not None:
            by = self.node.op.name
            raise GradientError(f"{what} was computed by {by}; only leaves are written")
        if fresh.shape != self.shape:
            raise ShapeError(f"{what} has shape {self.shape}, got {fresh.shape}")
        if fresh.dtype != self.dtype:
            raise DTypeError(f"{what} has dtype {self.dtype}, got {fresh.dtype}")
        if current().observers:
            say("write", tensor=self, array=fresh)
        self._data[...] = fresh
        writes.note(self._data)
        return self

    def __repr__(self) -> str:
        body = np.array2string(self._data, separator=", ", prefix="tensor(", threshold=50)
        notes = [body]
        if self.dtype != np.float64:
            notes.append(f"dtype={self.dtype}")
        if self.name:
            notes.append(f"name={self.name!r}")
        if self.node is not None:
            notes.append(f"op={self.node.op.name}")
        elif self.needs:
            notes.append("requires_grad=True")
        return f"tensor({', '.join(notes)})"

    if TYPE_CHECKING:  # attached by minigrad/array_protocol.py
        T: Tensor
        mT: Tensor

        def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor: ...
        def reshape(self, *shape: int | Sequence[int]) -> Tensor: ...
        def swapaxes(self, axis1: int, axis2: int) -> Tensor: ...
        def astype(self, dtype: DTypeLike) -> Tensor: ...
        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __iter__(self) -> Iterator[Tensor]: ...
        def __len__(self) -> int: ...
        def __float__(self) -> float: ...
        def __neg__(self) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Any: ...

        max = mean = min = prod = sum
        transpose = reshape
        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __add__
        __le__ = __gt__ = __ge__ = __lt__


# ---------------------------------------------------------------- an op runs on Tensors


def run_op(op: Op, inputs: Arguments, settings: Arguments) -> Tensor:
    """Run an op on Tensors, arrays and numbers; make a Node if one of them needs a gradient."""
    around = current()
    observers, recording = around.observers, around.recording
    if observers:
        for observer in observers:
            changed = observer.before(op, inputs, settings)
            inputs = inputs if changed is None else changed
        start = perf_counter()
    arrays: list[Any] = []
    edges: list[Edge] = []
    needed, bit = 0, 1  # a bit for each input, 1 if it needs a gradient: see `plan_of`
    needs = 0
    for x in inputs:
        if x.__class__ is Tensor:
            if recording and x.needs:
                needed |= bit
                needs |= x.needs
                edges.append(x.node or x)
            x = x._data
        elif x.__class__ is ndarray:
            if x.dtype.kind not in NUMERIC:
                checked_array(op, x)  # raises
        elif x.__class__ not in NUMBERS:
            array = checked_array(op, x)  # a scalar of NumPy widens float32 no more than Python's
            x = array.item() if isinstance(x, np.generic) else array
        arrays.append(x)
        bit += bit

    try:
        chosen = op if op.faster is None else op.choose(arrays, settings)
        out = chosen.flat(*arrays, *settings)
    except EXPLAINED as error:
        raise op.explain(error, inputs, settings) from op.cause(error)
    by_products: Sequence[Any] = ()
    if chosen.auxiliary:
        out, *by_products = out
    if out.__class__ is not ndarray:
        out = np.asarray(out)

    result = new(Tensor)  # in place of Tensor(...), which takes twice as long
    result._data = out
    result.node = None
    result.needs = needs
    result.grad = result.hooks = result._name = None
    if edges:
        node = result.node = new(Node)
        node.number = next_number()
        node.op = op
        node.settings = settings
        node.plan = plan = chosen.plans.get(needed) or plan_of(chosen, needed)
        if op.variadic:
            arrays = [arrays]
        node.saved = plan.take(*arrays, *settings, out, *by_products)
        node.edges = edges
        node.shape = out.shape
        node.dtype = out.dtype
        node.needs = needs
        frame = users_frame(_getframe(2))  # from whoever called the op
        node.call = around.call
        node.code = frame.f_code
        node.offset = frame.f_lasti
        node.name = node.hooks = None
    if observers:
        seconds = perf_counter() - start
        for observer in observers:
            other = observer.made(op, inputs, settings, result, seconds)
            result = result if other is None else other
    return result


Tensor.__apply__ = staticmethod(run_op)


# ---------------------------------------------------------------- where gradients begin and end


def tensor(
    data: Operand,
    requires_grad: bool = False,
    name: str | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """A leaf tensor holding a copy of `data`.

    Arrays keep their dtype; Python numbers and lists become float64.

    Args:
        dtype: what to cast the entries to.
    Raises: DTypeError for what is no array of numbers, and if a gradient is asked of anything but
        real floating entries.

    >>> import minigrad as mg
    >>> mg.tensor([1, 2])
    tensor([1., 2.])
    >>> mg.tensor(np.float32([1, 2]), requires_grad=True, name="w")
    tensor([1., 2.], dtype=float32, name='w', requires_grad=True)
    """
    entries = array_of(data)
    array = np.array(checked_array("tensor(data)", entries))
    if dtype is None and not hasattr(entries, "dtype") and array.dtype.kind != "c":
        dtype = np.float64
    if dtype is not None:
        try:
            array = array.astype(dtype, copy=False)
        except TypeError as error:
            raise DTypeError(f"tensor(data): {error}") from None
        checked_array("tensor(data)", array)  # raises
    leaf = Tensor(array)
    if not isinstance(requires_grad, int | np.bool_):
        raise ArgumentError(f"tensor(data): requires_grad is True or False, got {requires_grad!r}")
    leaf.requires_grad = requires_grad
    if name is not None:
        leaf.named(name)
    if current().observers:
        say("leaf", leaf=leaf, data=entries)
    return leaf


def leaf_on_demand(data: Array, name: str) -> Tensor:
    """A leaf whose gradient is computed where `grad` asks for it, or an observer shows it.

    So a layer that is called on an array can say ∂L/∂X, and a training step does not pay for it.
    """
    leaf = tensor(data, requires_grad=True, name=name)
    if not any(observer.shows_inputs for observer in current().observers):
        leaf.needs = ON_DEMAND
    return leaf


def zeros(*shape: int | Sequence[int], **options: Any) -> Tensor:
    """A leaf of zeros, of float64 unless a dtype is given; options as of `tensor`.

    >>> import minigrad as mg
    >>> mg.zeros((2, 3)).shape, mg.zeros(2, 3).shape
    ((2, 3), (2, 3))
    """
    return _filled(np.zeros, shape, options)


def ones(*shape: int | Sequence[int], **options: Any) -> Tensor:
    """A leaf of ones, of float64 unless a dtype is given; options as of `tensor`.

    >>> import minigrad as mg
    >>> mg.ones(3, requires_grad=True)
    tensor([1., 1., 1.], requires_grad=True)
    """
    return _filled(np.ones, shape, options)


def _filled(fill: Callable[..., Array], shape: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """A leaf whose shape is given as one tuple, or as several integers."""
    try:
        array = fill(shape[0] if len(shape) == 1 else shape)
    except (TypeError, ValueError) as error:
        raise kind_of(error)(
            f"{fill.__name__}(shape): a shape is integers, as in (2, 3), and a dtype goes by "
            f"keyword: dtype=np.float32; got {shape}: {error}"
        ) from None
    return tensor(mark_constant(array), **options)


# ---------------------------------------------------------------- what layers say of tensors


def mark_parameter(leaf: Tensor, held: bool = True) -> None:
    """Say that a module or an optimizer holds this leaf, so that views call it a parameter.

    Args: held: False for what is given to a module: data, unless something holds it already.
    """
    if held or not hasattr(leaf, "is_parameter"):
        leaf.is_parameter = held


def is_marked_parameter(leaf: Tensor, otherwise: bool = False) -> bool:
    """Whether a module or an optimizer holds this leaf; `otherwise` where nothing is known."""
    return bool(getattr(leaf, "is_parameter", otherwise))


def mark_input(tensor: Tensor) -> None:
    """Say what a layer was called with: a record calls this tensor an input, no parameter."""
    if current().observers:
        say("input", tensor=tensor)


def mark_constant(array: Array) -> Array:
    """Say that this array is the same at every call, whatever the arguments hold; returns it."""
    if current().observers:
        say("constant", array=array)
    return array


def clear_gradients(parameters: Sequence[Tensor]) -> None:
    """Forget the gradients of these parameters."""
    for parameter in parameters:
        parameter.grad = None
    if current().observers:
        say("cleared", parameters=parameters)


def expect_gradients(
    steps: Callable[..., Any] | str, of: object = None, /, **symbols: object
) -> None:
    """Say which hand-derived steps the gradients here must equal; a trace measures whether they do.

    Args:
        steps: called with those of `symbols` that its parameters name, as arrays, and with
            `grad_output`, the gradient of what is named `out`; returns steps, each with a number,
            a title and gradients by symbol. Or, as text, a call that no such steps cover.
        of: a layer whose Tensors bear symbols as their attributes' names.
        symbols: what the steps' symbols are in this run: tensors, arrays, plain values, or the
            name of a tensor. Tensors of this scope that bear a symbol's name need no mention.
    """
    if current().observers:
        held = {k: x for k, x in vars(of).items() if isinstance(x, Tensor)} if of else {}
        say("expect", steps=steps, symbols=held | symbols)
