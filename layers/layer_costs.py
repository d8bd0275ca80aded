"""What any layer costs, from its sizes alone.

The layer's forward runs on shapes in place of arrays: nothing is computed and nothing large is
made. FLOPs are those that every op declares. Backward counts what the ops' rules compute, the sums
of gradients over axes along which an input was repeated, and the additions where a value was used
more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import explained

from .cost import A100_RIDGE, roofline
from .embedding import Embedding
from .linear import check_sizes
from .module import Module

__all__ = ["LayerCost", "kv_cache_bytes", "layer_cost"]


@dataclass(frozen=True)
class LayerCost:
    """FLOPs and bytes of one pass through a layer and of its backward.

    Attributes:
        forward: FLOPs by op.  backward: FLOPs of all rules, sums and additions of gradients.
        parameter_bytes, activation_bytes: of the weights; of what every counted op returns.
        gradient_bytes: of the gradients of those activations and of the weights. The inputs' are
            those of the layer before.
    """

    forward: dict[str, int]
    backward: int
    parameter_bytes: int
    activation_bytes: int
    gradient_bytes: int

    @property
    def total_forward(self) -> int:
        return sum(self.forward.values())

    @property
    def intensity(self) -> float:
        """Forward FLOPs a byte, where every weight and every result moves once."""
        return self.total_forward / (self.parameter_bytes + self.activation_bytes)

    def verdict(self, ridge: float = A100_RIDGE) -> str:
        """What `roofline` says of the forward pass, on a machine with that ridge."""
        return roofline(self.intensity, ridge)


@explained
def layer_cost(
    layer: Module,
    batch_size: int = 1,
    seq_len: int = 1,
    context_len: int | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> LayerCost:
    """The cost of a pass through a layer and of its backward, from its sizes alone.

    The layer's forward runs on shapes in place of arrays, and adds up what its ops declare. The
    input's gradient is wanted too, and the context's.

    Args:   context_len: m, where the layer attends to a context.  input_shape: of the input, where
            it is no (batch_size, seq_len, width): (N, C, height, width) of a convolution.
    Raises: TypeError for a layer whose input has no known width, or an op that declares no cost.

    >>> from layers import MultiHeadAttention
    >>> cost = layer_cost(MultiHeadAttention(64, n_heads=8), batch_size=1, seq_len=10)
    >>> cost.forward
    {'matmul': 353280, 'scale': 800, 'softmax': 4000}
    >>> cost.backward == 2 * 353280 + (1 + 4) * 800 + 2 * 640, cost.verdict()
    (True, 'memory-bound')
    """
    check_sizes("layer_cost", batch_size=batch_size, seq_len=seq_len)
    if context_len is not None:
        check_sizes("layer_cost", context_len=context_len)
    counter, width = CostCounter(), 0 if input_shape else _width(layer)
    dtype = max((p.dtype for p in layer.parameters()), default=np.dtype(float))

    def tokens(n: int, width: int) -> Activation:
        return Activation((batch_size, n, width), dtype, counter)

    X = np.zeros((batch_size, seq_len), int) if width is None else tokens(seq_len, width)
    X = Activation(input_shape, dtype, counter) if input_shape else X
    context = {}
    if context_len is not None:
        context["context"] = tokens(context_len, _context_width(layer))
    copy_of_shapes(layer, counter).forward(X, **context)
    weights = sum(p.size * p.dtype.itemsize for p in layer.parameters())
    forward = {name: flops for name, flops in sorted(counter.forward.items()) if flops}
    activations, gradients = (
        n * dtype.itemsize for n in (counter.entries, counter.gradient_entries)
    )
    return LayerCost(forward, counter.backward, weights, activations, gradients + weights)


def _width(layer: Module) -> int | None:
    """The width of a layer's input; None where it takes tokens."""
    for module in layer.modules():
        if isinstance(module, Embedding):
            return None
        for name, of in _WIDTHS.items():
            if hasattr(module, name):
                return int(of(getattr(module, name)))
    raise TypeError(f"layer_cost: the width of {type(layer).__name__}'s input is not known")


_WIDTHS: dict[str, Callable[[Any], Any]] = {
    "d_model": lambda d: d,
    "d_in": lambda d: d,
    "W": lambda W: W.shape[0],
    "W_1": lambda W: W.shape[0],
    "P": lambda P: P.shape[1],
    "shape": lambda shape: shape[-1],
}
"""The attributes by which layers tell how wide their input is."""


