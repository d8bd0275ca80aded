"""NumPy's own functions on Tensors: `np.exp(x)` is the op `exp`, or says what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.errors import DTypeError
from ..engine.op import Op, registry
from ..engine.tensor import Tensor
from . import composed

__all__ = ["array_function", "array_ufunc", "not_recorded", "op_like"]

_FORMS = {np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.isrealobj}
_COMPARISONS = {np.allclose, np.array_equal}
_OTHER_NAMES = {"absolute": "abs", "amax": "max", "amin": "min", "permute_dims": "transpose"}


def array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc on a Tensor is the op of that name; a comparison gives a plain array."""
    if {"d->?", "dd->?"}.intersection(ufunc.types):
        return getattr(ufunc, method)(*map(_array, inputs), **kwargs)
    found = op_like(ufunc)
    if method != "__call__" or found is None or kwargs:
        raise DTypeError(not_recorded(f"np.{ufunc.__name__}", found))
    return found(*inputs)


def array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function on a Tensor is the op of its name: `np.sum(x, axis=0)` records `sum`."""
    if function in _FORMS:  # whatever the entries
        return function(*[getattr(x, "_data", x) for x in args], **kwargs)
    if function in _COMPARISONS:
        return function(*map(_array, args), **kwargs)
    found = op_like(function)
    if found is None:
        raise DTypeError(not_recorded(f"np.{function.__name__}", found))
    return found(*args, **kwargs)


def op_like(function: Any) -> Op | Any:
    """The op, or the function composed of ops, of a NumPy function's name."""
    name: str = function.__name__
    return registry.get(_OTHER_NAMES.get(name, name)) or vars(composed).get(
        name if name in composed.__all__ else ""
    )


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def not_recorded(name: str, found: Any) -> str:
    remedy = "use x.numpy() to leave the graph"
    if found:
        remedy = f"call minigrad.{found.__name__} with its own arguments"
    return f"{name} on a Tensor would not be recorded; {remedy}"
