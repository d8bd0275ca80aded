"""What is in a checkpoint, from its headers alone: sizes, memory, and what would not fit."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from minigrad.errors import ArgumentError, explained

from ..layer_costs import CostCounter, copy_of_shapes, kv_cache_bytes
from ..linear import check_sizes
from .files import DTYPE_NAMES, Folder, open_folder
from .loading import read_settings, unfilled
from .models import Pretrained
from .text_to_text import TextToText

__all__ = ["Checkpoint", "Memory", "describe"]

SIZE_KEYS = "n_layers n_decoder_layers d_model n_heads n_kv_heads d_k d_ff n_tokens max_len"


@dataclass(frozen=True)
class Memory:
    """About how many bytes a pass of batch × tokens takes in a dtype.

    Attributes: weights; run: with what a pass without gradients holds at most; cache: keys and
        values that `generate` keeps, 0 of an encoder; train: weights, their gradients, Adam's two
        moments, and what a pass and its loss keep for backward.
    """

    batch: int
    tokens: int
    dtype: str
    weights: int
    run: int
    cache: int
    train: int


@dataclass(frozen=True)
class Checkpoint:
    """What `describe` found in a folder.

    Attributes: family: config.json's model_type.  model: what load_pretrained makes of it, "" if it
        refuses.  sizes: by our names.  parts: parameters by part; where it refuses, entries by the
        first words of the file's names.  stored: by dtype, how many tensors, and their bytes.
        unused: tensors that the model does not compute with.  problems: why it refuses.
        memory: None where it refuses.
    """

    folder: str
    family: str
    model: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    stored: dict[str, tuple[int, int]] = field(default_factory=dict)
    files: int = 0
    unused: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    memory: Memory | None = None


@explained
def describe(
    folder: str | os.PathLike[str],
    tokens: int | None = None,
    batch: int = 1,
    dtype: DTypeLike = np.float32,
) -> Checkpoint:
    """What is in a checkpoint, before it is loaded: config.json and the files' headers are read.

    Args:   tokens, batch, dtype: of the pass whose memory is told; 512 tokens unless given, or as
            many as the model has positions for.
    Raises: FileError as load_pretrained; ArgumentError for more tokens than there are positions.
    """
    opened, dtype = open_folder(folder), np.dtype(dtype)
    entries = opened.json("config.json")
    found = Checkpoint(
        folder=str(opened.path),
        family=str(entries.get("model_type", "")) if isinstance(entries, dict) else "",
        stored=_stored(opened),
        files=len({stored.file for stored in opened.tensors.values()}),
    )
    try:
        model, wrong = unfilled(opened, dtype, compare=False)
    except ArgumentError as error:
        why = str(error).removeprefix("load_pretrained: ")
        return replace(found, parts=_by_name(opened), problems=[why])
    known = {*model.copies} | {line.removesuffix(": unexpected") for line in wrong}
    return replace(
        found,
        model=type(model).__name__,
        sizes=_sizes(opened),
        parts=_parts(model),
        unused=[name for name in model.unused if name not in known],
        problems=wrong,
        memory=_memory(model, tokens, batch, dtype),
    )


def _stored(opened: Folder) -> dict[str, tuple[int, int]]:
    arrays: dict[str, list[int]] = {}
    for stored in opened.tensors.values():
        arrays.setdefault(DTYPE_NAMES[stored.kind], []).append(stored.array.nbytes)
    return {kind: (len(sizes), sum(sizes)) for kind, sizes in arrays.items()}


def _sizes(opened: Folder) -> dict[str, int]:
    _, settings = read_settings(opened)
    settings.setdefault("max_len", opened.json("config.json").get("max_position_embeddings"))
    return {
        name: settings[name] for name in SIZE_KEYS.split() if isinstance(settings.get(name), int)
    }


def _parts(model: Pretrained) -> dict[str, int]:
    """Parameters by part: `*` is any block, and its norms are one part with the last one."""
    parts: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        part = re.sub(r"\.\d+\.", ".*.", path).rpartition(".")[0] or path
        part = re.match(r".*\*\.\w+|\w+", part)[0]  # type: ignore[index]
        parts["norms" if re.search(r"(^|\.)norm", path) else part] += parameter.size
    return dict(parts)


def _by_name(opened: Folder) -> dict[str, int]:
    parts: Counter[str] = Counter()
    for name, stored in opened.tensors.items():
        parts[".".join(name.split(".")[:2])] += stored.array.size
    return dict(parts)


def _memory(model: Pretrained, tokens: int | None, batch: int, dtype: np.dtype[Any]) -> Memory:
    table = getattr(model, "position_embedding", None)
    positions = getattr(model, "max_len", None) or (np.inf if table is None else len(table.P))
    n = int(min(512, positions)) if tokens is None else tokens
    check_sizes("describe", tokens=n, batch=batch)
    if n > positions:
        raise ArgumentError(f"describe: the model has {positions} positions, got tokens={n}")
    weights = sum(p.size * p.dtype.itemsize for p in model.parameters())
    train = 4 * weights + _held(model, batch, n, loss=True)
    blocks = model.decoder.blocks if hasattr(model, "decoder") else []
    attentions = [block.attention for block in blocks]
    attentions += [block.cross_attention for block in blocks if hasattr(block, "cross_attention")]
    cache = sum(kv_cache_bytes(layer, batch, n) for layer in attentions)
    model.freeze()
    return Memory(batch, n, dtype.name, weights, weights + _held(model, batch, n), cache, train)


def _held(model: Pretrained, batch: int, n: int, loss: bool = False) -> int:
    """Bytes that a pass holds at most, beside the weights, found by sending shapes through it."""
    counter = CostCounter()
    tokens = np.zeros((batch, n), np.intp)
    imagined = copy_of_shapes(model, counter)
    before = counter.peak
    out = imagined.forward(*[tokens] * (2 if isinstance(model, TextToText) else 1))
    of_loss = 2 * out.nbytes if loss else 0  # log-probabilities, and the gradient of the logits
    return counter.peak - before + of_loss
