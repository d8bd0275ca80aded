"""A trace as DOT text: what each box and line looks like. Text alone, no program is run.

Ids and classes are of our own making, never a name; names appear only in HTML-like labels, escaped.
Titles for screen readers come beside the text, by id: `svg` puts them in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..engine.errors import MissingDependencyError
from ..recording.trace import Trace
from . import labels
from .colors import FIXED, RATIO_LINES, RATIOS, SCALES, THEMES
from .fold import parts, prefixes
from .labels import verdicts
from .model import AnnotatedTrace, ranged
from .outline import Box, Line, Outline, outline, with_parameters_inside
from .plain import one_line, one_of
from .style import LOOKS, NodeStyle, caption, samples, text

__all__ = ["Dot", "outline_dot", "trace_dot"]

FONT = "Helvetica"  # the one sans-serif whose widths every renderer knows
DIRECTIONS = {"down": "TB", "right": "LR"}
PARAMETERS = ("beside", "inside")  # where they stand: in boxes of their own, or in their op's
MANY = 40  # boxes from which on parameters stand inside
LIMIT = 300  # boxes of a picture that can still be read
BLANK, SPARE = "\u00a0", 6  # one for so many letters: room for a wider font in its place


@dataclass
class Dot:
    """DOT text, a title for each id in it, and one sentence and a name for the whole."""

    text: str
    titles: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    name: str = "Computation graph"


def trace_dot(
    trace: Trace,
    *,
    theme: str = "auto",
    scale: str = "run",
    style: str = "standard",
    direction: str | None = None,
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    saved: bool = False,
    parameters: str | None = None,
    title: str | None = None,
    against: Any = None,
) -> Dot:
    """Write a trace as DOT. The arguments are those of `Trace.draw`.

    Args: against: a Comparison with another run, for colours of the ratio.
    Raises: ArgumentError for a value it does not know; MissingDependencyError without graphviz.
    """
    one_of("draw", THEMES, theme=theme)
    one_of("draw", SCALES, scale=scale)
    one_of("draw", LOOKS, style=style)
    one_of("draw", (None, *DIRECTIONS), direction=direction)
    one_of("draw", (None, *PARAMETERS), parameters=parameters)
    model = AnnotatedTrace(trace, fold=fold, against=against)
    plan = outline(model, depth=depth, focus=focus, limit=None if style == "full" else LIMIT)
    many = len(plan.boxes) >= MANY and style != "full"
    if (parameters or PARAMETERS[many]) == "inside":
        plan = with_parameters_inside(plan)
    shown: dict[str, Any] = {"theme": theme, "scale": scale, "style": style, "direction": direction}
    return outline_dot(plan, **shown, saved=saved, title=title)


def outline_dot(
    plan: Outline,
    *,
    theme: str = "light",
    scale: str = "run",
    style: str = "standard",
    direction: str | None = None,
    saved: bool = False,
    title: str | None = None,
    legend: bool = True,
) -> Dot:
    """Write what was chosen of a model as DOT; the arguments are those of `trace_dot`."""
    model, colours = plan.model, THEMES[theme]
    if model.against is not None:
        colours = replace(colours, bins=RATIOS, lines=RATIO_LINES)
    look = NodeStyle(colours, FIXED if scale == "fixed" else model.scale, LOOKS[style])
    if direction is None:
        direction = "right" if style == "slide" else "down"
    return _Writer(plan, look, saved, legend).dot(direction, title)


def _digraph(name: str) -> Any:
    try:
        import graphviz
    except ImportError:
        raise MissingDependencyError(
            "draw: the package graphviz is missing: pip install graphviz"
        ) from None
    return graphviz.Digraph(name)


class _Writer:
    def __init__(self, plan: Outline, style: NodeStyle, saved: bool, legend: bool) -> None:
        self.plan = plan
        self.style = style
        self.theme = style.theme
        self.has_legend = legend and not style.look.slide
        self.saved = plan.saved if saved else []
        self.by_products: dict[Box, list[tuple[str, str]]] = {}
        for number, (_, target, name) in enumerate(self.saved):
            if name:
                self.by_products.setdefault(target, []).append((f"k{number}from", name))
        self.sums = set(plan.sums)
        self.titles: dict[str, str] = {}
        self.graph = _digraph("trace")

    def dot(self, direction: str, title: str | None = None) -> Dot:
        t, attr = self.theme, self.graph.attr
        font = {"fontname": FONT, "fontsize": "10", "fontcolor": t.ink}
        attr("graph", **font, bgcolor=t.paper, pad="0.2", nodesep="0.22", ranksep="0.32")
        attr("graph", rankdir=DIRECTIONS[direction])
        if self.style.look.slide:
            attr("graph", ratio="0.5625", label=f"<{caption(self.plan, self.style, False)}>")
        elif title:
            attr("graph", label=f"<{text(one_line(title), t.ink, 13)}>", labelloc="t")
        box = {"color": t.border, "fillcolor": t.card, "margin": "0.1,0.05", "height": "0.2"}
        attr("node", **font, **box)
        attr("edge", **font, color=t.line, penwidth="1", arrowsize="0.55", arrowhead="vee")
        self.scopes()
        for number, line in enumerate(self.plan.lines):
            self.line(line, f"e{number}")
        for number, (source, target, name) in enumerate(self.saved):
            self.keep(source, target, name, f"k{number}")
        if self.has_legend:
            self.legend()
        measured = "; ".join(one.said for one in verdicts(self.plan.model.checks))
        said = [labels.summary(self.plan.model), *([measured] if measured else [])]
        name = title or labels.picture_name(self.plan.model)
        return Dot(self.graph.source, self.titles, " · ".join(said), one_line(name))

    # ------------------------------------------------------------------ boxes, each in its scope

    def scopes(self) -> None:
        """A cluster for each scope, the inner ones in the outer."""
        by_scope: dict[str, list[Box]] = {"": []}
        for box in self.plan.boxes:
            for scope in prefixes(box.scope):
                by_scope.setdefault(scope, [])
            by_scope[box.scope].append(box)
        graphs = {"": self.graph}
        for number, (scope, boxes) in enumerate(by_scope.items()):
            if scope:
                graphs[scope] = self.cluster(scope, f"c{number}")
            for box in boxes:
                self.box(graphs[scope], box)
        for scope in sorted(by_scope, key=lambda scope: -len(parts(scope))):  # innermost first
            if scope:
                graphs[scope.rpartition("/")[0]].subgraph(graphs[scope])

    def cluster(self, scope: str, id: str) -> Any:
        t, fold = self.theme, self.plan.model.fold
        times = fold.times.get(scope, 1)
        name = one_line(fold.name(scope), 2 * labels.WIDEST)
        size, strip = self.style.look.name - 2, self.plan.model.strips.get(scope)
        label = text(name, t.ink, size, bold=True)
        label += text(BLANK * (len(name) // SPARE), t.ink, size)
        label += text(f"  ×{times}" if times > 1 else "", t.muted, size, bold=True)
        if strip is not None:
            rows = f'<TR><TD ALIGN="LEFT">{label}</TD></TR>{self.style.strip(strip)}'
            label = f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1">{rows}</TABLE>'
        child = _digraph(f"cluster_{id}")
        child.attr(label=f"<{label}>", labeljust="l", style="rounded,filled", id=id, margin="10")
        child.attr(fillcolor=t.cluster, color=t.cluster_line, penwidth="1", **{"class": "scope"})
        alike = f", {times} alike, drawn once" if times > 1 else ""
        alike += f"; {strip.text}" if strip is not None else ""
        self.titles[id] = f"scope {one_line(scope)}{alike}"
        return child

    def box(self, graph: Any, box: Box) -> None:
        """A box, and with it the Σ of its gradient and what else its op saved."""
        spread = self.plan.spreads[box]
        look = self.style.shape(box.kind, box.dimmed)
        look |= self.style.strength(spread.largest) if spread.largest else {}
        if spread.state in ("wrong", "non-finite"):
            look["color"] = self.theme.alarm
        look["class"] = " ".join([box.kind, spread.state, *["dim"] * box.dimmed])
        graph.node(box.id, label=f"<{self.style.table(self.plan, box)}>", id=box.id, **look)
        self.titles[box.id] = labels.node_title(self.plan, box)
        if box in self.sums:
            self.sum(graph, box)
        for id, name in self.by_products.get(box, []):
            label = self.style.small(one_line(name), self.theme.muted)  # dropout's mask, say
            graph.node(id, label=f"<{label}>", shape="plaintext", id=id, **{"class": "kept"})
            self.titles[id] = f"{one_line(name)}, a by-product of {one_line(box.label)}"

    def sum(self, graph: Any, box: Box) -> None:
        """Where the uses of a value send their gradients, and how much of them cancels."""
        id, spread = f"{box.id}sum", self.plan.spreads[box]
        ratio = ranged(labels.cancellation(self.plan.model, box))
        label = text("Σ", self.theme.ink, 12, bold=True)
        label += self.style.small(f" {ratio}" if ratio else "", self.theme.muted)
        look = self.style.shape("sum") | {"margin": "0.03,0.01", "class": "sum"}
        look["color"] = self.style.strength(spread.largest)["color"]
        graph.node(id, label=f"<{label}>", id=id, **look)
        self.titles[id] = labels.sum_title(self.plan, box)
        graph.edge(box.id, id, id=f"{id}line", weight="4", **self.style.flow(spread.sizes))
        self.titles[f"{id}line"] = f"gradient of {one_line(box.label)}, the sum of its terms"

    # ------------------------------------------------------------------ lines

    def line(self, line: Line, id: str) -> None:
        """A use of a value, and the gradient that came back along it."""
        summed = line.source in self.sums
        look = self.style.flow(line.sent) | self.style.label(self.plan, line, summed)
        if line.source.dimmed:
            look["style"] = "dashed"
        if line.link.step:  # from the end of a block back to its beginning
            look |= {"constraint": "false", "tailport": "e", "headport": "e"}
        tail = f"{line.source.id}sum" if summed else line.source.id
        self.graph.edge(tail, line.target.id, id=id, **look)
        self.titles[id] = labels.line_title(self.plan, line)

    def keep(self, source: Box, target: Box, name: str, id: str) -> None:
        tail = f"{id}from" if name else source.id
        look = {"style": "dotted", "arrowhead": "odot", "arrowsize": "0.5", "class": "saved"}
        look |= {} if name else {"constraint": "false"}
        look |= {"headport": "e", "tailport": "e"} if tail == target.id else {}
        self.graph.edge(tail, target.id, id=id, **look)
        what = one_line(name or source.label)
        self.titles[id] = f"{what} is saved for the backward of {one_line(target.label)}"

    # ------------------------------------------------------------------ legend

    def legend(self) -> None:
        """A cluster of its own, below everything else."""
        key = _digraph("cluster_key")
        rows = caption(self.plan, self.style, bool(self.saved))
        key.attr(label=f"<{rows}>", labelloc="b", labeljust="l", style="rounded", id="key")
        key.attr(color=self.theme.cluster_line, margin="8", **{"class": "legend"})
        self.titles["key"] = "legend"
        boxes = self.plan.boxes
        ends = [box.id for box in boxes if box.kind == "loss"] or [box.id for box in boxes[-1:]]
        for id in samples(key, self.plan, self.style):
            self.titles[id] = f"legend: {id.removeprefix('key')}"
            self.graph.edge(ends[-1], id, style="invis")
        self.graph.subgraph(key)
