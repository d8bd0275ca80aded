"""A ledger in words: one entry of a gradient as lines that add up, and on to the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ..record.finish import finish, json_ready
from ..record.record import Record
from ..record.why import Ledger, Term, indexed
from . import words

__all__ = ["PrintedLedger", "headline_lines", "shown_ledgers"]

ROUNDING = 1e-9  # of the sizes of all terms: what is left over is no rounding beyond it
MOST_TERMS = 3  # in a row each
# Work is counted in entries of what ops made. A page's ledgers may take a part of what all would,
# about three times as long as the backward, or this much, if that is more.
SHARE_OF_ALL = 9  # so many times less
LEAST_WORK = 1 << 20
OVERHEAD = 1 << 12  # of each, which takes as long as so many entries


class PrintedLedger(Ledger):
    """A ledger; print it for lines that add up, followed to the loss. Attributes: see `Ledger`."""

    def __str__(self) -> str:
        lines = []
        most = MOST_TERMS
        for ledger in self.way():
            lines.append(title(ledger))
            lines += [f"  {words.digits(x)} {text}" for x, text, *_ in rows(ledger, most)]
            most = 1
        return "\n".join(lines)

    __repr__ = __str__


class LedgerRow(NamedTuple):
    """A number that is added up, what it is, and, of a term, which entry it came from."""

    value: float
    text: str
    made: int | None = None
    at: Sequence[int] = ()


def title(ledger: Ledger) -> str:
    name = indexed(words.one_line(ledger.entry.path), ledger.index)
    return f"∂L/∂{name} = {words.digits(ledger.total)}"


def rows(ledger: Ledger, most: int) -> Iterator[LedgerRow]:
    """The largest terms, the sum of the others, and what is no term; of a zero, what stopped it."""
    entry = ledger.entry
    record = ledger.record
    for term in ledger.terms[:most]:
        yield LedgerRow(term.value, _product(ledger, term), term.made.id, term.at)
    others = [term.value for term in ledger.terms[most:] if term.value]
    if others:
        yield LedgerRow(sum(others), f"by {words.plural(len(others), 'other')}")
    if entry.id in record.roots:
        yield LedgerRow(ledger.rest, "where backward began")
    elif abs(ledger.rest) > ROUNDING * sum(abs(term.value) for term in ledger.terms):
        yield LedgerRow(ledger.rest, "by a hook, or ops outside of the record")
    elif not ledger.terms and entry.value is not None:
        ops = ", ".join(record.entries[edge.target].op for edge in entry.uses)
        number = words.digits(entry.value[ledger.index])
        yield LedgerRow(0.0, f"as every factor is 0: {ops} of {number}")


def _product(ledger: Ledger, term: Term) -> str:
    """A term as the product that it is: which gradient, times what, by which op."""
    factor = words.digits(term.factor)
    made = term.made
    name = ledger.words(term)
    if name:
        factor += f" ({words.one_line(name)})"
    place = indexed(words.one_line(made.path), term.at)
    product = f"= {words.digits(term.gradient)} · {factor} by {made.op} to {place}"
    return f"{product} {words.marks(made)}".rstrip()


def headline_lines(record: Record) -> list[str]:
    """In three lines, the largest entry of the gradient that the headline speaks of."""
    way = finish(record).way
    return str(PrintedLedger(record, way.edges[-1].source)).splitlines()[:3] if way else []


def shown_ledgers(record: Record, wanted: Sequence[tuple[int, Any]] = ()) -> dict[str, Any]:
    """Ledgers for the page, by entry and index, and on along the largest terms.

    They are left out where they would be too much work, and where other ranks would have to run.
    Args: wanted: entries, and an index of each; unless given, the largest of each gradient.
    """

    def work(number: int) -> int:
        uses = record.entries[number].uses
        return OVERHEAD + sum(record.entries[use.target].size for use in uses)

    sent = [e for e in record.entries if e.gradient is not None and e.gradient.size]
    pending = [*wanted] or [(e.id, None) for e in sorted(sent, key=attrgetter("op"))]
    ledgers: dict[str, Any] = {}
    left = max(LEAST_WORK, sum(work(entry.id) for entry in sent) // SHARE_OF_ALL)
    for number, index in pending:  # the loop appends to it
        uses = record.entries[number].uses
        is_shared = any("ranks" in record.entries[use.target].settings for use in uses)
        if f"{number} {index}" in ledgers or work(number) > left or is_shared:
            continue
        left -= work(number)
        ledger = Ledger(record, number, index)
        key = f"{number} {[*ledger.index]}"
        shown = [json_ready(row) for row in rows(ledger, MOST_TERMS)]
        ledgers[key] = {"title": title(ledger), "rows": shown}
        if index is None:
            ledgers[str(number)] = key
        pending += [(term.made.id, [*term.at]) for term in ledger.terms[:1]]
    return ledgers
