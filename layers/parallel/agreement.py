"""Checks that every rank has the same weights, by checksums; replaces modules in a model."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from minigrad.distributed import Ranks
from minigrad.errors import RankError

from ..module import Module
from ..parameters import join_path

__all__ = ["check_alike", "replace_modules"]


def check_alike(call: str, model: Module, ranks: Ranks) -> None:
    """Raise RankError, naming a parameter, unless the model is the same on every rank."""
    if ranks.size == 1:
        return
    own = {path: _checksum(p.numpy()) for path, p in model.named_parameters()}
    first, *others = ranks.collect(own)
    for rank, checksums in enumerate(others, 1):
        for path in dict.fromkeys([*first, *checksums]):
            if first.get(path) != checksums.get(path):
                raise RankError(
                    f"{call}: {path} of rank {rank} is not that of rank 0; draw weights from the "
                    "same seed on every rank, or load the same file"
                )


def _checksum(array: NDArray[Any]) -> tuple[tuple[int, ...], str, int]:
    return array.shape, str(array.dtype), zlib.crc32(array.tobytes())


def replace_modules(model: Module, replacement: Callable[[Module, str], Module]) -> None:
    """Put `replacement(child, path)` in the place of each module within, in lists and dicts too."""
    for path, module in list(model.named_modules()):
        for name, held in list(vars(module).items()):
            whole = join_path(path, name)
            if isinstance(held, Module):
                setattr(module, name, replacement(held, whole))
            elif isinstance(held, list | dict):
                pairs = held.items() if isinstance(held, dict) else enumerate(held)
                for key, child in list(pairs):
                    if isinstance(child, Module):
                        held[key] = replacement(child, f"{whole}.{key}")
