"""The patterns of attention that the texts describe, each found by a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ...engine.types import Array
from .figures import by_head, evenness, row_entropy, visible

__all__ = ["Pattern", "Patterns", "looks_at", "patterns"]

THRESHOLDS = {
    "diagonal": 0.5,
    "previous token": 0.5,
    "next token": 0.5,
    "band": 0.5,
    "vertical stripe": 0.5,
    "horizontal stripe": 0.5,
    "off-diagonal spike": 0.6,
    "lower-triangular": 1 - 1e-6,
    "diffuse": 0.95,
}
NEAR = 2  # keys on either side that belong to a band
Score: TypeAlias = tuple[float, str]  # and where it is highest


class Pattern(NamedTuple):
    """How much of a pattern a head has, 0 to 1, and from where on it is found."""

    score: float
    threshold: float
    where: str = ""

    @property
    def told(self) -> bool:
        return self.score >= self.threshold


class Patterns(dict[str, Pattern]):
    """Every pattern's score for one head; `told` are the names of those it has."""

    @property
    def told(self) -> list[str]:
        return [name for name, pattern in self.items() if pattern.told]

    def __str__(self) -> str:
        said = [
            f"{n} {p.score:.2f}{f' ({p.where})' if p.where else ''}"
            for n, p in self.items()
            if p.told
        ]
        if said:
            return ", ".join(said)
        name, best = max(self.items(), key=lambda pair: pair[1].score / pair[1].threshold)
        return f"none; nearest is {name}, {best.score:.2f} of the {best.threshold:g} it takes"


def patterns(A: ArrayLike) -> list[Patterns]:
    r"""The patterns of each head's weights, each with the score behind the verdict.

    With A_ij the weight of key j for query i; keys end where queries end, so that with m keys
    query i stands at i + m − n. Each is found from 0.5 on unless another limit stands behind it:

        diagonal           mean_i (A_ii − e_i) / (1 − e_i), e_i = 1 / (keys that row i may see);
                           rows that see one key left out
        previous token     the same of A_{i,i−1};   next token: of A_{i,i+1}
        band               the same of Σ_j A_ij over |i − j| ≤ 2, times 1 − the most that any one of
                           these diagonals has: itself or nearby, and no one place alone
        vertical stripe    max_j mean_i A_ij, over i ≠ j
        horizontal stripe  max_i h_i (1 − mean of h over all other rows), h_i the entropy of row i
                           over the largest it could have
        off-diagonal spike max of A_ij − (mean of column j in all other rows), |i − j| ≥ 2; 0.6
        lower-triangular   min_i Σ_{j ≤ i} A_ij / Σ_j A_ij; 1 − 1e-6
        diffuse            entropy over the largest possible; 0.95

    A head may have several, or none. Over a batch, the mean is read (lower-triangular: the least).

    Shapes: A (..., n, m) → one `Patterns` a head: (n, m) is one head, else axis −3 is the heads.
    Source: Clark et al. 2019, section 3, arXiv:1906.04341, for the first four; scores are ours.
    >>> [head] = patterns(np.eye(4))
    >>> head.told, head["diagonal"].score
    (['diagonal', 'lower-triangular'], 1.0)
    """
    return patterns_where(by_head(A, "patterns"))


def patterns_where(A: Array, allowed: Array | None = None) -> list[Patterns]:
    """`patterns` of A (batch, heads, n, m); allowed: where its mask lets rows look, if known."""
    masks = [None] * A.shape[1] if allowed is None else [*allowed.swapaxes(0, 1)]
    return [_of_head(head, mask) for head, mask in zip(A.swapaxes(0, 1), masks, strict=True)]


def _of_head(A: Array, allowed: Array | None) -> Patterns:
    """A (batch, n, m)."""
    mean = A.mean(axis=0)
    n, m = mean.shape
    shift = m - n
    own = None if allowed is None else allowed[:, None]
    seen = np.asarray(visible(A[:, None], own).any(axis=(0, 1)))
    below = np.where(np.tri(n, m, shift, dtype=bool), A, 0).sum(-1) / np.maximum(A.sum(-1), 1e-300)
    scores: dict[str, Score] = {
        "diagonal": (_line(mean, seen, shift), ""),
        "previous token": (_line(mean, seen, shift - 1), ""),
        "next token": (_line(mean, seen, shift + 1), ""),
        "band": (_near(mean, seen, shift), ""),
        "vertical stripe": _column(mean, shift),
        "horizontal stripe": _row(mean, seen),
        "off-diagonal spike": _spike(mean, shift),
        "lower-triangular": (float(below.min()) if n > 1 else 0.0, ""),
        "diffuse": (float(evenness(A[:, None], own)[1][0]), ""),
    }
    return Patterns({k: Pattern(min(s, 1.0), THRESHOLDS[k], w) for k, (s, w) in scores.items()})


