"""A pass that is only imagined: shapes go through a layer's forward in place of arrays.

Every op says what it costs for inputs of these shapes, forward and in its rules; nothing is
computed and nothing large is made. The shapes of results and gradients are found by the op's own
kernel and rules, on arrays of entries that take no memory, or on small arrays with one length for
each length there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from math import prod
from typing import Any

import numpy as np

import minigrad as mg

from .module import Module

__all__ = ["Imagined", "Tally", "imagine"]


class Tally:
    """What the ops of an imagined pass add up to.

    Attributes: forward: FLOPs by op.  backward: FLOPs of all rules, sums and additions of
        gradients.  entries: of what the ops that compute return; gradient_entries: of its gradient.
        live, most: arrays of each size in bytes, now and at most so far, for memory is used again
        for arrays of the same size; what a rule will need, which `saved` holds, stays.
    """

    def __init__(self) -> None:
        self.forward: Counter[str] = Counter()
        self.backward = self.entries = self.gradient_entries = 0
        self.live: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self.saved: dict[int, Imagined] = {}
        self._known: dict[str, list[tuple[int, ...]]] = {}

    def run(self, op: mg.Op, inputs: Sequence[Any], settings: Any) -> Imagined:
        """Add one op; its inputs' gradients, where they arrive wider than the inputs or twice."""
        needs = [getattr(x, "needs", getattr(x, "requires_grad", False)) for x in inputs]
        needed = [i for i, need in enumerate(needs) if need]
        costs = op.flops is not None and all(op.input_name(i) in op.vjp_flops for i in needed)
        if not costs:
            raise TypeError(f"layer_cost: {op.name} does not say what it costs")
        shape, *arriving = self._shapes(op, inputs, settings, needs)
        dtype = next(x.dtype for x in inputs if isinstance(x, Imagined))
        out = Imagined(shape, dtype, self, bool(needed), _looked_at(op, inputs))
        self._save(op, inputs, out, needs)
        flops = op.count_flops(inputs, settings, out) or 0
        self.forward[op.name] += flops
        self.backward += op.count_vjp_flops(inputs, settings, out, needed) or 0
        self.entries += out.size if flops else 0
        self.gradient_entries += out.size if flops and out.needs else 0
        for i, wide in zip(needed, arriving, strict=True):
            self.backward += prod(wide) if wide != inputs[i].shape else 0
            if isinstance(inputs[i], Imagined):
                self.backward += inputs[i].size if inputs[i].uses else 0
                inputs[i].uses += 1
        return out

    @property
    def peak(self) -> int:
        """Bytes that its arrays take."""
        return sum(nbytes * count for nbytes, count in self.most.items())

    def _shapes(self, op: mg.Op, inputs: Any, settings: Any, needs: list[bool]) -> Any:
        """As the function of this name: blocks are alike, so most are known already."""
        key = f"{op.name} {[np.shape(x) if hasattr(x, 'shape') else x for x in inputs]} {settings}"
        key = f"{key} {needs} {[type(x) for x in inputs]}"
        if key not in self._known or "array(" in key:  # long arrays of settings look alike
            self._known[key] = _shapes(op, inputs, settings, needs)
        return self._known[key]

    def _save(self, op: mg.Op, inputs: Sequence[Any], out: Imagined, needs: list[bool]) -> None:
        """Keep what the rules name, as a node does."""
        known = dict(zip(op.input_names(len(inputs)), inputs, strict=True)) | {"out": out}
        for name in _plan(op, tuple(needs)).names:
            if isinstance(known.get(name), Imagined):
                self.saved[id(known[name])] = known[name]


