"""A program written as Python: arrays and fixed views once, then one line for each step.

With a partition, the steps of each phase are the body of `part(low, high, own, sums)`, which
computes what the rows from low to high give, and returns its share of the sums.
"""

from __future__ import annotations

import re
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...engine.graph import SourceLocation
from ..memory import empty
from ..scatter import add_rows, names_rows
from .buffers import Buffers
from .effects import write_effect, write_result
from .names import Names, comment
from .partition import Partition
from .parts import LARGE, Parts
from .passes import is_transpose
from .program import SMALL, Program, Step, Value, nbytes

__all__ = ["Written", "write"]

COPIED = 1 << 14  # entries up to which dot, which copies what has gaps, is faster than matmul


class Written:
    """The source, and the objects it names."""

    def __init__(self, source: str, objects: dict[str, Any]) -> None:
        self.source, self.objects = source, objects

    def build(self) -> Any:
        """Run the source once: buffers are allocated here."""
        namespace: dict[str, Any] = {}
        exec(compile(self.source, "<minigrad.compile>", "exec"), namespace)
        return namespace["build"](**self.objects)


def write(
    program: Program, title: str, where: SourceLocation, partition: Partition | None
) -> Written:
    """The source of a program, for a step of this title that was compiled here."""
    if partition is not None:
        program.steps.sort(key=partition.order)
    return Writer(program, where, partition).write(title)


