"""Figures of texts that ran through a stack of blocks: by token, by block, by head."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..recording.attribution import Explained
from ..recording.record import Entry, rms
from ..recording.trace import Trace
from .attention import attentions, looks_at

__all__ = [
    "MOVES",
    "BlockFigures",
    "Token",
    "block_number",
    "by_block",
    "by_head",
    "by_token",
    "likeliest",
]

MOVES = "∂L/∂A · A"
Names = Sequence[Sequence[str]]  # of each text's tokens


class Token(NamedTuple):
    """A token, and the vector X that stands for it."""

    token: str
    probability: float | None  # that the model gave it after those before it
    gradient: float  # rms of ∂L/∂X
    share: float  # ∂L/∂X · X


class BlockFigures(NamedTuple):
    """Gradients as rms; of what attention and feed-forward add, F, the share ∂L/∂F · F.

    Both shares sum to the slope of the loss in the size of all that the block adds.
    """

    name: str
    gradient: float  # of what it hands on, without padding
    of_weights: float | None  # None: they were held constant
    attention: float
    feed_forward: float


def likeliest(logits: Any, name: Callable[[int], str], most: int, target: int | None = None) -> Any:
    """Tokens and their probabilities, the likeliest first, and the target.

    >>> likeliest(np.log([1.0, 3.0]), str, most=1, target=0)
    [('1', 0.75), ('0', 0.25)]
    """
    p = _probabilities(logits)
    best = [*np.argsort(-p, kind="stable")[:most].tolist(), *([] if target is None else [target])]
    return [(name(i), round(float(p[i]), 15)) for i in dict.fromkeys(best)]


def _probabilities(logits: Any) -> Any:
    odds = np.exp(logits.astype(np.float64) - float(logits.max()))
    return odds / odds.sum()


def by_token(
    trace: Trace, found: Explained, names: Names, ids: Any, logits: Any = None
) -> list[list[Token]]:
    """A list for each text. Args: logits: (B, n, n_tokens) of each next token, if it has them."""
    gradients, texts = trace[found.at].gradient, []
    for row, text in enumerate(names):
        n = len(text)
        given: list[float | None] = [None] * n
        if logits is not None:
            given[1:] = [
                float(_probabilities(logits[row, k])[ids[row, k + 1]]) for k in range(n - 1)
            ]
        sizes, shares = map(rms, gradients[row, :n]), found.positions[row, :n].tolist()
        texts.append([*map(Token, text, given, sizes, shares)])
    return texts


def by_block(trace: Trace, found: Explained, lengths: Sequence[int] = ()) -> list[BlockFigures]:
    """Args: lengths: how many tokens of each row are real; all unless given."""
    blocks: dict[str, list[Entry]] = {}
    for entry in trace:
        if match := re.match(r"(.*/)?blocks\.\d+", entry.scope):
            blocks.setdefault(match[0], []).append(entry)
    several = len({home.rpartition("/")[0] for home in blocks}) > 1
    made = []
    for home, inside in blocks.items():
        out = _rms_of_real([entry for entry in inside if entry.op][-1], lengths)
        weights = [e for e in inside if e.kind == "parameter" and e.gradient is not None]
        squares = sum(e.size * (e.gradient_rms or 0.0) ** 2 for e in weights)
        of_weights = (squares / sum(e.size for e in weights)) ** 0.5 if weights else None
        added = [branch for branch in found.branches if not branch.starts]
        shares = [branch.share for branch in added if branch.path.startswith(f"{home}/")]
        name = f"{home.split('/')[-2]} " * several + str(block_number(home))
        made.append(BlockFigures(name, out, of_weights, sum(shares[:-1]), sum(shares[-1:])))
    return made


def _rms_of_real(entry: Entry, lengths: Sequence[int]) -> float:
    """The rms of a gradient, (B, n, ...), without its padding."""
    gradient, width = entry.gradient, max(lengths, default=0)
    if not isinstance(gradient, np.ndarray) or entry.shape[:2] != (len(lengths), width):
        return entry.gradient_rms or 0.0
    return rms(gradient[np.arange(width) < np.asarray(lengths)[:, None]])


def block_number(path: str) -> int:
    """The last that a path has."""
    return int(re.findall(r"blocks\.(\d+)", path)[-1])


def by_head(
    trace: Trace, found: Explained, names: Names, ids: Any, shown: Callable[[Entry], list[int]]
) -> dict[str, list[tuple[str, float]]]:
    """For each kind of key how much each head looks at it, and how much it moves the loss.

    The largest come first. Over several texts it is the mean.

    Args: shown: which heads of an attention over `ids`, (B, n), are wanted.
    """
    kinds: dict[str, list[tuple[str, float]]] = {}
    moved = {head.path: head.totals for head in found.heads}
    for one in attentions(trace):
        heads = shown(one.entry)
        figures: dict[str, list[Any]] = {}
        for A, text, row in zip(one.A if heads else (), names, ids, strict=False):
            n = len(text)
            for kind, looks in looks_at(A[heads, :n, :n], row[:n]).items():
                figures.setdefault(kind, []).append(looks)
        if heads and one.path in moved:
            figures[MOVES] = [moved[one.path][heads]]
        labels = [f"{block_number(one.path)}.{head}" for head in heads]
        for kind, some in figures.items():
            mean = np.mean(some, axis=0).tolist()
            kinds.setdefault(kind, []).extend(zip(labels, mean, strict=True))
    return {kind: sorted(some, key=lambda head: -abs(head[1])) for kind, some in kinds.items()}
