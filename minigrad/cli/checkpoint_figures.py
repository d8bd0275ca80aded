"""Figures of a text's run through a checkpoint, from its record: by token, by block, by head."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ..recording.record import Entry, rms
from ..recording.trace import Trace
from ..views.attention import attentions, looks_at
from .checkpoint import Question

__all__ = ["Block", "Token", "by_block", "by_look", "by_token", "guesses", "shown_heads"]

BEST = 5  # guesses at a place


class Token(NamedTuple):
    """A token, and the vector X that stands for it."""

    token: str
    probability: float | None  # that the model gave it after those before it
    gradient: float  # rms of ∂L/∂X
    share: float  # ∂L/∂X · X


class Block(NamedTuple):
    """Gradients as rms; of what attention and feed-forward add, F, the share ∂L/∂F · F."""

    name: str
    gradient: float  # of what it hands on
    of_weights: float | None  # None: they were held constant
    attention: float
    feed_forward: float


def guesses(q: Question, logits: Any, place: int) -> list[tuple[str, float]]:
    """The likeliest tokens at a place, and the targets, with their probabilities."""
    p = _probabilities(logits[0, place])
    best = [int(i) for i in np.argsort(-p, kind="stable")[:BEST]]
    return [(q.name(i), float(p[i])) for i in dict.fromkeys(best + q.targets)]


def _probabilities(logits: Any) -> Any:
    odds = np.exp(logits.astype(np.float64) - float(logits.max()))
    return odds / odds.sum()


def by_token(q: Question, trace: Trace, logits: Any) -> list[list[Token]]:
    """A list for each text."""
    steps = (trace[i] for i in trace.forward_steps)
    X = next(entry for entry in steps if entry.name == "X")  # (B, n, d_model)
    found = []
    for row, (n, names) in enumerate(zip(q.lengths, q.names, strict=True)):
        given: list[float | None] = [None] * n
        if q.loss == "next-token":
            before = [_probabilities(logits[row, k]) for k in range(n - 1)]
            given[1:] = [float(p[i]) for p, i in zip(before, q.ids[row, 1:], strict=False)]
        gradients, vectors = X.gradient[row, :n], X.value[row, :n]
        shares = (gradients * vectors).sum(axis=-1).tolist()
        found.append([*map(Token, names, given, map(rms, gradients), shares)])
    return found


def by_block(trace: Trace) -> list[Block]:
    blocks: dict[str, list[Entry]] = {}
    for entry in trace:
        if home := re.match(r"(.*/)?blocks\.\d+", entry.scope):
            blocks.setdefault(home[0], []).append(entry)
    return [_of_block(trace, home, inside) for home, inside in blocks.items()]


def _of_block(trace: Trace, home: str, inside: list[Entry]) -> Block:
    steps = [entry for entry in inside if entry.op]
    weights = [e for e in inside if e.kind == "parameter" and e.gradient is not None]
    squares = sum(e.size * (e.gradient_rms or 0.0) ** 2 for e in weights)
    of_weights = (squares / sum(e.size for e in weights)) ** 0.5 if weights else None
    added = [entry for entry in steps if entry.op == "add" and entry.scope == home]
    branches = [max(edge.source for edge in trace.into(entry)) for entry in added]
    shares = [
        float(np.vdot(entry.gradient, trace[branch].value))
        for entry, branch in zip(added, branches, strict=True)
    ]
    return Block(_number(home), steps[-1].gradient_rms or 0.0, of_weights, shares[0], shares[-1])


def _number(scope: str) -> str:
    return str(re.findall(r"blocks\.(\d+)", scope)[-1])


def shown_heads(q: Question, entry: Entry) -> list[int]:
    """Which heads of an attention were asked for."""
    return q.heads if int(_number(entry.scope)) in q.layers else []


def by_look(q: Question, trace: Trace) -> dict[str, list[tuple[str, float]]]:
    """For each kind of key how much each head looks at it, most first; over texts, the mean."""
    found: dict[str, list[tuple[str, float]]] = {}
    for one in attentions(trace):
        heads = shown_heads(q, one.entry)
        if one.A.shape[2:] != (q.ids.shape[1],) * 2:  # between two texts
            continue
        texts = zip(one.A, q.lengths, q.ids, strict=True)
        looks = [looks_at(A[heads, :n, :n], ids[:n]) for A, n, ids in texts if heads]
        for kind in dict.fromkeys(kind for look in looks for kind in look):
            scores = np.mean([look[kind] for look in looks if kind in look], axis=0)
            names = [f"{_number(one.path)}.{h}" for h in heads]
            found.setdefault(kind, []).extend(zip(names, scores.tolist(), strict=True))
    return {kind: sorted(heads, key=lambda head: -head[1]) for kind, heads in found.items()}
