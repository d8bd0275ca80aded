"""The other engines, each if it is installed: PyTorch, JAX and HIPS autograd."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from .cases import Attention, Chain, Gpt, Inputs
from .peers import Peer, Step, Unsupported, links

__all__ = ["Autograd", "Jax", "Torch"]


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

    def chain(self, case: Chain, inputs: Inputs) -> Step:
        if self.fused:
            raise Unsupported
        p, G = self._leaves(inputs), self.torch.from_numpy(inputs.given["G"])
        return self._step(p, G, lambda: links(case, p["X"], p["W"]))

    def gpt(self, case: Gpt, inputs: Inputs) -> Step:
        F, p = self.functional, self._leaves(inputs)
        text, targets, mask = (
            self.torch.from_numpy(np.ascontiguousarray(inputs.given[name]))
            for name in ("text", "targets", "mask")
        )
        B, n, d, h = case.B, case.n, case.d_model, case.heads
        optimiser = self.torch.optim.Adam(p.values(), lr=1e-3, fused=True)

        def forward() -> Any:
            x = p["tokens"][text] + p["positions"]
            for i in map(str, range(case.layers)):
                y = F.layer_norm(x, (d,), p[f"{i}.ln1.weight"], p[f"{i}.ln1.bias"])
                y = F.linear(y, p[f"{i}.W_QKV"].T, p[f"{i}.b_QKV"])
                QKV = y.view(B, n, 3, h, d // h).permute(2, 0, 3, 1, 4)
                C = self._attend(QKV[0], QKV[1], QKV[2], mask).transpose(1, 2).reshape(B, n, d)
                x = x + F.linear(C, p[f"{i}.W_O"].T, p[f"{i}.b_O"])
                y = F.layer_norm(x, (d,), p[f"{i}.ln2.weight"], p[f"{i}.ln2.bias"])
                y = F.gelu(F.linear(y, p[f"{i}.W_1"].T, p[f"{i}.b_1"]), approximate="tanh")
                x = x + F.linear(y, p[f"{i}.W_2"].T, p[f"{i}.b_2"])
            z = F.layer_norm(x, (d,), p["ln.weight"], p["ln.bias"]) @ p["head"]
            return F.cross_entropy(z.view(B * n, -1), targets.view(-1))

        def step() -> dict[str, Any]:
            optimiser.zero_grad(set_to_none=True)
            loss = forward()
            loss.backward()
            optimiser.step()
            return {"loss": loss} | {f"d_{name}": leaf.grad for name, leaf in p.items()}

        return step


class _LikeNumpy(Peer):
    """What JAX and autograd share: a model is a pure function of a dict, written with `self.np`."""

    np: Any

    def _attend(self, Q: Any, K: Any, V: Any, mask: Any) -> Any:
        return self._softmax(Q @ self.np.swapaxes(K, 2, 3) / sqrt(Q.shape[-1]) + mask) @ V

    def _softmax(self, S: Any) -> Any:
        E = self.np.exp(S - self.np.max(S, axis=-1, keepdims=True))
        return E / self.np.sum(E, axis=-1, keepdims=True)

    def _norm(self, x: Any, p: dict[str, Any], name: str) -> Any:
        centred = x - self.np.mean(x, axis=-1, keepdims=True)
        variance = self.np.mean(centred * centred, axis=-1, keepdims=True)
        return centred / self.np.sqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    def _gelu(self, u: Any) -> Any:
        return 0.5 * u * (1 + self.np.tanh(sqrt(2 / np.pi) * (u + 0.044715 * u * u * u)))

    def _layer(self, case: Attention, mask: Any) -> Callable[[dict[str, Any]], Any]:
        shape = (case.B, case.n, case.heads, case.d_k)

        def affine(M: Any, p: dict[str, Any], symbol: str) -> Any:
            out = M @ p[f"W_{symbol}"]
            return out + p[f"b_{symbol}"] if case.bias else out

        def forward(p: dict[str, Any]) -> Any:
            heads = [self.np.reshape(affine(p["X"], p, symbol), shape) for symbol in "QKV"]
            Q, K, V = (self.np.swapaxes(M, 1, 2) for M in heads)
            O = self._attend(Q, K, V, mask)
            C = self.np.reshape(self.np.swapaxes(O, 1, 2), (case.B, case.n, case.width))
            return affine(C, p, "O")

        return forward

    def _decoder(self, case: Gpt, given: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
        B, n, d, h = case.B, case.n, case.d_model, case.heads
        right = np.eye(case.vocabulary, dtype=given["mask"].dtype)[given["targets"]]

        def forward(p: dict[str, Any]) -> Any:
            x = p["tokens"][given["text"]] + p["positions"]
            for i in map(str, range(case.layers)):
                y = self._norm(x, p, f"{i}.ln1") @ p[f"{i}.W_QKV"] + p[f"{i}.b_QKV"]
                QKV = self.np.transpose(self.np.reshape(y, (B, n, 3, h, d // h)), (2, 0, 3, 1, 4))
                O = self._attend(QKV[0], QKV[1], QKV[2], given["mask"])
                C = self.np.reshape(self.np.swapaxes(O, 1, 2), (B, n, d))
                x = x + C @ p[f"{i}.W_O"] + p[f"{i}.b_O"]
                y = self._gelu(self._norm(x, p, f"{i}.ln2") @ p[f"{i}.W_1"] + p[f"{i}.b_1"])
                x = x + y @ p[f"{i}.W_2"] + p[f"{i}.b_2"]
            z = self._norm(x, p, "ln") @ p["head"]
            z = z - self.np.max(z, axis=-1, keepdims=True)
            log_sums = self.np.log(self.np.sum(self.np.exp(z), axis=-1, keepdims=True))
            return self.np.sum((log_sums - z) * right) / (B * n)

        return forward

    def _adam(self, w: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        root = self.np.sqrt(v / (1 - 0.999**t)) + 1e-8
        return w - 1e-3 / (1 - 0.9**t) * m / root, m, v


class Autograd(_LikeNumpy):
    """HIPS autograd: NumPy's functions, wrapped."""

    def load(self) -> str:
        from importlib.metadata import version

        import autograd.numpy
        from autograd import make_vjp

        self.np, self.make_vjp = autograd.numpy, make_vjp
        return f"autograd {version('autograd')}"

    def _step(self, forward: Callable[[dict[str, Any]], Any], p: Any, G: Any) -> Step:
        differentiate = self.make_vjp(forward)

        def step() -> dict[str, Any]:
            vjp, out = differentiate(p)
            return {"out": out} | {f"d_{name}": gradient for name, gradient in vjp(G).items()}

        return step

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        forward = self._layer(case, inputs.given["mask"])
        return self._step(forward, inputs.leaves, inputs.given["G"])

    def chain(self, case: Chain, inputs: Inputs) -> Step:
        return self._step(lambda p: links(case, p["X"], p["W"]), inputs.leaves, inputs.given["G"])

    def gpt(self, case: Gpt, inputs: Inputs) -> Step:
        p = dict(inputs.leaves)
        m, v = ({name: np.zeros_like(w) for name, w in p.items()} for _ in range(2))
        differentiate = self.make_vjp(self._decoder(case, inputs.given))
        t, one = 0, inputs.given["mask"].dtype.type(1)

        def step() -> dict[str, Any]:
            nonlocal t
            t += 1
            vjp, loss = differentiate(p)
            g = vjp(one)
            for name in p:
                p[name], m[name], v[name] = self._adam(p[name], g[name], m[name], v[name], t)
            return {"loss": loss} | {f"d_{name}": gradient for name, gradient in g.items()}

        return step


