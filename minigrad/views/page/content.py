"""What the page shows, as plain data: the record, packed arrays, formulas, chapters, attention."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.errors import ArgumentError
from ..attention.figures import row_entropy
from ..attention.record import attentions
from ..colors import BINS, FIXED
from ..data import node_to_dict, number
from ..model import STATES, Model
from ..plain import one_line
from ..repeats import repeats
from .arrays import Arrays
from .chapters import chapters
from .formulas import Formulas

if TYPE_CHECKING:
    from ...recording.record import Edge, Entry
    from ...recording.trace import Trace

__all__ = ["page_content"]

LEFT_OUT = ("path", "needs_gradient", "value", "gradient")


def page_content(
    trace: Trace, *, tokens: Sequence[Any] | None = None, title: str | None = None
) -> dict[str, Any]:
    """Everything the page needs, ready for JSON."""
    arrays, formulas = Arrays(), Formulas()
    model = Model(trace, fold=False)
    nodes = [_node(model, entry, arrays, formulas) for entry in trace.entries]
    edges = [_edge(trace, edge, arrays) for edge in trace.edges]
    attention = _attention(trace, arrays)
    return {
        "title": one_line(title or "One forward and backward pass"),
        "nodes": nodes,
        "edges": edges,
        "forward": trace.forward_steps,
        "backward": trace.backward_steps,
        "roots": trace.roots,
        "chapters": chapters(model),
        "skipped": [one_line(scope) for scope in model.checks.skipped],
        "attention": attention,
        "tokens": _tokens(tokens, trace, attention),
        "formulas": formulas.trees,
        "arrays": arrays.packed(),
        "scale": FIXED.bounds,
        "states": {state: [glyph, words] for state, (glyph, _, words) in STATES.items()},
    }


# ---------------------------------------------------------------- nodes and edges


def _node(model: Model, entry: Entry, arrays: Arrays, formulas: Formulas) -> dict[str, Any]:
    node = node_to_dict(model.trace, entry)
    made = {key: value for key, value in node.items() if key not in LEFT_OUT}
    made["home"] = one_line(model.home[entry.id])
    for name in ("name", "scope", "place"):
        made[name] = one_line(made[name] or "")
    made["settings"] = {name: _setting(text) for name, text in entry.settings.items()}
    made["value"], made["gradient"] = arrays.add(entry.value), arrays.add(entry.gradient)
    if entry.gradient is not None:
        made["bin"] = _bin(entry.gradient_rms)
    if entry.tex:
        made |= formulas.of(entry)
    return {key: value for key, value in made.items() if value not in (None, "", [], {})}


def _setting(text: str) -> str:
    """A setting as people write it: of a number four digits.

    >>> _setting("np.float64(0.35355339)"), _setting("'tanh'")
    ('0.3536', "'tanh'")
    """
    text = re.sub(r"^np\.\w+\((.*)\)$", r"\1", text)
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _edge(trace: Trace, edge: Edge, arrays: Arrays) -> dict[str, Any]:
    made: dict[str, Any] = {"source": edge.source, "target": edge.target, "input": edge.input}
    if (axes := repeats(trace, edge)) is not None:
        made["over"] = ",".join(axes.letters)
    if edge.contribution is not None:
        made["sent"] = arrays.add(edge.contribution)
        made["bin"] = _bin(edge.contribution_rms)
    return made


def _bin(size: float | None) -> int:
    """The colour of a gradient; what is not finite has one of its own, which is red."""
    return BINS if size is not None and not isfinite(size) else FIXED.bin(size or 0.0)


# ---------------------------------------------------------------- attention


def _attention(trace: Trace, arrays: Arrays) -> list[dict[str, Any]]:
    """Each attention of the record, with figures for each entry of the batch and each head."""
    return [
        {
            "node": one.entry.id,
            "value": arrays.add(one.entry.value),
            "gradient": arrays.add(one.entry.gradient),
            "heads": one.heads,
            "queries": len(one.queries),
            "keys": len(one.keys),
            "masked": _bits(one.forbidden),
            "entropy": _rounded(_entropy(one.A)),
            "norm": None if one.dA is None else _rounded(np.sqrt((one.dA**2).sum((-2, -1)))),
        }
        for one in attentions(trace)
    ]


def _entropy(A: Any) -> Any:
    """Of each head, the mean entropy of its rows in nats, rows that may attend nowhere left out."""
    counted = A.sum(axis=-1) > 0
    return row_entropy(A).sum(axis=-1, where=counted) / np.maximum(counted.sum(axis=-1), 1)


def _rounded(figures: Any) -> list[Any]:
    return [number(float(f"{x:.6g}")) for x in np.ravel(figures)]


def _bits(masked: Any) -> list[str]:
    """Of each head, one bit for each query and key, in base64; none if nothing is masked."""
    heads = masked.reshape(-1, masked.shape[-2] * masked.shape[-1])
    packed = [b64encode(np.packbits(head).tobytes()).decode() for head in heads]
    return packed if masked.any() else []


def _tokens(
    tokens: Sequence[Any] | None, trace: Trace, attention: list[dict[str, Any]]
) -> list[list[str]] | None:
    """One list of names for each of the batch, or one for all, that fits the attention there is."""
    if tokens is None:
        return None
    nested = bool(tokens) and all(isinstance(t, list | tuple) for t in tokens)
    rows = [[one_line(str(token)) for token in row] for row in (tokens if nested else [tokens])]
    lengths = {a["keys"] for a in attention} | {a["queries"] for a in attention}
    if attention and (wrong := [len(row) for row in rows if len(row) not in lengths]):
        raise ArgumentError(
            f"html(tokens=...): attention is over {sorted(lengths)} positions, not {wrong[0]}"
        )
    batches = {trace.entries[a["node"]].shape[0] for a in attention}
    if nested and attention and len(rows) not in {1, *batches}:
        raise ArgumentError(
            f"html(tokens=...): the batch holds {sorted(batches)}, got tokens for {len(rows)}"
        )
    return rows
