"""How fast each pair of a rotary embedding turns; and how checkpoints stretch that for contexts
longer than they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil, floor, log, pi, sqrt
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

    Its `rope_type` is "default", "linear", "dynamic", "yarn", "longrope" or "llama3". Those of
    "dynamic" and "longrope" are a function of how many positions there are; they, or the amplitude,
    need max_position_embeddings in the mapping too.
    Raises: ArgumentError for another type, or an entry that is missing.

    >>> scaled_frequencies(4, 10000.0, {"rope_type": "linear", "factor": 2.0})
    (array([0.5  , 0.005]), 1.0)
    """
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    kinds = ("default", "dynamic", "linear", "llama3", "longrope", "yarn")
    if kind not in kinds:
        names = ", ".join(f'"{name}"' for name in kinds)
        raise ArgumentError(f"scaled_frequencies: rope_type must be one of {names}, got {kind!r}")
    theta = rotary_frequencies(d, base)
    if kind == "default":
        return theta, 1.0

    def entry(*names: str, default: Any = None) -> Any:
        """The first of these that is given; without any, the default, or an error."""
        found = [scaling[name] for name in names if scaling.get(name) is not None]
        if not found and default is None:
            wanted = " or ".join(names)
            raise ArgumentError(f"scaled_frequencies: {kind} scaling needs {wanted}")
        return found[0] if found else default

    if kind == "linear":
        return theta / entry("factor"), 1.0
    if kind == "dynamic":
        trained = entry("max_position_embeddings", "original_max_position_embeddings")
        return partial(ntk_frequencies, d, base, entry("factor"), trained), 1.0
    length = int(entry("original_max_position_embeddings"))  # the positions trained on at first
    if kind == "llama3":
        ends = entry("low_freq_factor"), entry("high_freq_factor")
        return llama3_frequencies(d, base, entry("factor"), *ends, length), 1.0
    longer = scaling.get("max_position_embeddings")
    factor = float(entry("factor", default=longer and longer / length))
    if kind == "yarn":
        ends = entry("beta_fast", default=32.0), entry("beta_slow", default=1.0)
        whole = scaling.get("truncate", True)
        amplitude = entry("attention_factor", default=_yarn_ratio(factor, scaling))
        return yarn_frequencies(d, base, factor, length, *ends, whole=whole), amplitude
    short, long = (np.asarray(entry(name)) for name in ("short_factor", "long_factor"))
    own = sqrt(1 + log(factor) / log(length)) if factor > 1 else 1.0
    amplitude = entry("attention_factor", default=own)
    return lambda positions: theta / (long if positions > length else short), amplitude


def _yarn_ratio(factor: float, scaling: Mapping[str, Any]) -> float:
    """YaRN's amplitude, or a ratio of two such, as DeepSeek has it."""
    amplitude = yarn_amplitude(factor)
    above, below = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if not (above and below):
        return amplitude
    return float((1 + above * (amplitude - 1)) / (1 + below * (amplitude - 1)))
