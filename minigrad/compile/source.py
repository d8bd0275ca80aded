"""A program written as Python: buffers and fixed views once, then one line for each step.

Where a value lives: a *fixed* array stays where it is from call to call (a parameter, a constant, a
buffer of ours, or a view of one); every other is bound anew by its line. What the caller gets to
keep is always made anew, so no array that was handed out changes at the next call. A buffer is
reused once the last view of its value was read.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from sys import getrefcount
from typing import Any

import numpy as np

from ..graph import Place, writes
from ..tensor import Tensor
from .program import Program, Step, Value, contiguous, nbytes, root, values_in
from .record import Known, Wrapped, cut
from .rewrite import flat

__all__ = ["Written", "write"]

_OUT = {
    "elementwise",
    "reduce",
    "matmul",
    "copy",
    "cast",
    "join",
}  # kinds that can write into a buffer


_LARGE = (
    1 << 15
)  # bytes from which a fresh array costs more than looking for one that was handed back


class Spare:
    """Arrays to hand out: one that was handed out before and that nobody holds any more, or a new
    one.

    Memory that is given back to the system and asked for anew is slow: every page is cleared again.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self.arrays: list[Any] = []

    def __call__(self) -> Any:
        for array in self.arrays:
            if (
                getrefcount(array) == 3
            ):  # the list, the loop, the count itself: views count as holders too
                return array
        array = np.empty(self.shape, self.dtype)
        if len(self.arrays) < 3:
            self.arrays.append(array)
        return array


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
    program: Program, title: str, place: Place, keeps: list[tuple[Any, Any, Value]]
) -> Written:
    """The source of a program; `keeps` are attributes that the step sets to its values."""
    return _Writer(program, title, place, keeps).write()


