"""An ordinary model as this rank's part of it, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad import distributed as dist
from minigrad.distributed import Ranks
from minigrad.errors import ArgumentError
from minigrad.optim import Optimizer
from minigrad.optim.clip import mark_parts

from ..attention import MultiHeadAttention
from ..embedding import Embedding
from ..feed_forward import Dropout, FeedForward, GatedFeedForward
from ..module import Module
from ..parameters import join_path
from ..relative import ALiBi, T5Bias
from ..transformer import LanguageModel
from .agreement import check_alike, replace_modules
from .split_layers import ColumnLinear, Parallel, PartDropout, SplitEmbedding, bounds, cut, part_of

__all__ = ["Whole", "gather", "shard"]

M = TypeVar("M", bound=Module)


class Split(NamedTuple):
    """How a parameter is split: along which axis, and which slice of it each rank has."""

    axis: int
    slices: list[slice]


class ShardLayout:
    """How a model is split: its ranks, the whole's shapes, and which parameters are split."""

    def __init__(self, ranks: Ranks, model: Module) -> None:
        self.ranks = ranks
        self.splits: dict[str, Split] = {}
        self.shapes = {path: p.shape for path, p in model.named_parameters()}
        self.trained = [path for path, p in model.named_parameters() if p.requires_grad]

    def whole(self, path: str, part: NDArray[Any]) -> NDArray[Any]:
        """The whole array of which each rank gives its part."""
        if path not in self.splits:
            return part
        axis, slices = self.splits[path]
        pieces = []
        for rank, own in enumerate(slices):
            shape = [*part.shape]
            shape[axis] = own.stop - own.start
            sent = part if rank == self.ranks.rank else np.zeros(shape, part.dtype)
            pieces.append(dist.broadcast(sent, self.ranks, root=rank))
        first = [i for i, own in enumerate(slices) if own not in slices[:i]]  # each part once
        return np.concatenate([pieces[i] for i in first], axis)

    def share(self, path: str) -> int | None:
        """How many ranks have the same part as this one; None of what is not split."""
        split = self.splits.get(plain(path))
        return None if split is None else split.slices.count(split.slices[self.ranks.rank])

    def part(self, path: str, whole: NDArray[Any]) -> NDArray[Any]:
        """This rank's part of a whole array."""
        if path not in self.splits:
            return whole
        axis, slices = self.splits[path]
        return cut(whole, axis, slices[self.ranks.rank])


def shard(model: Module, ranks: Ranks | None = None) -> Module:
    """This rank's part of a model: attention by heads, feed-forward layers by hidden entries, the
    embedding and the output layer of a LanguageModel by tokens; norms are whole on each.

    A LanguageModel then gives this rank's logits: see `split_cross_entropy`. The model given stays
    as it is, and must be the same on every rank.

    Raises: ArgumentError if the ranks cannot share the heads equally.

    >>> from layers import MultiHeadAttention
    >>> attention = MultiHeadAttention(d_model=8, n_heads=4, rng=0)
    >>> dist.run(2, lambda: shard(attention).part.W_Q.shape)
    [(8, 4), (8, 4)]
    """
    ranks = ranks or dist.world()
    check_alike("shard(model)", model, ranks)
    model = deepcopy(model)
    model.zero_grad()
    layout = ShardLayout(ranks, model)
    part = _part(model, "", layout)
    if part is model:
        replace_modules(model, lambda child, path: _part(child, path, layout))
    if not layout.splits:
        raise ArgumentError(
            f"shard(model): {type(model).__name__} holds nothing that is split; attention, "
            "FeedForward, GatedFeedForward, Embedding and LanguageModel are. For other models, "
            "split the batch: DataParallel(model)"
        )
    vars(part)["layout"] = layout
    mark_parts(part.parameters())
    return part


def layout_of(call: str, model: Module) -> ShardLayout:
    """How a model is split. Raises: ArgumentError for one that is not."""
    layout = getattr(model, "__dict__", {}).get("layout")
    if layout is None:
        raise ArgumentError(
            f"{call}: {type(model).__name__} is not split over ranks; shard(model) splits it, and "
            "what is whole on every rank needs no Whole and the clip_grad_norm of minigrad.optim"
        )
    return layout


