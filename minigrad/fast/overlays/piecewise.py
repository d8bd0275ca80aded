"""Rules that pass a gradient where a condition holds: by bits instead of by branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.op import as_array
from ...ops.arithmetic import maximum, minimum
from ...ops.functions import abs, clip, relu
from ...ops.select import where
from ..limits import LIMITS
from .masked import masked, passed

for _op in (relu, abs, maximum, minimum, clip, where):
    _op.fast(above=LIMITS.small_entries)(_op.kernel)


def unless(condition: Any, g: Any) -> Any:
    """g where the condition does not hold, which it never does of NaN."""
    return masked(g, np.logical_not(condition))


@relu.fast.vjp("x")
def _(g, out):
    return passed(g, out)


@abs.fast.vjp("x")
def _(g, x):
    return unless(x <= 0, g) - masked(g, x < 0)


def _shared(g: Any, a: Any, b: Any) -> Any:
    """Half of the gradient where both were taken."""
    return g * (1 - g.dtype.type(0.5) * (a == b))


@maximum.fast.vjp("a")
@minimum.fast.vjp("b")
def _(g, a, b):
    return unless(a < b, _shared(g, a, b))


@maximum.fast.vjp("b")
@minimum.fast.vjp("a")
def _(g, a, b):
    return unless(b < a, _shared(g, a, b))


@clip.fast.vjp("x")
def _(g, x, low, high):
    below = False if low is None else x < low
    above = False if high is None else x > high
    return unless(np.logical_or(below, above), g)


@where.fast.vjp("a")
def _(g, condition):
    return masked(g, as_array(condition))


@where.fast.vjp("b")
def _(g, condition):
    return masked(g, np.logical_not(condition))
