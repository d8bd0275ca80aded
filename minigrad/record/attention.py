"""The attention of a record: weights beside their gradient and their mask, positions named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.errors import ShapeError
from .heads import are_weights
from .record import Array, Entry, Record

__all__ = ["AttentionWeights", "attention_weights", "fitting", "query_asked", "texts_of"]

MOST_SHARE = 0.9  # of |∂L/∂A|, from which on the loss depends on one query
MASKED_SCORE = -1e8  # a score at or below it was masked


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights of one call of attention as (batch, heads, n, m), beside their gradient.

    Attributes:
        entry: of A.
        dA: None if no gradient reached it.
        forbidden: where a mask forbids looking.
        queries, keys: names of the positions, where a view gave them.
    """

    entry: int
    path: str
    A: Array
    dA: Array | None
    forbidden: Array
    queries: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def heads(self) -> int:
        return int(self.A.shape[1])


def attention_weights(record: Record) -> list[AttentionWeights]:
    """The weights named A, with their gradient and their mask."""
    weights = []
    for entry in record.entries:
        if entry.name == "A" and entry.op:
            origin = _unreplaced(record, entry)
            A = origin.value
            if A is not None and A.ndim > 1 and A.size and are_weights(A):
                weights.append(_attention(record, entry, origin))
    return weights


def _unreplaced(record: Record, entry: Entry) -> Entry:
    """The weights before another value was put among them."""
    for edge in entry.takes:
        source = record.entries[edge.source]
        if entry.op == "where" and source.op:
            return _unreplaced(record, source)
    return entry


def _attention(record: Record, entry: Entry, origin: Entry) -> AttentionWeights:
    scores = record.entries[origin.takes[0].source]
    masked = np.zeros(entry.shape, bool)
    if scores.value is not None and scores.shape == entry.shape:
        masked = scores.value <= MASKED_SCORE
    merged = any(e.name == "C" and e.scope == entry.scope for e in record.entries[entry.id :])
    batch_first = len(entry.shape) == 3 and not merged  # (batch, n, m), not (heads, n, m)

    def lifted(array: Array) -> Array:
        return array[:, None] if batch_first else array.reshape(-1, *(1, *array.shape)[-3:])

    assert entry.value is not None
    dA = None if entry.gradient is None else lifted(entry.gradient)
    return AttentionWeights(entry.id, entry.path, lifted(entry.value), dA, lifted(masked))


def query_asked(record: Record) -> int | None:
    """The query through whose weights nearly all of the loss's gradient passes."""
    slopes = [weights.dA for weights in attention_weights(record) if weights.dA is not None]
    sizes = [np.abs(dA).sum(axis=(0, 1, 3)) for dA in slopes]  # of each query
    if len({*map(len, sizes)}) != 1:
        return None
    shares = np.sum([rows / (rows.sum() or 1.0) for rows in sizes], axis=0)
    most = int(np.argmax(shares))
    return most if len(shares) > 1 and shares[most] >= MOST_SHARE * shares.sum() > 0 else None


def texts_of(tokens: Any, weights: Sequence[AttentionWeights], call: str) -> list[list[str]]:
    """Names of positions as lists: of one text, of each of a batch, or of queries and of keys.

    Raises: ShapeError if no axis of any weights is as long as any list.
    """
    names = [] if tokens is None else [*tokens]
    if names and np.isscalar(names[0]):
        names = [names]
    texts = [[*map(str, text)] for text in names]
    lengths = {size for attention in weights for size in attention.A.shape[-2:]}
    if texts and lengths and not lengths & {*map(len, texts)}:
        over = ", ".join(map(str, sorted(lengths)))
        raise ShapeError(f"{call}: attention is over {over} positions, got {len(texts[0])} tokens")
    return texts


def fitting(texts: list[list[str]], size: int) -> list[list[str]]:
    """The lists that name so many positions; their numbers if there is none."""
    return [text for text in texts if len(text) == size] or [[*map(str, range(size))]]
