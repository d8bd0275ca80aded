"""Program: what a step did, as a flat list of NumPy calls in the order they ran.

A `Value` is an array that a call reads or makes; a `ProgramStep` is one call. Values say what they
are, not what they hold, so a program is small however large the arrays were.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ...engine.tensor import Tensor
from ...engine.types import Arguments, Array, DType, Kernel
from .dependencies import BUILTIN, Contents

__all__ = [
    "EFFECTS",
    "SMALL_BYTES",
    "ExistingTensor",
    "KeptAttribute",
    "NewTensor",
    "Program",
    "ProgramStep",
    "Value",
    "address",
    "contiguous",
    "data_parts",
    "drop_dead",
    "empty_with_layout",
    "flat",
    "has_layout",
    "is_dataclass",
    "is_transpose",
    "is_whole",
    "made_of",
    "nbytes",
    "parts_of",
    "root",
    "substitute",
    "transposed_name",
]

EFFECTS = ("grad", "clear", "forget", "assign", "update")  # steps that write what is outside
SMALL_BYTES = 1 << 13  # of arrays that are compared by what they hold


class Value:
    """One array of a program.

    Attributes:
        kind: "argument" (fresh at every call), "leaf" (a Tensor's own array), "captured" (an array
            the step reaches by itself), "constant" (the same at every call), "grad" (what a leaf's
            `.grad` holds), "result" (of an update) or "step" (computed).
        what: where it comes from: the Tensor, the array, the expression; the step that makes it.
        strides, offset: its layout in the memory of its root.
        name: its symbol.
    """

    __slots__ = ("dtype", "kind", "name", "offset", "shape", "strides", "what")

    def __init__(self, kind: str, what: Any, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.kind = kind
        self.what = what
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.strides, self.offset = contiguous(shape, self.dtype), 0
        self.name: str | None = None

    @property
    def step(self) -> ProgramStep | None:
        return self.what if self.kind == "step" else None


@dataclass(eq=False)
class ProgramStep:
    """One call: `function(*args, **kwargs)` makes `outs`.

    Attributes:
        kind: "elementwise", "reduce", "matmul" or "copy" (these can write into an array that is
            there already), "view" (its result shares its first argument's memory), "call" (a NumPy
            function), "kernel" (an op's kernel or rule, whole), "effect" (a kernel that does more
            than compute), "check" (a guard: a condition on the numbers); "forget" (`.grad`s are
            None from the start on); "grad", "clear", "assign", "update" (what the step writes).
        text: how the function is written.
        op: the op whose kernel or rule it is part of.  path: where in the model that is.
        shares: whether its result may share memory with what it was given, for a kernel or call.
        several: whether a kernel answers with a tuple.
        key: equal keys, equal results; None if it is to be called each time.
        errors: what it does about floating-point errors, as np.errstate takes it, where that is not
            what the caller of the step has set.
    """

    kind: str
    text: str = ""
    function: Kernel | None = None
    args: Arguments = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outs: list[Value] = field(default_factory=list)
    op: str = ""
    path: str = ""
    shares: bool = False
    several: bool = False
    key: Hashable = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Value:
        return self.outs[0]

    @cached_property
    def reads(self) -> list[Value]:
        return [v for v in flat((self.args, self.kwargs)) if v.__class__ is Value]


class KeptAttribute(NamedTuple):
    """An attribute that the step sets to an array or a NumPy number: whose, its name and which.

    may_be_read: whether code of the step names it, which may read what it held before.
    """

    state: dict[str, Any]
    name: str
    value: Value | NewTensor
    may_be_read: bool


class Program:
    """The steps, and what the function returned: nested tuples, lists and dicts of Values, Tensors
    and constants.

    Attributes:
        op, path: written on the steps that are added.
        keeps: attributes that the step sets.
        laid_out: results of entrywise calls, by id, and the value whose layout they take: the
            result of a kernel, which alone decides on its layout, or a value that follows one.
        once: whether a kernel draws random numbers or has an effect: neither is done twice.
        wrote: whether something outside was written.
    """

    def __init__(self) -> None:
        self.steps: list[ProgramStep] = []
        self.result: object = None
        self.op = self.path = ""
        self.keeps: list[KeptAttribute] = []
        self.once = self.wrote = False
        self._constants: dict[Hashable, Value] = {}
        self._made: dict[Hashable, list[Value]] = {}
        self.laid_out: dict[int, Value] = {}
        self._errors: dict[str, Any] = {**np.geterr()}

    def __repr__(self) -> str:
        return f"<Program: {len(self.steps)} steps, {len(self.keeps)} attributes set>"

    def add(self, step: ProgramStep, *made: tuple[tuple[int, ...], DTypeLike]) -> list[Value]:
        """Append a step that makes arrays of these shapes and dtypes; or what one of the same key
        made before: angles and masks of all layers are computed once.
        """
        known = self._made.get(step.key) if step.key is not None else None
        if known is not None:
            return known
        step.outs = [Value("step", step, shape, dtype) for shape, dtype in made]
        step.op, step.path = self.op, self.path
        errors: dict[str, Any] = {**np.geterr()}
        step.errors = {kind: how for kind, how in errors.items() if how != self._errors[kind]}
        self.steps.append(step)
        if step.key is not None:
            self._made[step.key] = step.outs
        return step.outs

    def follows_kernel(self, value: Value) -> bool:
        """Whether its layout is that of some kernel's result."""
        base = root(value)
        made = base.step is not None and base.step.kind == "kernel"
        return made or id(base) in self.laid_out

    def write(self, kind: str, *args: Any) -> ProgramStep:
        """Append a step that writes to what is outside: what was read of it is read anew."""
        step = ProgramStep(kind, args=args)
        self.steps.append(step)
        if kind in ("assign", "update"):
            self.wrote = True
            written = args[1] if kind == "assign" else None
            made = self._made.items()
            self._made = {k: outs for k, outs in made if not _is_stale(outs[0].what, written)}
        return step

    def forget(self, count: int) -> None:
        """Take back all but so many steps."""
        gone = {id(out) for step in self.steps[count:] for out in step.outs}
        self._made = {key: outs for key, outs in self._made.items() if id(outs[0]) not in gone}
        self.laid_out = {key: v for key, v in self.laid_out.items() if key not in gone}
        del self.steps[count:]

    def constant(self, array: Array) -> Value:
        """An array that is the same at every call; of small ones that are equal, the first."""
        small = array.nbytes <= SMALL_BYTES and not array.dtype.hasobject
        key = (array.shape, array.strides, array.dtype, array.tobytes()) if small else id(array)
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = Value("constant", array, array.shape, array.dtype)
            known.strides = array.strides
        return known

    def targets(self, kind: str) -> list[Any]:
        """What steps of a kind write to: optimizers of updates, the existing Tensors of others."""
        return [step.args[0] for step in self.steps if step.kind == kind]

    def kept(self) -> list[Value]:
        """The values that outlive the program, other than gradients."""
        items = [*flat(self.result), *(kept.value for kept in self.keeps)]
        found = [x.value if x.__class__ is NewTensor else x for x in items]
        return [v for v in found if v.__class__ is Value]


