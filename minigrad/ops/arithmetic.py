"""Arithmetic of two arrays, entry by entry; they broadcast as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.op import op
from .elementwise import elementwise
from .samples import each, free, pairs

__all__ = ["add", "divide", "multiply", "negative", "power", "subtract"]


def broadcastable(a: Any, b: Any, *_: Any) -> str | None:
    """The axis at which two shapes fail to broadcast, in words."""
    shapes = np.shape(a), np.shape(b)
    for axis in range(1, min(map(len, shapes)) + 1):
        n, m = shapes[0][-axis], shapes[1][-axis]
        if n != m and 1 not in (n, m):
            return f"shapes must broadcast, but axis -{axis} has {n} and {m}"
    return None


@op(
    tex=r"<a> + <b>",
    vjp_tex={"a": r"<g>", "b": r"<g>"},
    flops=each(1),
    vjp_flops={"a": free, "b": free},
    samples=pairs(),
    requires=broadcastable,
)
def add(a, b):
    """Sum of two arrays, entry by entry: y = a + b.

    >>> add(np.array([1.0, 2.0]), 3.0)
    array([4., 5.])
    """
    return np.add(a, b)


@add.vjp("a")
def _(g):
    return g


@add.vjp("b")
def _(g):
    return g


@op(
    tex=r"<a> - <b>",
    vjp_tex={"a": r"<g>", "b": r"-<g>"},
    flops=each(1),
    vjp_flops={"a": free, "b": each(1)},
    samples=pairs(),
    requires=broadcastable,
)
def subtract(a, b):
    """Difference of two arrays, entry by entry: y = a - b.

    >>> subtract(np.array([1.0, 2.0]), 3.0)
    array([-2., -1.])
    """
    return np.subtract(a, b)


@subtract.vjp("a")
def _(g):
    return g


@subtract.vjp("b")
def _(g):
    return -g


@op(
    tex=r"<a> \odot <b>",
    vjp_tex={"a": r"<g> \odot <b>", "b": r"<g> \odot <a>"},
    flops=each(1),
    vjp_flops={"a": each(1), "b": each(1)},
    samples=pairs(),
    requires=broadcastable,
)
def multiply(a, b):
    """Product of two arrays, entry by entry: y = a b.

    >>> multiply(np.array([1.0, 2.0]), 3.0)
    array([3., 6.])
    """
    return np.multiply(a, b)


@multiply.vjp("a")
def _(g, b):
    return g * b


@multiply.vjp("b")
def _(g, a):
    return g * a


@op(
    tex=r"<a> \oslash <b>",
    vjp_tex={"a": r"<g> \oslash <b>", "b": r"-<g> \odot <out> \oslash <b>"},
    flops=each(1),
    vjp_flops={"a": each(1), "b": each(3)},
    samples=pairs(0.5, 2.0),
    requires=broadcastable,
)
def divide(a, b):
    """Quotient of two arrays, entry by entry: y = a / b.

    >>> divide(np.array([1.0, 2.0]), 4.0)
    array([0.25, 0.5 ])
    """
    return np.divide(a, b)


@divide.vjp("a")
def _(g, b):
    return g / b


@divide.vjp("b")
def _(g, b, out):
    return -g * out / b


@elementwise(r"-<x>", r"-<g>", 1, 1)
def negative(x):
    """The negative of each entry: y = -x.

    >>> negative(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """
    return np.negative(x)


@negative.vjp("x")
def _(g):
    return -g


@op(
    tex=r"<a>^{\circ <b>}",
    vjp_tex={
        "a": r"<g> \odot <b> \odot <a>^{\circ (<b> - 1)}",
        "b": r"<g> \odot <out> \odot \log <a>",
    },
    flops=each(1),
    vjp_flops={
        "a": lambda b, out: 3 * out.size + b.size,
        "b": lambda a, out: a.size + 2 * out.size,
    },
    samples=pairs(0.5, 2.0),
    requires=broadcastable,
)
def power(a, b):
    """Entry by entry a to the power b: y = a^b.

    The gradient in b at a = 0 is taken as its limit 0, the gradient in a at b = 0 as 0.

    >>> power(np.array([2.0, 3.0]), 2)
    array([4., 9.])
    """
    return np.power(a, b)


@power.vjp("a")
def _(g, a, b):
    return g * b * a ** (b - 1 * (b != 0))  # where b = 0 the factor b is 0, and a to the 0 is 1


@power.vjp("b")
def _(g, a, out):
    positive = a != 0
    return np.where(positive, g * out * np.log(np.where(positive, a, 1)), 0)
