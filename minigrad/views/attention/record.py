"""The attention of a record: every matrix of weights beside its gradient, as text or as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...engine.errors import ShapeError
from ...recording.record import rms
from ..plain import one_line, sized
from ..terminal import finished, only_ascii, wide
from .figures import by_head, entropy
from .heatmap import Grid, heatmaps, legend
from .patterns import patterns

if TYPE_CHECKING:
    from ...recording.record import Entry
    from ...recording.trace import Trace

__all__ = ["Attention", "Attentions", "attentions"]

Array = NDArray[Any]
MASKED = -1e8  # a score at or below it was masked, by -inf or by a large negative number


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention of a record: weights, gradient and mask as (batch, heads, n, m)."""

    entry: Entry
    A: Array
    dA: Array | None  # None: no gradient reached it
    forbidden: Array  # where a mask forbids looking
    queries: Sequence[str]
    keys: Sequence[str]

    @property
    def path(self) -> str:
        return self.entry.path

    @property
    def heads(self) -> int:
        return int(self.A.shape[1])

    def grids(self, head: int, batch: int = 0) -> list[Grid]:
        """A, and ∂L/∂A if there is one, of one head."""
        names, forbidden = (self.queries, self.keys), self.forbidden[batch, head]
        grids = [Grid("A", self.A[batch, head], forbidden, *names)]
        if self.dA is not None:
            grids.append(Grid("∂L/∂A", self.dA[batch, head], forbidden, *names, signed=True))
        return grids

    def rows(self, batch: int) -> list[list[tuple[str, Grid]]]:
        """A of every head, then ∂L/∂A of every head if there is one, each with a title."""
        by_head = [self.grids(head, batch) for head in range(self.heads)]
        path = one_line(self.path, 28)
        return [
            [(f"{path}, head {head}", grid) for head, grid in enumerate(row)]
            for row in zip(*by_head, strict=True)
        ]

    def text(self, width: int, batch: int, ascii: bool, shown: int) -> str:
        """The first heads' heatmaps, each under a line of figures."""
        parts = []
        told, spread = patterns(self.A), entropy(self.A)
        of = f", entry {batch} of {len(self.A)} in the batch" if len(self.A) > 1 else ""
        for head in range(min(self.heads, shown)):
            figures = f"entropy {spread.figures[head]:.2f}, {spread.verdicts[head]}"
            if self.dA is not None:
                figures += f", rms of gradient {sized(rms(self.dA[:, head]))}"
            parts.append(f"{one_line(self.path)}, head {head}{of}: {told[head]}; {figures}")
            parts += [heatmaps(self.grids(head, batch), width, ascii), ""]
        return "\n".join(parts)


class Attentions(list[Attention]):
    """The attention of a record, in the order it was computed. Printed: heatmaps of each head."""

    def __str__(self) -> str:
        return self.text()

    def text(
        self,
        width: int | None = None,
        *,
        batch: int = 0,
        ascii: bool | None = None,
        most: int | None = None,
    ) -> str:
        """Heatmaps as text.

        Args:
            width: columns to fit in, the terminal's by default. Numbers give way to shades, and
                shades to pooling.
            batch: which entry of the batch.
            ascii: ASCII only; by default if the terminal's encoding cannot show the rest.
            most: heads to show, all by default; of more, the first, and how many there are.
        """
        if not self:
            return "no attention in this record: no softmax named A"
        plainly = only_ascii(ascii)
        heads = sum(one.heads for one in self)
        left = shown = heads if most is None else min(most, heads)
        parts = []
        for one in self:
            if left > 0:
                parts.append(one.text(wide(width), batch, plainly, left))
            left -= one.heads
        note = [f"{shown} of {heads} heads shown"] if shown < heads else []
        return finished("\n".join([*parts, legend(plainly), *note]), plainly)

    def plot(self, path: str | Path | None = None, *, batch: int = 0) -> Any:
        """Heatmaps by matplotlib: a column for each head, A above ∂L/∂A, masked cells hatched.

        Returns: the path if one is given (its suffix is the format), or else the matplotlib Figure.
        Raises: MissingDependencyError without matplotlib; ArgumentError without attention to plot.
        """
        from .heatplot import plot

        rows = [row for one in self for row in one.rows(batch)]
        return plot(rows, None if path is None else Path(path))


def attentions(trace: Trace, tokens: Any = None) -> Attentions:
    """Every softmax named A in a record, with its gradient, its mask, and names of its positions.

    >>> import minigrad as mg
    >>> S = mg.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    >>> with mg.trace() as t:
    ...     mg.sum(mg.softmax(S).named("A")[:, 0]).backward()
    >>> print(attentions(t, ["the", "cat"]).text(60, ascii=True))
    A, head 0: previous token 0.76; entropy 0.53, ...
    A                 dL/dA, in units of 1.0
          the   cat         the   cat
    the  0.50  0.50   the +1.00 +0.00
    cat  0.88  0.12   cat +1.00 +0.00
    ...
    """
    found = [e for e in trace.entries if e.name == "A" and e.op == "softmax" and len(e.shape) > 1]
    return Attentions(_attention(trace, e, tokens) for e in found if e.value is not None and e.size)


def _attention(trace: Trace, entry: Entry, tokens: Any) -> Attention:
    queries, keys = _named(tokens, entry)
    scores = trace[trace.into(entry)[0].source].value
    heads = len(entry.shape) > 3 or _merges_heads(trace, entry)

    def lifted(array: Any) -> Array:
        return by_head(array if heads or array.ndim != 3 else array[:, None], "attention")

    A, forbidden = lifted(entry.value), lifted(scores) <= MASKED
    dA = None if entry.gradient is None else lifted(entry.gradient)
    return Attention(entry, A, dA, forbidden, queries, keys)


def _merges_heads(trace: Trace, A: Entry) -> bool:
    """Whether A is (heads, n, m) rather than (batch, n, m): heads are merged into C afterwards."""
    later = trace.entries[A.id :]
    return len(A.shape) == 3 and any(e.name == "C" and e.scope == A.scope for e in later)


def _named(tokens: Any, entry: Entry) -> tuple[Sequence[str], Sequence[str]]:
    """Names of queries and keys: those given, or numbers."""
    n, m = entry.shape[-2:]
    if tokens is None:
        return tuple(map(str, range(n))), tuple(map(str, range(m)))
    pair = len(tokens) == 2 and not any(isinstance(t, str) for t in tokens)
    queries, keys = tokens if pair else (tokens, tokens)
    for what, names, size in (("queries", queries, n), ("keys", keys, m)):
        if len(names) != size:
            said = f"{entry.path} has {size} {what}, got {len(names)} tokens"
            raise ShapeError(f"attention(tokens): {said}")
    return tuple(map(str, queries)), tuple(map(str, keys))
