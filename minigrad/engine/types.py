"""Types of signatures. Those that include Tensor are in tensor.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arguments",
    "Array",
    "DType",
    "Function",
    "Gradient",
    "Index",
    "Kernel",
    "StateDict",
    "Tex",
]

Function = TypeVar("Function", bound=Callable[..., Any])  # what a decorator gives back

Array: TypeAlias = NDArray[Any]  # of any dtype
DType: TypeAlias = np.dtype[Any]
Arguments: TypeAlias = tuple[Any, ...]  # inputs or settings of an op: whatever the op takes
Kernel: TypeAlias = Callable[..., Any]  # of arrays and settings, to an array
Tex: TypeAlias = str | Callable[..., str]  # LaTeX, or a function of the call to it
Gradient: TypeAlias = Any  # an array, a SparseGradient, or a Tensor if backward records itself
StateDict: TypeAlias = dict[str, Any]  # arrays and plain values by name, nested

_IndexOfOneAxis: TypeAlias = "SupportsIndex | slice | EllipsisType | Sequence[int] | Array | None"
Index: TypeAlias = "_IndexOfOneAxis | tuple[_IndexOfOneAxis, ...]"  # as NumPy indexes
