"""One call of a function, recorded as the ops and NumPy calls that its inputs go through.

A `CallRecorder` listens to the ops. What the function does with arrays outside of ops is recorded
too: inputs, and the arrays of `.data` and `.numpy()`, are `Traced` arrays, whose NumPy calls are
steps like any other. Arrays that no step made are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref
from zlib import crc32

import numpy as np

from ..engine.context import current, scope
from ..engine.errors import ArgumentError, MinigradError
from ..engine.followed import Followed, Follower, plain
from ..engine.op import Op, Shaped, registry
from ..engine.tensor import Tensor, TensorOrArray
from ..engine.types import Arguments, Array, Index
from ..engine.writes import SourceLocation, caller
from ..ops import fake_quantize
from ..ops.mask_rules import MaskRule
from ..ops.operators import op_like
from .sizes import Sizes
from .translation import is_translated

__all__ = [
    "NUMPY_OPS",
    "CallRecorder",
    "Constant",
    "RecordedCall",
    "RecordedStep",
    "Reference",
    "mapped",
]


@dataclass(frozen=True)
class Reference:
    """A reference to an input, or to the result of a step, wherever it is used."""

    source: str | int  # the input's name, or the step's position


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that no step made: a parameter, or what NumPy computed outside of the steps."""

    array: Array
    name: str | None


class Rounding(NamedTuple):
    """What a step rounded to, and how far apart two neighbours are."""

    values: Array
    unit: Array


@dataclass
class RecordedStep:
    """A call of an op, or of a NumPy function with Traced arrays."""

    op: Op
    inputs: Arguments
    settings: Arguments
    out: Shaped
    tensor: Tensor | None  # which may be given a name later
    scope: str
    place: SourceLocation
    rounding: Rounding | None = None
    name: str | None = None


@dataclass
class RecordedCall:
    """The steps of one call, its inputs and its outputs."""

    sizes: Sizes
    inputs: dict[str, Array]
    steps: list[RecordedStep]
    outputs: dict[str, Reference]
    values: dict[str, Array]  # the outputs as arrays


def mapped(function: Callable[[Any], Any], item: Any) -> Any:
    """An argument, with a function applied to all that its tuples, lists and slices hold."""
    if item.__class__ in (tuple, list):
        return item.__class__([mapped(function, x) for x in item])
    if item.__class__ is slice:
        return slice(*(mapped(function, x) for x in (item.start, item.stop, item.step)))
    return function(item)


class KnownArray(NamedTuple):
    """An array, what made it, and by what its entries are recognized until it is written to.

    checksum: None for a Tensor's constant: an assignment to it is refused.
    """

    array: ref[Array]
    origin: Reference | Constant
    checksum: int | None


