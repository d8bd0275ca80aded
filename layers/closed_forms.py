"""Every op of a pass through a layer, in closed form: one generator for each layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from math import prod
from typing import Any, NamedTuple

import minigrad as mg

from .attention import MultiHeadAttention, SelfAttention
from .bias import ALiBi, T5Bias
from .blocks import DecoderBlock, TransformerBlock
from .embedding import Embedding
from .feed_forward import Dropout, FeedForward, GatedFeedForward
from .linear import Linear
from .module import Module
from .norm import LayerNorm, RMSNorm
from .position import LearnedPosition, SinusoidalPosition
from .relative import RelativePosition, TransformerXLPosition
from .rotary import Rotary
from .sequential import Sequential
from .transformer import Decoder, Encoder, LanguageModel

__all__ = ["Operation", "affine", "each", "operations", "product"]


class Operation(NamedTuple):
    """One op of a forward pass: its name, FLOPs and the entries of its result."""

    name: str
    flops: int
    entries: int


def each(name: str, entries: int, cost: int = 1) -> Operation:
    return Operation(name, cost * entries, entries)


def product(rows: int, inner: int, columns: int) -> Operation:
    return Operation("matmul", 2 * rows * inner * columns, rows * columns)


def affine(rows: int, W: Any, b: Any) -> Iterator[Operation]:
    yield product(rows, *W.shape)
    if b is not None:
        yield each("add", rows * W.shape[1])


def _activation(f: Any, entries: int) -> Iterator[Operation]:
    """An activation that is an op, or a partial of one."""
    op = getattr(f, "func", f)
    costs = {mg.relu: 1, mg.tanh: 1, mg.sigmoid: 4, mg.silu: 5, mg.gelu: 8}
    if op not in costs:
        raise TypeError(f"layer_cost: the cost of the activation {f!r} is not known")
    yield each(op.__name__, entries, costs[op])


@singledispatch
def operations(layer: Any, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    """Every op of a pass over B sequences of n tokens, with m tokens of context."""
    raise TypeError(f"layer_cost: no closed form for {type(layer).__name__}")


@operations.register
def _(layer: Linear, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    yield from affine(B * n, layer.W, layer.b)


@operations.register
def _(layer: LayerNorm, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    yield each("layer_norm", B * n * prod(layer.shape), 8)


@operations.register
def _(layer: RMSNorm, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    if layer.plus_one and layer.weight is not None:
        yield each("add", prod(layer.shape))
    yield each("rms_norm", B * n * prod(layer.shape), 5)


@operations.register
def _(layer: FeedForward, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    yield from affine(B * n, layer.W_1, layer.b_1)
    yield from _activation(layer.activation, B * n * layer.W_1.shape[1])
    yield from affine(B * n, layer.W_2, layer.b_2)


@operations.register
def _(layer: GatedFeedForward, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    hidden = B * n * layer.W.shape[1]
    yield from affine(B * n, layer.W, layer.b)
    yield from _activation(layer.activation, hidden)
    yield from affine(B * n, layer.V, layer.c)
    yield each("multiply", hidden)
    yield from affine(B * n, layer.W_2, layer.b_2)


@operations.register
def _(layer: Embedding, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    if layer.scaled:
        yield each("scale", B * n * layer.W.shape[1])


@operations.register(LearnedPosition)
@operations.register(SinusoidalPosition)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    width = layer.P.shape[1] if isinstance(layer, LearnedPosition) else layer.d_model
    yield each("add", B * n * width)


@operations.register(SelfAttention)
@operations.register(MultiHeadAttention)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    h, g = getattr(layer, "n_heads", 1), getattr(layer, "n_kv_heads", 1)
    m, d_k, d_v, position = n if m is None else m, layer.d_k, layer.d_v, layer.position
    scores = B * h * n * m
    yield from affine(B * n, layer.W_Q, layer.b_Q)
    yield from affine(B * m, layer.W_K, layer.b_K)
    yield from affine(B * m, layer.W_V, layer.b_V)
    if layer.q_norm is not None:
        yield from operations(layer.q_norm, B * h, n)
        yield from operations(layer.k_norm, B * g, m)
    if isinstance(position, Rotary):
        turned = (B * h * n + B * g * m) * position.d // 2
        yield from (each(name, turned) for name in ("multiply", "multiply", "subtract"))
        yield from (each(name, turned) for name in ("multiply", "multiply", "add"))
    yield product(B * h * n, d_k, m)
    yield each("scale", scores)
    yield from _bias(position, B, h, n, m, d_k)
    if layer.softcap is not None:
        yield from (each(name, scores) for name in ("scale", "tanh", "scale"))
    if (layer.causal and n > 1) or (layer.window is not None and layer.window < max(n, m)):
        yield each("mask_add", scores)
    yield each("softmax", scores, 5)
    if layer.drop is not None:
        yield from _dropped(layer.drop, scores)
    yield product(B * h * n, m, d_v)
    if isinstance(position, RelativePosition) and position.a_V is not None:
        yield Operation("einsum", 2 * scores * d_v, B * h * n * d_v)
        yield each("add", B * h * n * d_v)
    yield from affine(B * n, layer.W_O, layer.b_O)


def _bias(position: Any, B: int, h: int, n: int, m: int, d_k: int) -> Iterator[Operation]:
    """What a relative position adds to the scores."""
    scores = B * h * n * m
    if isinstance(position, RelativePosition):
        yield product(B * h * n, d_k, position.a_K.shape[0])
        yield each("scale", scores)
    if isinstance(position, TransformerXLPosition):
        distances = n + m - 1
        yield product(distances, *position.W_R.shape)
        yield each("add", B * h * n * d_k)
        yield product(B * h * n, d_k, distances)
        yield product(B * h, d_k, m)
        yield from (each(name, scores) for name in ("add", "scale"))
    if isinstance(position, ALiBi | RelativePosition | T5Bias | TransformerXLPosition):
        yield each("add", scores)


def _dropped(drop: Dropout | None, entries: int) -> Iterator[Operation]:
    if drop is not None and drop.training and drop.p:
        yield each("dropout", entries, 2)


@operations.register(TransformerBlock)
@operations.register(DecoderBlock)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    decoder = isinstance(layer, DecoderBlock)
    yield from operations(layer.attention, B, n)
    if decoder:
        yield from operations(layer.cross_attention, B, n, m)
    yield from operations(layer.feed_forward, B, n)
    for name, child in layer.named_children():
        if name.startswith("norm"):
            yield from operations(child, B, n)
    for _ in range(3 if decoder else 2):
        yield each("add", B * n * layer.attention.d_model)
        yield from _dropped(layer.drop, B * n * layer.attention.d_model)


@operations.register(Encoder)
@operations.register(Decoder)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    for block in layer.blocks:
        yield from operations(block, B, n, m)
    if layer.norm is not None:
        yield from operations(layer.norm, B, n)


@operations.register
def _(layer: LanguageModel, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    yield from operations(layer.embedding, B, n)
    if layer.position_embedding is not None:
        yield from operations(layer.position_embedding, B, n)
    yield from operations(layer.decoder, B, n)
    n_tokens, d_model = layer.embedding.W.shape
    yield product(B * n, d_model, n_tokens)
    if layer.output_softcap is not None:
        yield from (each(name, B * n * n_tokens) for name in ("scale", "tanh", "scale"))


@operations.register
def _(layer: Sequential, B: int, n: int, m: int | None = None) -> Iterator[Operation]:
    for k, child in enumerate(layer.layers):
        if isinstance(child, Module):
            yield from operations(child, B, n, m)
        else:
            width = layer.layers[k - 1].W.shape[1]
            yield from _activation(child, B * n * width)
