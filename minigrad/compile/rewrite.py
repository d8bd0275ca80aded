"""Rewriting a program: steps are visited in order, and whoever read an old value reads the new one.

`tidy` and `drop_dead` keep every number bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from .program import Program, Step, Value, address, contiguous, nbytes, root, substitute
from .record import Known, Wrapped

__all__ = [
    "Keeps",
    "Rewriting",
    "drop_dead",
    "final_readers",
    "flat",
    "is_transpose",
    "lay_out",
    "tidy",
    "uses_of",
]

Keeps = list[tuple[Any, Any, Value]]


def flat(item: Any) -> list[Any]:
    """The entries of nested containers."""
    if isinstance(item, tuple | list):
        return [leaf for entry in item for leaf in flat(entry)]
    if isinstance(item, dict):
        return [leaf for entry in item.values() for leaf in flat(entry)]
    return [item]


def results_of(program: Program, keeps: Keeps) -> list[Value]:
    """The values that outlive the program, other than gradients."""
    found = [item.value if isinstance(item, Wrapped) else item for item in flat(program.result)]
    return [v for v in [*found, *(value for _, _, value in keeps)] if v.__class__ is Value]


def drop_dead(program: Program, keeps: Keeps) -> Keeps:
    """Drop calls whose results nobody reads; a random kernel stays, for the numbers it draws."""
    needed = {id(v) for v in results_of(program, keeps)}
    kept = []
    for step in reversed(program.steps):
        if not step.outs or _draws(step) or any(id(out) in needed for out in step.outs):
            kept.append(step)
            needed.update(id(v) for v in step.reads())
            needed.update({id(step.into)} if step.into is not None else ())
    program.steps[:] = reversed(kept)
    return keeps


def _draws(step: Step) -> bool:
    return any(isinstance(a, np.random.Generator) for a in step.args)


class Rewriting:
    """A new list of steps, and what became of each old value."""

    def __init__(self, program: Program, keeps: Keeps) -> None:
        self.program, self.keeps = program, keeps
        self.steps: list[Step] = []
        self.now: dict[int, Value] = {}
        self.note = ""

    def map(self, item: Any) -> Any:
        return self.now.get(id(item), item) if item.__class__ is Value else item

    def replace(self, old: Value, new: Value) -> None:
        """Whoever read `old` reads `new`, which takes its name over."""
        self.now[id(old)] = new
        if new.kind == "step" and old.name and not new.name:
            new.name, new.path = old.name, old.path

    def emit(
        self, kind: str, text: str, args: tuple[Any, ...], shape: Any, dtype: Any, **kwargs: Any
    ) -> Value:
        """A new step of ours, and its value."""
        step = Step(kind, text, None, args, kwargs)
        step.note = self.note
        value = Value("step", step, tuple(shape), dtype)
        step.outs = [value]
        self.steps.append(step)
        return value

    def view(
        self, value: Value, text: str, args: tuple[Any, ...], shape: Any, strides: Any
    ) -> Value:
        out = self.emit("view", text, (value, *args), shape, value.dtype)
        out.strides, out.offset = tuple(strides), value.offset
        lay_out(self.steps[-1])
        return out

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A contiguous value in another shape."""
        if value.shape == shape:
            return value
        return self.view(value, "reshape", (shape,), shape, contiguous(shape, value.dtype))

    def transposed(self, value: Value) -> Value:
        """The last two axes exchanged; of something exchanged already, the thing itself."""
        step = value.step
        if step is not None and step.kind == "view" and is_transpose(step):
            return step.args[0]  # type: ignore[no-any-return]
        *lead, n, m = value.shape
        *ahead, s, t = value.strides
        return self.view(value, "swapaxes", (-1, -2), (*lead, m, n), (*ahead, t, s))

    def run(self, visit: Callable[[Step], bool]) -> Keeps:
        """Visit each step, its inputs replaced; what `visit` does not take over is kept."""
        for step in self.program.steps:
            step.args, step.kwargs = (
                substitute(step.args, self.map),
                substitute(step.kwargs, self.map),
            )
            step.into = self.map(step.into)
            self.note = step.note
            if step.kind == "view" or (
                step.kind == "copy" and step.text == "reshape" and not step.into
            ):
                lay_out(step)
            if not visit(step):
                self.steps.append(step)
        self.program.steps[:] = self.steps
        self.program.result = substitute(self.program.result, self._result)
        return [(owner, key, self.map(value)) for owner, key, value in self.keeps]

    def _result(self, item: Any) -> Any:
        if isinstance(item, Wrapped):
            return Wrapped(self.map(item.value), item.name)
        return item if isinstance(item, Known) else self.map(item)


