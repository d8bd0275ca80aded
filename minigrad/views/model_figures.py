"""The likeliest tokens of a row of logits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .plain import one_line

__all__ = ["likeliest", "quoted"]


def likeliest(
    logits: NDArray[np.floating], name: Callable[[int], str], most: int, target: int | None = None
) -> list[tuple[str, float]]:
    """Tokens and their probabilities, the likeliest first, and the target.

    >>> likeliest(np.log([1.0, 3.0]), str, most=1, target=0)
    [('1', 0.75), ('0', 0.25)]
    """
    odds = np.exp(logits.astype(np.float64) - float(logits.max()))
    p = odds / odds.sum()
    best = [*np.argsort(-p, kind="stable")[:most].tolist(), *([] if target is None else [target])]
    return [(name(i), round(float(p[i]), 15)) for i in dict.fromkeys(best)]


def quoted(token: str) -> str:
    return f'"{one_line(token, 24)}"'
