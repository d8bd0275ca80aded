"""Attention weights beside their gradients, of a record or of arrays: as text or as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ...engine.errors import ShapeError
from ...engine.types import Array
from ...recording.record import Entry, rms
from ...recording.trace import TraceRecord
from ..plain import one_line, sized
from ..terminal import finished, wide
from .cells import attentions_html
from .figures import Reading, by_head, entropy_where, sparsity_where
from .matrices import Grid, legend, matrices
from .patterns import Patterns, patterns_where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AttentionWeights", "Attentions", "attentions", "decisive_query", "read_attention"]

Names: TypeAlias = tuple[str, ...]
# a name for each position, or lists of names: of queries and keys, or on the page of each sequence
Tokens: TypeAlias = "Sequence[object] | None"
MOST_HEADS_IN_A_CELL = 16  # of each attention
MOST_SHARE = 0.9  # of |∂L/∂S|, from which on the loss depends on one query
MASKED_SCORE = -1e8  # a score at or below it was masked, by -inf or by a large negative number


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """Weights of attention, their gradient and their mask, as (batch, heads, n, m)."""

    path: str
    A: Array
    dA: Array | None  # None: no gradient reached it
    forbidden: Array  # where a mask forbids looking
    queries: Names
    keys: Names
    entry: Any = None  # the Entry of a record, of plain arrays None

    def __repr__(self) -> str:
        slope = "no ∂L/∂A" if self.dA is None else f"rms of ∂L/∂A {sized(rms(self.dA))}"
        return f"Attention {one_line(self.path, 60)}: A {self.A.shape}, {slope}"

    @property
    def heads(self) -> int:
        return int(self.A.shape[1])

    @property
    def figures(self) -> tuple[Reading, Reading, list[Patterns]]:
        """Entropy, sparsity and patterns of the heads, over the pairs that the mask allows."""
        allowed = ~self.forbidden if self.forbidden.any() else None
        return (
            entropy_where(self.A, allowed),
            sparsity_where(self.A, allowed=allowed),
            patterns_where(self.A, allowed),
        )

    def grids(self, head: int, batch: int = 0) -> list[Grid]:
        """A, and ∂L/∂A if there is one, of one head."""
        shared = self.forbidden[batch, head], self.queries, self.keys
        slope = [] if self.dA is None else [Grid("∂L/∂A", self.dA[batch, head], *shared, True)]
        return [Grid("A", self.A[batch, head], *shared), *slope]

    def text(self, width: int, batch: int, shown: int) -> str:
        """The first heads' heatmaps, each under a line of figures."""
        parts = []
        spread, _, found = self.figures
        of = f", entry {batch} of {len(self.A)} in the batch" if len(self.A) > 1 else ""
        for head in range(min(self.heads, shown)):
            figures = f"entropy {spread.figures[head]:.2f}, {spread.verdicts[head]}"
            if self.dA is not None:
                figures += f", rms of gradient {sized(rms(self.dA[:, head]))}"
            line = f"{one_line(self.path, 60)}, head {head}{of}: {found[head]}; {figures}"
            text, notes = matrices(self.grids(head, batch), width)
            parts += [_filled(line, width), text, *notes, ""]
        return "\n".join(parts)


class Attentions(list[AttentionWeights]):
    """Attention in the order it was computed. Printed: heatmaps of each head."""

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        lines = [repr(one) for one in self[:8]]
        left = [f"and {len(self) - 8} more"] if len(self) > 8 else []
        return "\n".join(["Attentions, which print() shows as heat maps:", *lines, *left])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Text, and the first heads of each attention for the first entry of the batch."""
        heads = [
            (f"{one_line(one.path, 60)}, head {head}", one.grids(head))
            for one in self
            for head in range(min(one.heads, MOST_HEADS_IN_A_CELL))
        ]
        return {"text/plain": str(self), "text/html": attentions_html(heads)}

    def text(self, width: int | None = None, *, batch: int = 0, most: int | None = None) -> str:
        """Heatmaps as text.

        Args:
            width: columns to fit in, the terminal's by default. Numbers give way to shades, and
                shades to pooling.
            batch: which entry of the batch.
            most: heads to show, all by default; of more, the first, and how many there are.
        """
        if not self:
            return "no attention in this record: no weights named A whose rows sum to 1"
        heads = sum(one.heads for one in self)
        left = shown = heads if most is None else min(most, heads)
        parts = []
        for one in self:
            if left > 0:
                parts.append(one.text(wide(width), batch, left))
            left -= one.heads
        note = [f"{shown} of {heads} heads shown"] if shown < heads else []
        shades = _filled(legend(), wide(width))
        return finished("\n".join([*parts, shades, *note]))

    def plot(self, path: str | Path | None = None, *, batch: int = 0) -> Figure | Path:
        """Heatmaps by matplotlib: a column for each head, A above ∂L/∂A, masked cells hatched.

        Returns: the path if one is given (its suffix is the format), or else the matplotlib Figure.
        Raises: MissingDependencyError without matplotlib; ArgumentError without attention to plot.
        """
        from .plot import plot

        rows = []
        for one in self:
            by_head = [one.grids(head, batch) for head in range(one.heads)]
            title = one_line(one.path, 28) + ", head {}"
            for grids in zip(*by_head, strict=True):
                rows.append([(title.format(head), grid) for head, grid in enumerate(grids)])
        return plot(rows, path)


def attentions(trace: TraceRecord, tokens: Tokens = None) -> Attentions:
    """The weights named A in a record, with their gradient, their mask, and names of positions.

    >>> import minigrad as mg
    >>> S = mg.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    >>> with mg.trace() as t:
    ...     mg.sum(mg.softmax(S).named("A")[:, 0]).backward()
    >>> print(attentions(t, ["the", "cat"]).text(60))
    A, head 0: previous token 0.76; entropy 0.53, ...
    A                 ∂L/∂A, in units of 1.0
          the   cat         the   cat
    the  0.50  0.50   the +1.00 +0.00
    cat  0.88  0.12   cat +1.00 +0.00
    ...
    """
    found = [e for e in trace if e.name == "A" and e.size and _has_weights(trace.origin(e))]
    return Attentions(_of_entry(trace, e, tokens) for e in found)


def decisive_query(trace: TraceRecord, found: Sequence[AttentionWeights]) -> int | None:
    """The one query through whose scores nearly all of the loss's gradient passes, if one does."""
    shares = []
    for one in found:
        scores = trace[trace.into(trace.origin(one.entry))[0].source]
        if scores.gradient is not None:
            sizes = np.abs(scores.gradient).sum(axis=-1)
            by_query = sizes.reshape(-1, sizes.shape[-1]).sum(axis=0)
            shares.append(by_query / (by_query.sum() or 1.0))
    if not shares or len({len(share) for share in shares}) > 1:
        return None
    total = np.sum(shares, axis=0)
    most = int(np.argmax(total))
    return most if len(total) > 1 and total[most] >= MOST_SHARE * total.sum() > 0 else None


