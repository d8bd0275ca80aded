"""Graph: an ONNX model while it is being written.

to.Add(a, b)                    # any operator of ONNX; arrays and numbers become constants
to.Softmax(x, axis=-1)          # attributes by name
values, order = to.emit("TopK", x, k, outputs=2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..engine.errors import ArgumentError
from ..engine.op import Axes
from ..engine.types import Array, DType
from .positions import GrowingArray
from .sizes import Length, Number, Size, Unfit

__all__ = ["Graph", "GraphNode", "GraphValue"]

FIRST_OPSET_OF = {"Gelu": 20, "IsInf": 20, "RMSNormalization": 23}
"""The first opset of the operators that opset 18 lacks."""
OLDEST = 18
NARROW = set("AveragePool Conv ConvTranspose Elu Erf Gelu GRU LeakyRelu LSTM RNN Softplus".split())
"""Operators without float64 kernels in onnxruntime: a model of float64 computes them in float32."""

FINITE = set("Conv ConvTranspose Einsum LayerNormalization MatMul RMSNormalization Softmax".split())
"""Operators whose outputs hold no -inf of a mask in their inputs."""


@dataclass(eq=False)
class GraphValue:
    """An array of the model.

    Attributes:
        shape: lengths and Sizes, None where it is not known.
        array: its entries, if it is a constant.
        infinite: whether it may hold -inf, as masks do.
    """

    dtype: DType
    shape: tuple[Length, ...] | None = None
    array: Array | None = None
    name: str = ""
    infinite: bool = False

    @property
    def ndim(self) -> int:
        assert self.shape is not None
        return len(self.shape)


class GraphNode(NamedTuple):
    """A call of an operator; path is the scope and op that it is part of."""

    operator: str
    inputs: list[GraphValue | None]
    outputs: list[GraphValue]
    attributes: dict[str, Any]
    path: str


class Graph:
    """Nodes, constants and names.

    Attributes: path, label: of what is being written, in the model and in errors.
        opset: the newest that an operator needs.
    """

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.constants: list[GraphValue] = []
        self.path = ""
        self.label = ""
        self.opset = OLDEST
        self.symbols: dict[str, GraphValue] = {}
        self._known: dict[object, GraphValue] = {}
        self._alive: list[Array] = []  # whose ids are keys

    def __getattr__(self, operator: str) -> Callable[..., GraphValue]:
        if not operator[0].isupper():
            raise AttributeError(operator)
        return lambda *inputs, **attributes: self.emit(operator, *inputs, **attributes)

    def emit(
        self,
        operator: str,
        *inputs: object,
        outputs: int = 1,
        dtype: DTypeLike | None = None,
        **attributes: Any,
    ) -> Any:
        """The output of a new node, a list of several; in the first input's dtype unless given."""
        first = next((x for x in inputs if isinstance(x, GraphValue)), None)
        like = first.dtype if first is not None else np.dtype(np.int64)
        given = [None if x is None else self.value(x, like) for x in inputs]
        if operator in NARROW and like == np.float64:
            narrow = [self.cast(x, np.float32) if x and x.dtype == like else x for x in given]
            made = self.emit(operator, *narrow, outputs=outputs, **attributes)
            wide = [self.cast(x, np.float64) for x in (made if outputs > 1 else [made])]
            return wide if outputs > 1 else wide[0]
        self.opset = max(self.opset, FIRST_OPSET_OF.get(operator, OLDEST))
        made = [GraphValue(np.dtype(dtype or like)) for _ in range(outputs)]
        for value in made:
            carried = operator not in FINITE and value.dtype.kind == "f"
            value.infinite = carried and any(x is not None and x.infinite for x in given)
        self.nodes.append(GraphNode(operator, given, made, attributes, self.path))
        return made if outputs > 1 else made[0]

    # ------------------------------------------------------------------ constants

    def value(self, item: object, dtype: DTypeLike | None = None) -> GraphValue:
        """An item as a value: a number in this dtype, an array in its own, what sizes determine."""
        if isinstance(item, GraphValue):
            return item
        if isinstance(item, Size):
            return self.cast(self.Squeeze(self.size(item), [0]), dtype or np.int64)
        if isinstance(item, Number):
            x = self.cast(self.Squeeze(self.size(item.size), [0]), dtype or np.float64)
            root = x if abs(item.power) == 1 else self.Sqrt(x)
            return root if item.power > 0 else self.Reciprocal(root)
        if isinstance(item, GrowingArray):
            return self.pattern(item)
        if isinstance(item, Unfit):
            raise ArgumentError(
                f"export_onnx: {self.label}, needs a number that is {item} at the sizes tried, and "
                "that no sum of products of them gives. Say in dynamic= which axes may change"
            )
        plain = isinstance(item, bool | int | float | list | tuple)
        if isinstance(item, list | tuple):
            dtype = np.int64
        return self.constant(np.asarray(item, dtype if plain else None))

    def constant(self, array: Array, name: str = "") -> GraphValue:
        """An array as part of the model, once."""
        key: object = id(array)
        if array.nbytes <= 1024 and not name:
            key = array.tobytes(), array.shape, array.dtype.str
        if key not in self._known:
            self._alive.append(array)
            made = GraphValue(array.dtype, array.shape, np.asarray(array), name)
            made.infinite = array.dtype.kind == "f" and not np.isfinite(array).all()
            self._known[key] = made
            self.constants.append(made)
        return self._known[key]

    def cast(self, x: GraphValue, dtype: DTypeLike) -> GraphValue:
        """The value in another dtype."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if x.array is not None and x.array.size < 1024:
            made = self.constant(x.array.astype(dtype))
        else:
            made = self.emit("Cast", x, dtype=dtype, to=dtype)
        made.shape = x.shape
        return made

    # ------------------------------------------------------------------ sizes

    def size(self, item: Length) -> GraphValue:
        """A length, as an array of one entry."""
        if isinstance(item, Unfit):
            return self.value(item)
        if isinstance(item, int | np.integer):
            return self.constant(np.array([item]))
        if item not in self._known:
            path, self.path = self.path, "/sizes"
            terms = []
            for of, n in item.terms:
                factors = [self.constant(np.array([n])), *(self.symbols[symbol] for symbol in of)]
                terms.append(reduce(self.Mul, factors[1:] if n == 1 and of else factors))
            self._known[item], self.path = reduce(self.Add, terms), path
        return self._known[item]

    def sizes(self, shape: Sequence[Length]) -> GraphValue:
        """A shape, as an array."""
        if all(isinstance(n, int | np.integer) for n in shape):
            return self.constant(np.array(shape, np.int64))
        parts = [self.size(n) for n in shape]
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)

    def axes(self, axis: Axes, ndim: int) -> list[int]:
        """Axes as positions; None is all."""
        if axis is None:
            return list(range(ndim))
        listed: Any = (axis,) if np.ndim(axis) == 0 else axis
        return [int(a) % ndim for a in listed] if ndim else []

    def along(self, x: GraphValue, axis: int | None) -> tuple[GraphValue, int]:
        """An array and the axis of it that an op uses; for None, it is flattened."""
        return (self.Reshape(x, [-1]), 0) if axis is None else (x, int(axis))

    def range(self, length: Length) -> GraphValue:
        """0, 1, … up to a length."""
        return self.Range(0, self.Squeeze(self.size(length), [0]), 1)

    # ------------------------------------------------------------------ patterns

    def pattern(self, found: GrowingArray) -> GraphValue:
        """An array that sizes determine."""
        key = found.content
        if key not in self._known:
            path, self.path = self.path, f"{self.path}/positions"
            made = self._pattern(found)
            made.shape, made.dtype = found.shape, found.table.dtype
            made.infinite = found.table.dtype.kind == "f" and not np.isfinite(found.table).all()
            self._known[key], self.path = made, path
        return self._known[key]

    def _pattern(self, found: GrowingArray) -> GraphValue:
        table, ndim = self.constant(found.table), len(found.shape)
        if found.beyond == "prefix" or not found.axes:
            for axis in found.axes:
                table = self.Gather(table, self.range(found.shape[axis]), axis=axis)
            return self.Expand(table, self.sizes(found.shape))
        index = self.range(found.shape[found.axes[0]])
        if len(found.axes) == 2:
            columns = self.range(found.shape[found.axes[1]])
            index = self.Sub(self.Unsqueeze(index, [1]), columns)
        if found.origin != 0:
            index = self.Sub(index, self.size(found.origin))
        moved = self._entries(found, table, index)
        others = [k for k in range(ndim) if k not in found.axes]
        order = [*found.axes, *others]
        moved = self.Transpose(moved, perm=[order.index(k) for k in range(ndim)])
        if found.plus != 0:
            moved = self.Add(moved, self.cast(self.size(found.plus), moved.dtype))
        return self.Expand(moved, self.sizes(found.shape))

    def _entries(self, found: GrowingArray, table: GraphValue, index: GraphValue) -> GraphValue:
        """The table's entries at an index; past its ends, as `beyond` says."""
        K, last = len(found.table), found.first + len(found.table) - 1
        if found.beyond == "line":
            inner = list(range(len(found.axes), len(found.axes) + found.table.ndim - 1))
            steps = self.cast(self.Unsqueeze(index, inner) if inner else index, found.table.dtype)
            zero, step = (self.constant(x) for x in found.table)
            return self.Add(zero, self.Mul(steps, step))
        if found.beyond == "clip":
            index = self.Clip(index, np.asarray(found.first), np.asarray(last))
        at = self.Sub(index, np.asarray(found.first))
        if found.beyond == "error":  # a negative index would count from the end
            at = self.Where(self.emit("Less", at, 0, dtype=bool), np.asarray(K), at)
        return self.Gather(table, at, axis=0, dtype=found.table.dtype)
