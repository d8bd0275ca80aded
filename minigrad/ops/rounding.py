"""Rounding that gradients pass: what a number of few bits makes of each entry."""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, call, floating, masked
from .functions import elementwise
from .samples import away_from

__all__ = ["fake_quantize"]


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    """Of steps so fine that differences do not see them: there the rule is the derivative."""
    scale, bits = 2.0**-40, 41
    for shape in [(3, 5), (2, 3, 5), (), (0, 3)]:
        x = np.asarray(rng.uniform(-2, 2, shape))
        yield call(away_from(1.0, away_from(-1.0, x, 0.2), 0.2), scale, bits)  # beyond ±1 it is cut
    yield call(rng.uniform(-0.9, 0.9, (3, 5)), np.full((1, 5), scale), bits)


def _top(bits: int) -> int:
    """The largest integer of so many bits; its negative is one too."""
    return int(2 ** (bits - 1) - 1)


def _tex(bits):
    ends = rf"{-_top(bits)}, {_top(bits)}"
    rounded = r"\operatorname{round}(<x> \oslash <scale>)"
    return rf"<scale> \odot \operatorname{{clip}}_{{{ends}}}({rounded})"


def _vjp_tex(bits):
    return rf"<g> \odot [|<x>| \le {_top(bits)}.5\, <scale>]"


@elementwise(_tex, _vjp_tex, 4, samples=_samples, analytic=False)
def fake_quantize(x, scale, bits=8):
    """Rounds each entry to what an integer of few bits can hold: y = s · clip(round(x / s)).

    The integers are −(2^{bits−1} − 1) to 2^{bits−1} − 1. Rounding has slope 0 almost everywhere, so
    gradients take it for the identity, and end where an entry is cut off (straight through).
    Args: scale: of one step, a number or an array that broadcasts to x; no gradient flows into it.
    Raises: ArgumentError unless scale is above 0 and bits is an integer of 2 or more.
    Source: Jacob et al. 2018, arXiv:1712.05877; straight through: Bengio et al. 2013,
        arXiv:1308.3432.

    >>> fake_quantize(np.array([0.4, 0.6, -9.0]), 0.5, bits=3)
    array([ 0.5,  0.5, -1.5])
    """
    try:
        bits = index(bits)
    except TypeError:
        raise ArgumentError(f"bits must be an integer, got {bits!r}") from None
    if bits < 2 or not np.all(np.greater(scale, 0)):
        raise ArgumentError(f"scale must be above 0 and bits 2 or more, got {scale} and {bits}")
    x = floating(x)
    s = np.asarray(scale, np.real(x).dtype)
    top = _top(bits)
    return np.clip(np.rint(x / s), -top, top) * s


@fake_quantize.vjp("x")
def _(g: Any, x: Any, scale: Any, bits: int) -> Any:
    """The gradient passes as if nothing were rounded, and stops where an entry was out of range."""
    edge = (_top(bits) + 0.5) * scale
    return masked(g, np.logical_and(x >= -edge, x <= edge))
