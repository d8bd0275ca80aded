"""What attention looked at in a run: first the one query that the loss depends on, then every head.

Raw weights are no explanation: beside them stand what they carry across layers (rollout) and what
they do to the loss (gradient × attention).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..recording.trace import TraceRecord
from ..views.attention import (
    Attentions,
    attentions,
    entropy,
    gradient_times_attention,
    patterns,
    rollout,
    sparsity,
)
from ..views.attention.record import AttentionWeights, asking
from ..views.plain import one_line
from ..views.terminal import Column, Paint, grid, share_bar

__all__ = ["Looks", "looks"]

MOST_LAYERS = 4  # columns of weights
MOST_KEYS_PRINTED, MOST_HEADS_PRINTED = 24, 12  # rows
MOST_ENTRIES = 50_000  # of weights that trace.json keeps


def looks(trace: TraceRecord, tokens: list[list[str]] | None, title: str) -> Looks | None:
    """The attention of a record, with the words' names where they fit.

    Raises: ArgumentError if words are given and no attention is over so many positions.
    """
    found = attentions(trace)
    if not found:
        return None
    sizes = sorted({size for one in found for size in one.A.shape[-2:]})
    if tokens is not None and not {len(text) for text in tokens} & {*sizes}:
        said = f"its attention is over {', '.join(map(str, sizes))} positions"
        counts = ", ".join(str(len(text)) for text in tokens)
        raise ArgumentError(f"{title} names {counts} tokens, but {said}: name each of them")
    words = tokens[0] if tokens else []
    named = [
        replace(one, queries=_fitting(words, one.queries), keys=_fitting(words, one.keys))
        for one in found
    ]
    return Looks(Attentions(named), asking(trace, named), bool(tokens))


def _fitting(words: Sequence[str], numbers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(words) if len(words) == len(numbers) else numbers


def _short(paths: Sequence[str]) -> list[str]:
    """Names of layers by the parts of their paths in which they differ, each another.

    >>> _short(["gpt/blocks.0/attention/A", "gpt/blocks.1/attention/A"]), _short(["net/read/A"])
    (['blocks.0', 'blocks.1'], ['read'])
    """
    parts = [path.split("/")[:-1] or [path] for path in paths]
    if len(parts) < 2:
        return [one[-1] for one in parts]
    while all(len(one) > 1 and one[0] == parts[0][0] for one in parts):
        parts = [one[1:] for one in parts]
    while all(len(one) > 1 and one[-1] == parts[0][-1] for one in parts):
        parts = [one[:-1] for one in parts]
    names: list[str] = []
    for one in map("/".join, parts):
        again = sum(name.partition(", call ")[0] == one for name in names)
        names.append(f"{one}, call {again + 1}" if again else one)
    return names


@dataclass
class Looks:
    """Every attention of a run, and the query that the loss depends on."""

    found: Attentions
    asking: int | None
    named: bool

    @property
    def across(self) -> list[AttentionWeights]:
        """Layers of one square size, over which attention can be followed."""
        square = [one for one in self.found if len(one.queries) == len(one.keys)]
        return [one for one in square if len(one.keys) == len(square[0].keys)]

    def _row(self, matrix: Any) -> Any:
        """A matrix's row of the query that is asked for, or the mean over all queries."""
        return matrix.mean(axis=0) if self.asking is None else matrix[self.asking]

    def columns(self) -> dict[str, Any]:
        """By key: the weights of the first layers, rollout, and gradient × attention."""
        layers, made = self.across, dict[str, Any]()
        for name, one in zip(_short([one.path for one in layers]), layers, strict=True):
            if len(made) < MOST_LAYERS:
                made[name] = self._row(one.A.mean(axis=(0, 1)))
        if len(layers) > 1:
            made["rollout"] = self._row(rollout([one.A for one in layers]))
        # the loss should fall: a weight counts by how much it lowers it
        reached = [(one.A, one.dA) for one in layers if one.dA is not None]
        if down := [gradient_times_attention(A, -dA) for A, dA in reached]:
            made["lowers the loss"] = self._row(sum(down))
        return made

    def parts(self, width: int, everything: bool) -> Iterator[str]:
        """Who looks at what, key by key; and each head in a line."""
        if self.across:
            yield self._by_key(width, everything)
        yield self._by_head(width, everything)

    def _by_key(self, width: int, everything: bool) -> str:
        keys, made = self.across[0].keys, self.columns()
        who = "of all queries, their mean"
        if self.asking is not None:
            name = one_line(keys[self.asking], 24)
            who = f'of "{name}", through which the loss depends on the scores'
        rows = []
        for k, key in enumerate(keys):
            cells = [one_line(key, 24)]
            for values in made.values():
                most = max(float(np.max(np.abs(values))), 1e-300)
                cells += [f"{values[k]:.2f}", share_bar(abs(float(values[k])) / most)]
            rows.append(cells)
        half = MOST_KEYS_PRINTED // 2
        if len(rows) > MOST_KEYS_PRINTED and not everything:
            left = [f"{len(rows) - 2 * half} more", *[""] * (2 * len(made))]
            rows[half:-half] = [left]
        columns = [Column("looks at", shrink="end")]
        for i, title in enumerate(made):
            columns += [Column(one_line(title), right=True, shrink="start"), Column("", drop=9 - i)]
        hint = "weights are the mean over heads"
        if "rollout" in made:
            hint += "; rollout: how much of each key is in it by the attention of all layers"
        if "lowers the loss" in made:
            hint += "; lowers the loss: −A ⊙ ∂L/∂A where positive, of layers that it reaches"
        title = Paint().bold(f"attention {who}")
        return "\n".join([title, *textwrap.wrap(hint, width), grid(columns, rows, width)])

    def _by_head(self, width: int, everything: bool) -> str:
        """Each head in a line: its patterns, how evenly it spreads, how sparse it is."""
        rows = []
        names = _short([one.path for one in self.found])
        for name, one in zip(names, self.found, strict=True):
            figures = entropy(one.A).figures, sparsity(one.A).figures, patterns(one.A)
            for head, (spread, sparse, pattern) in enumerate(zip(*figures, strict=True)):
                found = str(pattern) if np.isfinite(one.A[:, head]).all() else "not finite"
                rows.append([one_line(name), str(head), f"{spread:.2f}", f"{sparse:.0%}", found])
        more = ""
        if len(rows) > MOST_HEADS_PRINTED and not everything:
            more = f"\n{len(rows) - MOST_HEADS_PRINTED} more heads: --all shows them"
            rows = rows[:MOST_HEADS_PRINTED]
        columns = [
            Column("attention", shrink="start"),
            Column("head", right=True),
            Column("entropy", right=True, drop=2),
            Column("below 0.01", right=True, drop=1),
            Column("patterns", shrink="end"),
        ]
        return f"{Paint().bold('heads')}\n{grid(columns, rows, width)}{more}"

    def maps(self, width: int, most: int | None) -> str:
        return self.found.text(width, most=most)

    def to_dict(self) -> dict[str, Any]:
        """The query, the columns of the table, and the weights unless they are many."""
        made: dict[str, Any] = {"query": self.asking}
        made["by_key"] = {name: values.tolist() for name, values in self.columns().items()}
        if sum(one.A.size for one in self.found) <= MOST_ENTRIES:
            made["weights"] = {one.path: one.A.tolist() for one in self.found}
        return made
