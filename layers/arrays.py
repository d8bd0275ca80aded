"""What layers and their functions take, by name: annotations of public signatures."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from numpy.typing import ArrayLike, NDArray

from minigrad import Tensor, mask_rules

__all__ = ["Array", "Mask", "SameArray"]

Array: TypeAlias = Tensor | NDArray[Any]
"""An array, or a Tensor whose gradient is recorded."""

SameArray = TypeVar("SameArray", bound=Array)
"""What a function returns is of the kind that it takes: a Tensor for a Tensor, else an array."""

Mask: TypeAlias = Tensor | ArrayLike | mask_rules.MaskRule
"""True (may attend) or floats to add, broadcastable to the scores; or a rule of positions."""