def lay_out(step: Step) -> None:
    """Where a view's entries lie, now that what it is a view of may lie otherwise; or that it has
    to be a copy.
    """
    source, whole = step.args[0], root(step.args[0])
    if whole.kind not in ("step", "room") or step.text == "cut":
        return
    if step.text == "joined":
        step.out.strides, step.out.offset = source.strides, source.offset
        return
    memory = np.empty(max(nbytes(whole), 1), np.uint8)  # never touched: only addresses matter
    dummy = np.ndarray(
        source.shape, source.dtype, memory, source.offset - whole.offset, source.strides
    )
    seen = look(step.text, dummy, step.args[1:], step.kwargs)
    if seen.size and not np.may_share_memory(seen, memory):
        step.kind = "copy"  # NumPy's reshape copies where it must
        step.out.strides, step.out.offset = contiguous(step.out.shape, step.out.dtype), 0
        return
    step.kind = "view"
    step.out.strides = seen.strides
    step.out.offset = whole.offset + address(seen) - address(memory)


def look(text: str, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view by its name."""
    return x[args[0]] if text == "getitem" else getattr(np, text)(x, *args, **kwargs)


def is_transpose(step: Step) -> bool:
    x = step.args[0]
    if step.text == "swapaxes":
        return {a % len(x.shape) for a in step.args[1:]} == {len(x.shape) - 1, len(x.shape) - 2}
    return (
        step.text == "transpose"
        and len(x.shape) == 2
        and (len(step.args) < 2 or step.args[1] in (None, (1, 0)))
    )


def uses_of(program: Program, keeps: Keeps) -> dict[int, list[Step | None]]:
    """Who reads each value; None stands for the caller."""
    found: dict[int, list[Step | None]] = {}
    for step in program.steps:
        for value in step.reads():
            found.setdefault(id(value), []).append(step)
    for value in results_of(program, keeps):
        found.setdefault(id(value), []).append(None)
    return found


def final_readers(uses: dict[int, list[Step | None]], value: Value) -> list[Step | None]:
    """The readers of a value and of its views."""
    found: list[Step | None] = []
    for step in uses.get(id(value), []):
        found += (
            final_readers(uses, step.out) if step is not None and step.kind == "view" else [step]
        )
    return found


def tidy(program: Program, keeps: Keeps) -> Keeps:
    """Make repeated calls once; run products and sums over leading axes as those of one matrix."""
    r = Rewriting(program, keeps)
    seen: dict[Any, list[Value]] = {}

    def visit(step: Step) -> bool:
        if not step.outs:
            if step.kind in ("assign", "update"):
                seen.clear()
            return False
        if step.kind == "matmul" and _flattened_product(r, step):
            return True
        if step.kind == "reduce" and _flattened_sum(r, step):
            return True
        return False

    def once(step: Step) -> bool:
        if not step.outs:
            if step.kind in ("assign", "update"):
                seen.clear()
            return False
        key = _key(step)
        if key is None or _draws(step):
            return False
        known = seen.get(key)
        if step.into is not None or (
            step.kind == "view" and (step.out.part or step.text == "joined")
        ):
            return False
        whole = anchor(step.out)
        if known is None and step.kind == "view" and step.out.shape == whole.shape:
            if step.out.strides == whole.strides and step.out.offset == whole.offset:
                known = [whole]
        if known is None:
            seen[key] = step.outs
            return False
        for old, new in zip(step.outs, known, strict=True):
            r2.replace(old, new)
        return True

    keeps = r.run(visit)
    r2 = Rewriting(program, keeps)
    return r2.run(once)


def anchor(value: Value) -> Value:
    """What a value is a view of: an input, or what a step has made, be it within a larger room."""
    while value.step is not None and value.step.kind == "view" and value.step.text != "joined":
        value = value.step.args[0]
    return value


def _key(step: Step) -> Any:
    """Equal keys: equal results. Views are told by where their entries lie."""
    out = step.out
    if step.kind == "view":
        whole = anchor(out)
        if root(out).strides == contiguous(root(out).shape, out.dtype):
            return ("view", id(whole), out.shape, out.strides, out.offset)
    try:
        key = (
            step.kind,
            step.text,
            id(step.function) if step.kind.startswith("kernel") else 0,
            _frozen(step.args),
            _frozen(step.kwargs),
        )
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(item: Any) -> Any:
    """A key for nested arguments; numbers are told apart by type and sign."""
    if item.__class__ is Value:
        return ("value", id(item))
    if isinstance(item, tuple | list):
        return (item.__class__.__name__, *map(_frozen, item))
    if isinstance(item, dict):
        return tuple((k, _frozen(v)) for k, v in sorted(item.items()))
    if isinstance(item, slice):
        return ("slice", item.start, item.stop, item.step)
    if isinstance(item, np.ndarray):
        return ("array", id(item))
    return (
        item.__class__.__name__,
        repr(item) if isinstance(item, float | int | complex | str) else item,
    )


def _collapsed(r: Rewriting, value: Value) -> Value | None:
    """The value with its leading axes as one, None where that needs a copy."""
    *lead, last = value.shape
    *ahead, step = value.strides
    if len(lead) < 2:
        return value if len(lead) == 1 else None
    if 0 in value.shape:
        return None
    real = [(n, s) for n, s in zip(lead, ahead, strict=True) if n != 1]
    for (_, outer), (n, inner) in pairwise(real):
        if outer != n * inner:
            return None
    rows = int(np.prod(lead))
    stride = real[-1][1] if real else ahead[-1]
    return r.view(value, "reshape", ((rows, last),), (rows, last), (stride, step))


def _flattened_product(r: Rewriting, step: Step) -> bool:
    """(..., n, k) @ (k, m) as one product of matrices; a stack of one as that one."""
    a, b = step.args
    out = step.out
    if (
        a.__class__ is not Value
        or b.__class__ is not Value
        or len(out.shape) < 3
        or len(a.shape) < 2
        or len(b.shape) < 2
    ):
        return False
    if len(b.shape) == 2:
        first, second = _collapsed(r, a), b
    elif set(a.shape[:-2]) | set(b.shape[:-2]) <= {1}:
        first, second = _only(r, a), _only(r, b)
    else:
        return False
    if first is None:
        return False
    made = r.emit(
        "matmul", "np.matmul", (first, second), (first.shape[0], second.shape[1]), out.dtype
    )
    r.replace(out, made)
    r.now[id(out)] = r.reshaped(made, out.shape)
    return True


def _only(r: Rewriting, value: Value) -> Value:
    """The one matrix of a stack of one."""
    k = len(value.shape) - 2
    return r.view(value, "getitem", ((0,) * k,), value.shape[k:], value.strides[k:]) if k else value


def _flattened_sum(r: Rewriting, step: Step) -> bool:
    """A sum over all axes but the last as one over the rows of a matrix."""
    (x,) = step.args
    axis, out = step.kwargs.get("axis"), step.out
    if x.__class__ is not Value or set(step.kwargs) - {"axis", "keepdims"} or len(x.shape) < 2:
        return False
    axes = (axis,) if isinstance(axis, int) else axis
    if axes is None or sorted(a % len(x.shape) for a in axes) != list(range(len(x.shape) - 1)):
        return False
    if len(x.shape) == 2 and not step.kwargs.get("keepdims"):
        return False
    matrix = _collapsed(r, x)
    if matrix is None:
        return False
    made = r.emit("reduce", step.text, (matrix,), (x.shape[-1],), out.dtype, axis=0)
    r.replace(out, made)
    r.now[id(out)] = r.reshaped(made, out.shape)
    return True
