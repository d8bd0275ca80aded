"""Many ranks: attention and feed-forward layers split over them, or each with a batch of its own.

    from layers.parallel import average_gradients, shard
    # mpiexec -n 2 python -m mpi4py script.py

Tensor parallel, `shard`: each rank has some of the heads and some of the hidden entries.

    out = g(part(f(X)))      f: copy to ranks, whose gradient is a sum;  g: sum over ranks

So one all-reduce forward and one back serve a whole layer: its first maps are split by columns, the
last by rows, and what is between needs no other rank (Shoeybi et al. 2019, arXiv:1909.08053).

Data parallel, `average_gradients`: each rank has the whole model and rows of its own.
"""

from __future__ import annotations

import zlib
from copy import deepcopy
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import distributed as dist
from minigrad.distributed import Ranks
from minigrad.errors import ArgumentError
from minigrad.optim.clip import mark_parts

from .attention import MultiHeadAttention
from .basic import FeedForward, GatedFeedForward
from .call import ArrayOrTensor, named
from .masking import Mask
from .module import Module
from .norm import BatchNorm
from .positions import Rotary

__all__ = ["Parallel", "average_gradients", "shard"]

# By layer: what is split by columns; by rows; and the bias that is added after the sum.
SPLIT: dict[type[Module], tuple[str, str, str]] = {
    MultiHeadAttention: ("W_Q b_Q W_K b_K W_V b_V", "W_O", "b_O"),
    FeedForward: ("W_1 b_1", "W_2", "b_2"),
    GatedFeedForward: ("W b V c", "W_2", "b_2"),
}


class Parallel(Module):
    """A layer of which each rank has a part:  out = Σ_r part(X).

    Attributes: part: the layer with this rank's weights; its last bias is on rank 0 alone.
    Shapes:  as the layer's.
    """

    def __init__(self, part: Module, ranks: Ranks) -> None:
        self.part, self.ranks = part, ranks

    def forward(
        self,
        X: ArrayOrTensor,
        *masks: Mask | None,
        context: ArrayOrTensor | None = None,
        **keywords: Any,
    ) -> Any:
        X = named("X_r", dist.copy_to_ranks(X, self.ranks))  # f
        if context is not None:
            keywords["context"] = named("Y_r", dist.copy_to_ranks(context, self.ranks))
        result = self.part(X, *masks, **keywords)
        out_r, *weights = result if isinstance(result, tuple) else (result,)
        out = dist.all_reduce(out_r.named("out_r"), self.ranks).named("out")  # g
        return (out, *weights) if weights else out  # the weights of this rank's heads


def shard(model: Module, ranks: Ranks | None = None) -> Module:
    """This rank's part of a model: attention by heads, feed-forward layers by hidden entries.

    All else is whole on each rank. The model given stays as it is. It must be the same on every
    rank, and so must what it is called with; what it then returns is. Each rank updates and saves
    its own part.

    Raises: ArgumentError if the ranks cannot share heads, groups or hidden entries equally, for a
        bias of positions, or if nothing is split; RankError unless the weights are the same.

    >>> from layers import FeedForward
    >>> shard(FeedForward(3, 4, rng=0))(np.ones((2, 3))).shape
    (2, 3)
    """
    ranks = ranks or dist.world()
    ranks.agree(f"shard(model) of weights {_checksum(model):#010x}, drawn from the same seed")
    holder = Module()
    holder.model = deepcopy(model)  # which may be replaced itself
    holder.zero_grad()
    split = [_replace(owner, ranks) for owner in [*holder.modules()] if type(owner) not in SPLIT]
    if not any(split):
        raise ArgumentError(
            f"shard(model): {type(model).__name__} holds nothing that is split: attention of many "
            "heads and feed-forward layers are; for other models, average_gradients(model)"
        )
    if ranks.size > 1:
        mark_parts(holder.parameters())
    return holder.model


