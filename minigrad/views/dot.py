"""A trace as DOT text: what each box and line looks like. Text alone, no program is run.

Ids and classes are of our own making, never a name; names appear only in HTML-like labels, escaped.
Titles for screen readers come beside the text, by id: `svg` puts them in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..engine.errors import ArgumentError, MissingDependencyError
from . import labels
from .colors import FIXED, THEMES, Scale, Theme
from .legend import caption, samples
from .node_style import NodeStyle
from .outline import Box, Line, Outline, outline
from .plain import one_line
from .scopes import parts
from .shapes import SHAPES, fill, text

if TYPE_CHECKING:
    from ..recording.trace import Trace

__all__ = ["Dot", "trace_dot"]

FONT = "Helvetica"  # the one sans-serif whose widths every renderer knows
BLANK, SPARE = "\u00a0", 6  # one for so many letters: room for a wider font in its place


@dataclass
class Dot:
    """DOT text, a title for each id in it, and one sentence on the whole."""

    text: str
    titles: dict[str, str] = field(default_factory=dict)
    summary: str = ""


def trace_dot(
    trace: Trace,
    *,
    theme: str = "auto",
    scale: str = "fixed",
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    saved: bool = True,
) -> Dot:
    """Write a trace as DOT. The arguments are those of `draw_trace`.

    Raises: ArgumentError for a value it does not know; MissingDependencyError without graphviz.
    """
    if theme not in THEMES:
        raise ArgumentError(f"draw: theme must be one of {', '.join(THEMES)}, got {theme!r}")
    if scale not in ("fixed", "auto"):
        raise ArgumentError(f"draw: scale must be 'fixed' or 'auto', got {scale!r}")
    plan = outline(trace, depth=depth, focus=focus, fold=fold)
    sizes = [size for entry in trace.entries if (size := entry.gradient_rms) is not None]
    measure = Scale.around(sizes) if scale == "auto" else FIXED
    return _Writer(trace, plan, THEMES[theme], measure, saved).dot()


def _digraph(name: str) -> Any:
    try:
        import graphviz
    except ImportError:
        raise MissingDependencyError(
            "draw: the package graphviz is missing: pip install graphviz"
        ) from None
    return graphviz.Digraph(name)


class _Writer:
    def __init__(
        self, trace: Trace, plan: Outline, theme: Theme, scale: Scale, saved: bool
    ) -> None:
        self.trace, self.plan, self.theme, self.scale = trace, plan, theme, scale
        self.style = NodeStyle(theme, scale)
        self.saved = plan.saved if saved else []
        self.by_products: dict[Box, list[tuple[str, str]]] = {}
        for number, (_, target, name) in enumerate(self.saved):
            if name:
                self.by_products.setdefault(target, []).append((f"k{number}from", name))
        self.sums = plan.uses()
        self.titles: dict[str, str] = {}
        self.graph = _digraph("trace")

    def dot(self) -> Dot:
        t = self.theme
        common = {"fontname": FONT, "fontsize": "10", "fontcolor": t.ink}
        self.graph.attr(
            "graph", **common, bgcolor=t.paper, pad="0.2", nodesep="0.22", ranksep="0.32"
        )
        self.graph.attr(
            "node", **common, color=t.border, fillcolor=t.card, margin="0.1,0.05", height="0.2"
        )
        self.graph.attr(
            "edge", **common, color=t.line, penwidth="1", arrowsize="0.55", arrowhead="vee"
        )
        self.scopes()
        for number, line in enumerate(self.plan.lines):
            self.line(line, f"e{number}")
        for number, (source, target, name) in enumerate(self.saved):
            self.keep(source, target, name, f"k{number}")
        summary = labels.summary(self.trace)
        verdict, agrees = labels.verdict(self.trace)
        self.legend(summary, verdict, agrees)
        return Dot(self.graph.source, self.titles, " · ".join(filter(None, [summary, verdict])))

    # ------------------------------------------------------------------ boxes, each in its scope

    def scopes(self) -> None:
        by_scope: dict[str, list[Box]] = {"": []}
        for box in self.plan.boxes:
            names = parts(box.scope)
            for depth in range(len(names)):
                by_scope.setdefault("/".join(names[: depth + 1]), [])
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
        t, times = self.theme, self.plan.times.get(scope, 1)
        name = one_line(self.plan.called(scope), 2 * labels.WIDEST)
        label = text(name, t.ink, 10, bold=True)
        label += text(f"  ×{times}" if times > 1 else "", t.muted, 10, bold=True)
        label += text(BLANK * (len(name) // SPARE), t.ink, 10)
        child = _digraph(f"cluster_{id}")
        child.attr(label=f"<{label}>", labeljust="l", style="rounded,filled", id=id, margin="10")
        child.attr(fillcolor=t.cluster, color=t.cluster_line, penwidth="1", **{"class": "scope"})
        self.titles[id] = f"scope {one_line(scope)}" + (
            f", {times} alike, drawn once" if times > 1 else ""
        )
        return child

    def box(self, graph: Any, box: Box) -> None:
        """A box, and with it the Σ of its gradient and what else its op saved."""
        state, dim = labels.state(box), labels.dimmed(box)
        why = labels.why(self.trace, box) if state == "none" else ""
        table = self.style.table(box, state, why, self.plan.times.get(box.stands_for, 1))
        shape, style = SHAPES[box.kind]
        graph.node(
            box.id,
            label=f"<{table}>",
            shape=shape,
            style=style if not dim or "dashed" in style else f"{style},dashed",
            fillcolor=fill(self.theme, box.kind),
            id=box.id,
            **self.style.edge_of(box),
            **{"class": " ".join([box.kind, state, *["dim"] * dim])},
            **({"peripheries": "2"} if box.kind == "loss" else {}),
        )
        self.titles[box.id] = labels.node_title(self.trace, box)
        if box in self.sums:
            self.sum(graph, box, self.sums[box])
        for id, name in self.by_products.get(box, []):
            self.by_product(graph, box, name, id)

    def sum(self, graph: Any, box: Box, lines: list[Line]) -> None:
        """Where the uses of a value send their gradients, and how much of them cancels."""
        id, sizes = f"{box.id}sum", labels.gradients(box)
        ratio = labels.ranged(labels.cancellation(box, lines))
        label = text("Σ", self.theme.ink, 12, bold=True)
        label += text(f" {ratio}" if ratio else "", self.theme.muted, 8)
        shape, style = SHAPES["sum"]
        looks = {"color": self.style.colour(labels.largest(sizes)), "margin": "0.03,0.01"}
        graph.node(
            id, label=f"<{label}>", shape=shape, style=style, id=id, **looks, **{"class": "sum"}
        )
        self.titles[id] = labels.sum_title(box, lines)
        graph.edge(box.id, id, id=f"{id}line", weight="4", **self.style.flow(sizes))
        said = f"gradient of {one_line(box.label)}, the sum of {len(lines)} terms"
        self.titles[f"{id}line"] = said

    def by_product(self, graph: Any, box: Box, name: str, id: str) -> None:
        """What an op saved that is no value of the record: dropout's mask, say."""
        label = text(one_line(name), self.theme.muted, 8)
        graph.node(id, label=f"<{label}>", shape="plaintext", id=id, **{"class": "kept"})
        self.titles[id] = f"{one_line(name)}, a by-product of {one_line(box.label)}"

    # ------------------------------------------------------------------ lines

    def line(self, line: Line, id: str) -> None:
        """A use of a value, and the gradient that came back along it."""
        looks = self.style.flow(line.sent)
        summed = line.source in self.sums
        if summed and line.sent:
            looks["label"] = f"<{text(f' {labels.ranged(line.sent)} ', self.theme.muted, 8)}>"
        if labels.dimmed(line.source):
            looks["style"] = "dashed"
        tail = f"{line.source.id}sum" if summed else line.source.id
        self.graph.edge(tail, line.target.id, id=id, **looks)
        self.titles[id] = labels.line_title(line)

    def keep(self, source: Box, target: Box, name: str, id: str) -> None:
        """What an op saved, dotted."""
        tail = f"{id}from" if name else source.id
        looks = {"style": "dotted", "arrowhead": "odot", "arrowsize": "0.5", "class": "saved"}
        hold = {} if name else {"constraint": "false"}
        hold |= {"headport": "e", "tailport": "e"} if tail == target.id else {}
        self.graph.edge(tail, target.id, id=id, **looks, **hold)
        what = one_line(name or source.label)
        self.titles[id] = f"{what} is saved for the backward of {one_line(target.label)}"

    # ------------------------------------------------------------------ legend

    def legend(self, summary: str, verdict: str, agrees: bool) -> None:
        kinds = [box.kind for box in self.plan.boxes] + ["sum"] * bool(self.sums)
        states = [labels.state(box) for box in self.plan.boxes]
        said = [("down", "values, forward")]
        if any(line.sent for line in self.plan.lines):
            said.append(("thick, up", "gradients, backward; wider is larger"))
        if self.sums:
            said.append(("Σ", "sum of gradients, and ‖Σg‖ / Σ‖g‖"))
        if self.saved:
            said.append(("dotted", "saved for backward"))
        if any(labels.dimmed(box) for box in self.plan.boxes):
            said.append(("dashed", "takes no part in backward"))
        key = _digraph("cluster_key")
        rows = caption(self.theme, self.scale, summary, states, said, verdict, agrees)
        key.attr(
            label=f"<{rows}>", labelloc="b", labeljust="l", style="rounded", id="key", margin="8"
        )
        key.attr(color=self.theme.cluster_line, **{"class": "legend"})
        self.titles["key"] = "legend"
        boxes = self.plan.boxes
        ends = [box.id for box in boxes if box.kind == "loss"] or [box.id for box in boxes[-1:]]
        for id in samples(key, self.theme, kinds):
            self.titles[id] = f"legend: {id.removeprefix('key')}"
            self.graph.edge(ends[-1], id, style="invis")  # below everything else
        self.graph.subgraph(key)
