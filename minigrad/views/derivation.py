"""The derivation: a record written out in Markdown, with LaTeX that GitHub renders.

A chapter a module, forward in the order of the run and backward against it. Modules that are alike
are written out once, and a table gives the symbol and the gradient of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from .. import saving
from ..record.record import Edge, Entry, Record
from . import words
from .maths import portable
from .picture import asset

__all__ = ["derivation", "write"]


def write(record: Record, path: str | Path) -> Path:
    """Write the derivation of a record to a file, whole or not at all."""
    return saving.write(path, derivation(record))


def derivation(record: Record) -> str:
    """The derivation of a record as Markdown; the same program gives the same text.

    A ✓ or ✗ is a difference that was measured in this run; what was not measured has neither.

    >>> import minigrad as mg
    >>> x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> r"\\frac{\\partial L}{\\partial x}" in derivation(t.record)
    True
    """
    made = _Derivation(record.finish())
    body = [*made.forward(), *made.alike(), *made.backward(), *made.results()]
    return "\n\n".join([*made.opening(), *_notation("\n".join(body)), *body]) + "\n"


class Equation(NamedTuple):
    """An equation, and the space that its left side is in."""

    left: str
    right: str
    space: str = ""


class _Derivation:
    def __init__(self, record: Record) -> None:
        self.record, self.fold = record, record.folded
        self.shown = {e.id for e in record.entries if self.fold.leader(e.id) == e.id}

    # ------------------------------------------------------------------ what is given

    def opening(self) -> Iterator[str]:
        record = self.record
        yield "# " + (_escaped(words.headline(record)) or "One forward pass")
        yield _escaped(words.summary(record)) + "."
        signs = {True: "✓", False: "✗", None: "–"}
        verdicts = words.verdicts(record.checks)
        if verdicts:
            yield "\n".join(f"- {signs[v.ok]} {_escaped(v.said)}" for v in verdicts)
        leaves = [
            e
            for e in record.entries
            if not e.op and not e.number and e.copy_of is None and e.id in self.shown
        ]
        if leaves:
            yield "## What is given"
            rows = [
                [_inline(e.symbol), _code(self.path(e)), e.kind, words.shaped(e.shape)]
                for e in leaves
            ]
            yield _table(["symbol", "name", "kind", "shape"], rows)

    def path(self, entry: Entry) -> str:
        return "/".join(filter(None, [self.fold.place[entry.id], entry.label]))

    # ------------------------------------------------------------------ forward

    def forward(self) -> Iterator[str]:
        yield "## Forward"
        ops = [self.record.entries[i] for i in self.record.forward if i in self.shown]
        for scope, group in groupby(ops, key=lambda entry: self.fold.place[entry.id]):
            lines, where = [], list[str]()
            for entry in group:
                if entry.equation and entry.equation != entry.symbol:
                    lines.append(Equation(entry.symbol, entry.equation, _space(entry)))
                    where += entry.where
            if lines:
                yield self._chapter(scope)
                yield _aligned(lines)
                yield from _where(where)

    def _chapter(self, scope: str) -> str:
        """The heading of a module, and how many are alike."""
        if not scope:
            return "### top level"
        blocks = [
            s
            for s in (scope[: m.start()] for m in re.finditer(r"/|$", scope))
            if s in self.fold.times
        ]
        names = [f"{self.fold.name(block)}, ×{self.fold.times[block]}" for block in blocks]
        return (
            f"### {_code(scope)}"
            + f" ({_escaped('; '.join(names))}: written out for the first)" * bool(names)
        )

    # ------------------------------------------------------------------ alike modules

    def alike(self) -> Iterator[str]:
        """Of each outermost chain of alike modules: what stands where, with its gradient."""
        outer = [
            block
            for block in self.fold.times
            if not any(block != b and block.startswith(f"{b}/") for b in self.fold.times)
        ]
        for block in outer:
            names = self.fold.copies[block]
            rows = []
            for entry in self.record.entries:
                if (
                    entry.id in self.shown
                    and block in self.fold.numbers(entry.id)
                    and not entry.number
                ):
                    cells = [""] * len(names)
                    for twin in (self.record.entries[i] for i in self.fold.twins(entry.id)):
                        told = words.gradient(twin) if twin.gradient is not None else ""
                        cells[self.fold.numbers(twin.id)[block]] += (
                            f"{_inline(twin.symbol)} {told} "
                        )
                    rows.append([cell.strip() for cell in cells])
            if rows:
                yield f"### {_code(self.fold.name(block))}: {len(names)} times the same steps"
                yield "Written out is the first. What stands in each, with the rms of its gradient:"
                yield _table([_code(name) for name in names], rows)

    # ------------------------------------------------------------------ backward

    def backward(self) -> Iterator[str]:
        record = self.record
        order = [i for i in (record.backward or self._order()) if i in self.shown]
        if not order:
            return
        yield "## Backward" + ("" if record.backward else ", as it would run")
        roots = [record.entries[i] for i in (record.roots or order[:1])]
        seeds = [
            Equation(root.slope, "1", _space(root)) for root in roots if root.id == record.loss
        ]
        if seeds:
            yield "It begins at the loss:"
            yield _aligned(seeds)
        elif record.backward:
            yield (
                "It begins with what `backward` was given: "
                + ", ".join(_inline(root.slope) for root in roots)
                + "."
            )
        for scope, group in groupby(order, key=lambda i: self.fold.place[i]):
            yield f"### back through {_code(scope)}" if scope else "### back through the top level"
            for i in group:
                yield from self._step(record.entries[i])

    def _order(self) -> list[int]:
        """The ops that backward would go through."""
        reached, found = set[int](), list[int]()
        for i in reversed(self.record.forward):
            if self.record.entries[i].needs and (not found or i in reached):
                found.append(i)
                reached |= {edge.source for edge in self.record.into(i)}
        return found

    @staticmethod
    def _live(edge: Edge) -> bool:
        return bool(edge.equation)

    def _step(self, entry: Entry) -> Iterator[str]:
        """What one op sends back; and the sum, where that completes a gradient."""
        record, says = self.record, dict[str, None]()
        lines, where = list[Equation](), list[str]()
        for edge in record.into(entry):
            if not self._live(edge):
                continue
            source = record.entries[edge.source]
            lines.append(
                Equation(
                    record.part(edge), edge.equation, "" if record.sums(source) else _space(source)
                )
            )
            where += edge.where
            says |= {edge.says: None} if edge.says else {}
            uses = [use for use in record.uses(source) if self._live(use)]
            shown = [use for use in uses if use.target in self.shown]
            if len(uses) > 1 and edge is self._last(shown):
                parts = list(dict.fromkeys(record.part(use) for use in uses))
                lines.append(Equation(source.slope, " + ".join(parts), _space(source)))
        if lines:
            yield (
                f"**{_escaped(entry.label)}**"
                + (f" ({entry.op})" if entry.op != entry.label else "")
                + _mark(entry)
                + ". "
                + _escaped(" ".join(says))
            )
            yield _aligned(lines)
            yield from _where(where)

    def _last(self, uses: Sequence[object]) -> object:
        """The use whose op backward comes to last."""
        when = {
            target: number for number, target in enumerate(self.record.backward or self._order())
        }
        return max(uses, key=lambda use: when.get(getattr(use, "target", -1), -1), default=None)

    # ------------------------------------------------------------------ numbers

    def results(self) -> Iterator[str]:
        """The gradients of the leaves in numbers."""
        leaves = [
            e
            for e in self.record.entries
            if not e.op and (e.needs or e.kind == "parameter") and e.id in self.shown
        ]
        if leaves and self.record.backward:
            yield "## Gradients of this run"
            rows = []
            for entry in leaves:
                note = (
                    entry.why
                    if entry.state == "zero in theory"
                    else ""
                    if entry.state == "ok"
                    else words.STATES[entry.state][1]
                )
                rows.append(
                    [
                        _inline(entry.slope),
                        _code(self.path(entry)),
                        words.gradient(entry),
                        _mark(entry).strip(),
                        _escaped(note),
                    ]
                )
            yield _table(["gradient", "of", "rms", "", ""], rows)


def _mark(entry: Entry) -> str:
    said = words.marks(entry)
    return f" {_escaped(said)}" if said else ""


def _space(entry: Entry) -> str:
    axes = r" \times ".join(map(str, entry.shape))
    return rf"\mathbb{{R}}^{{{axes}}}" if axes else r"\mathbb{R}"


# ---------------------------------------------------------------- Markdown


def _inline(tex: str) -> str:
    """LaTeX within a line, in GitHub's form that no Markdown sign can disturb."""
    plain = portable(" ".join(tex.replace("`", "'").split()))
    return f"$`{plain.replace('|', chr(92) + 'vert ')}`$"


