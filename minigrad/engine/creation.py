"""Leaf tensors, made of data: `tensor`, `zeros`, `ones`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .arguments import NUMERIC, entries_of, is_foreign, refuse_masked
from .context import current
from .errors import DTypeError, GradientError
from .listener import Listener, notify
from .refusals import explained
from .tensor import ON_DEMAND, Operand, Tensor

__all__ = ["ones", "tensor", "zeros"]


@explained
def tensor(
    data: Operand,
    requires_grad: bool | str = False,
    name: str | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """A leaf tensor holding a copy of `data`.

    Arrays keep their dtype, also those of other libraries (by DLPack); Python numbers and lists
    become float64 (booleans and integers too, unless they come as an array).

    Args:
        requires_grad: "on demand" computes its gradient only where `grad` asks for it.
        dtype: what to cast the entries to.
    Raises: DTypeError if a gradient is asked of anything but real floating entries, and for a
        masked array; GradientError for a list of tensors that need one.

    >>> import minigrad as mg
    >>> mg.tensor([1, 2])
    tensor([1., 2.])
    >>> mg.tensor(np.float32([1, 2]), requires_grad=True, name="w")
    tensor([1., 2.], dtype=float32, name='w', requires_grad=True)
    """
    given: Any = data._data if isinstance(data, Tensor) else data
    refuse_masked("tensor(data)", given)
    typed = isinstance(given, np.ndarray | np.generic) or is_foreign(given)
    first = next(entries_of(given), None)
    if first is not given and is_foreign(first):
        kind = type(first).__name__
        raise DTypeError(f"tensor(data): a list of {kind}s; write mg.stack([mg.tensor(x) for …])")
    try:
        given = np.from_dlpack(given) if is_foreign(given) else given
        array = np.array(given)  # without a dtype: float64 would make None a NaN
        array = array.astype(np.float64) if not typed and array.dtype.kind in "biuf" else array
    except GradientError:
        raise GradientError(
            "tensor(data): a list of tensors that need a gradient would lose it; write mg.stack"
        ) from None
    except (ValueError, TypeError, OverflowError, BufferError, RuntimeError) as error:
        raise DTypeError(f"tensor(data): not an array of numbers: {error}") from error
    for wanted in (array.dtype, dtype):
        if wanted is not None and np.dtype(wanted).kind not in NUMERIC:
            raise DTypeError(f"tensor(data): dtype must be numeric, got {np.dtype(wanted)}")
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    made = Tensor(array)
    made.requires_grad = bool(requires_grad)
    shown = any(listener.shows_inputs for listener in current().listeners)
    if requires_grad == "on demand" and not shown:
        made._needs = ON_DEMAND
    made.name = name
    notify(Listener.leaf_created, made, given)
    return made


@explained
def zeros(
    *shape: int | Sequence[int],
    requires_grad: bool | str = False,
    name: str | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """A leaf of zeros, of float64 unless a dtype is given.

    >>> import minigrad as mg
    >>> mg.zeros((2, 3)).shape, mg.zeros(2, 3).shape
    ((2, 3), (2, 3))
    """
    return tensor(np.zeros(_shape_of("zeros", shape), dtype), requires_grad, name)


@explained
def ones(
    *shape: int | Sequence[int],
    requires_grad: bool | str = False,
    name: str | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """A leaf of ones, of float64 unless a dtype is given.

    >>> import minigrad as mg
    >>> mg.ones(3, requires_grad=True)
    tensor([1., 1., 1.], requires_grad=True)
    """
    return tensor(np.ones(_shape_of("ones", shape), dtype), requires_grad, name)


def _shape_of(call: str, sizes: tuple[int | Sequence[int], ...]) -> tuple[int, ...]:
    """A shape given as one tuple, or as several integers."""
    shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int | np.integer) else sizes
    try:
        return tuple([operator.index(n) for n in shape])  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(
            f"{call}(shape): a shape is integers, as in (2, 3), got {sizes!r}; a dtype goes by "
            "keyword: dtype=np.float32"
        ) from None
