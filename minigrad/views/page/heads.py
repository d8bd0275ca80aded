"""The attention of a record, head by head: figures, masks, and names of positions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.linalg import norm

from ...engine.errors import ArgumentError
from ...engine.types import Array
from ...recording.trace import TraceRecord
from ..attention.figures import row_entropy
from ..attention.record import AttentionWeights, Tokens, attentions, decisive_query
from ..data import Json, number
from ..fold import parts
from ..model import AnnotatedTrace
from ..plain import one_line
from .arrays import Arrays

__all__ = ["attention_of", "tokens_of"]


def attention_of(model: AnnotatedTrace, arrays: Arrays) -> list[Json]:
    """Each attention of the record, with figures for each entry of the batch and each head.

    `decisive_query` is the one query that nearly all of the loss's gradient passes through, if
    there is one.
    """
    found, every = [], attentions(model.trace)
    query = decisive_query(model.trace, every)
    for one in every:
        held = one.entry.value, one.entry.gradient
        value, gradient = (arrays.add(array, one.entry.shape, heads=True) for array in held)
        made = {"value": value, "gradient": gradient, **_figures(one)}
        if query is not None and query < len(one.queries):
            made["decisive_query"] = query
        found.append(made)
    scopes = [model.scope_of(one.entry) or "attention" for one in every]
    labels = distinct_names(scopes)
    return [one | {"label": one_line(label)} for one, label in zip(found, labels, strict=True)]


def distinct_names(scopes: Sequence[str]) -> list[str]:
    """Scopes without the names that they all begin and end with.

    >>> distinct_names(["gpt/blocks.0/attention", "gpt/blocks.1/attention"])
    ['blocks.0', 'blocks.1']
    >>> distinct_names(["gpt/attention"])
    ['gpt/attention']
    """
    names = [parts(scope) for scope in scopes]
    for end in (0, -1):
        while len(names) > 1 and min(map(len, names)) > 1 and len({one[end] for one in names}) == 1:
            for one in names:
                one.pop(end)
    return ["/".join(one) for one in names]


def _figures(one: AttentionWeights) -> Json:
    return {
        "node": one.entry.id,
        "heads": one.heads,
        "queries": len(one.queries),
        "keys": len(one.keys),
        "entropy": [*map(number, _entropy(one.A).flat)],
        "norm": None if one.dA is None else _norms(one.dA, one.forbidden),
        "ranges": [_ranges(one.A, one.forbidden), _ranges(one.dA, one.forbidden)],
        **_masks(one.forbidden),
    }


def _ranges(array: Array | None, forbidden: Array) -> list[list[float]]:
    """Each head's least and largest finite entry, masked pairs left out."""
    if array is None:
        return []
    seen = np.ma.masked_where(forbidden | ~np.isfinite(array), array).astype(np.float64)
    heads = seen.reshape(-1, array.shape[-2] * array.shape[-1])
    ends = heads.min(axis=-1).filled(0.0), heads.max(axis=-1).filled(0.0)
    return [[float(f"{x:.6g}") for x in pair] for pair in zip(*ends, strict=True)]


def _norms(dA: Array, forbidden: Array) -> list[float | str | None]:
    """‖∂L/∂A‖ of each head, masked pairs left out."""
    return [*map(number, norm(np.where(forbidden, 0.0, dA), axis=(-2, -1)).flat)]


def _entropy(A: Array) -> Array:
    """Each head's mean entropy over its rows, in nats; rows that may attend nowhere left out."""
    counted = A.sum(axis=-1) > 0
    return row_entropy(A).sum(axis=-1, where=counted) / np.maximum(counted.sum(axis=-1), 1)


def _masks(forbidden: Array) -> Json:
    """Each different mask once, as bits of queries by keys; and which one each head has."""
    if not forbidden.any():
        return {}
    heads = forbidden.reshape(-1, forbidden.shape[-2] * forbidden.shape[-1])
    bits = [b64encode(np.packbits(head).tobytes()).decode() for head in heads]
    masks = list(dict.fromkeys(bits))
    return {"masks": masks, "masked": [masks.index(one) for one in bits]}


def tokens_of(tokens: Tokens, trace: TraceRecord, attention: list[Json]) -> list[list[str]] | None:
    """One list of names for each of the batch, or one for all, that fits the attention."""
    if tokens is None:
        return None
    given: list[Any] = [*tokens]
    nested = bool(given) and all(isinstance(names, list | tuple) for names in given)
    rows = [[one_line(str(name)) for name in names] for names in (given if nested else [given])]
    sizes = {a["keys"] for a in attention} | {a["queries"] for a in attention}
    batches = {1, *(trace.entries[a["node"]].shape[0] for a in attention)}
    got = {len(row) for row in rows}
    if attention and (not got <= sizes or len(rows) not in batches):
        raise ArgumentError(
            f"html(tokens=...): attention is over {sorted(sizes)} positions, in batches of "
            f"{sorted(batches)}; got {len(rows)} list(s) of {sorted(got)} names"
        )
    return rows