def _replace(owner: Module, ranks: Ranks) -> bool:
    """Put this rank's part in the place of each layer that an attribute holds; whether any was."""
    is_replaced = False
    for name, held in list(vars(owner).items()):
        if type(held) in SPLIT:
            setattr(owner, name, Parallel(_part(held, ranks), ranks))
            is_replaced = True
        elif isinstance(held, list | dict):
            for key, child in list(held.items() if isinstance(held, dict) else enumerate(held)):
                if type(child) in SPLIT:
                    held[key] = Parallel(_part(child, ranks), ranks)
                    is_replaced = True
    return is_replaced


def _part(layer: Module, ranks: Ranks) -> Module:
    """The layer with this rank's columns and rows."""
    if isinstance(layer, MultiHeadAttention):
        _share_heads(layer, ranks)
    elif (d_ff := layer.W_2.shape[0]) % ranks.size:
        raise ArgumentError(f"shard: {ranks.size} ranks cannot share {d_ff} hidden entries equally")
    columns, rows, last_bias = SPLIT[type(layer)]
    for name in (*columns.split(), rows):
        whole = getattr(layer, name)
        if isinstance(whole, Module):
            raise ArgumentError(f"shard: {name} is quantized; split the model before")
        if whole is not None:
            array = dist.split_to_ranks(whole.numpy(), ranks, 0 if name == rows else -1)
            part = mg.tensor(array, requires_grad=whole.requires_grad, name=whole.name)
            setattr(layer, name, part)
    if ranks.rank:
        setattr(layer, last_bias, None)
    return layer


def _share_heads(layer: MultiHeadAttention, ranks: Ranks) -> None:
    h, h_kv = layer.n_heads, layer.n_kv_heads
    p = ranks.size
    if h % p or h_kv % p:
        groups = "" if h == h_kv else f" and {h_kv} key-value heads"
        raise ArgumentError(
            f"shard: {p} ranks cannot share {h} heads{groups} equally; start as many ranks as "
            "divide them (mpiexec -n), or choose n_heads"
        )
    if layer.position is not None and not isinstance(layer.position, Rotary):
        kind = type(layer.position).__name__
        raise ArgumentError(f"shard: the bias of {kind} is not split; use position=Rotary(d_k)")
    layer.n_heads, layer.n_kv_heads = h // p, h_kv // p
    if layer.drop is not None:  # each rank's heads draw masks of their own
        layer.drop.rng = layer.drop.rng.spawn(p)[ranks.rank]


def _checksum(model: Module) -> int:
    """Of the paths, shapes and entries of all parameters."""
    checksum = 0
    for path, p in model.named_parameters():
        checksum = zlib.crc32(f"{path} {p.shape} {p.requires_grad}".encode(), checksum)
        checksum = zlib.crc32(p.numpy().tobytes(), checksum)
    return checksum


def average_gradients(model: Module, ranks: Ranks | None = None) -> None:
    """Replace each gradient by its mean over the ranks: between backward and the optimizer's step.

        g ← (1 / p) Σ_r g^(r)

    Each rank has the same model, and a batch of the same size as the others'; then the mean is the
    gradient of the mean loss of all their rows. A parameter that no rank's batch used keeps None.

    Raises: ArgumentError for a BatchNorm, whose statistics would be those of one rank's rows;
        RankError where ranks have other models, or other weights, as after a step that one of them
        skipped.
    """
    ranks = ranks or dist.world()
    for path, module in model.named_modules():
        if isinstance(module, BatchNorm) and ranks.size > 1:
            raise ArgumentError(
                f"average_gradients(model): {path or 'the model'} is a BatchNorm, whose statistics "
                "would be those of one rank's rows; use GroupNorm or LayerNorm"
            )
    ranks.agree(f"average_gradients(model) of weights {_checksum(model):#010x}, alike on each rank")
    trained = [p for p in model.parameters() if p.requires_grad]
    users = dist.all_reduce(np.array([int(p.grad is not None) for p in trained]), ranks)
    for p, used in zip(trained, users, strict=True):
        if used:
            own = np.zeros(p.shape, p.dtype) if p.grad is None else np.asarray(p.grad)
            p.grad = np.asarray(dist.all_reduce(own, ranks) / ranks.size, own.dtype)
