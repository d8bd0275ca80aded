"""One annotated model of a record: the scope of each entry, what repeats, what it is called.

Every view reads a record through this. It holds no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from typing import Any

import numpy as np

from ..recording.checks import Checks
from ..recording.reach import SUMS, Path, gain
from ..recording.record import Edge, Entry
from ..recording.trace import TraceRecord
from .colors import Scale
from .fold import folded, parts
from .plain import one_line, sized

__all__ = ["STATES", "AnnotatedTrace", "Spread", "Strip", "largest", "ranged"]

# state: (glyph, what it means)
STATES = {
    "wrong": ("✗", "WRONG rule"),
    "ok": ("●", "ok"),
    "zero": ("○", "exactly zero"),
    "vanishing": ("▼", "vanishing"),
    "exploding": ("▲", "exploding"),
    "non-finite": ("‼", "NaN or infinite"),
    "cancels": ("○", "zero in theory"),
    "none": ("–", "no gradient"),
}
WORST_FIRST = ("wrong", "non-finite", "exploding", "vanishing", "zero", "ok", "cancels", "none")


class AnnotatedTrace:
    """A record with scopes, repeated blocks, states and labels.

    Args: fold: find repeated blocks.  against: a Comparison with another run, for its ratios.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.trace() as t, mg.scope("squares"):
    ...     mg.sum(x * x).backward()
    >>> model = AnnotatedTrace(t)
    >>> model.place[0], model.label(t[1]), model.spread(t.entries).text
    ('squares', 'multiply', '1.0 to 3.2')
    """

    def __init__(self, trace: TraceRecord, *, fold: bool = True, against: Any = None) -> None:
        trace.analyze()
        self.trace = trace
        self.against = against
        self.fold = folded(trace, fold)
        self.place = self.fold.place

    @cached_property
    def checks(self) -> Checks:
        return self.trace.checked()

    def scope_of(self, entry: Entry) -> str:
        """The scope of an entry as pictures name it; of a folded one as the program does."""
        return entry.scope if self.fold.numbers(entry.id) else self.place[entry.id]

    def path_of(self, entry: Entry) -> str:
        """The path of an entry with the scope that pictures name, of a leaf that of its use."""
        use = None if entry.op else self.trace.first_use(entry)
        user = entry if use is None else self.trace[use.target]
        scope = self.scope_of(user) if user.scope == entry.scope else entry.scope
        return f"{scope}/{entry.label}" if scope else entry.label

    def size(self, entry: Entry) -> float | None:
        """The rms of an entry's gradient; where runs are compared, the ratio of both."""
        return entry.gradient_rms if self.against is None else self.against.ratio(entry)

    def sent(self, edge: Edge) -> float | None:
        """The rms of the gradient that a use sent back; where runs are compared, the ratio."""
        return edge.contribution_rms if self.against is None else self.against.ratio_along(edge)

    @cached_property
    def scale(self) -> Scale:
        """The colours' range that just holds the gradients of this run, or the ratios."""
        if self.against is not None:
            return Scale.either_way(row.ratio for row in self.against.rows)
        entries = (e for e in self.trace.entries if e.state not in ("cancels", "none"))
        return Scale.around(size for e in entries if (size := e.gradient_rms) is not None)

    @cached_property
    def path(self) -> Path | None:
        return self.trace.worst_path

    @cached_property
    def path_gains(self) -> dict[int, float]:
        """By how much the gradient changes along each edge of the worst path, by its id()."""
        path = self.path if self.against is None else None
        return dict(zip(map(id, path.edges), path.gains, strict=True)) if path else {}

    @property
    def flow(self) -> str:
        """Where the gradient shrinks or grows most, by how much, and by which op."""
        path = self.path
        if self.against is not None:
            return str(self.against.summary)
        if path is None or self.checks.broken:
            return ""
        factor = max(path.whole, 1 / path.whole)
        to = f"on the way to {one_line(self.path_of(path.entry), 60)}"
        if factor < 10:
            return f"the gradient keeps its size: ×{sized(path.whole)} at most, {to}"
        verb = "shrinks" if path.whole < 1 else "grows"
        copies, word = self._crossed(path)
        ratio = path.whole ** (1 / max(copies, 1))
        steady = 0.95 < ratio < 1.05
        said = copies > 2 and not steady
        each = f" ×{sized(ratio)} a {word}," if said else ""
        whole = f"{float(f'{factor:.2g}'):,.0f}" if factor < 1e9 else f"{factor:.1e}"
        op = path.op if path.op == SUMS else f"`{path.op}`"
        return f"the gradient {verb}{each} {whole} times in all, most by {op}: {to}"

    def _crossed(self, path: Path) -> tuple[int, str]:
        """Through how many copies of one block a path leads, and whether each is a layer or a step.

        A layer has parameters of its own, a step uses those of all steps.
        """
        crossed: dict[str, set[int]] = {}
        for edge in path.edges:
            for block, number in self.fold.numbers(edge.target).items():
                crossed.setdefault(block, set()).add(number)
        if not crossed:
            return 0, ""
        block = max(crossed, key=lambda block: len(crossed[block]))
        leaves = (e for e in self.trace.entries if e.learns or e.why == "frozen")
        own = any(block in self.fold.numbers(leaf.id) for leaf in leaves)
        return len(crossed[block]), "layer" if own else "step"

    def gain(self, entry: Entry) -> float | None:
        """The largest norm that a step sends back to a computed value, over the norm it got."""
        uses = self.trace.into(entry)
        sent = [e for e in uses if e.contribution is not None and self.trace[e.source].op]
        return max((gain(self.trace, edge) for edge in sent), default=None)

    def unresponsive(self, entry: Entry) -> str:
        """How many entries of a value hardly depend on its input, such as `3 of 64 units dead`."""
        call = self.trace.call_of(entry)
        if call is None or call.op.saturates is None or not isinstance(entry.value, np.ndarray):
            return ""
        words, function = call.op.saturates
        settings = dict(zip(call.op.settings, call.settings, strict=True))
        where = call.op.call_by_name(function, out=entry.value, **settings)
        return f"{int(where.sum())} of {where.size} {words}" if where.any() else ""

    def label(self, entry: Entry) -> str:
        """An entry's name; one drawn for several of different names has the first and the last."""
        copies = self.copies(entry.id)
        ends = dict.fromkeys(self._label_of(one) for one in (copies[0], copies[-1]))
        return " … ".join(ends)

    def _label_of(self, entry: Entry) -> str:
        """Its name or its op; an unnamed leaf has the name of the input that it is: mask, not a."""
        if entry.op is not None or entry.name is not None:
            return entry.label
        use = self.trace.first_use(entry)
        label = use.input if use is not None and len(use.input) > 2 else entry.kind
        return label + entry.which_value

    def copies(self, entry: int) -> list[Entry]:
        """An entry and its twins in the other copies of its block, in the order they were made."""
        return self._twins[self.fold.leader(entry)]

    @cached_property
    def _twins(self) -> dict[int, list[Entry]]:
        found: dict[int, list[Entry]] = {}
        for entry in self.trace.entries:
            found.setdefault(self.fold.leader(entry.id), []).append(entry)
        return found

    @cached_property
    def strips(self) -> dict[str, Strip]:
        """For the first scope of each fold, the gradient that each copy sends to the next."""
        fold, sizes = self.fold, dict[tuple[str, int], dict[int, float]]()
        edges = (e for e in self.trace.edges if e.contribution is not None)
        handed = {fold.leader(e.source) for e in edges if fold.apart(e.source, e.target)}
        for entry in self.trace.entries:
            size, lead = self.size(entry), fold.leader(entry.id)
            if size is None or entry.op is None:
                continue
            for scope, copy in fold.numbers(entry.id).items():
                copies = sizes.setdefault((scope, lead), {})
                copies[copy] = max(copies.get(copy, 0.0), size)
        found: dict[str, Strip] = {}
        for scope, times in fold.times.items():
            leads = [lead for block, lead in sizes if block == scope]
            if leads:
                lead = max(leads, key=lambda i: (i in handed, len(sizes[scope, i]), i))
                copies = sizes[scope, lead]
                names = fold.copies.get(scope) or [f"copy {n}" for n in range(times)]
                ends = (one_line(names[0], 24), one_line(names[-1], 24))
                label = self.label(self.trace.entries[lead])
                found[scope] = Strip(label, ends, [copies.get(n) for n in range(times)])
        return found

    def terms(self, entry: Entry) -> list[float]:
        """The sizes of the gradients that an entry's uses sent back; its own is their sum."""
        sizes = (edge.contribution_rms for edge in self.trace.uses(entry))
        return [size for size in sizes if size is not None]

    def spread(self, entries: Sequence[Entry], *, constants: bool = True) -> Spread:
        """The gradients of several entries that are drawn as one.

        Args: constants: count entries without a gradient too; a scope is judged without them.
        """
        counted = entries if constants else [e for e in entries if e.state != "none"] or entries
        present = {entry.state for entry in counted}
        worst = next(state for state in WORST_FIRST if state in present)
        odd = [e for e in counted if e.state == ("none" if worst == "ok" else worst)]
        note = ""
        if 0 < len(odd) < len(counted):
            glyph, meaning = STATES[odd[0].state]
            note = f"{glyph} {len(odd)} of {len(counted)} {meaning}: {self._which(odd[0], entries)}"
        sizes = [size for entry in entries if (size := self.size(entry)) is not None]
        return Spread(sizes, worst, note)

    def _which(self, entry: Entry, among: Sequence[Entry]) -> str:
        """An entry's path among several; among copies of one, its own scopes alone."""
        if len({self.fold.leader(one.id) for one in among}) > 1:
            return self.path_of(entry)
        other = among[-1] if entry is among[0] else among[0]
        own, others = parts(self.fold.path_of(entry.id)), parts(self.fold.path_of(other.id))
        return "/".join(a for a, b in zip(own, others, strict=False) if a != b)


