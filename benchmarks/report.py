"""Tables, as aligned text or as Markdown, and the numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import fill

from .rounds import Figure, Result

__all__ = ["NONE", "Report", "cell", "number"]

NONE = "–"  # a peer that has no such step


@dataclass
class Report:
    """One section's outcome: a table to read, and notes below it."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Columns aligned: the first to the left, numbers to the right.

        >>> print(Report("Times", ["case", "ms"], [["tiny", "0.02"], ["m-small", "1.4"]]).text())
        Times
        <BLANKLINE>
          case       ms
          tiny     0.02
          m-small   1.4
        """
        table = [list(self.columns), *self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  " + "  ".join(
                text.rjust(width) if i else text.ljust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]  # fmt: skip
        return "\n".join([self.title, "", *lines, *self._noted(_wrap)])

    def markdown(self) -> str:
        """The same for a README.

        >>> print(Report("Times", ["case", "ms"], [["tiny", "0.02"]]).markdown())
        **Times**
        <BLANKLINE>
        | case | ms |
        |---|---:|
        | tiny | 0.02 |
        """
        rule = "|" + "|".join(["---", *["---:"] * (len(self.columns) - 1)]) + "|"
        rows = ["| " + " | ".join(row) + " |" for row in [list(self.columns), *self.rows]]
        return "\n".join([f"**{self.title}**", "", rows[0], rule, *rows[1:], *self._noted(str)])

    def _noted(self, shape: Callable[[str], str]) -> list[str]:
        return ["", *map(shape, self.notes)] if self.notes else []


def _wrap(note: str) -> str:
    return fill(note, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def number(value: float) -> str:
    """Two or three digits that matter.

    >>> [number(x) for x in (0.0123, 0.414, 1.046, 2.31, 38.4, 512.3)]
    ['0.012', '0.41', '1.05', '2.3', '38', '512']
    """
    size = abs(value)
    return f"{value:.{0 if size >= 10 else 1 if size >= 2 else 2 if size >= 0.1 else 3}f}"


def cell(result: Result, name: str, figure: Figure | None, scale: float = 1.0) -> str:
    """A figure, `~` after it if it was disturbed; or why there is none."""
    if figure is not None:
        return number(figure.value * scale) + ("" if figure.quiet else "~")
    why = result.failures.get(name)
    return NONE if why is None else "wrong" if why.startswith("wrong") else "failed"
