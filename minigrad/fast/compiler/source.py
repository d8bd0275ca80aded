"""A program written as Python: arrays and fixed views once, then one line for each step.

With a split, the steps of each phase are the body of `part(low, high, ...)`, which computes what
the rows from low to high give, and returns its share of the sums.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine.graph import SourceLocation as Where
from ..scatter import add_rows, names_rows
from .effects import Effects
from .names import comment
from .parts import LARGE, Parts
from .program import SMALL, Program, Step, Value, is_whole, nbytes, root
from .split import Split

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


def write(program: Program, title: str, where: Where, split: Split | None) -> Written:
    """The source of a program, for a step of this title that was compiled here."""
    if split is not None:
        program.steps.sort(key=split.order)
    return _Writer(program, where, split).write(title)


class _Writer(Effects):
    """The source, step by step, in the order in which they run."""

    def write(self, title: str) -> Written:
        sums: list[Value] = []
        for step in self.program.steps:
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
        sizes = {a.slot: nbytes(a.values[0]) for a in fixed}
        steps = sum(step.kind != "view" for step in self.program.steps)
        lines = [
            f"# {comment(title)}: {steps} steps, "
            f"{len(sizes)} buffers, {sum(sizes.values()):,} bytes",
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
                self.whole.append(f"{self.text(value.step.into)}[...] = {self.text(value)}")

    def _mark(self, step: Step) -> None:
        """A comment where another part of the model begins."""
        if step.path != self.path and step.path and step.outs:
            self.lines.append(f"# {comment(step.path)}")
            self.path = step.path

    # ------------------------------------------------------------------ steps

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
            self._spare(array, out)
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

    def _computed(self, step: Step) -> None:
        arguments, target, out = self._arguments(step), self._target(step), step.out
        own = step.function is not None and not step.text.startswith("np.")
        function = self.names.bind(step.function, step.text) if own else step.text
        made = f"{function}({', '.join(arguments)})"
        read = [v.shape for v in step.reads()]
        matrices = all(len(shape) <= 2 for shape in (*read, out.shape))
        whole, small = self._is_contiguous(step), prod(out.shape) <= SMALL
        short = max(prod(shape) for shape in read) <= COPIED or min(map(len, read)) < 2
        if step.kind == "matmul" and matrices and short and (whole or small):
            made = f"{arguments[0]}.dot({arguments[1]})"
        if target is None:
            made = made if out.shape else f"np.asarray({made})"
            made = f"{self.text(out)} = {made}"
        elif step.text == "spread":
            made = f"{target}[...] = {arguments[0]}"
        elif small and not whole and (matrices or step.kind != "matmul"):
            made = f"{target}[...] = {made}"
        else:
            made = f"{made[:-1]}, out={target})"
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
            made = f"{target}[...] = {text}"
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
        if step.kind == "put":
            self.lines.append(f"{name}[{index}] = {x}")
            return
        rows = names_rows(step.args[1], out, step.args[0])
        add = self.names.bind(add_rows, "add_rows") if rows else "np.add.at"
        self.lines.append(f"{add}({name}, {index}, {x})")

    _at = _put

    def _index_of(self, step: Step, index: str) -> str:
        return self._index(step.args[1]) if step.kind == "put" else index

    def _bound(self, step: Step, made: str) -> str:
        """A line that binds a new array, in a part also one that others read whole."""
        out = step.out
        if not self.phase:
            made = made if out.shape else f"np.asarray({made})"
            name = self.known[id(out), 0, "whole"] = self.names.of_array(self.homes.arrays[id(out)])
            self.lines.append(f"{name} = {made}{self._comment(out)}")
            return name
        assert self.split is not None
        place = self.split.place(out)
        if place.kind == "rows" and id(out) not in self.split.local:
            name = self.text(out, place.axis)
            self.lines.append(f"{name}[...] = {made}{self._comment(out)}")
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
            name = self.known[id(out), 0, "whole"] = self.names.of_array(self.homes.arrays[id(out)])
            targets.append(name)
        made = f"{function}({', '.join(self._arguments(step))})"
        left = ", ".join(targets)
        if step.kind == "kernel":
            left = f"({left},)" if len(targets) == 1 else left
        elif not step.out.shape:
            made = f"np.asarray({made})"
        self.lines.append(f"{left} = {made}{self._comment(step.out)}")

    _kernel1 = _kernel