def _part(layer: Module, path: str, layout: ShardLayout) -> Module:
    """What stands for a layer on this rank; itself where it stays whole."""
    ranks = layout.ranks

    def split(table: Mapping[str, Split]) -> None:
        """Leave this rank's parts in the layer; of an empty part, nothing."""
        for name, (axis, slices) in table.items():
            own = slices[ranks.rank]
            whole = vars(layer)[name]
            if whole is not None:
                layout.splits[join_path(path, name)] = table[name]
                vars(layer)[name] = part_of(whole, axis, own) if own.stop > own.start else None

    if isinstance(layer, Dropout):
        return PartDropout(layer)
    if isinstance(layer, Embedding):
        layout.splits[join_path(path, "W")] = Split(0, bounds(layer.W.shape[0], ranks))
        return SplitEmbedding(layer, ranks)
    if isinstance(layer, FeedForward | GatedFeedForward):
        split(_by_hidden_entries(layer, ranks))
        return Parallel(layer, ranks)
    if isinstance(layer, MultiHeadAttention):
        split(_by_heads(layer, ranks))
        _share(layer, ranks)
        _split_bias(layer.position, join_path(path, "position.table"), layout)
        return Parallel(layer, ranks)
    if isinstance(layer, LanguageModel) and layer.head is not None:
        layout.splits[join_path(path, "head.W")] = Split(1, bounds(layer.head.W.shape[1], ranks))
        layer.head = ColumnLinear(layer.head, ranks)  # type: ignore[assignment]
    return layer


def _by_hidden_entries(layer: FeedForward | GatedFeedForward, ranks: Ranks) -> dict[str, Split]:
    """The first maps by columns, the last by rows; its bias counts once, on rank 0."""
    hidden = bounds(layer.W_2.shape[0], ranks)
    first = "W_1 b_1" if isinstance(layer, FeedForward) else "W b V c"
    table = {name: Split(-1, hidden) for name in first.split()}
    return table | {"W_2": Split(0, hidden), "b_2": Split(0, _on_rank_0(layer.b_2, ranks))}


