"""What an index sends back, without zeros that nobody needs yet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ...engine.op import as_array
from ...engine.sparse import SparseGradient, is_basic
from ...ops.select import getitem, scatter_add, take
from ..scatter import add_at

for _op in (getitem, take):
    _op.fast(above=0)(_op.kernel)


@scatter_add.fast(above=0)
def _added(x, index, shape):
    total = np.zeros(shape, x.dtype, like=None if x.__class__ is ndarray else x)
    if is_basic(index):
        total[index] = x
    else:
        add_at(total, index, x)
    return total


def _scattered(g: Any, index: Any, shape: tuple[int, ...]) -> Any:
    plain = g.__class__ is ndarray or isinstance(g, np.generic)
    return SparseGradient(g, index, shape) if plain else _added(g, index, shape)


@getitem.fast.vjp("x")
def _(g, x_shape, index):
    return _scattered(g, index, x_shape)


@take.fast.vjp("x")
def _(g, x_shape, indices, axis):
    if axis is None:
        return take.rules["x"].function(g, x_shape, indices, axis)
    indices = as_array(indices).astype(np.intp, copy=False)
    lead = (slice(None),) * (axis % len(x_shape))
    return _scattered(g, (*lead, indices) if lead else indices, x_shape)
