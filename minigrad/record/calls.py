"""Calls: what the scopes of one run are called, and which of them are of one object."""

from __future__ import annotations

from typing import Any

from ..engine.context import ScopeCall

__all__ = ["RunCalls"]


class RunCalls:
    """The calls of a run. Of objects that have one name within a scope, the second is `mlp (2)`.
    Attributes: homes: of each leaf that a module holds, by its id, the path of that module's calls.
    """

    def __init__(self) -> None:
        self._known: dict[ScopeCall, tuple[str, tuple[int, ...]]] = {}
        self._owners: dict[tuple[str, str], list[int]] = {}
        self._held: list[Any] = []  # the modules, so that no id comes again
        self.homes: dict[int, str] = {}

    def of(self, call: ScopeCall) -> tuple[str, tuple[int, ...]]:
        """The path of a call, and a number for it and for each that it is within."""
        known = self._known.get(call)
        if known is None:
            if call.outer is None:
                known = "", ()
            else:
                path, numbers = self.of(call.outer)
                alike = self._owners.setdefault((path, call.name), [])
                module = None if call.owner is None else call.owner()
                owner = id(call.owner if module is None else module)
                alike += [owner] * (owner not in alike)
                number = alike.index(owner) + 1
                name = call.name if number == 1 else f"{call.name} ({number})"
                path = f"{path}/{name}" if path else name
                known = path, (*numbers, *[len(self._known)] * (name.count("/") + 1))
                if module is not None:
                    self._held.append(module)
                    for _, leaf in module.own_contents():
                        self.homes.setdefault(id(leaf), path)
            self._known[call] = known
        return known
