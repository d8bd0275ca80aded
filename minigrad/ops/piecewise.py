"""Functions of each entry that have a kink or a step, and the choice between two arrays.

At a kink the slope is a convention, stated with each op. NaN is neither above nor below anything:
its gradient passes, as if the entry had been taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..engine.errors import DTypeError
from ..engine.op import Call, call, op
from .arithmetic import broadcastable
from .dtypes import arrayed
from .elementwise import elementwise
from .samples import away_from, each, free, pairs, unary

__all__ = ["abs", "astype", "clip", "maximum", "minimum", "relu", "where"]


def _dead_units(out):
    """Of each unit, whether no entry is positive; units lie along the axis where most are so."""
    dead = out <= 0
    if out.ndim < 2:
        return dead
    others = [tuple(j for j in range(out.ndim) if j != i) for i in range(out.ndim - 1, 0, -1)]
    found = [dead.all(axis=axes) for axes in others]
    return max(found, key=lambda where: np.count_nonzero(where) / max(where.size, 1))


@op(
    tex=r"\max(<x>, 0)",
    vjp_tex={"x": r"<g> \odot [<x> > 0]"},
    flops=each(1),
    vjp_flops={"x": free},
    samples=unary(kink=0.0),
    analytic=False,
    saturates=("units dead", _dead_units),
)
def relu(x):
    """The positive part of each entry: y = max(x, 0). Its gradient at 0 is 0.

    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return np.maximum(x, 0)


@relu.vjp("x")
def _(g, out):
    return np.where(out <= 0, 0, g)


@elementwise(r"|<x>|", r"<g> \odot \operatorname{sign}(<x>)", 1, 1, analytic=False, kink=0.0)
def abs(x):
    """The absolute value of each entry: y = |x|. Its gradient at 0 is 0.

    >>> abs(np.array([-1.0, 2.0]))
    array([1., 2.])
    """
    return np.abs(x)


@abs.vjp("x")
def _(g, x):
    return np.where(x == 0, 0, np.where(x < 0, -g, g))


def _extreme(name: str, beyond: str) -> dict[str, Any]:
    """The declaration of maximum or minimum; `beyond` says when the first of two is taken."""

    def slope(own: str, other: str) -> str:
        return rf"<g> \odot ([<{own}> {beyond} <{other}>] + \tfrac12 [<a> = <b>])"

    return {
        "tex": rf"\{name}(<a>, <b>)",
        "vjp_tex": {"a": slope("a", "b"), "b": slope("b", "a")},
        "flops": each(1),
        "vjp_flops": {"a": each(1), "b": each(1)},
        "samples": pairs(gap=0.01),
        "analytic": False,
        "requires": broadcastable,
    }


@op(**_extreme("max", ">"))
def maximum(a, b):
    """The larger of two arrays, entry by entry. Equal entries share the gradient half and half.

    >>> maximum(np.array([1.0, 5.0]), 3.0)
    array([3., 5.])
    """
    return np.maximum(a, b)


@maximum.vjp("a")
def _(g, a, b):
    return np.where(a < b, 0, np.where(a == b, g / 2, g))


@maximum.vjp("b")
def _(g, a, b):
    return np.where(b < a, 0, np.where(a == b, g / 2, g))


@op(**_extreme("min", "<"))
def minimum(a, b):
    """The smaller of two arrays, entry by entry. Equal entries share the gradient half and half.

    >>> minimum(np.array([1.0, 5.0]), 3.0)
    array([1., 3.])
    """
    return np.minimum(a, b)


@minimum.vjp("a")
def _(g, a, b):
    return np.where(a > b, 0, np.where(a == b, g / 2, g))


@minimum.vjp("b")
def _(g, a, b):
    return np.where(b > a, 0, np.where(a == b, g / 2, g))


# ---------------------------------------------------------------- clip


def _clip_tex(low, high):
    """Open where there is no bound."""
    if low is None:
        return "<x>" if high is None else r"\min(<x>, <high>)"
    return r"\max(<x>, <low>)" if high is None else r"\min(\max(<x>, <low>), <high>)"


def _clip_vjp_tex(low, high):
    if low is None:
        return "<g>" if high is None else r"<g> \odot [<x> \le <high>]"
    return r"<g> \odot [<low> \le <x>]" if high is None else r"<g> \odot [<low> \le <x> \le <high>]"


def _clip_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in unary(-2.0, 2.0)(rng):
        x = away_from(1.0, away_from(-1.0, sample.args[0], 0.2), 0.2)
        yield call(x, -1.0, 1.0)
        yield call(x, low=-1.0)
    yield call(away_from(1.0, rng.uniform(-2, 2, (3, 5))), high=np.ones(5))


@op(
    tex=_clip_tex,
    vjp_tex={"x": _clip_vjp_tex},
    flops=each(2),
    vjp_flops={"x": free},
    samples=_clip_samples,
    analytic=False,
)
def clip(x, low=None, high=None):
    """Each entry moved into [low, high]; None leaves a side open. Inside and at the ends, slope 1.

    >>> clip(np.array([-3.0, 0.5, 3.0]), -1.0, 1.0)
    array([-1. ,  0.5,  1. ])
    """
    return np.clip(x, low, high)


@clip.vjp("x")
def _(g, x, low, high):
    below = False if low is None else x < low
    above = False if high is None else x > high
    return np.where(np.logical_or(below, above), 0, g)


# ---------------------------------------------------------------- where, astype


def _where_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in pairs()(rng):
        a, b = sample.args
        shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        yield call(rng.uniform(size=shape) < 0.5, a, b)
    yield call(np.array([True, False, True]), rng.uniform(size=(2, 1)), 0.0)


@op(
    tex=r"<condition> \mathbin{?} <a> : <b>",
    vjp_tex={"a": r"<g> \odot [<condition>]", "b": r"<g> \odot [\lnot <condition>]"},
    flops=free,
    vjp_flops={"a": free, "b": free},
    samples=_where_samples,
)
def where(condition, a, b):
    """Entries of a where the condition holds, of b elsewhere.

    >>> where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
    array([1., 0.])
    """
    if a is None or b is None:
        raise DTypeError("a and b must both be given, got None")
    return np.where(condition, a, b)


@where.vjp("a")
def _(g, condition):
    return np.where(condition, g, 0)


@where.vjp("b")
def _(g, condition):
    return np.where(condition, 0, g)


def _cast_tex(dtype):
    return rf"\operatorname{{cast}}_{{\text{{{np.dtype(dtype)}}}}}(<x>)"


def _astype_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in unary()(rng):
        yield call(sample.args[0], np.float64)


@op(
    tex=_cast_tex,
    vjp_tex={"x": lambda dtype: "<g>" if np.dtype(dtype).kind in "fc" else r"0\, <g>"},
    flops=free,
    vjp_flops={"x": free},
    samples=_astype_samples,
    analytic=False,
)
def astype(x, dtype: DTypeLike):
    """The entries in another dtype; the gradient is cast back, and zero through integers.

    >>> astype(np.array([1.5]), np.float32).dtype
    dtype('float32')
    """
    return arrayed(x).astype(dtype)


@astype.vjp("x")
def _(g, dtype):
    return g if np.dtype(dtype).kind in "fc" else g * 0  # to integers: steps, without slope
