"""What is done to a program once all of it is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from .program import EFFECTS, Program, Step, Value, address, blank, contiguous, substitute, turned

__all__ = ["draws", "improve", "is_transpose", "looked_at"]


def improve(program: Program) -> None:
    """Drop what nobody reads, and turn products."""
    drop_dead(program)
    turn_products(program)
    drop_dead(program)


def drop_dead(program: Program) -> None:
    """Drop calls whose results nobody reads, but for those that do more than compute."""
    needed = {id(v) for v in program.kept()}
    alive = []
    for step in reversed(program.steps):
        stays = step.kind in (*EFFECTS, "check", "effect") or draws(step)
        if stays or any(id(out) in needed for out in step.outs):
            alive.append(step)
            needed.update(map(id, step.reads()))
    program.steps[:] = reversed(alive)


def draws(step: Step) -> bool:
    """Whether a kernel draws random numbers, which moves the generator on."""
    return any(isinstance(a, np.random.Generator) for a in step.args)


def is_transpose(step: Step) -> bool:
    """Whether a view exchanges the last two axes and does nothing else."""
    ndim = len(step.args[0].shape)
    if step.text == "swapaxes":
        return {a % ndim for a in step.args[1:]} == {ndim - 1, ndim - 2}
    return step.text == "transpose" and ndim == 2


def turn_products(program: Program) -> None:
    """(A B)ᵀ = Bᵀ Aᵀ: a product of which only the transpose is read is made the other way round."""
    readers: dict[int, list[Step | None]] = {id(v): [None] for v in program.kept()}
    for step in program.steps:
        for value in step.reads():
            readers.setdefault(id(value), []).append(step)
    now: dict[int, Value] = {}
    steps: list[Step] = []

    def present(item: Any) -> Any:
        return now.get(id(item), item) if item.__class__ is Value else item

    def transposed(value: Value) -> Value:
        step = Step("view", "swapaxes", None, (value, -1, -2))
        step.outs = [Value("step", step, looked_at(step).shape, value.dtype)]
        _lay_out(step)
        steps.append(step)
        return step.out

    for step in program.steps:
        if now:
            step.args, step.kwargs = substitute((step.args, step.kwargs), present)
            if step.kind == "view" or step.text == "reshape":
                _lay_out(step)
        if step.kind == "matmul" and _is_read_turned(readers, step.out):
            a, b = step.args
            step.args, old = (transposed(b), transposed(a)), step.out
            made = Value("step", step, (*old.shape[:-2], *old.shape[:-3:-1]), old.dtype)
            step.outs, made.name = [made], old.name and turned(old.name)
            steps.append(step)
            now[id(old)] = transposed(made)
        else:
            steps.append(step)
    program.steps[:] = steps


def _is_read_turned(readers: dict[int, list[Step | None]], value: Value) -> bool:
    """Whether all who read a product of matrices turn it; a stack of one matrix is that matrix."""
    found = readers.get(id(value), [])
    return len(value.shape) > 1 and all(
        step is not None
        and step.kind == "view"
        and (
            is_transpose(step)
            or (step.out.shape[-2:] == value.shape and _is_read_turned(readers, step.out))
        )
        for step in found
    )


def looked_at(step: Step, source: Any = None) -> Any:
    """What a view shows of an array that lies as what it is a view of does."""
    source = blank(step.args[0]) if source is None else source
    if step.text == "getitem":
        return source[step.args[1]]
    return getattr(np, step.text)(source, *step.args[1:], **step.kwargs)


def _lay_out(step: Step) -> None:
    """Where a view's entries lie, now that what it is a view of may lie otherwise; or that it has
    to be a copy, or need not be one any more.
    """
    source = blank(step.args[0])  # never touched: only addresses matter
    seen, out = looked_at(step, source), step.out
    step.kind = "view" if not seen.size or np.may_share_memory(seen, source) else "copy"
    out.strides, out.offset = contiguous(out.shape, out.dtype), 0
    if step.kind == "view":
        out.strides = seen.strides
        out.offset = step.args[0].offset + address(seen) - address(source)
