"""What the page shows, as plain data: the record, packed arrays, formulas, chapters, attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from ...engine.errors import ArgumentError
from ..colors import BINS, FIXED
from ..data import node_to_dict
from ..model import STATES, Model
from ..plain import one_line
from ..repeats import repeats
from .arrays import Arrays
from .chapters import chapters
from .formulas import Formulas
from .heads import attention_of, tokens_of

if TYPE_CHECKING:
    from ...recording.record import Edge, Entry
    from ...recording.trace import Trace

__all__ = ["page_content"]

LEFT_OUT = ("path", "needs_gradient", "value", "gradient")
MOST = 20_000  # entries of a record that a browser steps through


def page_content(
    trace: Trace,
    *,
    tokens: Sequence[Any] | None = None,
    title: str | None = None,
    arrays: str = "pooled",
) -> dict[str, Any]:
    """Everything the page needs, ready for JSON.

    Raises: ArgumentError for a record that is too long for a page, or arrays too large.
    """
    if len(trace.entries) > MOST:
        raise ArgumentError(
            f"html: this trace holds {len(trace.entries):,} values, a page at most {MOST:,}; "
            "trace fewer steps of the run, or see all of it with t.table() or t.draw(path, depth=1)"
        )
    kept, formulas = Arrays(arrays), Formulas()
    model = Model(trace)
    nodes = [_node(model, entry, kept, formulas) for entry in trace.entries]
    edges = [_edge(model, edge, kept) for edge in trace.edges]
    attention = attention_of(trace, kept)
    return {
        "title": one_line(title or "One forward and backward pass"),
        "nodes": nodes,
        "edges": edges,
        "folds": _folds(model),
        "forward": trace.forward_steps,
        "backward": trace.backward_steps,
        "roots": trace.roots,
        "chapters": chapters(model),
        "skipped": [one_line(scope) for scope in model.checks.skipped],
        "attention": attention,
        "tokens": tokens_of(tokens, trace, attention),
        "formulas": formulas.trees,
        "arrays": kept.packed(),
        "kept": arrays,
        "scale": FIXED.bounds,
        "states": {state: [glyph, words] for state, (glyph, _, words) in STATES.items()},
    }


# ---------------------------------------------------------------- nodes, edges and folds


def _node(model: Model, entry: Entry, arrays: Arrays, formulas: Formulas) -> dict[str, Any]:
    node = node_to_dict(model.trace, entry)
    made = {key: value for key, value in node.items() if key not in LEFT_OUT}
    made["home"] = one_line(model.place[entry.id])
    for name in ("name", "scope", "place"):
        made[name] = one_line(made[name] or "")
    made["value"], made["gradient"] = arrays.add(entry.value), arrays.add(entry.gradient)
    made |= _copy(model, entry)
    if entry.gradient is not None:
        made["bin"] = _bin(entry.gradient_rms)
    if entry.tex:
        made |= formulas.of(entry)
    return {key: value for key, value in made.items() if value not in (None, "", [], {})}


def _copy(model: Model, entry: Entry) -> dict[str, Any]:
    """Which entry it is a copy of, and the number of the copy in each fold around it, if not 0."""
    fold = model.fold
    lead = fold.leader(entry.id)
    if lead == entry.id:
        return {}
    numbers = fold.copy_of[entry.id].items()
    return {"lead": lead, "copy": {one_line(fold.lift(scope)): n for scope, n in numbers if n}}


def _folds(model: Model) -> dict[str, Any]:
    """Of each scope that is drawn for several: how they are called together, and each by itself."""
    fold = model.fold
    copies: dict[str, list[str]] = {}
    for scope, first in fold.firsts.items():
        if fold.lift(first) == first:
            copies.setdefault(first, [first]).append(scope)
    return {
        one_line(first): {"name": one_line(fold.names[first]), "copies": [*map(one_line, scopes)]}
        for first, scopes in copies.items()
    }


def _edge(model: Model, edge: Edge, arrays: Arrays) -> dict[str, Any]:
    made: dict[str, Any] = {"source": edge.source, "target": edge.target, "input": edge.input}
    if apart := model.fold.apart(edge.source, edge.target):
        made["apart"] = apart
    if (axes := repeats(model.trace, edge)) is not None:
        made["over"] = ",".join(axes.letters)
    if edge.contribution is not None:
        made["sent"] = arrays.add(edge.contribution)
        made["bin"] = _bin(edge.contribution_rms)
    return made


def _bin(size: float | None) -> int:
    """The colour of a gradient; what is not finite has one of its own, which is red."""
    return BINS if size is not None and not isfinite(size) else FIXED.bin(size or 0.0)
