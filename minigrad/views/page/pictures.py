"""The pictures that a page lights: one of the whole record, one of each scope closed in another.

Copies of a block are drawn once, so they share one. Beside each picture stands which entries its
boxes and which edges its lines stand for, and its colours are classes, so that a page can follow
its theme and hide a gradient that is not yet known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from math import ceil, log

from ..colors import DARK, LIGHT, RATIO_LINES, RATIOS, Theme, ink_on
from ..data import Json
from ..dot import marks, outline_dot
from ..fold import parts, prefixes
from ..model import AnnotatedTrace
from ..outline import Box, Outline, outline
from ..picture import render, titled
from ..plain import one_line

__all__ = ["Pictures", "paints"]

MOST_BOXES = 40  # of one picture; where there are more, scopes are closed
LONG = 100  # ops side by side in one scope; more are cut into parts, in the order they ran
_ELEMENT = re.compile(r"<(\w+)([^<>]*)>")
_PAINT = re.compile(r' (fill|stroke)="(#[0-9a-f]{6})"')
_PLACE = re.compile(r' (?:d|points|[cr]?x|[cr]?y|font-size)="[^"]*"')
_POINT = re.compile(r"([-\d.]+),([-\d.]+)")
_SURPLUS = re.compile(
    r' (?:font-family|xml:space|xmlns:xlink|xmlns)="[^"]*"| text-anchor="start"| stroke="none"'
    r'| font-size="9.00"'
)


class Pictures:
    """The pictures of a record, drawn when `svgs` is read.

    Attributes: contents: what each shows, as plain data; svgs; marks: what each kind of line and
    mark in them means.
    """

    def __init__(self, model: AnnotatedTrace, scale: str) -> None:
        self.model = model
        self.contents: list[Json] = []
        self.numbers = {id(edge): number for number, edge in enumerate(model.trace.edges)}
        _cut_long_scopes(model)
        self._plans, self._scale = list[Outline](), scale
        found: dict[tuple[str, str], None] = {}
        pending = [""]
        while pending:
            root = pending.pop(0)
            plan = outline(model, root=root, limit=MOST_BOXES)
            closed = {box.id: _path(model, box) for box in plan.boxes if box.kind == "scope"}
            found |= dict.fromkeys(marks(plan, False))
            self.contents.append(self._content(root, plan, closed))
            pending += closed.values()
            self._plans.append(plan)
        self.marks = [*found]

    @cached_property
    def svgs(self) -> list[str]:
        dots = [outline_dot(plan, self._scale) for plan in self._plans]
        drawn = render("\n".join(dot.text for dot in dots), "svg").decode()
        pairs = zip(re.findall(r"<svg.*?</svg>", drawn, re.DOTALL), dots, strict=True)
        return [_classed(titled(svg, dot)) for svg, dot in pairs]

    def _content(self, root: str, plan: Outline, closed: dict[str, str]) -> Json:
        fold = self.model.fold
        around = [
            {"scope": one_line(path), "name": one_line(fold.name(path))} for path in prefixes(root)
        ]
        return {
            "scope": one_line(root),
            "around": around,
            "closed": {one_line(path): node for node, path in closed.items()},
            "lines": [[self.numbers[id(edge)] for edge in line.edges] for line in plan.lines],
        }


def _path(model: AnnotatedTrace, box: Box) -> str:
    """The scope that a closed box stands for."""
    inside = parts(model.place[model.fold.leader(box.one.id)])
    return "/".join(inside[: len(parts(box.scope)) + 1])


# ---------------------------------------------------------------- long scopes


def _cut_long_scopes(model: AnnotatedTrace) -> None:
    """Move what stands side by side in a long scope into scopes of its own, in parts."""
    beside: dict[str, list[int]] = {}
    for entry in model.trace.entries:
        if entry.op is not None and model.fold.leader(entry.id) == entry.id:
            beside.setdefault(model.place[entry.id], []).append(entry.id)
    moved: dict[int, str] = {}
    for scope, ids in beside.items():
        if len(ids) > LONG:
            for i, names in zip(ids, _parts_of(len(ids)), strict=True):
                moved[i] = "/".join(filter(None, (scope, *names)))
    for entry in model.trace.entries if moved else ():
        lead = model.fold.leader(entry.id)
        if lead in moved:
            model.place[entry.id] = moved[lead]
        elif entry.op is None:  # a leaf stands with its uses, if those are in one part
            homes = {moved.get(model.fold.leader(e.target), "") for e in model.trace.uses(entry)}
            if len(homes) == 1 and homes != {""}:
                model.place[entry.id] = homes.pop()


def _parts_of(count: int) -> Iterator[list[str]]:
    """Of each of many, the parts it comes into, from the outermost in."""
    levels = ceil(log(count) / log(LONG) - 0.05)  # a few more are no reason for another level
    most = ceil(count ** (1 / levels))
    for i in range(count):
        firsts = [(i // most**k * most**k, most**k) for k in range(levels - 1, 0, -1)]
        yield [f"values {first + 1} to {min(count, first + size)}" for first, size in firsts]


# ---------------------------------------------------------------- colours as classes


def _paint_names() -> dict[str, str]:
    """Each colour of the light theme, and what its class is called."""
    roles = {colour: part for part, colour in LIGHT.roles().items()}
    for bins in (LIGHT.bins, RATIOS):
        roles |= {colour: f"bin{i}" for i, colour in enumerate(bins)}
    return roles | {colour: f"line{i}" for i, colour in enumerate(RATIO_LINES)}


PAINTS = _paint_names()
BIN_CLASSES = frozenset(f"bin{i}" for i in range(len(LIGHT.bins)))
LINE_CLASSES = frozenset(f"line{i}" for i in range(len(LIGHT.lines)))
INKS = ("#000001", "#fffffe")  # on the colour of a gradient


def _classed(svg: str) -> str:
    """An SVG with classes for colours, without fonts, with one decimal in each place."""
    ground = ""

    def painted(found: re.Match[str]) -> str:
        nonlocal ground
        tag, given = found[1], _SURPLUS.sub("", found[2])
        classes = []
        for what, colour in _PAINT.findall(given):
            name = PAINTS.get(colour, "")
            if what == "fill" and tag != "text" and name in {"alarm", *BIN_CLASSES}:
                ground = "bin8" if name == "alarm" else name
                classes += ["cell", ground]
            elif colour in INKS:
                classes += ["on", ground]
            elif name:
                classes.append(f"{what[0]}-{name}")
        if {"f-ink", "on"} & set(classes):
            given = given.replace(' font-weight="bold"', "")
        if classes:
            given = f' class="{" ".join(classes)}"{_PAINT.sub("", given)}'
        return f"<{tag}{_PLACE.sub(_short_place, given)}>"

    return _ELEMENT.sub(painted, svg)


def _short_place(found: re.Match[str]) -> str:
    """Numbers with one decimal, and paths from point to point."""
    if found[0].startswith(" d="):
        return f' d="{_relative_path(found[0])}"'
    return re.sub(r"\.(\d)\d*", lambda m: f".{m[1]}".replace(".0", ""), found[0])


def _relative_path(path: str) -> str:
    """A path of Graphviz in tenths; a curve that leaves and arrives along itself is a line.

    >>> _relative_path("M1.00,2.00C1.00,2.00 5.00,2.00 5.00,2.00 6,2 7.04,3 7,4")
    'M1,2l4,0c1,0 2,1 2,2'
    """
    points = [(round(10 * float(x)), round(10 * float(y))) for x, y in _POINT.findall(path)]
    at = points[0]
    made = ["M" + _joined(at)]
    for one, other, end in zip(points[1::3], points[2::3], points[3::3], strict=True):
        steps = [(x - at[0], y - at[1]) for x, y in (one, other, end)]
        straight = one == at and other == end
        made.append("l" + _joined(steps[-1]) if straight else "c" + " ".join(map(_joined, steps)))
        at = end
    return "".join(made)


def _joined(point: tuple[int, int]) -> str:
    return ",".join(f"{x / 10:g}" for x in point)


def paints(*, compared: bool) -> str:
    """CSS: the colours of the classes, in the light theme and in the dark one."""
    themes = ((":root", LIGHT), (":root[data-theme=dark]", DARK))
    rules = [f"{where}{{{''.join(_variables(theme, compared))}}}" for where, theme in themes]
    for i in range(len(LIGHT.bins)):
        rules.append(f".bin{i}{{--bin:var(--bin{i});--ink-on:var(--ink{i})}}")
    for part in LIGHT.roles():
        name = f"var(--{part})" if part in LINE_CLASSES else f"var(--p-{part})"
        rules.append(f".f-{part}{{fill:{name}}}.s-{part}{{stroke:{name}}}")
    return "".join(rules)


def _variables(theme: Theme, compared: bool) -> Iterator[str]:
    bins, lines = (RATIOS, RATIO_LINES) if compared else (theme.bins, theme.lines)
    for i, (fill, line) in enumerate(zip(bins, lines, strict=True)):
        yield f"--bin{i}:{fill};--ink{i}:{ink_on(fill)};--line{i}:{line};"
    for part, colour in theme.roles().items():
        if part not in LINE_CLASSES:
            yield f"--p-{part}:{colour};"
