"""A pass of which only the shapes are there: they go through a layer's forward in place of arrays.

Every op says what it costs for inputs of these shapes, and its rules are counted as they run on
shapes; nothing is computed and nothing large is made.
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

__all__ = ["Activation", "CostCounter", "imagine"]


class CostCounter(mg.FlopCounter):
    """What the ops of a pass add up to.

    Attributes: forward: FLOPs by op.  backward: FLOPs of all rules, sums and additions of
        gradients.  entries: of what the ops that compute return; gradient_entries: of its gradient.
        live, most: arrays of each size in bytes, now and at most so far, for memory is used again
        for arrays of the same size; what a rule will need, which `saved` holds, stays.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forward: Counter[str] = Counter()
        self.backward = self.entries = self.gradient_entries = 0
        self.live: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self.saved: dict[int, Activation] = {}

    def run(self, op: mg.Op, inputs: Sequence[Any], settings: Any) -> Any:
        """Add one op; its inputs' gradients, where they arrive wider than the inputs or twice."""
        if not any(getattr(x, "counted", False) for x in inputs):
            return super().run(op, inputs, settings)
        needs = tuple(getattr(x, "needs", getattr(x, "requires_grad", False)) for x in inputs)
        shape, dtype = self.forms(op, inputs, settings)[0]
        out = Activation(shape, dtype, self, any(needs), _looked_at(op, inputs))
        flops = self.flops_of(op, inputs, settings, out)
        self._save(op, inputs, out, needs)
        self.forward[op.name] += flops
        self.entries += out.size if flops else 0
        self.gradient_entries += out.size if flops and out.needs else 0
        if out.needs:
            self._add_backward(inputs, needs, self.rules(op, inputs, settings, needs))
        return out

    def _add_backward(self, inputs: Sequence[Any], needs: tuple[bool, ...], rules: Any) -> None:
        self.backward += rules.flops
        needed = [x for x, need in zip(inputs, needs, strict=True) if need]
        for x, wide in zip(needed, rules.shapes, strict=True):
            self.backward += prod(wide) if wide != x.shape else 0
            if isinstance(x, Activation):
                self.backward += x.size if x.uses else 0
                x.uses += 1

    @property
    def peak(self) -> int:
        """Bytes that its arrays take."""
        return sum(nbytes * count for nbytes, count in self.most.items())

    def _save(
        self, op: mg.Op, inputs: Sequence[Any], out: Activation, needs: tuple[bool, ...]
    ) -> None:
        """Keep what the rules name, as a node does."""
        known = dict(zip(op.input_names(len(inputs)), inputs, strict=True)) | {"out": out}
        for name in self.names_saved(op, needs):
            if isinstance(known.get(name), Activation):
                self.saved[id(known[name])] = known[name]


class Activation(mg.ShapeTensor):
    """A tensor of a pass: whether it needs a gradient, how often it is used, what memory it takes.

    Attributes: of: whose memory it looks at, which has to stay; None where it has its own.
    """

    counter: CostCounter

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        counter: CostCounter,
        needs: bool = True,
        of: Any = None,
    ) -> None:
        super().__init__(shape, dtype, counter)
        self.needs = needs
        self.uses = 0
        self.of = of
        self.nbytes = 0 if of is not None else self.size * self.dtype.itemsize
        counter.live[self.nbytes] += 1
        counter.most[self.nbytes] = max(counter.most[self.nbytes], counter.live[self.nbytes])

    def __del__(self) -> None:
        self.counter.live[self.nbytes] -= 1

    def named(self, symbol: str) -> Activation:
        return self

    def numpy(self) -> Activation:
        """There is no array, but who keeps it keeps what stands for it."""
        return self

    def detach(self) -> Activation:
        return Activation(self.shape, self.dtype, self.counter, needs=False)


def imagine(layer: Module, counter: CostCounter) -> Any:
    """A copy of the layer, its parts and all, whose parameters are shapes alone."""
    made: dict[int, Any] = {
        id(p): Activation(p.shape, p.dtype, counter, p.requires_grad) for p in layer.parameters()
    }
    return deepcopy(layer, made)


def _looked_at(op: mg.Op, inputs: Sequence[Any]) -> Any:
    """The input whose memory the result shares, where the op makes a view."""
    return next((x for x in inputs if isinstance(x, Activation)), None) if _views(op) else None


@cache
def _views(op: mg.Op) -> bool:
    for sample in op.samples(np.random.default_rng(0)):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found = op.forward(*inputs, *settings)
        return isinstance(found, np.ndarray) and np.may_share_memory(found, inputs[0])
    return False
