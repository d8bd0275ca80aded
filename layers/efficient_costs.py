"""Closed forms of the layers whose attention grows with n: every op of a pass, as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .closed_forms import operations, projections
from .efficient_layers import LinearAttention, LinformerAttention, PerformerAttention
from .kernels import CHUNK
from .op_costs import Operation, affine, each, joined, product, reduced, scattered, summed

__all__ = ["operations"]  # with these layers' forms among the others

Operations = Iterator[Operation]


class _Sizes(NamedTuple):
    """Heads of all sequences together, those of keys and values, queries, keys, width of a head."""

    h: int
    g: int
    n: int
    m: int
    d: int


@operations.register(LinearAttention)
@operations.register(LinformerAttention)
@operations.register(PerformerAttention)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Operations:
    yield from projections(layer, B, n, m)
    keys = n if m is None else m
    sizes = _Sizes(B * layer.n_heads, B * layer.n_kv_heads, n, keys, layer.d_k)
    if isinstance(layer, LinformerAttention):
        yield from _linformer(sizes, layer.k, keys < layer.seq_len)
    elif isinstance(layer, LinearAttention):
        yield from _elu_features(sizes.h * n * sizes.d)
        yield from _elu_features(sizes.g * keys * sizes.d)
        yield from _kernel(sizes, sizes.d, layer.causal)
    else:
        r = layer.n_features
        yield from _positive_features(sizes.h * n, sizes.d, r, sizes.h * n)
        yield from _positive_features(sizes.g * keys, sizes.d, r, 0 if layer.causal else sizes.g)
        yield from _kernel(sizes, r, layer.causal)
    yield from affine(B * n, layer.W_O, layer.b_O)


def _linformer(sizes: _Sizes, k: int, cut: bool) -> Operations:
    h, g, n, m, d = sizes
    for _ in "EF":
        if cut:
            yield scattered(k * m)  # its first m columns
        yield product(g * k, m, d)
        yield summed(g * k * m)
    yield product(h * n, d, k)
    yield each("scale", h * n * k)
    yield each("softmax", h * n * k)
    yield product(h * n, k, d)
    if g < h:
        yield summed(2 * h * k * d)  # mixtures of keys and values, each for several heads


def _elu_features(entries: int) -> Operations:
    yield from (each(name, entries) for name in ("maximum", "minimum", "exp", "add"))
    yield joined(entries)


def _positive_features(rows: int, d: int, r: int, largest: int) -> Operations:
    """Of rows of d, less so many largest exponents: each query's, that of all keys, or none."""
    yield each("scale", rows * d)
    yield each("multiply", rows * d, factors=2)
    yield reduced("sum", rows * d, rows)
    yield each("scale", rows)
    yield product(rows, d, r, factors=1)  # with W, a constant
    yield joined(rows * d, uses=3)
    yield each("subtract", rows * r)
    if r > 1:
        yield summed(rows * r)  # ‖x‖² / 2, the same for each feature
    if largest:
        yield reduced("max", rows * r, largest, detached=True)
        yield each("subtract", rows * r, factors=0)
    yield each("exp", rows * r)
    yield each("scale", rows * r)


def _kernel(sizes: _Sizes, r: int, causal: bool) -> Operations:
    """`kernel_attention` with r features."""
    h, g, n, m, d = sizes
    if causal:
        yield from _causal_product(sizes, r)
        yield each("cumsum", g * m * r)
    else:
        yield product(g * r, m, d)
        yield product(h * n, r, d)
        if g < h:
            yield summed(h * r * d)
        yield reduced("sum", g * m * r, g * r)
    yield joined(g * m * r)  # φ(K), above and below the line
    yield joined(h * n * r)  # φ(Q)
    yield each("multiply", h * n * r, factors=2)
    if g < h or (n > 1 and not causal):
        yield summed(h * n * r)  # Σ φ(k), the same for each query, or for several heads
    yield reduced("sum", h * n * r, h * n)
    yield each("divide", h * n * d)
    if d > 1:
        yield summed(h * n * d)


def _causal_product(sizes: _Sizes, r: int) -> Operations:
    h, g, n, _, d = sizes
    if n <= CHUNK:
        yield from _within(h, g, n, r, d)
        return
    c, chunks = CHUNK, -(-n // CHUNK)
    H, G = h * chunks, g * chunks
    yield product(G * r, c, d)
    yield scattered((G - g) * r * d)  # all sums but the last
    yield each("cumsum", G * r * d)
    yield product(H * c, r, d)
    yield from _within(H, G, c, r, d)
    yield each("add", H * c * d)
    if n % c:
        yield scattered(h * n * d)  # without what filled the last chunk up
    yield joined(H * c * r)  # Q
    yield joined(G * c * (r + d))  # K, V
    if g < h:
        yield summed(H * r * d)  # sums, each for several heads


def _within(H: int, G: int, c: int, r: int, d: int) -> Operations:
    yield product(H * c, r, c)
    yield each("multiply", H * c * c)
    yield product(H * c, c, d)
    if G < H:
        yield summed(H * c * (r + d))  # K and V, each for several heads
