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
    if kind not in _KINDS:
        names = ", ".join(f'"{name}"' for name in _KINDS)
        raise ArgumentError(f"scaled_frequencies: rope_type must be one of {names}, got {kind!r}")
    return _KINDS[kind](d, base, _Entries(scaling, kind))


class _Entries:
    """What a mapping says, by name."""

    def __init__(self, scaling: Mapping[str, Any], kind: str) -> None:
        self.scaling, self.kind = scaling, kind

    def __call__(self, *names: str, default: Any = None) -> Any:
        """The first of these that is given; without any, the default, or an error."""
        for name in names:
            if self.scaling.get(name) is not None:
                return self.scaling[name]
        if default is None:
            wanted = " or ".join(names)
            raise ArgumentError(f"scaled_frequencies: {self.kind} scaling needs {wanted}")
        return default

    def length(self) -> int:
        """How many positions the model was trained on at first."""
        return int(self("original_max_position_embeddings"))

    def factor(self) -> float:
        """How many times as many it takes."""
        given = self.scaling.get("factor")
        return float(self("max_position_embeddings") / self.length() if given is None else given)


def _linear(d: int, base: float, entry: _Entries) -> tuple[NDArray[Any], float]:
    return rotary_frequencies(d, base) / entry("factor"), 1.0


def _dynamic(d: int, base: float, entry: _Entries) -> tuple[Callable[[int], NDArray[Any]], float]:
    length = entry("max_position_embeddings", "original_max_position_embeddings")
    return partial(ntk_frequencies, d, base, entry("factor"), length), 1.0


def _llama3(d: int, base: float, entry: _Entries) -> tuple[NDArray[Any], float]:
    ends = entry("low_freq_factor"), entry("high_freq_factor")
    return llama3_frequencies(d, base, entry("factor"), *ends, entry.length()), 1.0


def _yarn(d: int, base: float, entry: _Entries) -> tuple[NDArray[Any], float]:
    """Its amplitude is given, or YaRN's, or a ratio of two such, as DeepSeek has it."""
    factor, scaling = entry.factor(), entry.scaling
    ends = entry("beta_fast", default=32.0), entry("beta_slow", default=1.0)
    whole = scaling.get("truncate", True)
    theta = yarn_frequencies(d, base, factor, entry.length(), *ends, whole=whole)
    own, by, over = yarn_amplitude(factor), scaling.get("mscale"), scaling.get("mscale_all_dim")
    ratio = (1 + by * (own - 1)) / (1 + over * (own - 1)) if by and over else own
    return theta, entry("attention_factor", default=ratio)


def _longrope(d: int, base: float, entry: _Entries) -> tuple[Callable[[int], NDArray[Any]], float]:
    """A divisor for each pair, found by search: one set up to the first length, one beyond."""
    length, factor, theta = entry.length(), entry.factor(), rotary_frequencies(d, base)
    short, long = (np.asarray(entry(name)) for name in ("short_factor", "long_factor"))
    own = sqrt(1 + log(factor) / log(length)) if factor > 1 else 1.0
    amplitude = entry("attention_factor", default=own)
    return lambda positions: theta / (long if positions > length else short), amplitude


_KINDS: dict[str, Callable[[int, float, _Entries], tuple[Any, float]]] = {
    "default": lambda d, base, entry: (rotary_frequencies(d, base), 1.0),
    "dynamic": _dynamic,
    "linear": _linear,
    "llama3": _llama3,
    "longrope": _longrope,
    "yarn": _yarn,
}
