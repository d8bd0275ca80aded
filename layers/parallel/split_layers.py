"""Layers of which each rank holds a part: f, this rank's part, g (Megatron-LM).

    out = g(part(f(X)))      f: copy to ranks, whose gradient is a sum;  g: sum over ranks

So one all-reduce forward and one back serve a whole attention or feed-forward layer: the first map
is split by columns, the last by rows, and what is between needs no other rank.
Source: Shoeybi et al. 2019, arXiv:1909.08053.
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad import distributed as dist
from minigrad.distributed import Ranks
from minigrad.errors import ArgumentError, OutOfRangeError
from minigrad.extend import mark_parameter

from ..arrays import Array, Mask
from ..embedding import Embedding
from ..feed_forward import Dropout
from ..linear import Linear, linear
from ..module import Module, as_array, named

__all__ = [
    "ColumnLinear",
    "Parallel",
    "PartDropout",
    "RowLinear",
    "SplitEmbedding",
    "bounds",
    "cut",
    "split_cross_entropy",
]


class Parallel(Module):
    """A layer split over ranks: attention by heads, or feed-forward by hidden entries.

        out = g(part(f(X)))

    Attributes: part: the layer with this rank's weights; the last bias is on rank 0 alone.
    Shapes:  as the layer's.
    """

    def __init__(self, part: Module, ranks: Ranks) -> None:
        self.part, self.ranks = part, ranks

    @property
    def window(self) -> int | None:
        return self.part.window

    def forward(
        self, X: Array, *masks: Mask | None, context: Array | None = None, **keywords: Any
    ) -> mg.Tensor:
        X = named("X_r", dist.copy_to_ranks(X, self.ranks))  # f
        if context is not None:
            keywords["context"] = named("Y_r", dist.copy_to_ranks(context, self.ranks))
        out_r = self.part(X, *masks, **keywords).named("out_r")  # (B, n, d_model), of its heads
        return dist.all_reduce(out_r, self.ranks).named("out")  # g


class ColumnLinear(Module):
    """This rank's columns of an affine map:  out_r = f(x) W_r + b_r.

    Shapes: x (..., d_in), alike on every rank → (..., d_out / p), each rank's own
    """

    def __init__(self, whole: Linear, ranks: Ranks) -> None:
        self.ranks = ranks
        columns = bounds(whole.W.shape[1], ranks)[ranks.rank]
        self.W = part_of(whole.W, 1, columns)
        self.b = None if whole.b is None else part_of(whole.b, 0, columns)

    def forward(self, x: Array) -> mg.Tensor:
        return linear(dist.copy_to_ranks(x, self.ranks), self.W, self.b)  # (..., d_out / p)


class RowLinear(Module):
    """This rank's rows of an affine map:  out = g(x_r W_r) + b.

    Shapes: x_r (..., d_in / p), each rank's own → (..., d_out), alike on every rank
    """

    def __init__(self, whole: Linear, ranks: Ranks) -> None:
        self.ranks = ranks
        self.W = part_of(whole.W, 0, bounds(whole.W.shape[0], ranks)[ranks.rank])
        self.b = whole.b

    def forward(self, x: Array) -> mg.Tensor:
        out = dist.all_reduce(linear(x, self.W), self.ranks)  # (..., d_out)
        return out if self.b is None else mg.add(out, self.b)


class SplitEmbedding(Module):
    """This rank's rows of an embedding: a token's row comes from the rank that has it.

    Shapes: tokens (...) of integers → (..., d_model), alike; as_linear: (..., this rank's tokens)
    """

    def __init__(self, whole: Embedding, ranks: Ranks) -> None:
        self.ranks, self.scaled = ranks, whole.scaled
        self.n_tokens = whole.W.shape[0]
        self.rows = bounds(self.n_tokens, ranks)[ranks.rank]
        self.W = part_of(whole.W, 0, self.rows)

    def forward(self, tokens: ArrayLike) -> mg.Tensor:
        tokens = as_array(tokens)
        check_tokens("SplitEmbedding", tokens, self.n_tokens)
        own = (tokens >= self.rows.start) & (tokens < self.rows.stop)  # (...)
        X_r = mg.take(self.W, np.where(own, tokens - self.rows.start, 0), axis=0)
        X = dist.all_reduce(mg.where(own[..., None], X_r, 0.0), self.ranks)  # (..., d_model)
        return (mg.scale(X, sqrt(self.W.shape[1])) if self.scaled else X).named("X")

    def as_linear(self, X: Array) -> mg.Tensor:
        """This rank's logits, f(X) W_rᵀ."""
        X = dist.copy_to_ranks(X, self.ranks)
        return mg.matmul(X, mg.swapaxes(self.W, 0, 1)).named("logits_r")


def split_cross_entropy(
    logits: mg.Tensor, targets: NDArray[np.integer], ranks: Ranks | None = None
) -> mg.Tensor:
    """The mean of log Σ_c exp(l_c) − l_target, where each rank has the logits of its tokens only.

        M = max over ranks,    s, t = all_reduce(Σ_c exp(l_c − M), l_target − M),    log s − t

    Args:    logits: (..., this rank's tokens), as `SplitEmbedding.as_linear` gives them.
    Shapes:  targets (...) of integers, alike on every rank → (), alike
    """
    ranks = ranks or dist.world()
    widths = dist.all_gather(np.array([logits.shape[-1]]), ranks)
    first = int(widths[: ranks.rank].sum())
    check_tokens("split_cross_entropy", targets, int(widths.sum()))
    maxima = dist.all_gather(logits.detach().numpy().max(axis=-1)[None], ranks)  # (p, ...)
    L = mg.subtract(logits, maxima.max(axis=0)[..., None]).named("L")  # (..., tokens)
    is_target = targets[..., None] == first + np.arange(logits.shape[-1])
    s_r, t_r = mg.sum(mg.exp(L), axis=-1), mg.sum(mg.where(is_target, L, 0.0), axis=-1)  # (...)
    s, t = dist.all_reduce(mg.stack([s_r, t_r]), ranks)  # (...) each
    return mg.mean(mg.subtract(mg.log(s), t)).named("loss")


def check_tokens(call: str, tokens: ArrayLike, count: int) -> None:
    """Raise OutOfRangeError unless all are numbers of tokens: no rank would have any other."""
    tokens = np.asarray(tokens)
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < count:
        worst = tokens.min() if tokens.min() < 0 else tokens.max()
        raise OutOfRangeError(f"{call}: tokens must lie in [0, {count}), got {worst}")


class PartDropout(Module):
    """Dropout of a part, with the mask that the whole would have had on one process.

    Every rank draws the mask of the whole, and takes its part of it.

    Attributes: parts: for each axis that is split, this rank's slice and the whole's length.
    """

    def __init__(self, whole: Dropout) -> None:
        self.p, self.rng = whole.p, whole.rng
        self.parts: dict[int, tuple[slice, int]] = {}

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        if not (self.training and self.p):
            return x
        shape, index = [*x.shape], [slice(None)] * x.ndim
        for axis, (own, n) in self.parts.items():
            if axis >= -x.ndim:
                shape[axis], index[axis] = n, own
        keep = mg.dropout(np.ones(shape, x.dtype), self.p, self.rng)
        return mg.multiply(x, keep[tuple(index)])


def bounds(n: int, ranks: Ranks) -> list[slice]:
    """Which of n entries each rank has; their numbers differ by one at most."""
    edges = [n * r // ranks.size for r in range(ranks.size + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def cut(array: NDArray[Any], axis: int, part: slice) -> NDArray[Any]:
    """A part of an array, without gaps."""
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(array, axis, 0)[part], 0, axis))


def part_of(whole: mg.Tensor | Module, axis: int, part: slice) -> mg.Tensor:
    """A part of a parameter, as a parameter."""
    if isinstance(whole, Module):
        raise ArgumentError(f"shard: {whole._name} is wrapped or quantized; merge adapters first")
    array = cut(whole.numpy(), axis, part)
    parameter = mg.tensor(array, requires_grad=whole.requires_grad, name=whole.name)
    mark_parameter(parameter)  # also where it is frozen
    return parameter
