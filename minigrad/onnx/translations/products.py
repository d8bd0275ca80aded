"""Products of matrices, and attention as one operator."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ...engine.op import registry
from ...ops import einsum, linear, matmul
from ...ops.einsum import explicit
from ..translation import translation
from .elementwise import both
from .reductions import softmaxed


@translation(matmul)
def _(to, a, b, out):
    return to.MatMul(*both(to, a, b, out.dtype))


@translation(linear)
def _(to, x, W, b, out):
    product = to.MatMul(*both(to, x, W, out.dtype))
    return product if b is None else to.Add(product, to.cast(b, out.dtype))


@translation(einsum)
def _(to, operands, subscripts, out):
    terms, target = explicit(subscripts, tuple(x.ndim for x in operands))
    equation = f"{','.join(terms)}->{target}"
    return to.Einsum(*(to.cast(x, out.dtype) for x in operands), equation=equation)


def attended(to, q, k, v, scale, masks):
    """softmax(q kᵀ · scale + masks) v, step by step."""
    turned = [*range(k.ndim)]
    turned[-2:] = turned[:-3:-1]
    S = to.MatMul(q, to.Transpose(k, perm=turned))
    S = to.Mul(S, 1 / sqrt(q.shape[-1]) if scale is None else float(scale))
    for mask in masks:
        if mask.dtype == bool:
            S = to.Where(mask, S, to.value(-np.inf, S.dtype), dtype=S.dtype)
        else:
            S = to.Add(S, to.cast(mask, S.dtype))
        S.infinite = True
    return to.MatMul(softmaxed(to, S), v)


def causal(to, q, k):
    """Which keys stand at the query's position or before."""
    rows, columns = to.Unsqueeze(to.range(q.shape[-2]), [1]), to.range(k.shape[-2])
    return to.emit("GreaterOrEqual", rows, columns, dtype=bool)


if "tiled_attention" in registry:  # of minigrad/fast, which may be missing

    @translation(registry["tiled_attention"])
    def _(to, q, k, v, mask, is_causal, scale, rule):
        masks = [x for x in (mask, rule) if x is not None]
        masks += [causal(to, q, k)] if is_causal else []
        return attended(to, q, k, v, scale, masks)
