"""Tensors with a shape and no entries: ops that run on them count what they would compute.

Nothing is computed and nothing large is made. The shape of a result is found by the op's own
kernel, on entries that take no memory, or on small arrays in which each length has a smaller one.
What a rule costs is counted by running it on such tensors: nothing is recorded, and each op within
it declares its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..engine.errors import MinigradError
from ..engine.op import Op, Shaped
from ..engine.plan import Plan
from ..engine.tensor import Tensor
from ..engine.types import Arguments, Array
from ..ops import add, divide, getitem, matmul, multiply, power, subtract
from ..ops.operators import not_recorded, op_like

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["FlopCounter", "RuleCost", "ShapeTensor"]

Found = TypeVar("Found")


class RuleCost(NamedTuple):
    """What the rules of a call cost: operations, and the shapes of the gradients that they give."""

    flops: int
    shapes: tuple[tuple[int, ...], ...]


class FlopCounter:
    """Adds up the FLOPs of ops that run on its shape tensors.

    Attributes: flops: so far.  known: forms of results, by op and forms of inputs; counters of
        similar calls may share it.

    >>> from minigrad.ops import matmul
    >>> a, b = np.ones((2, 3)), np.ones((3, 5))
    >>> FlopCounter().rules(matmul, (a, b), (), needs=(True, True))
    RuleCost(flops=120, shapes=((2, 3), (3, 5)))
    """

    def __init__(self, known: dict[str, Any] | None = None) -> None:
        self.flops = 0
        self.known = {} if known is None else known

    def run(self, op: Op, inputs: Arguments, settings: Arguments) -> ShapeTensor:
        """Count one op; its result, as a shape tensor."""
        out = ShapeTensor(*self.forms(op, inputs, settings)[0], self, counted=_counted(inputs))
        self.flops += self.flops_of(op, inputs, settings, out) if out.counted else 0
        return out

    def flops_of(self, op: Op, inputs: Arguments, settings: Arguments, out: ShapeTensor) -> int:
        """What the op's declaration says. Raises: TypeError where it does not."""
        flops = op.count_flops(inputs, settings, out)
        if flops is None:
            raise TypeError(f"{op.name} does not say what it costs; declare its flops")
        return flops

    def forms(self, op: Op, inputs: Arguments, settings: Arguments) -> list[Shaped]:
        """Of the op's result, and of its by-products."""
        return self._remember("forms", op, inputs, settings, lambda: _forms(op, inputs, settings))

    def rules(
        self, op: Op, inputs: Arguments, settings: Arguments, needs: tuple[bool, ...]
    ) -> RuleCost:
        """What the rules cost for the inputs that need a gradient."""
        call = op, inputs, settings
        return self._remember(f"rules {needs}", *call, lambda: self._run_rules(*call, needs))

    def _run_rules(
        self, op: Op, inputs: Arguments, settings: Arguments, needs: tuple[bool, ...]
    ) -> RuleCost:
        counter = FlopCounter(self.known)
        names = op.input_names(len(inputs))
        tensors = [
            ShapeTensor(np.shape(x), getattr(x, "dtype", float), counter)
            if need or (hasattr(x, "dtype") and x.dtype.kind in "fc")
            else x
            for x, need in zip(inputs, needs, strict=True)
        ]
        form, *others = self.forms(op, inputs, settings)
        out = ShapeTensor(*form, counter)
        by_products = [ShapeTensor(*other, counter, counted=False) for other in others]
        shapes = {f"{name}_shape": np.shape(x) for name, x in zip(names, inputs, strict=True)}
        if op.variadic:
            shapes = {f"{op.inputs[0]}_shape": tuple(shapes.values())}
        known = dict(zip(names, tensors, strict=True)) | shapes | {"out": out}
        known |= dict(zip(op.settings, settings, strict=True))
        known |= dict(zip(op.auxiliary, by_products, strict=True))
        plan = plan_of(op, needs)
        g = ShapeTensor(out.shape, out.dtype, counter)
        found = plan.backward(g, tuple([known[name] for name in plan.saves]))
        return RuleCost(counter.flops, tuple([np.shape(gradient) for gradient in found]))

    def names_saved(self, op: Op, needs: tuple[bool, ...]) -> tuple[str, ...]:
        """What the rules for these inputs name, and so a node saves."""
        return plan_of(op, needs).names

    def _remember(
        self,
        what: str,
        op: Op,
        inputs: Arguments,
        settings: Arguments,
        find: Callable[[], Found],
    ) -> Found:
        """What `find()` gives, from memory for a call like an earlier one, as in a next block."""
        known = [Shaped.of(x) if hasattr(x, "shape") else x for x in inputs]
        key = f"{what} {op.name} {known} {[type(x) for x in inputs]} {settings}"
        if "array(" in key:  # long arrays of settings look alike
            return find()
        if key not in self.known:
            self.known[key] = find()
        found: Found = self.known[key]
        return found


