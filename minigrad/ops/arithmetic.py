"""Arithmetic of two arrays, entry by entry, and the larger or smaller of two; they broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Declare, is_tensor, op
from ..engine.tensor import Operand
from .dtypes import floating, masked
from .functions import elementwise
from .samples import Samples, each, of_shapes, pairs

__all__ = [
    "add",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "power",
    "scale",
    "subtract",
]


def clash(first: tuple[int, ...], second: tuple[int, ...], start: int = 1) -> str | None:
    """The axis, counted from the end, at which two shapes fail to broadcast, in words."""
    for axis in range(start, min(len(first), len(second)) + 1):
        n = first[-axis]
        m = second[-axis]
        if n != m and 1 not in (n, m):
            return f"must broadcast, but axis -{axis} has {n} and {m}"
    return None


def broadcastable(a: Operand, b: Operand, *settings: object) -> str | None:
    """The rule that the shapes of two inputs break, in words."""
    words = clash(np.shape(a), np.shape(b))
    return words and f"shapes {words}"


def of_two(
    tex: str, vjp_tex: tuple[str, str], *, samples: Samples | None = None, **declaration: Any
) -> Declare:
    """Declare an op of two inputs a and b that broadcast, one operation for each entry.

    Args: tex, vjp_tex: its formula and those of its rules.  samples: those of `pairs` unless
        given.  declaration: what else `op` takes.
    """
    return op(
        tex=tex,
        vjp_tex=dict(zip("ab", vjp_tex, strict=True)),
        flops=each(1),
        samples=samples or pairs(),
        requires=broadcastable,
        **declaration,
    )


@of_two(r"<a> + <b>", (r"<g>", r"<g>"))
def add(a, b):
    """Adds two arrays, entry by entry: y = a + b.

    >>> add(np.array([1.0, 2.0]), 3.0)
    array([4., 5.])
    """
    return np.add(a, b)


@add.vjp("a")
@add.vjp("b")
def _(g):
    """The gradient passes unchanged to each term of the sum."""
    return g


@of_two(r"<a> - <b>", (r"<g>", r"-<g>"))
def subtract(a, b):
    """Takes the second array from the first, entry by entry: y = a - b.

    >>> subtract(np.array([1.0, 2.0]), 3.0)
    array([-2., -1.])
    """
    return np.subtract(a, b)


@subtract.vjp("a")
def _(g):
    """The gradient passes unchanged to what is subtracted from."""
    return g


@subtract.vjp("b")
def _(g):
    """The sign of the gradient is turned, because taking away more makes the result less."""
    return -g


@of_two(r"<a> \odot <b>", (r"<g> \odot <b>", r"<g> \odot <a>"))
def multiply(a, b):
    """Multiplies two arrays, entry by entry: y = a b.

    >>> multiply(np.array([1.0, 2.0]), 3.0)
    array([3., 6.])
    """
    return np.multiply(a, b)


@multiply.vjp("a")
def _(g, b):
    """The gradient is multiplied by the other factor, entry by entry."""
    return g * b


@multiply.vjp("b")
def _(g, a):
    """The gradient is multiplied by the other factor, entry by entry."""
    return g * a


@of_two(
    r"<a> \oslash <b>",
    (r"<g> \oslash <b>", r"-<g> \odot <out> \oslash <b>"),
    samples=pairs(0.5, 2.0),
)
def divide(a, b):
    """Divides the first array by the second, entry by entry: y = a / b.

    >>> divide(np.array([1.0, 2.0]), 4.0)
    array([0.25, 0.5 ])
    """
    return np.divide(a, b)


@divide.vjp("a")
def _(g, b):
    """The gradient is divided by the divisor."""
    return g / b


@divide.vjp("b")
def _(g, b, out):
    """The gradient is multiplied by the result, divided by the divisor, and its sign is turned."""
    return -g * out / b


@elementwise(r"-<x>", r"-<g>", 1)
def negative(x):
    """Turns the sign of each entry: y = -x.

    >>> negative(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """
    return np.negative(x)


@negative.vjp("x")
def _(g):
    """The sign of the gradient is turned."""
    return -g


@elementwise(
    r"<factor>\, <x>",
    r"<factor>\, <g>",
    1,
    samples=of_shapes(([2, 3, 5], 0.5), ([], 0.5), ([0, 3], 0.5)),
)
def scale(x, factor):
    """Multiplies every entry by one number: y = factor · x, as attention's scores by 1/√d_k.

    Raises: ArgumentError unless the factor is one number.

    >>> scale(np.array([2.0, 4.0]), 0.5)
    array([1., 2.])
    """
    if factor.__class__ is not float and np.ndim(factor) != 0:
        raise ArgumentError(f"factor must be one number, got shape {np.shape(factor)}")
    return np.multiply(x, float(factor))


@scale.vjp("x")
def _(g, factor):
    """The gradient is multiplied by the same number."""
    return g * float(factor)


@of_two(
    r"<a>^{\circ <b>}",
    (r"<g> \odot <b> \odot <a>^{\circ (<b> - 1)}", r"<g> \odot <out> \odot \log <a>"),
    samples=pairs(0.5, 2.0),
)
def power(a, b):
    """Raises the first array to the power of the second, entry by entry: y = a^b.

    At a = 0 the gradient in b is 0 unless b is negative; at b = 0 the gradient in a is 0.

    >>> power(np.array([2.0, 3.0]), 2)
    array([4., 9.])
    """
    return _raised(a, b)


def _raised(a, b):
    """a^b. The third power is a product: NumPy's own takes a hundred times as long."""
    if b.__class__ is int and b == 3 and not is_tensor(a):
        return np.power(a, 2) * a  # booleans as integers
    return np.power(a, b)


@power.vjp("a")
def _(g, a, b):
    """The gradient is multiplied by the exponent and by the base to a power that is one lower."""
    lower = b - 1 * (b != 0)  # where b = 0 the factor b is 0, and a to the 0 is 1
    return g * b * _raised(a, lower)


@power.vjp("b")
def _(g, a, out):
    """The gradient is multiplied by the result and by the logarithm of the base."""
    flat = np.logical_and(a == 0, np.isfinite(out))
    return np.where(flat, 0, g * out * np.log(np.where(flat, 1, floating(a))))


# ---------------------------------------------------------------- the larger and the smaller


def _extreme(name: str, beyond: str) -> Declare:
    """The declaration of maximum or minimum; `beyond` says when the first of two is taken."""
    half = r"\tfrac12 [<a> = <b>]"
    return of_two(
        rf"\{name}(<a>, <b>)",
        (
            rf"<g> \odot ([<a> {beyond} <b>] + {half})",
            rf"<g> \odot ([<b> {beyond} <a>] + {half})",
        ),
        analytic=False,
        kinks=lambda a, b: np.equal(a, b),
    )


@_extreme("max", ">")
def maximum(a, b):
    """Takes the larger of two entries at each place. Equal ones share the gradient half and half.

    >>> maximum(np.array([1.0, 5.0]), 3.0)
    array([3., 5.])
    """
    return np.maximum(a, b)


@_extreme("min", "<")
def minimum(a, b):
    """Takes the smaller of two entries at each place. Equal ones share the gradient half and half.

    >>> minimum(np.array([1.0, 5.0]), 3.0)
    array([1., 3.])
    """
    return np.minimum(a, b)


def shared(g, is_beyond, is_equal):
    """The gradient unless the other entry was taken, and half of it where both are equal."""
    return masked(g * (1 - g.dtype.type(0.5) * is_equal), np.logical_not(is_beyond))


@maximum.vjp("a")
@minimum.vjp("b")
def _(g, a, b):
    """The gradient goes to the entry that was taken, and half of it to each of equal ones."""
    return shared(g, a < b, a == b)


@maximum.vjp("b")
@minimum.vjp("a")
def _(g, a, b):
    """The gradient goes to the entry that was taken, and half of it to each of equal ones."""
    return shared(g, b < a, a == b)