def _is_stale(step: ProgramStep, written: Value | None) -> bool:
    """Whether what a step computed is of memory that may have been written since; None: any."""
    outside = [base for v in step.reads if (base := root(v)).kind not in ("step", "constant")]
    changed = written is None or any(_may_share(base, written) for base in outside)
    return step.kind != "view" and changed


def _may_share(value: Value, other: Value) -> bool:
    """Whether two values from outside may share memory, at any call."""
    if value.dtype != other.dtype:
        return False
    arrays = [v.what._data if v.kind == "leaf" else v.what for v in (value, other)]
    stay = {value.kind, other.kind} <= {"leaf", "captured"}
    return not stay or np.may_share_memory(*arrays)


@dataclass(frozen=True, slots=True)
class ExistingTensor:
    """A Tensor that the program did not make: where it is among the arguments, None for others."""

    tensor: Tensor
    expression: str | None


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A returned Tensor that the step made, or (`scalar`) a number of NumPy's."""

    value: Value
    name: str | None
    scalar: bool = False


# ---------------------------------------------------------------- containers


def parts_of(item: Any) -> Contents | None:
    """What a container holds; None for anything else.

    >>> parts_of([5, 7]), parts_of({"x": 1}), parts_of("text")
    ({0: 5, 1: 7}, {'x': 1}, None)
    """
    kind = item.__class__
    if kind in (tuple, list):
        return dict(enumerate(item))
    if kind in (dict, OrderedDict):
        return dict(item)
    if _is_namedtuple(kind):
        return dict(zip(kind._fields, item, strict=True))
    return _attributes(item) if is_dataclass(item) else None


def data_parts(item: Any) -> Contents | None:
    """What a container holds that another of this kind may take the place of; None for anything
    else. A dataclass must hold arrays, and beside them nothing but plain values: one that holds a
    model or an optimizer is one object from call to call.
    """
    return None if is_dataclass(item) and not _is_data(item) else parts_of(item)


def made_of(kind: type, parts: Contents) -> Any:
    """A container of this class that holds these parts."""
    if kind in (tuple, list):
        return kind(parts.values())
    if _is_namedtuple(kind):
        return tuple.__new__(kind, parts.values())
    if kind in (dict, OrderedDict):
        return kind(parts)
    made: Any = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(made, name, part)  # which a frozen one allows too
    return made


