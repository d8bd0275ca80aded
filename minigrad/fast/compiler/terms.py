"""Values as text: their variables, and the views and arrays that these stand for.

Variables bear the layers' symbols where there are any, or say what the value is: `A_T`, `Q_2d`,
`gelu_tanh`, `d_layer_norm`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...engine.writes import SourceLocation
from .buffers import Buffers
from .partition import Unsplit
from .program import (
    ExistingTensor,
    Program,
    ProgramStep,
    Value,
    is_transpose,
    root,
    transposed_name,
)

__all__ = ["Terms", "comment", "shape_comment"]


class Terms:
    """What is written so far, and how each value is called there.

    A value is read whole, or in rows along an axis. A variable is introduced where it is first
    needed: once, if it is the same array at every call, else in the step, or in the part.

    Attributes:
        once, whole, part: lines that run once, at each call, and in the part that is being written.
        phase: the phase of that part, 0 if none is.
        taken: what a `.grad` holds already, by the id of its root.
    """

    def __init__(self, program: Program, where: SourceLocation, partition: Unsplit) -> None:
        self.program = program
        self.where = where
        self.partition = partition
        self.buffers, self.names = Buffers(program, partition), Names()
        self.once: list[str] = []
        self.whole: list[str] = []
        self.part: list[str] = []
        self.phase, self.path = 0, ""
        self.taken: set[int] = set()
        self._known: dict[Hashable, str] = {}  # variables, by value and by how it is read
        self._memory: dict[int, tuple[str, Value]] = {}  # the first array of each slot
        self._sums: list[Value] = []  # what this part returns
        self._bound: dict[int, list[str]] = {}  # variables of the step, by the root they show
        self._ended: list[Value] = []  # roots that no later step reads

    @property
    def lines(self) -> list[str]:
        return self.part if self.phase else self.whole

    def text(self, value: Value, axis: int | None = None) -> str:
        """A value, read whole or as this part's rows along an axis."""
        key = id(value), None if axis is None else (self.phase, axis)
        if key not in self._known:
            self._known[key] = self._whole(value) if axis is None else self._rows(value, axis)
        return self._known[key]

    def name(self, out: Value) -> str:
        """The name of what a line of the step makes, or of what the parts return."""
        name = self._known[id(out), None] = self.names.of(out)
        return name

    def _over(self, value: Value) -> Value | None:
        """The value it is written over and whose name it keeps: it has no symbol of its own, or
        one such as S_masked in place of S.
        """
        over = self.buffers.over.get(id(value))
        if over is None:
            return None
        same = value.name in (None, over.name)
        if same or str(value.name).startswith(f"{self.names.of(over)}_"):
            self.names.share(value, over)
            return over
        return None

    def _whole(self, value: Value) -> str:
        over = self._over(value)
        if over is not None:
            return self.text(over)
        step = value.step
        name = self.names.of(value)
        lines = self.once if self.buffers.is_fixed(value) else self.whole
        if step is None:
            made = self._input(value, name)
        elif step.kind == "view":
            made = self._view(step, self.text(step.args[0]), value.shape)
        else:  # rows of it are written in parts, or it is where a step writes
            made = self._allocated(value)
        if made:
            lines.append(f"{name} = {made}{shape_comment(value.shape)}")
            if lines is self.whole:
                self.bound(value, name)
        return name

    def bound(self, value: Value, name: str) -> None:
        """A variable of the step, not of a part, that shows this value."""
        self._bound.setdefault(id(root(value)), []).append(name)

    def _input(self, value: Value, name: str) -> str:
        if value.kind == "grad":
            return f"{self.tensor(value.what)}.grad"
        if value.kind == "argument":
            return str(value.what)
        if value.kind == "leaf":
            return f"{self.tensor(ExistingTensor(value.what, None))}._data"
        self.names.objects[name] = value.what
        return ""

    def tensor(self, x: ExistingTensor) -> str:
        return x.expression or self.names.bind(x.tensor, f"leaf_{x.tensor.name or 'w'}")

    def _allocated(self, value: Value) -> str:
        """Memory for a value: a buffer's, that of another that is not read any more, or new."""
        kind, slot = self.buffers.arrays[id(value)]
        if id(value) in self.buffers.over:  # the very array: NumPy looks whether others overlap
            return self.text(self.buffers.over[id(value)])
        made = f"np.empty({value.shape}, {self.dtype(value.dtype)})"
        if kind == "fresh":
            return made
        known, first = self._memory.setdefault(slot, ("", value))
        if not known:
            self._memory[slot] = self.names.of(value), value
            return made
        if first.dtype != value.dtype:
            known += f".reshape(-1).view({self.dtype(value.dtype)})"
        same = first.dtype == value.dtype and first.shape == value.shape
        return known if same else f"{known}.reshape({value.shape})"

    def _rows(self, value: Value, axis: int) -> str:
        """Rows of a value: of an array of this part's own, or cut from the whole."""
        step = value.step
        over = self._over(value)
        if over is not None:
            return self.text(over, axis)
        base = root(value)
        shape = self._cut(value, axis)
        name = self.names.of(value)
        if id(base) not in self.partition.local:
            k = value.shape[axis] // self.partition.units
            rows = "rows" if k == 1 else f"{k} * low : {k} * high"
            made = f"{self.text(value)}[{':, ' * axis}{rows}]"
            name = self.names.fresh(f"{name}_part")
        elif id(value) in self.buffers.over:
            made = self.text(self.buffers.over[id(value)], axis)
        elif value is base:
            slot = self.buffers.arrays[id(value)].slot
            made = f"own({slot}, {shape}, {self.dtype(value.dtype)})"
        else:
            assert step is not None
            source = step.args[0]
            made = self._view(step, self.text(source, self.partition.axis(source)), shape)
        self.part.append(f"{name} = {made}{shape_comment(shape)}")
        return name

    def _cut(self, value: Value, axis: int | None) -> str:
        """The shape of this part of a value."""
        sizes = [str(n) for n in value.shape]
        if axis is not None:
            k = value.shape[axis] // self.partition.units
            sizes[axis] = "m" if k == 1 else f"{k} * m"
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

    def _view(self, step: ProgramStep, base: str, shape: tuple[int, ...] | str) -> str:
        """A view of this shape as an expression."""
        kind = step.text
        if kind == "getitem":
            return f"{base}[{self.index(step.args[1])}]"
        if kind == "broadcast_to":
            return f"np.broadcast_to({base}, {shape})"
        if kind == "reshape":
            return f"{base}.reshape({shape})"
        if is_transpose(step):
            return f"{base}.T" if len(step.out.shape) == 2 else f"{base}.mT"
        given = [self.value(a) for a in step.args[1:] if a is not None]
        given += [f"{k}={self.value(v)}" for k, v in step.kwargs.items() if v is not None]
        if kind in ("swapaxes", "transpose", "squeeze"):
            return f"{base}.{kind}({', '.join(given)})"
        function = self.names.bind(step.function, kind) if kind == "cut" else f"np.{kind}"
        return f"{function}({', '.join([base, *given])})"

    # ------------------------------------------------------------------ arguments

    def _arguments(self, step: ProgramStep) -> list[str]:
        """The arguments as text, each value as the step reads it."""
        axes = iter(self.partition.needs(step))
        floats = [v.dtype for v in step.reads if v.dtype.kind in "fc"]
        counts = step.kind == "elementwise" and step.text != "spread"
        dtype = floats[0] if floats and counts else None

        def written(item: Any) -> str:
            if item.__class__ is Value:
                return self.text(item, next(axes))
            if item.__class__ in (tuple, list):
                inner = ", ".join(map(written, item))
                if item.__class__ is list:  # an index by a list is another than by a tuple
                    return f"[{inner}]"
                return f"({inner}{',' * (len(item) == 1)})"
            if dtype is not None and item.__class__ in (int, float, np.float32, np.float64):
                return self._number(item, getattr(item, "dtype", dtype))
            return self.value(item)

        given = [*map(written, step.args)]
        return given + [f"{k}={written(v)}" for k, v in step.kwargs.items()]

    def value(self, item: Any) -> str:
        """Anything as a Python expression."""
        if item.__class__ is Value:
            return self.text(item)
        if item is Ellipsis:
            return "..."
        if item is None or item.__class__ in (bool, int, str, float):
            text = repr(item)
            return re.sub("inf|nan", r"np.\g<0>", text) if item.__class__ is float else text
        if item.__class__ is slice:
            return f"slice({', '.join(map(self.value, (item.start, item.stop, item.step)))})"
        if item.__class__ is tuple:
            return f"({''.join(self.value(entry) + ', ' for entry in item)})"
        if item.__class__ is list:
            return f"[{', '.join(map(self.value, item))}]"
        return self.names.bind(item, type(item).__name__)

    def index(self, index: Any) -> str:
        """An index as it stands between brackets."""
        shown = []
        for part in index if isinstance(index, tuple) else (index,):
            if part.__class__ is slice:
                ends = ["" if end is None else str(int(end)) for end in (part.start, part.stop)]
                shown.append(":".join([*ends, *([str(part.step)] if part.step else [])]))
            else:
                shown.append(self.value(int(part) if isinstance(part, np.integer) else part))
        return ", ".join(shown) or "()"

    def _number(self, number: Any, dtype: DTypeLike) -> str:
        """A number as an array without axes, which NumPy takes twice as fast as a Python number."""
        key = (repr(number), dtype)
        if key not in self._known:
            name = self._known[key] = self.names.fresh(f"c_{number:.4g}")
            self.once.append(f"{name} = np.array({self.value(float(number))}, {self.dtype(dtype)})")
        return self._known[key]

    def dtype(self, dtype: DTypeLike) -> str:
        name = np.dtype(dtype).name
        known = isinstance(getattr(np, name, None), type) and np.dtype(getattr(np, name)) == dtype
        return f"np.{name}" if known else self.names.bind(np.dtype(dtype), "dtype")