def _code(text: str) -> str:
    return f"`{words.one_line(text, 120).replace('`', chr(39)).replace('|', '¦')}`"


def _escaped(text: str) -> str:
    r"""A sentence as it reads, whatever signs of Markdown are in it.

    >>> print(_escaped("a*b <i>"))
    a\*b \<i>
    """
    return re.sub(r"([\\`*_\[\]<$#&|~])", r"\\\1", words.one_line(text))


def _aligned(lines: Sequence[Equation]) -> str:
    """Equations below one another, and the space of each left side."""
    rows = [(portable(one.left), portable(one.right), one.space) for one in lines]
    if len(rows) == 1:
        left, right, space = rows[0]
        return f"```math\n{left} = {right}" + (rf" \quad \in {space}" if space else "") + "\n```"
    body = " \\\\[4pt]\n".join(rf"{a} &= {b}" + (rf" && \in {c}" if c else "") for a, b, c in rows)
    return f"```math\n\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n```"


def _where(signs: Iterable[str]) -> Iterator[str]:
    found = [_inline(sign) for sign in dict.fromkeys(signs)]
    if found:
        yield f"with {', '.join(found)}."


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@cache
def _signs() -> list[tuple[str, str]]:
    """A pattern and a sentence for each sign that may occur: signs.txt says how it is written."""
    blocks = [block.split("\n", 1) for block in asset("signs.txt").strip().split("\n\n")[1:]]
    return [(pattern, " ".join(sentence.split())) for pattern, sentence in blocks]


def _notation(text: str) -> list[str]:
    """What the signs mean that occur in a text; nothing if none does."""
    said = [sentence for pattern, sentence in _signs() if re.search(pattern, text)]
    lines = ["- " + re.sub(r"\$(.*?)\$", lambda m: _inline(m[1]), sentence) for sentence in said]
    return ["## Notation", "\n".join(lines)] if lines else []