def _by_heads(layer: MultiHeadAttention, ranks: Ranks) -> dict[str, Split]:
    """Q, K and V by columns, O by rows; a key-value head that serves several ranks is on each."""
    h = layer.n_heads
    h_kv = layer.n_kv_heads
    p = ranks.size
    if h % p or (h_kv % p and p % h_kv):
        kv = "" if h == h_kv else f" and {h_kv} key-value heads"
        raise ArgumentError(
            f"shard: {p} ranks cannot share {h} heads{kv} equally; start as many ranks as divide "
            "them (mpiexec -n), or choose n_heads"
        )
    split = layer.position is None or isinstance(layer.position, ALiBi | T5Bias)
    if not split and layer.position.needs_scores:
        kind = type(layer.position).__name__
        raise ArgumentError(f"shard: the bias of {kind} is not split; use Rotary, ALiBi or T5Bias")

    def columns(heads: int, width: int) -> list[slice]:
        each, firsts = max(heads // p, 1), [heads * r // p for r in range(p)]
        return [slice(first * width, (first + each) * width) for first in firsts]

    table = {}
    for name, heads, width in ("Q", h, layer.d_k), ("K", h_kv, layer.d_k), ("V", h_kv, layer.d_v):
        for kind in "Wb":
            table[f"{kind}_{name}"] = Split(-1, columns(heads, width))
    table["W_O"] = Split(0, columns(h, layer.d_v))
    table["b_O"] = Split(0, _on_rank_0(layer.b_O, ranks))
    return table


def _split_bias(position: Any, path: str, layout: ShardLayout) -> None:
    """A bias by heads; that which several layers share is split once, where its path names it."""
    if isinstance(position, ALiBi):
        position.heads = bounds(position.n_heads, layout.ranks)[layout.ranks.rank]
    elif isinstance(position, T5Bias) and path in layout.shapes:
        heads = bounds(position.table.shape[1], layout.ranks)
        layout.splits[path] = Split(1, heads)
        position.table = part_of(position.table, 1, heads[layout.ranks.rank])


def _share(layer: MultiHeadAttention, ranks: Ranks) -> None:
    """Its numbers of heads, its dropout, and the gradients of what several ranks hold alike."""
    h = layer.n_heads
    h_kv = layer.n_kv_heads
    p = ranks.size
    layer.n_heads, layer.n_kv_heads = h // p, max(h_kv // p, 1)
    if layer.drop is not None:
        layer.drop = PartDropout(layer.drop)
        layer.drop.parts[-3] = bounds(h, ranks)[ranks.rank], h
    sharers = ranks.split(h_kv * ranks.rank // p) if h_kv < p else None
    for path, w in layer.named_parameters():
        group = ranks if "norm" in path else sharers if path[-1] in "KV" else None
        if group:
            w.register_hook(partial(dist.all_reduce, ranks=group))


def _on_rank_0(whole: mg.Tensor | None, ranks: Ranks) -> list[slice]:
    n = 0 if whole is None else whole.size
    return [slice(0, n), *[slice(n, n)] * (ranks.size - 1)]


class Whole:
    """A sharded model, or its optimizer, as `mg.save` and `mg.load` see the ordinary one.

    Every rank calls `state_dict`, and gets all of it.
    """

    def __init__(self, model: Module, optimizer: Optimizer | None = None) -> None:
        self.model, self.optimizer = model, optimizer
        self.layout = layout_of("Whole(model)", model)

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Where `mg.save` looks for generators."""
        found = self.model.named_modules() if self.optimizer is None else ()
        return ((plain(path), module) for path, module in found)

    def state_dict(self) -> dict[str, Any]:
        self.layout.ranks.agree("the state of a sharded model, for which every rank calls", "Whole")
        if self.optimizer is None:
            leaves = (*self.model.named_parameters(), *self.model.named_buffers())
            own = {plain(path): leaf for path, leaf in leaves}
            arrays = {path: leaf.numpy() for path, leaf in own.items()}
            wanted = dict.fromkeys([*self.layout.shapes, *own])
            return {path: self._whole(path, arrays.get(path)) for path in wanted}
        state = self.optimizer.state_dict()
        kept = _reordered(
            state, _paths_of(self.optimizer, self.model), self.layout.trained, self._whole
        )
        shapes = [[*self.layout.shapes[path]] for path in self.layout.trained]
        return {**state, "kept": kept, "shapes": shapes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.optimizer is None:
            names = self.model.state_dict()
            parts = [self.layout.part(plain(path), state[plain(path)]) for path in names]
            self.model.load_state_dict(dict(zip(names, parts, strict=True)))
        else:
            moved = _paths_of(self.optimizer, self.model)
            kept = _reordered(state, self.layout.trained, moved, self.layout.part)
            shapes = [[*p.shape] for p in self.optimizer.parameters]
            self.optimizer.load_state_dict({**state, "kept": kept, "shapes": shapes})

    def _whole(self, path: str, part: NDArray[Any] | None) -> NDArray[Any]:
        """Also of what this rank has nothing of: a bias that is on rank 0."""
        dtype = self.model.parameters()[0].dtype
        return np.array(self.layout.whole(path, np.zeros(0, dtype) if part is None else part))


def _paths_of(optimizer: Optimizer, model: Module) -> list[str]:
    """The paths of the optimizer's parameters, in its order."""
    paths = {id(p): plain(path) for path, p in model.named_parameters()}
    return [paths[id(p)] for p in optimizer.parameters]


def _reordered(
    state: Mapping[str, Any],
    old_order: list[str],
    new_order: list[str],
    change: Callable[[str, Any], NDArray[Any]],
) -> dict[str, Any]:
    """What an optimizer keeps for each parameter, changed, in another order of parameters."""
    kept = {}
    names = [*next(iter(state["kept"].values()), {})]
    for i, path in enumerate(new_order):
        old = state["kept"].get(str(old_order.index(path)), {}) if path in old_order else {}
        kept[str(i)] = {
            name: state["steps"] if name == "count" else change(path, old.get(name))
            for name in names
        }
    return kept


def gather(model: Module, like: M) -> M:
    """The ordinary model of which each rank has a part, written into `like`, one of its sizes.

    >>> from layers import FeedForward
    >>> whole = FeedForward(3, 4, rng=0)
    >>> dist.run(2, lambda: gather(shard(whole), FeedForward(3, 4)).W_1.shape)
    [(3, 4), (3, 4)]
    """
    like.load_state_dict(Whole(model).state_dict())
    return like


def plain(path: str) -> str:
    """The path of a parameter in the ordinary model."""
    return ".".join(name for name in path.split(".") if name != "part")
