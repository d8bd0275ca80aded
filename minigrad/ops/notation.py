r"""Pieces of formulas that depend on a call: its axes, an index, a shape.

An axis is written as NumPy counts it, from 0: `\operatorname{sum}_{0,2}(x)`. Without a subscript a
sum is over all axes, and a softmax along the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Formula", "axes_of", "below", "index", "shape_product"]

Formula: TypeAlias = Callable[..., str]  # of a call

LISTED = 6  # integers of a list that are written out


def axes_of(ndim: int, axis: Any = None) -> tuple[int, ...]:
    """The axes that a setting names, counted from 0; all of them for None.

    >>> axes_of(3), axes_of(3, (-1, 0))
    ((0, 1, 2), (0, 2))
    """
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(sorted(int(k) % ndim for k in axes)) if ndim else ()


def below(ndim: int, axis: Any) -> str:
    """A subscript of these axes; none for None.

    >>> below(3, (0, -1)), below(3, None)
    ('_{0,2}', '')
    """
    return "" if axis is None else f"_{{{','.join(map(str, axes_of(ndim, axis)))}}}"


def shape_product(shape: Sequence[int]) -> str:
    r"""A shape as a product of sizes.

    >>> shape_product((2, 7)), shape_product(())
    ('2 \\times 7', '1')
    """
    return r" \times ".join(map(str, shape)) or "1"


def index(value: Any) -> str:
    r"""An index as it stands in brackets; of a long array in it, the shape.

    >>> index((..., slice(None, 2))), index(-1)
    ('\\ldots, {:}2', '-1')
    >>> index((slice(None, None, -1), None, np.zeros((1, 3), int)))
    '{:}{:}-1, \\text{new}, \\text{array}_{1 \\times 3}'
    """
    parts = value if isinstance(value, tuple) else (value,)
    return ", ".join(map(_part, parts)) or r"\,"


def _part(value: Any) -> str:
    if value is None:
        return r"\text{new}"
    if value is Ellipsis:
        return r"\ldots"
    if isinstance(value, slice):
        bounds = ["" if n is None else str(n) for n in (value.start or None, value.stop)]
        return "{:}".join(bounds) + (f"{{:}}{value.step}" if value.step else "")
    if isinstance(value, list | tuple) and len(value) <= LISTED and np.ndim(value) == 1:
        return f"[{', '.join(map(str, value))}]"
    if np.ndim(value) == 0 and not isinstance(value, np.ndarray):
        return str(value)
    return rf"\text{{array}}_{{{shape_product(np.shape(value))}}}"
