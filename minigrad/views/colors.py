"""States of a gradient and their glyphs, the scale that colours it, and the colours of each theme.

The eight colours rise evenly in lightness from blue to yellow, as cividis does, so they keep their
order for colour-blind readers and in a grey print. Text on each has a contrast of 4.5 or more,
lines 3 or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, log10

__all__ = ["AUTO", "FIXED", "STATES", "THEMES", "Scale", "Theme", "contrast", "ink_on"]

# state: (glyph, ASCII glyph, what it means)
STATES = {
    "ok": ("●", "*", "ok"),
    "zero": ("○", "0", "exactly zero"),
    "vanishing": ("▼", "v", "vanishing"),
    "exploding": ("▲", "^", "exploding"),
    "non-finite": ("‼", "!", "NaN or infinite"),
    "none": ("–", "-", "no gradient"),
}
WORST_FIRST = ("non-finite", "exploding", "vanishing", "zero", "ok", "none")


# ---------------------------------------------------------------- the scale


@dataclass(frozen=True)
class Scale:
    """Eight bins of equal width on a log scale; what lies outside falls into the first or the last.

    >>> FIXED.bin(1e-20), FIXED.bin(0.5), FIXED.bin(1e9)
    (0, 5, 7)
    """

    low: float  # powers of ten
    high: float

    @property
    def bounds(self) -> list[float]:
        """The nine bounds of the bins, as powers of ten."""
        return [self.low + (self.high - self.low) * i / BINS for i in range(BINS + 1)]

    def place(self, rms: float) -> float:
        """Where a positive size lies, from 0 at the low end to 1 at the high one."""
        if not isfinite(rms):
            return 1.0
        return (
            min(1.0, max(0.0, (log10(rms) - self.low) / (self.high - self.low))) if rms > 0 else 0.0
        )

    def bin(self, rms: float) -> int:
        return min(BINS - 1, int(self.place(rms) * BINS))

    @classmethod
    def around(cls, sizes: Iterable[float]) -> Scale:
        """The scale that just holds these sizes, in whole powers of ten."""
        logs = [log10(s) for s in sizes if s > 0 and isfinite(s)] or [0.0]
        low = int(min(logs) // 1)
        return cls(low, max(low + 1, int(-(-max(logs) // 1))))


BINS = 8
FIXED = Scale(-8, 4)  # rms from 1e-8, vanishing below it, to 1e4, exploding above


# ---------------------------------------------------------------- colours


@dataclass(frozen=True)
class Theme:
    """Every colour, by the part it plays. No two parts share one, so that an SVG can swap them."""

    paper: str
    ink: str
    muted: str
    dim: str
    line: str
    card: str
    parameter: str
    input: str
    loss: str
    outside: str
    border: str
    cluster: str
    cluster_line: str
    alarm: str
    bins: tuple[str, ...]
    lines: tuple[str, ...]

    def roles(self) -> dict[str, str]:
        """Name of each part to its colour; the bins' own colours are the same in every theme."""
        named = {k: v for k, v in vars(self).items() if isinstance(v, str)}
        return named | {f"line{i}": c for i, c in enumerate(self.lines)}


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    parts = [c / 255 for c in _rgb(colour)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink_on(colour: str) -> str:
    """Near-black or near-white, whichever reads better; 4.5 at least. No theme's own ink."""
    return max("#000001", "#fffffe", key=lambda ink: contrast(ink, colour))


def _toward(colour: str, end: str, paper: str, least: float) -> str:
    """The colour moved towards `end` just far enough to be seen on `paper`."""
    for step in range(21):
        mixed = [
            round(a + (b - a) * step / 20) for a, b in zip(_rgb(colour), _rgb(end), strict=True)
        ]
        moved = "#" + "".join(f"{c:02x}" for c in mixed)
        if contrast(moved, paper) >= least:
            break
    return moved


def _lines(bins: tuple[str, ...], paper: str, end: str) -> tuple[str, ...]:
    """Each bin's colour for a thin line; none is a bin's own, which an SVG does not swap."""
    seen = list(bins)
    for colour in bins:
        line = _toward(colour, end, paper, 3.0)
        r, g, b = _rgb(line)
        while (line := f"#{r:02x}{g:02x}{b:02x}") in seen:
            b = (b + 1) % 256
        seen.append(line)
    return tuple(seen[len(bins) :])


BLUE_TO_YELLOW = (
    "#12285c",
    "#1b4783",
    "#2a6798",
    "#4685a3",
    "#6ba3a2",
    "#9bbd8d",
    "#d2cc69",
    "#fbe04a",
)
GREYS = ("#1c1c1c", "#383838", "#555555", "#747474", "#939393", "#b3b3b3", "#d3d3d3", "#f2f2f2")

LIGHT = Theme(
    paper="#ffffff",
    ink="#1c2330",
    muted="#586274",
    dim="#6d7686",
    line="#7c8798",
    card="#fdfdfe",
    parameter="#f3efe6",
    input="#eaf1f8",
    loss="#f4ecf6",
    outside="#f6f7f8",
    border="#8a94a4",
    cluster="#f7f8fa",
    cluster_line="#d3d8e0",
    alarm="#b3261e",
    bins=BLUE_TO_YELLOW,
    lines=_lines(BLUE_TO_YELLOW, "#ffffff", "#000000"),
)
DARK = Theme(
    paper="#12151b",
    ink="#e8ebf0",
    muted="#a3adbc",
    dim="#8791a1",
    line="#77839a",
    card="#1d222b",
    parameter="#2b2820",
    input="#1b2836",
    loss="#2c2233",
    outside="#171a20",
    border="#5d6879",
    cluster="#181c23",
    cluster_line="#343c49",
    alarm="#ff8a80",
    bins=BLUE_TO_YELLOW,
    lines=_lines(BLUE_TO_YELLOW, "#12151b", "#ffffff"),
)
PRINT = Theme(
    paper="#ffffff",
    ink="#000000",
    muted="#333333",
    dim="#6b6b6b",
    line="#565656",
    card="#fefefe",
    parameter="#fdfdfd",
    input="#fcfcfc",
    loss="#fbfbfb",
    outside="#fafafa",
    border="#000002",
    cluster="#f9f9f9",
    cluster_line="#a0a0a0",
    alarm="#000003",
    bins=GREYS,
    lines=_lines(GREYS, "#ffffff", "#000000"),
)
AUTO = "auto"  # light, with the dark colours beside it for readers who prefer them
THEMES = {AUTO: LIGHT, "light": LIGHT, "dark": DARK, "print": PRINT}
