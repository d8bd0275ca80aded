"""Transformer blocks: attention and feed-forward layers, each around a residual connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, checked_keywords

from .arrays import Array, Mask
from .attention import MultiHeadAttention
from .cache import KVCache
from .feed_forward import ActivationFunction, Dropout, FeedForward, GatedFeedForward
from .initialisers import Seed, generator
from .module import Module, keywords_of
from .norm import LayerNorm
from .renamed import renamed

__all__ = ["BlockOptions", "DecoderBlock", "TransformerBlock"]

Sublayer: TypeAlias = Callable[[mg.Tensor], mg.Tensor]

SHARED_OPTIONS = ("use_bias", "dropout", "rng", "dtype", "d_k", "d_v", "scale")
"""What both attentions of a DecoderBlock are made with."""


@dataclass
class BlockOptions:
    """What both blocks take by keyword; any other keyword is one of their self-attention.

    norm_order: "pre" (GPT-2, Llama), "post" (the paper, BERT), or "both", which also norms what
        attention and feed_forward return before it is added (Gemma 2).
    norm: makes a norm from d_model: LayerNorm, RMSNorm, or a partial of either.
    activation, gated: of FeedForward, or of GatedFeedForward.
    use_bias: of the attention and, unless ff_bias is given, of the feed-forward layer.
    dropout: of attention's and feed_forward's outputs. Weights of A have `attention_dropout`.
    """

    norm_order: str = "pre"
    norm: Callable[..., Module] = LayerNorm
    activation: str | ActivationFunction | None = None
    gated: bool = False
    use_bias: bool | str = True
    ff_bias: bool | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    rng: Seed = None
    dtype: DTypeLike = np.float64

    @classmethod
    def of(cls, layer: Module, keywords: dict[str, Any]) -> tuple[BlockOptions, dict[str, Any]]:
        """A block's options among its keywords, and the keywords of its attention."""
        names = [field.name for field in fields(cls)]
        of_attention, _ = keywords_of(MultiHeadAttention)
        checked_keywords(type(layer).__name__, keywords, dict.fromkeys([*names, *of_attention]))
        options = cls(**{name: keywords[name] for name in keywords.keys() & {*names}})
        if options.norm_order not in ("pre", "post", "both"):
            raise ArgumentError(
                f'{type(layer).__name__}: norm_order must be "pre", "post" or "both", '
                f"got {options.norm_order!r}"
            )
        options.rng = generator(options.rng)
        attention = {name: value for name, value in keywords.items() if name not in names}
        attention |= {name: getattr(options, name) for name in ("use_bias", "rng", "dtype")}
        return options, attention | {"dropout": options.attention_dropout}

    def make_norm(self, d_model: int) -> Module:
        return self.norm(d_model, dtype=self.dtype)

    def make_feed_forward(self, d_model: int, d_ff: int | None) -> Module:
        kind = GatedFeedForward if self.gated else FeedForward
        bias = bool(self.use_bias) if self.ff_bias is None else self.ff_bias
        activation = {} if self.activation is None else {"activation": self.activation}
        return kind(d_model, d_ff, use_bias=bias, rng=self.rng, dtype=self.dtype, **activation)


class _Block(Module):
    """What both blocks are made of: attentions and a feed-forward layer, with a norm for each."""

    def _make(
        self, d_model: int, n_heads: int, d_ff: int | None, keywords: dict[str, Any], **cross: Any
    ) -> None:
        """Make the parts; `cross` are keywords of the attention to a context, if there is one."""
        options, attention = BlockOptions.of(self, keywords)
        self.norm_order, self.dtype = options.norm_order, np.dtype(options.dtype)
        self.norm_1 = options.make_norm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads, **attention)
        self.norm_2 = options.make_norm(d_model)
        if cross:
            cross |= {name: attention[name] for name in SHARED_OPTIONS if name in attention}
            self.cross_attention = MultiHeadAttention(d_model, n_heads, **cross)
            self.norm_3 = options.make_norm(d_model)
        self.feed_forward = options.make_feed_forward(d_model, d_ff)
        self.norm_1_out, self.norm_2_out, self.norm_3_out = (
            options.make_norm(d_model) if options.norm_order == "both" and wanted else None
            for wanted in (True, True, bool(cross))
        )
        self.drop = Dropout(options.dropout, options.rng) if options.dropout else None

    def _attend(
        self, mask: Mask | None, positions: ArrayLike | None, cache: KVCache | None
    ) -> Sublayer:
        """The self-attention as a function of X; not every attention takes positions."""
        keywords = {} if positions is None else {"positions": positions}
        return lambda X: self.attention(X, mask, cache=cache, **keywords)

    def _residual(
        self, X: mg.Tensor, sublayer: Sublayer, norm: Module, norm_out: Module | None
    ) -> mg.Tensor:
        """X + sublayer(norm(X)), or norm(X + sublayer(X)) for post-norm."""
        post = self.norm_order == "post"
        F = sublayer(X if post else norm(X))
        F = F if norm_out is None else norm_out(F)
        X = mg.add(X, F if self.drop is None else self.drop(F)).named("X")
        return norm(X) if post else X


