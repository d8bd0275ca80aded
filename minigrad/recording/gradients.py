"""Gradients of any value of a finished record: each op runs again, by itself, and then back.

A record keeps what every op was given, so this needs no graph: not whether the run was recorded
for a backward, nor whether one was run, nor from where.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.tensor import Tensor
from ..engine.types import Array, Index
from ..paths import matches, nearest
from .record import Entry
from .trace import TraceRecord

__all__ = ["Which", "find_entry", "find_scalar", "gradients_of"]

NOT_RECORDED = "not recorded"
Which: TypeAlias = Tensor | str | int  # a value of the run, its path, or its number


def gradients_of(
    trace: TraceRecord, output: Entry, seed: Array, leaves: Collection[int] = ()
) -> dict[int, Array]:
    """∂(seed · output)/∂value by entry, of ops and of the `leaves` named by their numbers.

    Nothing flows through `detach()`, nor into what ran within `no_grad()` if the output did not.

    Raises: ArgumentError if the record kept no arrays, or the run crossed ranks.
    """
    found = {output.id: seed}
    for i in reversed(trace.forward_steps):
        entry = trace.entries[i]
        cut = entry.why == NOT_RECORDED != output.why
        if i in found and not cut:
            for source, part in _sent(trace, entry, found[i], leaves):
                found[source] = found[source] + part if source in found else part
    return found


def _sent(
    trace: TraceRecord, entry: Entry, gradient: Array, leaves: Collection[int]
) -> list[tuple[int, Array]]:
    """What one op sends back, and to which entries."""
    call = trace.call_of(entry)
    if call is None or call.op.effect:
        why = "the record kept no arrays of it" if call is None else "ranks ran it together"
        raise ArgumentError(f"gradients of a record: {entry.path} cannot run again: {why}")
    inputs = trace.inputs_of(call)
    wanted = {
        i: source
        for i, source in enumerate(call.sources)
        if source is not None and (trace.entries[source].op or source in leaves)
        if inputs[i].dtype.kind == "f"
    }
    parts = call.gradients(inputs, wanted, gradient) if wanted else []
    return list(zip(wanted.values(), parts, strict=True))


# ---------------------------------------------------------------- what is asked for


def find_entry(trace: TraceRecord, which: Which, call: str) -> Entry:
    """The one entry that a Tensor of the run, a path or a number means.

    Raises: ArgumentError if there is none, or more than one.
    """
    if isinstance(which, int):
        return trace[which]
    if isinstance(which, Tensor):
        found = [e for e in trace.entries if e.value is which._data] or [
            e for e in trace.entries if e.name == which.name and _same(e.value, which._data)
        ]  # of a leaf the record holds a copy
        said, near = f"tensor {which.path or which.shape}", ""
    else:
        found = [e for e in trace.entries if matches(which, e.path)]
        said, near = repr(which), nearest(which, (e.path for e in trace.entries))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ArgumentError(f"{call}: {said} is no value of this run{near}")
    these = ", ".join(f"{e.id} {e.path}" for e in found[:4])
    raise ArgumentError(f"{call}: {said} means {len(found)} values of this run: {these}; write one")


def _same(kept: object, array: Array) -> bool:
    return isinstance(kept, np.ndarray) and np.array_equal(kept, array)


def find_scalar(
    trace: TraceRecord, output: Which | tuple[Which, Index], call: str
) -> tuple[Entry, str, float, Array]:
    """What is to be explained: its entry, what to call it, its number, and the seed that picks it.

    Args: output: as `find_entry`, or a pair of that and the index of one of its numbers.
    """
    which, index = output if isinstance(output, tuple) else (output, ())
    entry = find_entry(trace, which, call)
    if not isinstance(entry.value, np.ndarray):
        raise ArgumentError(f"{call}: the record kept no array of {entry.path}")
    picked = entry.value[index]
    if np.size(picked) != 1:
        raise ArgumentError(
            f"{call}: one number is explained at a time, {entry.path} has shape {entry.shape}; "
            "write (tensor, index), such as (logits, (0, -1, 7))"
        )
    seed = np.zeros_like(entry.value)
    seed[index] = 1
    indices = index if isinstance(index, tuple) else (index,)
    shown = f"[{', '.join(map(str, indices))}]" if indices else ""
    return entry, entry.path + shown, float(np.reshape(picked, ())), seed
