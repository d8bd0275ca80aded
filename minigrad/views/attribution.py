"""Tables of what contributed to one number of a run."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np

from ..engine.errors import ShapeError
from ..recording.attribution import Explained
from .plain import one_line, sized
from .terminal import Column, Paint, finished, grid, wide

__all__ = ["Attribution"]

HALF = 10  # cells of a bar on each side of zero
SHARES = "share", "direct"
AttributionRow = tuple[str, float, float | None]


class Attribution(Explained):
    """What `t.attribute(output)` finds: printed, it is tables; as data see `Explained`."""

    def table(
        self,
        width: int | None = None,
        *,
        tokens: Sequence[object] | None = None,
        most: int = 16,
    ) -> str:
        """The shares as text, each part's largest in their order, and what their sums leave.

        Args: tokens: a name for each position.  most: rows of a table.
        Raises: ShapeError unless there are as many tokens as positions.
        """
        title = f"what contributed to {one_line(self.output)} = {sized(self.value)}, to first order"
        titles = {
            f"gradient x input of {one_line(self.of)}, by position": self._positions(tokens),
            "gradient x attention, by head": self._heads(),
            "gradient x branch, by what was added to the residual stream": [
                (one_line(b.path) + ", its start" * b.starts, b.share, b.direct)
                for b in self.branches
            ],
        }
        bold, width = Paint().bold, wide(width)
        parts = [fill(title, width)]
        for heading, rows in titles.items():
            if rows:
                parts += [
                    "",
                    bold(fill(heading, width)),
                    _table(rows, most, width),
                ]
        return finished("\n".join([*parts, "", *(fill(x, width) for x in self._sums())]))

    def _positions(self, tokens: Sequence[object] | None) -> list[AttributionRow]:
        shares = self.positions
        names = [str(i) for i in range(shares.shape[-1])]
        if tokens is not None and len(tokens) != len(names):
            raise ShapeError(
                f"table(tokens): {self.of} has {len(names)} positions, got {len(tokens)} tokens"
            )
        if tokens is not None:
            names = [f"{i} {one_line(str(token), 24)}" for i, token in enumerate(tokens)]
        totals = shares.reshape(-1, len(names)).sum(axis=0)
        return [(name, float(x), None) for name, x in zip(names, totals, strict=True)]

    def _heads(self) -> list[AttributionRow]:
        return [
            (f"{one_line(one.path)}, head {head}", float(x), None)
            for one in self.heads
            for head, x in enumerate(one.totals)
        ]

    def _sums(self) -> list[str]:
        """How far the shares add up to the number, and what is not among them."""
        names = {"positions": "shares of positions", "branches": "direct shares of branches"}
        return [
            f"{names[name]} sum to {sized(self.value - left)}, which leaves {sized(left)} of "
            f"{sized(self.value)}"
            for name, left in self.left.items()
        ] + [self.hidden] * bool(self.hidden)

    def __str__(self) -> str:
        return self.table()


def _table(rows: list[AttributionRow], most: int, width: int) -> str:
    """The largest rows, in their order, and how many others, with the sum of their shares."""
    largest = sorted(range(len(rows)), key=lambda i: -abs(rows[i][1]))
    kept, rest = sorted(largest[:most]), largest[most:]
    top = max(abs(share) for _, share, _ in rows)
    lines = [
        [name, sized(share), "" if direct is None else sized(direct), _bar(share, top)]
        for name, share, direct in (rows[i] for i in kept)
    ]
    if rest:
        total = sized(float(np.sum([rows[i][1] for i in rest])))
        lines.append([f"{len(rest)} smaller", total, "", ""])
    numbers = [Column(title, right=True) for title in SHARES]
    return grid([Column("", shrink="start"), *numbers, Column("- | +", drop=1)], lines, width)


def _bar(share: float, top: float) -> str:
    """A bar from the middle: to the left below zero, to the right above.

    >>> _bar(-0.5, 1.0), _bar(1.0, 1.0)
    ('     █████|', '          |██████████')
    """
    cells = "█" * (round(abs(share) / top * HALF) if top else 0)
    left, right = (cells, "") if share < 0 else ("", cells)
    return f"{left:>{HALF}}|{right}"
