"""Values as text: their variables, and the views and arrays that these stand for."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np

from ...engine.graph import SourceLocation as Where
from ..memory import empty
from .axes import backward
from .buffer_assignment import Array, Homes
from .names import Names
from .parts import LARGE
from .program import Program, Step, Value, nbytes, root
from .rewrite import is_transpose
from .split import Split

__all__ = ["Terms"]


class Terms:
    """What is written so far, and how a value is called there.

    A value is read "whole", as rows along an axis, or as a "sum" of this part. A variable is
    introduced where it is first needed: once, if it is the same array at every call, else in the
    step, or in the part.
    """

    def __init__(self, program: Program, where: Where, split: Split | None) -> None:
        self.program, self.where, self.split = program, where, split
        self.homes = Homes(program, split)
        self.names = Names(self.homes)
        self.once: list[str] = []
        self.whole: list[str] = []  # lines of the step
        self.part: list[str] = []  # lines of the part that is being written
        self.phase = 0
        self.known: dict[Any, str] = {}  # variables, by value and by how they are read
        self.memory: dict[int, tuple[str, Value]] = {}  # the first array of each slot
        self.given: set[int] = set()  # arrays that have been introduced
        self.taken: set[int] = set()  # what a .grad holds: its root, or itself if it is a part
        self.sums = 0
        self.path = ""

    @property
    def lines(self) -> list[str]:
        return self.part if self.phase else self.whole

    def text(self, value: Value, need: Any = "whole") -> str:
        """A value, read whole, as a sum of this part, or as rows along an axis."""
        key = (id(value), 0 if need == "whole" else self.phase, need)
        if key not in self.known:
            find = {"whole": self._whole_text, "sum": self._sum_text}.get(need)
            self.known[key] = find(value) if find else self._rows_text(value, need)
        return self.known[key]

    def _whole_text(self, value: Value) -> str:
        step = value.step
        if step is None:
            return self._input(value)
        if step.into is not None:
            return self.text(step.into)
        if step.text == "joined":
            return self.text(step.args[0])
        if step.kind != "view":  # rows of it are written in parts, and it is read whole later
            return self._declared(value)
        lines = self.once if self.homes.is_fixed(value) else self.whole
        name = self.names.of(value)
        lines.append(f"{name} = {self._view(step, 'whole', value.shape)}{_shape(value.shape)}")
        return name

    def _input(self, value: Value) -> str:
        if value.kind == "room":
            return self._declared(value)
        name = self.names.of(value)
        if value.kind == "grad":
            self.whole.append(f"{name} = {self.tensor(*value.what)}.grad{_shape(value.shape)}")
        elif value.kind == "argument":
            self.whole.append(f"{name} = {value.what}{_shape(value.shape)}")
        elif value.kind == "leaf":
            leaf = self.names.bind(value.what, f"leaf_{value.name or 'w'}")
            self.once.append(f"{name} = {leaf}._data{_shape(value.shape)}")
        else:
            self.names.objects[name] = value.what
        return name

    def tensor(self, tensor: Any, expression: str | None) -> str:
        """A Tensor that the program did not make."""
        return expression or self.names.bind(tensor, f"leaf_{tensor.name or 'w'}")

    def _declared(self, value: Value) -> str:
        """The array of a value that is written in parts, or in several steps."""
        array = self.homes.arrays[id(value)]
        name = self.names.of_array(array)
        if array.kind == "fixed":
            self._buffer(array, value)
        elif nbytes(value) >= LARGE:
            self._spare(array, value)
        else:
            self.whole.append(f"{name} = np.empty({value.shape}, {self._dtype(value.dtype)})")
        return name

    def _sum_text(self, value: Value) -> str:
        step = value.step
        assert step is not None
        assert step.kind == "view", "a sum is made before it is read"
        name = self.names.of(value)
        self.part.append(f"{name} = {self._view(step, 'sum', value.shape)}{_shape(value.shape)}")
        return name

    def _rows_text(self, value: Value, axis: int) -> str:
        """Rows of a value: of an array of this part, or cut from the whole."""
        step, base = value.step, root(value)
        assert self.split is not None
        shape = _shape(self._cut_shape(value, axis))
        if id(base) in self.split.local:
            if step is None or (step.kind != "view" and step.into is None):
                return self._own(value, axis)
            if step.into is not None:
                return self.text(step.into, axis)
            if step.text == "joined":
                return self.text(step.args[0], axis)
            inner = backward(step, axis, self.split.units)
            made = self._view(step, inner, self._cut_shape(value, axis))
            name = self.names.of(value)
        else:
            cuts = ":, " * axis
            made = f"{self.text(value)}[{cuts}{self._rows(value.shape[axis])}]"
            name = self.names.fresh(f"{self.names.of(value)}_part")
        self.part.append(f"{name} = {made}{shape}")
        return name

    def _rows(self, length: int) -> str:
        """The slice of so many entries that belongs to this part."""
        assert self.split is not None
        k = length // self.split.units
        return "rows" if k == 1 else f"{k} * low : {k} * high"

    def _cut_shape(self, value: Value, axis: int) -> str:
        """The shape of this part of a value."""
        assert self.split is not None
        k = value.shape[axis] // self.split.units
        sizes = [str(n) for n in value.shape]
        sizes[axis] = "m" if k == 1 else f"{k} * m"
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

    def _own(self, value: Value, axis: int) -> str:
        """An array in this thread's own memory."""
        array = self.homes.arrays[id(value)]
        name = self.names.of_array(array)
        if id(array) not in self.given:
            self.given.add(id(array))
            shape = self._cut_shape(value, axis)
            self.part.append(f"{name} = own({array.slot}, {shape}, {self._dtype(value.dtype)})")
        return name

    def _source(self, value: Value, need: Any, inline: bool = False) -> str:
        """What a view is of; a view that has no name of its own is written into it."""
        step = value.step
        key = (id(value), 0 if need == "whole" else self.phase, need)
        named = (value.name and not inline) or key in self.known
        if step is None or step.kind != "view" or step.text in ("joined", "cut") or named:
            return self.text(value, need)
        if need in ("whole", "sum"):
            return self._view(step, need, value.shape)
        assert self.split is not None
        return self._view(
            step, backward(step, need, self.split.units), self._cut_shape(value, need)
        )

    def _view(self, step: Step, need: Any, shape: Any) -> str:
        """A view of this shape as an expression; `need` says how its source is read."""
        kind, base = step.text, self._source(step.args[0], need)
        if kind == "cut":
            cut = ", ".join(self.value(a) for a in step.args[1:])
            return f"{self.names.bind(step.function, 'cut')}({base}, {cut})"
        if kind == "getitem":
            return f"{base}[{self._index(step.args[1])}]"
        if kind in ("reshape", "broadcast_to"):
            return (
                f"{base}.reshape({shape})" if kind == "reshape" else f"np.{kind}({base}, {shape})"
            )
        rest = [self.value(a) for a in step.args[1:] if a is not None]
        rest += [f"{k}={self.value(v)}" for k, v in step.kwargs.items() if v is not None]
        if is_transpose(step):
            return f"{base}.T" if len(step.out.shape) == 2 else f"{base}.mT"
        if kind in ("swapaxes", "transpose", "squeeze"):
            return f"{base}.{kind}({', '.join(rest)})"
        return f"np.{kind}({', '.join([base, *rest])})"

    def _index(self, index: Any) -> str:
        shown = []
        for part in index if isinstance(index, tuple) else (index,):
            if part.__class__ is slice:
                ends = [part.start, part.stop, part.step]
                a, b, c = ("" if end is None else str(int(end)) for end in ends)
                shown.append(f"{a}:{b}:{c}" if c else f"{a}:{b}")
            else:
                shown.append(self.value(int(part) if isinstance(part, np.integer) else part))
        return ", ".join(shown) if shown else "()"

    def value(self, item: Any, need: Any = "whole", dtype: Any = None) -> str:
        """An argument as Python."""
        if item.__class__ is Value:
            return self.text(item, need)
        if item is None or item is Ellipsis or isinstance(item, bool):
            return "..." if item is Ellipsis else repr(item)
        if item.__class__ in (int, float) and dtype is not None:
            return self._number(item, dtype)
        if item.__class__ in (int, str, float):
            text = repr(item)
            return re.sub("inf|nan", r"np.\g<0>", text) if item.__class__ is float else text
        if item.__class__ is slice:
            return f"slice({', '.join(map(self.value, (item.start, item.stop, item.step)))})"
        if item.__class__ in (tuple, list):
            inner = ", ".join(self.value(entry, need) for entry in item)
            open_, close = "()" if item.__class__ is tuple else "[]"
            return f"{open_}{inner}{',' * (close == ')' and len(item) == 1)}{close}"
        return self.names.bind(item, type(item).__name__)

    def _number(self, number: Any, dtype: Any) -> str:
        """A number as an array without axes: NumPy takes it twice as fast as a Python number."""
        key = (repr(number), str(dtype), "number")
        if key not in self.known:
            self.known[key] = self.names.fresh(f"c_{number:.4g}")
            made = f"np.array({self.value(number)}, {self._dtype(dtype)})"
            self.once.append(f"{self.known[key]} = {made}")
        return self.known[key]

    def _dtype(self, dtype: Any) -> str:
        name = np.dtype(dtype).name
        known = isinstance(getattr(np, name, None), type) and np.dtype(getattr(np, name)) == dtype
        return f"np.{name}" if known else self.names.bind(np.dtype(dtype), "dtype")

    def _spare(self, array: Array, value: Value) -> None:
        """A large array of this call; or another's memory."""
        if id(array) in self.given:
            return
        self.given.add(id(array))
        name, known = self.names.of_array(array), self.memory.get(array.slot)
        if known is not None:
            shaped = f".reshape({value.shape})" if known[1].shape != value.shape else ""
            self.whole.append(f"{name} = {known[0]}{shaped}  # the same memory")
            return
        self.memory[array.slot] = name, value
        spare = self.names.bind(partial(empty, value.shape, value.dtype), f"spare_{name}")
        self.whole.append(f"{name} = {spare}()")

    def _buffer(self, array: Array, value: Value) -> None:
        """A buffer, allocated once; or another's memory."""
        if id(array) in self.given:
            return
        self.given.add(id(array))
        name, known = self.names.of_array(array), self.memory.get(array.slot)
        made = f"np.empty({value.shape}, {self._dtype(value.dtype)})"
        if known is None:
            self.memory[array.slot] = name, value
        else:
            made, first = known
            if first.dtype != value.dtype:
                made += f".reshape(-1).view({self._dtype(value.dtype)}).reshape({value.shape})"
            elif first.shape != value.shape:
                made += f".reshape({value.shape})"
            made += "  # the same memory"
        self.once.append(f"{name} = {made}")

    def _need(self, step: Step, value: Value, time: int = 0) -> Any:
        """How a step reads a value, which it may be given several times."""
        if not self.phase or self.split is None:
            return "whole"
        return [need for v, need in self.split.needs[id(step)] if v is value][time]

    def _arguments(self, step: Step) -> list[str]:
        dtypes = [v.dtype for v in step.reads() if v.dtype.kind in "fc"]
        dtype = dtypes[0] if dtypes and step.kind == "elementwise" else None
        given: list[Value] = []

        def written(item: Any) -> str:
            if item.__class__ is Value:
                given.append(item)
                return self.text(item, self._need(step, item, sum(v is item for v in given) - 1))
            if item.__class__ in (tuple, list):
                inner = ", ".join(map(written, item))
                return f"({inner}{',' * (len(item) == 1)})"
            return self.value(item, dtype=dtype)

        settings = [f"{k}={self.value(v)}" for k, v in step.kwargs.items()]
        return [*map(written, step.args), *settings]


def _shape(shape: Any) -> str:
    return f"  # {shape}" if shape else ""
