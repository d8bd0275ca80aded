"""The axes along which an input of an op was repeated, so that its gradient is a sum over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..recording.record import Edge, Entry
from ..recording.trace import TraceRecord
from .formula import Formula, parse
from .formula.tree import TRANSPOSE, items_of, keeps_shape

__all__ = ["Repeats", "in_product", "repeats", "stack_letters"]


def letters(ndim: int) -> list[str]:
    """The letters that index an array's axes; a fifth is g, of what is grouped.

    >>> letters(3), letters(5), letters(6)[-1]
    (['b', 'i', 'j'], ['b', 'h', 'g', 'i', 'j'], 'i_6')
    """
    usual = ["", "i", "ij", "bij", "bhij", "bhgij"]
    return list(usual[ndim]) if ndim < len(usual) else [f"i_{k}" for k in range(1, ndim + 1)]


def repeated(shape: tuple[int, ...], whole: tuple[int, ...]) -> list[int]:
    """The axes along which a shape is repeated to fill the whole; a length of 1 repeats nothing.

    >>> repeated((3, 1), (2, 3, 5))
    [0, 2]
    """
    padded = (*[0] * (len(whole) - len(shape)), *shape)
    return [k for k, (n, m) in enumerate(zip(padded, whole, strict=True)) if n != m != 1]


class Repeats(NamedTuple):
    """Letters and lengths of the axes: those of the result, or of a stack of matrices."""

    letters: list[str]
    sizes: list[int]
    in_stack: bool = False


def repeats(trace: TraceRecord, edge: Edge) -> Repeats | None:
    """The axes over which the engine sums what a rule gives; None if the rule shows its own sum."""
    source, user = trace[edge.source], trace[edge.target]
    rule = parse(user.vjp_tex.get(edge.input, ""))
    product = in_product(trace, edge)
    if product:
        shape, whole = source.shape[:-2], stack(trace, user)
        names = stack_letters(len(whole))
    elif keeps_shape(rule) and _fits(source.shape, user.shape):
        shape, whole = source.shape, user.shape
        names = letters(len(whole))
    else:
        return None
    axes = repeated(shape, whole)
    return Repeats([names[k] for k in axes], [whole[k] for k in axes], product) if axes else None


def in_product(trace: TraceRecord, edge: Edge) -> bool:
    """Whether a use is a factor in a product of matrices, by the form of its rule."""
    factors = items_of(parse(trace[edge.target].vjp_tex.get(edge.input, "")))
    return len(factors) > 1 and all(map(_is_matrix, factors))


def _is_matrix(node: Formula) -> bool:
    """A slot, as it is or transposed."""
    transposed = node.kind == "script" and node.parts[2] == TRANSPOSE
    return (node.parts[0] if transposed else node).kind == "slot"


def stack(trace: TraceRecord, user: Entry) -> tuple[int, ...]:
    factors = [e for e in trace.into(user) if in_product(trace, e)]
    return np.broadcast_shapes(*(trace[e.source].shape[:-2] for e in factors))


def stack_letters(ndim: int) -> list[str]:
    """The letters that index a stack of matrices: b, h and g as in an array, or b_1, b_2, …"""
    return list("bhg"[:ndim]) if ndim < 4 else [f"b_{k}" for k in range(1, ndim + 1)]


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, whole) == whole
    except ValueError:
        return False