class Jax(_LikeNumpy):
    """JAX, the whole step compiled by `jax.jit`."""

    def load(self) -> str:
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        self.jax, self.np = jax, jax.numpy
        return f"JAX {jax.__version__}"

    def _on_device(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: self.np.asarray(array) for name, array in arrays.items()}

    def attention(self, case: Attention, inputs: Inputs) -> Step:
        p, given = self._on_device(inputs.leaves), self._on_device(inputs.given)
        forward = self._layer(case, given["mask"])

        def both(p: Any, G: Any) -> Any:
            out, vjp = self.jax.vjp(forward, p)
            return out, vjp(G)[0]

        both = self.jax.jit(both)

        def step() -> dict[str, Any]:
            out, g = self.jax.block_until_ready(both(p, given["G"]))
            return {"out": out} | {f"d_{name}": gradient for name, gradient in g.items()}

        return step

    def gpt(self, case: Gpt, inputs: Inputs) -> Step:
        p = self._on_device(inputs.leaves)
        m, v = ({name: self.np.zeros_like(w) for name, w in p.items()} for _ in range(2))
        forward, t = self._decoder(case, self._on_device(inputs.given)), 0.0

        def train(p: Any, m: Any, v: Any, t: Any) -> Any:
            loss, g = self.jax.value_and_grad(forward)(p)
            moved = {name: self._adam(p[name], g[name], m[name], v[name], t) for name in p}
            return loss, g, *({k: new[i] for k, new in moved.items()} for i in range(3))

        train = self.jax.jit(train, donate_argnums=(0, 1, 2))

        def step() -> dict[str, Any]:
            nonlocal p, m, v, t
            t += 1
            now = np.asarray(t, inputs.given["mask"].dtype)
            loss, g, p, m, v = self.jax.block_until_ready(train(p, m, v, now))
            return {"loss": loss} | {f"d_{name}": gradient for name, gradient in g.items()}

        return step
