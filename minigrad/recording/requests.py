"""Attention in production: what each head does in one request, in figures, and how far it moved.

A request is one call of a model under `no_grad`. Of each head's weights A the record keeps the
entropy, the share of negligible weights, the rms of the scores, and the distribution of the weight
over distances from the query, which can be compared between requests of any length.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..engine.types import Arguments, Array
from .findings import Finding
from .flow import FlowRecord, Sample
from .formulas import array_of
from .measures import rows_of_weights
from .watched_run import WatchedRun, lasting_from

if TYPE_CHECKING:
    from ..engine.op import Op
    from ..engine.tensor import Tensor

__all__ = [
    "DISTANCES",
    "RequestWatch",
    "attention_moved",
    "distances_of",
    "divergence",
    "head_figures",
]

MOVED, MOVED_BY = 0.05, 3.0  # bits, and times the most that the baseline moves by itself
MOST_LAYER_WEIGHTS = 1 << 16  # weights of one layer that are measured
NEGLIGIBLE_WEIGHT = 0.01  # the share of weights below it is the sparsity
DISTANCE_BOUNDS = (1, 2, 4, 8, 16, 64)  # where a distance counts as the next farther one
DISTANCES = (
    "first",
    "self",
    *(f"back {n}" for n in DISTANCE_BOUNDS),
    *(f"ahead {n}" for n in DISTANCE_BOUNDS),
)
"""How far a key lies from its query: the first of all keys, its own, so many back or ahead."""


@lru_cache(maxsize=64)
def _places(n: int, m: int) -> Array:
    """For each cell (i, j) the number of its distance; queries are the last n of m positions."""
    away = np.arange(m) - (np.arange(n)[:, None] + m - n)
    farther = np.searchsorted(DISTANCE_BOUNDS, np.abs(away), side="right") - 1
    places = np.where(away < 0, 2 + farther, 2 + len(DISTANCE_BOUNDS) + farther)
    places = np.where(away == 0, 1, places)
    places[:, 0] = np.where(away[:, 0] == 0, 1, 0)
    return places.ravel()


def head_figures(A: Array, scores: Array | None = None) -> list[dict[str, float]] | None:
    """Figures of each head; None if A's rows are no weights that sum to 1.

    A head of which every row is masked has none.

    Shapes: A (n, m), (batch, n, m) or (batch, heads, n, m); scores alike.

    >>> [found] = head_figures(np.eye(4))
    >>> found["entropy"], found["self"], found["sparsity"]
    (0.0, 1.0, 0.75)
    """
    if not 2 <= A.ndim <= 4 or A.shape[-1] < 2 or not A.size:
        return None
    while A.ndim < 4:
        A = A[None] if A.ndim == 2 else A[:, None]
    few = max(1, MOST_LAYER_WEIGHTS // (A[0].size or 1))
    S = None if scores is None else np.reshape(scores, A.shape)[:few]
    A = A[:few].astype(np.float64)
    rows = rows_of_weights(A)
    if rows is None or not rows[0].any():
        return None
    allowed, entropy = rows
    found: list[dict[str, float]] = []
    for head in range(A.shape[1]):
        own, free = A[:, head], allowed[:, head] > 0
        if not free.any():
            found.append({})
            continue
        figures = {
            "entropy": float(entropy[:, head][free].mean()),
            "sparsity": float((own[free] < NEGLIGIBLE_WEIGHT).mean()),
        }
        if S is not None:
            finite = S[:, head][np.isfinite(S[:, head])].astype(np.float64)
            figures["scores"] = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
        weights = own.sum(axis=0).ravel()
        shares = np.bincount(_places(*own.shape[1:]), weights, len(DISTANCES)) / weights.sum()
        figures |= dict(zip(DISTANCES, shares.tolist(), strict=True))
        found.append(figures)
    return found


def distances_of(figures: dict[str, float]) -> Array:
    """The distribution over distances that figures of a head hold."""
    return np.array([figures[name] for name in DISTANCES])


def divergence(p: Array, q: Array) -> float:
    r"""The Jensen–Shannon divergence of two distributions, in bits: 0 if equal, 1 if disjoint.

        JS = ½ KL(p ‖ m) + ½ KL(q ‖ m),    m = ½ (p + q)

    Source: Lin 1991, https://doi.org/10.1109/18.61115.

    >>> divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    middle = (p + q) / 2
    total = 0.0
    for one in (p, q):
        held = one > 0
        total += float((one[held] * np.log2(one[held] / middle[held])).sum()) / 2
    return max(total, 0.0)


class RequestWatch:
    """Adds a sample to the record for each request: for the ops of a call under `no_grad`."""

    def __init__(self, record: FlowRecord) -> None:
        self.record = record
        self.number = 0
        self._first = ""
        self._rows: dict[str, dict[str, float]] = {}

    def forward(self, op: Op, inputs: Arguments, output: Tensor, path: str) -> None:
        """An op ran; weights of attention are known by their rows, which sum to 1."""
        array = output._data
        if "axis" not in op.settings or np.shape(array_of(inputs[0])) != array.shape:
            return
        if array.dtype.kind != "f" or array.ndim < 2:
            return
        if path == self._first:  # the first layer again: another request
            self.end()
        looked_at = self.number % self.record.every == 0
        if not self._first or looked_at:
            found = head_figures(array, array_of(inputs[0]))
            if found is None:
                return
            self._first = self._first or path
            if looked_at:
                self._rows |= {f"{path}[{head}]": row for head, row in enumerate(found) if row}

    def end(self) -> None:
        """The request is over."""
        if self._rows:
            self.record.add("requests", Sample(self.number, rows=self._rows))
        self.number += bool(self._first)
        self._rows = {}


def attention_moved(run: WatchedRun) -> Iterator[Finding]:
    """A head whose weights lie elsewhere than in the baseline, for several requests in a row."""
    baseline = run.flow.baseline
    if baseline is None or not baseline.requests:
        return
    for path in baseline.requests[0].rows:
        before = [distances_of(s.rows[path]) for s in baseline.requests if path in s.rows]
        usual = np.mean(before, axis=0)
        most = max(divergence(one, usual) for one in before)
        limit = max(MOVED, MOVED_BY * most)
        now = [s for s in run.flow.requests if path in s.rows]
        moved = [divergence(distances_of(s.rows[path]), usual) for s in now]
        began = lasting_from([by > limit for by in moved])
        if began is None:
            continue
        entropy = float(np.mean([s.rows[path]["entropy"] for s in baseline.requests]))
        text = (
            f"its weights moved by {moved[began]:.2f} bits (Jensen–Shannon, over distances) "
            f"from the baseline, which itself moves by at most {most:.2f}; entropy "
            f"{entropy:.2f} → {now[began].rows[path]['entropy']:.2f}"
        )
        remedy = "compare the requests, then the weights, with those of the baseline"
        yield Finding("attention moved", now[began].step, path, text, remedy)
