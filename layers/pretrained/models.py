"""What `load_pretrained` returns: layers, and beside them the checkpoint they came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, FileError

from ..embedding import Embedding
from ..feed_forward import activation_of
from ..linear import Linear
from ..module import Module
from ..position import LearnedPosition
from ..transformer import Encoder, LanguageModel
from .files import Folder, imported, narrowed, write_folder

__all__ = ["Pretrained", "PretrainedLanguageModel", "TextEncoder", "tokenizer_of"]


def tokenizer_of(folder: Folder) -> Any:
    """A folder's tokenizer, of the tokenizers library; it neither pads nor truncates.

    Raises: FileError without a tokenizer.json, or for one that the library cannot read.
    """
    path = folder.path / "tokenizer.json"
    if "tokenizer.json" not in folder.files:
        raise FileError(f"tokenizer: {folder.path} has no tokenizer.json")
    tokenizers = imported("tokenizers")
    try:
        made = tokenizers.Tokenizer.from_str(folder.files["tokenizer.json"].decode())
    except Exception as error:  # the library raises Exception itself
        raise FileError(f"tokenizer: {path} is damaged: {error}") from error
    made.no_padding()
    made.no_truncation()
    return made


class Pretrained(Module):
    """What a model of `load_pretrained` has beside its layers.

    Attributes: unused: the file's tensors that the model does not compute with, by name.
    """

    folder: Folder
    copies: Mapping[str, str] = MappingProxyType({})  # by the file's name: our path
    sources: dict[str, tuple[str, str]]  # by our path: the file's name, and what is done to it

    @property
    def unused(self) -> list[str]:
        used = {name for name, _ in self.sources.values()}
        return [name for name in self.folder.tensors if name not in used]

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer, of the tokenizers library; it neither pads nor truncates."""
        return tokenizer_of(self.folder)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as it was read: the same files, names and dtypes.

        Entries that were not trained keep their bytes, unless `dtype` was narrower than the file's.
        """
        parameters, tensors = dict(self.named_parameters()), dict(self.folder.tensors)
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for path, (name, how) in self.sources.items():
            array = parameters[path].numpy()
            parts.setdefault(name, {})[how] = np.asarray(array.T if how == "T" else array)
        for name, by_part in parts.items():
            joined = [by_part[how] for how in sorted(by_part)]
            array = joined[0] if len(joined) == 1 else np.concatenate(joined, axis=-1)
            stored = tensors[name]
            tensors[name] = stored._replace(array=narrowed(array, stored.kind))
        for name, path in self.copies.items():
            tensors[name] = tensors[name]._replace(array=tensors[self.sources[path][0]].array)
        write_folder(folder, self.folder.files, tensors)


class PretrainedLanguageModel(Pretrained, LanguageModel):
    """A LanguageModel that `load_pretrained` made."""

    def __init__(self, windows: list[int | None] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        for block, window in zip(self.decoder.blocks, windows or [], strict=False):
            block.attention.window = window


class MaskedHead(Module):
    """What a BERT guesses at each place: logits = norm(f(X W + b)) Eᵀ + bias, E the embedding."""

    def __init__(self, n_tokens: int, d_model: int, activation: str, norm: Any, **own: Any) -> None:
        self.transform = Linear(d_model, d_model, **own)
        self.activation = activation_of("MaskedHead", activation)
        self.norm = norm(d_model, dtype=own["dtype"])
        self.bias = mg.tensor(np.zeros(n_tokens, own["dtype"]), requires_grad=True)

    def forward(self, X: Any, embedding: Embedding) -> Any:
        T = self.norm(self.activation(self.transform(X)))  # (B, n, d_model)
        return mg.add(embedding.as_linear(T), self.bias).named("logits")  # (B, n, n_tokens)


class TextEncoder(Pretrained):
    """A BERT: embeddings of tokens, positions and segments, a norm, and an Encoder.

    Attributes: embedding, position_embedding, segment_embedding, norm, encoder; pooler (a Linear)
             and head (a MaskedHead), None where the checkpoint has none.
    Shapes:  tokens (B, n) of integers, mask as Encoder's (see padding_mask), segments (B, n), 0
             unless given → (B, n, d_model)
    """

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        *,
        max_len: int,
        n_segments: int,
        pooled: bool,
        masked: bool,
        dtype: DTypeLike,
        rng: Any,
        **block: Any,
    ) -> None:
        own = {"rng": rng, "dtype": dtype}
        self.embedding = Embedding(n_tokens, d_model, **own)
        self.position_embedding = LearnedPosition(max_len, d_model, **own)
        self.segment_embedding = Embedding(n_segments, d_model, **own)
        self.norm = block["norm"](d_model, dtype=dtype)
        self.encoder = Encoder(d_model=d_model, norm_order="post", **block, **own)
        self.pooler = Linear(d_model, d_model, **own) if pooled else None
        chosen = block["activation"], block["norm"]
        self.head = MaskedHead(n_tokens, d_model, *chosen, **own) if masked else None

    def forward(self, tokens: Any, mask: Any = None, *, segments: Any = None) -> Any:
        segments = np.zeros(np.shape(tokens), np.intp) if segments is None else segments
        X = mg.add(self.embedding(tokens), self.segment_embedding(segments))  # (B, n, d_model)
        return self.encoder(self.norm(self.position_embedding(X)), mask)  # (B, n, d_model)

    def logits(self, X: Any) -> Any:
        """For each place, a logit for each token that could stand there: of what forward gave."""
        return self._part("head")(X, self.embedding)

    def pooled(self, X: Any) -> Any:
        """tanh(x W + b) of the first token x, which BERT's classifiers take: (B, d_model)."""
        return mg.tanh(self._part("pooler")(X[..., 0, :])).named("pooled")

    def sentence(self, tokens: Any, lengths: Any = None) -> Any:
        """One vector for each row of tokens, as the checkpoint's 1_Pooling and modules.json say.

        Args:   lengths: how many tokens of each row are real; all unless given.
        Shapes: tokens (B, n), lengths (B,) → (B, d_model)
        """
        B, n = np.shape(tokens)
        ends = np.full(B, n) if lengths is None else np.asarray(lengths)
        real = np.arange(n) < ends[:, None, None]  # (B, 1, n)
        X = self(tokens, real)  # (B, n, d_model)
        if self._pooling() == "pooling_mode_cls_token":
            s = X[:, 0]
        else:
            weights = real / np.sum(real, axis=-1, keepdims=True)
            s = mg.squeeze(mg.matmul(weights.astype(X.dtype), X), 1)
        return (s / mg.sqrt(mg.sum(s * s, axis=-1, keepdims=True)) if self._unit() else s).named(
            "sentence"
        )

    def _part(self, name: str) -> Any:
        if getattr(self, name) is None:
            raise ArgumentError(f"TextEncoder: {self.folder.path} has no {name}")
        return getattr(self, name)

    def _pooling(self) -> str:
        name = "1_Pooling/config.json"
        if name not in self.folder.files:
            raise FileError(f"sentence: {self.folder.path} has no {name}, so none is defined")
        modes = [
            key for key, value in self.folder.json(name).items() if value is True and "mode" in key
        ]
        if modes not in (["pooling_mode_cls_token"], ["pooling_mode_mean_tokens"]):
            raise ArgumentError(f"sentence: {name}: only mean or cls tokens, got {modes}")
        return str(modes[0])

    def _unit(self) -> bool:
        """Whether vectors are divided by their length."""
        listed = self.folder.json("modules.json") if "modules.json" in self.folder.files else []
        kinds = [str(module["type"]).rpartition(".")[2] for module in listed]
        if unknown := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
            raise ArgumentError(f"sentence: modules.json: {sorted(unknown)} is not understood")
        return "Normalize" in kinds
