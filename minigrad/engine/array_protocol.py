"""What Python and NumPy need of an array: Tensor's entries, comparisons, conversions and copies.

Reading the entries leaves the graph, so nothing here is recorded; listeners are notified.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .arguments import refuse_masked
from .context import current
from .errors import DTypeError, GradientError, ShapeError
from .listener import Listener, notify
from .op import Axes
from .refusals import runs
from .types import Array, DType, Index
from .writes import DataView, caller, writes

if TYPE_CHECKING:
    from .tensor import Node, Operand, Tensor

__all__ = ["ArrayProtocol", "EntryCount", "ForeignName", "ForeignNames", "data_of"]

UNPACKED = {  # how to get several results of a layer, by the name of its one output
    "out": "attention layers return (out, weights) when called with return_weights=True",
    "O": "layers.scaled_dot_product_attention(Q, K, V) returns (O, A), its output and its weights",
    "H": "recurrent layers return (H, state) when called with return_state=True",
}
VALUES_ALONE = {  # of ops that in PyTorch return the indices too
    "max": "write x.max(axis) and x.argmax(axis)",
    "min": "write x.min(axis) and x.argmin(axis)",
    "sort": "write mg.take_along_axis(x, np.argsort(x.numpy(), axis), axis)",
}


class EntryCount(int):
    """The number of entries, as NumPy's `size` is; calling it says what to write."""

    __slots__ = ()

    def __call__(self, axis: int | None = None) -> NoReturn:
        ours = "x.shape" if axis is None else f"x.shape[{axis}]"
        raise DTypeError(f"x.size is the number of entries, as in NumPy; write {ours}")

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, object], Any]:
    """A comparison of the entries: its result is a plain array, and it is not recorded."""
    return lambda self, other: compare(read_data(self), data_of(other))


class ForeignName:
    """A method or attribute of another library, which Tensor does not have: the error names ours.

    A `__getattr__` would slow down every attribute of every tensor.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Tensor | None, kind: type) -> NoReturn:
        from .. import habits  # which knows the errors of the engine

        raise habits.missing("'Tensor' object", self.name)


class ForeignNames:
    """Holds the names of other libraries, apart from Tensor's own; `minigrad.ops` fills it."""

    __slots__ = ()


class NamedClass(type):
    """The class of Tensor, whose name raises an error when `json` asks for it.

    `json` reads the name of a class only to refuse it, and an error here can say what to write.
    """

    @property
    def __name__(cls) -> str:
        if sys._getframe(1).f_globals.get("__name__") == "json.encoder":
            raise DTypeError("json: a tensor is not plain data; write x.item(), or x.data.tolist()")
        return str(type.__dict__["__name__"].__get__(cls))

    @__name__.setter
    def __name__(cls, name: str) -> None:
        type.__dict__["__name__"].__set__(cls, name)


