r"""Pieces of formulas for declarations whose text depends on the call: axes, indices, shapes.

A formula names the axes of an array by letters: b for a batch, h for heads, i and j for the last
two. `x` is what a formula is given of an input: its shape and dtype, or an array that has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.op import Axes, Shaped

__all__ = [
    "along",
    "axes_of",
    "axis_letters",
    "axis_subscript",
    "entries",
    "function_at",
    "index",
    "letters",
    "repeated",
    "reshaped",
    "shape_product",
    "span",
]

LISTED = 6  # integers of a list that are written out


def letters(ndim: int) -> list[str]:
    """The letters that index an array's axes.

    A fifth is g, of what is grouped: heads that share keys, or chunks of a sequence.

    >>> letters(3), letters(5), letters(6)[-1]
    (['b', 'i', 'j'], ['b', 'h', 'g', 'i', 'j'], 'i_6')
    """
    usual = ["", "i", "ij", "bij", "bhij", "bhgij"]
    return list(usual[ndim]) if ndim < len(usual) else [f"i_{k}" for k in range(1, ndim + 1)]


def axes_of(x: Shaped, axis: Axes | list[int] = None) -> list[int]:
    """The axes of x that a setting names, counted from 0; all of them for None."""
    if axis is None:
        return list(range(x.ndim))
    named = axis if isinstance(axis, tuple | list) else (axis,)
    return sorted(int(a) % x.ndim for a in named) if x.ndim else []


def axis_letters(x: Shaped, axis: Axes) -> str:
    """The letters of the axes that a setting names.

    >>> axis_letters(np.ones((2, 3, 5)), (0, -1))
    'b,j'
    """
    known = letters(x.ndim)
    return ",".join(known[k] for k in axes_of(x, axis))


def axis_subscript(x: Shaped, axis: Axes = None) -> str:
    """A subscript of these letters; none where the setting names all axes.

    >>> axis_subscript(np.ones((2, 3)), 0), axis_subscript(np.ones((2, 3)))
    ('_{i}', '')
    """
    axes = axes_of(x, axis)
    return f"_{{{axis_letters(x, axis)}}}" if axes and len(axes) < x.ndim else ""


def entries(x: Shaped) -> str:
    """The subscript of one entry; none for a scalar.

    >>> entries(np.ones((2, 3)))
    '_{i,j}'
    """
    return f"_{{{','.join(letters(x.ndim))}}}" if x.ndim else ""


def shape_product(shape: Sequence[int]) -> str:
    r"""A shape as a product of sizes.

    >>> shape_product((2, 7)), shape_product(())
    ('2 \\times 7', '1')
    """
    return r" \times ".join(map(str, shape)) or "1"


def reshaped(shape: Sequence[int], what: str) -> str:
    r"""The formula of entries in another shape.

    >>> reshaped((2, 7), "<x>")
    '\\operatorname{reshape}_{2 \\times 7}(<x>)'
    """
    return rf"\operatorname{{reshape}}_{{{shape_product(shape)}}}({what})"


def function_at(name: str, axes: Sequence[int], what: str) -> str:
    r"""The formula of a function along some axes, by their positions; without them, of all.

    >>> function_at("flip", [0, 2], "<x>"), function_at("flip", [], "<x>")
    ('\\operatorname{flip}_{0,2}(<x>)', '\\operatorname{flip}(<x>)')
    """
    below = f"_{{{','.join(map(str, axes))}}}" if axes else ""
    return rf"\operatorname{{{name}}}{below}({what})"


def repeated(shape: Sequence[int], whole: Sequence[int]) -> list[int]:
    """The axes along which a shape is repeated to fill the whole; a length of 1 repeats nothing.

    >>> repeated((3, 1), (2, 3, 5))
    [0, 2]
    """
    padded = (*[0] * (len(whole) - len(shape)), *shape)
    return [k for k, (n, m) in enumerate(zip(padded, whole, strict=True)) if n != m != 1]


# ---------------------------------------------------------------- indices


def along(axis: int, ndim: int, part: str) -> str:
    r"""The index of a part along one axis.

    >>> along(1, 3, "2"), along(2, 3, "2"), along(0, 3, "2")
    ('{:}, 2', '\\ldots, 2', '2')
    """
    if ndim > 1 and axis % ndim == ndim - 1:
        return rf"\ldots, {part}"
    return ", ".join(["{:}"] * (axis % ndim) + [part])


def span(start: int | None, stop: int | None, step: int | None = None) -> str:
    r"""A slice.

    >>> span(0, 2), span(2, 4), span(None, None, -1)
    ('{:}2', '2{:}4', '{:}{:}-1')
    """
    end = "" if stop is None else stop
    return f"{start or ''}{{:}}{end}" + (f"{{:}}{step}" if step else "")


def index(value: Any) -> str:
    r"""An index as it stands in brackets; of an array in it, the shape.

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
        return span(value.start, value.stop, value.step)
    if isinstance(value, list | tuple) and len(value) <= LISTED and np.ndim(value) == 1:
        return f"[{', '.join(map(str, value))}]"
    if np.ndim(value) == 0 and not isinstance(value, np.ndarray):
        return str(value)
    return rf"\text{{array}}_{{{shape_product(np.shape(value))}}}"