def shape_comment(shape: tuple[int, ...] | str) -> str:
    return f"  # {shape}" if shape else ""


# ---------------------------------------------------------------- what they are called


_INPUTS = {"argument": "x", "constant": "constant", "captured": "array", "leaf": "w"}
_OF_ROWS = {"maximum.reduce": "max", "minimum.reduce": "min", "add.reduce": "sum"}
_OF_ROWS |= {"spread": "spread", "argmax": "argmax"}
_PLAIN = ("matmul", "add", "subtract", "reshape", "sum")  # the op says enough


def comment(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return re.sub(r"[^\w /.,:()<>-]", "_", text)


class Names:
    """Every name once. `objects` are those that the source is handed."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {"np": np}
        self._taken = {"np", "build", "step", "args", "kwargs", "Tensor", *keyword.kwlist}
        self._taken |= {"low", "high", "own", "sums", "rows", "m"}
        self._counts: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def fresh(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "t"
        base = f"t_{base}" if base[0].isdigit() else base
        name, n = base, self._counts.get(base, 1)
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._counts[base] = n
        self._taken.add(name)
        return name

    def bind(self, thing: object, wanted: str) -> str:
        """The name of an object that the source is handed."""
        if id(thing) not in self._names:
            name = self._names[id(thing)] = self.fresh(wanted)
            self.objects[name] = thing
        return self._names[id(thing)]

    def of(self, value: Value) -> str:
        """The name of a value."""
        if id(value) not in self._names:
            self._names[id(value)] = self.fresh(self._wanted(value))
        return self._names[id(value)]

    def share(self, value: Value, other: Value) -> None:
        """Call a value by the name of another, over which it is written."""
        self._names[id(value)] = self.of(other)

    def _wanted(self, value: Value) -> str:
        """What a value would be called if nothing else were: S_max, S_sum, b_spread, K_T, Q_2d."""
        step = value.step
        if value.name or step is None:
            before = (
                f"d_{value.what.tensor.name or 'w'}_before" if value.kind == "grad" else value.kind
            )
            return value.name or _INPUTS.get(value.kind, before)
        source = next((v for v in step.reads if v.kind != "constant"), None)
        if step.kind == "view":
            base = self._called(step.args[0])
            return transposed_name(base) if is_transpose(step) else f"{base}_{len(value.shape)}d"
        what = step.text.removeprefix("np.")
        if what in _OF_ROWS and source is not None:
            return f"{self._called(root(source))}_{_OF_ROWS[what]}"
        if what == "matmul" and any(v.kind == "constant" and v.name == "ones" for v in step.reads):
            return f"{self._called(root(source))}_sum" if source is not None else "sum"
        what = what.removesuffix(".reduce")
        if what in _PLAIN or not step.op or step.op in (what, f"d_{what}"):
            return step.op or what
        return f"{step.op}_{what}"

    def _called(self, value: Value) -> str:
        return self._names.get(id(value)) or self._wanted(value)
