"""Axes: those along which a value was repeated, and the letters that index them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...recording.record import Edge, Entry

__all__ = [
    "broadcasts",
    "in_product",
    "index_of",
    "missing",
    "stack_letters",
]


def stack_letters(ndim: int) -> list[str]:
    """The letters that index a stack of matrices: b, h and g as in an array, or b_1, b_2, …"""
    return list("bhg"[:ndim]) if ndim < 4 else [f"b_{k}" for k in range(1, ndim + 1)]


def missing(shape: tuple[int, ...], whole: tuple[int, ...]) -> list[int]:
    """The axes along which a shape is repeated to fill the whole; a length of 1 repeats nothing."""
    padded = (0,) * (len(whole) - len(shape)) + shape
    return [k for k, (n, m) in enumerate(zip(padded, whole, strict=True)) if n != m != 1]


def broadcasts(shapes: list[tuple[int, ...]], whole: tuple[int, ...]) -> bool:
    try:
        return len(shapes) > 1 and np.broadcast_shapes(*shapes) == whole
    except ValueError:
        return False


def index_of(shape: tuple[int, ...], over: list[int], letters: list[str]) -> str:
    """The letters that index a factor of a stack, of those summed over."""
    shift = len(letters) - len(shape)
    return ",".join(letters[k] for k in over if k >= shift and shape[k - shift] != 1)


def in_product(edge: Edge, user: Entry) -> bool:
    """Whether a use is as a factor in a product of matrices."""
    return user.op == "matmul" or (user.op == "linear" and edge.input != "b")
