"""Recorder: fills a record while ops run, and holds the run's own objects only while it is open.

`made` adds an entry for an op that ran, and `source` one for each leaf that it took; `sent` and
`arrived` add gradients; `said` is what layers, leaves and optimizers tell of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.backward import order
from ..engine.context import Context, ContextChange, ScopeCall, current
from ..engine.errors import FreedGraphError
from ..engine.observer import Observer
from ..engine.op import array_of, owner_of
from ..engine.tensor import Tensor, is_marked_parameter
from .calls import RunCalls
from .record import Array, Entry, Expectation, Record

if TYPE_CHECKING:
    from ..engine.node import Node
    from ..engine.op import Op

__all__ = ["ObservedBy", "Recorder", "record_graph"]

dtype_name = cache(attrgetter("name"))  # NumPy works it out anew each time


class ObservedBy(ContextChange):
    """Within, these observe and no others; a list of them may change meanwhile."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.observers = observers

    def changed(self, now: Context) -> Context:
        return Context(now.recording, now.call, self.observers, now)


class Recorder(Observer):
    """Fills `record`. Every op that runs while it observes is in it, and the last backward."""

    def __init__(self, record: Record | None = None) -> None:
        self.record = record = Record() if record is None else record
        self._entries: dict[int, Entry] = {}  # by id of a Node, a leaf, or a plain array
        self._held: list[Any] = []  # these, so that no id comes again
        self._leaf_memory = set[int]()  # ids of memory of leaves, which may be written to
        self._inputs: set[int] = set()  # ids of tensors that layers were called with
        self._run_calls = RunCalls()
        record.scopes, record.classes = self._run_calls.scopes, self._run_calls.classes
        self._saved: set[int] = set()  # ids of memory that ops saved
        self._settings_before: tuple[Any, ...] | None = None  # as they were, with generators
        self._adds = False  # whether the backward that runs adds to `.grad`

    # ------------------------------------------------------------------ forward

    def before(self, op: Op, inputs: Any, settings: tuple[Any, ...]) -> None:
        """Copy a generator before it draws, so that the op can run again."""
        draws = np.random.Generator in map(type, settings)
        self._settings_before = deepcopy(settings) if draws else None

    def made(
        self, op: Op, inputs: Any, settings: tuple[Any, ...], result: Tensor, seconds: float
    ) -> None:
        context, node = current(), result.node
        names = [op.input_name(i) for i in range(len(inputs))]
        sources: dict[str, Entry] = {}
        numbers: dict[str, Any] = {}
        for name, x in zip((*names, *op.settings), (*inputs, *settings), strict=True):
            if x.__class__ is Tensor or x.__class__ is np.ndarray:
                sources[name] = self.source(x, context.call)
            elif name in names:
                numbers[name] = x
        entry = self._entry(
            node or result,
            result._data,
            context.call,
            value=self._unshared(result._data),
            kind="op",
            op=op.name,
            inputs=names,
            settings=dict(zip(op.settings, self._settings_before or settings, strict=True)),
            numbers=numbers,
            seconds=seconds,
        )
        self._entries[id(result._data)] = entry
        self.record.add_op(entry, sources)
        if node is None:
            entry.why = "no input requires a gradient" if context.recording else "not recorded"
        else:
            entry.needs, entry.made_at = True, node.place
            for x in node.saved or ():  # and no op before it did
                if x.__class__ is np.ndarray and id(memory := owner_of(x)) not in self._saved:
                    self._saved.add(id(memory))
                    self._held.append(memory)
                    entry.saved_bytes += x.nbytes

    def _unshared(self, out: Array) -> Array:
        """A copy of what lies in the memory of a leaf, which may be written to."""
        if out.base is None or id(owner_of(out)) not in self._leaf_memory:
            return out
        self._held.append(out)
        return out.copy("K")

    def _entry(self, owner: Any, like: Array | Node, call: ScopeCall, **facts: Any) -> Entry:
        """A new entry, made for a Node, a Tensor without one, or an array."""
        scope, calls, _ = self._run_calls.of(call)
        if facts["kind"] in ("parameter", "buffer"):
            scope = self._run_calls.homes.get(id(owner), scope)
            calls = ()
        entry = Entry(
            len(self.record.entries),
            scope=scope,
            calls=calls,
            shape=like.shape,
            dtype=dtype_name(like.dtype),
            **facts,
        )
        self.record.entries.append(entry)
        self._keep(owner, entry)
        return entry

    def _keep(self, owner: Any, entry: Entry) -> None:
        self._entries[id(owner)] = entry
        self._held.append(owner)

    def source(self, x: Any, call: ScopeCall) -> Entry:
        """The entry of an input: known, or made on its first use."""
        is_tensor = x.__class__ is Tensor
        known = self.find(x)
        if known and (is_tensor or _is_unchanged(known, x)):
            return known
        array = x._data if is_tensor else x
        origin = self._origin(array)
        kind = "constant"
        if is_tensor and (x.requires_grad or origin is None):
            kind = self._kind_of(x)
        is_made = is_tensor and x.node is not None  # before the record was opened
        owner = x.node if is_made else x
        self._leaf_memory.add(id(owner_of(array)))
        self._held.append(owner_of(array))
        value = array.copy("K")  # it may be written to later
        entry = self._entry(owner, array, call, kind=kind, value=value)
        entry.needs = is_tensor and x.requires_grad
        if kind == "constant":
            entry.why = kind
            entry.copy_of = origin.id if origin else None
        else:
            entry.name = owner.name or ""
            entry.why = "" if entry.needs else "frozen"
        if is_made:
            entry.made_at = owner.place
        if is_tensor:
            self._keep(array, entry)
        return entry

    def _kind_of(self, x: Tensor) -> str:
        if x.node is not None:
            return "input"
        if id(x) in self._run_calls.buffers:
            return "buffer"
        if is_marked_parameter(x):
            return "parameter"
        return "input" if id(x) in self._inputs or not x.requires_grad else "leaf"

    def _origin(self, array: Array) -> Entry | None:
        """The entry of which an array is a detached copy."""
        for memory in (array, array.base):
            entry = self._entries.get(id(memory))
            if entry and getattr(memory, "shape", None) == array.shape:
                return entry
        return None

    # ------------------------------------------------------------------ backward

    def _begin_backward(self, root: Entry | None, adds: bool) -> None:
        """Forget what an earlier backward brought."""
        record = self.record
        self._adds = adds
        for entry in record.entries:
            if entry.gradient is not None:
                entry.gradient = None
                record.earlier.add(entry.id)
        for edge in record.edges:
            edge.contribution = None
        record.backward = []
        record.more_in_grad = []
        record.roots = [root.id] if root else []
        record.backwards += 1

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        entry = self._entries.get(id(node))
        if entry is None:
            return
        entry.gradient = _as_array(gradient)
        if entry.op:
            self.record.backward.append(entry.id)
        entry.backward_seconds = seconds
        by_name = dict(zip(node.plan.names, parts, strict=True))
        for edge in entry.takes:
            part = by_name.get(edge.input)
            edge.contribution = None if part is None else _as_array(part)

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        entry = self._entries.get(id(leaf))
        if entry:
            entry.gradient = _as_array(gradient)
            if self._adds and leaf.grad is not None and np.any(leaf.grad):
                self.record.more_in_grad.append(entry.id)

    # ------------------------------------------------------------------ what is said

    def said(self, kind: str, **facts: Any) -> None:
        if kind in ("backward", "grad"):
            self._begin_backward(self.find(facts["output"]), adds=kind == "backward")
        elif kind == "write":
            entry = self._entries.get(id(facts["array"]))
            if entry and id(facts["tensor"]) in self._run_calls.buffers:
                self.record.written.add(entry.id)
            self._forget(facts["tensor"])
        elif kind == "updated":
            for parameter in getattr(facts["owner"], "parameters", ()):
                self._forget(parameter)
        elif kind == "input":
            tensor = facts["tensor"]
            self._inputs.add(id(tensor))
            self._held.append(tensor)
            entry = self.find(tensor)
            if entry and entry.kind == "leaf":
                entry.kind = "input"
        elif kind == "expect":
            self._expect(**facts)

    def _forget(self, tensor: Tensor) -> None:
        """What uses the tensor from here on, where it was written to, uses another leaf."""
        self._entries.pop(id(tensor), None)
        self._entries.pop(id(tensor._data), None)

    def _expect(self, steps: Any, symbols: dict[str, Any]) -> None:
        """A layer says which derived steps its call must equal."""
        calls = self._run_calls.of(current().call).numbers
        entries: dict[str, Entry] = {}
        for entry in reversed(self.record.entries):
            if entry.op and entry.calls[: len(calls)] != calls:
                break
            if entry.name and entry.calls == calls:
                entries.setdefault(entry.name, entry)
        values: dict[str, Any] = {}
        for symbol, x in symbols.items():
            known = entries.get(x) if isinstance(x, str) else self.find(x)
            if known:
                entries[symbol] = known
            values[symbol] = known.value if known else array_of(x)
        self.record.expectations.append(Expectation(steps, entries, values, calls))

    def find(self, x: Any) -> Entry | None:
        """The entry of a Tensor, or of a Node."""
        is_made = x.__class__ is Tensor and x.node is not None
        return self._entries.get(id(x.node if is_made else x))

    def named(self, tensor: Tensor) -> None:
        if entry := self.find(tensor):
            entry.name = tensor.name or ""