class Imagined:
    """A Tensor of which only the shape is there; ops take it, and give another."""

    name = path = ""
    __array_ufunc__ = None

    def __init__(
        self, shape: Sequence[int], dtype: Any, tally: Tally, needs: bool = True, of: Any = None
    ) -> None:
        self.shape, self.dtype, self.tally, self.needs = tuple(shape), dtype, tally, needs
        self.ndim, self.size, self.uses = len(shape), prod(shape), 0
        self.of = of  # whose memory it looks at, which has to stay; None where it has its own
        self.nbytes = 0 if of is not None else self.size * np.dtype(dtype).itemsize
        tally.live[self.nbytes] += 1
        tally.most[self.nbytes] = max(tally.most[self.nbytes], tally.live[self.nbytes])

    def __del__(self) -> None:
        self.tally.live[self.nbytes] -= 1

    @staticmethod
    def __apply__(op: mg.Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Imagined:
        tally = next(x.tally for x in inputs if isinstance(x, Imagined))
        return tally.run(op, inputs, settings)

    def named(self, symbol: str) -> Imagined:
        return self

    def numpy(self) -> Imagined:
        """There is no array, but who keeps it keeps what stands for it."""
        return self

    def detach(self) -> Imagined:
        return Imagined(self.shape, self.dtype, self.tally, needs=False)


for _method, _op in {
    "getitem": mg.getitem, "add": mg.add, "sub": mg.subtract, "mul": mg.multiply,
    "matmul": mg.matmul,
}.items():  # fmt: skip
    setattr(Imagined, f"__{_method}__", _op)


def imagine(layer: Module, tally: Tally) -> Any:
    """A copy of the layer, its parts and all, whose parameters are imagined."""
    made: dict[int, Any] = {
        id(p): Imagined(p.shape, p.dtype, tally, p.requires_grad) for p in layer.parameters()
    }
    return deepcopy(layer, made)


# ---------------------------------------------------------------- shapes of results and gradients


def _shapes(op: mg.Op, inputs: Any, settings: Any, needs: list[bool]) -> list[tuple[int, ...]]:
    """Of an op's result, and of what its rules give for each input that needs a gradient."""
    if _moves(op):  # settings may name sizes; entries of no bytes take no memory
        own = [x.shape for x, need in zip(inputs, needs, strict=True) if need]
        try:
            weightless = [_like(x, np.shape(x), "V0") for x in inputs]
            shape, *arriving = _run(op, weightless, settings, needs, own)
            return [shape, *arriving]
        except (TypeError, ValueError):  # it looks at entries after all
            pass
    once, again = (_on_small_arrays(op, inputs, settings, needs, first) for first in (2, 3))
    if once is not None and once == again:
        return once
    alike = [_like(x, np.shape(x), float) for x in inputs]
    return _run(op, alike, deepcopy(settings), needs)  # lengths that are computed, not handed on


def _on_small_arrays(
    op: mg.Op, inputs: Any, settings: Any, needs: Any, first: int
) -> list[Any] | None:
    """The shapes, found with a small number for each length, counted up from `first`; None where
    the op refuses those, or makes lengths of its own.
    """
    lengths = sorted({n for x in inputs for n in np.shape(x)} - {0, 1})
    small = {0: 0, 1: 1} | {n: k for k, n in enumerate(lengths, first)}
    large = {k: n for n, k in small.items()}
    tiny = [_like(x, [small[n] for n in np.shape(x)], float) for x in inputs]
    try:
        shapes = _run(op, tiny, deepcopy(settings), needs)
        return [tuple(large[k] for k in shape) for shape in shapes]
    except (ValueError, IndexError, KeyError, mg.errors.MinigradError):
        return None


def _run(op: mg.Op, arrays: Any, settings: Any, needs: Any, own: Any = None) -> list[Any]:
    """The shapes, by kernel and rules; `own` for the gradients, where the rules need entries."""
    plan = _plan(op, tuple(needs))
    out, saved = plan.forward(*arrays, *settings)
    try:
        gradients = plan.backward(np.ones_like(out), saved)
    except (TypeError, ValueError):
        if own is None:
            raise
        return [out.shape, *own]
    return [out.shape, *(g.shape for g in gradients)]


@cache
def _plan(op: mg.Op, needs: tuple[bool, ...]) -> Any:
    return op.plan(int("1" + "".join(str(int(need)) for need in needs), 4))


def _looked_at(op: mg.Op, inputs: Sequence[Any]) -> Any:
    """The input whose memory the result shares, where the op makes a view."""
    return next((x for x in inputs if isinstance(x, Imagined)), None) if _views(op) else None


@cache
def _views(op: mg.Op) -> bool:
    for sample in op.samples(np.random.default_rng(0)):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found = op.forward(*inputs, *settings)
        return isinstance(found, np.ndarray) and np.may_share_memory(found, inputs[0])
    return False


@cache
def _moves(op: mg.Op) -> bool:
    """Whether an op only puts entries elsewhere, whatever they are: it counts no FLOPs."""
    for sample in op.samples(np.random.default_rng(0)):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found = op.forward(*inputs, *settings)
        return op.count_flops(inputs, settings, found[0] if op.auxiliary else found) == 0
    return False


def _like(x: Any, shape: Sequence[int], dtype: Any) -> Any:
    """An array in the place of x; numbers and None stay."""
    if not hasattr(x, "shape"):
        return x
    if dtype is not float:
        return np.empty(shape, dtype)
    one = np.ones((), bool if isinstance(x, np.ndarray) and x.dtype.kind == "b" else float)
    return np.broadcast_to(one, shape)
