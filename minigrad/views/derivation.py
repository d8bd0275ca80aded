"""The derivation: a record written out in Markdown, with LaTeX that GitHub renders.

A chapter a module, forward in the order of the run and backward against it. Modules that are alike
are written out once, and a table gives the symbol and the gradient of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from .. import saving
from ..record.finish import finish
from ..record.fold import folded
from ..record.record import Edge, Entry, Record
from . import words
from .ledger import headline_lines
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
    >>> r"\\frac{\\partial L}{\\partial x}" in derivation(t)
    True
    """
    made = _Derivation(finish(record))
    body = [*made.forward(), *made.alike(), *made.backward()]
    return "\n\n".join([*made.opening(), *_notation("\n".join(body)), *body]) + "\n"


class Equation(NamedTuple):
    """An equation, and the space that its left side is in."""

    left: str
    right: str
    space: str = ""


class _Derivation:
    def __init__(self, record: Record) -> None:
        self.record, self.fold = record, folded(record)
        drawn = (e for e in record.entries if e.id not in record.aside)
        self.shown = [e for e in drawn if self.fold.leader(e.id) == e.id]

    def path(self, entry: Entry) -> str:
        return f"{self.fold.place[entry.id]}/{entry.label}".lstrip("/")

    def steps(self, order: Iterable[int]) -> Iterator[tuple[str, Iterator[Entry]]]:
        """Ops in an order, by the module they are in; of alike modules the first."""
        ops = (self.record.entries[i] for i in order if self.fold.leader(i) == i)
        return groupby(ops, key=lambda entry: self.fold.place[entry.id])

    # ------------------------------------------------------------------ what is given

    def opening(self) -> Iterator[str]:
        record = self.record
        yield "# " + (_escaped(words.headline(record)) or "One forward pass")
        yield _escaped(words.summary(record)) + "."
        verdicts = [f"- {_escaped(one.signed)}" for one in words.verdicts(record.checks)]
        if verdicts:
            yield "\n".join(verdicts)
        if sums := headline_lines(record):
            yield "\n".join(["```text", *sums, "```"])
        rows = []
        for e in self.shown:
            if not e.op and not e.number and e.copy_of is None:
                row = [_inline(e.symbol), _code(self.path(e)), e.kind, words.shaped(e.shape)]
                told = [words.gradient(e), words.marks(e), words.remark(e)]
                asked = record.backward and (e.needs or e.kind == "parameter")
                rows.append([*row, _escaped(" ".join(filter(None, told))) if asked else ""])
        heads = ["symbol", "name", "kind", "shape", "rms of its gradient"]
        yield from _table("## What is given", heads, rows)

    # ------------------------------------------------------------------ forward

    def forward(self) -> Iterator[str]:
        yield "## Forward"
        for scope, group in self.steps(self.record.forward):
            told = [e for e in group if e.equation and e.equation != e.symbol]
            if told:
                yield self._chapter(scope)
                yield _aligned([Equation(e.symbol, e.equation, _space(e)) for e in told])
                yield from _where(told)

    def _chapter(self, scope: str) -> str:
        """The heading of a module, and how many are alike."""
        times = self.fold.times.items()
        names = [f"{self.fold.name(b)}, ×{n}" for b, n in times if f"{scope}/".startswith(f"{b}/")]
        alike = f" ({_escaped('; '.join(names))}: written out for the first)" if names else ""
        return f"### {_code(scope)}{alike}" if scope else "### top level"

    def alike(self) -> Iterator[str]:
        """Of each outermost chain of alike modules: what stands where, with its gradient."""
        entries, fold = self.record.entries, self.fold
        for block, names in fold.copies.items():
            if any(block.startswith(f"{outer}/") for outer in fold.copies):
                continue
            rows = []
            for entry in self.shown:
                if block in fold.numbers(entry.id) and not entry.number:
                    cells = [""] * len(names)
                    for twin in (entries[i] for i in fold.twins(entry.id)):
                        told = words.gradient(twin) if twin.gradient is not None else ""
                        cells[fold.numbers(twin.id)[block]] += f"{_inline(twin.symbol)} {told} "
                    rows.append([cell.strip() for cell in cells])
            title = f"### {_code(fold.name(block))}: {len(names)} times the same steps\n\n"
            title += "Written out is the first. What stands in each, with the rms of its gradient:"
            yield from _table(title, [*map(_code, names)], rows)

    # ------------------------------------------------------------------ backward

    def backward(self) -> Iterator[str]:
        record = self.record
        if not record.backward:
            return
        yield "## Backward"
        if record.loss is not None:
            yield "It begins at the loss:"
            yield _aligned([Equation(record.entries[record.loss].slope, "1", r"\mathbb{R}")])
        else:
            given = ", ".join(_inline(record.entries[i].slope) for i in record.roots)
            yield f"It begins with what `backward` was given: {given}."
        last = {
            edge.source: edge
            for _, group in self.steps(record.backward)
            for entry in group
            for edge in record.into(entry)
            if edge.equation
        }
        for scope, group in self.steps(record.backward):
            yield f"### back through {_code(scope)}" if scope else "### back through the top level"
            for entry in group:
                yield from self._step(entry, last)

    def _step(self, entry: Entry, last: dict[int, Edge]) -> Iterator[str]:
        """What one op sends back; and the sum, where that completes a gradient."""
        record, lines = self.record, list[Equation]()
        sent = [edge for edge in record.into(entry) if edge.equation]
        for edge in sent:
            source = record.entries[edge.source]
            space = "" if record.sums(source) else _space(source)
            lines.append(Equation(record.part(edge), edge.equation, space))
            uses = [use for use in record.uses(source) if use.equation]
            if len(uses) > 1 and edge is last[source.id]:
                total = " + ".join(map(record.part, uses))
                lines.append(Equation(source.slope, total, _space(source)))
        if lines:
            made = f" ({entry.op})" if entry.op != entry.label else ""
            says = " ".join(dict.fromkeys(edge.says for edge in sent if edge.says))
            mark = _escaped(f" {words.marks(entry)}".rstrip())
            yield f"**{_escaped(entry.label)}**{made}{mark}. {_escaped(says)}"
            yield _aligned(lines)
            yield from _where(sent)


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
    rows = [rf"{portable(one.left)} &= {portable(one.right)}" for one in lines]
    spaces = [rf" && \in {one.space}" if one.space else "" for one in lines]
    body = " \\\\[4pt]\n".join(map(str.__add__, rows, spaces))
    return f"```math\n\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n```"


def _where(told: Iterable[Entry | Edge]) -> Iterator[str]:
    found = dict.fromkeys(_inline(sign) for one in told for sign in one.where)
    if found:
        yield f"with {', '.join(found)}."


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table with what stands above it, if it has rows."""
    if rows:
        yield title
        lines = [heads, ["---"] * len(heads), *rows]
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _notation(text: str) -> Iterator[str]:
    """What the signs mean that occur in a text: signs.txt says how it is written."""
    blocks = (block.split("\n", 1) for block in asset("signs.txt").strip().split("\n\n")[1:])
    said = [sentence for pattern, sentence in blocks if re.search(pattern, text)]
    lines = [re.sub(r"\$(.*?)\$", lambda m: _inline(m[1]), one) for one in said]
    if lines:
        yield "## Notation"
        yield "\n".join(f"- {' '.join(line.split())}" for line in lines)
