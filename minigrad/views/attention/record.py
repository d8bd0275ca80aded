"""The attention of a record: every matrix of weights beside its gradient, as text or a plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engine.errors import ShapeError
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


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention of a record: weights, gradient and mask as (batch, heads, n, m)."""

    path: str
    A: Array
    dA: Array | None  # None: no gradient reached it
    forbidden: Array  # where a mask had put −∞
    queries: tuple[str, ...]
    keys: tuple[str, ...]

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

    def text(self, width: int, batch: int, ascii: bool, shown: int) -> str:
        """The first heads' heatmaps, each under a line of figures."""
        parts = []
        told, spread = patterns(self.A), entropy(self.A)
        for head in range(min(self.heads, shown)):
            of = f", entry {batch} of {len(self.A)} in the batch" if len(self.A) > 1 else ""
            gradient = (
                "" if self.dA is None else f", rms of gradient {sized(_rms(self.dA[:, head]))}"
            )
            parts.append(
                f"{one_line(self.path)}, head {head}{of}: {told[head]}; entropy "
                f"{spread.figures[head]:.2f}, {spread.verdicts[head]}{gradient}"
            )
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

        return plot(self, None if path is None else Path(path), batch)


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
    n, m = entry.shape[-2:]
    queries, keys = _named(tokens, n, m, entry.path)
    scores = [trace[edge.source].value for edge in trace.into(entry)]
    blocked = (
        np.isneginf(np.asarray(scores[0], np.float64)) if scores and scores[0] is not None else None
    )
    nothing = np.zeros(entry.shape)
    heads = _has_heads(trace, entry)

    def lifted(array: Any) -> Array:
        array = np.asarray(array, np.float64)
        return by_head(array if heads or array.ndim != 3 else array[:, None], "attention")

    return Attention(
        entry.path,
        lifted(entry.value),
        None if entry.gradient is None else lifted(entry.gradient),
        lifted(nothing if blocked is None else blocked) > 0,
        queries,
        keys,
    )


def _has_heads(trace: Trace, entry: Entry) -> bool:
    """Whether A's third axis is its heads, which are merged later on; a batch is not."""
    for use in trace.uses(entry):
        for merge in trace.uses(trace[use.target]):
            settings = trace[merge.target].settings
            if {settings.get("axis1"), settings.get("axis2")} == {"-3", "-2"}:
                return True
    return False


def _named(tokens: Any, n: int, m: int, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of queries and keys: those given, or numbers."""
    if tokens is None:
        return tuple(map(str, range(n))), tuple(map(str, range(m)))
    pair = len(tokens) == 2 and not any(isinstance(t, str) for t in tokens)
    queries, keys = tokens if pair else (tokens, tokens)
    for what, names, size in (("queries", queries, n), ("keys", keys, m)):
        if len(names) != size:
            raise ShapeError(
                f"attention(tokens): {path} has {size} {what}, got {len(names)} tokens"
            )
    return tuple(map(str, queries)), tuple(map(str, keys))


def _rms(array: Array) -> float:
    return float(np.sqrt(np.mean(array**2)))
