"""Figures of a model's run as text: guesses, tokens, blocks, heads."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from .colors import Scale
from .model_figures import MOVES, Block, Token
from .plain import one_line, sized
from .terminal import Column, bar, grid, share_bar

__all__ = ["block_table", "guess_table", "head_list", "quoted", "token_table"]

MOST_TOKENS, MOST_HEADS = 24, 6  # shown: rows of tokens, heads of a kind
TOLD = 0.5  # from where on a head is said to look at keys of a kind
NUMBER, NAME = Column("", right=True), Column("token", shrink="end")
GUESSES = [NUMBER, NAME, Column("probability", right=True), Column("", drop=1)]
TOKENS = [NUMBER, NAME, Column("guessed", right=True, drop=3)]
TOKENS += [Column("rms of ∂L/∂X", right=True), Column("", drop=1)]
TOKENS += [Column("∂L/∂X · X", right=True), Column("", drop=2)]
BLOCKS = [Column("block"), Column("rms of ∂L/∂X", right=True), Column("", drop=2)]
BLOCKS += [Column("∂L/∂weights", right=True, drop=3), Column("", drop=1)]
BLOCKS += [Column("attention", right=True), Column("feed-forward", right=True)]


def guess_table(guesses: Sequence[tuple[str, float]], width: int) -> str:
    rows = [
        [str(k), quoted(token), sized(p), share_bar(p)] for k, (token, p) in enumerate(guesses, 1)
    ]
    return grid(GUESSES, rows, width)


def token_table(text: Sequence[Token], width: int, everything: bool) -> str:
    """A row for each token; of many, the first and the last."""
    scale = Scale.around(token.gradient for token in text)
    most, half = max(abs(token.share) for token in text) or 1.0, MOST_TOKENS // 2
    rows = []
    for k, one in enumerate(text):
        gradient = [sized(one.gradient), bar(one.gradient, scale)]
        share = [f"{one.share:+.2g}", share_bar(abs(one.share) / most)]
        rows.append([str(k), quoted(one.token), sized(one.probability), *gradient, *share])
    if len(rows) > MOST_TOKENS and not everything:
        left_out = [f"{len(rows) - 2 * half} more"] + [""] * (len(TOKENS) - 2)
        rows[half:-half] = [["…", *left_out]]
    return grid(TOKENS, rows, width)


def block_table(blocks: Sequence[Block], width: int) -> str:
    out = Scale.around(block.gradient for block in blocks)
    own = Scale.around(block.of_weights or 0.0 for block in blocks)
    rows = []
    for b in blocks:
        cells = [b.name, sized(b.gradient), bar(b.gradient, out)]
        cells += [sized(b.of_weights), bar(b.of_weights, own)]
        rows.append([*cells, f"{b.attention:+.2g}", f"{b.feed_forward:+.2g}"])
    return grid(BLOCKS, rows, width)


def head_list(by_kind: dict[str, list[tuple[str, float]]], width: int) -> str:
    """For each kind of key the heads that look at it, or the nearest to it."""
    lines = []
    for kind, heads in by_kind.items():
        moves = kind == MOVES
        told = [f"{head} {x:+.2g}" if moves else f"{head} {x:.2f}" for head, x in heads]
        shown = told if moves else told[: sum(x >= TOLD for _, x in heads)]
        more = f" and {len(shown) - MOST_HEADS} more" * (len(shown) > MOST_HEADS and not moves)
        said = ", ".join(shown[:MOST_HEADS]) or f"none; nearest {told[0]}"
        lines.append(fill(f"{kind:26}{said}{more}", width, subsequent_indent="    "))
    return "\n".join(lines)


def quoted(token: str) -> str:
    return f'"{one_line(token, 24)}"'
