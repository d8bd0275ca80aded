"""Recorder: the listener that fills a record while ops run, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..engine.context import Listener, current, listen
from ..engine.graph import Node
from ..engine.op import Op
from ..engine.tensor import Tensor
from .formulas import declared_facts
from .record import Edge, Entry

__all__ = ["Expectation", "Recorder", "plus"]


@dataclass(slots=True)
class Expectation:
    """Hand-derived steps that a call of a layer must equal, and which entries are what in them."""

    steps: Callable[..., Any]
    symbols: dict[str, int]  # symbol -> entry
    plain: dict[str, Any]
    scope: str
    first: int  # entries made within the layer's call: from first, up to last
    last: int


class Recorder(Listener):
    """Hears of each op and of each backward step, and makes entries and edges of them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.edges: list[Edge] = []
        self.forward_steps: list[int] = []
        self.backward_steps: list[int] = []
        self.roots: list[int] = []
        self._expectations: list[Expectation] = []
        self._ids: dict[Any, int] = {}  # Node, or id() of a leaf or an array
        self._owners: list[Any] = []  # one for each entry, alive so that no id() comes again
        self._by_data: dict[int, int] = {}
        self._given: dict[int, Any] = {}  # what layers were handed, alive too
        self._arrays: list[Any] = []  # alive for the same reason
        self._into: dict[int, list[Edge]] = {}
        self._from: dict[int, list[Edge]] = {}
        self._listening = listen(self)

    def __enter__(self) -> Self:
        self._listening.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listening.__exit__(*exception)
        self.close()

    def close(self) -> None:
        """The record is whole: let go of the run's tensors."""
        self._settle()
        self._ids, self._owners, self._by_data, self._arrays = {}, [], {}, []
        self._given = {}

    def into(self, entry: Entry) -> list[Edge]:
        """What an op used, in the order of its inputs."""
        return self._into.get(entry.id, [])

    def uses(self, entry: Entry) -> list[Edge]:
        """Where an entry was used, in order."""
        return self._from.get(entry.id, [])

    # ------------------------------------------------------------------ entries and edges

    def _settle(self) -> None:
        """Names may be given after an op ran: read them again while the tensors live."""
        for entry, owner in zip(self.entries, self._owners, strict=False):
            name = getattr(owner, "name", None)
            entry.name = name or entry.name

    def _entry(self, owner: Any, **facts: Any) -> Entry:
        """A new entry, made for `owner`: a Node, a Tensor without one, or an array."""
        entry = Entry(id=len(self.entries), **facts)
        self.entries.append(entry)
        self._owners.append(owner)
        self._ids[owner if isinstance(owner, Node) else id(owner)] = entry.id
        return entry

    def _edge(self, source: int, target: int, name: str) -> None:
        edge = Edge(source, target, name)
        self.edges.append(edge)
        self._into.setdefault(target, []).append(edge)
        self._from.setdefault(source, []).append(edge)

    def _find(self, value: Any) -> int | None:
        key = value.node if isinstance(value, Tensor) and value.node is not None else id(value)
        return self._ids.get(key)

    def _leaf(self, value: Any, scope: str) -> int:
        """The entry of an input: known, or made on its first use."""
        known = self._find(value)
        if known is not None:
            return known
        is_tensor = isinstance(value, Tensor)
        array = value._data if is_tensor else value
        kind, why = "constant", "constant"
        if is_tensor:
            owned = value.requires_grad and id(value) not in self._given
            kind = "parameter" if owned else "input"
            why = "" if value.requires_grad else "frozen"
        origin = self._by_data.get(id(array)) if why == "frozen" else None
        if origin is not None:
            kind, why = "detached", "detached"
        node = value.node if is_tensor else None
        facts: dict[str, Any] = {
            "kind": kind,
            "op": None,
            "name": getattr(value, "name", None),
            "why": why,
        }
        if node is not None:  # computed before the trace began
            facts.update(kind="input", why="", place=str(node.place))
        self._by_data.setdefault(id(array), len(self.entries))
        copy = np.array(array)  # a leaf may be overwritten later, by an optimiser say
        facts.update(shape=copy.shape, dtype=str(copy.dtype), value=copy, needs=not why)
        entry = self._entry(node if node is not None else value, scope=scope, **facts)
        if origin is not None:
            self._edge(origin, entry.id, "detach")
        return entry.id

    # ------------------------------------------------------------------ what is heard

    def forward(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        settings: tuple[Any, ...],
        output: Any,
        seconds: float,
    ) -> None:
        scope, node = current().scope, output.node
        names = op.input_names(len(inputs))
        shown: dict[str, str] = {}
        sources: list[tuple[int, str]] = []
        for name, value in [
            *zip(names, inputs, strict=True),
            *zip(op.settings, settings, strict=True),
        ]:
            if isinstance(value, Tensor | np.ndarray):
                sources.append((self._leaf(value, scope), name))
            elif value is not None:
                shown[name] = repr(value) if not isinstance(value, np.random.Generator) else "rng"
        entry = self._entry(
            node if node is not None else output,
            kind="op",
            op=op.name,
            name=None,
            scope=scope,
            shape=output.shape,
            dtype=str(output.dtype),
            value=output._data if output._data.base is None else output._data.copy(),
            settings=shown,
            **declared_facts(op, inputs, settings, output, shown),
            seconds=seconds,
            needs=node is not None,
        )
        self._by_data.setdefault(id(output._data), entry.id)
        self._arrays.append(output._data)
        if node is not None:
            entry.place = str(node.place)
            self._note_saved(entry, node, dict((name, source) for source, name in sources))
        else:
            entry.why = "frozen" if current().recording else "not recorded"
        for source, name in sources:
            self._edge(source, entry.id, name)
        self.forward_steps.append(entry.id)

    @staticmethod
    def _note_saved(entry: Entry, node: Node, sources: dict[str, int]) -> None:
        for name, value in zip(node.plan.names, node.saved or (), strict=False):
            if isinstance(value, np.ndarray):
                entry.saved.append((name, entry.id if name == "out" else sources.get(name)))
                entry.saved_bytes += value.nbytes

    def backward(self, node: Node, gradient: Any, contributions: list[Any], seconds: float) -> None:
        known = self._ids.get(node)
        if known is None:
            return
        entry = self.entries[known]
        if all(edge.contribution is None for edge in self.uses(entry)) and known not in self.roots:
            self.roots.append(known)
        entry.gradient = plus(entry.gradient, gradient)
        entry.backward_seconds = (entry.backward_seconds or 0.0) + seconds
        self.backward_steps.append(known)
        names = node.op.input_names(len(node.plan.kinds))
        sent = zip(node.plan.needed, contributions, strict=True)
        parts = {names[i]: part for i, part in sent if part is not None}
        for edge in self.into(entry):
            if edge.input in parts:
                edge.contribution = plus(edge.contribution, parts[edge.input])

    def arrived(self, leaf: Any, gradient: Any) -> None:
        known = self._find(leaf)
        if known is not None:
            entry = self.entries[known]
            entry.gradient = plus(entry.gradient, gradient)

    def mark_input(self, tensor: Any) -> None:
        self._given[id(tensor)] = tensor
        known = self._find(tensor)
        if known is not None and self.entries[known].kind == "parameter":
            self.entries[known].kind = "input"

    def expect_gradients(self, steps: Callable[..., Any], symbols: dict[str, Any]) -> None:
        scope = current().scope
        first = max((e.last for e in self._expectations if e.scope == scope), default=0)
        self._settle()
        known = {e.name: e.id for e in self.entries[first:] if e.name and e.scope == scope}
        plain: dict[str, Any] = {}
        for symbol, value in symbols.items():
            found = known.get(value) if isinstance(value, str) else self._find(value)
            if found is not None:
                known[symbol] = found
            plain[symbol] = self._value(found, value)
        self._expectations.append(
            Expectation(steps, known, plain, scope, first=first, last=len(self.entries))
        )

    def _value(self, known: int | None, value: Any) -> Any:
        if known is not None:
            return self.entries[known].value
        return value._data if isinstance(value, Tensor) else value


def plus(total: Any, part: Any) -> Any:
    """A sum of gradients as an array of its own; the first part stays what it is."""
    array = np.asarray(part._data if isinstance(part, Tensor) else part)
    return array if total is None else np.asarray(total + array)
