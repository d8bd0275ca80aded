"""The other engine, if it is installed: PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from .cases import Attention, Inputs
from .peers import Peer, Step

__all__ = ["Torch"]


class Torch(Peer):
    """Attention written out, or (`fused`) by PyTorch's own scaled_dot_product_attention."""

    def __init__(self, name: str, title: str, fused: bool) -> None:
        super().__init__(name, title)
        self.fused = fused

    def load(self) -> str:
        import torch

        self.torch, self.functional = torch, torch.nn.functional
        return f"PyTorch {torch.__version__}"

    def numpy(self, value: Any) -> Any:
        return value.detach().numpy()

    def _leaves(self, inputs: Inputs) -> dict[str, Any]:
        copies = {name: self.torch.from_numpy(a.copy()) for name, a in inputs.leaves.items()}
        return {name: tensor.requires_grad_() for name, tensor in copies.items()}

    def _attend(self, Q: Any, K: Any, V: Any, mask: Any) -> Any:
        if self.fused:
            return self.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
        return self.torch.softmax(Q @ K.mT * (1 / sqrt(Q.shape[-1])) + mask, -1) @ V

    def _step(self, p: dict[str, Any], G: Any, forward: Callable[[], Any]) -> Step:
        def step() -> dict[str, Any]:
            for leaf in p.values():
                leaf.grad = None
            out = forward()
            out.backward(G)
            return {"out": out} | {f"d_{name}": leaf.grad for name, leaf in p.items()}

        return step

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        p, linear = self._leaves(inputs), self.functional.linear
        G, mask = (self.torch.from_numpy(inputs.given[name]) for name in ("G", "mask"))
        B, n, h, d = case.B, case.n, case.heads, case.d_k

        def forward() -> Any:
            Q, K, V = (
                linear(p["X"], p[f"W_{s}"].T, p.get(f"b_{s}")).view(B, n, h, d).transpose(1, 2)
                for s in "QKV"
            )
            C = self._attend(Q, K, V, mask).transpose(1, 2).reshape(B, n, h * d)
            return linear(C, p["W_O"].T, p.get("b_O"))

        return self._step(p, G, forward)
