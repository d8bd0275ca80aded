"""The records of all ranks as one: each under its rank's name, joined where they sent to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any, TypeVar

from ..engine.op import Shaped, registry
from .record import Edge, Entry
from .trace import TraceRecord

__all__ = ["merge"]

AnyTrace = TypeVar("AnyTrace", bound=TraceRecord)


def _sections(trace: TraceRecord) -> list[list[int]]:
    """Entries up to each collective, which ends its section."""
    found: list[list[int]] = [[]]
    for entry in trace.entries:
        found[-1].append(entry.id)
        if _is_collective(entry):
            found.append([])
    return found


def merge(parts: list[AnyTrace]) -> AnyTrace:
    """One record of the records of all ranks, which are analyzed.

    Entries stand in scopes `rank 0`, `rank 1` …; an edge without a contribution joins what a rank
    gave a collective with that collective on the others, and says how many bytes went that way.
    """
    made = type(parts[0])()
    at: dict[tuple[int, int], int] = {}
    for sections in zip_longest(*map(_sections, parts), fillvalue=[]):
        for rank, section in enumerate(sections):
            for i in section:
                entry = parts[rank].entries[i]
                at[rank, i] = len(made.entries)
                scope = f"rank {rank}/{entry.scope}".rstrip("/")
                checks = {**entry.checks}
                first = None if entry.first_value is None else at[rank, entry.first_value]
                copy = replace(entry, id=at[rank, i], scope=scope, via=None, checks=checks)
                copy.first_value = first
                made.entries.append(copy)
    for rank, part in enumerate(parts):
        for i in range(len(part.entries)):
            entry = made.entries[at[rank, i]]
            entry.saved = [(n, None if k is None else at[rank, k]) for n, k in entry.saved]
        for edge in part.edges:
            ends = at[rank, edge.source], at[rank, edge.target]
            made.add_edge(Edge(*ends, edge.input, edge.contribution))
        made.roots += [at[rank, i] for i in part.roots]
        for e in part._expectations:
            symbols = {name: at[rank, i] for name, i in e.symbols.items()}
            scope, end = f"rank {rank}/{e.scope}", at[rank, e.last - 1] + 1
            moved = replace(e, symbols=symbols, scope=scope, first=at[rank, e.first], last=end)
            made._expectations.append(moved)
        for i, call in part._calls.items():
            if not call.op.effect:  # its ranks are not those of the whole record
                sources = [None if k is None else at[rank, k] for k in call.sources]
                made._calls[at[rank, i]] = replace(call, sources=sources)
    for edge in _joining(parts, at):
        made.add_edge(edge)
    made.forward_steps = _in_turn([at[r, i] for i in p.forward_steps] for r, p in enumerate(parts))
    made.backward_steps = _in_turn(
        [at[r, i] for i in p.backward_steps] for r, p in enumerate(parts)
    )
    return made


def _joining(parts: list[AnyTrace], at: dict[tuple[int, int], int]) -> Iterator[Edge]:
    """From what each rank gave a collective to that collective on the other ranks."""
    own = [[e for e in part.entries if _is_collective(e)] for part in parts]
    into = [{edge.target: edge.source for edge in part.edges} for part in parts]
    for calls in zip(*own, strict=False):
        for s, sender in enumerate(calls):
            source = into[s].get(sender.id)
            for r, receiver in enumerate(calls):
                if source is not None and r != s:
                    given = parts[s].entries[source]
                    op: Any = registry[sender.op or ""]
                    forms = (Shaped(e.shape, given.value.dtype) for e in (given, sender))
                    forward, back = op.count_bytes(*forms, len(parts))
                    way = f"{forward:,} bytes" if forward else f"{back:,} bytes back"
                    ends = at[s, source], at[r, receiver.id]
                    yield Edge(*ends, f"x of rank {s}", crosses=way)


def _is_collective(entry: Entry) -> bool:
    return hasattr(registry.get(entry.op or ""), "count_bytes")


def _in_turn(steps: Iterable[list[int]]) -> list[int]:
    """The first step of each rank, then the second of each …"""
    return [i for i in chain.from_iterable(zip_longest(*steps)) if i is not None]