class TransformerBlock(_Block):
    """Self-attention, then a feed-forward layer, each around a residual connection and a norm.

        pre-norm:     X ← X + attention(norm_1(X)),     out = X + feed_forward(norm_2(X))
        post-norm:    X ← norm_1(X + attention(X)),     out = norm_2(X + feed_forward(X))

    Args:
        d_ff: width of the feed-forward layer; 4 · d_model unless given.
        options: see BlockOptions; n_kv_heads, position, is_causal, ... go to MultiHeadAttention.
    Attributes: attention, feed_forward, norm_1, norm_2.
    Masks:   True: may attend (PyTorch's key_padding_mask is the opposite); floats are added.
    Shapes:  X (B, n, d_model) or (n, d_model), mask as MultiHeadAttention's → as X
    Source:  Vaswani et al. 2017, section 3.1, arXiv:1706.03762; pre-norm: Xiong et al. 2020,
             arXiv:2002.04745.

    >>> block = TransformerBlock(d_model=6, n_heads=3, norm_order="post", rng=0)
    >>> block(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    @renamed("causal")
    def __init__(self, d_model: int, n_heads: int, d_ff: int | None = None, **options: Any) -> None:
        self._make(d_model, n_heads, d_ff, options)

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: KVCache | None = None,
    ) -> mg.Tensor:
        attend = self._attend(mask, positions, cache)
        X = self._residual(X, attend, self.norm_1, self.norm_1_out)  # (B, n, d_model)
        return self._residual(X, self.feed_forward, self.norm_2, self.norm_2_out)


class DecoderBlock(_Block):
    """Causal self-attention, attention to a context, then a feed-forward layer, as in the paper.

        pre-norm:    X ← X + attention(norm_1(X)),    X ← X + cross_attention(norm_2(X), context),
                     out = X + feed_forward(norm_3(X))

    Args:    as TransformerBlock; d_context: width of the context. Both attentions have the same
             heads, widths (d_k, d_v) and scale; only the self-attention takes further keywords.
    With a cache, keys and values of the context are made at the first token only.

    Attributes: attention, cross_attention, feed_forward, norm_1, norm_2, norm_3.
    Shapes:  X (B, n, d_model), context (B, m, d_context), mask (n, n) or more on top of the causal
             one, context_mask (B, 1, m) or more → as X
    Source:  Vaswani et al. 2017, section 3.1, arXiv:1706.03762.

    >>> block = DecoderBlock(d_model=6, n_heads=3, rng=0)
    >>> block(np.zeros((1, 7, 6)), np.ones((1, 4, 6))).shape
    (1, 7, 6)
    """

    @renamed("causal")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int | None = None,
        *,
        d_context: int | None = None,
        **options: Any,
    ) -> None:
        self._make(d_model, n_heads, d_ff, {"is_causal": True} | options, d_context=d_context)

    def forward(
        self,
        X: mg.Tensor,
        context: Array,
        mask: Mask | None = None,
        context_mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: KVCache | None = None,
    ) -> mg.Tensor:
        if context is None:
            raise ArgumentError(
                f"{type(self).__name__}: context must be (B, m, d_context), got None; a block "
                "without one is TransformerBlock(..., is_causal=True)"
            )

        def look_at_context(X: mg.Tensor) -> mg.Tensor:
            of_context = None if cache is None else cache.of_context.of(context)
            return self.cross_attention(X, context_mask, context=context, cache=of_context)

        attend = self._attend(mask, positions, cache)
        X = self._residual(X, attend, self.norm_1, self.norm_1_out)  # (B, n, d_model)
        X = self._residual(X, look_at_context, self.norm_2, self.norm_2_out)
        return self._residual(X, self.feed_forward, self.norm_3, self.norm_3_out)
