"""Calls: what the scopes of one run are called, and which of them are of one object."""

from __future__ import annotations

from typing import Any

from ..engine.context import ScopeCall
from .record import Record

__all__ = ["RunCalls", "mark_calls"]


class RunCalls:
    """The calls of a run. Of objects that have one name within a scope, the second is `mlp (2)`.

    Attributes:
        homes: of each leaf that a module holds, by its id, the path of that module's calls.
        buffers: ids of the leaves that a module holds and does not train.
    """

    def __init__(self) -> None:
        self._known: dict[ScopeCall, tuple[str, tuple[int, ...]]] = {}
        self._owners: dict[tuple[str, str], list[int]] = {}
        self._held: dict[int, Any] = {}  # the modules by their id, so that none comes again
        self.homes: dict[int, str] = {}
        self.buffers: set[int] = set()

    def of(self, call: ScopeCall) -> tuple[str, tuple[int, ...]]:
        """The path of a call, and a number for it and for each that it is within."""
        known = self._known.get(call)
        if known is None:
            known = self._known[call] = ("", ()) if call.outer is None else self._new(call)
        return known

    def forget(self) -> None:
        """Forget the calls, and not whose they were: a new step begins."""
        self._known.clear()

    def _new(self, call: ScopeCall) -> tuple[str, tuple[int, ...]]:
        assert call.outer is not None
        outer, numbers = self.of(call.outer)
        module = None if call.owner is None else call.owner()
        owner = id(call.owner if module is None else module)
        namesakes = self._owners.setdefault((outer, call.name), [])
        if owner not in namesakes:
            namesakes.append(owner)
        number = namesakes.index(owner) + 1
        name = call.name if number == 1 else f"{call.name} ({number})"
        path = f"{outer}/{name}" if outer else name
        if module is not None and owner not in self._held:
            self._held[owner] = module
            self._find_leaves(module, path)
        new = len(self._known)
        return path, (*numbers, *(new for _ in name.split("/")))

    def _find_leaves(self, module: Any, path: str) -> None:
        """Note where leaves are at home: in the innermost module that holds them."""
        parameters = {id(leaf) for _, leaf in module.named_parameters()}
        for _, leaf in module.named_parameters(buffers=True):
            self.homes[id(leaf)] = path
            if id(leaf) not in parameters:
                self.buffers.add(id(leaf))


def mark_calls(record: Record) -> None:
    """Mark calls of one name within a call: pool ·1, pool ·2. One that is alone has no mark."""
    numbers: dict[tuple[tuple[int, ...], str], dict[int, int]] = {}
    for calls, scope in record.scopes.items():
        for depth, name in enumerate(_names(scope)):
            alike = numbers.setdefault((calls[:depth], name), {})
            alike.setdefault(calls[depth], len(alike) + 1)
    for calls, scope in record.scopes.items():
        marked = []
        for depth, name in enumerate(_names(scope)):
            alike = numbers[calls[:depth], name]
            marked.append(f"{name} ·{alike[calls[depth]]}" if len(alike) > 1 else name)
        record.paths[calls] = "/".join(marked)
    for entry in record.entries:
        if entry.kind != "parameter":
            entry.scope = record.paths[entry.calls]


def _names(scope: str) -> list[str]:
    return scope.split("/") if scope else []
