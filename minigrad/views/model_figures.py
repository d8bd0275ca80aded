"""Figures of texts that ran through a stack of blocks: by token, by block, by head; as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill, wrap
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..recording.attribution import Explained
from ..recording.record import Entry, rms
from ..recording.trace import TraceRecord
from .attention import attentions, looks_at
from .colors import Scale
from .plain import one_line, sized
from .terminal import Column, Paint, bar, grid, share_bar

__all__ = [
    "MOVES", "BlockFigures", "Figures", "Token", "block_table", "by_block", "by_head", "by_token",
    "guess_table", "head_table", "likeliest", "quoted", "token_table",
]  # fmt: skip

TERMINAL_ROWS, HEADS_NAMED = 24, 6  # shown: rows in a terminal, heads of a kind
LOOKS_FROM = 0.5  # the least mean weight with which a head is said to look at keys of a kind
MOVES = "∂L/∂A · A"
Names: TypeAlias = Sequence[Sequence[str]]  # of each text's tokens
Ids: TypeAlias = NDArray[np.integer]  # (B, n), of the same tokens
Floats: TypeAlias = NDArray[np.floating]


class Token(NamedTuple):
    """A token, and figures of its vector X."""

    token: str
    probability: float | None  # that the model gave it after those before it
    gradient: float  # rms of ∂L/∂X
    share: float  # ∂L/∂X · X


class BlockFigures(NamedTuple):
    """Gradients as rms; of what attention and feed-forward add, F, the share ∂L/∂F · F.

    Both shares sum to the slope of the loss in the size of all that the block adds.
    """

    name: str
    gradient: float  # of its output, without padding
    of_weights: float | None  # None: they were held constant
    attention: float
    feed_forward: float


def likeliest(
    logits: Floats, name: Callable[[int], str], most: int, target: int | None = None
) -> list[tuple[str, float]]:
    """Tokens and their probabilities, the likeliest first, and the target.

    >>> likeliest(np.log([1.0, 3.0]), str, most=1, target=0)
    [('1', 0.75), ('0', 0.25)]
    """
    p = _probabilities(logits)
    best = [*np.argsort(-p, kind="stable")[:most].tolist(), *([] if target is None else [target])]
    return [(name(i), round(float(p[i]), 15)) for i in dict.fromkeys(best)]


def _probabilities(logits: Floats) -> Floats:
    odds: Floats = np.exp(logits.astype(np.float64) - float(logits.max()))
    return odds / odds.sum()


def by_token(
    trace: TraceRecord, found: Explained, names: Names, ids: Ids, logits: Floats | None = None
) -> list[list[Token]]:
    """A list for each text. Args: logits: (B, n, n_tokens) of each next token, if it has them."""
    gradients, texts = trace[found.at].gradient, []
    for row, text in enumerate(names):
        n = len(text)
        probabilities: list[float | None] = [None] * n
        if logits is not None:
            probabilities[1:] = [
                float(_probabilities(logits[row, k])[ids[row, k + 1]]) for k in range(n - 1)
            ]
        sizes, shares = map(rms, gradients[row, :n]), found.positions[row, :n].tolist()
        texts.append([*map(Token, text, probabilities, sizes, shares)])
    return texts


def by_block(
    trace: TraceRecord, found: Explained, lengths: Sequence[int] = ()
) -> list[BlockFigures]:
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
    """The number of the innermost block of a path."""
    return int(re.findall(r"blocks\.(\d+)", path)[-1])


def by_head(
    trace: TraceRecord,
    found: Explained,
    names: Names,
    ids: Ids,
    shown: Callable[[Entry], list[int]],
) -> dict[str, list[tuple[str, float]]]:
    """For each kind of key how much each head looks at it, and how much it moves the loss.

    The largest come first. Over several texts it is the mean.

    Args: shown: which heads of an attention over `ids`, (B, n), are wanted.
    """
    kinds: dict[str, list[tuple[str, float]]] = {}
    moved = {head.path: head.totals for head in found.heads}
    for one in attentions(trace):
        heads = shown(one.entry)
        figures: dict[str, list[Floats]] = {}
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


# ---------------------------------------------------------------- tables, in a terminal or a page


TOKEN_NUMBER, TOKEN_NAME = Column("", right=True), Column("token", shrink="end")
GUESS_COLUMNS = [TOKEN_NUMBER, TOKEN_NAME, Column("probability", right=True), Column("", drop=1)]
TOKEN_COLUMNS = [TOKEN_NUMBER, TOKEN_NAME, Column("guessed", right=True, drop=3)]
TOKEN_COLUMNS += [Column("rms of ∂L/∂X", right=True), Column("", drop=1)]
TOKEN_COLUMNS += [Column("∂L/∂X · X", right=True), Column("", drop=2)]
BLOCK_COLUMNS = [Column("block"), Column("rms of ∂L/∂X", right=True), Column("", drop=2)]
BLOCK_COLUMNS += [Column("∂L/∂weights", right=True, drop=3), Column("", drop=1)]
BLOCK_COLUMNS += [Column("attention", right=True), Column("feed-forward", right=True)]
HEAD_TABLE_COLUMNS = [Column("keys"), Column("heads")]


@dataclass(frozen=True)
class Figures:
    """A table under its title, and how to read it. A column of bars has no title.

    most: rows shown in a terminal unless all are wanted.  wraps: whether its second column wraps.
    """

    title: str
    hint: str
    columns: Sequence[Column]
    rows: list[list[str]]
    most: int | None = None
    wraps: bool = False

    def text(self, width: int, everything: bool) -> str:
        """For a terminal; of many rows, the first and the last."""
        rows = self.rows
        if self.most is not None and len(rows) > self.most and not everything:
            half = self.most // 2
            left_out = f"{len(rows) - 2 * half} more"
            blank = [""] * (len(self.columns) - 2)
            rows = [*rows[:half], ["…", left_out, *blank], *rows[-half:]]
        if self.wraps:
            lines = [fill(f"{k:26}{v}", width, subsequent_indent="    ") for k, v in rows]
        else:
            lines = [grid(self.columns, rows, width)]
        return "\n".join([Paint().bold(self.title), *wrap(self.hint, width), *lines])

    def to_dict(self) -> dict[str, Any]:
        """For the page: without bars and empty columns."""
        named = [i for i, column in enumerate(self.columns) if column.title or column.right]
        kept = [i for i in named if any(row[i] for row in self.rows)]
        return {
            "title": self.title,
            "hint": self.hint,
            "columns": [self.columns[i].title for i in kept],
            "figures": [self.columns[i].right for i in kept],
            "rows": [[_with_minus(row[i], self.columns[i]) for i in kept] for row in self.rows],
        }


def _with_minus(text: str, column: Column) -> str:
    return text.replace("-", "−") if column.right else text


def guess_table(place: str, guesses: Sequence[tuple[str, float]]) -> Figures:
    rows = [
        [str(k), quoted(token), sized(p), share_bar(p)] for k, (token, p) in enumerate(guesses, 1)
    ]
    return Figures(place, "", GUESS_COLUMNS, rows)


def token_table(title: str, hint: str, text: Sequence[Token]) -> Figures:
    """A row for each token."""
    scale = Scale.around(token.gradient for token in text)
    most = max(abs(token.share) for token in text) or 1.0
    rows = []
    for k, one in enumerate(text):
        gradient = [sized(one.gradient), bar(one.gradient, scale)]
        share = [f"{one.share:+.2g}", share_bar(abs(one.share) / most)]
        rows.append([str(k), quoted(one.token), sized(one.probability), *gradient, *share])
    return Figures(title, hint, TOKEN_COLUMNS, rows, most=TERMINAL_ROWS)


def block_table(title: str, hint: str, blocks: Sequence[BlockFigures]) -> Figures:
    out = Scale.around(block.gradient for block in blocks)
    own = Scale.around(block.of_weights or 0.0 for block in blocks)
    rows = []
    for b in blocks:
        cells = [b.name, sized(b.gradient), bar(b.gradient, out)]
        cells += [sized(b.of_weights), bar(b.of_weights, own)]
        rows.append([*cells, f"{b.attention:+.2g}", f"{b.feed_forward:+.2g}"])
    return Figures(title, hint, BLOCK_COLUMNS, rows)


def head_table(title: str, hint: str, by_kind: dict[str, list[tuple[str, float]]]) -> Figures:
    """For each kind of key the heads that look at it, or the nearest to it."""
    rows = []
    for kind, heads in by_kind.items():
        moves = kind == MOVES
        figures = [f"{head} {x:+.2g}" if moves else f"{head} {x:.2f}" for head, x in heads]
        shown = figures if moves else figures[: sum(x >= LOOKS_FROM for _, x in heads)]
        more = f" and {len(shown) - HEADS_NAMED} more" * (len(shown) > HEADS_NAMED and not moves)
        said = ", ".join(shown[:HEADS_NAMED]) or f"none; nearest {figures[0]}"
        rows.append([kind, said + more])
    return Figures(title, hint, HEAD_TABLE_COLUMNS, rows, wraps=True)


def quoted(token: str) -> str:
    return f'"{one_line(token, 24)}"'
