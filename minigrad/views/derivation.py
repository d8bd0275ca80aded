"""The derivation: a record written out in Markdown, with LaTeX that GitHub renders.

A chapter a module, forward in the order of the run and backward against it.
Modules that are alike are written out once; a table gives the symbol and the gradient of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ..record.finish import finish
from ..record.fold import folded, is_within
from ..record.record import Edge, Entry, Record
from . import words
from .ledger import headline_lines
from .maths import portable
from .picture import asset

__all__ = ["derivation"]


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
    written = _Derivation(finish(record))
    body = [*written.forward(), *written.alike(), *written.backward()]
    return "\n\n".join([*written.opening(), *_notation("\n".join(body)), *body]) + "\n"


class _Derivation:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.fold = folded(record)
        drawn = (e for e in record.entries if e.id not in record.aside)
        self.shown = [e for e in drawn if self.fold.leader(e.id) == e.id]

    def ops(self, order: Iterable[int]) -> list[Entry]:
        """Ops in an order; of alike modules those of the first."""
        return [self.record.entries[i] for i in order if self.fold.leader(i) == i]

    def by_module(self, ops: Iterable[Entry]) -> Iterator[tuple[str, Iterator[Entry]]]:
        return groupby(ops, key=lambda op: self.fold.place[op.id])

    # ------------------------------------------------------------------ what is given

    def opening(self) -> Iterator[str]:
        record = self.record
        yield "# " + (_escaped(words.headline(record)) or "One forward pass")
        yield _escaped(words.summary(record)) + "."
        if verdicts := words.verdicts(record.checks):
            yield "\n".join(f"- {_escaped(verdict.signed)}" for verdict in verdicts)
        if sums := headline_lines(record):
            yield "\n".join(["```text", *sums, "```"])
        rows = []
        for e in self.shown:
            if not e.op and not e.number and e.copy_of is None:
                name = f"{self.fold.place[e.id]}/{e.label}".lstrip("/")
                gradient = ""
                if record.backward and (e.needs or e.kind == "parameter"):
                    gradient = f"{words.gradient(e)} {words.marks(e)} {words.remark(e)}"
                row = [_inline(e.symbol), _code(name), e.kind, words.shaped(e.shape)]
                rows.append([*row, _escaped(" ".join(gradient.split()))])
        heads = ["symbol", "name", "kind", "shape", "rms of its gradient"]
        yield from _table("## What is given", heads, rows)

    # ------------------------------------------------------------------ forward

    def forward(self) -> Iterator[str]:
        yield "## Forward"
        ops = self.ops(self.record.forward)
        written = [op for op in ops if op.equation and op.equation != op.symbol]
        for scope, group in self.by_module(written):
            inside = [*group]
            yield self._chapter(scope)
            yield from _aligned([_equation(e.symbol, e.equation, e) for e in inside], inside)

    def _chapter(self, scope: str) -> str:
        """The heading of a module, and how many are alike."""
        around = [block for block in self.fold.copies if is_within(scope, block)]
        names = [f"{self.fold.name(block)}, ×{len(self.fold.copies[block])}" for block in around]
        alike = f" ({_escaped('; '.join(names))}: written out for the first)" if names else ""
        return f"### {_code(scope)}{alike}" if scope else "### top level"

    def alike(self) -> Iterator[str]:
        """Of each outermost chain of alike modules: what stands where, with its gradient."""
        entries = self.record.entries
        fold = self.fold
        for block, names in fold.copies.items():
            if any(block.startswith(f"{outer}/") for outer in fold.copies):
                continue
            rows = []
            for entry in self.shown:
                if block == fold.copy_of(entry.id).block and not entry.number:
                    rows.append([_measured(entries[i]) for i in fold.twins(entry.id)])
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
            loss = record.entries[record.loss]
            yield from _aligned([_equation(loss.slope, "1", loss)])
        else:
            slopes = ", ".join(_inline(record.entries[i].slope) for i in record.roots)
            yield f"It begins with what `backward` was given: {slopes}."
        ops = self.ops(record.backward)
        last = {edge.source: edge for op in ops for edge in self._sent(op)}
        for scope, group in self.by_module(ops):
            yield f"### back through {_code(scope)}" if scope else "### back through the top level"
            for entry in group:
                yield from self._step(entry, last)

    def _sent(self, entry: Entry) -> list[Edge]:
        return [edge for edge in entry.takes if edge.equation]

    def _step(self, entry: Entry, last: dict[int, Edge]) -> Iterator[str]:
        """What one op sends back; and the sum, where that completes a gradient."""
        record = self.record
        lines = list[str]()
        sent = self._sent(entry)
        for edge in sent:
            source = record.entries[edge.source]
            whole = None if source.is_sum else source
            lines.append(_equation(record.part(edge), edge.equation, whole))
            uses = [use for use in source.uses if use.equation]
            if len(uses) > 1 and edge is last[source.id]:
                lines.append(_equation(source.slope, " + ".join(map(record.part, uses)), source))
        if lines:
            op = f" ({entry.op})" if entry.op != entry.label else ""
            says = " ".join(dict.fromkeys(edge.says for edge in sent if edge.says))
            mark = _escaped(f" {words.marks(entry)}".rstrip())
            yield f"**{_escaped(entry.label)}**{op}{mark}. {_escaped(says)}"
            yield from _aligned(lines, sent)


# ---------------------------------------------------------------- Markdown


def _equation(left: str, right: str, of: Entry | None = None) -> str:
    """An equation, and the space that its left side is in, if that is an entry's."""
    line = rf"{portable(left)} &= {portable(right)}"
    if of is None:
        return line
    axes = r" \times ".join(map(str, of.shape))
    return rf"{line} && \in \mathbb{{R}}" + (f"^{{{axes}}}" if axes else "")


def _aligned(lines: Sequence[str], of: Iterable[Entry | Edge] = ()) -> Iterator[str]:
    """Equations below one another, and what defines their signs."""
    body = " \\\\[4pt]\n".join(lines)
    yield f"```math\n\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n```"
    if signs := dict.fromkeys(_inline(sign) for each in of for sign in each.where):
        yield f"with {', '.join(signs)}."


def _inline(tex: str) -> str:
    """LaTeX within a line, in GitHub's form that no Markdown sign can disturb."""
    line = portable(" ".join(tex.replace("`", "'").split()))
    return f"$`{line.replace('|', chr(92) + 'vert ')}`$"


def _measured(entry: Entry) -> str:
    size = f" {words.gradient(entry)}" if entry.gradient is not None else ""
    return _inline(entry.symbol) + size


def _code(text: str) -> str:
    return f"`{words.one_line(text, 120).replace('`', chr(39)).replace('|', '¦')}`"


def _escaped(text: str) -> str:
    r"""A sentence as it reads, whatever signs of Markdown are in it.

    >>> print(_escaped("a*b <i>"))
    a\*b \<i>
    """
    return re.sub(r"([\\`*_\[\]<$#&|~])", r"\\\1", words.one_line(text))


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table with what stands above it, if it has rows."""
    if rows:
        yield title
        lines = [heads, ["---"] * len(heads), *rows]
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _notation(text: str) -> Iterator[str]:
    """What the signs mean that occur in a text: signs.txt says how it is written."""
    blocks = (block.split("\n", 1) for block in asset("signs.txt").strip().split("\n\n")[1:])
    meanings = [" ".join(meaning.split()) for sign, meaning in blocks if re.search(sign, text)]
    lines = [re.sub(r"\$(.*?)\$", lambda m: _inline(m[1]), f"- {line}") for line in meanings]
    if lines:
        yield "## Notation"
        yield "\n".join(lines)
