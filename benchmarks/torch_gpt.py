"""The GPT of `training.py` in PyTorch, from our model's weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["torch_forward", "torch_logits", "torch_parameters"]


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
