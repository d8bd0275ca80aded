"""Every op of a pass through a layer, in closed form: one generator for each layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from math import prod
from typing import Any

import minigrad as mg

from .attention import MultiHeadAttention, SelfAttention
from .bias import ALiBi, T5Bias
from .blocks import DecoderBlock, TransformerBlock
from .embedding import Embedding
from .feed_forward import Dropout, FeedForward, GatedFeedForward
from .linear import Linear
from .module import Module
from .norm import LayerNorm, RMSNorm
from .op_costs import (
    Operation,
    affine,
    each,
    joined,
    norm,
    product,
    scattered,
    summed,
    tiled,
)
from .position import LearnedPosition, SinusoidalPosition
from .relative import RelativePosition, TransformerXLPosition
from .rotary import Rotary
from .sequential import Sequential
from .transformer import Decoder, Encoder, LanguageModel

__all__ = ["operations", "projections"]

Operations = Iterator[Operation]


@singledispatch
def operations(layer: Any, B: int, n: int, m: int | None = None) -> Operations:
    """Every op of a pass over B sequences of n tokens, with m tokens of context."""
    raise TypeError(f"layer_cost: no closed form for {type(layer).__name__}")


@operations.register
def _(layer: Linear, B: int, n: int, m: int | None = None) -> Operations:
    yield from affine(B * n, layer.W, layer.b)


@operations.register
def _(layer: LayerNorm, B: int, n: int, m: int | None = None) -> Operations:
    given = layer.weight is not None, layer.bias is not None
    yield norm("layer_norm", B * n, prod(layer.shape), *given)


@operations.register
def _(layer: RMSNorm, B: int, n: int, m: int | None = None) -> Operations:
    if layer.plus_one and layer.weight is not None:
        yield each("add", prod(layer.shape))
    yield norm("rms_norm", B * n, prod(layer.shape), layer.weight is not None)


# ---------------------------------------------------------------- each token by itself


def _activation(f: Any, entries: int) -> Operations:
    """An activation that is an op, or a partial of one."""
    names = {mg.relu: "relu", mg.tanh: "tanh", mg.sigmoid: "sigmoid", mg.silu: "silu"}
    op = getattr(f, "func", f)
    if op is mg.gelu:
        approximate = getattr(f, "keywords", {}).get("approximate", "none")
        yield each("gelu_tanh" if approximate == "tanh" else "gelu", entries)
    elif op in names:
        yield each(names[op], entries)
    else:
        raise TypeError(f"layer_cost: the cost of the activation {f!r} is not known")


@operations.register
def _(layer: FeedForward, B: int, n: int, m: int | None = None) -> Operations:
    yield from affine(B * n, layer.W_1, layer.b_1)
    yield from _activation(layer.activation, B * n * layer.W_1.shape[1])
    yield from affine(B * n, layer.W_2, layer.b_2)


@operations.register
def _(layer: GatedFeedForward, B: int, n: int, m: int | None = None) -> Operations:
    d_model, d_ff = layer.W.shape
    yield from affine(B * n, layer.W, layer.b)
    yield from _activation(layer.activation, B * n * d_ff)
    yield from affine(B * n, layer.V, layer.c)
    yield joined(B * n * d_model)  # X, in both maps
    yield each("multiply", B * n * d_ff, factors=2)
    yield from affine(B * n, layer.W_2, layer.b_2)


@operations.register
def _(layer: Dropout, B: int, n: int, m: int | None = None) -> Operations:
    raise TypeError("layer_cost: Dropout has no width of its own; ask for the layer it is part of")


def _dropped(drop: Dropout | None, entries: int) -> Operations:
    if drop is not None and drop.training and drop.p:
        yield each("dropout", entries)


@operations.register
def _(layer: Embedding, B: int, n: int, m: int | None = None) -> Operations:
    entries = B * n * layer.W.shape[1]
    yield scattered(entries)
    if layer.scaled:
        yield each("scale", entries)


@operations.register
def _(layer: SinusoidalPosition, B: int, n: int, m: int | None = None) -> Operations:
    yield each("add", B * n * layer.d_model)


@operations.register
def _(layer: LearnedPosition, B: int, n: int, m: int | None = None) -> Operations:
    d_model = layer.P.shape[1]
    yield each("add", B * n * d_model)
    yield summed(B * n * d_model)  # P, the same for each sequence
    yield scattered(n * d_model)


# ---------------------------------------------------------------- attention


@operations.register(SelfAttention)
@operations.register(MultiHeadAttention)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Operations:
    h, g = getattr(layer, "n_heads", 1), getattr(layer, "n_kv_heads", 1)
    in_tiles, keys = layer.method == "tiled", n if m is None else m
    yield from projections(layer, B, n, m, layer.method)
    if layer.q_norm is not None:
        yield from operations(layer.q_norm, B * h, n)
        yield from operations(layer.k_norm, B * g, keys)
    if isinstance(layer.position, Rotary):
        yield from _turned(layer.position.d, B * h * n, layer.d_k)
        yield from _turned(layer.position.d, B * g * keys, layer.d_k)
    if g < h:
        yield summed(B * h * keys * (layer.d_k + layer.d_v))  # each serves several
    if in_tiles:
        masks = int(_hides(layer, n, keys))
        yield tiled(B * h * n, keys, layer.d_k, layer.d_v, masks)
    else:
        yield from _scored(layer, B, h, n, keys)
    yield from affine(B * n, layer.W_O, layer.b_O, layer.method)


def projections(layer: Any, B: int, n: int, m: int | None, method: str = "exact") -> Operations:
    """Q from n tokens, K and V from them too, or from m of a context."""
    keys = n if m is None else m
    yield from affine(B * n, layer.W_Q, layer.b_Q, method)
    yield from affine(B * keys, layer.W_K, layer.b_K, method)
    yield from affine(B * keys, layer.W_V, layer.b_V, method)
    if m is None:
        yield joined(B * n * layer.d_model, uses=3)
    else:
        yield joined(B * m * layer.d_context)


def _turned(r: int, rows: int, d: int) -> Operations:
    """Rotary: r of d entries a row turn, in pairs."""
    half = rows * r // 2
    yield from (each("multiply", half) for _ in range(4))
    yield each("subtract", half)
    yield each("add", half)
    yield from (joined(half) for _ in "ab")  # (a, b) in both of the pair's new entries
    rest = rows * (d - r)
    yield scattered(2 * half + rest)
    yield joined(rows * d, uses=3 if rest else 2)


def _hides(layer: Any, n: int, m: int) -> bool:
    """Whether the layer's own settings hide a key from a query."""
    return (layer.causal and m > 1) or (layer.window is not None and layer.window < max(n, m))


