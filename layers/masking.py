"""What attention does with its masks: those of a layer and of a call become one, which fits.

A mask is an array, boolean (True = may attend) or floats that are added to the scores (0 / −inf),
and broadcasts to them; or a rule, which says of a query's position i and a key's position j whether
i sees j. `joined` makes one array of all masks of a call, by the `entries` of each rule, and
`for_scores` gives it an axis for heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad.errors import ShapeError

from .call import ArrayOrTensor, array_or_tensor

__all__ = ["MaskRule"]

Positions: TypeAlias = NDArray[np.integer]


@dataclass(frozen=True, repr=False)
class MaskRule:
    """Whether queries at i see keys at j: rule(i, j). `&` and `|` make one rule of two.

    Args: sees: a function of i, j and the settings.  name: how it is written. Rules of equal
        settings are equal.

    >>> from layers import causal, window
    >>> causal & window(2)
    causal & window(2, 1)
    >>> (causal & window(2))(np.arange(3)[:, None], np.arange(3)).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """

    sees: Callable[..., Any]
    name: str
    settings: tuple[Any, ...] = ()

    def __call__(self, i: Positions, j: Positions) -> Any:
        return self.sees(i, j, *self.settings)

    def __and__(self, other: MaskRule) -> MaskRule:
        return MaskRule(_by_both, f"{self} & {other}", (and_, self, other))

    def __or__(self, other: MaskRule) -> MaskRule:
        return MaskRule(_by_both, f"({self} | {other})", (or_, self, other))

    def __repr__(self) -> str:
        return self.name


def _by_both(
    i: Positions, j: Positions, join: Callable[..., Any], first: MaskRule, second: MaskRule
) -> Any:
    return join(first(i, j), second(i, j))


# True (may attend) or floats to add, broadcastable to the scores; or a rule of positions.
Mask: TypeAlias = mg.Tensor | ArrayLike | MaskRule


def check_square(call: str, mask: Mask | None, batch: tuple[int, ...], n: int) -> None:
    """Refuse a mask (n, n) for n sequences that may be one of padding, (B, n), and not of pairs.

    A token counts as hidden where as little as -10,000 is added, as some write for -inf.
    """
    if batch != (n,) or n < 2 or isinstance(mask, MaskRule | None) or np.shape(mask) != (n, n):
        return
    table = np.asanyarray(mask)
    if table.dtype != np.bool_:
        table = table > -1e4
    if not table.diagonal().all():
        raise ShapeError(
            f"{call}: mask {table.shape} may be one of padding, (B, n), or of queries "
            f"and keys, (n, n), for there are {n} sequences of {n} tokens and some token does not "
            "see itself; write padding_mask(mask) for the first, mask[None] for the second"
        )


def rules_apart(masks: Sequence[Mask | None]) -> tuple[list[MaskRule], list[Mask | None]]:
    """The rules of positions among these masks, and all others."""
    rules = [mask for mask in masks if isinstance(mask, MaskRule)]
    return rules, [mask for mask in masks if not isinstance(mask, MaskRule)]


def joined(i: Positions, j: Positions, *masks: Mask | None) -> ArrayOrTensor | None:
    """One mask for queries at i and keys at j: what all let see, and all that they add; or None.

    Each is a rule, an array or None. A key below position 0 is padding, which no query sees.
    Shapes: i (n,) or (B, n), j (m,) or (B, m) → broadcastable to (B, n, m) or (B, h, n, m)
    """
    arrays: list[Any] = []
    for mask in masks:
        if isinstance(mask, MaskRule):
            arrays.append(entries(mask, i, j))
        elif mask is not None:
            arrays.append(mask if isinstance(mask, mg.Tensor | np.ndarray) else np.asarray(mask))
    if j.min(initial=0) < 0:
        arrays.append(mg.mark_constant((j >= 0)[..., None, :]))
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    if any(mask.ndim == 4 for mask in arrays):
        arrays = [with_head_axis(mask) for mask in arrays]
    return reduce(mg.mask_add, arrays, mg.tensor(0.0))  # which checks each


def entries(mask: Any, i: Positions, j: Positions) -> Any:
    """A rule's entries, (n, m) or (B, n, m); an array as it is."""
    if not isinstance(mask, MaskRule):
        return mask
    return mg.mark_constant(mask(i[..., :, None], j[..., None, :]))


def for_scores(mask: Any, shape: tuple[int, ...]) -> ArrayOrTensor:
    """The mask, with an axis for heads if the scores have one.

    Raises: ShapeError for one that does not broadcast to the scores.
    """
    if np.shape(mask) == shape[-2:]:
        return mask
    M: ArrayOrTensor = array_or_tensor(entries(mask, *map(np.arange, shape[-2:])))
    M = with_head_axis(M) if len(shape) == 4 else M
    while M.ndim > len(shape) and M.shape[0] == 1:
        M = M[0]
    pairs = zip(M.shape[::-1], shape[::-1], strict=False)
    if M.ndim > len(shape) or any(a not in (1, b) for a, b in pairs):
        raise ShapeError(
            "attention: mask must broadcast to the scores; of padding write padding_mask(real), "
            f"True at real tokens\n  scores: {shape}\n  mask: {M.shape}"
        )
    return M


def with_head_axis(mask: Any) -> Any:
    """(B, n, m) → (B, 1, n, m), the same for every head."""
    return np.expand_dims(mask, 1) if mask.ndim == 3 else mask
