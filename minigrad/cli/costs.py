"""FLOPs and bytes of the layer, counted in the recorded graph, beside their closed forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers import flops_by_step, memory_by_array

from ..recording.record import Entry
from ..recording.trace import Trace
from .sentence import MULTI_HEAD, Lesson

__all__ = ["Cost", "bytes_of", "flops_of"]

ARRAYS = {"Q": "Q", "K": "K", "V": "V", "A": "attention matrix", "O": "output"}


@dataclass(frozen=True)
class Cost:
    """One line of the account; `closed` is None where the closed form leaves the step out."""

    step: str
    counted: int
    closed: int | None

    @property
    def equal(self) -> bool | None:
        return None if self.closed is None else self.counted == self.closed


def flops_of(lesson: Lesson) -> list[Cost]:
    """Forward operations of the layer by step: counted, and as `layers.flops_by_step` has them."""
    closed = flops_by_step(1, len(lesson.tokens), lesson.settings.d_model, **_widths(lesson))
    counted = dict.fromkeys(closed, 0)
    for entry in _ops(lesson):
        step, flops = step_of(lesson.trace, entry), entry.flops or 0
        if entry.op == "linear":  # a product and a bias
            counted["bias"] = counted.get("bias", 0) + entry.size
            flops -= entry.size
        counted[step] = counted.get(step, 0) + flops
    return _account(counted, closed)


def bytes_of(lesson: Lesson) -> list[Cost]:
    """Bytes of the layer's arrays: as recorded, and as `layers.memory_by_array` has them."""
    widths = _widths(lesson)
    if "n_heads" in widths:
        widths["d_model"] = lesson.settings.d_model
    closed = memory_by_array(1, len(lesson.tokens), dtype=lesson.settings.dtype, **widths)
    counted = dict.fromkeys(closed, 0)
    for entry in _ops(lesson):
        if entry.name in ARRAYS:
            counted[ARRAYS[entry.name]] += entry.size * np.dtype(entry.dtype).itemsize
    return _account(counted, closed)


def step_of(trace: Trace, entry: Entry) -> str:
    """Which step an op belongs to, by what it computes and from what."""
    sources = {trace[edge.source].name for edge in trace.into(entry)}
    if entry.op in ("matmul", "linear"):
        if sources & {"W_Q", "W_K", "W_V"}:
            return "projections"
        if "W_O" in sources:
            return "output"
        return {"S_raw": "scores", "O": "values"}.get(entry.name or "", "other")
    return {"softmax": "softmax", "scale": "scaling", "mask_add": "mask"}.get(
        entry.op or "", "other"
    )


def _ops(lesson: Lesson) -> list[Entry]:
    """The forward ops of the layer."""
    trace, scope = lesson.trace, lesson.scope
    entries = [trace[i] for i in trace.forward_steps]
    return [e for e in entries if e.scope == scope or e.scope.startswith(f"{scope}/")]


def _widths(lesson: Lesson) -> dict[str, int]:
    s = lesson.settings
    return {"n_heads": s.heads} if s.layer == MULTI_HEAD else {"d_k": s.d_k, "d_v": s.d_v}


def _account(counted: dict[str, int], closed: dict[str, int]) -> list[Cost]:
    """Steps of the closed form, their sum, then what it leaves out and is not nothing."""
    rows = [Cost(step, counted[step], closed[step]) for step in closed]
    rows.append(Cost("sum", sum(counted[step] for step in closed), sum(closed.values())))
    return rows + [Cost(step, n, None) for step, n in counted.items() if step not in closed and n]