def looks_at(A: ArrayLike, tokens: Sequence[object] | None = None) -> dict[str, Array]:
    r"""How much each head looks at keys of a kind, beyond what even weights would give: 0 to 1.

        mean_i (Σ_{j ∈ K_i} A_ij − e_i) / (1 − e_i),    e_i = |K_i| / |keys that row i may see|

    over the rows that see such keys K_i and others: of the token itself, the previous, the next,
    the first; given tokens, of the same token elsewhere, and of what followed it there (induction).

    Shapes: A (..., h, n, m), tokens (m,) → a figure a head by kind; kinds without a row left out.
    >>> looks_at(np.eye(4))["itself"]
    array([1.])
    """
    mean = by_head(A, "looks_at").mean(axis=0)  # (h, n, m)
    (n, m), seen = mean.shape[-2:], np.asarray(visible(mean[None]).any(axis=(0, 1)))
    i, j = np.arange(n)[:, None] + m - n, np.arange(m)
    kinds = {"itself": i == j, "previous token": i - 1 == j, "next token": i + 1 == j}
    kinds["first token"] = (j == 0) & (i > 0)
    if tokens is not None:
        same = np.asarray(tokens)[m - n :, None] == np.asarray(tokens)
        kinds["the same token elsewhere"] = same & (i != j)
        kinds["what followed that one"] = np.roll(same, 1, axis=1) & (j > 0) & (i != j - 1)
    found = {kind: _beyond_even(mean, seen, seen & keys) for kind, keys in kinds.items()}
    return {kind: gains for kind, gains in found.items() if gains is not None}


def _beyond_even(A: Array, seen: Array, keys: Array) -> Array | None:
    """The mean weight on some keys beyond that of even weights, over rows with a choice."""
    even = keys.sum(-1) / np.maximum(seen.sum(-1), 1)
    rows = (even > 0) & (even < 1)
    gains = ((A * keys).sum(-1) - even)[..., rows] / (1 - even[rows])
    return np.maximum(gains.mean(axis=-1), 0.0) if rows.any() else None


def _line(mean: Array, seen: Array, offset: int) -> float:
    """The mean weight along a diagonal beyond that of even weights, over rows with a choice."""
    found = _beyond_even(mean, seen, np.eye(len(mean), mean.shape[1], offset, dtype=bool) & seen)
    return float(np.trace(mean, offset) > 0) if found is None else float(found)


def _near(mean: Array, seen: Array, shift: int) -> float:
    """The mean weight within two keys of a query's own, beyond even, that no one diagonal has."""
    n, m = mean.shape
    near = abs(np.arange(n)[:, None] + shift - np.arange(m)) <= NEAR
    lines = [_line(mean, seen, shift + k) for k in range(-NEAR, NEAR + 1)]
    return float(_beyond_even(mean, seen, near & seen) or 0.0) * (1 - max(lines))


def _column(mean: Array, shift: int) -> Score:
    """The key that all others look at most, and how much; its own look at itself is no stripe."""
    n, m = mean.shape
    other = np.arange(n)[:, None] + shift != np.arange(m)
    counts = other.sum(axis=0)
    per_key = np.where(counts > 1, (mean * other).sum(axis=0) / np.maximum(counts, 1), 0.0)
    return float(per_key.max()), f"key {per_key.argmax()}"


def _row(mean: Array, seen: Array) -> Score:
    """The query that looks evenly at all it may see, where the others do not."""
    most = np.log(np.maximum(seen.sum(-1), 1))
    rows = np.flatnonzero(most)  # with a choice
    if len(rows) < 2:
        return 0.0, ""
    even = row_entropy(mean)[rows] / most[rows]
    scores = even * (1 - (even.sum() - even) / (len(rows) - 1))
    return max(float(scores.max()), 0.0), f"query {rows[scores.argmax()]}"


def _spike(mean: Array, shift: int) -> Score:
    """The query that looks most at one key away from its own, to which the others do not look."""
    n, m = mean.shape
    away = abs(np.arange(n)[:, None] + shift - np.arange(m)) > 1
    gains = np.where(away, mean - (mean.sum(axis=0) - mean) / max(n - 1, 1), 0.0)
    i, j = np.unravel_index(gains.argmax(), gains.shape)
    return float(gains[i, j]), f"query {i} to key {j}"
