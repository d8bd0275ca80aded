"""Dropout: the one op that draws."""

from __future__ import annotations

import numpy as np

from ..engine.declaration import call
from ..engine.errors import ArgumentError, DTypeError
from ..engine.op import op
from .dtypes import floating, masked
from .notation import Formula
from .samples import Calls, Rng, each_of_x

__all__ = ["dropout"]


def _samples(rng: Rng) -> Calls:
    for p, shape in ((0.3, (3, 5)), (0.0, (3, 5)), (1.0, (3, 5)), (0.5, (0, 3)), (0.5, ())):
        yield call(np.asarray(rng.uniform(-2, 2, shape)), p, np.random.default_rng(7))


def factor(p: float) -> float:
    """What a kept entry is multiplied by; nothing is kept at p = 1."""
    return 1 / (1 - float(p)) if p < 1 else 0.0


def _of(value: str) -> Formula:
    def tex(p: float) -> str:
        scale = r"\tfrac{1}{1 - <p>}\, " if p < 1 else ""
        return rf"{scale}{value} \odot [\text{{keep}}]"

    return tex


@op(
    tex=_of("<x>"),
    vjp_tex={"x": _of("<g>")},
    flops=each_of_x(1),
    samples=_samples,
    auxiliary=("keep",),
)
def dropout(x, p, rng=None):
    """Makes entries zero at random and scales the rest, so that the mean stays: by 1 / (1 - p).

    Args: rng: the np.random.Generator that draws, anew at every call.
    Raises: ArgumentError unless 0 ≤ p ≤ 1; DTypeError without a Generator.
    Source: Srivastava et al. 2014.

    >>> dropout(np.ones(4), 0.5, np.random.default_rng(0))
    array([2., 0., 0., 0.])
    """
    if not isinstance(rng, np.random.Generator):
        raise DTypeError(
            f"rng must be a np.random.Generator, got {type(rng).__name__}; "
            "pass rng=np.random.default_rng(seed), made once, before the loop"
        )
    if not 0 <= p <= 1:
        raise ArgumentError(f"p must lie in [0, 1], got {p}")
    x = floating(x)
    keep = rng.random(np.shape(x)) >= p
    return masked(x * factor(p), keep), keep


@dropout.vjp("x")
def _(g, p, keep):
    """The gradient passes, scaled alike, where an entry was kept, and stops where it was not."""
    return masked(g * factor(p), keep)