class ArrayProtocol(ForeignNames, metaclass=NamedClass):
    """The part of Tensor that stands outside the graph."""

    __slots__ = ()

    if TYPE_CHECKING:  # attributes of Tensor
        _data: Array
        _dtype: DType
        _name: str | None
        _needs: int
        _node: Node | None
        _shape: tuple[int, ...]
        grad: Array | None
        shape: tuple[int, ...]
        dtype: DType
        size: int
        name: str | None

        @property
        def path(self) -> str: ...

    # ------------------------------------------------------------------ entries

    @property
    def data(self) -> Array:
        array = read_data(self)
        if array is not self._data:  # it comes from a listener
            return array
        view = array.view(DataView)
        view.flags.writeable = False
        view.written = array
        return view

    @data.setter
    def data(self, array: Operand) -> None:
        if array.__class__ is not DataView or array.written is not self._data:  # of x.data -= step
            self.assign_(array)

    def numpy(self) -> Array:
        """The array, as `data` is: nothing done with it is recorded, and writes to it are noted."""
        return self.data

    def item(self) -> float:
        """The one entry as a Python number. Raises ShapeError if there are more."""
        if self._data.size != 1:
            raise ShapeError(
                f"item(): takes a tensor of one entry, got shape {self.shape}; write x.numpy(), or "
                "x.data.tolist()"
            )
        return read_data(self).item()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        """The array, read-only: a write that is not noted could make a gradient wrong."""
        return np.array(self._shared("np.asarray"), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> object:
        """The memory itself, marked read-only, for `np.from_dlpack` and the like.

        NumPy and JAX respect the mark. PyTorch ignores it, and its writes are not noted: write to a
        clone. A call in the older form, which has no such mark, gets a copy.
        """
        array = self._shared("__dlpack__")
        return (array if options.get("max_version") else array.copy()).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def _shared(self, call: str) -> Array:
        """The array for another library, whose writes would not be noted."""
        if self._needs and current().recording:
            raise GradientError(
                f"{call}({self.path or 'tensor'}): no other library would record what it does with "
                "a tensor that requires a gradient; write .numpy() or .detach() to leave the graph"
                ", mg.stack([a, b]) to make one tensor of several"
            )
        array = read_data(self, whole=True)
        if array is self._data:
            array = array.view()
            array.flags.writeable = False
        return array

    def assign_(self: Any, array: Operand) -> Tensor:
        """Overwrite the entries in place: the one in-place write.

        Graphs that saved this memory before now refuse to run backward with the new values.

        Raises: ShapeError or DTypeError unless shape and dtype are this tensor's; GradientError on
            a computed tensor.
        """
        notify(Listener.tensor_used, (array,))
        refuse_masked("assign_(array)", array)
        new = array._data if isinstance(array, type(self)) else np.asarray(array)
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
        notify(Listener.memory_overwritten, self._data)
        self._data[...] = new
        writes.note(self._data, caller())
        notify(Listener.tensor_assigned, self, new)
        return self

    def cast_(self: Any, dtype: DTypeLike) -> Tensor:
        """Give a leaf's entries another floating dtype, in new memory; its gradient is dropped."""
        if self._node is not None or {self.dtype.kind, np.dtype(dtype).kind} != {"f"}:
            raise DTypeError(f"cast_({dtype}): only floating leaves are cast, to floating dtypes")
        if self.dtype != dtype:
            self._data, self.grad = self._data.astype(dtype), None
            self._shape, self._dtype = self._data.shape, self._data.dtype
        return self

    def __setitem__(self: Any, index: Index, value: Operand) -> None:
        if self._node is not None or current().recording:
            raise GradientError(
                "x[index] = value: tensors are not written in place while a graph is recorded; "
                "build a new one with where(), or write to a leaf within no_grad()"
            )
        refuse_masked("x[index] = value", value)
        new = data_of(value)
        notify(Listener.memory_overwritten, self._data)
        self._data[index] = new
        writes.note(self._data, caller())
        notify(Listener.tensor_assigned, self, new, index)

    # ------------------------------------------------------------------ Python's special methods

    __hash__ = object.__hash__

    __eq__: Any = _comparison(operator.eq)
    __ne__: Any = _comparison(operator.ne)
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)

    def __bool__(self) -> bool:
        return bool(read_data(self))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return read_data(self).__index__()

    def __round__(self, digits: int | None = None) -> float:
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
        remedy = UNPACKED.get(self.name or "")
        frame = sys._getframe(1)
        if remedy is None and self._node is not None:
            remedy = VALUES_ALONE.get(self._node.op.name)
            if remedy and frame.f_code.co_code[frame.f_lasti + 1] == len(self._data):
                remedy = None  # as many names as entries: these may well be meant
        if remedy and runs(frame, "UNPACK_SEQUENCE"):
            raise ShapeError(
                f"unpacking {self.path} {self.shape}: it is one tensor, not several; {remedy}"
            )
        return (self[i] for i in range(len(self._data)))

    def __pos__(self) -> Self:
        return self

    def __repr__(self) -> str:
        body = np.array2string(self._data, separator=", ", prefix="tensor(", threshold=50)
        notes = [f"dtype={self.dtype}"] if self.dtype != np.float64 else []
        notes += [f"name={self.name!r}"] if self.name else []
        notes += [f"op={self._node.op.name}"] if self._node is not None else []
        notes += ["requires_grad=True"] if self._needs and self._node is None else []
        return f"tensor({', '.join([body, *notes])})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._node is not None:
            raise GradientError(
                f"copy or pickle: {self.path} was computed by {self._node.op.name}, and a graph is "
                "not copied; take .detach(), or its array by .numpy()"
            )
        slots: dict[str, object] = {"_name": self._name, "grad": self.grad}
        if hasattr(self, "_is_parameter"):
            slots["_is_parameter"] = self._is_parameter
        return type(self), (np.array(self._data, order="C"), None, self._needs), (None, slots)

    if TYPE_CHECKING:  # attached in minigrad/__init__.py, and by minigrad/ops from the registry
        _repr_mimebundle_: Callable[..., dict[str, str]]
        T: Tensor
        mT: Tensor

        def abs(self) -> Tensor: ...
        def argmax(self, axis: int | None = None, keepdims: bool = False) -> Array: ...
        def astype(self, dtype: DTypeLike) -> Tensor: ...
        def clip(self, low: Operand | None = None, high: Operand | None = None) -> Tensor: ...
        def cumsum(self, axis: int | None = None) -> Tensor: ...
        def log_softmax(self, axis: Axes = -1) -> Tensor: ...
        def repeat(self, repeats: ArrayLike, axis: int | None = None) -> Tensor: ...
        def reshape(self, *shape: int | Sequence[int]) -> Tensor: ...
        def squeeze(self, axis: Axes = None) -> Tensor: ...
        def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor: ...
        def swapaxes(self, axis1: int, axis2: int) -> Tensor: ...
        def take(self, indices: ArrayLike, axis: int | None = None) -> Tensor: ...
        def transpose(self, *axes: int | Sequence[int]) -> Tensor: ...
        def var(self, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Tensor: ...

        # those with the same parameters
        argmin = argmax
        exp = flatten = log = ravel = relu = sigmoid = sqrt = tanh = abs
        max = mean = min = prod = sum
        softmax = log_softmax
        std = var

        def __getitem__(self, index: Index) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __add__(self, other: Operand) -> Tensor: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__
        __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __add__


def data_of(value: Any) -> Any:
    """A Tensor's entries, read outside the graph; anything else as it is."""
    return read_data(value) if hasattr(value, "__apply__") else value


def read_data(tensor: Any, whole: bool = False) -> Array:
    """The entries of a tensor, for use outside the graph; a listener may replace them."""
    notify(Listener.tensor_used, (tensor,))
    answers = notify(Listener.data_read, tensor, tensor._data, whole)
    return next((array for array in answers if array is not None), tensor._data)
