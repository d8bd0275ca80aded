"""Training on many ranks: a batch in parts, gradients added up, and one checkpoint of it all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad import distributed as dist
from minigrad.distributed import Ranks
from minigrad.errors import ArgumentError, RankError
from minigrad.optim import Optimizer
from minigrad.optim.updates import Observer, observers

from ..arrays import Array
from ..feed_forward import Dropout
from ..module import Module
from ..norm import BatchNorm
from .agreement import check_alike, replace_modules
from .shard import layout_of
from .split_layers import PartDropout, bounds

__all__ = ["DataParallel", "ShardedOptimizer", "clip_grad_norm", "grid", "save"]

BUCKET = 1 << 19  # entries that are sent at once
CHECK_EVERY = 100  # reductions: then weights are compared over ranks


def grid(tensor: int = 1, ranks: Ranks | None = None) -> tuple[Ranks, Ranks]:
    """All ranks as a grid: those that share batches, and those that share layers with this one.

    Args: tensor: how many share the layers; neighbours, for these talk most.
    Raises: ArgumentError if that does not divide the number of ranks.

    >>> dist.run(4, lambda: grid(tensor=2))[3]
    (<rank 1 of 2>, <rank 1 of 2>)
    """
    ranks = ranks or dist.world()
    if tensor < 1 or ranks.size % tensor:
        raise ArgumentError(
            f"grid(tensor={tensor}): it must divide the number of ranks, which is {ranks.size}; "
            f"start others: mpiexec -n {max(tensor, 1)} python -m mpi4py script.py"
        )
    return ranks.split(ranks.rank % tensor), ranks.split(ranks.rank // tensor)


class DataParallel:
    """Each rank takes its rows of every batch, and gradients are added up before a step.

        parallel = DataParallel(model, ranks)
        loss = parallel.mean(loss_of(parallel.rows(X), parallel.rows(y)))
        loss.backward()
        parallel.reduce()                    # now .grad is that of the whole batch

    Rows need not be a multiple of the ranks. Its dropout draws what one process would draw for the
    whole batch: rows must be along the first axis.
    """

    # A compiled step depends on what is in __dict__, and not on these counts.
    __slots__ = ("__dict__", "__weakref__", "_reductions", "_weights")

    def __init__(self, model: Module, ranks: Ranks | None = None) -> None:
        self.model = model
        self.ranks = ranks or dist.world()
        self.weight = 1.0
        self._weights: set[float] = set()  # since the last reduce()
        self._reductions = 0
        for path, module in model.named_modules():
            if isinstance(module, BatchNorm) and self.ranks.size > 1:
                raise ArgumentError(
                    f"DataParallel(model): {path or 'the model'} is a BatchNorm, whose statistics "
                    "would be those of a rank's rows alone; use GroupNorm or LayerNorm"
                )
        replace_modules(model, _as_part)
        if self.ranks.size > 1:
            self.reduced = ReducedCheck(model.parameters())
            observers.append(self.reduced)
            finalize(self, observers.remove, self.reduced)

    def rows(self, x: Array) -> Array:
        """This rank's rows; where there are fewer rows than ranks, one row of weight 0."""
        n = len(x)
        own = bounds(n, self.ranks)[self.ranks.rank]
        self._look_for_cleared()
        self.weight = (own.stop - own.start) / n
        self._weights.add(self.weight)
        own = own if self.weight else slice(0, 1)
        for module in self.model.modules():
            if isinstance(module, PartDropout):
                module.parts[0] = own, n
        return x[own]

    def mean(self, loss: mg.Tensor) -> mg.Tensor:
        """A mean over this rank's rows as its share in the mean over all; shares add up.

        The rows are those that `rows` gave last.
        """
        self._look_for_cleared()
        return mg.scale(loss, self.weight)

    def _look_for_cleared(self) -> None:
        """Note gradients that were set to None by hand."""
        if self.ranks.size > 1:
            self.reduced.gradients_cleared([p for p in self.model.parameters() if p.grad is None])

    def reduce(self) -> None:
        """Add up the gradients of all ranks, in buckets: once a step, after its last backward.

        Raises: RankError if they are those of an earlier reduce(), and would be added up again; if
            they are those of a row of weight 0, whose loss was not given to `mean`.
        """
        self._refuse_spare_rows()
        if self._reductions % CHECK_EVERY == 0:
            check_alike("DataParallel.reduce()", self.model, self.ranks)
        self._reductions += 1
        with mg.no_grad():
            for bucket in _buckets(self._used(self.model.parameters())):
                parts = [  # zeros of what this rank's rows do not use
                    np.zeros(p.size, p.dtype) if p.grad is None else np.ravel(p.grad)
                    for p in bucket
                ]
                for p, part in _cut(bucket, dist.all_reduce(np.concatenate(parts), self.ranks)):
                    p.grad = part

    def _refuse_spare_rows(self) -> None:
        own = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self._weights == {0.0} and any(np.any(np.abs(g) > 0) for g in own):
            raise RankError(
                "DataParallel.reduce(): there are fewer rows than ranks, so this rank's loss is of "
                "a row that another rank has too; call mean(loss), or leave its part of a sum out"
            )
        self._weights.clear()

    def _used(self, parameters: list[mg.Tensor]) -> list[mg.Tensor]:
        """Parameters that have a gradient on some rank, whose rows may need other layers."""
        used = [p for p in parameters if p.grad is not None]
        if self.ranks.size > 1:
            self.reduced.refuse_again(used)
            call = f"DataParallel.reduce() of {len(parameters)} parameters"
            self.ranks.agree(call, "its first exchange, of which parameters have a gradient")
            own = np.array([p.grad is not None for p in parameters])
            everywhere = np.logical_or.reduce(self.ranks.all_gather(own))
            used = [p for p, is_used in zip(parameters, everywhere, strict=True) if is_used]
            self.reduced.gradients_summed(used)
        return used


