"""A pass that is only imagined: shapes go through a layer's forward in place of arrays.

Every op says what it costs for inputs of these shapes, forward and in its rules; nothing is
computed and nothing large is made. What an op returns is found by its own kernel, on arrays of
entries that take no memory, or on small arrays with one length for each length there is.
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

OWN_SHAPE = {"matmul", "linear", "einsum"}
"""Ops that compute, and whose rules give each gradient in its input's shape."""


class Tally:
    """What the ops of an imagined pass add up to.

    Attributes: forward: FLOPs by op.  backward: FLOPs of all rules, sums and additions of
        gradients.  entries: of what the ops that compute return; gradient_entries: of its gradient.
    """

    def __init__(self) -> None:
        self.forward: Counter[str] = Counter()
        self.backward = self.entries = self.gradient_entries = 0

    def count(self, op: mg.Op, inputs: Sequence[Any], settings: Any, out: Imagined) -> None:
        """Add one op; its inputs' gradients, where they arrive wider than the inputs or twice."""
        flops, needed = op.count_flops(inputs, settings, out), _needing(inputs)
        back = op.count_vjp_flops(inputs, settings, out, needed)
        if flops is None or back is None:
            raise TypeError(f"layer_cost: {op.name} does not say what it costs")
        self.forward[op.name] += flops
        self.backward += back
        self.entries += out.size if flops else 0
        self.gradient_entries += out.size if flops and out.needs else 0
        for i in needed:
            arriving = _arriving(op, i, inputs[i].shape, out)
            self.backward += prod(arriving) if arriving != inputs[i].shape else 0
            if isinstance(inputs[i], Imagined):
                self.backward += inputs[i].size if inputs[i].uses else 0
                inputs[i].uses += 1


class Imagined:
    """A Tensor of which only the shape is there; ops take it, and give another."""

    name = path = ""
    __array_ufunc__ = None

    def __init__(self, shape: Sequence[int], dtype: Any, tally: Tally, needs: bool = True) -> None:
        self.shape, self.dtype, self.tally, self.needs = tuple(shape), dtype, tally, needs
        self.ndim, self.size, self.uses = len(shape), prod(shape), 0

    @staticmethod
    def __apply__(op: mg.Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Imagined:
        one = next(x for x in inputs if isinstance(x, Imagined))
        needs = bool(_needing(inputs))
        out = Imagined(_result_shape(op, inputs, settings), one.dtype, one.tally, needs)
        one.tally.count(op, inputs, settings, out)
        return out

    def named(self, symbol: str) -> Imagined:
        return self

    def numpy(self) -> None:
        """There is no array."""

    def detach(self) -> Imagined:
        return Imagined(self.shape, self.dtype, self.tally, needs=False)

    def __getitem__(self, index: Any) -> Any:
        return mg.getitem(self, index)

    def __add__(self, other: Any) -> Any:
        return mg.add(self, other)

    def __sub__(self, other: Any) -> Any:
        return mg.subtract(self, other)

    def __mul__(self, other: Any) -> Any:
        return mg.multiply(self, other)

    def __matmul__(self, other: Any) -> Any:
        return mg.matmul(self, other)


def imagine(layer: Module, tally: Tally) -> Any:
    """A copy of the layer, its parts and all, whose parameters are imagined."""
    made: dict[int, Any] = {
        id(p): Imagined(p.shape, p.dtype, tally, p.requires_grad) for p in layer.parameters()
    }
    return deepcopy(layer, made)


def _needing(inputs: Sequence[Any]) -> list[int]:
    """Positions of the inputs that need a gradient."""
    needs = [getattr(x, "needs", getattr(x, "requires_grad", False)) for x in inputs]
    return [i for i, need in enumerate(needs) if need]


def _arriving(op: mg.Op, i: int, shape: tuple[int, ...], out: Imagined) -> tuple[int, ...]:
    """The shape in which the gradient of input i arrives, before it is summed to the input's."""
    if op.name == "tiled_attention" or (op.name == "matmul" and (i == 0 or len(shape) > 2)):
        return (*out.shape[:-2], *shape[-2:])  # one for each of the result's matrices
    if op.name in OWN_SHAPE or (_moves(op) and op.name != "broadcast_to"):
        return shape
    pairs = zip(shape[::-1], out.shape[::-1], strict=False)
    spread = len(shape) <= out.ndim and all(n in (1, m) for n, m in pairs)
    return out.shape if spread else shape  # entry by entry; or of a sum


# ---------------------------------------------------------------- shapes of results


@cache
def _moves(op: mg.Op) -> bool:
    """Whether an op only puts entries elsewhere, whatever they are: it counts no FLOPs."""
    for sample in op.samples(np.random.default_rng(0)):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found = op.forward(*inputs, *settings)
        return op.count_flops(inputs, settings, found[0] if op.auxiliary else found) == 0
    return False


def _result_shape(op: mg.Op, inputs: Any, settings: Any) -> tuple[int, ...]:
    """The shape of what the op's kernel makes of inputs of these shapes."""
    if _moves(op):  # settings may name sizes; entries of no bytes take no memory
        weightless = [_like(x, np.shape(x), "V0") for x in inputs]
        try:
            return tuple(np.shape(op.forward(*weightless, *settings)))
        except (TypeError, ValueError):  # it looks at entries after all
            pass
    lengths = sorted({n for x in inputs for n in np.shape(x)} - {0, 1})
    small = {0: 0, 1: 1} | {n: k for k, n in enumerate(lengths, 2)}
    large = {k: n for n, k in small.items()}
    tiny = [_like(x, [small[n] for n in np.shape(x)], float) for x in inputs]
    found = op.forward(*tiny, *deepcopy(settings))
    shape = np.shape(found[0] if op.auxiliary else found)
    return tuple(large[k] for k in shape)


def _like(x: Any, shape: Sequence[int], dtype: Any) -> Any:
    """An array in the place of x; numbers and None stay."""
    if not hasattr(x, "shape"):
        return x
    if dtype is not float:
        return np.empty(shape, dtype)
    return np.ones(shape, bool if isinstance(x, np.ndarray) and x.dtype.kind == "b" else float)
