"""Record: a forward pass and the last backward as plain data, which is all that views read.

A `Recorder` fills it while ops run, and holds the run's own objects only while it is open.
`finish` then finds, once, what the numbers mean: states, checks by hand, the way of the loss, and
formulas.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.context import ScopeCall, current
from ..engine.node import order
from ..engine.observer import Observer
from ..engine.tensor import Tensor, is_marked_parameter
from .analysis import add_checks, analyze, attentions, by_derivative
from .calls import RunCalls
from .data import (
    Array,
    AttentionWeights,
    Check,
    Checks,
    Edge,
    Entry,
    Expectation,
    Facts,
    RecordData,
    Way,
    measure,
    plain,
    rms,
    show,
)
from .fold import Fold, make_fold
from .formulas import write_formulas

if TYPE_CHECKING:
    from ..engine.node import Node
    from ..engine.op import Op

__all__ = [
    "AttentionWeights", "Check", "Checks", "Edge", "Entry", "Facts", "Record", "Recorder", "Way",
    "measure", "record_of", "rms", "show",
]  # fmt: skip

dtype_name = cache(attrgetter("name"))  # NumPy works it out anew each time


@dataclass(repr=False)
class Record(RecordData):
    """A forward pass and the last backward. It can be copied and pickled. See `RecordData`."""

    _finished: tuple[int, int, int] | None = None  # how much of it there was then

    def __getitem__(self, key: int | str) -> Entry:
        """An entry by its number, or the last one of a name, a path or the end of a path.

        Raises: KeyError, with the names there are.
        """
        if isinstance(key, int):
            return self.entries[key]
        self.finish()
        for entry in reversed(self.entries):
            if key in (entry.name, entry.path) or entry.path.endswith(f"/{key}"):
                return entry
        names = dict.fromkeys(entry.path for entry in self.entries if entry.name)
        raise KeyError(f"no entry named {key!r}; names: {', '.join(names)}")

    # ------------------------------------------------------------------ what the numbers mean

    def finish(self) -> Record:
        """Find what the numbers mean and write the formulas, once for each state of the record."""
        state = len(self.entries), len(self.backward), self.backwards
        if self._finished != state:
            self._finished = state
            self.__dict__.pop("folded", None)
            analyze(self)
            write_formulas(self)
        return self

    def check(self, ops: bool = False) -> Checks:
        """The checks by hand; with `ops`, also each backward step beside a numeric derivative."""
        self.finish()
        if ops and not self.checks.of("by derivative"):
            add_checks(self, by_derivative(self))
        return self.checks

    @cached_property
    def folded(self) -> Fold:
        """Where each entry is drawn, alike modules of a chain once."""
        return make_fold(self.finish())

    def attention(self, tokens: Any = None) -> list[AttentionWeights]:
        """The attention weights of the run, their positions named: see `position_names`."""
        return attentions(self.finish(), tokens)

    # ------------------------------------------------------------------ as data

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled: places as text."""
        for entry in self.entries:
            entry.made_at = entry.place
        return {name: x for name, x in vars(self).items() if name != "folded"}

    def to_dict(self) -> dict[str, Any]:
        """All of it but arrays and times, ready for JSON; the same for the same program.

        >>> import json, minigrad as mg
        >>> x = mg.tensor([3.0, 4.0], requires_grad=True)
        >>> with mg.trace() as t:
        ...     mg.sum(x * x).backward()
        >>> record = json.loads(json.dumps(t.to_dict(), allow_nan=False))
        >>> record["entries"][0]["gradient"]["high"], record["forward"], record["backward"]
        (8.0, [1, 2], [2, 1])
        """
        self.finish()
        names = "forward backward roots backwards more_in_grad loss notes zeros asked".split()
        at = {id(edge): i for i, edge in enumerate(self.edges)}
        way = None if self.way is None else [at[id(edge)] for edge in self.way.edges]
        entries = [
            plain(entry)
            | {"value": plain(entry.value_facts), "gradient": plain(entry.gradient_facts)}
            | {"path": entry.path, "place": entry.place, "ok": entry.ok}
            for entry in self.entries
        ]
        edges = [plain(edge) | {"contribution": plain(edge.facts)} for edge in self.edges]
        known = {name: getattr(self, name) for name in names}
        checks = plain(self.checks) | {"ok": self.checks.ok}
        return {
            "version": 2,
            **known,
            "entries": entries,
            "edges": edges,
            "way": way,
            "checks": checks,
        }


# ---------------------------------------------------------------- recording


