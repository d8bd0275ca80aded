"""Closed forms of the layers whose attention grows with n: every op of a pass, as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .closed_forms import Operation, affine, each, operations, product
from .efficient_layers import LinearAttention, LinformerAttention, PerformerAttention
from .kernels import CHUNK

__all__ = ["operations"]  # with these layers' forms among the others


@operations.register(LinearAttention)
@operations.register(LinformerAttention)
@operations.register(PerformerAttention)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    h, d = layer.n_heads, layer.d_k
    for s in "QKV":
        yield from affine(B * n, getattr(layer, f"W_{s}"), getattr(layer, f"b_{s}"))
    if isinstance(layer, LinformerAttention):
        yield from _linformer(B * h, n, d, layer.k)
    elif isinstance(layer, LinearAttention):
        for _ in "QK":
            yield from (each(name, B * h * n * d) for name in ("maximum", "minimum", "exp", "add"))
        yield from _kernel(B * h, n, d, d, layer.causal)
    else:
        yield from _positive_features(B * h, n, d, layer.n_features, layer.causal)
        yield from _kernel(B * h, n, layer.n_features, d, layer.causal)
    yield from affine(B * n, layer.W_O, layer.b_O)


def _linformer(heads: int, n: int, d: int, k: int) -> Iterator[Operation]:
    yield from (product(heads * k, n, d) for _ in "EF")
    yield product(heads * n, d, k)
    yield each("scale", heads * n * k)
    yield each("softmax", heads * n * k, 5)
    yield product(heads * n, k, d)


def _positive_features(heads: int, n: int, d: int, r: int, causal: bool) -> Iterator[Operation]:
    """Of queries, less each one's largest exponent; of keys, less the largest of all or of none."""
    for largest in (n, 0 if causal else 1):
        yield each("scale", heads * n * d)
        yield each("multiply", heads * n * d)
        yield Operation("sum", heads * n * d, heads * n)
        yield each("scale", heads * n)
        yield product(heads * n, d, r)
        yield each("subtract", heads * n * r)
        if largest:
            yield Operation("max", heads * n * r, heads * largest)
            yield each("subtract", heads * n * r)
        yield each("exp", heads * n * r)
        yield each("scale", heads * n * r)


def _kernel(heads: int, n: int, r: int, d: int, causal: bool) -> Iterator[Operation]:
    """`kernel_attention` with r features."""
    if causal:
        c = min(n, CHUNK)
        chunks = heads * -(-n // c)
        yield product(chunks * r, c, d)
        yield each("cumsum", chunks * r * d)
        yield product(chunks * c, r, c)
        yield each("multiply", chunks * c * c)
        yield product(chunks * c, r, d)
        yield product(chunks * c, c, d)
        yield each("add", chunks * c * d)
        yield each("cumsum", heads * n * r)
    else:
        yield product(heads * r, n, d)
        yield product(heads * n, r, d)
        yield Operation("sum", heads * n * r, heads * r)
    yield each("multiply", heads * n * r)
    yield Operation("sum", heads * n * r, heads * n)
    yield each("divide", heads * n * d)