def _is_unchanged(entry: Entry, array: Array) -> bool:
    """Whether a plain array holds what it held at its first use; a batch's buffer does not."""
    if entry.kind != "constant" or entry.value is None:
        return True  # others are written to by assign_ alone
    return np.array_equal(entry.value, array, equal_nan=array.dtype.kind == "f")


def _as_array(x: Any) -> Array:
    return x if x.__class__ is np.ndarray else np.asarray(array_of(x))


def record_graph(output: Tensor, record: Record) -> None:
    """Record an existing graph, without values and gradients of what ops made.

    Raises: FreedGraphError after a backward, which keeps no inputs.
    """
    recorder = Recorder(record)
    for node in reversed(order(output.node or output)):
        if node.saved is None:
            raise FreedGraphError(
                f"draw(output): backward() freed the graph behind {node.path}; draw before it, or "
                "call backward(retain_graph=True)"
            )
        sources = [recorder.source(edge, node.call) for edge in node.edges]
        entry = recorder._entry(
            node,
            node,
            node.call,
            kind="op",
            op=node.op.name,
            inputs=node.op.inputs,
            name=node.name or "",
            settings=dict(zip(node.op.settings, node.settings, strict=True)),
            made_at=node.place,
            needs=True,
        )
        record.add_op(entry, dict(zip(node.plan.names, sources, strict=True)))
    if not record.entries:
        recorder.source(output, current().call)
    record.entries[-1].value = output._data