def _scored(layer: Any, B: int, h: int, n: int, m: int) -> Operations:
    """Scores, weights and values, step by step."""
    scores, position = B * h * n * m, layer.position
    yield product(B * h * n, layer.d_k, m)
    yield each("scale", scores)
    yield from _bias(position, B, h, n, m, layer.d_k)
    if layer.softcap is not None:
        yield from (each(name, scores) for name in ("scale", "tanh", "scale"))
    if _hides(layer, n, m):
        yield each("mask_add", scores)
    yield each("softmax", scores)
    yield from _dropped(layer.drop, scores)
    yield product(B * h * n, m, layer.d_v)
    if isinstance(position, RelativePosition) and position.a_V is not None:
        yield joined(scores)  # A, with V and with a_V
        yield product(B * h * n, m, layer.d_v, name="einsum")
        yield scattered(n * m * layer.d_v)
        yield each("add", B * h * n * layer.d_v)


def _bias(position: Any, B: int, h: int, n: int, m: int, d_k: int) -> Operations:
    """What a relative position adds to the scores."""
    scores = B * h * n * m
    if isinstance(position, RelativePosition):
        yield joined(B * h * n * d_k)  # Q
        yield product(B * h * n, d_k, position.a_K.shape[0])
        yield scattered(scores)
        yield each("scale", scores)
    if isinstance(position, TransformerXLPosition):
        yield from _transformer_xl(position, B, h, n, m, d_k)
    if isinstance(position, T5Bias):
        yield scattered(n * m * h)
        yield summed(scores)  # the same for each sequence
    if isinstance(position, ALiBi | RelativePosition | T5Bias | TransformerXLPosition):
        yield each("add", scores)


def _transformer_xl(position: Any, B: int, h: int, n: int, m: int, d_k: int) -> Operations:
    scores, distances = B * h * n * m, n + m - 1
    d_model, width = position.W_R.shape
    yield product(distances, d_model, width, factors=1)  # of the sinusoid, a constant
    yield each("add", B * h * n * d_k)  # Q + v
    yield summed(B * h * n * d_k)
    yield product(B * h * n, d_k, distances)
    yield summed(B * h * d_k * distances)  # R, the same for each sequence
    yield scattered(scores)
    yield product(B * h, d_k, m)  # u Kᵀ
    yield summed(B * h * d_k)
    yield each("add", scores)
    if n > 1:
        yield summed(scores)  # u Kᵀ, the same for each query
    yield each("scale", scores)
    yield joined(B * h * n * d_k)  # Q
    yield joined(B * h * m * d_k)  # K


# ---------------------------------------------------------------- blocks


@operations.register(TransformerBlock)
@operations.register(DecoderBlock)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Operations:
    decoder = isinstance(layer, DecoderBlock)
    yield from operations(layer.attention, B, n)
    if decoder:
        yield from operations(layer.cross_attention, B, n, m)
    yield from operations(layer.feed_forward, B, n)
    for name, child in layer.named_children():
        if name.startswith("norm"):
            yield from operations(child, B, n)
    entries = B * n * layer.attention.d_model
    for _ in range(3 if decoder else 2):  # residuals
        yield each("add", entries)
        yield joined(entries)
        yield from _dropped(layer.drop, entries)


@operations.register(Encoder)
@operations.register(Decoder)
def _(layer: Any, B: int, n: int, m: int | None = None) -> Operations:
    for block in layer.blocks:
        yield from operations(block, B, n, m)
    if isinstance(layer, Decoder) and m is not None:
        context = B * m * layer.blocks[0].cross_attention.d_context
        yield joined(context, uses=len(layer.blocks))
    if layer.norm is not None:
        yield from operations(layer.norm, B, n)


@operations.register
def _(layer: LanguageModel, B: int, n: int, m: int | None = None) -> Operations:
    yield from operations(layer.embedding, B, n)
    if layer.position_embedding is not None:
        yield from operations(layer.position_embedding, B, n)
    yield from operations(layer.decoder, B, n)
    n_tokens, d_model = layer.embedding.W.shape
    yield product(B * n, d_model, n_tokens)
    if layer.head is None:
        yield joined(n_tokens * d_model)  # the embedding, at both ends
    if layer.output_softcap is not None:
        yield from (each(name, B * n * n_tokens) for name in ("scale", "tanh", "scale"))


@operations.register
def _(layer: Sequential, B: int, n: int, m: int | None = None) -> Operations:
    for k, child in enumerate(layer.layers):
        if isinstance(child, Module):
            yield from operations(child, B, n, m)
        else:
            width = layer.layers[k - 1].W.shape[1]
            yield from _activation(child, B * n * width)
