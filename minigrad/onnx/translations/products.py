"""Products of matrices, and attention in tiles."""

from __future__ import annotations

from math import sqrt

from ...engine.op import registry
from ...ops import einsum, linear, matmul
from ...ops.einsum import explicit
from ..translation import translation
from .elementwise import both, masked
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


if "tiled_attention" in registry:  # of minigrad/fast, which may be missing

    @translation(registry["tiled_attention"])
    def _(to, q, k, v, mask, is_causal, scale, rule):
        masks = [x for x in (mask, rule) if x is not None]
        if is_causal:
            rows, columns = to.Unsqueeze(to.range(q.shape[-2]), [1]), to.range(k.shape[-2])
            masks.append(to.emit("GreaterOrEqual", rows, columns, dtype=bool))
        factor = 1 / sqrt(q.shape[-1]) if scale is None else float(scale)
        turned = [*range(k.ndim)]
        turned[-2:] = turned[:-3:-1]
        S = to.Mul(to.MatMul(q, to.Transpose(k, perm=turned)), factor)
        for mask in masks:
            S = masked(to, S, mask)
        return to.MatMul(softmaxed(to, S), v)
