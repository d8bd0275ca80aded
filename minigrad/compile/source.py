"""A program written as Python: arrays and fixed views once, then one line for each step.

With a split, the steps of each phase are the body of `part(low, high, ...)`, which computes what
the rows from low to high give, and returns its share of the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Place as Where
from ..graph import writes
from ..tensor import Tensor
from .axes import backward
from .homes import Array, Homes
from .names import Names, comment
from .parts import LARGE, Parts, Spare
from .program import Known, Program, Step, Value, Wrapped, is_whole, nbytes, root
from .rewrite import is_transpose
from .split import Split

__all__ = ["Changed", "Written", "write"]


class Changed(Exception):
    """What the program asked of the numbers has another answer than when it was recorded."""


class Written:
    """The source, and the objects it names."""

    def __init__(self, source: str, objects: dict[str, Any]) -> None:
        self.source, self.objects = source, objects

    def build(self) -> Any:
        """Run the source once: buffers are allocated here."""
        namespace: dict[str, Any] = {}
        exec(compile(self.source, "<minigrad.compile>", "exec"), namespace)
        return namespace["build"](**self.objects)


def write(program: Program, title: str, where: Where, split: Split | None) -> Written:
    """The source of a program, for a step of this title that was compiled here."""
    if split is not None:
        program.steps.sort(key=split.order)
    return _Writer(program, where, split).write(title)


class _Writer:
    def __init__(self, program: Program, where: Where, split: Split | None) -> None:
        self.program, self.where, self.split = program, where, split
        self.homes = Homes(program, split)
        self.names = Names(self.homes)
        self.once: list[str] = []
        self.whole: list[str] = []  # lines of the step
        self.part: list[str] = []  # lines of the part that is being written
        self.phase = 0
        self.known: dict[Any, str] = {}  # variables, by value and by how they are read
        self.memory: dict[int, str] = {}  # the first array of each slot
        self.given: set[int] = set()  # arrays that have been introduced
        self.taken: set[int] = set()  # what a .grad holds, by its root, or itself where it is a part
        self.sums = 0
        self.path = ""

    def write(self, title: str) -> Written:
        sums: list[Value] = []
        for i, step in enumerate(self.program.steps):
            if step.kind == "view":
                continue
            phase = self._phase_of(step)
            if phase != self.phase:
                self._end_phase(sums)
                self.phase, sums = phase, []
            self._mark(step)
            writer = getattr(self, f"_{step.kind}", None)
            if writer is None:
                self._computed(step)
            else:
                writer(step)
            if phase:
                sums += [out for out in step.outs if self._is_total(out)]
        self._end_phase(sums)
        self.phase = 0
        for owner, key, value in self.program.keeps:
            name = self.names.bind(owner, "attributes")
            self.whole.append(f"{name}[{key!r}] = {self._source(value, 'whole', True)}")
        self.whole.append(f"return {self._result(self.program.result)}")
        return Written(self._together(title), self.names.objects)

    def _together(self, title: str) -> str:
        fixed = [a for a in self.homes.arrays.values() if a.kind == "fixed"]
        slots = {a.slot: nbytes(a.values[0]) for a in fixed}
        steps = sum(step.kind != "view" for step in self.program.steps)
        lines = [
            f"# {comment(title)}: {steps} steps, {len(slots)} buffers, {sum(slots.values()):,} bytes",
            f"def build({', '.join(self.names.objects)}):",
            *(f"    {line}" for line in self.once),
            "",
            "    def step(args, kwargs):",
            *(f"        {line}" if line else "" for line in self.whole),
            "",
            "    return step",
            "",
        ]
        return "\n".join(lines)

    # ------------------------------------------------------------------ parts

    def _phase_of(self, step: Step) -> int:
        if self.split is None:
            return 0
        time, in_parts = self.split.time(step)
        return time if in_parts else 0

    def _is_total(self, value: Value) -> bool:
        """Whether a sum is read by others than the parts themselves."""
        assert self.split is not None
        return self.split.place(value).kind == "sum" and id(root(value)) not in self.split.local

    def _end_phase(self, sums: list[Value]) -> None:
        """The part that ends here, and the line that runs it."""
        if not self.phase:
            return
        assert self.split is not None
        units, count = self.split.units, self.split.count
        parts = self.names.bind(Parts(units, count), "in_parts")
        part = self.names.fresh("part")
        names = [self.known[id(value), self.phase, "sum"] for value in sums]
        self.part.append(f"return {', '.join(names)}{',' * (len(names) == 1)}" if names else "")
        self.whole += [
            "",
            f"def {part}(low, high, own, sums):",
            f'    """What rows low to high of {units} give."""',
            "    rows, m = slice(low, high), high - low",
            *(f"    {line}" for line in self.part if line),
            "",
        ]
        taken = f"{', '.join(names)}{',' * (len(names) == 1)} = " if names else ""
        self.whole.append(f"{taken}{parts}({part})")
        self.part, self.path = [], ""
        phase, self.phase = self.phase, 0
        for value in sums:
            self.known[id(value), 0, "whole"] = self.known[id(value), phase, "sum"]
            if value.step is not None and value.step.into is not None:
                self.whole.append(f"np.copyto({self.text(value.step.into)}, {self.text(value)})")

    @property
    def lines(self) -> list[str]:
        return self.part if self.phase else self.whole

    def _mark(self, step: Step) -> None:
        """A comment where another part of the model begins."""
        if step.path != self.path and step.path and step.outs:
            self.lines.append(f"# {comment(step.path)}")
            self.path = step.path

    def _need(self, step: Step, value: Value) -> Any:
        """How a step reads a value."""
        if not self.phase or self.split is None:
            return "whole"
        return next(need for v, need in self.split.needs[id(step)] if v is value)

    # ------------------------------------------------------------------ values as text

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
        if value.kind == "argument":
            self.whole.append(f"{name} = {value.what}{_shape(value.shape)}")
        elif value.kind == "leaf":
            leaf = self.names.bind(value.what, f"leaf_{value.name or 'w'}")
            self.once.append(f"{name} = {leaf}._data{_shape(value.shape)}")
        else:
            self.names.objects[name] = value.what
        return name

    def _declared(self, value: Value) -> str:
        """The array of a value that is written in parts, or in several steps."""
        array = self.homes.arrays[id(value)]
        name = self.names.of_array(array)
        if array.kind == "fixed":
            self._buffer(array, value)
        elif nbytes(value) >= LARGE:
            spare = self.names.bind(Spare(value.shape, value.dtype), f"spare_{name}")
            self.whole.append(f"{name} = {spare}()")
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
            rest = ", ".join(self.value(a) for a in step.args[1:])
            return f"{self.names.bind(step.function, 'cut')}({base}, {rest})"
        if kind == "getitem":
            return f"{base}[{self._index(step.args[1])}]"
        if kind in ("reshape", "broadcast_to"):
            return f"{base}.reshape({shape})" if kind == "reshape" else f"np.{kind}({base}, {shape})"
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
        if item.__class__ in (int, str) or (item.__class__ is float and np.isfinite(item)):
            return repr(item)
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

    # ------------------------------------------------------------------ steps

    def _arguments(self, step: Step) -> list[str]:
        dtypes = [v.dtype for v in step.reads() if v.dtype.kind in "fc"]
        dtype = dtypes[0] if dtypes and step.kind == "elementwise" else None

        def written(item: Any) -> str:
            if item.__class__ is Value:
                return self.text(item, self._need(step, item))
            if item.__class__ in (tuple, list):
                inner = ", ".join(map(written, item))
                return f"({inner}{',' * (len(item) == 1)})"
            return self.value(item, dtype=dtype)

        settings = [f"{k}={self.value(v)}" for k, v in step.kwargs.items()]
        return [*map(written, step.args), *settings]

    def _target(self, step: Step) -> str | None:
        """The array that a step writes to, None if its result is a new one."""
        out = step.out
        if self.phase and self.split is not None:
            place = self.split.place(out)
            if place.kind == "rows":
                return self.text(out, place.axis)
            return self._sum_target(out)
        if step.into is not None:
            return self.text(out)
        array = self.homes.arrays[id(out)]
        name = self.known[id(out), 0, "whole"] = self.names.of_array(array)
        if array.kind == "fixed":
            self._buffer(array, out)
            return name
        if nbytes(out) >= LARGE:
            spare = self.names.bind(Spare(out.shape, out.dtype), f"spare_{name}")
            self.whole.append(f"{name} = {spare}()")
            return name
        return None

    def _sum_target(self, out: Value) -> str:
        """What this part adds to a sum."""
        assert self.split is not None
        array = self.homes.arrays[id(root(out))]
        own = out is root(out) and id(out) in self.split.local
        name = self.names.of_array(array) if out is root(out) else self.names.of(out)
        self.known[id(out), self.phase, "sum"] = name
        if own and id(array) in self.given:
            return name
        if own:
            self.given.add(id(array))
        self.sums += not own
        memory = f"own({array.slot}" if own else f"sums({self.sums}"
        self.part.append(f"{name} = {memory}, {out.shape}, {self._dtype(out.dtype)})")
        return name

    def _buffer(self, array: Array, value: Value) -> None:
        """A buffer, allocated once; or another's memory."""
        if id(array) in self.given:
            return
        self.given.add(id(array))
        name, first = self.names.of_array(array), self.memory.get(array.slot)
        made = f"np.empty({value.shape}, {self._dtype(value.dtype)})"
        if first is not None:
            made = f"{first}.reshape(-1).view({self._dtype(value.dtype)}).reshape({value.shape})"
            made += "  # the same memory"
        self.memory.setdefault(array.slot, name)
        self.once.append(f"{name} = {made}")

    def _computed(self, step: Step) -> None:
        arguments, target, out = self._arguments(step), self._target(step), step.out
        function = step.text
        matrices = all(len(v.shape) <= 2 for v in (*step.reads(), out))
        if step.kind == "matmul" and matrices and self._is_contiguous(step):
            function = "np.dot"
        if target is not None:
            made = f"{function}({', '.join([*arguments, f'out={target}'])})"
        else:
            made = f"{function}({', '.join(arguments)})"
            made = made if out.shape else f"np.asarray({made})"
            made = f"{self.text(out)} = {made}"
        self.lines.append(made + self._comment(out))

    def _is_contiguous(self, step: Step) -> bool:
        """Whether what a step writes to has no gaps."""
        if step.into is not None:
            return is_whole(step.into)
        place = self.split.place(step.out) if self.phase and self.split is not None else None
        if place is None or place.kind != "rows" or id(step.out) in self.split.local:  # type: ignore[union-attr]
            return True
        return place.axis == 0

    def _made_shape(self, value: Value) -> str:
        """The shape of what a step makes here."""
        place = self.split.place(value) if self.phase and self.split is not None else None
        rows = place is not None and place.kind == "rows"
        return self._cut_shape(value, place.axis) if rows and place else repr(value.shape)

    def _comment(self, value: Value) -> str:
        return f"  # {self._made_shape(value)}" if value.shape else ""

    def _copy(self, step: Step) -> None:
        """A copy in row-major order, perhaps in another shape or dtype."""
        source, out = next(step.reads()), step.out
        need = self._need(step, source)
        text, target = self.text(source, need), self._target(step)
        if target is None:
            shaped = f".reshape({out.shape})" if out.shape != source.shape else ""
            made = f"{self.text(out)} = np.array({text}, {self._dtype(out.dtype)}){shaped}"
        else:
            if out.shape != source.shape:
                cut = self._cut_shape(source, need) if isinstance(need, int) else source.shape
                target = f"{target}.reshape({cut})"
            unsafe = ", casting='unsafe'" if step.kind == "cast" else ""
            made = f"np.copyto({target}, {text}{unsafe})"
        self.lines.append(made + self._comment(out))

    _cast = _copy

    def _call(self, step: Step) -> None:
        arguments = self._arguments(step)
        made = f"{step.text}({', '.join(arguments)})"
        self._bound(step, f"{arguments[0]}[{arguments[1]}]" if step.text == "getitem" else made)

    def _put(self, step: Step) -> None:
        """Zeros with something put in, or added in, at an index."""
        x, index, *_ = self._arguments(step)
        index = self._index_of(step, index)
        out = step.out
        name = self._bound(step, f"np.zeros({self._made_shape(out)}, {self._dtype(out.dtype)})")
        self.lines.append(
            f"{name}[{index}] = {x}" if step.kind == "put" else f"np.add.at({name}, {index}, {x})"
        )

    _at = _put

    def _index_of(self, step: Step, index: str) -> str:
        return self._index(step.args[1]) if step.kind == "put" else index

    def _bound(self, step: Step, made: str) -> str:
        """A line that binds a new array, in a part also one that others read whole."""
        out = step.out
        if not self.phase:
            made = made if out.shape else f"np.asarray({made})"
            name = self.known[id(out), 0, "whole"] = self.names.of_array(
                self.homes.arrays[id(out)]
            )
            self.lines.append(f"{name} = {made}{self._comment(out)}")
            return name
        assert self.split is not None
        place = self.split.place(out)
        if place.kind == "rows" and id(out) not in self.split.local:
            name = self.text(out, place.axis)
            self.lines.append(f"np.copyto({name}, {made}){self._comment(out)}")
            return name
        name = self.names.of_array(self.homes.arrays[id(out)])
        need = place.axis if place.kind == "rows" else "sum"
        self.known[id(out), self.phase, need] = name
        self.lines.append(f"{name} = {made}{self._comment(out)}")
        return name

    def _kernel(self, step: Step) -> None:
        function = self.names.bind(step.function, step.text)
        targets = []
        for out in step.outs:
            name = self.known[id(out), 0, "whole"] = self.names.of_array(
                self.homes.arrays[id(out)]
            )
            targets.append(name)
        made = f"{function}({', '.join(self._arguments(step))})"
        left = ", ".join(targets)
        if step.kind == "kernel":
            left = f"({left},)" if len(targets) == 1 else left
        elif not step.out.shape:
            made = f"np.asarray({made})"
        self.lines.append(f"{left} = {made}{_shape(step.out.shape)}")

    _kernel1 = _kernel

    # ------------------------------------------------------------------ effects

    def _check(self, step: Step) -> None:
        value, truth = step.args
        changed = self.names.bind(Changed, "Changed")
        self.lines.append(f"if {'not ' if truth else ''}{self.text(value)}: raise {changed}")

    def _tensor(self, tensor: Any, expression: str | None) -> str:
        return expression or self.names.bind(tensor, f"leaf_{tensor.name or 'w'}")

    def _grad(self, step: Step) -> None:
        leaf, expression, value, how = step.args
        target, text = self._tensor(leaf, expression), self._source(value, "whole", True)
        if how == "add":
            self.whole.append(f"{target}.grad = np.asarray({target}.grad + {text})")
            return
        base = root(value)
        own = base.kind in ("step", "room") and not (base.step and base.step.shares)
        own = own and not self.taken & {id(base), id(value)}
        own = own and (nbytes(base) == nbytes(value) or value.part)
        self.taken.add(id(value if value.part else base))
        self.whole.append(f"{target}.grad = {text if own else f'{text}.copy()'}")

    def _clear(self, step: Step) -> None:
        self.whole.append(f"{self._tensor(*step.args)}.grad = None")

    def _assign(self, step: Step) -> None:
        _, _, target, value = step.args
        noted = self.names.bind(_noting(self.where), "written")
        text = self.text(target)
        self.whole += [f"np.copyto({text}, {self.text(value)})", f"{noted}({text})"]

    def _update(self, step: Step) -> None:
        self.whole.append(f"{self.names.bind(step.args[0], 'optimiser')}.step()")

    def _result(self, item: Any) -> str:
        if isinstance(item, Wrapped):
            named = f", {item.name!r}" if item.name else ""
            self.names.objects.setdefault("Tensor", _tensor)
            return f"Tensor({self._returned(item.value)}{named})"
        if isinstance(item, Known):
            return self._tensor(item.tensor, item.expression)
        if item.__class__ is Value:
            return self._returned(item)
        if isinstance(item, tuple) and item.__class__ is not tuple:
            kind = self.names.bind(type(item), type(item).__name__)
            return f"{kind}({', '.join(map(self._result, item))})"
        if isinstance(item, tuple):
            return f"({''.join(self._result(entry) + ', ' for entry in item)})"
        if isinstance(item, list):
            return f"[{', '.join(map(self._result, item))}]"
        if isinstance(item, dict):
            keys = [repr(k) if isinstance(k, str | int) else self.names.bind(k, "key") for k in item]
            pairs = [f"{k}: {self._result(v)}" for k, v in zip(keys, item.values(), strict=True)]
            return f"{{{', '.join(pairs)}}}"
        return self.value(item)

    def _returned(self, value: Value) -> str:
        """What is returned must not be what a `.grad` holds, or a constant of ours."""
        base = root(value)
        shared = id(base) in self.taken or (base.step is not None and base.step.shares)
        return self._source(value, "whole", True) + (".copy()" if shared or base.kind == "constant" else "")


def _shape(shape: Any) -> str:
    return f"  # {shape}" if shape else ""


def _tensor(array: Any, name: str | None = None) -> Tensor:
    made = Tensor(array)
    made._name = name
    return made


def _noting(where: Where) -> Any:
    def written(array: Any) -> None:
        writes.note(array, where)

    return written