def _as_part(module: Module, path: str) -> Module:
    return PartDropout(module) if isinstance(module, Dropout) else module


class ReducedCheck(Observer):
    """Refuses a step on gradients that were not reduced over the ranks, and a second reduction."""

    __slots__ = ("_summed",)

    def __init__(self, parameters: list[mg.Tensor]) -> None:
        self.parameters = WeakValueDictionary({id(p): p for p in parameters})
        self._summed: set[int] = set()  # ids of parameters, until their gradients are cleared

    def _awaits_reduce(self, parameter: mg.Tensor) -> bool:
        is_known = self.parameters.get(id(parameter)) is parameter
        return is_known and parameter.grad is not None and id(parameter) not in self._summed

    def gradients_summed(self, parameters: Sequence[mg.Tensor]) -> None:
        self._summed.update(map(id, parameters))

    def refuse_again(self, parameters: list[mg.Tensor]) -> None:
        if parameters and self._summed.issuperset(map(id, parameters)):
            raise RankError(
                "DataParallel.reduce(): the gradients of the reduce() before are still there, and "
                "would be added up over the ranks again; call reduce() once, after a step's last "
                "backward, or zero_grad() before the next one"
            )

    def before_update(self, owner: object) -> None:
        if isinstance(owner, Optimizer) and any(map(self._awaits_reduce, owner.parameters)):
            raise RankError(
                f"{type(owner).__name__}.step(): the gradients are those of this rank's rows; call "
                "reduce() of the DataParallel before it"
            )

    def gradients_cleared(self, parameters: Sequence[mg.Tensor]) -> None:
        self._summed.difference_update(map(id, parameters))