class ShapeTensor:
    """A tensor without entries: ops take it, and give another.

    Attributes: counter: adds up the FLOPs of ops on it.  counted: whether it stands for a tensor;
        comparisons, which are no steps of a graph, are not counted.
    """

    name = path = ""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DTypeLike,
        counter: FlopCounter,
        *,
        counted: bool = True,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.ndim = len(self.shape)
        self.size = prod(self.shape)
        self.counter = counter
        self.counted = counted

    @staticmethod
    def __apply__(op: Op, inputs: Arguments, settings: Arguments) -> ShapeTensor:
        counter = next(x.counter for x in _shape_tensors((inputs, settings)))
        return counter.run(op, inputs, settings)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = op_like(ufunc.__name__)
        compares = {"d->?", "dd->?"}.intersection(ufunc.types)
        if compares and method == "__call__":
            return self._compared(*inputs)
        if compares or not _counted(inputs):
            return self._plainly(getattr(ufunc, method), inputs, kwargs)
        if method != "__call__" or found is None or kwargs:
            raise not_recorded(ufunc.__name__)
        return found(*inputs)

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: Arguments, kwargs: dict[str, Any]
    ) -> Any:
        if function in (np.shape, np.ndim, np.size):
            return getattr(args[0], function.__name__)
        found = op_like(function.__name__)
        if not _counted((args, kwargs)):
            return self._plainly(function, args, kwargs)
        if found is None:
            raise not_recorded(function.__name__)
        return found(*args, **kwargs)

    def _compared(self, *values: Any) -> ShapeTensor:
        """The truth values of a comparison, entry by entry."""
        shape = np.broadcast_shapes(self.shape, *(np.shape(x) for x in values))
        return ShapeTensor(shape, bool, self.counter, counted=False)

    def _plainly(
        self, function: Callable[..., Any], args: Arguments, kwargs: dict[str, Any]
    ) -> ShapeTensor:
        """What NumPy makes of comparisons, of which nothing is recorded."""
        made = function(*_weightless(args), **_weightless(kwargs))
        return ShapeTensor(made.shape, made.dtype, self.counter, counted=False)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Itself as the one object of an array: NumPy would go through it entry by entry."""
        whole = np.empty((), object)
        whole[()] = self
        return whole

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[ShapeTensor]:
        return (getitem(self, i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"ShapeTensor({self.shape}, {self.dtype}, {self.counted})"


def _reflected(op: Op) -> Callable[..., Any]:
    return lambda self, other: op(other, self)


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "and", "or"):
    setattr(ShapeTensor, f"__{_name}__", ShapeTensor._compared)
for _name, _value in vars(Tensor).items():  # operators and methods that are ops, or call them
    if isinstance(_value, Op) or _name in ("T", "mT", "reshape", "transpose", "ravel", "flatten"):
        setattr(ShapeTensor, _name, _value)
for _name, _op in {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "pow": power,
    "matmul": matmul,
}.items():  # fmt: skip
    setattr(ShapeTensor, f"__{_name}__", _op)
    setattr(ShapeTensor, f"__r{_name}__", _reflected(_op))
ShapeTensor.__hash__ = object.__hash__  # type: ignore[method-assign]


def _shape_tensors(value: object) -> Iterator[ShapeTensor]:
    """Those in nested sequences."""
    if isinstance(value, ShapeTensor):
        yield value
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _shape_tensors(entry)
    elif isinstance(value, dict):
        yield from _shape_tensors([*value.values()])


def _counted(values: object) -> bool:
    """Whether what an op makes of these is a step of a graph."""
    return any(x.counted for x in _shape_tensors(values))


def _weightless(value: Any) -> Any:
    """With an array of one repeated entry in place of each shape tensor."""
    if isinstance(value, ShapeTensor):
        return _like(value, value.shape)
    if isinstance(value, list | tuple):
        return type(value)([_weightless(entry) for entry in value])
    if isinstance(value, dict):
        return {name: _weightless(entry) for name, entry in value.items()}
    return value


# ---------------------------------------------------------------- shapes of results


@cache
def plan_of(op: Op, needs: tuple[bool, ...]) -> Plan:
    """How the op runs back where these inputs need a gradient."""
    return op.plan(int("1" + "".join(str(int(need)) for need in needs), 4))


def _forms(op: Op, inputs: Arguments, settings: Arguments) -> list[Shaped]:
    """Of an op's result and by-products."""
    if "shape" in op.settings:  # of the result
        shape = settings[op.settings.index("shape")]
        if isinstance(shape, tuple) and -1 not in shape and not op.auxiliary:
            return [Shaped(shape, np.result_type(_like(inputs[0], ())))]
    settings = _weightless(settings)
    if _moves(op):  # settings may name sizes; entries of no bytes take no memory
        try:
            nothing = [_like(x, np.shape(x), "V0") for x in inputs]
            out, *by_products = _run(op, nothing, settings)
            dtype = next(x.dtype for x in inputs if hasattr(x, "dtype"))
            return [Shaped(out.shape, dtype), *by_products]
        except (TypeError, ValueError, StopIteration):  # it reads entries after all
            pass
    once, again = (_on_small_arrays(op, inputs, settings, power) for power in (1, 2))
    if once is not None and once == again:
        return once
    alike = [_like(x, np.shape(x)) for x in inputs]
    return _run(op, alike, deepcopy(settings))  # it computes lengths from others


