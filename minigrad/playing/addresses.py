"""Paths of a record's entries, as `mg.replace` understands them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..engine.errors import ArgumentError
from ..paths import matches
from ..recording.record import Entry
from ..recording.trace import TraceRecord

__all__ = [
    "Address",
    "address_of",
    "address_of_argument",
    "addresses_of_uses",
    "addresses_to_set",
    "in_place_of",
    "keys_of",
    "label_of",
]


@dataclass(frozen=True)
class Address:
    """The arguments of `mg.replace` that say what is meant."""

    path: str
    call: int | None = None
    of: str | None = None

    def options(self) -> dict[str, str | int]:
        """Those beside the path, where they are needed."""
        return {name: x for name, x in (("of", self.of), ("call", self.call)) if x is not None}


def keys_of(trace: TraceRecord) -> dict[int, tuple[str, int]]:
    """A key for each entry that finds it in another run: its path, and which of that path it is.

    A replacement has the key of the value that it replaced. A value without a name has the path of
    the op and the argument that use it.
    """
    seen, found = Counter[str](), dict[int, tuple[str, int]]()
    gone = {entry.instead_of for entry in trace.entries}
    for entry in trace.entries:
        path = _path_of(trace, entry)
        if (entry.op is None and not entry.name) or (entry.inserted and entry.instead_of is None):
            uses = [(trace.entries[edge.target], edge.input) for edge in trace.uses(entry)]
            named = [f"{_path_of(trace, op)}({name})" for op, name in uses if not op.inserted]
            path = named[0] if named else f"{path} of an intervention"
        elif entry.id in gone:
            path = f"{path} before an intervention"
        found[entry.id] = path, seen[path]
        seen[path] += 1
    return found


def label_of(trace: TraceRecord, entry: Entry) -> str:
    """What an entry is called on the page and in the list of changes."""
    own = trace.origin(entry)
    use = trace.first_use(own)
    if own.op is None and not own.name and use is not None:  # by what takes it
        return f"{use.input} of {trace.entries[use.target].label}"
    return entry.name or own.name or own.label


def _path_of(trace: TraceRecord, entry: Entry) -> str:
    own = trace.origin(entry)
    name = entry.name or own.name or own.op or ""
    return f"{own.scope}/{name}" if own.scope else name


def _own_values(trace: TraceRecord) -> list[Entry]:
    """What the function made and named leaves, in place of which nothing else was put."""
    gone = {entry.instead_of for entry in trace.entries}
    return [
        entry
        for entry in trace.entries
        if entry.id not in gone
        and entry.value_number == 1
        and (entry.instead_of is not None or not entry.inserted)
        and (entry.op is not None or (entry.name and (entry.learns or entry.kind == "input")))
    ]


def _first_use(trace: TraceRecord, entry: Entry) -> tuple[float, float, int]:
    """When `mg.replace` replaces a value: at its first use, or at the end."""
    use = trace.first_use(entry)
    if use is None:
        return float("inf"), 0, entry.id
    inputs = [edge.source for edge in trace.into(trace.entries[use.target])]
    return use.target, inputs.index(entry.id), entry.id


def _address(paths: dict[int, str], number: int, of: str | None = None) -> Address:
    """The address of one of these entries, anchored at the outermost scope if another ends like it.

    Args: paths: in the order in which `mg.replace` numbers their calls.
    """
    path = paths[number]
    alike = [one for one, other in paths.items() if other == path]
    call = alike.index(number) if len(alike) > 1 else None
    anchored = any(other != path and matches(path, other) for other in paths.values())
    return Address(f"/{path}" if anchored else path, call, of)


def _put_there(entry: Entry) -> ArgumentError:
    said = (
        f"{entry.label} was put there by a change: undo that one, or change what the function made"
    )
    return ArgumentError(said)


def in_place_of(trace: TraceRecord, entry: Entry) -> Entry:
    """What the changes so far put in an entry's place; the entry itself if nothing."""
    instead = {other.instead_of: other for other in trace.entries}
    while entry.id in instead:
        entry = instead[entry.id]
    return entry


def address_of(trace: TraceRecord, entry: Entry) -> Address:
    """The address of a value, or of what was put in its place.

    Raises: ArgumentError for a leaf without a name, or what a change computes on the way.
    """
    if entry.op is None and not entry.name:
        raise ArgumentError(
            f"{entry.label} has no name, so no change can say what it is of: write "
            'mg.tensor(..., name="...")'
        )
    entry = in_place_of(trace, trace.entries[entry.leaf])
    if entry.inserted and entry.instead_of is None:
        raise _put_there(entry)
    values = sorted(_own_values(trace), key=lambda value: _first_use(trace, value))
    return _address({value.id: _path_of(trace, value) for value in values}, entry.id)


def address_of_argument(trace: TraceRecord, op: Entry, name: str) -> Address:
    """The address of one argument of an op, an input or a setting.

    Raises: ArgumentError for an op that a change put there.
    """
    if op.inserted:
        raise _put_there(op)
    ran = [trace.entries[i] for i in trace.forward_steps]
    paths = {one.id: f"{one.scope}/{one.op}".lstrip("/") for one in ran if not one.inserted}
    return _address(paths, op.id, name)


def addresses_to_set(trace: TraceRecord, entry: Entry) -> list[Address]:
    """What is to be replaced to change an entry: itself, or every use of a constant."""
    put_in_a_use = entry.inserted and entry.instead_of is None
    named = entry.name and entry.kind == "input"
    if not put_in_a_use and (entry.op is not None or named or entry.learns):
        return [address_of(trace, entry)]
    return addresses_of_uses(trace, entry)


def addresses_of_uses(trace: TraceRecord, entry: Entry) -> list[Address]:
    """Each use of an entry by an op that the function called."""
    uses = [edge for edge in trace.uses(entry) if edge.input != "detach"]
    found = [
        address_of_argument(trace, trace.entries[edge.target], edge.input)
        for edge in uses
        if not trace.entries[edge.target].inserted
    ]
    if not found:
        raise ArgumentError(f"{entry.label} is used by no op that the function called")
    return found
