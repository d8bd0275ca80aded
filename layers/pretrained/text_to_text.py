"""Checkpoints that read one text and write another: T5."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad import Tensor
from minigrad.errors import explained

from ..arrays import Array, Mask
from ..cache import KVCache
from ..embedding import Embedding
from ..initialisers import Seed
from ..linear import Linear
from ..mask import padded_rows, padding_mask
from ..relative import T5Bias
from ..transformer import Decoder, Encoder
from .models import Pretrained

__all__ = ["TextToText"]


class TextToText(Pretrained):
    """A T5: an Encoder reads tokens; a Decoder writes others, and looks at what was read.

    Each stack has one T5Bias, which all of its blocks share.

    Attributes: embedding, of both; encoder, decoder; head, None if it is the embedding, read
             backwards; start: the token with which writing starts.
    Shapes:  tokens (B, n) and written (B, m) of integers, mask as Encoder's (see padding_mask) →
             logits of the token after each written one, (B, m, n_tokens)
    """

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        n_layers: int,
        *,
        n_decoder_layers: int,
        n_buckets: int,
        max_distance: int,
        tied: bool,
        scaled_outputs: bool,
        start: int,
        dtype: DTypeLike,
        rng: Seed,
        **block: Any,
    ) -> None:
        own: dict[str, Any] = {"rng": rng, "dtype": dtype}
        block |= {"d_model": d_model, **own}
        self.start, self.scale = start, d_model**-0.5 if scaled_outputs else None
        self.embedding = Embedding(n_tokens, d_model, **own)
        bias = partial(T5Bias, block["n_heads"], n_buckets, max_distance, dtype=dtype)
        self.encoder = Encoder(n_layers, position=bias(), **block)
        self.decoder = Decoder(n_decoder_layers, position=bias(bidirectional=False), **block)
        self.head = None if tied else Linear(d_model, n_tokens, use_bias=False, **own)

    def forward(self, tokens: ArrayLike, written: ArrayLike, mask: Mask | None = None) -> Tensor:
        return self.decode(written, self.encode(tokens, mask), mask)

    @explained
    def encode(self, tokens: ArrayLike, mask: Mask | None = None) -> Tensor:
        """The context that the decoder attends to: (B, n, d_model)."""
        return self.encoder(self.embedding(tokens), mask)

    @explained
    def decode(
        self,
        written: ArrayLike,
        context: Array,
        context_mask: Mask | None = None,
        cache: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Logits of the token after each written one, for a context that `encode` gave."""
        X = self.decoder(self.embedding(written), context, None, context_mask, cache=cache)
        X = X if self.scale is None else mg.scale(X, self.scale)  # (B, m, d_model)
        return self.embedding.as_linear(X) if self.head is None else self.head(X)

    @explained
    def writer(
        self, rows: Sequence[NDArray[np.integer]]
    ) -> tuple[AnsweringModel, list[NDArray[np.intp]]]:
        """For `generate`: a model that has read these rows, and the first token of each answer."""
        tokens, lengths = padded_rows(rows)
        mask = padding_mask(lengths) if (lengths < lengths.max()).any() else None
        with mg.no_grad():
            context = self.encode(tokens, mask)
        return AnsweringModel(self, context, mask), [np.array([self.start]) for _ in rows]


class AnsweringModel:
    """A TextToText that has read a text: called on the answer so far, it gives the next logits."""

    def __init__(self, model: TextToText, context: Tensor, mask: Mask | None) -> None:
        self.model = model
        self.context = context
        self.mask = mask
        self.decoder, self.parameters = model.decoder, model.parameters

    def __call__(self, tokens: ArrayLike, cache: Sequence[KVCache] | None = None) -> Tensor:
        return self.model.decode(tokens, self.context, self.mask, cache=cache)