class Writer:
    """What is written so far, and how each value is called there.

    A value is read whole, or in rows along an axis. A variable is introduced where it is first
    needed: once, if it is the same array at every call, else in the step, or in the part.

    Attributes:
        once, whole, part: lines that run once, at each call, and in the part that is being written.
        phase: the phase of that part, 0 if none is.
        taken: what a `.grad` holds already, by the id of its root.
    """

    def __init__(
        self, program: Program, where: SourceLocation, partition: Partition | None
    ) -> None:
        self.program, self.where, self.partition = program, where, partition
        self.buffers, self.names = Buffers(program, partition), Names()
        self.once: list[str] = []
        self.whole: list[str] = []
        self.part: list[str] = []
        self.phase, self.path = 0, ""
        self.taken: set[int] = set()
        self._known: dict[Any, str] = {}  # variables, by value and by how it is read
        self._memory: dict[int, tuple[str, Value]] = {}  # the first array of each slot
        self._sums: list[Value] = []  # what this part returns

    def write(self, title: str) -> Written:
        for step in self.program.steps:
            if step.kind == "view":
                continue
            phase = 0 if self.partition is None else self.partition.phase(step)
            if phase != self.phase:
                self._end_part()
                self.phase = phase
            if step.path and step.path != self.path and step.outs:
                self.lines.append(f"# {comment(step.path)}")
                self.path = step.path
            self._step(step)
        self._end_part()
        write_result(self)
        fixed = {a.slot for a in self.buffers.arrays.values() if a.kind == "fixed"}
        size = sum(nbytes(value) for slot, (_, value) in self._memory.items() if slot in fixed)
        count = sum(step.kind != "view" for step in self.program.steps)
        lines = [
            f"# {comment(title)}: {count} steps, {len(fixed)} buffers, {size:,} bytes",
            f"def build({', '.join(self.names.objects)}):",
            *(f"    {line}" for line in self.once),
            "",
            "    def step(args, kwargs):",
            *(f"        {line}" if line else "" for line in self.whole),
            "",
            "    return step",
            "",
        ]
        return Written("\n".join(lines), self.names.objects)

    @property
    def lines(self) -> list[str]:
        return self.part if self.phase else self.whole

    # ------------------------------------------------------------------ values

    def text(self, value: Value, axis: int | None = None) -> str:
        """A value, read whole or as this part's rows along an axis."""
        key = id(value), None if axis is None else (self.phase, axis)
        if key not in self._known:
            self._known[key] = self._whole(value) if axis is None else self._rows(value, axis)
        return self._known[key]

    def _whole(self, value: Value) -> str:
        step, name = value.step, self.names.of(value)
        lines = self.once if self.buffers.is_fixed(value) else self.whole
        if step is None:
            made = self._input(value, name)
        elif step.kind == "view":
            made = self._view(step, self.text(step.args[0]), value.shape)
        else:  # rows of it are written in parts, or it is where a step writes
            made = self._allocated(value)
        if made:
            lines.append(f"{name} = {made}{_shape(value.shape)}")
        return name

    def _input(self, value: Value, name: str) -> str:
        if value.kind == "grad":
            return f"{self.tensor(*value.what)}.grad"
        if value.kind == "argument":
            return str(value.what)
        if value.kind == "leaf":
            return f"{self.tensor(value.what, None)}._data"
        self.names.objects[name] = value.what
        return ""

    def tensor(self, tensor: Any, expression: str | None) -> str:
        """A Tensor that the program did not make."""
        return expression or self.names.bind(tensor, f"leaf_{tensor.name or 'w'}")

    def _allocated(self, value: Value) -> str:
        """Memory for a value: a buffer's, that of another that is not read any more, or new."""
        kind, slot = self.buffers.arrays[id(value)]
        made = f"np.empty({value.shape}, {self.dtype(value.dtype)})"
        if kind == "fresh":
            if nbytes(value) >= LARGE:
                made = f"{self.names.bind(partial(empty, value.shape, value.dtype), 'spare')}()"
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
        assert self.partition is not None
        step, base, shape = value.step, value, self._cut(value, axis)
        while base.step is not None and base.step.kind == "view":
            base = base.step.args[0]
        name = self.names.of(value)
        if id(base) not in self.partition.local:
            k = value.shape[axis] // self.partition.units
            rows = "rows" if k == 1 else f"{k} * low : {k} * high"
            made = f"{self.text(value)}[{':, ' * axis}{rows}]"
            name = self.names.fresh(f"{name}_part")
        elif value is base:
            slot = self.buffers.arrays[id(value)].slot
            made = f"own({slot}, {shape}, {self.dtype(value.dtype)})"
        else:
            assert step is not None
            source = step.args[0]
            made = self._view(step, self.text(source, self.partition.axis(source)), shape)
        self.part.append(f"{name} = {made}{_shape(shape)}")
        return name

    def _cut(self, value: Value, axis: int | None) -> str:
        """The shape of this part of a value."""
        sizes = [str(n) for n in value.shape]
        if axis is not None and self.partition is not None:
            k = value.shape[axis] // self.partition.units
            sizes[axis] = "m" if k == 1 else f"{k} * m"
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

    def _view(self, step: Step, base: str, shape: Any) -> str:
        """A view of this shape as an expression."""
        kind = step.text
        if kind == "getitem":
            return f"{base}[{self._index(step.args[1])}]"
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

    def _arguments(self, step: Step) -> list[str]:
        """The arguments as text, each value as the step reads it."""
        count = len(step.reads())
        needs = self.partition.needs[id(step)] if self.phase and self.partition else [None] * count
        axes = iter(needs)
        floats = [v.dtype for v in step.reads() if v.dtype.kind in "fc"]
        dtype = floats[0] if floats and step.kind == "elementwise" else None

        def written(item: Any) -> str:
            if item.__class__ is Value:
                return self.text(item, next(axes))
            if item.__class__ in (tuple, list):
                inner = ", ".join(map(written, item))
                return f"({inner}{',' * (len(item) == 1)})"
            if item.__class__ in (int, float) and dtype is not None:
                return self._number(item, dtype)
            return self.value(item)

        given = [*map(written, step.args)]
        return given + [f"{k}={written(v)}" for k, v in step.kwargs.items()]

    def value(self, item: Any) -> str:
        """Anything as Python."""
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

    def _index(self, index: Any) -> str:
        shown = []
        for part in index if isinstance(index, tuple) else (index,):
            if part.__class__ is slice:
                ends = ["" if end is None else str(int(end)) for end in (part.start, part.stop)]
                shown.append(":".join([*ends, *([str(part.step)] if part.step else [])]))
            else:
                shown.append(self.value(int(part) if isinstance(part, np.integer) else part))
        return ", ".join(shown) or "()"

    def _number(self, number: Any, dtype: Any) -> str:
        """A number as an array without axes: NumPy takes it twice as fast as a Python number."""
        key = (repr(number), dtype)
        if key not in self._known:
            name = self._known[key] = self.names.fresh(f"c_{number:.4g}")
            self.once.append(f"{name} = np.array({self.value(number)}, {self.dtype(dtype)})")
        return self._known[key]

    def dtype(self, dtype: Any) -> str:
        name = np.dtype(dtype).name
        known = isinstance(getattr(np, name, None), type) and np.dtype(getattr(np, name)) == dtype
        return f"np.{name}" if known else self.names.bind(np.dtype(dtype), "dtype")

    # ------------------------------------------------------------------ steps

    def _step(self, step: Step) -> None:
        if step.kind in ("elementwise", "reduce", "matmul"):
            self._into(step)
        elif step.kind == "copy":
            self._copy(step)
        elif step.kind in ("put", "at"):
            self._put(step)
        elif step.kind in ("kernel", "effect"):
            self._kernel(step)
        elif step.kind == "call":
            given = self._arguments(step)
            picks = step.text == "getitem"
            self._bind(step, f"{given[0]}[{given[1]}]" if picks else _call(step.text, given))
        else:
            write_effect(self, step)

    def _axis(self, out: Value) -> int | None:
        return self.partition.axis(out) if self.phase and self.partition is not None else None

    def _comment(self, out: Value) -> str:
        return _shape(self._cut(out, self._axis(out))) if out.shape else ""

    def _target(self, out: Value) -> str | None:
        """Where a step writes to, None if its result is a new array."""
        axis = self._axis(out)
        if axis is not None:
            return self.text(out, axis)
        if self.phase:  # what this part adds to a sum
            self._sums.append(out)
            name, memory = self.name(out), f"sums({len(self._sums)}, {out.shape}"
            self.part.append(f"{name} = {memory}, {self.dtype(out.dtype)})")
            return name
        small = self.buffers.arrays[id(out)].kind == "fresh" and nbytes(out) < LARGE
        return None if small else self.text(out)

    def name(self, out: Value) -> str:
        """The name of what a line of the step makes, or of what the parts return."""
        name = self._known[id(out), None] = self.names.of(out)
        return name

    def _into(self, step: Step) -> None:
        """A call that takes `out=`."""
        given, target, out = self._arguments(step), self._target(step.out), step.out
        own = step.function is not None and "." not in step.text
        made = _call(self.names.bind(step.function, step.text) if own else step.text, given)
        read = [v.shape for v in step.reads()]
        matrices = all(len(shape) <= 2 for shape in (*read, out.shape))
        gapless, small = self._is_gapless(out), prod(out.shape) <= SMALL
        if step.kind == "matmul" and matrices and (gapless or small):
            if max(map(prod, read)) <= COPIED or min(map(len, read)) < 2:
                made = f"{given[0]}.dot({given[1]})"
        if step.text == "spread":
            made = f"{target}[...] = {given[0]}"
        elif target is not None and small and not gapless and (matrices or step.kind != "matmul"):
            made = f"{target}[...] = {made}"
        elif target is not None:
            made = f"{made[:-1]}, out={target})"
        if target is None:
            self._bind(step, made)
        else:
            self.lines.append(made + self._comment(out))

    def _is_gapless(self, out: Value) -> bool:
        """Whether what a step writes to has no gaps."""
        axis = self._axis(out)
        return not axis or self.partition is None or id(out) in self.partition.local

    def _copy(self, step: Step) -> None:
        """A copy in row-major order, perhaps in another shape or dtype."""
        (source,), out = step.reads(), step.out
        text = self._arguments(step)[0]
        if step.text == "getitem":  # of a single entry
            text = f"{text}[{self._index(step.args[1])}]"
        target = self._target(out)
        if target is None:
            shaped = f".reshape({out.shape})" if step.text == "reshape" else ""
            self._bind(step, f"np.array({text}, {self.dtype(out.dtype)}){shaped}")
            return
        if step.text == "reshape":
            axis = self.partition.needs[id(step)][0] if self.phase and self.partition else None
            target += f".reshape({self._cut(source, axis)})"
        self.lines.append(f"{target}[...] = {text}{self._comment(out)}")

    def _put(self, step: Step) -> None:
        """Zeros with something put in, or added in, at an index."""
        (x, index, *_), out = self._arguments(step), step.out
        shape = self._cut(out, self._axis(out))
        name = self._bind(step, f"np.zeros({shape}, {self.dtype(out.dtype)})")
        if step.kind == "put":
            self.lines.append(f"{name}[{self._index(step.args[1])}] = {x}")
        else:
            rows = names_rows(step.args[1], out, step.args[0])
            add = self.names.bind(add_rows, "add_rows") if rows else "np.add.at"
            self.lines.append(f"{add}({name}, {index}, {x})")

    def _bind(self, step: Step, made: str) -> str:
        """A line that binds a new array; in a part, rows of one that others read are written."""
        out, axis = step.out, self._axis(step.out)
        if axis is not None and self.partition is not None and id(out) not in self.partition.local:
            name = self.text(out, axis)
            self.lines.append(f"{name}[...] = {made}{self._comment(out)}")
            return name
        if self.phase and axis is None:
            self._sums.append(out)
        name = self.names.of(out)
        self._known[id(out), None if axis is None else (self.phase, axis)] = name
        made = made if out.shape else f"np.asarray({made})"
        self.lines.append(f"{name} = {made}{self._comment(out)}")
        return name

    def _kernel(self, step: Step) -> None:
        made = _call(self.names.bind(step.function, step.text), self._arguments(step))
        if not step.several:
            self._bind(step, made)
            return
        names = "".join(f"{self.name(out)}, " for out in step.outs)
        self.lines.append(f"({names}) = {made}")

    def _end_part(self) -> None:
        """The part that ends here, and the line that runs it."""
        if not self.phase or self.partition is None:
            return
        units = self.partition.units
        parts = self.names.bind(Parts(units, self.partition.count), "in_parts")
        part, names = self.names.fresh("part"), "".join(f"{self.names.of(v)}, " for v in self._sums)
        self.whole += [
            "",
            f"def {part}(low, high, own, sums):",
            f'    """What rows low to high of {units} give."""',
            "    rows, m = slice(low, high), high - low",
            *(f"    {line}" for line in self.part),
            f"    return {names}" if names else "",
            "",
            f"{names}{'= ' if names else ''}{parts}({part})",
        ]
        for value in self._sums:
            self._known[id(value), None] = self.names.of(value)
        self.part, self._sums, self.phase, self.path = [], [], 0, ""


def _call(function: str, arguments: list[str]) -> str:
    return f"{function}({', '.join(arguments)})"


def _shape(shape: Any) -> str:
    return f"  # {shape}" if shape else ""
