"""What the page shows, as plain data: the record, packed arrays, formulas, chapters, attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from ...engine.errors import ArgumentError
from ...recording.record import Edge, Entry
from ...recording.trace import Trace
from ..colors import BINS, DARK, FIXED, LIGHT, SCALES, Scale, ink_on
from ..data import node_to_dict
from ..files import one_of
from ..model import STATES, WORST_FIRST, Model
from ..plain import one_line
from ..repeats import repeats
from .arrays import Arrays
from .formulas import Formulas, chapters
from .heads import attention_of, tokens_of

__all__ = ["page_content"]
LEFT_OUT = ("path", "needs_gradient", "value", "gradient")
MOST = 20_000  # entries of a record that a browser steps through


def page_content(
    trace: Trace,
    *,
    tokens: Sequence[Any] | None = None,
    title: str | None = None,
    arrays: str = "pooled",
    scale: str = "run",
    against: Any = None,  # a Comparison with another run
    heads: Callable[[Entry], list[int]]
    | None = None,  # of an attention those shown, counted from 0
    note: str = "",  # what the reader is told of what was left out
) -> dict[str, Any]:
    """Everything the page needs, ready for JSON.

    Raises: ArgumentError for a record or arrays too large, or unknown values of options.
    """
    if len(trace.entries) > MOST:
        raise ArgumentError(
            f"html: this trace holds {len(trace.entries):,} values, a page at most {MOST:,}; "
            "trace fewer steps of the run, or see all of it with t.table() or t.draw(path, depth=1)"
        )
    one_of("html", SCALES, scale=scale)
    trace.judge()
    made = _Content(Model(trace, against=against), Arrays(arrays), scale)
    attention = attention_of(trace, made.arrays, heads)
    return {
        "title": one_line(title or "One forward and backward pass"),
        **made.graph(),
        "chapters": chapters(made.model, made.formulas),
        "skipped": [one_line(scope) for scope in made.model.checks.skipped],
        "unchecked": made.model.checks.unchecked,
        "attention": attention,
        "tokens": tokens_of(tokens, trace, attention),
        "formulas": made.formulas.trees,
        "arrays": made.arrays.packed(),
        "kept": arrays,
        "note": note,
        "compared": against is not None,
        "scale": made.scale.bounds,
        "palette": {
            name: {"bin": theme.bins, "ink": [*map(ink_on, theme.bins)], "line": theme.lines}
            for name, theme in (("light", LIGHT), ("dark", DARK))
        },
        "states": {state: [STATES[state][0], STATES[state][2]] for state in WORST_FIRST},
    }


class _Content:
    """The graph of a record as plain data; its arrays and formulas are collected on the way."""

    def __init__(self, model: Model, arrays: Arrays, scale: str) -> None:
        self.model, self.arrays, self.formulas = model, arrays, Formulas()
        self.scale: Scale = model.scale if scale == "run" else FIXED

    def graph(self) -> dict[str, Any]:
        model, trace = self.model, self.model.trace
        return {
            "nodes": [self.node(entry) for entry in trace.entries],
            "edges": [self.edge(edge) for edge in trace.edges],
            "folds": self.folds(),
            "forward": trace.forward_steps,
            "backward": trace.backward_steps,
            "roots": trace.roots,
            "flow": model.flow,
            "path": [edge.target for edge in model.path.edges] if model.path else [],
        }

    def node(self, entry: Entry) -> dict[str, Any]:
        node = node_to_dict(self.model.trace, entry)
        made = {key: value for key, value in node.items() if key not in LEFT_OUT}
        made |= {"home": self.model.place[entry.id], "broken": entry.broken or None}
        made |= {name: one_line(made[name] or "") for name in ("name", "scope", "home", "place")}
        made["value"] = self.arrays.add(entry.value, entry.shape)
        made["gradient"] = self.arrays.add(entry.gradient, entry.shape)
        made |= self.copy(entry)
        made["unresponsive"] = self.model.unresponsive(entry)
        if entry.gradient is not None:
            made |= self.sized(self.model.size(entry), entry)
        made |= self.formulas.of(entry) if entry.tex else {}
        return {key: value for key, value in made.items() if value not in (None, "", [], {})}

    def copy(self, entry: Entry) -> dict[str, Any]:
        """Which entry it is a copy of, and its number in each fold around it, if not 0."""
        fold, lead = self.model.fold, self.model.fold.leader(entry.id)
        if lead == entry.id:
            return {}
        numbers = fold.copy_of[entry.id].items()
        return {"lead": lead, "copy": {one_line(fold.lift(scope)): n for scope, n in numbers if n}}

    def folds(self) -> dict[str, Any]:
        """Of each scope drawn for several: what they are called together, and each by itself."""
        fold = self.model.fold
        copies: dict[str, list[str]] = {}
        for scope, first in fold.firsts.items():
            if fold.lift(first) == first:
                copies.setdefault(first, [first]).append(scope)
        return {
            one_line(first): {"name": one_line(fold.names[first]), "copies": [*map(one_line, all)]}
            for first, all in copies.items()
        }

    def edge(self, edge: Edge) -> dict[str, Any]:
        trace = self.model.trace
        made: dict[str, Any] = {"source": edge.source, "target": edge.target, "input": edge.input}
        if apart := self.model.fold.apart(edge.source, edge.target):
            made["apart"] = apart
        if (axes := repeats(trace, edge)) is not None:
            made["over"] = ",".join(axes.letters)
        if edge.contribution is not None:
            made["sent"] = self.arrays.add(edge.contribution, trace.entries[edge.source].shape)
            made |= self.sized(self.model.sent(edge), trace.entries[edge.target])
        return made

    def sized(self, size: float | None, by: Entry) -> dict[str, Any]:
        """The colour of a gradient, not finite or wrong in red; and its ratio, if compared."""
        red = by.state == "wrong" or (size is not None and not isfinite(size))
        colour = BINS if red else self.scale.bin(size or 0.0)
        return {"bin": colour} | ({"ratio": size} if self.model.against and size else {})
