"""The attention of a record: weights beside their gradient and their mask, positions named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.errors import ShapeError
from .heads import are_weights
from .record import Array, Entry, Record

__all__ = ["AttentionWeights", "attention_weights", "position_names", "query_asked"]

MOST_SHARE = 0.9  # of |∂L/∂A|, from which on the loss depends on one query
MASKED_SCORE = -1e8  # a score at or below it was masked


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights of one call of attention as (batch, heads, n, m), beside their gradient.

    Attributes:
        entry: of A.
        dA: None if no gradient reached it.
        forbidden: where a mask forbids looking.
        queries, keys: names of the positions.
    """

    entry: int
    path: str
    A: Array
    dA: Array | None
    forbidden: Array
    queries: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def heads(self) -> int:
        return int(self.A.shape[1])


def attention_weights(record: Record, tokens: Any = None) -> list[AttentionWeights]:
    """The weights named A, with their gradient, their mask, and names of the positions."""
    named = [entry for entry in record.entries if entry.name == "A" and entry.op]
    values = [(entry, _made(record, entry).value) for entry in named]
    known = [e for e, A in values if A is not None and A.ndim > 1 and A.size and are_weights(A)]
    return [_attention(record, entry, tokens) for entry in known]


def _made(record: Record, entry: Entry) -> Entry:
    """What made weights, before another value was put among them."""
    sources = (record.entries[edge.source] for edge in record.into(entry))
    if entry.op == "where":
        for source in sources:
            if source.op:
                return _made(record, source)
    return entry


def _attention(record: Record, entry: Entry, tokens: Any) -> AttentionWeights:
    scores = record.entries[record.into(_made(record, entry))[0].source]
    masked = np.zeros(entry.shape, bool)
    if scores.value is not None and scores.shape == entry.shape:
        masked = scores.value <= MASKED_SCORE
    merged = any(e.name == "C" and e.scope == entry.scope for e in record.entries[entry.id :])
    batch_first = len(entry.shape) == 3 and not merged  # (batch, n, m), not (heads, n, m)

    def lifted(array: Array) -> Array:
        array = array[:, None] if batch_first else array
        return array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array

    assert entry.value is not None
    dA = None if entry.gradient is None else lifted(entry.gradient)
    names = position_names(tokens, entry.shape, f"attention(tokens): {entry.path}")
    return AttentionWeights(entry.id, entry.path, lifted(entry.value), dA, lifted(masked), *names)


def query_asked(record: Record) -> int | None:
    """The query through whose weights nearly all of the loss's gradient passes."""
    slopes = [weights.dA for weights in attention_weights(record) if weights.dA is not None]
    sizes = [np.abs(dA).sum(axis=-1) for dA in slopes]
    shares = [rows.reshape(-1, rows.shape[-1]).sum(axis=0) / (rows.sum() or 1.0) for rows in sizes]
    if not shares or len({len(share) for share in shares}) > 1:
        return None
    total = np.sum(shares, axis=0)
    most = int(np.argmax(total))
    return most if len(total) > 1 and total[most] >= MOST_SHARE * total.sum() > 0 else None


def position_names(
    tokens: Any, shape: tuple[int, ...], call: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the queries and the keys of weights (..., n, m): those given, or numbers.

    Args: tokens: one name for each position; or two lists, of the queries' and of the keys'.
    Raises: ShapeError if a list is not as long as the axis that it names.
    """
    tokens = [range(size) for size in shape[-2:]] if tokens is None else tokens
    pair = len(tokens) == 2 and not any(map(np.isscalar, tokens))  # names may be numbers
    queries, keys = tokens if pair else (tokens, tokens)
    for what, names, size in zip(("queries", "keys"), (queries, keys), shape[-2:], strict=True):
        if len(names) != size:
            raise ShapeError(f"{call} has {size} {what}, got {len(names)} tokens")
    return tuple(map(str, queries)), tuple(map(str, keys))
