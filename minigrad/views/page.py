"""The page: one HTML file that steps forward and backward through a record, without any network.

It embeds the record as data, its formulas as MathML and its arrays, of bounded size.
The pictures are as `t.draw` draws them, one of each scope that can be opened.
The scripts in assets/ show what is given and compute nothing again.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from html import escape
from math import isfinite, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..engine.errors import ArgumentError
from ..record.attention import AttentionWeights, attention_weights, fitting, texts_of
from ..record.finish import finish, to_dict
from ..record.fold import folded
from ..record.formulas import symbol_of
from ..record.record import Array, Check, Edge, Entry, Record
from . import words
from .dot import Dot
from .layout import Box, Layout, layout
from .ledger import shown_ledgers
from .maths import mathml
from .picture import asset, render, titled
from .scores import figures, pooled
from .theme import BINS, Scale, css, repainted

__all__ = ["Cell", "content", "frame", "html_of"]

Json: TypeAlias = dict[str, Any]
ALARM = len(BINS)  # the bin of what is wrong
MOST_VALUES = 20_000  # that a browser steps through
CELLS = 1_000_000  # of all arrays together, 4 bytes each
HEADS = 4096  # of attention, which keeps them
SIDES = ((64, HEADS), (64, 48), (32, 8), (16, 3), (8, 1))  # of matrices, and how many of an array
SCRIPTS = ("dom", "record", "heat", "graph", "save", "panel", "attention", "ledger", "main")


def html_of(shown: Json, live: bool = False) -> str:
    """The page as text. Args: live: with the bar by which a program that serves it can be asked."""
    data = json.dumps(shown, ensure_ascii=False, allow_nan=False)
    parts = {
        "style": "\n".join([css(), asset("page.css"), asset("play.css") if live else ""]),
        "allows": "connect-src 'self'" if live else "",
        "data": data.replace("<", "\\u003c"),
        "script": "\n".join(asset(f"{name}.js") for name in SCRIPTS),
        "play": asset("play.js") if live else "const live = showPage;",
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], asset("page.html"))


def frame(height: int, **source: str) -> str:
    """A frame for a page within another one: its text as `srcdoc`, or its address as `src`."""
    [(name, text)] = source.items()
    style = f"width:100%;border:1px solid #d3d8e0;border-radius:10px;height:{height}px"
    return f'<iframe title="computation graph" {name}="{escape(text)}" style="{style}"></iframe>'


class Cell(NamedTuple):
    """A page in a notebook's cell: the cell's last value, or what `display` is given."""

    page: str
    height: int

    def __repr__(self) -> str:
        return f"<page of {words.of_bytes(len(self.page.encode()))}; a notebook shows it>"

    def _repr_html_(self) -> str:
        return frame(self.height, srcdoc=self.page)


def content(record: Record, *, tokens: Any = None, title: str = "", live: bool = False) -> Json:
    """All that the page shows, ready for JSON. Args: live: without ledgers, which it asks for.

    Raises: ArgumentError for a record too large; ShapeError for tokens that do not fit.
    """
    if len(record.entries) > MOST_VALUES:
        raise ArgumentError(
            f"html: this trace holds {len(record.entries):,} values, a page at most "
            f"{MOST_VALUES:,}; trace fewer steps of the run, or see all of it with t.table()"
        )
    page = _Page(finish(record), tokens)
    return {
        "title": words.one_line(title or "One forward and backward pass"),
        "headline": words.headline(record),
        "summary": words.summary(record),
        "verdicts": words.verdicts(record.checks),
        "record": to_dict(record),
        "entries": [*map(page.entry, record.entries)],
        "uses": [*map(page.use, record.edges)],
        "pictures": page.pictures(),
        "checks": [*map(page.check, record.checks.results)],
        "attention": [*map(page.attention, page.weights)],
        "asked": record.asked,
        "named": tokens is not None,
        "arrays": page.packed(),
        "ledgers": {} if live else shown_ledgers(record),
        "states": words.STATES,
        "scale": page.scale.ends,
        "maths": page.maths,
    }


class _Page:
    def __init__(self, record: Record, tokens: Any) -> None:
        self.record = record
        self.scale = Scale.around(record.gradient_sizes)
        self.weights = attention_weights(record)
        self.texts = texts_of(tokens, self.weights, "html(tokens=...)")
        self._numbers = {id(edge): number for number, edge in enumerate(record.edges)}
        self.maths: dict[str, str] = {}
        self._arrays: list[tuple[Array, int]] = []
        self._known: dict[Any, int] = {}

    def tex(self, *texts: str) -> None:
        """Keep formulas as MathML beside the record."""
        self.maths |= {text: mathml(text) for text in texts if text}

    # ------------------------------------------------------------------ entries and uses

    def entry(self, entry: Entry) -> Json:
        size = words.gradient_size(entry) or 0.0
        self.tex(entry.symbol, entry.equation, entry.slope, entry.number, *entry.where)
        shown = {
            "label": words.label(entry),
            "inWords": words.gradient(entry),
            "bin": ALARM if entry.state in ("wrong", "not finite") else self._bin(size),
            "value": self.add(entry.value),
            "gradient": self.add(entry.gradient),
            "marks": words.marks(entry),
            "sum": words.sum_of(self.record, entry),
            "flops": words.counted(entry.flops) if entry.flops else "",
            "saved": words.of_bytes(entry.saved_bytes) if entry.saved_bytes else "",
            "broken": words.is_broken(entry),
        }
        return {name: x for name, x in shown.items() if x is not None}

    def _bin(self, size: float) -> int | None:
        return ALARM if not isfinite(size) else self.scale.bin(size) if size else None

    def use(self, edge: Edge) -> Json:
        """What a use sent back: its size, its array, and both sides of its equation."""
        if edge.facts is None:
            return {}
        part = self.record.part(edge)
        self.tex(edge.equation, part, *edge.where)
        return {
            "inWords": words.sent_by([edge]),
            "bin": self._bin(edge.facts.rms),
            "sent": self.add(edge.contribution),
            "part": part,
            "gain": words.gain_of([edge]),
        }

    def check(self, check: Check) -> Json:
        """How far the run is from what it must be, and where it is wrong."""
        equation = check.formula
        if equation:
            equation = rf"\frac{{\partial L}}{{\partial {symbol_of(check.symbol)}}} = {equation}"
        self.tex(check.forward, equation)
        result = check.why
        if check.ok is not None:
            result = f"{words.VERDICT_SIGNS[check.ok]} off by {words.sized(check.difference)}"
        if check.ok is False:
            pair = f"{words.digits(check.measured)} in place of {words.digits(check.expected)}"
            result += f" (at {list(check.index)} it has {pair})"
        against = "the step derived by hand"
        if check.kind != "by hand":
            against = f"a numeric derivative, {check.method}"
        return {
            "equation": equation,
            "inWords": result,
            "against": against,
            "rms": words.sized(check.rms),
        }

    # ------------------------------------------------------------------ attention

    def attention(self, weights: AttentionWeights) -> Json:
        """The weights and their gradient head by head, NaN where a mask forbids looking."""
        slopes: Any = [] if weights.dA is None else np.concatenate(weights.dA)
        names = [[*map(words.one_line, text)] for text in self.texts]
        queries, keys = (fitting(names, size) for size in weights.A.shape[-2:])
        return {
            "entry": weights.entry,
            "path": words.one_line(weights.path),
            "heads": weights.heads,
            "batch": len(weights.A),
            "queries": queries,
            "keys": keys,
            "A": self.add_heads(weights.A, weights.forbidden),
            "dA": self.add_heads(weights.dA, weights.forbidden),
            "norms": [words.sized(float(np.linalg.norm(m))) for m in slopes],
            "figures": figures(weights),
        }

    def add_heads(self, array: Array | None, forbidden: Array) -> int | None:
        if array is None:
            return None
        return self.add(np.where(forbidden, np.nan, array), HEADS)

    # ------------------------------------------------------------------ pictures

    def pictures(self) -> list[Json]:
        """One picture of the whole, and one of each scope that is closed in another."""
        pending = [""]
        layouts = list[Layout]()
        for root in pending:  # the loop appends to it
            try:
                chosen = layout(self.record, focus=f"/{root}" if root else None)
            except ArgumentError:  # too much for a picture: its steps are in the panel
                note = "too many boxes for a picture"
                chosen = Layout(folded(self.record), [], [], note)
            layouts.append(chosen)
            pending += [box.path for box in chosen.boxes if box.path and box.path not in pending]
        dots = [*map(Dot, layouts)]
        drawn = render("\n".join(dot.text for dot in dots), "svg").decode()
        svgs = map(titled, re.findall(r"<svg.*?</svg>", drawn, re.DOTALL), dots)
        return [*map(self._picture, pending, layouts, svgs)]

    def _picture(self, root: str, chosen: Layout, svg: str) -> Json:
        boxes = chosen.boxes
        return {
            "root": root,
            "name": words.one_line(chosen.fold.name(root)) if root else "all",
            "boxes": {box.id: _entries(box) for box in boxes},
            "held": {b.id: [i for item in b.inside for i in _entries(item.source)] for b in boxes},
            "cells": {box.id: self._cells(box) for box in boxes},
            "closed": {box.id: box.path for box in boxes if box.path},
            "lines": [self._uses(line.edges) for line in chosen.lines],
            "svg": repainted(svg, "page"),
            "note": chosen.note,
        }

    def _cells(self, box: Box) -> list[Json]:
        """What the coloured cells of a box stand for, in order: entries, or uses."""
        cells = [{"entries": _entries(box)}] if box.size else []
        for held in box.inside:
            if any(held.sizes):
                uses = {"uses": self._uses(held.edges)}
                cells.append(uses if held.shared else {"entries": _entries(held.source)})
        return cells

    def _uses(self, edges: list[Edge]) -> list[int]:
        return [self._numbers[id(edge)] for edge in edges]

    # ------------------------------------------------------------------ arrays

    def add(self, array: Array | None, least: int = 0) -> int | None:
        """The number of an array. Args: least: so many of its matrices are kept, if it has them."""
        if array is None or array.dtype.kind not in "fiub":
            return None
        key = array.__array_interface__["data"][0], array.shape, array.strides
        if key not in self._known:
            self._known[key] = len(self._arrays)
            self._arrays.append((array, least))
        return self._known[key]

    def packed(self) -> list[Json]:
        """All arrays, pooled no more than the page's size asks for."""
        for side, most in SIDES:
            cells = (_cells(array.shape, side, max(least, most)) for array, least in self._arrays)
            if sum(cells) <= CELLS:
                break
        return [pack(array, side, max(least, most)) for array, least in self._arrays]


