"""Rotary positions: each pair of a query's or key's entries is turned by an angle that grows with
its position, so that a score depends on the distance of the two tokens alone; how fast each pair
turns, and how checkpoints stretch that for contexts longer than they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil, floor, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError, explained

from .arrays import Array, SameArray
from .module import Module, named
from .options import AttentionOption, TokenPositions
from .position import mark_constant, positions_of

__all__ = [
    "Rotary",
    "apply_rotary",
    "llama3_frequencies",
    "ntk_frequencies",
    "rotary_angles",
    "rotary_frequencies",
    "scaled_frequencies",
    "yarn_amplitude",
    "yarn_frequencies",
]


@explained
def rotary_angles(
    positions: ArrayLike, frequencies: ArrayLike, dtype: DTypeLike = np.float64
) -> tuple[NDArray[Any], NDArray[Any]]:
    """cos(p θ_k) and sin(p θ_k) for each position p and pair k.

    Shapes: positions (...), frequencies (d / 2,) → two of (..., d / 2)

    >>> rotary_angles([0, 1], [np.pi])[0]
    array([[ 1.],
           [-1.]])
    """
    at = np.asanyarray(positions).astype(dtype, copy=False)
    angles = at[..., None] * np.asarray(frequencies, dtype)
    return np.cos(angles), np.sin(angles)


@explained
def apply_rotary(x: SameArray, cos: Array, sin: Array, *, pairing: str = "half") -> SameArray:
    """The pairs (a, b) of x's last axis turned:  (a cos − b sin, a sin + b cos).

    Args:
        pairing: which entries are a pair, of r = 2 · cos.shape[-1] that turn; those after r stay.
            "half": k and k + r/2 (GPT-NeoX, Llama);  "interleaved": 2k and 2k + 1 (the paper).
    Shapes:  x (..., n, d), cos and sin (n, r/2); or (B, n, r/2), the same for every head → as x
    Raises:  ShapeError if cos and sin do not fit; ArgumentError for another pairing.
    Source:  Su et al. 2021, eq. (34), arXiv:2104.09864.

    >>> quarter = np.zeros((1, 1)), np.ones((1, 1))    # cos 90° and sin 90°
    >>> apply_rotary(np.array([[1.0, 0.0, 7.0]]), *quarter)
    array([[0., 1., 7.]])
    """
    shape = np.shape(x)
    r = 2 * np.shape(cos)[-1]
    if np.shape(cos) != np.shape(sin) or r > shape[-1]:
        raise ShapeError(
            "apply_rotary(x, cos, sin): cos and sin must be alike, and have at most half as many "
            f"columns as x\n  x: {shape}\n  cos: {np.shape(cos)}\n  sin: {np.shape(sin)}"
        )
    if pairing not in ("half", "interleaved"):
        raise ArgumentError(
            f'apply_rotary: pairing must be "half" or "interleaved", got {pairing!r}'
        )
    if len(shape) == 4 and np.ndim(cos) == 3:
        cos, sin = mg.expand_dims(cos, 1), mg.expand_dims(sin, 1)  # (B, 1, n, r/2)
    half = pairing == "half"
    first, second = (
        (slice(0, r // 2), slice(r // 2, r)) if half else (slice(0, r, 2), slice(1, r, 2))
    )
    a = named("a", mg.getitem(x, (..., first)))  # (..., n, r/2)
    b = named("b", mg.getitem(x, (..., second)))  # (..., n, r/2)
    turned = (a * cos - b * sin, a * sin + b * cos)
    if half:
        joined = mg.concatenate(turned, axis=-1)  # (..., n, r)
    else:
        joined = mg.reshape(mg.stack(turned, axis=-1), (*shape[:-1], r))
    if r == shape[-1]:
        return joined
    return mg.concatenate((joined, mg.getitem(x, (..., slice(r, None)))), axis=-1)


class Rotary(Module, AttentionOption):
    """Rotary position embedding: what turns an attention layer's queries and keys (`position=`).

        q_p → R(p) q_p,   k_p → R(p) k_p,   so that  (R(i) q) · (R(j) k) = q · R(j − i) k

    Args:
        d: how many entries of each head turn: all of d_k, or fewer.
        base: sets the frequencies, unless `frequencies` (d / 2,) gives them: an array, or a
            function of how many positions there are.
        amplitude: what cos and sin are multiplied by.
        scaling: a checkpoint's `rope_scaling`, which sets both (see `scaled_frequencies`).
        pairing: as `apply_rotary`.
        dtype: what the angles are computed in.
    Shapes:  x (..., n, d_k), positions (n,) or (B, n) → as x
    Raises:  ArgumentError unless d is even; ShapeError if it is more than d_k.
    Source:  Su et al. 2021, section 3.4, arXiv:2104.09864.

    >>> rotary = Rotary(4)
    >>> rotary(np.ones((1, 4)), offset=3).numpy().round(4)
    array([[-1.1311,  0.9696, -0.8489,  1.0295]])
    """

    def __init__(
        self,
        d: int,
        base: float = 10000.0,
        *,
        frequencies: ArrayLike | Callable[[int], ArrayLike] | None = None,
        amplitude: float = 1.0,
        scaling: Mapping[str, Any] | None = None,
        pairing: str = "half",
        dtype: DTypeLike = np.float64,
    ) -> None:
        if scaling is not None:
            frequencies, amplitude = scaled_frequencies(d, base, scaling)
        usual = rotary_frequencies(d, base)  # refuses an odd d, also where it is not taken
        theta = usual if frequencies is None else frequencies
        self.d, self.pairing = d, pairing
        self.base, self.amplitude = base, amplitude
        self._theta, self._dtype = (theta,), dtype  # in a tuple: an array would be a parameter's
        self._frequencies(1)

    def forward(
        self, x: mg.Tensor, positions: ArrayLike | None = None, *, offset: int = 0
    ) -> mg.Tensor:
        cos, sin = self._tables(x, positions, offset)  # (n, d/2) or (B, n, d/2)
        return apply_rotary(x, cos, sin, pairing=self.pairing)

    @property
    def depends_on_length(self) -> bool:
        """Whether angles change with how many positions there are, as "dynamic" scaling has it."""
        return callable(self._theta[0])

    def _tables(self, x: mg.Tensor, positions: ArrayLike | None, offset: int) -> list[mg.Tensor]:
        """cos and sin of x's angles."""
        at = positions_of(x.shape[-2], positions, offset)
        theta = self._frequencies(int(at.max(initial=0)) + 1 if self.depends_on_length else 1)
        angles = rotary_angles(at, theta, self._dtype)
        tables = [(self.amplitude * y).astype(x.dtype, copy=False) for y in angles]
        return [
            mg.tensor(mark_constant(table, positions), name=name)
            for name, table in zip(("cos", "sin"), tables, strict=True)
        ]

    def _frequencies(self, positions: int) -> NDArray[Any]:
        """θ (d / 2,), for so many positions."""
        frequencies = self._theta[0]
        theta = np.asarray(frequencies(positions) if callable(frequencies) else frequencies)
        if theta.shape != (self.d // 2,):
            raise ShapeError(f"Rotary: frequencies must be ({self.d // 2},), got {theta.shape}")
        return theta

    def project(
        self, Q: SameArray, K: Array | None, at: TokenPositions
    ) -> tuple[SameArray, Array | None]:
        """Q and K turned: what an attention layer does to them before the scores."""
        Q = named("Q_rot", self(Q, at.i))
        return Q, K if K is None else named("K_rot", self(K, at.j))


# ------------------------------------------------------------------ frequencies


@explained
def rotary_frequencies(d: int, base: float = 10000.0) -> NDArray[np.float64]:
    """θ_k = base^(−2k / d), in radians a position, for each of the d / 2 pairs.

    Raises: ArgumentError unless d is even.

    >>> rotary_frequencies(4)
    array([1.  , 0.01])
    """
    if d < 2 or d % 2:
        raise ArgumentError(f"rotary_frequencies: d must be even, got {d}")
    return np.asarray(base ** (-np.arange(0, d, 2) / d))


@explained
def llama3_frequencies(
    d: int,
    base: float = 500000.0,
    factor: float = 8.0,
    low: float = 1.0,
    high: float = 4.0,
    length: int = 8192,
) -> NDArray[np.float64]:
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


@explained
def ntk_frequencies(
    d: int, base: float, factor: float, length: int, positions: int
) -> NDArray[np.float64]:
    """Rotary frequencies for so many positions, by a base that grows beyond the length trained on.

        base · (factor · positions / length − (factor − 1))^(d / (d − 2))    beyond `length`

    The fastest pair keeps its frequency, the slowest is divided by the bracket.
    Source: "dynamic NTK" scaling, as in Llama's and Qwen's configurations.

    >>> (ntk_frequencies(64, 1e4, 2.0, 2048, 4096) / rotary_frequencies(64, 1e4))[[0, -1]].round(4)
    array([1.    , 0.3333])
    """
    stretch = factor * max(positions, length) / length - (factor - 1)
    return rotary_frequencies(d, base * stretch ** (d / (d - 2)))


@explained
def yarn_frequencies(
    d: int,
    base: float = 10000.0,
    factor: float = 4.0,
    length: int = 4096,
    fast: float = 32.0,
    slow: float = 1.0,
    *,
    whole: bool = True,
) -> NDArray[np.float64]:
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


@explained
def yarn_amplitude(factor: float) -> float:
    """What YaRN multiplies queries and keys by: 0.1 ln(factor) + 1; scores have its square.

    >>> yarn_amplitude(1.0), round(yarn_amplitude(4.0), 4)
    (1.0, 1.1386)
    """
    return 0.1 * log(factor) + 1.0 if factor > 1 else 1.0


@explained
def scaled_frequencies(
    d: int, base: float, scaling: Mapping[str, Any]
) -> tuple[NDArray[np.float64] | Callable[[int], NDArray[np.float64]], float]:
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
    return partial(_short_or_long, theta / short, theta / long, length), amplitude


def _short_or_long(
    short: NDArray[np.float64], long: NDArray[np.float64], length: int, positions: int
) -> NDArray[np.float64]:
    """The frequencies for up to `length` positions, or those for more."""
    return long if positions > length else short


def _yarn_ratio(factor: float, scaling: Mapping[str, Any]) -> float:
    """YaRN's amplitude, or a ratio of two such, as DeepSeek has it."""
    amplitude = yarn_amplitude(factor)
    above, below = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if not (above and below):
        return amplitude
    return float((1 + above * (amplitude - 1)) / (1 + below * (amplitude - 1)))
