"""Recorder: the listener that fills a record while ops run, forward and backward."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from ..engine.context import Context, current
from ..engine.errors import ArgumentError, GradientError
from ..engine.listener import HandDerived, Listener, listen
from ..engine.op import Op, Shaped
from ..engine.tensor import Node, Tensor, TensorOrArray, is_marked_parameter
from ..engine.types import Arguments, Array, Gradient
from ..engine.writes import writes
from .checks import CheckResult
from .formulas import Invocation, array_of
from .memory import ForwardMemory
from .record import Edge, Entry, Facts, facts_of, measure
from .step_check import check_step, not_measured

__all__ = ["BackwardStep", "Expectation", "OpCall", "Recorder", "plus"]

dtype_name = cache(attrgetter("name"))  # NumPy works it out anew each time
EARLIER = "only in an earlier pass"  # why what a dropped sweep reached has no gradient

Owner: TypeAlias = "Node | TensorOrArray | None"  # what an entry was made for


@dataclass(slots=True)
class OpCall:
    """An op that ran, as a listener is notified of it."""

    op: Op
    inputs: Arguments
    settings: Arguments
    output: Tensor
    context: Context


class BackwardStep(NamedTuple):
    """A node's rules that ran."""

    node: Node
    gradient: TensorOrArray
    contributions: list[Gradient]


@dataclass(slots=True)
class Expectation:
    """Hand-derived steps that a call of a layer must equal, and which entries are what in them."""

    steps: HandDerived | str  # or what of the call they do not cover
    symbols: dict[str, int]  # symbol -> entry
    plain: dict[str, Any]
    scope: str
    first: int  # entries made within the layer's call: from first, up to last
    last: int


@dataclass(slots=True)
class _OpenRun:
    """What is known of the run's own objects until the record is closed.

    They are kept alive, so that no id() comes again.
    """

    ids: dict[Node | int, int] = field(default_factory=dict)  # by Node, or id() of a leaf or array
    owners: list[Owner] = field(default_factory=list)  # one for each entry
    values: dict[int, list[int]] = field(default_factory=dict)  # all entries of a written leaf
    sent: dict[int, Array] = field(default_factory=dict)  # what each of these got in this sweep
    by_data: dict[int, int] = field(default_factory=dict)
    arrays: list[TensorOrArray] = field(default_factory=list)
    layer_inputs: dict[int, Tensor] = field(default_factory=dict)
    contexts: dict[int, tuple[Context, tuple[int, ...]]] = field(default_factory=dict)
    interventions: set[Context] = field(default_factory=set)  # they compute what they put in


