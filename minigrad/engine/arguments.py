"""What ops and functions take as arrays, and the errors for what they do not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .errors import DTypeError

__all__ = ["NUMERIC", "entries_of", "is_foreign", "is_masked", "operand", "refuse_masked"]

NUMERIC = "biufc"  # kinds of dtypes


def is_foreign(value: object) -> bool:
    """Whether this is an array of another library, such as PyTorch's or JAX's."""
    if not hasattr(value, "__dlpack__"):
        return False
    return not isinstance(value, np.ndarray) and not hasattr(value, "__apply__")


def is_masked(value: object) -> bool:
    """Whether this is NumPy's masked array, whose mask an op would lose."""
    return isinstance(value, np.ma.MaskedArray)


def refuse_masked(call: str, *values: object) -> None:
    """Raise DTypeError if one of the values is a masked array."""
    if any(map(is_masked, values)):
        raise DTypeError(
            f"{call}: got a masked array, whose mask would be lost; write x.filled(0.0), or what "
            "the masked entries are to be"
        )


def entries_of(value: Any) -> Iterator[Any]:
    """The entries of nested lists and tuples, one after the other."""
    if value.__class__ not in (list, tuple):
        yield value
        return
    for entry in value:
        yield from entries_of(entry)


def operand(call: str, value: Any, stack: Callable[..., Any] | None) -> Any:
    """An input as an array; a list that holds Tensors as one Tensor, by `stack`.

    Raises: DTypeError for what is no array, for an array of another library, for a masked array,
        and for entries that are no numbers.
    """
    if value is None:  # an optional input
        return None
    refuse_masked(call, value)
    tensors = False
    for entry in entries_of(value):
        if is_foreign(entry):
            kind = f"{type(entry).__module__}.{type(entry).__name__}"
            raise DTypeError(
                f"{call}: got a {kind}, through which no gradient would flow; "
                "write mg.tensor(x), which copies it"
            )
        tensors = tensors or hasattr(entry, "__apply__")
    if stack is not None and tensors and value.__class__ in (list, tuple):
        lists = (list, tuple)
        return stack([operand(call, x, stack) if x.__class__ in lists else x for x in value])
    try:
        array = value if hasattr(value, "dtype") else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise DTypeError(f"{call}: not an array of numbers: {error}") from None
    if array.dtype.kind not in NUMERIC:
        raise DTypeError(
            f"{call}: not an array of numbers: its entries are {array.dtype}; "
            "write x.astype(float), if numbers are meant"
        )
    return np.asarray(array)
