"""The GPT of `generation.py` in plain NumPy and in PyTorch, which `training.py` trains too.

Each is a function of a prompt (B, n) and a number of tokens, which gives the likeliest ones.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

__all__ = ["in_numpy", "in_torch", "torch_forward", "torch_logits", "torch_parameters"]

Generate = Callable[[Any, int], Any]


def parameters(model: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Arrays of the embeddings and the last norm, and of each block, by short names."""
    whole = {"tokens": model.embedding.W, "positions": model.position_embedding.P}
    whole |= {name: getattr(model.decoder.norm, name) for name in ("weight", "bias")}
    blocks = []
    for block in model.decoder.blocks:
        a, p = block.attention, {f"W_{i}": getattr(block.feed_forward, f"W_{i}") for i in (1, 2)}
        p |= {f"b_{i}": getattr(block.feed_forward, f"b_{i}") for i in (1, 2)}
        p |= {"W_O": a.W_O, "b_O": a.b_O}
        p["W_QKV"] = np.concatenate([W.numpy() for W in (a.W_Q, a.W_K, a.W_V)], axis=1)
        p["b_QKV"] = np.concatenate([b.numpy() for b in (a.b_Q, a.b_K, a.b_V)])
        for i, norm in ((1, block.norm_1), (2, block.norm_2)):
            p |= {f"weight_{i}": norm.weight, f"bias_{i}": norm.bias}
        blocks.append(p)

    def arrays(part: dict[str, Any]) -> dict[str, Any]:
        return {k: v if isinstance(v, np.ndarray) else np.array(v.numpy()) for k, v in part.items()}

    return arrays(whole), [arrays(part) for part in blocks]


def in_numpy(model: Any, heads: int) -> Generate:
    """As a person would write it: keys and values in arrays as long as they will be."""
    whole, blocks = parameters(model)
    d = whole["tokens"].shape[1]
    number = whole["tokens"].dtype.type

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + number(1e-5)) * weight + bias

    def gelu(u: Any) -> Any:
        inner = number(sqrt(2 / pi)) * (u + number(0.044715) * u * u * u)
        return number(0.5) * u * (number(1) + np.tanh(inner))

    def softmax(z: Any) -> Any:
        e = np.exp(z - z.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def forward(tokens: Any, start: int, caches: Any) -> Any:
        """Logits of the last of these tokens, (B, V); the first stands at `start`."""
        B, n = tokens.shape
        end = start + n
        x = whole["tokens"][tokens] + whole["positions"][start:end]  # (B, n, d)
        for p, (K, V) in zip(blocks, caches, strict=True):
            h = norm(x, p["weight_1"], p["bias_1"])
            QKV = (h @ p["W_QKV"] + p["b_QKV"]).reshape(B, n, 3, heads, d // heads)
            Q = QKV[:, :, 0].swapaxes(1, 2)  # (B, h, n, d_k)
            K[:, :, start:end], V[:, :, start:end] = QKV[:, :, 1:].transpose(2, 0, 3, 1, 4)
            S = Q @ K[:, :, :end].swapaxes(2, 3) / number(sqrt(d // heads))  # (B, h, n, m)
            if n > 1:
                S += np.triu(np.full((n, end), -np.inf, S.dtype), start + 1)
            O = softmax(S) @ V[:, :, :end]  # (B, h, n, d_k)
            x = x + O.swapaxes(1, 2).reshape(B, n, d) @ p["W_O"] + p["b_O"]
            h = gelu(norm(x, p["weight_2"], p["bias_2"]) @ p["W_1"] + p["b_1"])
            x = x + h @ p["W_2"] + p["b_2"]
        return norm(x[:, -1], whole["weight"], whole["bias"]) @ whole["tokens"].T

    def generate(prompt: Any, count: int) -> Any:
        B, n = prompt.shape
        shape = (2, B, heads, n + count, d // heads)
        caches, found = [np.empty(shape, number) for _ in blocks], []
        logits = forward(prompt, 0, caches)
        for k in range(count):
            found.append(logits.argmax(axis=-1))
            if k + 1 < count:
                logits = forward(found[-1][:, None], n + k, caches)
        return np.stack(found, axis=1)

    return generate


def torch_parameters(model: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same as tensors, matrices as nn.Linear keeps them."""
    import torch

    whole, blocks = parameters(model)
    return {k: torch.from_numpy(v) for k, v in whole.items()}, [
        {k: torch.from_numpy(v.T.copy() if k.startswith("W_") else v) for k, v in part.items()}
        for part in blocks
    ]


def torch_forward(whole: Any, blocks: Any, heads: int, approximate: str) -> Callable[..., Any]:
    """The GPT in PyTorch, with fused functions: (tokens, start, caches) → the last block's result.

    approximate: of gelu. caches: the keys and values of each block, written from `start` on.
    """
    from torch.nn import functional as F

    d = whole["tokens"].shape[1]

    def forward(tokens: Any, start: int = 0, caches: Any = None) -> Any:
        B, n = tokens.shape
        end = start + n
        x = whole["tokens"][tokens] + whole["positions"][start:end]  # (B, n, d)
        for i, p in enumerate(blocks):
            h = F.layer_norm(x, (d,), p["weight_1"], p["bias_1"])
            QKV = F.linear(h, p["W_QKV"], p["b_QKV"]).view(B, n, 3, heads, -1)
            Q, K, V = QKV.permute(2, 0, 3, 1, 4)  # (B, h, n, d_k) each
            if caches is not None:
                caches[i][:, :, :, start:end] = QKV.permute(2, 0, 3, 1, 4)[1:]
                K, V = caches[i][:, :, :, :end]
            O = F.scaled_dot_product_attention(Q, K, V, is_causal=n > 1)
            x = x + F.linear(O.transpose(1, 2).reshape(B, n, d), p["W_O"], p["b_O"])
            h = F.linear(F.layer_norm(x, (d,), p["weight_2"], p["bias_2"]), p["W_1"], p["b_1"])
            x = x + F.linear(F.gelu(h, approximate=approximate), p["W_2"], p["b_2"])
        return x

    return forward


def torch_logits(x: Any, whole: Any) -> Any:
    """The last norm, and the product with the embedding."""
    from torch.nn import functional as F

    x = F.layer_norm(x, whole["tokens"].shape[1:], whole["weight"], whole["bias"])
    return x @ whole["tokens"].T


def in_torch(model: Any, heads: int) -> Generate:
    """The same in PyTorch, in its inference mode: fused attention, keys and values written once."""
    import torch

    whole, blocks = torch_parameters(model)
    forward = torch_forward(whole, blocks, heads, "tanh")
    d = whole["tokens"].shape[1]

    def generate(prompt: Any, count: int) -> Any:
        B, n = prompt.shape
        shape = (2, B, heads, n + count, d // heads)
        with torch.inference_mode():
            caches, found = [torch.empty(shape) for _ in blocks], []
            x = forward(torch.from_numpy(prompt), 0, caches)
            for k in range(count):
                found.append(torch_logits(x[:, -1], whole).argmax(dim=-1))
                if k + 1 < count:
                    x = forward(found[-1][:, None], n + k, caches)
            return torch.stack(found, dim=1).numpy()

    return generate
