"""What `load_pretrained` returns: layers, and beside them the checkpoint they came from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigrad.errors import ArgumentError, FileError, explained

from ..module import Module
from ..transformer import LanguageModel
from .family import TensorSource, joined
from .files import Folder, cast_back, imported, write_folder

__all__ = ["Pretrained", "PretrainedLanguageModel", "set_windows", "tokenizer_of"]


def tokenizer_of(folder: Folder) -> Any:
    """A folder's tokenizer, of the tokenizers library; it neither pads nor truncates.

    Raises: FileError without a tokenizer.json, or for one that the library cannot read.
    """
    path = folder.path / "tokenizer.json"
    if "tokenizer.json" not in folder.files:
        remedy = "copy that of the model it was trained from"
        if folder.files.keys() & {"vocab.txt", "vocab.json"}:
            remedy = (
                "transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder) "
                "writes it from the vocabulary that is there"
            )
        raise FileError(f"tokenizer: {folder.path} has no tokenizer.json; {remedy}")
    tokenizers = imported("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(folder.files["tokenizer.json"].decode())
    except Exception as error:  # the library raises Exception itself
        raise FileError(f"tokenizer: {path} is damaged: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class Pretrained(Module):
    """What a model of `load_pretrained` has beside its layers.

    Attributes: unused: the file's tensors that the model does not compute with, by name.
    """

    folder: Folder
    copies: Mapping[str, str] = MappingProxyType({})  # by the file's name: our path
    sources: dict[str, TensorSource]  # by our path

    @property
    def unused(self) -> list[str]:
        used = {source.name for source in self.sources.values()}
        return [name for name in self.folder.tensors if name not in used]

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer, of the tokenizers library; it neither pads nor truncates."""
        return tokenizer_of(self.folder)

    @property
    def end_tokens(self) -> list[int]:
        """After which tokens `generate` ends, as generation_config.json says, or config.json."""
        for name in ("generation_config.json", "config.json"):
            entries = self.folder.json(name) if name in self.folder.files else {}
            tokens = entries.get("eos_token_id") if isinstance(entries, dict) else None
            if tokens is None:
                continue
            ends = tokens if isinstance(tokens, list) else [tokens]
            if any(not isinstance(end, int) or isinstance(end, bool) for end in ends):
                raise ArgumentError(
                    f"generate: {self.folder.path / name}: eos_token_id must be an integer or a "
                    f"list of them, got {tokens!r:.60}; pass stop= instead"
                )
            return ends
        return []

    @explained
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as it was read: the same files, names and dtypes.

        Entries that were not trained keep their bytes, unless `dtype` was narrower than the file's.
        """
        parameters, tensors = dict(self.named_parameters()), dict(self.folder.tensors)
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        if lost := self.sources.keys() - parameters:
            raise ArgumentError(
                f"save: {min(lost)} is wrapped or quantized; merge its adapters first"
            )
        for path, (name, how) in self.sources.items():
            parts.setdefault(name, {})[how] = np.asarray(parameters[path].numpy())
        for name, by_how in parts.items():
            stored = tensors[name]
            tensors[name] = stored._replace(array=cast_back(joined(by_how), stored.kind))
        for name, path in self.copies.items():
            tensors[name] = tensors[name]._replace(array=tensors[self.sources[path].name].array)
        write_folder(folder, self.folder.files, tensors)


class PretrainedLanguageModel(Pretrained, LanguageModel):
    """A LanguageModel that `load_pretrained` made."""

    def __init__(self, windows: Sequence[int | None] = (), **settings: Any) -> None:
        super().__init__(**settings)
        set_windows(self.decoder.blocks, windows)


def set_windows(blocks: Sequence[Module], windows: Sequence[int | None]) -> None:
    """Give each block's attention its window, if there are any."""
    for block, window in zip(blocks, windows, strict=False):
        block.attention.window = window
