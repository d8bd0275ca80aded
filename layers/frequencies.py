"""How fast each pair of a rotary embedding turns; and how checkpoints stretch that for contexts
longer than they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil, floor, log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigrad.errors import ArgumentError

__all__ = [
    "llama3_frequencies",
    "ntk_frequencies",
    "rotary_frequencies",
    "scaled_frequencies",
    "yarn_amplitude",
    "yarn_frequencies",
]


def rotary_frequencies(d: int, base: float = 10000.0) -> NDArray[Any]:
    """θ_k = base^(−2k / d), in radians a position, for each of the d / 2 pairs.

    Raises: ArgumentError unless d is even.

    >>> rotary_frequencies(4)
    array([1.  , 0.01])
    """
    if d < 2 or d % 2:
        raise ArgumentError(f"rotary_frequencies: d must be even, got {d}")
    return np.asarray(base ** (-np.arange(0, d, 2) / d))


def llama3_frequencies(
    d: int,
    base: float = 500000.0,
    factor: float = 8.0,
    low: float = 1.0,
    high: float = 4.0,
    length: int = 8192,
) -> NDArray[Any]:
    """Rotary frequencies stretched for contexts longer than the `length` trained on, as in Llama 3.

    What turns fewer than `low` times within the length is slowed by `factor`, what turns more than
    `high` times is kept, and in between the two are mixed.
    Source: Grattafiori et al. 2024, arXiv:2407.21783, and the model's reference code.

    >>> (llama3_frequencies(64) / rotary_frequencies(64, 500000.0))[[0, -1]]
    array([1.   , 0.125])
    """
    theta = rotary_frequencies(d, base)
    turns = length * theta / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - kept) * theta / factor + kept * theta)


def ntk_frequencies(
    d: int, base: float, factor: float, length: int, positions: int
) -> NDArray[Any]:
    """Rotary frequencies for so many positions, by a base that grows beyond the length trained on.

        base · (factor · positions / length − (factor − 1))^(d / (d − 2))    beyond `length`

    The fastest pair keeps its frequency, the slowest is divided by the bracket.
    Source: "dynamic NTK" scaling, as in Llama's and Qwen's configurations.

    >>> (ntk_frequencies(64, 1e4, 2.0, 2048, 4096) / rotary_frequencies(64, 1e4))[[0, -1]].round(4)
    array([1.    , 0.3333])
    """
    stretch = factor * max(positions, length) / length - (factor - 1)
    return rotary_frequencies(d, base * stretch ** (d / (d - 2)))


def yarn_frequencies(
    d: int,
    base: float = 10000.0,
    factor: float = 4.0,
    length: int = 4096,
    fast: float = 32.0,
    slow: float = 1.0,
    *,
    whole: bool = True,
) -> NDArray[Any]:
    """Rotary frequencies stretched by YaRN: slow pairs by `factor`, fast ones not at all.

    Between the pair that turns `fast` times within the `length` trained on and the one that turns
    `slow` times, the two are mixed in proportion to the pair's number. `yarn_amplitude` belongs to
    it.

    Args:   whole: round the two ends outwards to whole pairs.
    Source: Peng et al. 2023, section 3.2, arXiv:2309.00071.

    >>> (yarn_frequencies(64) / rotary_frequencies(64))[[0, -1]]
    array([1.  , 0.25])
    """
    theta = rotary_frequencies(d, base)
    ends = [d * log(length / (2 * pi * turns)) / (2 * log(base)) for turns in (fast, slow)]
    first, last = (floor(ends[0]), ceil(ends[1])) if whole else ends
    first, last = max(first, 0), min(last, d - 1)
    mixed = (np.arange(d // 2) - first) / (last - first or 0.001)
    slowed = np.clip(mixed, 0.0, 1.0)
    return np.asarray(slowed * theta / factor + (1 - slowed) * theta)


def yarn_amplitude(factor: float) -> float:
    """What YaRN multiplies queries and keys by: 0.1 ln(factor) + 1; scores have its square.

    >>> yarn_amplitude(1.0), round(yarn_amplitude(4.0), 4)
    (1.0, 1.1386)
    """
    return 0.1 * log(factor) + 1.0 if factor > 1 else 1.0


def scaled_frequencies(
    d: int, base: float, scaling: Mapping[str, Any]
) -> tuple[NDArray[Any] | Callable[[int], NDArray[Any]], float]:
    """What a checkpoint's `rope_scaling` says: frequencies, and an amplitude.

    Its `rope_type` is "default", "linear", "dynamic", "yarn" or "llama3". "dynamic" is a function
    of how many positions there are, and needs max_position_embeddings in the mapping.
    Raises: ArgumentError for another type, or an entry that is missing.

    >>> scaled_frequencies(4, 10000.0, {"rope_type": "linear", "factor": 2.0})
    (array([0.5  , 0.005]), 1.0)
    """
    kind = scaling.get("rope_type", scaling.get("type", "default"))

    def entry(*names: str) -> Any:
        for name in names:
            if scaling.get(name) is not None:
                return scaling[name]
        raise ArgumentError(f"scaled_frequencies: {kind} scaling needs {' or '.join(names)}")

    if kind == "default":
        return rotary_frequencies(d, base), 1.0
    if kind not in ("linear", "dynamic", "yarn", "llama3"):
        raise ArgumentError(
            'scaled_frequencies: rope_type must be "default", "linear", "dynamic", "yarn" or '
            f'"llama3", got {kind!r}'
        )
    factor = entry("factor")
    if kind == "linear":
        return rotary_frequencies(d, base) / factor, 1.0
    if kind == "dynamic":
        length = entry("max_position_embeddings", "original_max_position_embeddings")
        return partial(ntk_frequencies, d, base, factor, length), 1.0
    length = entry("original_max_position_embeddings")
    if kind == "llama3":
        ends = entry("low_freq_factor"), entry("high_freq_factor")
        return llama3_frequencies(d, base, factor, *ends, length), 1.0
    fast, slow = scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1
    whole = scaling.get("truncate", True)
    theta = yarn_frequencies(d, base, factor, length, fast, slow, whole=whole)
    return theta, _amplitude(factor, scaling)


def _amplitude(factor: float, scaling: Mapping[str, Any]) -> float:
    """The amplitude given, or YaRN's, or a ratio of two such, as DeepSeek has it."""
    given, by, over = (
        scaling.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim")
    )
    if given is not None:
        return float(given)
    own = yarn_amplitude(factor)
    return (1 + by * (own - 1)) / (1 + over * (own - 1)) if by and over else own
