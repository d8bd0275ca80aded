"""Who takes the step: NumPy by hand, and minigrad in its three forms. PyTorch is in `pytorch`.

A peer makes a step out of a case's inputs; the step gives the output and every gradient, named as
`cases` says, in whatever kind of array the peer has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import by_hand
from .cases import Attention, Case, Inputs

__all__ = ["Minigrad", "Naive", "Numpy", "Peer", "Step", "Unsupported"]

Step = Callable[[], dict[str, Any]]


class Unsupported(Exception):
    """A peer has no such step."""


class Peer:
    """One contestant. Override `load`, and a method for each kind of case that it can do."""

    def __init__(self, name: str, title: str) -> None:
        self.name, self.title = name, title

    def load(self) -> str:
        """Import what is needed, and say which version it is. ImportError: it is not installed."""
        raise NotImplementedError

    def step(self, case: Case, inputs: Inputs) -> Step:
        """What is timed."""
        make: Callable[[Any, Inputs], Step] = getattr(self, case.kind)
        return make(case, inputs)

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        raise Unsupported

    def numpy(self, value: Any) -> Any:
        """One entry of an answer as an array."""
        return np.asarray(value)

    def excuse(self) -> str:
        """Why the latest step, once taken, is not what the title says; "" if it is."""
        return ""


class Numpy(Peer):
    """hand-best: what every ratio is to."""

    def load(self) -> str:
        return f"NumPy {np.__version__}"

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        return by_hand.best(case, inputs)


class Naive(Peer):
    """The texts' algebra, line for line."""

    def load(self) -> str:
        return f"NumPy {np.__version__}"

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        return by_hand.naive(case, inputs)


class Minigrad(Peer):
    """minigrad as it is called; `compiled`: by `mg.compile`; `tiled`: attention as one node."""

    def __init__(
        self, name: str, title: str, *, tiled: bool = False, compiled: bool = False
    ) -> None:
        super().__init__(name, title)
        self.tiled, self.compiled = tiled, compiled
        self.program: Any = None  # the latest step, compiled

    def load(self) -> str:
        import layers
        import minigrad
        from minigrad import optim

        self.mg, self.layers, self.optim = minigrad, layers, optim
        return f"minigrad {minigrad.__version__}"

    def excuse(self) -> str:
        if not self.compiled or not self.program.reasons:
            return ""
        return f"not compiled: {'; '.join(self.program.reasons)}"

    def _run(self, function: Callable[[], Any]) -> Callable[[], Any]:
        if not self.compiled:
            return function
        self.program = self.mg.compile(function)
        return self.program  # type: ignore[no-any-return]

    def _step(self, leaves: dict[str, Any], function: Callable[[], Any]) -> Step:
        run = self._run(function)

        def step() -> dict[str, Any]:
            for leaf in leaves.values():
                leaf.grad = None
            out = run()
            return {"out": out.numpy()} | {f"d_{name}": x.grad for name, x in leaves.items()}

        return step

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        p = {k: self.mg.tensor(x, requires_grad=True, name=k) for k, x in inputs.leaves.items()}
        G, mask = inputs.given["G"], inputs.given["mask"]
        forward = self._in_tiles(case, p, mask) if self.tiled else self._layer(case, p, mask)

        def train() -> Any:
            out = forward()
            out.backward(G)
            return out

        return self._step(p, train)

    def _layer(self, case: Attention, p: dict[str, Any], mask: Any) -> Callable[[], Any]:
        """The layer, with these weights."""
        kept = {"use_bias": case.bias, "dtype": p["X"].dtype}
        layer = (
            self.layers.SelfAttention(case.d_model, case.d_k, case.d_k, **kept)
            if case.heads == 1
            else self.layers.MultiHeadAttention(case.d_model, case.heads, **kept)
        )
        for name, leaf in p.items():
            if name != "X":
                setattr(layer, name, leaf)
        return lambda: layer(p["X"], mask=mask)

    def _in_tiles(self, case: Attention, p: dict[str, Any], mask: Any) -> Callable[[], Any]:
        """The same with `mg.tiled_attention`."""
        mg, layers = self.mg, self.layers

        def forward() -> Any:
            flat = [mg.linear(p["X"], p[f"W_{s}"], p.get(f"b_{s}")) for s in "QKV"]
            Q, K, V = (layers.split_heads(x, case.heads) for x in flat)
            C = layers.merge_heads(mg.tiled_attention(Q, K, V, mask))
            return mg.linear(C, p["W_O"], p.get("b_O"))

        return forward

    def _attend(self, Q: Any, K: Any, V: Any, mask: Any) -> Any:
        mg = self.mg
        if self.tiled:
            return mg.tiled_attention(Q, K, V, mask)
        return mg.softmax(mg.mask_add(mg.scale(Q @ K.mT, Q.shape[-1] ** -0.5), mask)) @ V
