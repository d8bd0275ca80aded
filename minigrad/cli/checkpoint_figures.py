"""Figures of a text's run through a checkpoint, from its record: by token, by block, by head."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ..recording.attribution import Explained
from ..recording.record import Entry, rms
from ..recording.trace import Trace
from ..views.attention import attentions, looks_at
from .checkpoint import Question

__all__ = ["MOVES", "Block", "Token", "by_block", "by_head", "by_token", "guesses", "shown_heads"]

BEST = 5  # guesses at a place
MOVES = "∂L/∂A · A"
Heads = dict[str, list[tuple[str, float]]]


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


def guesses(q: Question, logits: Any) -> dict[int, list[tuple[str, float]]]:
    """At each place where one is asked for the likeliest tokens, and the target, by probability."""
    wanted, found = dict(zip(q.places[::-1], q.targets[::-1], strict=False)), {}
    for place in q.places:
        p = _probabilities(logits[0, place])
        best = [*np.argsort(-p, kind="stable")[:BEST].tolist()]
        best += [wanted[place]] if place in wanted else []
        found[place] = [(q.name(i), float(p[i])) for i in dict.fromkeys(best)]
    return found


def _probabilities(logits: Any) -> Any:
    odds = np.exp(logits.astype(np.float64) - float(logits.max()))
    return odds / odds.sum()


def by_token(q: Question, trace: Trace, logits: Any, found: Explained) -> list[list[Token]]:
    """A list for each text."""
    gradients, texts = trace[found.of].gradient, []
    for row, (n, names) in enumerate(zip(q.lengths, q.names, strict=True)):
        given: list[float | None] = [None] * n
        if q.causal:
            before = [_probabilities(logits[row, k]) for k in range(n - 1)]
            given[1:] = [float(p[i]) for p, i in zip(before, q.ids[row, 1:], strict=True)]
        sizes, shares = map(rms, gradients[row, :n]), found.positions[row, :n].tolist()
        texts.append([*map(Token, names, given, sizes, shares)])
    return texts


def by_block(trace: Trace, found: Explained) -> list[Block]:
    blocks: dict[str, list[Entry]] = {}
    for entry in trace:
        if home := re.match(r"(.*/)?blocks\.\d+", entry.scope):
            blocks.setdefault(home[0], []).append(entry)
    several = len({home.rpartition("/")[0] for home in blocks}) > 1
    return [
        Block(f"{home.split('/')[-2]} {_number(home)}" * several or str(_number(home)), *figures)
        for home, inside in blocks.items()
        for figures in [_of_block(home, inside, found)]
    ]


def _of_block(home: str, inside: list[Entry], found: Explained) -> Any:
    out = [entry for entry in inside if entry.op][-1]
    weights = [e for e in inside if e.kind == "parameter" and e.gradient is not None]
    squares = sum(e.size * (e.gradient_rms or 0.0) ** 2 for e in weights)
    of_weights = (squares / sum(e.size for e in weights)) ** 0.5 if weights else None
    shares = [branch.share for branch in found.branches if branch.path.startswith(f"{home}/")]
    return out.gradient_rms or 0.0, of_weights, sum(shares[:-1]), sum(shares[-1:])


def _number(path: str) -> int:
    return int(re.findall(r"blocks\.(\d+)", path)[-1])


# ---------------------------------------------------------------- heads


def shown_heads(q: Question, entry: Entry) -> list[int]:
    """Which heads of an attention were asked for."""
    return q.heads if _number(entry.scope) in q.layers else []


def by_head(q: Question, trace: Trace, found: Explained) -> Heads:
    """For each kind of key how much each head looks at it, and how much it moves the loss.

    The largest come first. Over several texts it is the mean; what another text is read with, or
    written, is left out.
    """
    kinds: Heads = {}

    def note(kind: str, path: str, heads: list[int], figures: Any) -> None:
        names = [f"{_number(path)}.{h}" for h in heads]
        kinds.setdefault(kind, []).extend(zip(names, map(float, figures), strict=True))

    moved = {head.path: head.totals for head in found.heads}
    for one in attentions(trace):
        heads = shown_heads(q, one.entry)
        if (q.writes and "decoder/" in one.path) or not heads:
            continue
        texts = zip(one.A, q.lengths, q.ids, strict=True)
        looks = [looks_at(A[heads, :n, :n], ids[:n]) for A, n, ids in texts]
        for kind in dict.fromkeys(kind for look in looks for kind in look):
            scores = [look[kind] for look in looks if kind in look]
            note(kind, one.path, heads, np.mean(scores, axis=0))
        if one.path in moved:
            note(MOVES, one.path, heads, moved[one.path][heads])
    return {kind: sorted(some, key=lambda head: -abs(head[1])) for kind, some in kinds.items()}
