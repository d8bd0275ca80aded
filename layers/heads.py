"""Between one wide axis and an axis of heads: split, merge, and share a head among several."""

from __future__ import annotations

from typing import Any

import minigrad as mg

__all__ = ["group_heads", "merge_heads", "repeat_heads", "split_heads"]


def split_heads(x: Any, heads: int) -> Any:
    """(B, n, heads · d) → (B, heads, n, d): head i takes columns i · d to (i + 1) · d.

    >>> import numpy as np
    >>> split_heads(np.arange(6.0).reshape(1, 6), 2)    # unbatched: (1, 6) → (2, 1, 3)
    array([[[0., 1., 2.]],
           [[3., 4., 5.]]])
    """
    *lead, width = x.shape
    return mg.swapaxes(mg.reshape(x, (*lead, heads, width // heads)), -3, -2)


def merge_heads(x: Any) -> Any:
    """(B, heads, n, d) → (B, n, heads · d): what `split_heads` took apart.

    >>> import numpy as np
    >>> merge_heads(split_heads(np.arange(6.0).reshape(1, 6), 2))
    array([[0., 1., 2., 3., 4., 5.]])
    """
    *lead, heads, n, d = x.shape
    return mg.reshape(mg.swapaxes(x, -3, -2), (*lead, n, heads * d))


def repeat_heads(x: Any, group: int) -> Any:
    """(B, heads, n, d) → (B, heads · group, n, d): each head `group` times, in order.

    >>> import numpy as np
    >>> repeat_heads(np.array([[[1.0]], [[2.0]]]), 2).ravel()
    array([1., 1., 2., 2.])
    """
    if group == 1:
        return x
    *lead, heads, n, d = x.shape
    spread = mg.broadcast_to(mg.expand_dims(x, -3), (*lead, heads, group, n, d))
    return mg.reshape(spread, (*lead, heads * group, n, d))


def group_heads(x: Any, group: int) -> Any:
    """(B, heads · group, n, d) → (B, heads, group, n, d); one head for all stays one.

    >>> import numpy as np
    >>> group_heads(np.zeros((6, 5, 2)), 3).shape, group_heads(np.zeros((1, 5, 2)), 3).shape
    ((2, 3, 5, 2), (1, 1, 5, 2))
    """
    *lead, heads, n, d = x.shape
    return mg.reshape(x, (*lead, heads // group, group, n, d) if heads > 1 else (*lead, 1, 1, n, d))