class CallRecorder(Follower):
    """Records the steps of a run.

    Args: keeps_tensors: whether steps hold their tensors until the end, for their names.
        copies: of arrays that are constants, which several runs share.
    """

    shows_inputs = False

    def __init__(self, keeps_tensors: bool, copies: dict[object, Array]) -> None:
        self.keeps_tensors = keeps_tensors
        self.copies = copies
        self.steps: list[RecordedStep] = []
        self.quiet = False  # within an op, whose own NumPy calls are no steps
        self._known: dict[object, dict[int, KnownArray]] = {}  # by layout, by id

    def remember(self, array: Array, origin: Reference | Constant) -> None:
        """Note which step or input made an array, or that it is a constant."""
        alike, key = self._known.setdefault(_layout(array), {}), id(array)
        alive = ref(array, lambda _: alike.pop(key, None))
        own = isinstance(origin, Constant) and origin.array is array
        alike.pop(key, None)  # the newest comes last
        alike[key] = KnownArray(alive, origin, None if own else _checksum(array))

    def find(self, array: Array) -> Reference | Constant | None:
        """What made an array, or one of which it is a view with the same entries and layout.

        None if NumPy wrote other entries into it since.
        """
        alike = self._known.get(_layout(array), {})
        own = alike.get(id(array))
        for found in [own, *reversed(alike.values())]:
            if found is not None and found.checksum in (None, _checksum(array)):
                return found.origin
        return None

    def traced(self, array: Array, origin: Reference | Constant) -> Traced:
        """A view of an array whose NumPy calls are recorded."""
        view = np.asarray(array).view(Traced)
        self.remember(view, origin)
        return view

    def reference(self, item: Any) -> Any:
        """The reference that steps hold in the place of an array; all else as it is."""
        if isinstance(item, Tensor):
            array = item._data
        elif isinstance(item, np.ndarray):
            array = item
        elif isinstance(item, np.generic):
            array = np.asarray(item)
        else:
            return item
        origin = self.find(array)
        if origin is None:
            kept = array if isinstance(item, Tensor) else self._copy(array)
            origin = Constant(kept, getattr(item, "name", None))
            self.remember(array, origin)
        return origin

    def _copy(self, array: Array) -> Array:
        """A copy of an array to which the function may write later; one for all that are equal."""
        key = array.shape, array.dtype, _checksum(array)
        if key not in self.copies:
            self.copies[key] = np.array(array)
        return self.copies[key]

    def record(
        self,
        op: Op,
        inputs: Arguments,
        settings: Arguments,
        array: Array,
        tensor: Tensor | None = None,
    ) -> None:
        """Record a step."""
        if _draws(op, settings):
            why = "has an effect beside its result" if op.effect else "draws random numbers"
            remedy = "" if op.effect else "; call model.eval() first, or leave it out"
            raise ArgumentError(f"export_onnx: {op.name}, at {caller()}, {why}{remedy}")
        if "rule" in op.settings:  # a rule of positions, as the array of its mask
            shape = inputs[0].shape[-2], inputs[1].shape[-2]
            settings = tuple([x.array(*shape) if isinstance(x, MaskRule) else x for x in settings])
        step = RecordedStep(
            op,
            mapped(self.reference, inputs),
            mapped(self.reference, settings),
            Shaped(array.shape, array.dtype),
            tensor if self.keeps_tensors else None,
            current().scope,
            caller(),
            _rounding(op, settings, array),
        )
        if id(array) not in self._known.get(_layout(array), {}):
            self.remember(array, Reference(len(self.steps)))
        self.steps.append(step)

    # ------------------------------------------------------------------ events

    def enter(self, op: Op, inputs: Arguments, settings: Arguments) -> None:
        self.quiet = True

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        self.quiet = False
        if is_translated(op) or not self._record_kernel(op, inputs, settings, output):
            self.record(op, inputs, settings, output._data, output)

    def _record_kernel(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor
    ) -> bool:
        """Whether the op's kernel, called again, made the result by steps; these are kept then."""
        before = len(self.steps)
        if not _draws(op, settings):
            with scope(op.name):
                made = op.forward(*map(self._traced_input, inputs), *settings)
            known = self.find(made[0] if op.auxiliary else made)
            if isinstance(known, Reference):
                self.remember(output._data, known)
                if known.source == len(self.steps) - 1 and self.keeps_tensors:
                    self.steps[-1].tensor = output
                return True
        del self.steps[before:]
        return False

    def _traced_input(self, x: Any) -> Any:
        """An input of a kernel that is called again: Traced, if the run made it."""
        array = x._data if isinstance(x, Tensor) else x
        known = self.find(array) if isinstance(array, np.ndarray) else None
        return self.traced(array, known) if isinstance(known, Reference) else array

    def computed(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call with Traced arrays: by the op that computes the same; without one, by NumPy."""
        settings = dict(kwargs)
        out = settings.pop("out", None)
        out = out[0] if isinstance(out, tuple) else out
        made = None if self.quiet else _by_op(name, args, settings)
        if made is not None:
            is_number = out is not None and not out.shape and not np.shape(out.base)
            if out is None or is_number:  # x += y of NumPy's scalars makes another one
                return made
            if isinstance(out, Traced) and (out.shape, out.dtype) == (made.shape, made.dtype):
                plain(out)[...] = plain(made)  # x &= y
                self.remember(out, self.reference(made))
                return out
        return super().computed(name, call, args, kwargs)

    def leaf_created(self, leaf: Tensor, data: object) -> None:
        known = self.find(data) if isinstance(data, np.ndarray) else None
        if known is not None:
            self.remember(leaf._data, known)

    def data_read(self, tensor: Tensor, array: Array, whole: bool) -> Array:
        known = None if self.quiet else self.find(array)
        return self.traced(array, known) if isinstance(known, Reference) else array

    def tensor_assigned(self, tensor: Tensor, array: Array, index: Index = ...) -> None:
        raise ArgumentError(
            f"export_onnx: a tensor is written in place at {caller()}; a model only computes. Call "
            "model.eval() first, if these are statistics of training"
        )


def _rounding(op: Op, settings: Arguments, array: Array) -> Rounding | None:
    """What a step rounded to, copied; None of a step that does not round."""
    if op in (NUMPY_OPS["floor"], NUMPY_OPS["ceil"], NUMPY_OPS["rint"]):
        return Rounding(np.array(array), np.ones((), array.dtype))
    if op is fake_quantize:
        scale = settings[0]._data if isinstance(settings[0], Tensor) else settings[0]
        return Rounding(np.array(array), np.array(scale))
    return None


def _draws(op: Op, settings: Arguments) -> bool:
    return op.effect or any(isinstance(x, np.random.Generator) for x in settings)


def _checksum(array: Array) -> int:
    return crc32(np.ascontiguousarray(array).data)


def _layout(array: Array) -> tuple[object, ...]:
    return array.shape, array.strides, array.dtype, array.__array_interface__["data"][0]


# ---------------------------------------------------------------- NumPy's own calls


def _numpy_op(name: str, *inputs: str, **settings: Any) -> Op:
    """A NumPy function as an op that is in no registry."""
    function, given = getattr(np, name), ", ".join([*inputs, *(f"{k}={k}" for k in settings)])
    listed = ", ".join([*inputs, *(f"{k}={v!r}" for k, v in settings.items())])
    kernel = eval(f"lambda {listed}: f({given})", {"f": function})
    kernel.__name__ = name
    return Op(kernel, tex="", vjp_tex=dict.fromkeys(inputs, ""))


_OF_TWO = "equal not_equal less less_equal greater greater_equal logical_and logical_or"
_OF_TWO += " logical_xor bitwise_and bitwise_or bitwise_xor floor_divide remainder"
_OF_ONE = "logical_not invert isnan isinf isfinite floor ceil rint"
NUMPY_OPS = {name: _numpy_op(name, "a", "b") for name in _OF_TWO.split()}
NUMPY_OPS |= {name: _numpy_op(name, "x") for name in _OF_ONE.split()}
NUMPY_OPS |= {name: _numpy_op(name, "x", axis=None, keepdims=False) for name in ("any", "all")}
NUMPY_OPS |= {name: _numpy_op(name, "x", axis=None) for name in ("argmax", "argmin")}
NUMPY_OPS["argsort"] = _numpy_op("argsort", "x", axis=-1, kind=None)
"""NumPy functions that no op of minigrad computes, as ops."""

_METHODS_AS_OPS = {"flatten": "ravel", "copy": "astype"}
_FOLDS = {"max": "maximum", "amax": "maximum", "min": "minimum", "sum": "add"}


def _by_op(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of a NumPy call by the op that computes the same; None where there is none."""
    op = NUMPY_OPS.get(name) or op_like(_METHODS_AS_OPS.get(name, name))
    if op is None or (isinstance(op, Op) and not is_translated(op)):  # its kernel would call itself
        return None
    inputs, settings = _as_ops_take(name, args, kwargs)
    try:
        made = op(*inputs, **settings)
        if "initial" in kwargs:  # one more entry of a reduction
            made = registry[_FOLDS[name]](made, kwargs["initial"])
    except (MinigradError, TypeError, KeyError):  # arguments that only NumPy has
        return None
    return made


def _as_ops_take(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of an array's method, as the op of that name takes them."""
    if name == "copy":
        return (args[0], args[0].dtype), {}
    if name == "astype":
        return args, {key: x for key, x in kwargs.items() if key not in ("copy", "order")}
    if name in ("reshape", "transpose") and len(args) > 2:
        return (args[0], args[1:]), kwargs
    return args, {key: x for key, x in kwargs.items() if key != "initial"}


class Traced(Followed):
    """A Followed array; ops that get it and no Tensor are steps too."""

    @staticmethod
    def __apply__(op: Op, inputs: Arguments, settings: Arguments) -> TensorOrArray:
        if any(isinstance(x, Tensor) for x in inputs):
            return Tensor.__apply__(op, inputs, settings)
        inputs = tuple([op.array(x) if x.__class__ in (list, tuple) else x for x in inputs])
        recorders = (x for x in current().listeners if isinstance(x, CallRecorder) and not x.quiet)
        recorder = next(recorders, None)
        if recorder is not None and not is_translated(op):
            with scope(op.name):
                result = op.forward(*inputs, *settings)
            return result[0] if op.auxiliary else result
        try:
            result = op.forward(*plain(inputs), *plain(settings))
        except (ValueError, TypeError, IndexError) as error:
            raise op.explain(error, inputs, settings) from error
        array = np.asarray(result[0] if op.auxiliary else result)
        if recorder is None:
            return array
        recorder.record(op, inputs, settings, array)
        return recorder.traced(array, Reference(len(recorder.steps) - 1))
