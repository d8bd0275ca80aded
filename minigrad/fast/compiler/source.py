"""A program written as Python: arrays and fixed views once, then one line for each step, and what
it does to the outside: gradients, writes, updates, and what it returns.

With a partition, the steps of each phase are the body of `part(low, high, own, sums)`, which
computes what the rows from low to high give, and returns its share of the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from math import inf, prod
from typing import Any

import numpy as np

from ...engine.listener import Listener, clear_gradients, notify
from ...engine.tensor import Tensor
from ...engine.types import Array, Kernel
from ...engine.writes import SourceLocation, writes
from ..limits import LIMITS
from ..memory import empty_as
from ..threads import product
from .partition import Unsplit, has_threads
from .program import (
    ExistingTensor,
    NewTensor,
    Program,
    ProgramStep,
    Value,
    contiguous,
    is_whole,
    made_of,
    nbytes,
    parts_of,
    root,
)
from .terms import Terms, comment, shape_comment

__all__ = ["GuardFailed", "repeated", "write"]

_NAMED = (np.maximum, np.minimum)  # NumPy takes their `out` by keyword only


class GuardFailed(Exception):
    """A recorded guard evaluated differently: a condition on the numbers has another answer."""


def write(
    program: Program, title: str, where: SourceLocation, partition: Unsplit
) -> tuple[Callable[[], Kernel], str]:
    """What makes a program's arrays and the function that runs it, and its source; for a step of
    this title, compiled here.
    """
    program.steps.sort(key=partition.order)
    return SourceWriter(program, where, partition).write(title)


class SourceWriter(Terms):
    """The source, step by step, in the order in which they run."""

    _in_parts: str | None = None  # what runs the parts
    _block: tuple[str, list[str], int] | None = None  # the last one: head, lines, and its end

    def write(self, title: str) -> tuple[Callable[[], Kernel], str]:
        for i, step in enumerate(self.program.steps):
            if step.kind == "view":
                continue
            phase = self.partition.phase(step)
            if phase != self.phase:
                self._end_part()
                self.phase = phase
            if step.path and step.path != self.path and step.outs:
                self.lines.append(f"# {comment(step.path)}")
                self.path = step.path
            before = len(self.lines)
            _WRITERS[step.kind](self, step)
            if step.errors:
                self._indent(f"with np.errstate({_settings(step.errors)}):", before)
            self._let_go(i)
        self._end_part()
        self._write_result()
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
        source, namespace = "\n".join(lines), {}  # type: str, dict[str, Any]
        exec(compile(source, "<minigrad.compile>", "exec"), namespace)
        return partial(namespace["build"], **self.names.objects), source

    # ------------------------------------------------------------------ steps

    def _indent(self, head: str, before: int) -> None:
        """Put the lines from `before` on into a block, that of the lines before if it is alike."""
        lines = self.lines
        heads = [] if self._block == (head, lines, before) else [head]
        lines[before:] = [*heads, *(f"    {line}" for line in lines[before:])]
        self._block = head, lines, len(lines)

    def _let_go(self, i: int) -> None:
        """Delete the variables of large new arrays that the i-th step was the last to read."""
        self._ended += self.buffers.last_reads.get(i, ())
        if not self.phase:
            names = [name for base in self._ended for name in self._bound.pop(id(base), ())]
            self._ended = []
            if names:
                self.whole.append(f"del {', '.join(names)}")

    def _axis(self, out: Value) -> int | None:
        return self.partition.axis(out) if self.phase else None

    def _comment(self, out: Value) -> str:
        return shape_comment(self._cut(out, self._axis(out))) if out.shape else ""

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
        like = self.program.laid_out.get(id(out))
        if like is not None and nbytes(out) >= LIMITS.large_bytes:
            given = f"{self.text(like)}, {out.shape}, {self.dtype(out.dtype)}"
            name = self.name(out)
            self.bound(out, name)
            self.lines.append(f"{name} = {self.names.bind(empty_as, 'empty_as')}({given})")
            return name
        small = self.buffers.arrays[id(out)].kind == "fresh" and nbytes(out) < LIMITS.large_bytes
        return None if small or like is not None else self.text(out)

    def _into(self, step: ProgramStep) -> None:
        """A call that takes `out=`."""
        given = self._arguments(step)
        target = self._target(step.out)
        out = step.out
        own = step.function is not None and "." not in step.text and step.text != "spread"
        made = _call(self.names.bind(step.function, step.text) if own else step.text, given)
        read = [v.shape for v in step.reads]
        matrices = all(len(shape) <= 2 for shape in (*read, out.shape))
        if step.kind == "matmul" and matrices and self._spins(step):
            made = f"{self.names.bind(product, 'product')}({given[0]}, {given[1]})"
        elif step.kind == "matmul" and matrices and all(map(_is_dense, step.reads)):
            if not self._axis(out) or id(out) in self.partition.local:  # else it has gaps
                made = f"{given[0]}.dot({given[1]})"  # which has less to look at
        if step.text == "spread":
            made = f"{target}[...] = {given[0]}"
        elif target is not None:
            ufunc = isinstance(step.function, np.ufunc) and step.function not in _NAMED
            made = f"{made[:-1]}, {'' if ufunc else 'out='}{target})"  # which is faster
        if target is None:
            self._bind(step, made)
        else:
            self.lines.append(made + self._comment(out))

    def _spins(self, step: ProgramStep) -> bool:
        """Whether BLAS's threads would spin after a product for longer than they help, or take a
        core from the threads of kernels.
        """
        if self.partition.phases or len(step.out.shape) < 2:
            return False
        count: int = prod(step.out.shape) * step.args[0].shape[-1]
        most = inf if self._has_threads else LIMITS.lone_product
        return LIMITS.serial_product < count < most

    @cached_property
    def _has_threads(self) -> bool:
        return has_threads(self.program)

    def _copy(self, step: ProgramStep) -> None:
        """A copy in row-major order, perhaps in another shape or dtype."""
        (source,), out = step.reads, step.out
        text = self._arguments(step)[0]
        if step.text == "getitem":  # of a single entry
            text = f"{text}[{self.index(step.args[1])}]"
        target = self._target(out)
        if target is None:
            shaped = f".reshape({out.shape})" if step.text == "reshape" else ""
            self._bind(step, f"np.array({text}, {self.dtype(out.dtype)}){shaped}")
            return
        if step.text == "reshape":
            target += f".reshape({self._cut(source, self.partition.needs(step)[0])})"
        self.lines.append(f"{target}[...] = {text}{self._comment(out)}")

    def _bind(self, step: ProgramStep, made: str) -> None:
        """A line that binds a new array; in a part, rows of one that others read are written."""
        out, axis = step.out, self._axis(step.out)
        if axis is not None and id(out) not in self.partition.local:
            self.lines.append(f"{self.text(out, axis)}[...] = {made}{self._comment(out)}")
            return
        if self.phase and axis is None:
            self._sums.append(out)
        name = self.names.of(out)
        self._known[id(out), None if axis is None else (self.phase, axis)] = name
        if not self.phase:
            self.bound(out, name)
        made = made if out.shape else f"np.asarray({made})"
        self.lines.append(f"{name} = {made}{self._comment(out)}")

    def _plain_call(self, step: ProgramStep) -> None:
        given = self._arguments(step)
        picks = step.text == "getitem"
        self._bind(step, f"{given[0]}[{given[1]}]" if picks else _call(step.text, given))

    def _kernel(self, step: ProgramStep) -> None:
        made = _call(self.names.bind(step.function, step.text), self._arguments(step))
        if not step.several:
            self._bind(step, made)
            return
        names = "".join(f"{self.name(out)}, " for out in step.outs)
        for out in step.outs:
            self.bound(out, self.names.of(out))
        self.lines.append(f"({names}) = {made}")

    def _end_part(self) -> None:
        """The part that ends here, and the line that runs it."""
        if not self.phase:
            return
        units = self.partition.units
        if self._in_parts is None:
            self._in_parts = self.names.fresh("in_parts")
            made = ""
            self.once.append(f"{self._in_parts} = {made}")
        parts = self._in_parts
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
        self.part = []
        self._sums = []
        self.phase = 0
        self.path = ""
        self._let_go(-1)

    # ------------------------------------------------------------------ what is written outside

    def _check(self, step: ProgramStep) -> None:
        (value, truth), question = step.args, step.function
        changed, text = self.names.bind(GuardFailed, "GuardFailed"), self.text(value)
        if question is not bool and question is not None:
            text = f"{self.names.bind(question, question.__name__)}({text})"
        self.lines.append(f"if {'not ' if truth else ''}{text}: raise {changed}")

    def _grad(self, step: ProgramStep) -> None:
        existing, value = step.args
        target = self.tensor(existing)
        text = self.text(value)
        base = root(value)
        own = base.step is not None and not base.step.shares and id(base) not in self.taken
        own = own and nbytes(base) == nbytes(value)
        self.taken.add(id(base))
        self.whole.append(f"{target}.grad = {text if own else f'{text}.copy()'}")

    def _clear(self, step: ProgramStep) -> None:
        self.whole.append(f"{self.tensor(*step.args)}.grad = None")

    def _forget(self, step: ProgramStep) -> None:
        leaves = ", ".join(map(self.tensor, *step.args))
        clear = self.names.bind(clear_gradients, "clear_gradients")
        self.whole.append(f"{clear}([{leaves}])")

    def _assign(self, step: ProgramStep) -> None:
        target, value = (self.text(v) for v in step.args[1:3])
        noted = self.names.bind(partial(writes.note, place=self.where), "written")
        self.whole += [f"{target}[{self.index(step.args[3])}] = {value}", f"{noted}({target})"]

    def _update(self, step: ProgramStep) -> None:
        owner, call = step.args
        name = f"{type(owner).__name__.lower()}_step"
        made = f"{self.names.bind(repeated(owner, call), name)}()"
        self.whole.append(f"{self.name(step.out)} = {made}._data" if step.outs else made)

    # ------------------------------------------------------------------ what is returned

    def _write_result(self) -> None:
        """The last lines: attributes that the step sets, and what it returns. What an attribute
        held is let go of at the start, so that two do not take memory at once, unless it may be
        read if the program turns out not to fit.
        """
        for kept in self.program.keeps:
            target = f"{self.names.bind(kept.state, 'attributes')}[{kept.name!r}]"
            self.whole.append(f"{target} = {self._result(kept.value)}")
            if not kept.may_be_read:
                self.whole.insert(0, f"{target} = None")
        self.whole.append(f"return {self._result(self.program.result)}")

    def _result(self, item: Any) -> str:
        if isinstance(item, NewTensor):
            if item.scalar:
                return f"{self.text(item.value)}[()]"
            named = f", {item.name!r}" if item.name else ""
            self.names.objects.setdefault("Tensor", _tensor)
            return f"Tensor({self._returned(item.value)}{named})"
        if isinstance(item, ExistingTensor):
            return self.tensor(item)
        if item.__class__ is Value:
            return self._returned(item)
        kind, parts = item.__class__, parts_of(item)
        if parts is None:
            return self.value(item)
        if kind in (tuple, list):
            inner = "".join(f"{self._result(part)}, " for part in parts.values())
            return f"({inner})" if kind is tuple else f"[{inner}]"
        pairs = [f"{self.value(key)}: {self._result(part)}" for key, part in parts.items()]
        held = f"{{{', '.join(pairs)}}}"
        if kind is dict:
            return held
        make = self.names.bind(made_of, "made_of")
        name = self.names.bind(kind, kind.__name__)
        return f"{make}({name}, {held})"

    def _returned(self, value: Value) -> str:
        """What is returned must not be what a `.grad` holds, or a constant of ours."""
        base, text = root(value), self.text(value)
        shared = id(base) in self.taken or (base.step is not None and base.step.shares)
        return f"{text}.copy()" if shared or base.kind == "constant" else text


_WRITERS: dict[str, Callable[[SourceWriter, ProgramStep], None]] = {
    "elementwise": SourceWriter._into,
    "reduce": SourceWriter._into,
    "matmul": SourceWriter._into,
    "copy": SourceWriter._copy,
    "call": SourceWriter._plain_call,
    "kernel": SourceWriter._kernel,
    "effect": SourceWriter._kernel,
    "check": SourceWriter._check,
    "grad": SourceWriter._grad,
    "clear": SourceWriter._clear,
    "forget": SourceWriter._forget,
    "assign": SourceWriter._assign,
    "update": SourceWriter._update,
}


def repeated(owner: object, call: Callable[[], Tensor | None]) -> Callable[[], Tensor | None]:
    """An update, made unless a listener takes its place, as an audit does."""

    def update() -> Tensor | None:
        return None if True in notify(Listener.replaces_update, owner) else call()

    return update


def _tensor(array: Array, name: str | None = None) -> Tensor:
    made = Tensor(array)
    made._name = name
    return made


def _is_dense(value: Value) -> bool:
    """Whether BLAS reads it without a copy: no gaps, row-major or column-major."""
    return (
        len(value.shape) < 2
        or is_whole(value)
        or value.strides == contiguous(value.shape[::-1], value.dtype)[::-1]
    )


def _settings(given: dict[str, str]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _call(function: str, arguments: list[str]) -> str:
    return f"{function}({', '.join(arguments)})"
