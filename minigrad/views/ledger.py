"""A ledger in words: one entry of a gradient as lines that add up, and on to the loss."""

from __future__ import annotations

from collections.abc import Iterator

from ..record.why import Ledger, Term, indexed
from . import words

__all__ = ["PrintedLedger", "lines", "said"]

ROUNDING = 1e-9  # of the sizes of all terms: what is left over is no rounding beyond it


class PrintedLedger(Ledger):
    """A ledger; print it for lines that add up, followed to the loss. Attributes: see `Ledger`."""

    def __str__(self) -> str:
        first, *others = self.way()
        return "\n".join([*lines(first, 3), *(line for step in others for line in lines(step, 1))])

    __repr__ = __str__


def lines(ledger: Ledger, most: int) -> Iterator[str]:
    """The entry, its largest terms, the sum of the others, and what is no term of an op."""
    entry, record = ledger.entry, ledger.record
    name = indexed(words.one_line(entry.path), ledger.index)
    yield f"∂L/∂{name} = {words.digits(ledger.total)}"
    for term in ledger.terms[:most]:
        yield f"  {words.digits(term.value)} = {said(ledger, term)}"
    if others := [term.value for term in ledger.terms[most:] if term.value]:
        total = words.digits(sum(others))
        yield f"  {total} by {words.plural(len(others), 'other')}"
    if len(calls := ledger.by_call()) > 1:
        sums = [f"{words.digits(x)} by {words.one_line(name)}" for name, x in calls.items()]
        yield f"  in all, {', '.join(sums)}"
    began = entry.id in record.roots
    if abs(ledger.rest) > ROUNDING * sum(abs(term.value) for term in ledger.terms):
        source = "where backward began" if began else "by a hook, or ops outside of the record"
        yield f"  {words.digits(ledger.rest)} {source}"
    if not ledger.terms and not began and entry.value is not None:
        ops = ", ".join(record.entries[edge.target].op for edge in record.uses(entry))
        yield f"  every factor is 0: {ops} of {words.digits(entry.value[ledger.index])}"


def said(ledger: Ledger, term: Term) -> str:
    """A term as the product that it is: which gradient, times what, by which op."""
    factor = words.digits(term.factor)
    if name := ledger.words(term):
        factor += f" ({words.one_line(name)})"
    made, product = term.made, f"{words.digits(term.gradient)} · {factor}"
    place = indexed(words.one_line(made.path), term.at)
    return f"{product} by {made.op} to {place} {words.marks(made)}".rstrip()
