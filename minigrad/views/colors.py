"""The scale that colours a gradient by its size, and the colours of each theme.

The eight colours rise evenly in lightness from blue to yellow, as cividis does, so they keep their
order for colour-blind readers and in a grey print. Text on each has a contrast of 4.5 or more,
lines, which are moved towards the ink where they must be, 3 or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, log10

__all__ = ["AUTO", "FIXED", "SCALES", "THEMES", "Scale", "Theme", "contrast", "ink_on"]

BINS = 8


@dataclass(frozen=True)
class Scale:
    """Eight bins of equal width on a log scale; sizes beyond it are in the first or the last.

    >>> FIXED.bin(1e-20), FIXED.bin(0.5), FIXED.bin(1e9)
    (0, 5, 7)
    """

    low: float  # powers of ten
    high: float

    @property
    def bounds(self) -> list[float]:
        """The nine bounds of the bins, as powers of ten."""
        return [self.low + (self.high - self.low) * i / BINS for i in range(BINS + 1)]

    @property
    def ends(self) -> list[str]:
        """The bounds in a few characters, with a second digit where they need one.

        >>> Scale(-8, 4).ends[:3], Scale(-0.4, 0.4).ends[3:6]
        (['1e-8', '3e-7', '1e-5'], ['0.79', '1', '1.3'])
        """
        short, long = ([_power(e, digits) for e in self.bounds] for digits in (0, 1))
        return short if len({*short}) == len(short) else long

    def place(self, rms: float) -> float:
        """The place of a size on the scale, from 0 at the low end to 1 at the high end."""
        if not isfinite(rms):
            return 1.0
        part = (log10(rms) - self.low) / (self.high - self.low) if rms > 0 else 0.0
        return min(1.0, max(0.0, part))

    def bin(self, rms: float) -> int:
        return min(BINS - 1, int(self.place(rms) * BINS))

    @classmethod
    def around(cls, sizes: Iterable[float]) -> Scale:
        """The scale that just holds these sizes, over one power of ten at least."""
        logs = [log10(s) for s in sizes if s > 0 and isfinite(s)] or [0.0]
        spare = max(0.0, 1 - (max(logs) - min(logs))) / 2
        return cls(min(logs) - spare, max(logs) + spare)

    @classmethod
    def either_way(cls, ratios: Iterable[float | None]) -> Scale:
        """The scale that just holds these ratios, with 1 in its middle."""
        logs = [abs(log10(r)) for r in ratios if r and isfinite(r)]
        most = max(0.5, *logs) if logs else 0.5
        return cls(-most, most)


def _power(exponent: float, digits: int) -> str:
    number, _, ten = f"{10**exponent:.{digits}e}".partition("e")
    if -2.5 < exponent < 3:
        return f"{float(f'{number}e{ten}'):g}"
    return f"{number}e{int(ten)}"


SCALES = ("run", "fixed")
FIXED = Scale(-8, 4)  # rms from 1e-8, vanishing below it, to 1e4, exploding above


# ---------------------------------------------------------------- themes


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
    lines: tuple[str, ...]  # the bins' colours for thin lines; none is a bin's own

    def roles(self) -> dict[str, str]:
        """Name of each part to its colour; the bins' own colours are the same in every theme."""
        named = {k: v for k, v in vars(self).items() if isinstance(v, str)}
        return named | {f"line{i}": c for i, c in enumerate(self.lines)}

    def fill(self, kind: str) -> str:
        """What a box of this kind is filled with."""
        kind = "parameter" if kind == "leaf" else kind
        own = {"parameter", "input", "loss", "outside"}
        return str(getattr(self, kind)) if kind in own else self.card


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    >>> round(contrast("#0000ff", "#000000"), 2)
    2.44
    """
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def ink_on(colour: str) -> str:
    """Near-black or near-white, whichever reads better; 4.5 at least. No theme's own ink."""
    return max("#000001", "#fffffe", key=lambda ink: contrast(ink, colour))


THEME_COLOURS = """
part          light   dark    print
paper         ffffff  12151b  ffffff
ink           1c2330  e8ebf0  000000
muted         586274  a3adbc  333333
dim           6d7686  8791a1  6b6b6b
line          7c8798  77839a  565656
card          fdfdfe  1d222b  fefefe
parameter     f3efe6  2b2820  fdfdfd
input         eaf1f8  1b2836  fcfcfc
loss          f4ecf6  2c2233  fbfbfb
outside       f6f7f8  171a20  fafafa
border        8a94a4  5d6879  000002
cluster       f7f8fa  181c23  f9f9f9
cluster_line  d3d8e0  343c49  a0a0a0
alarm         b3261e  f058f8  000003
"""


def _theme(column: int, bins: str, lines: str) -> Theme:
    rows = [row.split() for row in THEME_COLOURS.strip().splitlines()[1:]]
    graded = {"bins": _colors(bins), "lines": _colors(lines)}
    return Theme(**{row[0]: f"#{row[column]}" for row in rows}, **graded)  # type: ignore[arg-type]


def _colors(names: str) -> tuple[str, ...]:
    return tuple(f"#{name}" for name in names.split())


BLUE_TO_YELLOW = "12285c 1b4783 2a6798 4685a3 6ba3a2 9bbd8d d2cc69 fbe04a"
GREYS = "1c1c1c 383838 555555 747474 939393 b3b3b3 d3d3d3 f2f2f2"
LIGHT = _theme(1, BLUE_TO_YELLOW, "12285d 1b4784 2a6799 4685a4 669b9a 7c9771 938f4a a39230")
DARK = _theme(2, BLUE_TO_YELLOW, "59688d 496c9c 2a6799 4685a4 6ba3a3 9bbd8e d2cc6a fbe04b")
PRINT = _theme(3, GREYS, "1c1c1d 383839 555556 747475 939394 8f8f8f 949494 919191")
RATIOS = _colors("7f3b08 b35806 e08214 fdb863 b2abd2 8073ac 6a51a3 3f007d")  # orange is smaller
RATIO_LINES = _colors("7f3b09 b35807 c07a2a a0896a 8d8aa6 7d74ac 6a51a4 54278f")
AUTO = "auto"  # light, with the dark colours beside it for readers who prefer them
THEMES = {AUTO: LIGHT, "light": LIGHT, "dark": DARK, "print": PRINT}
