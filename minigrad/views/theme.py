"""The colours of every view: one scale for the sizes of gradients, and a light and a dark theme.

The eight colours of the scale rise in lightness from blue to yellow, as cividis does.
So they keep their order for colour-blind readers and in a grey print.
Text on each has a contrast of 4.5 or more; lines, and on dark paper the colours themselves, of 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from math import isfinite, log10
from typing import NamedTuple

from ..engine.errors import ArgumentError
from .words import sized

__all__ = [
    "BINS", "END", "FAMILY", "INKS", "WITHIN", "Dark", "Light", "Scale", "check_options", "css",
    "drawing_id", "followed", "repainted", "roles", "svg_box", "svg_page", "svg_text",
]  # fmt: skip


class Scale(NamedTuple):
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
        return min(len(BINS) - 1, int(self.place(size) * len(BINS)))

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


class Light:
    """Every colour, by the part it plays. No two parts share one, so that an SVG can swap them.

    bins: of the scale, from the smallest size to the largest.  lines: the same, for lines.
    """

    bins = ("#12285c", "#1b4783", "#2a6798", "#4685a3", "#6ba3a2", "#9bbd8d", "#d2cc69", "#fbe04a")
    lines = ("#12285d", "#1b4784", "#2a6799", "#4685a4", "#669b9a", "#7c9771", "#938f4a", "#a39230")
    paper = "#ffffff"
    ink = "#1c2330"
    muted = "#586274"
    line = "#98a1af"  # of values
    card = "#fdfdfe"
    parameter = "#f3efe6"
    input = "#eaf1f8"
    loss = "#f4ecf6"
    outside = "#f6f7f8"
    border = "#8a94a4"
    cluster = "#f7f8fa"
    edge = "#d3d8e0"  # of a cluster
    alarm = "#b3261e"


class Dark(Light):
    """The same parts; the first bins are lighter, for a contrast of 3 with the paper."""

    bins = ("#5c6292", "#4f6c9d", "#3a75a1", "#4d8ca5", "#6ba3a1", "#9bbd8c", "#d2cc68", "#fbe049")
    lines = bins
    paper = "#12151b"
    ink = "#e8ebf0"
    muted = "#a3adbc"
    line = "#6c7787"
    card = "#1d222b"
    parameter = "#2b2820"
    input = "#1b2836"
    loss = "#2c2233"
    outside = "#171a20"
    border = "#5d6879"
    cluster = "#181c23"
    edge = "#343c49"
    alarm = "#f058f8"


def roles(theme: type[Light]) -> dict[str, str]:
    """Name of each part to its colour."""
    parts = {name: x for name, x in vars(theme).items() if name[0] != "_" and isinstance(x, str)}
    parts |= {f"bin{i}": colour for i, colour in enumerate(theme.bins)}
    return parts | {f"line{i}": colour for i, colour in enumerate(theme.lines)}


BINS = Light.bins
INKS = ("#fffffe",) * 3 + ("#000001",) * 5  # of text on the scale; no theme's own
DARKENED = dict(zip(roles(Light).values(), roles(Dark).values(), strict=True))
VARIABLES = {colour: f"var(--{name})" for name, colour in roles(Light).items()}
FAMILY = "Helvetica,Arial,'Liberation Sans','DejaVu Sans Condensed',sans-serif"  # of one width


def check_options(**options: str) -> None:
    """Raises: ArgumentError if an option of a drawing has a value that is none of its own."""
    for name, value in options.items():
        if value not in OPTIONS[name]:
            known = ", ".join(OPTIONS[name])
            raise ArgumentError(f"draw: {name} must be one of {known}, got {value!r}")


def css() -> str:
    """CSS variables of both themes: --ink, --bin0, --on0 (text on it), --line0 and the others."""
    rules = []
    for where, theme in ((":root", Light), (":root[data-theme=dark]", Dark)):
        named = roles(theme) | {f"on{i}": ink for i, ink in enumerate(INKS)}
        rules.append(f"{where}{{{''.join(f'--{name}:{c};' for name, c in named.items())}}}")
    return "".join(rules)


# ---------------------------------------------------------------- drawings


def repainted(drawing: str, theme: str) -> str:
    """A drawing in the light theme, SVG or DOT, in the colours of "dark" or the "page"'s variables.

    Of another theme, "auto" among them, it stays as it is.
    """
    colours = {"dark": DARKENED, "page": VARIABLES}.get(theme, {})
    colour = r'(?<=")#[0-9a-f]{6}(?=[":])|(?<=:)#[0-9a-f]{6}(?=")'  # DOT joins those of a line by :
    return re.sub(colour, lambda m: colours.get(m[0], m[0]), drawing)


def drawing_id(text: str) -> str:
    """An id that no other drawing has, so that several can stand in one page."""
    return "mg" + sha256(text.encode()).hexdigest()[:10]


def followed(id: str) -> str:
    """The style by which a drawing in the light theme follows readers who prefer the dark one."""
    rules = "".join(
        f'#{id} [{paint}="{light}"]{{{paint}:{dark}}}'
        for light, dark in DARKENED.items()
        for paint in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark){{#{id}{{background:{Dark.paper}}}{rules}}}"


def svg_page(label: str, width: float, height: float, parts: Iterable[str], theme: str) -> str:
    """An SVG of parts in colours of the light theme; "auto" follows its reader.

    Raises: ArgumentError if there is no such theme.
    """
    body = "\n".join(['<rect fill="#ffffff" width="100%" height="100%"/>', *parts, "</svg>"])
    id = drawing_id(body)
    size = f"{width:.0f} {height:.0f}"
    box = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {size}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" id="{id}" role="img" aria-label="{label}" '
    head += f'{box} font-size="10" font-family="{FAMILY}" style="{WITHIN}">'
    check_options(theme=theme)
    dark = followed(id) if theme == "auto" else ""
    head += f"<style>#{id} text{{white-space:pre}}{dark}</style>"
    return head + "\n" + repainted(body, theme)


def svg_text(x: float, y: float, text: str, fill: str = Light.muted, more: str = "") -> str:
    return f'<text fill="{fill}" x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def svg_box(fill: str, x: float, y: float, width: float, height: float, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"'
    return f'<rect fill="{fill}" {place}{more}/>'


OPTIONS = {
    "theme": ("auto", "light", "dark"),  # auto follows its reader
    "direction": ("down", "right"),
    "color_by": ("gradient", "time"),
}
END = ' text-anchor="end"'  # of a text whose place is where it ends
WITHIN = "max-width:100%;height:auto"  # no wider than a notebook's cell