def _buckets(parameters: list[mg.Tensor]) -> Iterator[list[mg.Tensor]]:
    """Groups of parameters of one dtype, of about BUCKET entries each."""
    bucket: list[mg.Tensor] = []
    for p in parameters:
        full = sum(q.size for q in bucket) >= BUCKET
        if bucket and (full or p.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(p)
    if bucket:
        yield bucket


def _cut(
    parameters: list[mg.Tensor], flat: NDArray[Any]
) -> Iterator[tuple[mg.Tensor, NDArray[Any]]]:
    """Each parameter with its entries out of a flat array."""
    ends = np.cumsum([p.size for p in parameters])
    for p, part in zip(parameters, np.split(flat, ends[:-1]), strict=True):
        yield p, part.reshape(p.shape)


def clip_grad_norm(model: Module, max_norm: float) -> float:
    """Scale all gradients of a sharded model by one factor, so that their norm is at most max_norm.

    The norm is that of the whole model: parts of all ranks count, what ranks hold alike once.
    Returns: the norm before clipping.
    """
    layout = layout_of("clip_grad_norm(model, max_norm)", model)
    alike, apart = 0.0, 0.0
    for path, p in model.named_parameters():
        squares = 0.0 if p.grad is None else float(np.sum(np.square(p.grad, dtype=float)))
        share = layout.share(path)
        if share is None:
            alike += squares
        else:
            apart += squares / share
    norm = sqrt(alike + float(dist.all_reduce(np.array(apart), layout.ranks)))
    for p in model.parameters():
        if p.grad is not None and max_norm < norm < np.inf:
            p.grad = np.asarray(p.grad * (max_norm / norm), p.dtype)
    return norm


class ShardedOptimizer:
    """An optimizer of which each rank keeps a part of the state (ZeRO, stage 1).

    Each parameter has an owner, which moves it and sends it to the others. What it saves and loads
    is the state of the whole.

    Args: optimizer: over the same parameters on every rank, with the same gradients.
    Source: Rajbhandari et al. 2020, arXiv:1910.02054.
    """

    def __init__(self, optimizer: Optimizer, ranks: Ranks | None = None) -> None:
        self.optimizer = optimizer
        self.ranks = ranks or dist.world()
        self.parameters, loads = optimizer.parameters, [0] * self.ranks.size
        self.owners: list[int] = []
        for p in self.parameters:  # to the rank that owns least
            self.owners.append(loads.index(min(loads)))
            loads[self.owners[-1]] += p.size

    @property
    def lr(self) -> float:
        return float(self.optimizer.lr)

    @lr.setter
    def lr(self, lr: float) -> None:
        self.optimizer.lr = lr

    @property
    def steps(self) -> int:
        return int(self.optimizer.steps)

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def step(self) -> None:
        """Update the parameters that this rank owns, and receive the others."""
        gradients = [p.grad for p in self.parameters]
        for p, owner in zip(self.parameters, self.owners, strict=True):
            p.grad = p.grad if owner == self.ranks.rank else None
        try:
            self.optimizer.step()
        finally:  # where it is refused too
            for p, gradient in zip(self.parameters, gradients, strict=True):
                p.grad = gradient
        for rank in range(self.ranks.size):
            owned = [
                p for p, owner in zip(self.parameters, self.owners, strict=True) if owner == rank
            ]
            for bucket in _buckets(owned):
                flat = np.concatenate([np.asarray(p.numpy()).reshape(-1) for p in bucket])
                for p, part in _cut(bucket, dist.broadcast(flat, self.ranks, root=rank)):
                    if rank != self.ranks.rank:
                        p.assign_(part)

    def state_dict(self) -> dict[str, Any]:
        self.ranks.agree("the state of a ShardedOptimizer, for which every rank calls", "save")
        state, whole = self.optimizer.state_dict(), {}
        found = self.ranks.collect({i: [*kept] for i, kept in state["kept"].items()})
        for i in sorted({i for names in found for i in names}, key=int):
            owner = self.owners[int(i)]
            p = self.parameters[int(i)]
            own = state["kept"].get(i, {})
            whole[i] = {"count": self.ranks.collect(own.get("count"))[owner]}
            for name in (name for name in found[owner][i] if name != "count"):
                dtype = np.result_type(p.dtype, np.float32)
                sent = own[name] if name in own else np.empty(p.shape, dtype)
                whole[i][name] = dist.broadcast(sent, self.ranks, root=owner)
        return {**state, "kept": whole}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        kept = {i: k for i, k in state["kept"].items() if self.owners[int(i)] == self.ranks.rank}
        self.optimizer.load_state_dict({**state, "kept": kept})


def save(
    path: str | os.PathLike[str], ranks: Ranks | None = None, step: int | None = None, **parts: Any
) -> None:
    """Write a run of many ranks into one file, as `mg.save` does: once, whole, or not at all.

    Every rank calls it. Give sharded parts as `Whole(model)` and `Whole(model, optimizer)`: an
    ordinary model, on any number of ranks or none, can load the file.
    """
    ranks = ranks or dist.world()
    held: dict[str, Any] = {
        name: _CollectedPart(part) if hasattr(part, "state_dict") else part
        for name, part in parts.items()
    }
    if ranks.rank == 0:
        mg.save(path, step=step, **held)
    ranks.agree("save", "")


class _CollectedPart:
    """A part whose state is collected already, because every rank takes part in that."""

    def __init__(self, part: Any) -> None:
        self.state, self.named_modules = part.state_dict(), getattr(part, "named_modules", dict)

    def state_dict(self) -> Any:
        return self.state