class Sweeps:
    """Which sweep reached an op last; one `backward()`, or one `mg.grad`, is one sweep.

    A sweep goes from later ops to earlier ones, and ends at leaves. Where a later sweep reaches an
    op again, the numbers of the earlier one are dropped, so that the record has those of one sweep;
    but a `backward()` adds to the `.grad` that earlier ones left. Where nothing is left of it, as
    after `zero_grad()`, the numbers of an earlier `backward()` are dropped too.

    Attributes: number: of the sweep.  leaves: by entry, what each sweep brought, by its number.
    """

    def __init__(self) -> None:
        self.number = 0
        self.leaves: dict[int, dict[int, Any]] = {}
        self._repeated: dict[int, set[int]] = {}  # by sweep, those in whose place it is
        self._writes = self._adds = False
        self._next = 0  # the next op of this sweep was made before this entry
        self._wrote: set[int] = set()  # the sweeps of a `backward()` that came to leaves
        self._of: dict[int, int] = {}  # by entry

    def begin(self, *, writes: bool, adds: bool) -> None:
        """The next sweep begins.

        Args: writes: what it finds goes to `.grad`.  adds: to what earlier ones left in some leaf.
        """
        self.number += 1
        self._writes, self._adds = writes, adds
        self._next = sys.maxsize

    def arrive(self, values: list[int], left: bool) -> set[int]:
        """Leaves come last in a sweep. Returns the numbers of earlier ones that are to be dropped.

        Args: values: the entries of one leaf.  left: it has what earlier ones left in its `.grad`.
        """
        self._next = 0
        if not self._writes:
            return set()
        self._wrote.add(self.number)
        brought = {number for value in values for number in self.leaves.get(value, ())}
        return set() if left else brought & self._wrote - {self.number}

    def reach(self, entry: int) -> int | None:
        """This sweep reaches an op; returns the number of an earlier one that is to be dropped."""
        if entry >= self._next:
            self.begin(writes=False, adds=False)
        self._next = entry
        before = self._of.get(entry, self.number)
        self._of[entry] = self.number
        adds = self._adds and not self._wrote.isdisjoint(self._with_repeated({before}))
        return None if adds or before == self.number else before

    def repeat(self, number: int) -> None:
        """This sweep gives an op the same gradient as an earlier one, whose place it takes."""
        self._repeated.setdefault(self.number, set()).update(self._with_repeated({number}))

    def _with_repeated(self, numbers: set[int]) -> set[int]:
        """Sweeps, and those in whose place they are."""
        return numbers.union(*(self._repeated.get(number, ()) for number in numbers))

    def drop(self, numbers: set[int]) -> tuple[set[int], set[int]]:
        """Sweeps that are dropped with these, and the ops that they reached last."""
        numbers = self._with_repeated(numbers)
        for repeated in self._repeated.values():
            repeated -= numbers
        return numbers, {entry for entry, of in self._of.items() if of in numbers}

    def replace(self, leaf: int, uses: list[Edge]) -> None:
        """Of what the sweeps that this one repeats brought to a leaf, keep what it did not reach.

        Args: uses: of the leaf.
        """
        brought = self.leaves.setdefault(leaf, {})
        earlier = self._repeated.get(self.number)
        if not earlier or earlier.isdisjoint(brought):
            return
        gone = earlier & brought.keys()
        for number in gone:
            del brought[number]
        for edge in uses:
            if edge.contribution is not None and self._of.get(edge.target) in earlier:
                brought[min(gone)] = plus(brought.get(min(gone)), edge.contribution)


