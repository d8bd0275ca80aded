"""Attention as the one operator that ONNX has had since opset 23, in place of its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..engine.op import Op
from ..ops import mask_add, matmul, scale, softmax, swapaxes
from .run import Made, Step
from .translation import translation

__all__ = ["attention_node", "fused"]


def _attention(q: Any, k: Any, v: Any, factor: Any, masks: Any) -> Any:
    """What the steps of attention are written as: softmax(q kᵀ · factor + masks) v."""


ATTENTION = Op(_attention, tex="", vjp_tex=dict.fromkeys(("q", "k", "v"), ""))


def fused(steps: list[Step], outputs: list[Any]) -> list[Step]:
    """The steps with those of attention as one each, where nothing else uses what lies between."""
    uses: dict[int, int] = {}
    for item in [*outputs, *(x for step in steps for x in (*step.inputs, *step.settings))]:
        if isinstance(item, Made) and isinstance(item.by, int):
            uses[item.by] = uses.get(item.by, 0) + 1
    return [_fused(steps, step, uses) or step for step in steps]


def _fused(steps: list[Step], last: Step, uses: dict[int, int]) -> Step | None:
    """A product with V as attention, if what it multiplies is A."""

    def made(item: Any, op: Op) -> Step | None:
        """The step that made it, if that is this op and no one else asks."""
        if not isinstance(item, Made) or not isinstance(item.by, int):
            return None
        return steps[item.by] if steps[item.by].op is op and uses[item.by] == 1 else None

    A = made(last.inputs[0], softmax) if last.op is matmul else None
    if A is None or A.settings[0] not in (-1, len(A.out.shape) - 1):
        return None
    masks: list[Any] = []
    before = A.inputs[0]
    while (masked := made(before, mask_add)) is not None:
        before = masked.inputs[0]
        masks.append(masked.inputs[1])
    S = made(before, scale)
    product = made(S.inputs[0] if S else before, matmul)
    turned = made(product.inputs[1], swapaxes) if product else None
    if product is None or turned is None or {a % 2 for a in turned.settings} != {0, 1}:
        return None
    if len(turned.out.shape) != len(product.out.shape) or len(last.out.shape) > 4:
        return None
    inputs = product.inputs[0], turned.inputs[0], last.inputs[1]
    settings = S.settings[0] if S else 1.0, tuple(masks)
    return replace(last, op=ATTENTION, inputs=inputs, settings=settings)


@translation(ATTENTION)
def attention_node(to: Any, q: Any, k: Any, v: Any, factor: Any, masks: Any) -> Any:
    """The operator; a row that may attend nowhere gives zeros, as our softmax has it."""
    n, m, dtype, new = q.shape[-2], k.shape[-2], q.dtype, [*range(4 - q.ndim)]
    zero, closed = to.value(0, dtype), to.value(-np.inf, dtype)
    total: Any = None
    for mask in masks:
        truth = mask.dtype == bool
        floats = to.Where(mask, zero, closed, dtype=dtype) if truth else to.cast(mask, dtype)
        total = floats if total is None else to.Add(total, floats)
    heads = [to.Unsqueeze(x, new) if new else x for x in (q, k, v)]
    if total is None:
        out = to.Attention(*heads, scale=float(factor))
    else:
        total = to.Expand(total, to.sizes((n, m)))
        out = to.Attention(*heads, total, scale=float(factor))
        top = to.ReduceMax(total, [-1], keepdims=1)
        seen = to.emit("Greater", top, closed, dtype=bool)
        out = to.Where(seen, out, zero, dtype=dtype)
    return to.Squeeze(out, new) if new else out
