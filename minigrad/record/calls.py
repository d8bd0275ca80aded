"""Calls: what the scopes of one run are called, and which of them are of one object."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from ..engine.context import ScopeCall
from .record import Record, Scopes

__all__ = ["RunCalls", "mark_calls", "set_updates_aside"]


class RunCall(NamedTuple):
    """A call of a run.

    path: the names of what it is within, and its own, without marks.
    numbers: one for each of these calls.
    marked: the path with a mark of each call, also of those that are alone.
    """

    path: str
    numbers: tuple[int, ...]
    marked: str


class RunCalls:
    """The calls of a run. Of objects that have one name within a scope, the second is `mlp (2)`.

    Attributes:
        scopes: by the numbers of each call, those of the one around it, its name, which it is.
        homes: of each leaf that a module holds, by its id, the path of that module's calls.
        classes: of each path of a module's calls, the module's class.
        buffers: ids of the leaves that a module holds and does not train.
    """

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}  # modules by id, and what they hold: no id comes again
        self.homes: dict[int, str] = {}
        self.classes: dict[str, str] = {}
        self.buffers: set[int] = set()
        self.begin()

    def begin(self) -> None:
        """A run begins; what modules hold is known from the one before."""
        self.scopes: Scopes = {}
        self._known: dict[ScopeCall, RunCall] = {}
        self._times: Counter[tuple[tuple[int, ...], str]] = Counter()
        self._owners: dict[tuple[str, str], list[int]] = {}

    def of(self, call: ScopeCall) -> RunCall:
        if call not in self._known:
            self._known[call] = self._new(call) if call.outer else RunCall("", (), "")
        return self._known[call]

    def _new(self, call: ScopeCall) -> RunCall:
        assert call.outer is not None
        outer, numbers, around = self.of(call.outer)
        module = None if call.owner is None else call.owner()
        owner = id(call.owner if module is None else module)
        namesakes = self._owners.setdefault((outer, call.name), [])
        if owner not in namesakes:
            namesakes.append(owner)
        number = namesakes.index(owner) + 1
        name = call.name if number == 1 else f"{call.name} ({number})"
        path = f"{outer}/{name}".lstrip("/")
        if module is not None and owner not in self._held:
            contents = dict(module.own_contents())
            self._held[owner] = module, contents
            self.classes[path] = type(module).__name__
            for leaf_name, leaf in contents.items():
                self.homes.setdefault(id(leaf), path)
                if leaf_name in module.buffers:
                    self.buffers.add(id(leaf))
        self._times[numbers, name] += 1
        time = self._times[numbers, name]
        own = numbers + (len(self._known),) * len(name.split("/"))
        self.scopes[own] = numbers, name, time
        return RunCall(path, own, f"{around}/{name} ·{time}".lstrip("/"))


def mark_calls(record: Record) -> None:
    """Mark calls of one name within a call: pool ·1, pool ·2. One that is alone has no mark."""
    several = {(around, name) for around, name, time in record.scopes.values() if time == 2}
    record.paths = {(): ""}
    for calls, (around, name, time) in record.scopes.items():
        own = f"{name} ·{time}" if (around, name) in several else name
        record.paths[calls] = f"{record.paths[around]}/{own}".lstrip("/")
    for entry in record.entries:
        if entry.kind not in ("parameter", "buffer"):
            entry.scope = record.paths[entry.calls]


def set_updates_aside(record: Record) -> None:
    """Leave out of the steps what was computed for a buffer alone, as BatchNorm's averages are."""

    if not record.written:
        return
    for entry in reversed(record.entries):
        targets = {edge.target for edge in entry.uses}
        is_used = entry.id in record.written or targets
        if not entry.needs and is_used and targets <= record.aside:
            record.aside.add(entry.id)
            if entry.op:
                entry.kind = "buffer update"
    record.forward = [i for i in record.forward if i not in record.aside]
    record.edges = [edge for edge in record.edges if edge.target not in record.aside]
    for entry in record.entries:
        entry.uses = [edge for edge in entry.uses if edge.target not in record.aside]