def _entries(box: Box) -> list[int]:
    return [entry.id for entry in box.entries]


def _cells(shape: tuple[int, ...], side: int, most: int) -> int:
    rows, columns = (1, 1, *shape)[-2:]
    return min(prod(shape[:-2]), most) * min(rows, side) * min(columns, side)


def pack(array: Array, side: int = 64, most: int = 48) -> Json:
    """An array of bounded size: shape, exact range, and cells as base64 of little-endian float32.

    Cells beyond what float32 holds well are divided by `scale`, a power of two.

    >>> pack(np.array([[1.0, 2.0]]))["data"]
    'AACAPwAAAEA='
    """
    shape = array.shape
    kept = None
    cells = array.reshape(prod(shape[:-2]), *(1, 1, *shape)[-2:])
    if len(cells) > most:  # first those that are not zero
        empty = ~cells.any(axis=(1, 2))
        kept = sorted(np.argsort(empty, kind="stable")[:most].tolist())
        cells = cells[kept]
    pool = [-(-n // side) or 1 for n in cells.shape[1:]]
    cells = pooled(cells, *pool).astype(np.float64)
    finite = array[np.isfinite(array)]
    ends = [0.0, 0.0]
    if finite.size:
        ends = [float(finite.min()) + 0.0, float(finite.max()) + 0.0]  # no -0
    size = max(map(abs, ends))
    scale = 1.0 if size == 0 or 1e-30 < size < 1e30 else 2.0 ** np.floor(np.log2(size))
    matrices, rows, columns = cells.shape
    return {
        "shape": list(shape),
        "matrices": matrices,
        "rows": rows,
        "columns": columns,
        "kept": kept,
        "ends": ends,
        "said": [words.digits(x, 3) for x in ends],
        "pool": pool,
        "scale": scale,
        "data": b64encode((cells / scale).astype("<f4").tobytes()).decode(),
    }