def _on_small_arrays(
    op: Op, inputs: Arguments, settings: Arguments, power: int
) -> list[Shaped] | None:
    """The forms, found with small lengths: numbers for power 1, their squares for power 2, so that
    a length computed from others differs once. None where the op refuses them, or makes new ones.
    """
    arrays = [*inputs, *(x for x in settings if isinstance(x, np.ndarray))]
    lengths = sorted({n for x in arrays for n in np.shape(x)} - {0, 1})
    small = {0: 0, 1: 1} | {n: 1 + 2 * k**power for k, n in enumerate(lengths, 1)}
    large = {k: n for n, k in small.items()}
    tiny = [_like(x, [small[n] for n in np.shape(x)]) for x in inputs]
    given = [
        _like(x, [small[n] for n in x.shape]) if isinstance(x, np.ndarray) and x.ndim else x
        for x in deepcopy(settings)
    ]
    try:
        found = _run(op, tiny, given)
        return [Shaped(tuple(large[k] for k in shape), dtype) for shape, dtype in found]
    except (ValueError, IndexError, KeyError, MinigradError):
        return None


def _run(op: Op, arrays: Sequence[Any], settings: Sequence[Any]) -> list[Shaped]:
    """The forms of what the kernel gives."""
    with np.errstate(all="ignore"):
        found = op.forward(*arrays, *settings)
    return [Shaped.of(np.asarray(x)) for x in (found if op.auxiliary else (found,))]


@cache
def _moves(op: Op) -> bool:
    """Whether an op only puts entries elsewhere, whatever they are: it counts no FLOPs."""
    for sample in op.samples(np.random.default_rng(0)):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found = op.forward(*inputs, *settings)
        return op.count_flops(inputs, settings, found[0] if op.auxiliary else found) == 0
    return False


def _like(x: Any, shape: Sequence[int], dtype: DTypeLike | None = None) -> Any:
    """An array in the place of x; numbers and None stay."""
    if not hasattr(x, "shape"):
        return x
    if dtype is not None:
        return np.empty(shape, dtype)
    entry = np.asarray(x.dtype.kind == "b", x.dtype)  # masks hide nothing, indices are in range
    return np.broadcast_to(entry, shape)
