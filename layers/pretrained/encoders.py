"""Checkpoints that read text: BERT and its heads, and an encoder of T5."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad import Tensor
from minigrad.errors import ArgumentError, FileError, ShapeError, explained

from ..arrays import Array, Mask
from ..embedding import Embedding
from ..feed_forward import activation_of
from ..initialisers import Seed
from ..linear import Linear
from ..mask import padding_mask
from ..module import Module
from ..position import LearnedPosition
from ..relative import T5Bias
from ..transformer import Encoder
from .files import Folder
from .models import Pretrained, set_windows

__all__ = ["POOLING", "TextEncoder"]

POOLING = "1_Pooling/config.json"  # of the library sentence-transformers
MODES = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
}


class MaskedHead(Module):
    """Logits of the token at each place: norm(f(X W + b)) Eᵀ + bias, where E is the embedding."""

    def __init__(
        self, n_tokens: int, d_model: int, activation: str, norm: Callable[..., Module], **own: Any
    ) -> None:
        self.transform = Linear(d_model, d_model, **own)
        self.activation = activation_of("MaskedHead", activation)
        self.norm = norm(d_model, dtype=own["dtype"])
        self.bias = mg.tensor(np.zeros(n_tokens, own["dtype"]), requires_grad=True)

    def forward(self, X: Tensor, embedding: Embedding) -> Tensor:
        T = self.norm(self.activation(self.transform(X)))  # (B, n, d_model)
        return mg.add(embedding.as_linear(T), self.bias).named("logits")  # (B, n, n_tokens)


class TextEncoder(Pretrained):
    """A BERT, T5's encoder, or a language model without an output layer: embeddings of tokens, and
    where it has them of positions and segments and a norm of their sum, then an Encoder.

    Attributes: embedding, position_embedding, segment_embedding, norm, encoder; pooler, classifier,
             answer and follows (Linears) and head (a MaskedHead); None where there is none.
             pad: the token that has no position of its own, where those of others are counted from
             the row after its; max_len: how many tokens have a position.
    Shapes:  tokens (B, n) of integers, mask as Encoder's (see padding_mask), segments (B, n), 0
             unless given → (B, n, d_model)
    """

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        *,
        max_len: int | None = None,
        pad: int | None = None,
        n_segments: int | None = None,
        n_buckets: int | None = None,
        max_distance: int = 128,
        scaled: bool = False,
        windows: Sequence[int | None] = (),
        head_activation: str | None = None,
        pooled_by: str = "tanh",
        norm_order: str = "post",
        heads: Collection[str] = (),
        n_labels: int = 2,
        of_sentence: bool = False,
        dtype: DTypeLike,
        rng: Seed,
        **block: Any,
    ) -> None:
        own: dict[str, Any] = {"rng": rng, "dtype": dtype}
        self.of_sentence = of_sentence
        self.pad = pad
        self.max_len = max_len
        self.pooled_by = activation_of("TextEncoder", pooled_by)
        self.embedding = Embedding(n_tokens, d_model, scaled, **own)
        rows = (max_len or 0) + (0 if pad is None else pad + 1)
        self.position_embedding = LearnedPosition(rows, d_model, **own) if rows else None
        self.segment_embedding = Embedding(n_segments, d_model, **own) if n_segments else None
        self.norm = block["norm"](d_model, dtype=dtype) if norm_order == "post" else None
        if n_buckets is not None:
            block["position"] = T5Bias(block["n_heads"], n_buckets, max_distance, dtype=dtype)
        self.encoder = Encoder(d_model=d_model, norm_order=norm_order, **block, **own)
        set_windows(self.encoder.blocks, windows)
        self.head = None
        if "head" in heads:
            activation = head_activation or block["activation"]
            self.head = MaskedHead(n_tokens, d_model, activation, block["norm"], **own)
        widths = {"pooler": d_model, "classifier": n_labels, "answer": 2, "follows": 2}
        for name, width in widths.items():
            setattr(self, name, Linear(d_model, width, **own) if name in heads else None)

    def forward(
        self, tokens: ArrayLike, mask: Mask | None = None, *, segments: ArrayLike | None = None
    ) -> Tensor:
        X = self.embedding(tokens)  # (B, n, d_model)
        if self.segment_embedding is not None:
            segments = np.zeros(np.shape(tokens), np.intp) if segments is None else segments
            X = mg.add(X, self.segment_embedding(segments))
        elif segments is not None:
            raise ArgumentError(f"TextEncoder: {self.folder.path} has no embedding of segments")
        if self.position_embedding is not None:
            X = self.position_embedding(X, self._positions(tokens))
        return self.encoder(X if self.norm is None else self.norm(X), mask)  # (B, n, d_model)

    def _positions(self, tokens: ArrayLike) -> NDArray[np.intp] | None:
        """Where each token stands; with `pad`, as RoBERTa counts."""
        if self.pad is None:
            return None
        real = (np.asanyarray(tokens) != self.pad).astype(np.intp)
        return self.pad + np.cumsum(real, axis=-1) * real

    @explained
    def logits(self, X: Array) -> Tensor:
        """What the checkpoint's head says of what forward gave.

        Returns: of a masked language model a logit for each token that could stand at each place,
                 (B, n, n_tokens); of a classifier (B, n_labels), or (B, n, n_labels) if it is of
                 tokens; of questions (B, n, 2), whether the answer starts there, and ends.
        """
        if self.head is not None:
            return self.head(X, self.embedding)
        if self.classifier is not None:
            return self.classifier(self.pooled(X) if self.of_sentence else X).named("logits")
        return self._part("answer", "head")(X).named("logits")

    @explained
    def next_sentence(self, X: Array) -> Tensor:
        """Logits of: the second segment follows the first, and it does not: (B, 2)."""
        return self._part("follows")(self.pooled(X)).named("logits")

    @explained
    def pooled(self, X: Array) -> Tensor:
        """f(x W + b) of the first token x, for classifiers; BERT's f is tanh: (B, d_model)."""
        return self.pooled_by(self._part("pooler")(X[..., 0, :])).named("pooled")

    @explained
    def sentence(self, tokens: ArrayLike, lengths: ArrayLike | None = None) -> Tensor:
        """One vector for each row of tokens, as the checkpoint's 1_Pooling and modules.json say.

        Args:   lengths: how many tokens of each row are real; all unless given.
        Shapes: tokens (B, n), lengths (B,) → (B, d_model)
        """
        pooling = Pooling.of(self.folder)
        try:
            B, n = np.shape(tokens)
        except ValueError:  # other axes, or rows of several lengths
            raise ShapeError(
                "sentence: tokens must be (B, n): one text is a row, sentence([tokens]); shorter "
                "rows are filled up with any token, and lengths= says how long each is"
            ) from None
        ends = np.full(B, n) if lengths is None else np.asarray(lengths)
        if ends.shape != (B,) or ends.min() < 1 or ends.max() > n:
            raise ArgumentError(
                f"sentence: lengths must be {B} integers of 1 to {n}, got {lengths!s}"
            )
        real = np.arange(n) < ends[:, None]  # (B, n)
        return pooling(self(tokens, padding_mask(real, dtype=self.embedding.W.dtype)), real)

    def _part(self, name: str, called: str = "") -> Linear:
        if getattr(self, name) is None:
            raise ArgumentError(f"TextEncoder: {self.folder.path} has no {called or name}")
        return getattr(self, name)