class Recorder(Listener):
    """Makes entries and edges of each op and of each backward step that it is notified of.

    Args:
        check: "ops" compares each backward step, as it runs, with a numeric derivative of its op.
        keep: "summaries" keeps sizes and ranges of values and gradients in place of the arrays.
    Raises: ArgumentError for other values.
    """

    def __init__(self, *, check: str | None = None, keep: str = "arrays") -> None:
        if check not in (None, "ops") or keep not in ("arrays", "summaries"):
            raise ArgumentError(
                "trace(check=None or 'ops', keep='arrays' or 'summaries'): "
                f"got check={check!r}, keep={keep!r}"
            )
        self.keep, self.checks_ops = keep, check == "ops"
        self.takes_no_grad = True  # whether ops that run under `no_grad` are recorded too
        self.entries: list[Entry] = []
        self.edges: list[Edge] = []
        self.forward_steps: list[int] = []
        self.backward_steps: list[int] = []
        self.roots: list[int] = []
        self._expectations: list[Expectation] = []
        self._open = _OpenRun()
        self._into: dict[int, list[Edge]] = {}
        self._from: dict[int, list[Edge]] = {}
        self._calls: dict[int, Invocation] = {}
        self._replaced: set[str] = set()  # scopes whose hand-derived steps no longer hold
        self.memory = ForwardMemory()
        self._entered = Counter[object]()  # how often each scope was, within one call
        self._given_memory: set[int] = set()  # of leaves, which someone may overwrite
        self._overwritten: set[int] = set()  # memory that was
        self._written = writes.latest
        self._analyzed = (0, 0, 0)  # how many entries, backward steps and sweeps there were
        self._settings: Arguments = ()  # of the op that is about to run, if it draws
        self._sweeps = Sweeps()
        self.earlier: list[tuple[int, Array, dict[str, Array]]] = []  # steps of dropped sweeps
        self._listening = listen(self)
        self._entered_before = False

    def __enter__(self) -> Self:
        if self.entries or self._entered_before:
            raise GradientError(
                "with t: a trace records one run, and this one has; make another: mg.trace()"
            )
        self._entered_before = True
        self._listening.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listening.__exit__(*exception)
        self.close()

    def close(self) -> None:
        """The record is complete: drop the run's tensors."""
        self._settle()
        self._open = _OpenRun()
        if self.keep == "summaries":
            self._calls = {}

    def into(self, entry: Entry) -> list[Edge]:
        """What an op used, in the order of its inputs."""
        return self._into.get(entry.id, [])

    def sent(self, entry: Entry) -> dict[str, Array]:
        """The gradients that an op sent back, by input."""
        known = ((edge.input, edge.contribution) for edge in self.into(entry))
        return {name: part for name, part in known if part is not None}

    def uses(self, entry: Entry) -> list[Edge]:
        """Where an entry was used, in order."""
        return self._from.get(entry.id, [])

    def first_use(self, entry: Entry) -> Edge | None:
        """The first use by an op; a detached copy is no op."""
        return next((edge for edge in self.uses(entry) if self.entries[edge.target].op), None)

    def origin(self, entry: Entry) -> Entry:
        """The entry that an intervention replaced by this one; the entry itself if none did."""
        while entry.instead_of is not None:
            entry = self.entries[entry.instead_of]
        return entry

    # ------------------------------------------------------------------ entries and edges

    def _settle(self) -> None:
        """Update names and kinds, which a tensor may get after the op that used it."""
        for entry, owner in zip(self.entries, self._open.owners, strict=False):
            name = getattr(owner, "name", None)
            entry.name = name or entry.name
            entry.is_parameter = isinstance(owner, Tensor) and is_marked_parameter(owner)
            if entry.kind == "leaf" and entry.is_parameter:
                entry.kind = "parameter"
        last = dict.fromkeys(reversed(self.backward_steps))  # a step that ran twice stays once
        if len(last) < len(self.backward_steps):
            self.backward_steps = [*reversed(last)]

    def _entry(self, owner: Owner, **facts: Any) -> Entry:
        """A new entry, made for `owner`: a Node, a Tensor without one, or an array."""
        entry = Entry(id=len(self.entries), **facts)
        self.entries.append(entry)
        self._open.owners.append(owner)
        self._open.ids[owner if isinstance(owner, Node) else id(owner)] = entry.id
        return entry

    def add_edge(self, edge: Edge) -> None:
        self.edges.append(edge)
        self._into.setdefault(edge.target, []).append(edge)
        self._from.setdefault(edge.source, []).append(edge)

    def entry_of(self, value: object) -> Entry | None:
        """The entry of a Tensor of the open run; of a leaf that of its last value."""
        known = self._find(value)
        return None if known is None else self.entries[known]

    def _find(self, value: object) -> int | None:
        key = value.node if isinstance(value, Tensor) and value.node is not None else id(value)
        return self._open.ids.get(key)

    def _leaf(self, value: TensorOrArray, scope: str) -> int:
        """The entry of an input: known, or made on its first use."""
        known = self._find(value)
        if known is not None and not self._is_rewritten(value, known):
            return known
        array, owner = array_of(value), value
        origin: int | None = None
        facts: dict[str, Any] = {"kind": "constant", "why": "constant"}
        if isinstance(value, Tensor) and value.node is not None:  # made before the trace began
            owner = value.node
            facts = {"kind": "input", "made_at": owner.place}
        elif isinstance(value, Tensor) and value.requires_grad:
            leaf = "input" if id(value) in self._open.layer_inputs else "leaf"
            facts = {"kind": "parameter" if is_marked_parameter(value) else leaf}
        elif isinstance(value, Tensor):
            origin = self._origin(array, known, scope)
            facts = {"kind": "input", "why": "frozen"}
            if origin is not None:
                facts = {"kind": "detached", "why": "detached"}
        if self._open.by_data.get(id(array), known) == known:
            self._open.by_data[id(array)] = len(self.entries)
        self._given_memory.add(id(writes.owner(array)))
        entry = self._entry(
            owner,
            **facts,
            op=None,
            name=getattr(value, "name", None),
            scope=scope,
            shape=array.shape,
            dtype=dtype_name(array.dtype),
            value=self._kept(array),  # it may be overwritten later, by an optimizer say
            needs=not facts.get("why"),
        )
        if known is not None and isinstance(value, Tensor):
            values = self._open.values.setdefault(known, [known])
            values.append(entry.id)
            self._open.values[entry.id] = values
            entry.first_value, entry.value_number = values[0], len(values)
        if origin is not None:
            self.add_edge(Edge(origin, entry.id, "detach"))
        return entry.id

    def _origin(self, array: Array, known: int | None, scope: str) -> int | None:
        """The entry of which an array is a detached copy. Args: known: its own, if it has one."""
        origin = self._open.by_data.get(id(array))
        if origin is None or origin == known:
            return None
        owner = self._open.owners[origin]  # a leaf may have been written to since
        return self._leaf(owner, scope) if isinstance(owner, Tensor) else origin

    def _is_rewritten(self, value: TensorOrArray, known: int) -> bool:
        """Whether a leaf holds other numbers than at its first use, or has another dtype.

        So does a batch's buffer, and a parameter after an optimizer's step.
        """
        entry = self.entries[known]
        if isinstance(value, Tensor):
            value = value._data
            if entry.op is not None:
                return False
            if entry.dtype != dtype_name(value.dtype):
                return True
            if writes.latest == self._written or writes.when(value) <= self._written:
                return False
        held = entry.value
        if isinstance(held, np.ndarray):
            return not np.array_equal(held, value, equal_nan=value.dtype.kind == "f")
        return str(self._kept(value)) != str(held)

    def _kept(self, array: Array) -> Array | Facts | None:
        """What the record keeps of an array: itself, a copy if it may be overwritten, or facts."""
        if self.keep == "summaries":
            return measure(array) if array.dtype.kind in "fiub" else None
        return array.copy("K") if id(writes.owner(array)) in self._given_memory else array

    def _kept_setting(self, source: int | None, value: Any) -> Any:
        """A setting that stays as it is now, whatever is written to its arrays."""
        if source is not None and isinstance(value, np.ndarray):
            held = self.entries[source].value
            return held if isinstance(held, np.ndarray) else value
        if type(value) in (tuple, list) and any(isinstance(x, np.ndarray) for x in value):
            return type(value)(x.copy() if isinstance(x, np.ndarray) else x for x in value)
        return value

    def _calls_within(self, context: Context) -> tuple[int, ...]:
        """The number of the call of each scope; every `with` of a scope has its own context."""
        known = self._open.contexts.get(id(context))
        if known is not None:
            return known[1]
        found: tuple[int, ...] = ()
        outer = context.outer
        if outer is not None and context.scope:
            found = self._calls_within(outer)
            if context.scope != outer.scope:
                inner = len(context.scope.split("/"))
                within = outer.scope, found, context.scope
                found = (*(*found, *[0] * inner)[: inner - 1], self._entered[within])
                self._entered[within] += 1
        self._open.contexts[id(context)] = context, found
        return found

    def _arrays_of(self, inputs: Arguments, sources: list[int | None]) -> dict[int, Array]:
        """The inputs of an op of which the record holds no array, or one overwritten since."""
        plain = {i: _plain(x) for i, x in enumerate(inputs) if sources[i] is not None}
        if self.keep == "summaries":
            return plain if self.checks_ops else {}
        if writes.latest == self._written:
            return {}
        made = [None if source is None else self.entries[source] for source in sources]
        held = {i: e.value for i, e in enumerate(made) if e is not None and e.op is not None}
        return {i: plain[i].copy() for i in held if not np.array_equal(plain[i], held[i])}

    # ------------------------------------------------------------------ events

    def enter(self, op: Op, inputs: Arguments, settings: Arguments) -> None:
        """Copy a generator before it draws, so that the op can run again."""
        drawing = [isinstance(value, np.random.Generator) for value in settings]
        self._settings = deepcopy(settings) if any(drawing) else ()

    def replay(self, calls: Iterable[OpCall], backward: Iterable[BackwardStep]) -> None:
        """Record what another listener kept, while the arrays are as they were."""
        for call in calls:
            self._settings = ()
            self._record(call, 0.0)
        for node, gradient, contributions in backward:
            self.backward(node, gradient, contributions, 0.0)

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        context = current()
        if context.recording or self.takes_no_grad:
            self._record(OpCall(op, inputs, settings, output, context), seconds)

    def _record(self, called: OpCall, seconds: float) -> None:
        op, inputs = called.op, called.inputs
        settings, context = called.settings, called.context
        node = called.output.node
        out = called.output._data
        scope = context.scope
        sources = [
            self._leaf(value, scope) if isinstance(value, Tensor | np.ndarray) else None
            for value in inputs
        ]
        pairs = list(zip(inputs, sources, strict=True))
        forms = tuple([x if s is None else Shaped(x.shape, x.dtype) for x, s in pairs])
        form, arrays = Shaped(out.shape, out.dtype), self._arrays_of(inputs, sources)
        call = Invocation(op, forms, sources, self._settings or settings, form, arrays)
        entry = self._entry(
            node if node is not None else called.output,
            kind="op",
            op=op.name,
            name=None,
            scope=scope,
            shape=form.shape,
            dtype=dtype_name(form.dtype),
            value=self._kept(out),
            declared=call,
            seconds=seconds,
            needs=node is not None,
            calls=self._calls_within(context),
            inserted=context in self._open.interventions,
        )
        self._calls[entry.id] = call
        self._open.by_data.setdefault(id(out), entry.id)
        self._open.arrays.append(out)
        self.memory.step([_plain(x) for x, source in pairs if source is not None], out)
        names = dict(zip(op.input_names(len(inputs)), sources, strict=True))
        names |= {
            name: self._leaf(value, scope)
            for name, value in zip(op.settings, settings, strict=True)
            if isinstance(value, np.ndarray)
        }
        kept = zip(op.settings, call.settings, strict=True)
        call.settings = tuple(self._kept_setting(names.get(name), value) for name, value in kept)
        if node is not None:
            entry.made_at = node.place
            self._note_saved(entry, node, names)
        else:
            entry.why = "frozen" if context.recording else "not recorded"
        for name, source in names.items():
            if source is not None:
                self.add_edge(Edge(source, entry.id, name))
        self.forward_steps.append(entry.id)

    def _note_saved(self, entry: Entry, node: Node, sources: dict[str, int | None]) -> None:
        """Note what an op saved; bytes that an earlier op saved are counted there."""
        for name, value in zip(node.plan.saves, node.saved or (), strict=False):
            if isinstance(value, np.ndarray):
                source = entry.id if name == "out" else sources.get(name)
                entry.saved.append((name, source))
                entry.saved_bytes += self.memory.keep(value, own=source is None)

    def intercept_backward(self, output: Tensor, seed: TensorOrArray, retain: bool) -> bool:
        """A `backward()` begins: it adds to what earlier ones left in `.grad`."""
        self._open.sent.clear()
        self._sweeps.begin(writes=True, adds=any(map(self._has_gradient, self._sweeps.leaves)))
        return False

    def _has_gradient(self, leaf: int) -> bool:
        """Whether the `.grad` of a leaf still has what earlier sweeps left there, if only zeros."""
        gradient = getattr(self._open.owners[leaf], "grad", None)
        if gradient is None:
            return False
        return not self.entries[leaf].gradient_rms or bool(np.any(gradient))

    def _drop_sweeps(self, numbers: set[int], *reached_again: int) -> None:
        """Drop what earlier sweeps gave, for this one has reached an op or a leaf of theirs too."""
        numbers, gone = self._sweeps.drop(numbers)
        gone.update(reached_again)
        self.backward_steps = [i for i in self.backward_steps if i not in gone]
        self.roots = [i for i in self.roots if i not in gone]
        leaves = {leaf for leaf, brought in self._sweeps.leaves.items() if brought.keys() & numbers}
        for dropped in (self.entries[i] for i in sorted(gone)):
            if isinstance(dropped.gradient, np.ndarray):
                self.earlier.append((dropped.id, dropped.gradient, self.sent(dropped)))
            dropped.gradient, dropped.why = None, EARLIER
            for edge in self.into(dropped):
                if edge.contribution is not None and self.entries[edge.source].op is None:
                    leaves.add(edge.source)
                edge.contribution = None
        for leaf in (self.entries[i] for i in leaves):
            whole = all(edge.contribution is None for edge in self.uses(leaf))
            brought = self._sweeps.leaves.get(leaf.id, {})
            for number in [number for number in brought if whole or number in numbers]:
                del brought[number]
            leaf.gradient = self._total(brought)
            leaf.why = leaf.why if brought else EARLIER

    def _total(self, brought: dict[int, Any]) -> Any:
        """What sweeps brought to a leaf together; of summaries the last one's."""
        total: Any = None
        for part in brought.values():
            total = part if isinstance(part, Facts) else plus(total, part)
        return total

    def backward(
        self, node: Node, gradient: TensorOrArray, contributions: list[Gradient], seconds: float
    ) -> None:
        known = self._open.ids.get(node)
        self.memory.over = True
        if known is None:
            return
        entry = self.entries[known]
        earlier = self._sweeps.reach(known)
        again = earlier is not None and _is_same(entry.gradient, _plain(gradient))
        if earlier is not None and again:
            self._sweeps.repeat(earlier)
        elif earlier is not None:
            self._drop_sweeps({earlier}, known)
        if all(edge.contribution is None for edge in self.uses(entry)) and known not in self.roots:
            self.roots.append(known)
        entry.why = ""
        entry.backward_seconds = (entry.backward_seconds or 0.0) + seconds
        self.backward_steps.append(known)
        names = node.op.input_names(len(node.plan.kinds))
        sent = zip(node.plan.needed, contributions, strict=True)
        parts = {names[i]: _plain(part) for i, part in sent if part is not None}
        self._note_fault(entry, node)
        if node.after:
            entry.note(not_measured(entry, "a hook may have changed its gradients"))
            self._calls.pop(known, None)
        elif self.checks_ops:
            entry.note(self._checked_step(entry, _plain(gradient), parts))
        if not again:
            entry.gradient = self._sum(entry.gradient, gradient)
        for edge in self.into(entry):
            if edge.input in parts:
                before = None if again else edge.contribution
                edge.contribution = self._sum(before, parts[edge.input])
                if edge.source in self._open.values:
                    total = self._open.sent.get(edge.source)
                    self._open.sent[edge.source] = plus(total, parts[edge.input])

    def _note_fault(self, entry: Entry, node: Node) -> None:
        """Note if a plain array that the rules of an op take was written to after it ran."""
        call, taken = self.call_of(entry), {*node.plan.saves, *node.op.settings}
        if call is None or (self.keep == "summaries" and not self.checks_ops):
            return
        for edge in self.into(entry):
            owner = self._open.owners[edge.source]
            if edge.input in taken and isinstance(owner, np.ndarray):
                if self._is_rewritten(owner, edge.source):
                    call.fault = f"took {edge.input}, which was written to after"
                    return

    def context_resumed(self, context: Context, made: Context) -> None:
        """Ops that run in `context` belong to the calls in which `made` was."""
        self._open.contexts[id(context)] = context, self._calls_within(made)
        self._open.interventions.add(context)

    def tensor_replaced(self, tensor: Tensor, new: Tensor) -> None:
        """The new tensor has the other's name and place from here on."""
        before, known = self._find(tensor), self._open.ids[new.node or id(new)]
        self.entries[known].instead_of = before
        if before is not None:
            self._open.owners[before] = self.entries[before].name = None
            self._replaced.add(self.entries[before].scope)
        self._open.arrays.append(tensor)
        self._open.ids[id(tensor)] = known
        self._open.owners[known] = tensor

    def argument_replaced(self) -> None:
        """An op of this scope got another argument than the one it was called with."""
        self._replaced.add(current().scope)

    def memory_overwritten(self, array: Array) -> None:
        """Copy what the record holds of this memory; from here on, copies are kept."""
        memory = writes.owner(array)
        if id(memory) in self._overwritten:
            return
        self._overwritten.add(id(memory))
        self._given_memory.add(id(memory))
        for entry in self.entries:
            if isinstance(entry.value, np.ndarray) and writes.owner(entry.value) is memory:
                entry.value = entry.value.copy("K")

    def call_of(self, entry: Entry) -> Invocation | None:
        """What can run an op of the record again, if that was kept."""
        return self._calls.get(entry.id)

    def inputs_of(self, call: Invocation) -> list[Any]:  # arrays, and plain values
        """An op's inputs, as they were when it ran."""
        held = zip(call.inputs, call.sources, strict=True)
        kept = [x if k is None else self.entries[k].value for x, k in held]
        return [call.arrays.get(i, x) for i, x in enumerate(kept)]

    def _checked_step(
        self, entry: Entry, gradient: object, sent: dict[str, Array]
    ) -> CheckResult | None:
        """A step compared with its kernel; None where that was not kept."""
        call = self.call_of(entry)
        if call is None or not isinstance(gradient, np.ndarray):
            return None
        found = check_step(entry, call, tuple(self.inputs_of(call)), gradient, sent)
        return replace(found, fault=call.fault) if found.ok is False else found

    def _sum(self, total: Array | None, part: Gradient) -> Array | Facts:
        """The sum that is kept of a gradient; of summaries the last part."""
        if self.keep == "summaries":
            return facts_of(_plain(part))
        return plus(total, part)

    def arrived(self, leaf: Tensor, gradient: TensorOrArray) -> None:
        known = self._find(leaf)
        if known is None:
            return
        values = self._open.values.get(known, [known])
        reached = (value for value in values if value in self._sweeps.leaves)
        left = leaf.grad is not None and any(map(self._has_gradient, reached))
        if earlier := self._sweeps.arrive(values, left):
            self._drop_sweeps(earlier)
        sent = {value: self._open.sent.pop(value) for value in values if value in self._open.sent}
        parts = sent if len(sent) > 1 else {next(iter(sent), known): gradient}
        for value, part in parts.items():
            self._sweeps.replace(value, self.uses(self.entries[value]))
            brought = self._sweeps.leaves[value]
            before = brought.get(self._sweeps.number)
            brought[self._sweeps.number] = self._sum(before, part)
            entry = self.entries[value]
            entry.gradient, entry.why = self._total(brought), ""
            if not entry.needs:  # it was frozen at its first use
                given = id(leaf) in self._open.layer_inputs
                entry.kind, entry.needs = "input" if given else "leaf", True

    def mark_input(self, tensor: Tensor) -> None:
        self._open.layer_inputs[id(tensor)] = tensor
        known = self._find(tensor)
        if known is not None and self.entries[known].kind == "leaf":
            self.entries[known].kind = "input"

    def expect_gradients(self, steps: HandDerived | str, symbols: dict[str, object]) -> None:
        scope = current().scope
        if self.keep == "summaries" or scope in self._replaced:  # a formula needs arrays
            return
        first = max((e.last for e in self._expectations if e.scope == scope), default=0)
        self._settle()
        known = {e.name: e.id for e in self.entries[first:] if e.name and e.scope == scope}
        plain = {}
        for symbol, value in symbols.items():
            found = known.get(value) if isinstance(value, str) else self._find(value)
            if found is not None:
                known[symbol] = found
            plain[symbol] = array_of(value) if found is None else self.entries[found].value
        first = known.pop("first", first)
        self._expectations.append(
            Expectation(steps, known, plain, scope, first=first, last=len(self.entries))
        )


def _is_same(known: object, gradient: Array) -> bool:
    """Whether a gradient of the same output was recorded, with respect to other inputs."""
    return isinstance(known, np.ndarray) and np.array_equal(known, gradient, equal_nan=True)


def _plain(value: object) -> Array:
    return np.asarray(array_of(value))


def plus(total: Array | None, part: Gradient) -> Array:
    """A sum of gradients as an array of its own; the first part stays what it is."""
    array = _plain(part)
    return array if total is None else np.asarray(total + array)