def read_attention(
    tokens: Tokens,
    weights: ArrayLike,
    gradient: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Attentions:
    """Heatmaps and patterns of plain arrays: print them, or `.plot(path)` them.

    Args:
        tokens: a name for each position, or two lists, of the queries' and of the keys'.
        weights: A (..., n, m), rows sum to 1; axis −3, if there is one, is the heads.
        gradient: ∂L/∂A of the same shape.  mask: True where a query may look, broadcast to A.
    Raises: ShapeError where they do not fit.

    >>> print(read_attention(["the", "cat"], [[0.9, 0.1], [0.2, 0.8]]).text(60))
    A, head 0: diagonal 0.70; entropy 0.41, ...
    A
          the   cat
    the  0.90  0.10
    cat  0.20  0.80
    ...
    """
    shape, A = np.shape(weights), by_head(weights, "read_attention")
    dA = None
    if gradient is not None:
        dA = by_head(gradient, "read_attention")
        if dA.shape != A.shape:
            said = f"weights are {shape} but gradient {np.shape(gradient)}"
            raise ShapeError(f"read_attention: {said}")
    allowed = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
    forbidden = by_head(~np.asarray(allowed, bool), "read_attention").astype(bool)
    names = _names(tokens, "weights", shape[-2:], "read_attention(tokens, weights)")
    return Attentions([AttentionWeights("A", A, dA, forbidden, *names)])


def _filled(line: str, width: int) -> str:
    """A long line as several; names are not broken at their hyphens."""
    return fill(line, max(width, 20), subsequent_indent="  ", break_on_hyphens=False)


def _has_weights(entry: Entry) -> bool:
    """Whether an op made rows that sum to 1, or to 0 where all is masked; NaN is no objection."""
    if entry.op is None or entry.value is None or len(entry.shape) < 2:
        return False
    sums = np.asarray(entry.value, np.float64).sum(-1)
    return not ((abs(sums - 1) > 1e-2) & (abs(sums) > 1e-2)).any()


def _of_entry(trace: TraceRecord, entry: Entry, tokens: Tokens) -> AttentionWeights:
    names = _names(tokens, entry.path, entry.shape[-2:], "attention(tokens)")
    scores = trace[trace.into(trace.origin(entry))[0].source].value
    masked = np.zeros(entry.shape, bool) if scores.shape != entry.shape else scores <= MASKED_SCORE
    later = trace.entries[entry.id :]  # heads are merged into C afterwards
    merged = any(e.name == "C" and e.scope == entry.scope for e in later)
    batch_first = len(entry.shape) == 3 and not merged  # (batch, n, m), not (heads, n, m)

    def lifted(array: Array) -> Array:
        return by_head(array[:, None] if batch_first else array, "attention")

    dA = None if entry.gradient is None else lifted(entry.gradient)
    forbidden = lifted(masked).astype(bool)
    return AttentionWeights(entry.path, lifted(entry.value), dA, forbidden, *names, entry)


def _names(tokens: Tokens, of: str, shape: tuple[int, ...], call: str) -> tuple[Names, Names]:
    """Names of queries and keys: those given, or numbers."""
    if tokens is None:
        tokens = [range(size) for size in shape]
    pair = len(tokens) == 2 and not any(map(np.isscalar, tokens))  # names may be numbers
    found: list[Any] = list(tokens) if pair else [tokens, tokens]
    for what, names, size in zip(("queries", "keys"), found, shape, strict=True):
        if len(names) != size:
            raise ShapeError(f"{call}: {of} has {size} {what}, got {len(names)} tokens")
    return tuple(map(str, found[0])), tuple(map(str, found[1]))