class Pooling(NamedTuple):
    """How the vectors of a text's tokens become one, as sentence-transformers' files say.

    mode: "cls" takes the first, "mean" and "max" are over the real ones.  unit: scale to length 1.
    """

    mode: str
    unit: bool

    @classmethod
    def of(cls, folder: Folder) -> Pooling:
        """Raises: FileError without 1_Pooling; ArgumentError for what is not understood there."""
        if POOLING not in folder.files:
            raise FileError(f"sentence: {folder.path} has no {POOLING}, so none is defined")
        config = folder.json(POOLING)
        entries = config.items() if isinstance(config, dict) else [("mode", config)]
        found = [x if key == "pooling_mode" else key for key, x in entries if x and "mode" in key]
        modes = [mode for mode, name in MODES.items() if found in ([mode], [name])]
        if not modes:
            names = ", ".join(MODES.values())
            raise ArgumentError(f"sentence: {POOLING} must have one of {names}, got {found}")
        listed = folder.json("modules.json") if "modules.json" in folder.files else []
        kinds = [str(m.get("type")) if isinstance(m, dict) else repr(m) for m in listed]
        kinds = [kind.rpartition(".")[2] for kind in kinds]
        if unknown := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
            raise ArgumentError(f"sentence: modules.json: {sorted(unknown)} is not understood")
        return cls(modes[0], "Normalize" in kinds)

    def __call__(self, X: Tensor, real: NDArray[np.bool_]) -> Tensor:
        """Shapes: X (B, n, d_model), real (B, n) → (B, d_model)"""
        if self.mode == "cls":
            s = X[:, 0]
        elif self.mode == "max":
            s = mg.max(mg.where(real[..., None], X, -np.inf), axis=1)
        else:
            weights = (real / real.sum(axis=-1, keepdims=True)).astype(X.dtype)
            s = mg.squeeze(mg.matmul(weights[:, None], X), 1)
        if self.unit:
            s = s / mg.sqrt(mg.sum(s * s, axis=-1, keepdims=True))
        return s.named("sentence")