class _Writer:
    def __init__(
        self, program: Program, title: str, place: Place, keeps: list[tuple[Any, Any, Value]]
    ) -> None:
        self.program, self.title, self.place, self.keeps = program, title, place, keeps
        self.objects: dict[str, Any] = {"np": np}
        self.names: dict[int, str] = {}
        self.values: list[Any] = []  # kept alive, so that no id() comes again
        self.taken: set[str] = {"np", "build", "step", "args", "kwargs", "Tensor"} | set(
            keyword.kwlist
        )
        self.numbers: dict[tuple[str, str], str] = {}
        self.once: list[str] = []
        self.lines: list[str] = []
        self.roots: dict[int, Value] = {}
        self.handed: set[int] = set()
        self.given: set[int] = set()

    # ------------------------------------------------------------------ names

    def fresh_name(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "t"
        base = f"t_{base}" if base[0].isdigit() else base
        name, n = base, 1
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name

    def bind(self, thing: Any, wanted: str) -> str:
        """The name of an object that the source is handed."""
        known = self.names.get(id(thing))
        if known is None:
            known = self.names[id(thing)] = self.fresh_name(wanted)
            self.objects[known] = thing
            self.values.append(thing)
        return known

    def name(self, value: Value) -> str:
        known = self.names.get(id(value))
        if known is None:
            known = self.names[id(value)] = self.fresh_name(self._wanted(value))
            self.values.append(value)
        return known

    def _wanted(self, value: Value) -> str:
        if value.name:
            return value.name
        step = value.step
        if step is None:
            return {"argument": "x", "constant": "constant", "captured": "array"}.get(
                value.kind, "w"
            )
        if step.kind == "view":
            base = self.name(next(values_in(step.args)))
            return (
                base + {"swapaxes": "_T", "transpose": "_T"}.get(step.text, "_v")
                if not base.endswith("_v") or step.text in ("swapaxes", "transpose")
                else base
            )
        return "t"

    # ------------------------------------------------------------------ where values live

    def _survey(self) -> None:
        """Which roots are handed out, which are fixed, and when each is read last."""
        steps = self.program.steps
        self.last: dict[int, int] = {}
        self.pinned: set[int] = set()
        for i, step in enumerate(steps):
            for value in step.reads():
                self.last[id(root(value))] = i
            if step.note == "shares":
                self.pinned.update(id(root(v)) for v in step.reads())
        for step in steps:
            if step.kind == "grad" and step.text == "set":
                self.handed.add(id(root(step.args[1])))
        kept = [
            item.value if isinstance(item, Wrapped) else item for item in flat(self.program.result)
        ]
        kept += [value for _, _, value in self.keeps]
        self.handed.update(id(root(value)) for value in kept if value.__class__ is Value)
        self.fixed: dict[int, bool] = {}

    def is_fixed(self, value: Value) -> bool:
        known = self.fixed.get(id(value))
        if known is None:
            step = value.step
            if step is None:
                known = value.kind != "argument" and id(value) not in self.handed
            elif step.into is not None:
                known = self.is_fixed(step.into)
            elif step.kind == "view":
                known = self.is_fixed(next(values_in(step.args)))
            else:
                known = step.kind in _OUT and id(value) not in self.handed
            self.fixed[id(value)] = known
        return known

    # ------------------------------------------------------------------ writing

    def write(self) -> Written:
        self._survey()
        self.free: list[Value] = []
        self.buffer_of: dict[int, Value] = {}
        self.sizes: Counter[str] = Counter()
        path = None
        for i, step in enumerate(self.program.steps):
            where = step.note or (step.outs[0].path if step.outs else "")
            if where != path and where:
                self.lines.append(f"# {_comment(where)}")
                path = where
            self._step(i, step)
            self._release(i, step)
        for owner, key, value in self.keeps:
            self.lines.append(f"{self.bind(owner, 'attributes')}[{key!r}] = {self.text(value)}")
        self.lines.append(f"return {self._result(self.program.result)}")
        return Written(self._together(), self.objects)

    def _together(self) -> str:
        names = ", ".join(self.objects)
        total = self.sizes["bytes"]
        count = len(self.program.steps)
        head = [
            f"# {_comment(self.title)}: {count} steps, "
            f"{self.sizes['buffers']} buffers, {total:,} bytes"
        ]
        body = [f"def build({names}):", *(f"    {line}" for line in self.once), ""]
        body += [
            "    def step(args, kwargs):",
            *(f"        {line}" for line in self.lines),
            "",
            "    return step",
        ]
        return "\n".join([*head, *body, ""])

    def _comment_of(self, value: Value) -> str:
        return f"  # {value.shape}" if value.shape else ""

    def text(self, item: Any, dtype: Any = None) -> str:
        """An argument as Python."""
        if item.__class__ is Value:
            return self._value_text(item)
        if item is None or item is Ellipsis or isinstance(item, bool):
            return "..." if item is Ellipsis else repr(item)
        if isinstance(item, int | float) and dtype is not None and item.__class__ in (int, float):
            return self._number(item, dtype)
        if item.__class__ in (int, str) or (item.__class__ is float and np.isfinite(item)):
            return repr(item)
        if item.__class__ is slice:
            return f"slice({self.text(item.start)}, {self.text(item.stop)}, {self.text(item.step)})"
        if item.__class__ is tuple:
            inner = ", ".join(self.text(entry) for entry in item)
            return f"({inner},)" if len(item) == 1 else f"({inner})"
        if item.__class__ is list:
            return f"[{', '.join(self.text(entry) for entry in item)}]"
        return self.bind(item, type(item).__name__)

    def _number(self, number: Any, dtype: Any) -> str:
        """A number as an array without axes: NumPy takes it twice as fast as a Python number."""
        key = (repr(number), str(dtype))
        known = self.numbers.get(key)
        if known is None:
            known = self.numbers[key] = self.fresh_name(f"c_{number:.4g}")
            self.once.append(f"{known} = np.array({self.text(number)}, {self._dtype(dtype)})")
        return known

    def _dtype(self, dtype: Any) -> str:
        name = np.dtype(dtype).name
        known = isinstance(getattr(np, name, None), type) and np.dtype(getattr(np, name)) == dtype
        return f"np.{name}" if known else self.bind(np.dtype(dtype), "dtype")

    def _value_text(self, value: Value) -> str:
        """The name of a value; an input is introduced where it is first needed."""
        if value.step is None and id(value) not in self.given:
            self.given.add(id(value))
            name = self.name(value)
            if value.kind == "room":
                self._room(value)
            elif value.kind == "argument":
                self.lines.append(f"{name} = {value.what}{self._comment_of(value)}")
            elif value.kind == "leaf":
                leaf = self.bind(value.what, f"leaf_{value.name or 'w'}")
                self.once.append(f"{name} = {leaf}._data{self._comment_of(value)}")
            else:
                self.objects[name] = value.what
        return self.name(value)

    def _step(self, i: int, step: Step) -> None:
        writer = getattr(self, f"_{step.kind}", None)
        if writer is None:
            self._computed(i, step)
        else:
            writer(step)

    def _view(self, step: Step) -> None:
        if step.text == "joined":
            self.names[id(step.out)] = self.text(step.args[0])
            self.values.append(step.out)
            return
        lines = self.once if self.is_fixed(step.out) else self.lines
        if step.text == "cut":
            made = f"{self.bind(cut, 'cut')}({', '.join(self.text(a) for a in step.args)})"
        elif step.text == "getitem":
            made = f"{self.text(step.args[0])}[{self._index(step.args[1])}]"
        else:
            rest = [self.text(a) for a in step.args[1:]]
            rest += [f"{k}={self.text(v)}" for k, v in step.kwargs.items()]
            method = step.text in ("reshape", "swapaxes", "transpose", "squeeze")
            rest = [] if rest == ["None"] else rest
            first = self.text(step.args[0])
            made = (
                f"{first}.{step.text}({', '.join(rest)})"
                if method
                else f"np.{step.text}({', '.join([first, *rest])})"
            )
        lines.append(f"{self.name(step.out)} = {made}{self._comment_of(step.out)}")

    def _index(self, index: Any) -> str:
        parts = index if isinstance(index, tuple) else (index,)
        shown = []
        for part in parts:
            if part.__class__ is slice:
                ends = [
                    "" if end is None else str(int(end))
                    for end in (part.start, part.stop, part.step)
                ]
                shown.append(f"{ends[0]}:{ends[1]}" + (f":{ends[2]}" if ends[2] else ""))
            else:
                shown.append(self.text(int(part) if isinstance(part, np.integer) else part))
        return ", ".join(shown) if shown else "()"

    def _computed(self, i: int, step: Step) -> None:
        out = step.out
        dtypes = [v.dtype for v in step.reads() if v.dtype.kind in "fc"]
        dtype = dtypes[0] if dtypes and step.kind == "elementwise" else None
        arguments = [self.text(a, dtype) for a in step.args]
        if step.kind == "kernel" or step.kind == "kernel1" or step.kind == "call":
            return self._called(step, arguments)
        if step.kind in ("copy", "cast"):
            return self._copied(step, arguments)
        settings = [f"{k}={self.text(v)}" for k, v in step.kwargs.items()]
        function = step.text
        if step.into is not None:
            target = self._into(step)
            plain = step.into.strides == contiguous(step.into.shape, step.into.dtype)
        else:
            target, plain = "", True
        if step.kind == "matmul" and plain and all(len(v.shape) == 2 for v in (*step.reads(), out)):
            function = "np.dot"
        if target:
            self._into_line(function, [*arguments, *settings], target, out)
            return None
        if not self.is_fixed(out) and nbytes(out) >= _LARGE:
            name = self._spare(out)
            self._into_line(function, [*arguments, *settings], name, out)
            return None
        if not self.is_fixed(out):
            made = f"{function}({', '.join(arguments + settings)})"
            made = made if out.shape else f"np.asarray({made})"
            self.lines.append(f"{self.name(out)} = {made}{self._comment_of(out)}")
            return None
        name = self._place_for(i, step)
        self._into_line(function, [*arguments, *settings], name, out)
        return None

    def _into_line(self, function: str, arguments: list[str], name: str, out: Value) -> None:
        """A call that writes into an array that is there already."""
        given = ", ".join([*arguments, f"out={name}"])
        self.lines.append(f"{function}({given}){self._comment_of(out)}")

    def _called(self, step: Step, arguments: list[str]) -> None:
        settings = [f"{k}={self.text(v)}" for k, v in step.kwargs.items()]
        if step.text == "getitem":
            made = f"{arguments[0]}[{arguments[1]}]"
        else:
            function = (
                step.text if step.text.startswith("np.") else self.bind(step.function, step.text)
            )
            made = f"{function}({', '.join(arguments + settings)})"
        targets = ", ".join(self.name(out) for out in step.outs)
        if step.kind == "kernel":
            targets = f"({targets},)" if len(step.outs) == 1 else targets
        elif not step.out.shape:
            made = f"np.asarray({made})"
        self.lines.append(f"{targets} = {made}{self._comment_of(step.out)}")

    def _copied(self, step: Step, arguments: list[str]) -> None:
        """A copy in row-major order, perhaps in another shape or dtype."""
        out, source = step.out, next(values_in(step.args))
        cast = ", casting='unsafe'" if step.kind == "cast" else ""
        if step.into is not None:
            return self._copy_to(self._into(step), out, source, arguments[0] + cast)
        if not self.is_fixed(out):
            shaped = f".reshape({out.shape})" if out.shape != source.shape else ""
            made = f"np.array({arguments[0]}, {self._dtype(out.dtype)}){shaped}"
            self.lines.append(f"{self.name(out)} = {made}{self._comment_of(out)}")
            return
        self._copy_to(self._place_for(-1, step), out, source, arguments[0] + cast)

    def _copy_to(self, target: str, out: Value, source: Value, text: str) -> None:
        if out.shape != source.shape:
            shaped = self.fresh_name(f"{target}_v")
            self.once.append(
                f"{shaped} = {target}.reshape({source.shape}){self._comment_of(source)}"
            )
            target = shaped
        self.lines.append(f"np.copyto({target}, {text}){self._comment_of(out)}")

    def _spare(self, value: Value) -> str:
        """A line that takes an array which nobody holds any more; its name."""
        name = self.name(value)
        spare = self.bind(Spare(value.shape, value.dtype), f"spare_{name}")
        self.lines.append(f"{name} = {spare}()")
        return name

    def _into(self, step: Step) -> str:
        """The name of the view that a step writes to; its result goes by that name."""
        assert step.into is not None
        name = self.names[id(step.out)] = self.text(step.into)
        self.values.append(step.out)
        return name

    def _room(self, value: Value) -> None:
        """Memory that several steps write parts of."""
        if self.is_fixed(value):
            self._allocate(value, None)
        elif nbytes(value) >= _LARGE:
            self._spare(value)
        else:
            self.lines.append(
                f"{self.name(value)} = np.empty({value.shape}, {self._dtype(value.dtype)})"
            )

    # ------------------------------------------------------------------ buffers

    def _place_for(self, i: int, step: Step) -> str:
        """The name of a value's buffer: an input's that dies here, a dead one's, or a new one."""
        out = step.out
        name = self.name(out)
        reused = None
        if step.kind == "elementwise":
            for value in step.reads():
                if self._can_take(i, value, out, step):
                    reused = value
                    break
        self._allocate(out, reused)
        return name

    def _allocate(self, out: Value, reused: Value | None) -> None:
        """Give a value its buffer: that of `reused`, a free one of the same size, or a new one."""
        name = self.name(out)
        if reused is None:
            size = nbytes(out)
            fits = [v for v in self.free if nbytes(v) == size] if size else []
            if fits:
                reused = fits[-1]
        if reused is None:
            self.once.append(f"{name} = np.empty({out.shape}, {self._dtype(out.dtype)})")
            self.sizes["buffers"] += 1
            self.sizes["bytes"] += nbytes(out)
        else:
            reused = root(reused)  # a view may be read-only
            buffer = self.name(reused)
            shaped = "" if reused.shape == out.shape else f".reshape({out.shape})"
            if reused.dtype != out.dtype:
                shaped = f".reshape(-1).view({self._dtype(out.dtype)}).reshape({out.shape})"
            self.once.append(f"{name} = {buffer}{shaped}  # the same memory")
            if reused in self.free:
                self.free.remove(reused)
            else:
                self.buffer_of[id(root(reused))] = out

    def _can_take(self, i: int, value: Value, out: Value, step: Step) -> bool:
        """Whether an elementwise step may write over an input: ours, whole, of the same form, not
        read again.
        """
        whole = root(value)
        if whole.step is None or not self.is_fixed(value) or nbytes(whole) != nbytes(value):
            return False
        if value.strides != contiguous(value.shape, value.dtype) or value.offset:
            return False
        if self.last[id(whole)] != i or id(whole) in self.pinned or id(whole) in self.buffer_of:
            return False
        others = [v for v in step.reads() if v is not value and root(v) is whole]
        return value.shape == out.shape and value.dtype == out.dtype and not others

    def _release(self, i: int, step: Step) -> None:
        """Buffers whose last reader this was are free; so is a result that nobody reads."""
        seen: set[int] = set()
        for value in [*step.reads(), *step.outs]:
            whole = root(value)
            if id(whole) in seen or whole.kind not in ("step", "room") or not self.is_fixed(whole):
                continue
            seen.add(id(whole))
            dead = self.last.get(id(whole), -1) <= i
            if dead and id(whole) not in self.pinned and id(whole) not in self.buffer_of:
                self.buffer_of[id(whole)] = whole
                self.free.append(whole)

    # ------------------------------------------------------------------ effects

    def _tensor(self, tensor: Any, expression: str | None) -> str:
        return expression or self.bind(tensor, f"leaf_{tensor.name or 'w'}")

    def _grad(self, step: Step) -> None:
        leaf, value, expression = step.args
        target = self._tensor(leaf, expression)
        text = self.text(value)
        if step.text == "add":
            self.lines.append(f"{target}.grad = np.asarray({target}.grad + {text})")
            return
        whole = root(value)
        own = whole.step is not None and id(whole) not in self.given and whole.step.note != "shares"
        own = own and (
            nbytes(whole) == nbytes(value) or (value.part and id(value) not in self.given)
        )
        self.given.add(id(value if value.part else whole))
        self.lines.append(f"{target}.grad = {text if own else f'{text}.copy()'}")

    def _clear(self, step: Step) -> None:
        self.lines.append(f"{self._tensor(*step.args)}.grad = None")

    def _assign(self, step: Step) -> None:
        target, value, _ = step.args
        noted = self.bind(_noting(self.place), "written")
        text = self.text(target)
        self.lines.append(f"np.copyto({text}, {self.text(value)})")
        self.lines.append(f"{noted}({text})")

    def _update(self, step: Step) -> None:
        self.lines.append(f"{self.bind(step.args[0], 'optimiser')}.step()")

    def _result(self, item: Any) -> str:
        if isinstance(item, Wrapped):
            named = f", {item.name!r}" if item.name else ""
            self.objects.setdefault("Tensor", _tensor)
            return f"Tensor({self._own(item.value)}{named})"
        if isinstance(item, Known):
            return self._tensor(item.tensor, item.expression)
        if item.__class__ is Value:
            return self._own(item)
        if isinstance(item, tuple) and item.__class__ is not tuple:
            kind = self.bind(type(item), type(item).__name__)
            return f"{kind}({', '.join(map(self._result, item))})"
        if isinstance(item, tuple):
            return f"({''.join(self._result(entry) + ', ' for entry in item)})"
        if isinstance(item, list):
            return f"[{', '.join(map(self._result, item))}]"
        if isinstance(item, dict):
            keys = [repr(k) if isinstance(k, str | int) else self.bind(k, "key") for k in item]
            pairs = [f"{k}: {self._result(v)}" for k, v in zip(keys, item.values(), strict=True)]
            return f"{{{', '.join(pairs)}}}"
        return self.text(item)

    def _own(self, value: Value) -> str:
        """What is returned must not be what a `.grad` holds, or a constant of ours."""
        whole = root(value)
        shared = whole.step is not None and (id(whole) in self.given or whole.step.note == "shares")
        return self.text(value) + (".copy()" if shared or whole.kind == "constant" else "")


def _tensor(array: Any, name: str | None = None) -> Tensor:
    made = Tensor(array)
    made._name = name
    return made


def _noting(place: Place) -> Any:
    def written(array: Any) -> None:
        writes.note(array, place)

    return written


def _comment(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return re.sub(r"[^\w /.,:()<>-]", "_", text)
