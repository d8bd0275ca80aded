"""The colours of every view: one scale for the sizes of gradients, and a light and a dark theme.

The eight colours of the scale rise evenly in lightness from blue to yellow, as cividis does, so
they keep their order for colour-blind readers and in a grey print. Text on each has a contrast of
4.5 or more; lines, which are moved towards the ink where they must be, have 3 or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from math import isfinite, log10

from .words import sized

__all__ = [
    "BINS", "DARK", "END", "LIGHT", "THEMES", "Scale", "Theme", "contrast", "css", "ink_on",
    "svg_box", "svg_page", "svg_text",
]  # fmt: skip

BINS = 8


@dataclass(frozen=True)
class Scale:
    """Eight bins of equal width on a log scale; sizes beyond it are in the first or the last.

    >>> Scale(-8, 0).bin(1e-20), Scale(-8, 0).bin(3e-4), Scale(-8, 0).bin(1e9)
    (0, 4, 7)
    """

    low: float  # powers of ten
    high: float

    def place(self, size: float) -> float:
        """The place of a size on the scale, from 0 at the low end to 1 at the high end."""
        if not isfinite(size):
            return 1.0
        part = (log10(size) - self.low) / (self.high - self.low) if size > 0 else 0.0
        return min(1.0, max(0.0, part))

    def bin(self, size: float) -> int:
        return min(BINS - 1, int(self.place(size) * BINS))

    @property
    def ends(self) -> list[str]:
        """Both ends and the middle, in words."""
        return [sized(10**power) for power in (self.low, (self.low + self.high) / 2, self.high)]

    @classmethod
    def around(cls, sizes: Iterable[float]) -> Scale:
        """The scale that just holds these sizes, over one power of ten at least."""
        logs = [log10(s) for s in sizes if s > 0 and isfinite(s)] or [0.0]
        spare = max(0.0, 1 - (max(logs) - min(logs))) / 2
        return cls(min(logs) - spare, max(logs) + spare)


@dataclass(frozen=True)
class Theme:
    """Every colour, by the part it plays. No two parts share one, so that an SVG can swap them."""

    paper: str
    ink: str
    muted: str
    line: str  # of values
    card: str
    parameter: str
    input: str
    loss: str
    outside: str
    border: str
    cluster: str
    edge: str  # of a cluster
    alarm: str
    bins: tuple[str, ...]
    lines: tuple[str, ...]  # the bins' colours for lines; none is a bin's own

    def roles(self) -> dict[str, str]:
        """Name of each part to its colour; the bins' own colours are the same in every theme."""
        named = {name: colour for name, colour in vars(self).items() if isinstance(colour, str)}
        return named | {f"line{i}": colour for i, colour in enumerate(self.lines)}


def _theme(names: str, lines: str) -> Theme:
    parts = dict(zip(_ROLES, (f"#{name}" for name in names.split()), strict=True))
    return Theme(**parts, bins=_BINS, lines=tuple(f"#{name}" for name in lines.split()))


_ROLES = "paper ink muted line card parameter input loss outside border cluster edge alarm".split()
_BINS = tuple(f"#{c}" for c in "12285c 1b4783 2a6798 4685a3 6ba3a2 9bbd8d d2cc69 fbe04a".split())
LIGHT = _theme(
    "ffffff 1c2330 586274 98a1af fdfdfe f3efe6 eaf1f8 f4ecf6 f6f7f8 8a94a4 f7f8fa d3d8e0 b3261e",
    "12285d 1b4784 2a6799 4685a4 669b9a 7c9771 938f4a a39230",
)
DARK = _theme(
    "12151b e8ebf0 a3adbc 6c7787 1d222b 2b2820 1b2836 2c2233 171a20 5d6879 181c23 343c49 f058f8",
    "59688d 496c9c 2a679a 4685a5 6ba3a3 9bbd8e d2cc6a fbe04b",
)
THEMES = {"auto": LIGHT, "light": LIGHT, "dark": DARK}  # auto: follows its reader


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
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


def css(selector: str = ":root", dark: str = ":root[data-theme=dark]") -> str:
    """CSS variables of both themes: --ink, --bin0, --on0 (text on it), --line0 and the others."""
    rules = []
    for where, theme in ((selector, LIGHT), (dark, DARK)):
        named = theme.roles() | {f"bin{i}": colour for i, colour in enumerate(theme.bins)}
        named |= {f"on{i}": ink_on(colour) for i, colour in enumerate(theme.bins)}
        rules.append(f"{where}{{{''.join(f'--{name}:{c};' for name, c in named.items())}}}")
    return "".join(rules)


# ---------------------------------------------------------------- drawings of our own


def svg_page(label: str, width: float, height: float, parts: Iterable[str], theme: str) -> str:
    """An SVG of these parts, whose classes are painted in a theme; "auto" follows its reader."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    dark = f"@media (prefers-color-scheme: dark){{{_paints(DARK)}}}" if theme == "auto" else ""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {size}>'
    ground = '<rect class="paper" width="100%" height="100%"/>'
    style = f"<style>{_paints(THEMES[theme])}{dark}</style>"
    return "\n".join([head, style, ground, *parts, "</svg>"])


def svg_text(x: float, y: float, said: str, kind: str = "muted", more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{more}>{escape(said)}</text>'


def svg_box(kind: str, x: float, y: float, width: float, height: float, fill: str = "") -> str:
    paint = f'fill="{fill}"' if fill else f'class="{kind}"'
    return f'<rect {paint} x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"/>'


END = ' text-anchor="end"'  # of a text whose place is where it ends


def _paints(t: Theme) -> str:
    fills = {"paper": t.paper, "on": t.paper, "ink": t.ink, "muted": t.muted, "alarm": t.alarm}
    fills |= {"masked": t.edge, "zero": t.cluster, "frame": "none", "curve": "none"}
    fills |= {f"b{i}": colour for i, colour in enumerate(t.bins)}
    font = "text{font:10px Helvetica,Arial,'Liberation Sans',sans-serif;white-space:pre}"
    lines = f".frame,.zero{{stroke:{t.border}}}.curve{{stroke:{t.ink};stroke-width:1.6}}"
    return font + "".join(f".{name}{{fill:{fill}}}" for name, fill in fills.items()) + lines