# ---------------------------------------------------------------- several sizes in one


@dataclass(frozen=True)
class Spread:
    """The sizes of several gradients, the worst state among them, and a note where one differs."""

    sizes: list[float]
    state: str
    note: str  # such as "○ 1 of 20 exactly zero: step3"

    @property
    def text(self) -> str:
        return ranged(self.sizes)

    @property
    def largest(self) -> float:
        return largest(self.sizes)


@dataclass(frozen=True)
class Strip:
    """The size of one gradient in each copy of a fold, against time or depth."""

    label: str  # whose
    ends: tuple[str, str]  # what the first and the last copy are called
    sizes: list[float | None]

    @property
    def text(self) -> str:
        known = [size for size in self.sizes if size is not None]
        sizes = f"{sized(known[0])} → {sized(known[-1])}" if known else ""
        first, last = self.ends
        return f"gradient of {one_line(self.label, 40)}, {first} to {last}: {sizes}"


def ranged(sizes: Iterable[float]) -> str:
    """Sizes as one number, or from the least to the largest.

    >>> ranged([0.5, 0.5]), ranged([0.5, 2.0]), ranged([])
    ('0.50', '0.50 to 2.0', '')
    """
    texts = [sized(size) for size in sorted(sizes, key=_rank)]
    return " to ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else ""


def _rank(size: float) -> float:
    """For sorting: NaN and infinity are the largest."""
    return size if isfinite(size) else inf


def largest(sizes: Iterable[float]) -> float:
    return max(map(_rank, sizes), default=0.0)