def flat(item: object, found: list[Any] | None = None) -> list[Any]:
    """The entries of nested containers."""
    found, parts = [] if found is None else found, parts_of(item)
    if parts is None:
        found.append(item)
    else:
        for entry in parts.values():
            flat(entry, found)
    return found


def substitute(item: Any, replace: Callable[[Any], Any]) -> Any:
    """The same nesting with every entry that is no container replaced."""
    parts = parts_of(item)
    if parts is None:
        return replace(item)
    return made_of(item.__class__, {key: substitute(x, replace) for key, x in parts.items()})


def _attributes(item: Any) -> Contents:
    """A dataclass's fields, and attributes set later; but not what a property computes of them and
    keeps.
    """
    kind = item.__class__
    held = {name: getattr(item, name) for name in _fields_of(kind) or () if hasattr(item, name)}
    for name, part in getattr(item, "__dict__", {}).items():
        if name not in held and not isinstance(getattr(kind, name, None), cached_property):
            held[name] = part
    return held


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_dataclass(item: object) -> bool:
    """Whether it is a user's, of data: what can be called, or is a layer or mask, is more."""
    kind: Any = item.__class__
    return hasattr(kind, "__dataclass_fields__") and _fields_of(kind) is not None


@lru_cache(64)
def _fields_of(kind: Any) -> list[str] | None:
    """The fields of such a dataclass, None for any other."""
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    calls = any("__call__" in vars(base) for base in kind.__mro__)
    if calls or kind.__new__ is not object.__new__ or packages & {"minigrad", "layers"}:
        return None
    return [field.name for field in fields(kind)]


def _is_data(item: object) -> bool:
    """Whether it holds arrays, and beside them only plain values, all without cycles."""
    stack, holds_arrays = [item], False
    seen: set[int] = set()
    while stack:
        thing = stack.pop()
        if isinstance(thing, np.ndarray | Tensor):
            holds_arrays = True
        elif not isinstance(thing, BUILTIN):
            parts = parts_of(thing)
            if parts is None or id(thing) in seen:
                return False
            seen.add(id(thing))
            stack += parts.values()
    return holds_arrays


# ---------------------------------------------------------------- what nobody reads


def drop_dead(program: Program) -> None:
    """Drop calls whose results nobody reads, but for those that do more than compute."""
    needed = {id(v) for v in program.kept()}
    alive = []
    for step in reversed(program.steps):
        draws = any(isinstance(a, np.random.Generator) for a in step.args)  # and moves that on
        stays = draws or step.kind in (*EFFECTS, "check", "effect")
        if stays or any(id(out) in needed for out in step.outs):
            alive.append(step)
            needed.update(map(id, step.reads))
    program.steps[:] = reversed(alive)


def is_transpose(step: ProgramStep) -> bool:
    """Whether a view exchanges the last two axes and does nothing else."""
    ndim = len(step.args[0].shape)
    if step.text == "swapaxes":
        return {a % ndim for a in step.args[1:]} == {ndim - 1, ndim - 2}
    return step.text == "transpose" and ndim == 2


# ---------------------------------------------------------------- layouts


def contiguous(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """The strides of an array in row-major order."""
    strides, step = [], int(dtype.itemsize)
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_whole(value: Value) -> bool:
    """Whether its layout is row-major, without gaps."""
    return value.strides == contiguous(value.shape, value.dtype)


def has_layout(array: Array, value: Value) -> bool:
    """Whether an array has a value's layout; strides of axes of length one do not matter."""
    if array.strides == value.strides:
        return True
    axes = zip(array.shape, array.strides, value.strides, strict=True)
    return not array.size or all(n == 1 or a == b for n, a, b in axes)


def empty_with_layout(value: Value) -> Array:
    """An array of a value's layout, its entries still arbitrary."""
    if 0 in value.shape:
        return np.empty(value.shape, value.dtype)
    ends = [(n - 1) * s for n, s in zip(value.shape, value.strides, strict=True)]
    before, after = -sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
    memory = np.empty(before + after + value.dtype.itemsize, np.uint8)
    return np.ndarray(value.shape, value.dtype, memory, before, value.strides)


def address(array: Array) -> int:
    """The address of an array's first entry."""
    return int(array.__array_interface__["data"][0])


def root(value: Value) -> Value:
    """The value whose memory it is."""
    while (step := value.step) is not None and step.kind == "view":
        value = step.args[0]
    return value


def transposed_name(name: str) -> str:
    """The name of a transpose.

    >>> transposed_name("K"), transposed_name("K_T")
    ('K_T', 'K')
    """
    return name.removesuffix("_T") if name.endswith("_T") else f"{name}_T"


def nbytes(value: Value) -> int:
    return prod(value.shape) * int(value.dtype.itemsize)
