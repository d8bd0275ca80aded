"""The small GPT of `training.py` in PyTorch, with the weights of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["torch_gpt"]


def torch_gpt(
    model: Any, dtype: Any, affine: Callable[[Any], Any], copy: Callable[..., None]
) -> Any:
    """A module that computes what the LanguageModel does, from copies of its weights."""

    class Pair:  # a weight and a bias as `affine` takes them
        def __init__(self, W: Any, b: Any) -> None:
            self.W, self.b = W, b

    def norm(source: Any) -> Any:
        made = nn.LayerNorm(source.weight.shape[0], eps=source.eps, dtype=dtype)
        copy(made.weight, source.weight.numpy())
        copy(made.bias, source.bias.numpy())
        return made

    class Block(nn.Module):
        def __init__(self, block: Any) -> None:
            super().__init__()
            a, f = block.attention, block.feed_forward
            self.norm_1, self.norm_2 = norm(block.norm_1), norm(block.norm_2)
            self.q, self.k, self.v, self.o = (
                affine(Pair(getattr(a, f"W_{x}"), getattr(a, f"b_{x}"))) for x in "QKVO"
            )
            self.up, self.down = affine(Pair(f.W_1, f.b_1)), affine(Pair(f.W_2, f.b_2))

        def forward(self, x: Any) -> Any:
            h = self.norm_1(x)
            heads = (y(h).unflatten(-1, (4, -1)).transpose(1, 2) for y in (self.q, self.k, self.v))
            attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.o(attended.transpose(1, 2).flatten(-2))
            return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(*model.embedding.W.shape, dtype=dtype)
            self.position = nn.Embedding(*model.position_embedding.P.shape, dtype=dtype)
            copy(self.embedding.weight, model.embedding.W.numpy())
            copy(self.position.weight, model.position_embedding.P.numpy())
            self.blocks = nn.Sequential(*[Block(block) for block in model.decoder.blocks])
            self.norm = norm(model.decoder.norm)

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens) + self.position.weight[: tokens.shape[1]]
            return self.norm(self.blocks(x)) @ self.embedding.weight.T

    return GPT()
