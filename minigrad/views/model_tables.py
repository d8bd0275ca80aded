"""Figures of a model's run as tables, in a terminal or a page: guesses, tokens, blocks, heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill, wrap
from typing import Any

from .colors import Scale
from .model_figures import MOVES, BlockFigures, Token
from .plain import one_line, sized
from .terminal import Column, Paint, bar, grid, share_bar

__all__ = ["Figures", "block_table", "guess_table", "head_table", "quoted", "token_table"]

MOST_ROWS, MOST_HEADS = 24, 6  # shown: rows in a terminal, heads of a kind
TOLD = 0.5  # from where on a head is said to look at keys of a kind
NUMBER, NAME = Column("", right=True), Column("token", shrink="end")
GUESS_COLUMNS = [NUMBER, NAME, Column("probability", right=True), Column("", drop=1)]
TOKENS = [NUMBER, NAME, Column("guessed", right=True, drop=3)]
TOKENS += [Column("rms of ∂L/∂X", right=True), Column("", drop=1)]
TOKENS += [Column("∂L/∂X · X", right=True), Column("", drop=2)]
BLOCKS = [Column("block"), Column("rms of ∂L/∂X", right=True), Column("", drop=2)]
BLOCKS += [Column("∂L/∂weights", right=True, drop=3), Column("", drop=1)]
BLOCKS += [Column("attention", right=True), Column("feed-forward", right=True)]
HEADS = [Column("keys"), Column("heads")]


@dataclass(frozen=True)
class Figures:
    """A table under its title, and how to read it. A column of bars has no title.

    most: rows shown in a terminal unless all are asked for.  wraps: its second column, there.
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
        """For the page: without bars, and columns that nothing is in."""
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
    return Figures(title, hint, TOKENS, rows, most=MOST_ROWS)


def block_table(title: str, hint: str, blocks: Sequence[BlockFigures]) -> Figures:
    out = Scale.around(block.gradient for block in blocks)
    own = Scale.around(block.of_weights or 0.0 for block in blocks)
    rows = []
    for b in blocks:
        cells = [b.name, sized(b.gradient), bar(b.gradient, out)]
        cells += [sized(b.of_weights), bar(b.of_weights, own)]
        rows.append([*cells, f"{b.attention:+.2g}", f"{b.feed_forward:+.2g}"])
    return Figures(title, hint, BLOCKS, rows)


def head_table(title: str, hint: str, by_kind: dict[str, list[tuple[str, float]]]) -> Figures:
    """For each kind of key the heads that look at it, or the nearest to it."""
    rows = []
    for kind, heads in by_kind.items():
        moves = kind == MOVES
        told = [f"{head} {x:+.2g}" if moves else f"{head} {x:.2f}" for head, x in heads]
        shown = told if moves else told[: sum(x >= TOLD for _, x in heads)]
        more = f" and {len(shown) - MOST_HEADS} more" * (len(shown) > MOST_HEADS and not moves)
        said = ", ".join(shown[:MOST_HEADS]) or f"none; nearest {told[0]}"
        rows.append([kind, said + more])
    return Figures(title, hint, HEADS, rows, wraps=True)


def quoted(token: str) -> str:
    return f'"{one_line(token, 24)}"'
