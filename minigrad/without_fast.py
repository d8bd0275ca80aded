"""In place of `minigrad/fast` where that is deleted or turned off: errors that say so."""

from __future__ import annotations

from typing import Any, NoReturn

from .errors import MissingDependencyError

__all__ = ["compile", "tiled_attention"]


def compile(step: Any) -> NoReturn:
    """Refuse to compile.  Raises: MissingDependencyError."""
    _refuse("compile(step)", "call the step itself")


def tiled_attention(*inputs: Any, **settings: Any) -> NoReturn:
    """Refuse attention in tiles.  Raises: MissingDependencyError."""
    _refuse("tiled_attention(q, k, v)", "use scaled_dot_product_attention")


def _refuse(call: str, remedy: str) -> NoReturn:
    raise MissingDependencyError(
        f"{call} is part of minigrad/fast, which is missing or turned off by MINIGRAD_FAST=0; "
        f"{remedy}"
    )
