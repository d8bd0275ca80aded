"""The legend of a picture: what shapes, colours, glyphs and lines mean, for those that occur."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .colors import STATES, Scale, Theme, ink_on
from .shapes import SHAPES, fill, text

__all__ = ["caption", "samples"]

WORDS = {
    "parameter": "parameter",
    "input": "input",
    "constant": "constant",
    "detached": "detached",
    "op": "op",
    "loss": "loss",
    "scope": "scope, collapsed",
    "outside": "out of focus",
    "sum": "Σ ratio",
}


def samples(graph: Any, theme: Theme, kinds: Iterable[str]) -> list[str]:
    """One small box of each shape that occurs; their ids."""
    ids = []
    for kind in (kind for kind in WORDS if kind in set(kinds)):
        shape, style = SHAPES[kind]
        graph.node(
            f"key{kind}",
            label=f"<{text(WORDS[kind], theme.ink, 9)}>",
            shape=shape,
            style=style,
            fillcolor=fill(theme, kind),
            color=theme.border,
            id=f"key{kind}",
            **({"peripheries": "2"} if kind == "loss" else {}),
            **{"class": f"key {kind}"},
        )
        ids.append(f"key{kind}")
    return ids


def caption(
    theme: Theme,
    scale: Scale,
    summary: str,
    states: Iterable[str],
    said: Iterable[tuple[str, str]],
    verdict: str = "",
    agrees: bool = True,
) -> str:
    """The rows beneath: the scale, kinds of lines, states, a sentence on the whole, the verdict."""
    present = set(states)
    rows = [text(summary, theme.muted, 9)]
    if present - {"none"}:
        cells = [f"<TD>{text('gradient rms', theme.ink, 9, bold=True)}</TD>"]
        bounds = scale.bounds
        for colour, low, high in zip(theme.bins, bounds, bounds[1:], strict=False):
            label = text(f"{power(low)} – {power(high)}", ink_on(colour), 8)
            cells.append(f'<TD BGCOLOR="{colour}" CELLPADDING="4">{label}</TD>')
        rows.insert(0, f"{TABLE}<TR>{''.join(cells)}</TR></TABLE>")
    for name, (glyph, _, meaning) in STATES.items():
        if name not in present:
            continue
        said = [*said, (glyph, meaning)]
    cells = [
        f"{text(mark, theme.ink, 9, bold=True)}{text(f' {words}', theme.muted, 9)}"
        for mark, words in said
    ]
    lines = [cells[i : i + 4] for i in range(0, len(cells), 4)]
    rows[-1:-1] = [text("     ", theme.muted, 9).join(line) for line in lines]
    body = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
    if verdict:
        ground = "" if agrees else f' BGCOLOR="{theme.alarm}"'
        words = text(verdict, theme.muted if agrees else theme.paper, 9, bold=not agrees)
        body += f'<TR><TD ALIGN="LEFT"{ground}>{words}</TD></TR>'
    return f"{TABLE}{body}</TABLE>"


TABLE = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="2">'


def power(exponent: float) -> str:
    """A bound of the scale in a few characters.

    >>> [power(e) for e in (-8.0, -6.5, 0.0, 2.5, 4.0)]
    ['1e-8', '3e-7', '1', '300', '1e4']
    """
    if -2.5 < exponent < 3:
        return f"{10**exponent:.1g}" if exponent < 1 else f"{float(f'{10**exponent:.1g}'):.0f}"
    digit, _, ten = f"{10**exponent:.0e}".partition("e")
    return f"{digit}e{int(ten)}"
