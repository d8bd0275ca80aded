"""Stacks of transformer blocks: encoder, decoder, and a decoder-only language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError

from .arrays import Array, Mask
from .blocks import BlockOptions, DecoderBlock, TransformerBlock
from .cache import KernelState, KVCache
from .embedding import Embedding
from .initialisers import Seed, generator
from .linear import Linear, check_sizes
from .module import Module
from .options import soft_cap
from .position import LearnedPosition
from .renamed import renamed

__all__ = ["Decoder", "Encoder", "LanguageModel"]


class _Stack(Module):
    """Blocks of one kind, one after the other, and a last norm."""

    kind: type[Module]

    @renamed("causal")
    def __init__(
        self, n_layers: int, d_model: int, n_heads: int, d_ff: int | None = None, **block: Any
    ) -> None:
        check_sizes(type(self).__name__, n_layers=n_layers)
        final_norm = block.pop("final_norm", None)
        block["rng"] = generator(block.get("rng"))
        self.blocks = [self.kind(d_model, n_heads, d_ff, **block) for _ in range(n_layers)]
        options, _ = BlockOptions.of(self, block)
        final_norm = options.norm_order != "post" if final_norm is None else final_norm
        self.norm = options.make_norm(d_model) if final_norm else None
        self.dtype = np.dtype(options.dtype)

    def _through(
        self,
        X: mg.Tensor,
        *inputs: Array | Mask | None,
        positions: ArrayLike | None,
        cache: Sequence[KVCache | KernelState] | None,
    ) -> mg.Tensor:
        caches = set() if cache is None else {id(of_block) for of_block in cache}
        if cache is not None and len(caches) < len(self.blocks):
            raise ArgumentError(
                f"{type(self).__name__}: cache must hold one of its own for each of "
                f"{len(self.blocks)} blocks, as new_cache() makes them, got {len(caches)}"
            )
        for k, block in enumerate(self.blocks):
            X = block(X, *inputs, positions=positions, cache=cache and cache[k])  # (B, n, d_model)
        return X if self.norm is None else self.norm(X)

    def new_cache(self) -> list[KVCache | KernelState]:
        """An empty cache for each block: a KVCache with its window, or a KernelState.

        That of a DecoderBlock holds its context's keys and values too.
        """
        attentions = [block.attention for block in self.blocks]
        return [
            layer.new_cache() if hasattr(layer, "new_cache") else KVCache(window=layer.window)
            for layer in attentions
        ]


class Encoder(_Stack):
    """A stack of TransformerBlocks, and after pre-norm ones a last norm.

    With `is_causal=True` it is the stack of a decoder-only language model.

    Args:    block: any keyword of TransformerBlock.  final_norm: whether a norm comes last; where
             the blocks are not post-norm, unless given.
    Attributes: blocks, a list; norm, or None.
    Masks:   True: may attend (PyTorch's key_padding_mask is the opposite); floats are added.
    Shapes:  X (B, n, d_model), mask as MultiHeadAttention's; cache: as `new_cache` makes → as X

    >>> encoder = Encoder(2, d_model=6, n_heads=3, rng=0)
    >>> encoder(np.zeros((1, 7, 6))).shape, len(list(encoder.named_parameters()))
    ((1, 7, 6), 34)
    """

    kind = TransformerBlock

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Sequence[KVCache | KernelState] | None = None,
    ) -> mg.Tensor:
        return self._through(X, mask, positions=positions, cache=cache)


class Decoder(_Stack):
    """A stack of DecoderBlocks, and after pre-norm ones a last norm.

    Args:    block: any keyword of DecoderBlock.  final_norm: as Encoder's.
    Attributes: blocks, a list; norm, or None.
    Shapes:  X (B, n, d_model), context (B, m, d_context), masks as DecoderBlock's → as X

    >>> decoder = Decoder(2, d_model=6, n_heads=3, rng=0)
    >>> decoder(np.zeros((1, 7, 6)), np.ones((1, 4, 6))).shape
    (1, 7, 6)
    """

    kind = DecoderBlock

    def forward(
        self,
        X: mg.Tensor,
        context: Array,
        mask: Mask | None = None,
        context_mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Sequence[KVCache | KernelState] | None = None,
    ) -> mg.Tensor:
        return self._through(X, context, mask, context_mask, positions=positions, cache=cache)


class LanguageModel(Module):
    """Tokens in, logits of the next token out: embedding, causal blocks, norm, output layer.

    With max_len it has learned positions (GPT-2); with position=Rotary(...) rotary ones (Llama).

    Args:
        n_tokens, n_layers: of the embedding, of the stack.
        max_len: for learned positions; none unless given.
        tied: the output layer is the embedding, read backwards; else a Linear without bias.
        scaled: multiply embeddings by √d_model.  output_softcap: c, for c tanh(logits / c).
        block: any keyword of Encoder and TransformerBlock.
    Attributes: embedding, position_embedding or None, decoder (an Encoder), head or None.
    Shapes:  tokens (B, n) of integers, positions (n,) or (B, n) → (B, n, n_tokens)

    >>> model = LanguageModel(n_tokens=11, d_model=6, n_heads=3, n_layers=2, max_len=7, rng=0)
    >>> model(np.array([[3, 1, 4]])).shape
    (1, 3, 11)
    """

    @renamed("causal")
    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_ff: int | None = None,
        *,
        max_len: int | None = None,
        tied: bool = True,
        scaled: bool = False,
        output_softcap: float | None = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        **block: Any,
    ) -> None:
        if output_softcap is not None and not output_softcap >= 0:
            raise ArgumentError(
                f"LanguageModel: output_softcap must be more than 0, got {output_softcap}"
            )
        rng, self.output_softcap = generator(rng), output_softcap
        self.embedding = Embedding(n_tokens, d_model, scaled, rng, dtype)
        self.position_embedding = (
            None if max_len is None else LearnedPosition(max_len, d_model, rng, dtype)
        )
        block = {"is_causal": True, **block, "rng": rng, "dtype": dtype}
        self.decoder = Encoder(n_layers, d_model, n_heads, d_ff, **block)
        self.head = (
            None if tied else Linear(d_model, n_tokens, use_bias=False, rng=rng, dtype=dtype)
        )

    def forward(
        self,
        tokens: ArrayLike,
        mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Sequence[KVCache | KernelState] | None = None,
    ) -> mg.Tensor:
        X = self.embedding(tokens)  # (B, n, d_model)
        if self.position_embedding is not None:
            at = positions if cache is None else cache[0].next_positions(X.shape[-2])
            X = self.position_embedding(X, at)
        X = self.decoder(X, mask, positions=positions, cache=cache)  # (B, n, d_model)
        logits = self.embedding.as_linear(X) if self.head is None else self.head(X)
        if not self.output_softcap:
            return logits  # (B, n, n_tokens)
        return soft_cap(logits, self.output_softcap).named("logits_capped")  # (B, n, n_tokens)

    def new_cache(self) -> list[KVCache | KernelState]:
        """An empty cache for each block."""
        return self.decoder.new_cache()