class Recorder(Observer):
    """Fills `record`. Every op that runs while it observes is in it, and the last backward."""

    def __init__(self, record: Record | None = None) -> None:
        self.record = Record() if record is None else record
        self._ids: dict[int, int] = {}  # of a Node, a leaf, or a plain array: its entry
        self._held: list[Any] = []  # these, so that no id comes again
        self._given: set[int] = set()  # ids of memory that leaves lie in, which may be written to
        self._inputs: set[int] = set()  # ids of tensors that layers were called with
        self._calls = RunCalls()
        self._saved: set[int] = set()  # ids of memory that ops saved
        self._drawn: tuple[Any, ...] | None = None  # settings with generators, as they were before
        self._adds = False  # whether the backward that runs adds to `.grad`
        self._expected: Counter[str] = Counter()  # by scope, where its last call ended

    # ------------------------------------------------------------------ forward

    def before(self, op: Op, inputs: Any, settings: tuple[Any, ...]) -> None:
        """Copy a generator before it draws, so that the op can run again."""
        self._drawn = deepcopy(settings) if np.random.Generator in map(type, settings) else None

    def made(
        self, op: Op, inputs: Any, settings: tuple[Any, ...], result: Tensor, seconds: float
    ) -> None:
        context, node = current(), result.node
        names = [f"{op.inputs[0]}{i}" for i in range(len(inputs))] if op.variadic else op.inputs
        sources: dict[str, int] = {}
        numbers: dict[str, Any] = {}
        for name, x in zip(names, inputs, strict=True):
            if x.__class__ is Tensor or x.__class__ is np.ndarray:
                sources[name] = self.source(x, context.call)
            else:
                numbers[name] = x
        for name, x in zip(op.settings, settings, strict=True):
            if x.__class__ is np.ndarray:
                sources[name] = self.source(x, context.call)
        why = "no input requires a gradient" if context.recording else "not recorded"
        entry = self._entry(
            result if node is None else node,
            result._data,
            context.call,
            value=self._unshared(result._data),
            kind="op",
            op=op.name,
            settings=dict(zip(op.settings, self._drawn or settings, strict=True)),
            numbers=numbers,
            needs=node is not None,
            why="" if node is not None else why,
        )
        self._ids[id(result._data)] = entry.id
        self.record.forward.append(entry.id)
        self.record.add_edges(sources, entry.id)
        if node is not None:
            entry.made_at = node.place
            self._note_saved(entry, node)

    def _unshared(self, out: Array) -> Array:
        """A copy of what lies in the memory of a leaf, which may be written to."""
        if out.base is None or id(_memory(out)) not in self._given:
            return out
        self._held.append(out)
        return out.copy("K")

    def _entry(self, owner: Any, like: Array | Node, call: ScopeCall, **facts: Any) -> Entry:
        """A new entry, made for a Node, a Tensor without one, or an array."""
        scope, calls = self._calls.of(call)
        entry = Entry(
            len(self.record.entries),
            scope=facts.pop("scope", scope),
            calls=calls,
            shape=like.shape,
            dtype=dtype_name(like.dtype),
            **facts,
        )
        self.record.entries.append(entry)
        self.keep(owner, entry)
        return entry

    def keep(self, owner: Any, entry: Entry) -> None:
        self._ids[id(owner)] = entry.id
        self._held.append(owner)

    def source(self, x: Any, call: ScopeCall) -> int:
        """The entry of an input: known, or made on its first use."""
        is_tensor = x.__class__ is Tensor
        owner = x.node if is_tensor and x.node is not None else x
        known = self._ids.get(id(owner))
        if known is not None and (is_tensor or self._is_unchanged(x, known)):
            return known
        array = x._data if is_tensor else x
        origin = self._origin(array)
        if owner is not x:  # made before the record was opened
            facts = {"kind": "input", "needs": True, "made_at": owner.place}
        elif is_tensor and (x.requires_grad or origin is None):
            given = id(x) in self._inputs or not x.requires_grad
            kind = "parameter" if is_marked_parameter(x) else "input" if given else "leaf"
            facts = {"kind": kind, "needs": x.requires_grad}
            facts["why"] = "" if x.requires_grad else "frozen"
            if kind == "parameter":
                scope, _ = self._calls.of(call)  # where its module is called, or it is used
                facts["scope"] = self._calls.homes.get(id(x), scope)
        else:
            facts = {"kind": "constant", "why": "constant", "copy_of": origin}
        if facts["kind"] != "constant":
            facts["name"] = owner.name or ""
        self._given.add(id(_memory(array)))
        self._held.append(_memory(array))
        facts["value"] = array.copy("K")  # it may be written to later
        entry = self._entry(owner, array, call, **facts)
        if is_tensor:
            self.keep(array, entry)
        return entry.id

    def _is_unchanged(self, array: Array, known: int) -> bool:
        """Whether a plain array holds what it held at its first use; a batch's buffer does not."""
        entry = self.record.entries[known]
        if entry.kind != "constant" or entry.value is None:
            return True  # others are written to by assign_ alone
        return np.array_equal(entry.value, array, equal_nan=array.dtype.kind == "f")

    def _origin(self, array: Array) -> int | None:
        """The entry of which an array is a detached copy."""
        for one in (array, array.base):
            if id(one) in self._ids and getattr(one, "shape", None) == array.shape:
                return self._ids[id(one)]
        return None

    def _note_saved(self, entry: Entry, node: Node) -> None:
        """Count the bytes that an op saved, and no op before it."""
        for x in node.saved or ():
            if x.__class__ is np.ndarray and id(memory := _memory(x)) not in self._saved:
                self._saved.add(id(memory))
                self._held.append(memory)
                entry.saved_bytes += x.nbytes

    # ------------------------------------------------------------------ backward

    def _begin_backward(self, root: int | None, adds: bool) -> None:
        """Forget what an earlier backward brought."""
        record, self._adds = self.record, adds
        for entry in record.entries:
            if entry.gradient is not None:
                entry.gradient = entry._gradient_facts = None
                record.earlier.add(entry.id)
        for edge in record.edges:
            edge.contribution = edge._facts = None
        record.backward, record.more_in_grad = [], []
        record.roots = [] if root is None else [root]
        record.backwards += 1

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        known = self._ids.get(id(node))
        if known is None:
            return
        entry = self.record.entries[known]
        entry.gradient = _plain(gradient)
        if entry.op:
            self.record.backward.append(known)
        given = dict(zip(node.plan.names, parts, strict=True))
        for edge in self.record.into(known):
            part = given.get(edge.input)
            edge.contribution = None if part is None else _plain(part)

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        known = self._ids.get(id(leaf))
        if known is not None:
            self.record.entries[known].gradient = _plain(gradient)
            if self._adds and leaf.grad is not None and np.any(leaf.grad):
                self.record.more_in_grad.append(known)

    # ------------------------------------------------------------------ what is said

    def said(self, kind: str, **facts: Any) -> None:
        if kind in ("backward", "grad"):
            self._begin_backward(self.find(facts["output"]), adds=kind == "backward")
        elif kind == "write":
            self._forget(facts["tensor"])
        elif kind == "updated":
            for parameter in getattr(facts["owner"], "parameters", ()):
                self._forget(parameter)
        elif kind == "input":
            tensor = facts["tensor"]
            self._inputs.add(id(tensor))
            self._held.append(tensor)
            known = self.find(tensor)
            if known is not None and self.record.entries[known].kind == "leaf":
                self.record.entries[known].kind = "input"
        elif kind == "expect":
            self._expect(**facts)

    def _forget(self, tensor: Tensor) -> None:
        """What uses the tensor from here on, where it was written to, uses another leaf."""
        self._ids.pop(id(tensor), None)
        self._ids.pop(id(tensor._data), None)

    def _expect(self, steps: Any, symbols: dict[str, Any]) -> None:
        """A layer says which derived steps its call must equal."""
        (scope, _), entries = self._calls.of(current().call), self.record.entries
        first, self._expected[scope] = self._expected[scope], len(entries)
        known = {e.name: e.id for e in entries[first:] if e.name and e.scope == scope}
        plain: dict[str, Any] = {}
        for symbol, x in symbols.items():
            found = known.get(x) if isinstance(x, str) else self.find(x)
            if found is not None:
                known[symbol] = found
            plain[symbol] = getattr(x, "_data", x) if found is None else entries[found].value
        expected = Expectation(steps, known, plain, scope, first, len(entries))
        self.record.expectations.append(expected)

    def find(self, x: Any) -> int | None:
        """The entry of a Tensor, or of a Node."""
        owner = x.node if x.__class__ is Tensor and x.node is not None else x
        return self._ids.get(id(owner))

    def named(self, tensor: Tensor) -> None:
        known = self.find(tensor)
        if known is not None:
            self.record.entries[known].name = tensor.name or ""


def _plain(x: Any) -> Array:
    return x if x.__class__ is np.ndarray else np.asarray(getattr(x, "_data", x))


def _memory(array: Array) -> Any:
    """The array that owns the memory of this one."""
    while (base := array.base) is not None and isinstance(base, np.ndarray):
        array = base
    return array


def record_of(output: Tensor) -> Record:
    """The record of an existing graph, without values and gradients of what ops made."""
    recorder, around = Recorder(), current().call
    record = recorder.record
    for node in reversed(order([output.node] if output.node is not None else [])):
        around = node.call
        sources = [recorder.source(edge, around) for edge in node.edges]
        entry = recorder._entry(
            node,
            node,
            around,
            kind="op",
            op=node.op.name,
            name=node.name or "",
            settings=dict(zip(node.op.settings, node.settings, strict=True)),
            made_at=node.place,
            needs=True,
        )
        record.forward.append(entry.id)
        record.add_edges(dict(zip(node.plan.names, sources, strict=True)), entry.id)
    if not record.entries:
        recorder.source(output, around)
    record.entries[-1].value = output._data
    return record
