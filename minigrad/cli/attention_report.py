"""What attention looked at in a run: first the one query that the loss depends on, then every head.

Raw weights are no explanation: beside them stand what they carry across layers (rollout) and what
they do to the loss (gradient × attention).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError
from ..recording.trace import TraceRecord
from ..views.attention import (
    Attentions,
    attentions,
    gradient_times_attention,
    rollout,
)
from ..views.attention.record import AttentionWeights, decisive_query
from ..views.model import AnnotatedTrace
from ..views.page.heads import distinct_names
from ..views.plain import one_line
from ..views.terminal import Column, Paint, grid, share_bar

__all__ = ["AttentionReport", "attention_report"]

MOST_LAYERS = 4  # columns of weights
MOST_KEYS_PRINTED, MOST_HEADS_PRINTED = 24, 12  # rows
MOST_ENTRIES = 50_000  # of weights that trace.json keeps


def attention_report(
    trace: TraceRecord, tokens: list[list[str]] | None, title: str
) -> AttentionReport | None:
    """The attention of a record, with the words' names where they fit.

    Raises: ArgumentError if words are given and no attention is over so many positions.
    """
    found = attentions(trace)
    if not found:
        return None
    sizes = sorted({size for weights in found for size in weights.A.shape[-2:]})
    if tokens is not None and not {len(text) for text in tokens} & {*sizes}:
        counts = ", ".join(str(len(text)) for text in tokens)
        raise ArgumentError(
            f"{title} names {counts} tokens, but its attention is over "
            f"{', '.join(map(str, sizes))} positions: name each of them"
        )
    words = tokens[0] if tokens else []
    model = AnnotatedTrace(trace, fold=False)
    named = [
        replace(
            weights,
            path=model.path_of(weights.entry),
            queries=_fitting(words, weights.queries),
            keys=_fitting(words, weights.keys),
        )
        for weights in found
    ]
    return AttentionReport(Attentions(named), decisive_query(trace, named))


def _fitting(words: Sequence[str], numbers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(words) if len(words) == len(numbers) else numbers


def _short(paths: Sequence[str]) -> list[str]:
    """Names of layers by the parts of their paths in which they differ, each another.

    >>> _short(["gpt/blocks.0/attention/A", "gpt/blocks.1/attention/A"]), _short(["net/read/A"])
    (['blocks.0', 'blocks.1'], ['read'])
    >>> _short(["net/read/A", "net/read/A"])
    ['read', 'read, call 2']
    """
    scopes = [path.rpartition("/")[0] or path for path in paths]
    short = [scopes[0].rpartition("/")[2]] if len(scopes) == 1 else distinct_names(scopes)
    return _by_call(short)


def _by_call(names: Sequence[str]) -> list[str]:
    """The names, each another: of a layer that is called again with the number of the call."""
    calls: Counter[str] = Counter()
    found = []
    for name in names:
        calls[name] += 1
        found.append(f"{name}, call {calls[name]}" if calls[name] > 1 else name)
    return found


@dataclass
class AttentionReport:
    """Every attention of a run, and the one query that the loss depends on, if it is one."""

    found: Attentions
    query: int | None

    @property
    def across(self) -> list[AttentionWeights]:
        """Layers of one square size, over which attention can be followed."""
        square = [layer for layer in self.found if len(layer.queries) == len(layer.keys)]
        return [layer for layer in square if len(layer.keys) == len(square[0].keys)]

    def _row(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """A matrix's row of the query, or the mean over all queries."""
        return matrix.mean(axis=0) if self.query is None else matrix[self.query]

    def columns(self) -> dict[str, NDArray[Any]]:
        """By key: the weights of the first layers, rollout, and gradient × attention."""
        layers = self.across
        names = _short([layer.path for layer in layers])
        columns = {
            name: self._row(layer.A.mean(axis=(0, 1)))
            for name, layer in [*zip(names, layers, strict=True)][:MOST_LAYERS]
        }
        if len(layers) > 1:
            columns["rollout"] = self._row(rollout([layer.A for layer in layers]))
        # the loss should fall: a weight counts by how much it lowers it
        down = [gradient_times_attention(x.A, -x.dA) for x in layers if x.dA is not None]
        if down:
            columns["lowers the loss"] = self._row(np.sum(down, axis=0))
        return columns

    def parts(self, width: int, everything: bool) -> Iterator[str]:
        """Who looks at what, key by key; and each head in a line."""
        if self.across:
            yield self._by_key(width, everything)
        yield self._by_head(width, everything)

    def _by_key(self, width: int, everything: bool) -> str:
        keys = self.across[0].keys
        shares = self.columns()
        whose = "of all queries, their mean"
        if self.query is not None:
            name = one_line(keys[self.query], 24)
            whose = f'of "{name}", through which the loss depends on the scores'
        rows = []
        for k, key in enumerate(keys):
            cells = [one_line(key, 24)]
            for values in shares.values():
                most = max(float(np.max(np.abs(values))), 1e-300)
                cells += [f"{values[k]:.2f}", share_bar(abs(float(values[k])) / most)]
            rows.append(cells)
        half = MOST_KEYS_PRINTED // 2
        if len(rows) > MOST_KEYS_PRINTED and not everything:
            rows[half:-half] = [[f"{len(rows) - 2 * half} more", *[""] * (2 * len(shares))]]
        columns = [Column("looks at", shrink="end")]
        for i, title in enumerate(shares):
            columns += [Column(one_line(title), right=True, shrink="start"), Column("", drop=9 - i)]
        hint = "weights are the mean over heads"
        if "rollout" in shares:
            hint += "; rollout: how much of each key is in it by the attention of all layers"
        if "lowers the loss" in shares:
            hint += "; lowers the loss: −A ⊙ ∂L/∂A where positive, of layers that it reaches"
        title = Paint().bold(f"attention {whose}")
        return "\n".join([title, *textwrap.wrap(hint, width), grid(columns, rows, width)])

    def _by_head(self, width: int, everything: bool) -> str:
        """Each head in a line: its patterns, how evenly it spreads, how sparse it is."""
        rows = []
        names = _short([layer.path for layer in self.found])
        for name, layer in zip(names, self.found, strict=True):
            A = layer.A
            entropy, sparsity, patterns = layer.figures
            figures = zip(entropy.figures, sparsity.figures, patterns, strict=True)
            for head, (spread, sparse, pattern) in enumerate(figures):
                found = str(pattern) if np.isfinite(A[:, head]).all() else "not finite"
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
        by_key = {name: values.tolist() for name, values in self.columns().items()}
        data: dict[str, Any] = {"query": self.query, "by_key": by_key}
        if sum(layer.A.size for layer in self.found) <= MOST_ENTRIES:
            paths = _by_call([layer.path for layer in self.found])
            pairs = zip(paths, self.found, strict=True)
            data["weights"] = {path: layer.A.tolist() for path, layer in pairs}
        return data