def _context_width(layer: Module) -> int:
    attentions = [m for m in layer.modules() if hasattr(m, "d_context")]
    crossing = [m for name, m in layer.named_modules() if name.endswith("cross_attention")]
    return int((crossing or attentions)[0].d_context)


@explained
def kv_cache_bytes(layer: Module, batch_size: int, seq_len: int) -> int:
    """Bytes of the keys and values that decoding keeps:  B n g (d_k + d_v) · itemsize.

    >>> from layers import MultiHeadAttention
    >>> [kv_cache_bytes(MultiHeadAttention(64, 8, g), 1, 1024) // 1024 for g in (8, 2, 1)]
    [1024, 256, 128]
    """
    entries = batch_size * seq_len * layer.n_kv_heads * (layer.d_k + layer.d_v)
    return int(entries * np.dtype(layer.dtype).itemsize)


# ------------------------------------------------------------------ a pass on shapes


class CostCounter(mg.FlopCounter):
    """What the ops of a pass add up to.

    Attributes: forward: FLOPs by op.  backward: FLOPs of all rules, sums and additions of
        gradients.  entries: of what the ops that compute return; gradient_entries: of its gradient.
        live, peak_live: how many arrays of each size in bytes there are, and were at most.
        saved: the arrays that a rule will need.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forward: Counter[str] = Counter()
        self.backward = self.entries = self.gradient_entries = 0
        self.live: Counter[int] = Counter()
        self.peak_live: Counter[int] = Counter()
        self.saved: dict[int, Activation] = {}

    def run(self, op: mg.Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Any:
        """Add one op, and for its inputs' gradients the sums over repeated axes and over uses."""
        if not any(getattr(x, "counted", False) for x in inputs):
            return super().run(op, inputs, settings)
        needs = tuple(getattr(x, "needs", getattr(x, "requires_grad", False)) for x in inputs)
        shape, dtype = self.forms(op, inputs, settings)[0]
        out = Activation(shape, dtype, self, any(needs), _viewed_input(op, inputs))
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
        """Bytes that the arrays take where memory is used again for arrays of the same size."""
        return sum(nbytes * count for nbytes, count in self.peak_live.items())

    def _save(
        self, op: mg.Op, inputs: Sequence[Any], out: Activation, needs: tuple[bool, ...]
    ) -> None:
        """Keep what the rules name, as a node does."""
        known = dict(zip(op.input_names(len(inputs)), inputs, strict=True)) | {"out": out}
        for name in self.names_saved(op, needs):
            if isinstance(known.get(name), Activation):
                self.saved[id(known[name])] = known[name]


class Activation(mg.ShapeTensor):
    """A tensor of a pass: whether it needs a gradient, how often it is used, how many bytes it has.

    Attributes: viewed: the tensor whose memory it shares; None where it has its own.
    """

    counter: CostCounter

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DTypeLike,
        counter: CostCounter,
        needs: bool = True,
        viewed: Activation | None = None,
    ) -> None:
        super().__init__(shape, dtype, counter)
        self.needs = needs
        self.uses = 0
        self.viewed = viewed
        self.nbytes = 0 if viewed is not None else self.size * self.dtype.itemsize
        counter.live[self.nbytes] += 1
        counter.peak_live[self.nbytes] = max(
            counter.peak_live[self.nbytes], counter.live[self.nbytes]
        )

    def __del__(self) -> None:
        self.counter.live[self.nbytes] -= 1

    def named(self, symbol: str) -> Activation:
        return self

    def numpy(self) -> Activation:
        """Itself, in place of an array."""
        return self

    def detach(self) -> Activation:
        return Activation(self.shape, self.dtype, self.counter, needs=False)


def copy_of_shapes(layer: Module, counter: CostCounter) -> Module:
    """A copy of the layer and all its parts, with shapes in place of parameters."""
    copies: dict[int, Any] = {
        id(p): Activation(p.shape, p.dtype, counter, p.requires_grad) for p in layer.parameters()
    }
    return deepcopy(layer, copies)


def _viewed_input(op: mg.Op, inputs: Sequence[Any]) -> Activation | None:
    """The input whose memory the result shares, where the op makes a view."""
    return (
        next((x for x in inputs if isinstance(x, Activation)), None) if _makes_views(op) else None
    )


@cache
def _makes_views(op: mg.Op) -> bool:
    for sample in op.samples(np.random.default_rng(0)):
        inputs, settings = op.bind(*sample.args, **sample.kwargs)
        found = op.forward(*inputs, *settings)
        return isinstance(found, np.ndarray) and np.may_share_memory(found, inputs[0])
    return False
