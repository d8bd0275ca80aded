"""Trace: the neutral record of a forward and backward pass, which every view reads, and only that.

A record holds plain data: entries (leaves and ops, numbered in the order they were made), edges
between them, the order of the forward and of the backward steps, and the hand-derived steps that
layers said must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..engine.context import Listener, current, listen
from ..engine.errors import GradientError
from ..engine.graph import Node, order
from ..engine.op import Op
from ..engine.tensor import Tensor

if TYPE_CHECKING:
    from .record import Checks, Edge, Entry

__all__ = ["Trace"]


@dataclass(slots=True)
class _Expectation:
    steps: Callable[..., Any]
    symbols: dict[str, int]  # symbol -> entry
    plain: dict[str, Any]
    scope: str
    first: int  # entries made within the layer's call: from first, up to last
    last: int


class Trace(Listener):
    """Records what runs within `with mg.trace() as t:`, forward and backward.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> [(entry.label, entry.gradient_rms) for entry in t.entries if entry.kind == "op"]
    [('multiply', 1.0), ('sum', 1.0)]
    >>> t[0].gradient
    array([2., 4.])
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.edges: list[Edge] = []
        self.forward_steps: list[int] = []
        self.backward_steps: list[int] = []
        self.roots: list[int] = []
        self._expectations: list[_Expectation] = []
        self._ids: dict[Any, int] = {}  # Node, or id() of a leaf or an array
        self._owners: list[Any] = []  # one for each entry, alive so that no id() comes again
        self._by_data: dict[int, int] = {}
        self._given: dict[int, Any] = {}  # what layers were handed, alive too
        self._arrays: list[Any] = []  # alive for the same reason
        self._into: dict[int, list[Edge]] = {}
        self._from: dict[int, list[Edge]] = {}
        self._listening = listen(self)

    # ------------------------------------------------------------------ recording

    def __enter__(self) -> Self:
        self._listening.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listening.__exit__(*exception)
        self._settle()
        self._ids, self._owners, self._by_data, self._arrays = {}, [], {}, []
        self._given = {}

    def __getitem__(self, key: int | str) -> Entry:
        """An entry by its number, or the last one of a name or path."""
        if isinstance(key, int):
            return self.entries[key]
        self._settle()
        for entry in reversed(self.entries):
            if key in (entry.name, entry.path):
                return entry
        raise KeyError(
            f"no entry named {key!r}; names: {', '.join(e.path for e in self.entries if e.name)}"
        )

    def into(self, entry: Entry) -> list[Edge]:
        """What an op used, in the order of its inputs."""
        return self._into.get(entry.id, [])

    def uses(self, entry: Entry) -> list[Edge]:
        """Where an entry was used, in order."""
        return self._from.get(entry.id, [])

    def _settle(self) -> None:
        """Names may be given after an op ran: read them again while the tensors live."""
        for entry, owner in zip(self.entries, self._owners, strict=False):
            name = getattr(owner, "name", None)
            entry.name = name or entry.name

    def _entry(self, owner: Any, **facts: Any) -> Entry:
        """A new entry, made for `owner`: a Node, a Tensor without one, or an array."""
        from .record import Entry

        entry = Entry(id=len(self.entries), **facts)
        self.entries.append(entry)
        self._owners.append(owner)
        self._ids[owner if isinstance(owner, Node) else id(owner)] = entry.id
        return entry

    def _edge(self, source: int, target: int, name: str) -> None:
        from .record import Edge

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

    def forward(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        settings: tuple[Any, ...],
        output: Any,
        seconds: float,
    ) -> None:
        scope, node = current().scope, output.node
        names = [f"{op.inputs[0]}{i}" for i in range(len(inputs))] if op.variadic else op.inputs
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
            **_formulas(op, inputs, settings, output),
            settings=shown,
            flops=op.count_flops(inputs, settings, output),
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
        entry.gradient = _plus(entry.gradient, gradient)
        entry.backward_seconds = (entry.backward_seconds or 0.0) + seconds
        self.backward_steps.append(known)
        names = node.plan.op.inputs
        wanted = [f"{names[0]}{i}" if node.op.variadic else names[i] for i in node.plan.needed]
        parts = {n: p for n, p in zip(wanted, contributions, strict=True) if p is not None}
        for edge in self.into(entry):
            if edge.input in parts:
                edge.contribution = _plus(edge.contribution, parts[edge.input])

    def arrived(self, leaf: Any, gradient: Any) -> None:
        known = self._find(leaf)
        if known is not None:
            entry = self.entries[known]
            entry.gradient = _plus(entry.gradient, gradient)

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
            _Expectation(steps, known, plain, scope, first=first, last=len(self.entries))
        )

    def _value(self, known: int | None, value: Any) -> Any:
        if known is not None:
            return self.entries[known].value
        return value._data if isinstance(value, Tensor) else value

    @classmethod
    def of(cls, output: Tensor) -> Self:
        """The record of a graph that already stands, without values or gradients in between."""
        made = cls()
        if output.node is None:
            made._leaf(output, "")
            return made
        for node in reversed(order([output.node])):
            op = node.op
            facts = {
                "shape": node.shape,
                "dtype": str(node.dtype),
                **_formulas(op, _known_inputs(node), node.settings, node),
            }
            shown = {
                n: repr(v)
                for n, v in zip(op.settings, node.settings, strict=True)
                if np.ndim(v) == 0
            }
            sources = [
                made._ids[edge] if isinstance(edge, Node) else made._leaf(edge, node.scope)
                for edge in node.edges
            ]
            entry = made._entry(
                node,
                kind="op",
                op=op.name,
                name=node.name,
                scope=node.scope,
                settings=shown,
                needs=True,
                **facts,
            )
            entry.place = str(node.place)
            for source, position in zip(sources, node.plan.needed, strict=True):
                made._edge(
                    source,
                    entry.id,
                    op.inputs[0] + str(position) if op.variadic else op.inputs[position],
                )
            made._note_saved(entry, node, {e.input: e.source for e in made.into(entry)})
            made.forward_steps.append(entry.id)
        made.entries[-1].value = output._data
        made.roots = [len(made.entries) - 1]
        made._settle()
        return made

    # ------------------------------------------------------------------ reading

    def explain_missing(self, entry: Entry) -> str:
        """Why an entry has no gradient."""
        if entry.why:
            return entry.why
        return "unreached" if self.backward_steps else "backward not run"

    def _gradient_within(self, known: int, expectation: _Expectation) -> Any:
        """The gradient that one call of a layer sends to an entry: what its own uses contribute."""
        total = None
        entry = self.entries[known]
        for edge in self.uses(entry):
            if (
                expectation.first <= edge.target < expectation.last
                and edge.contribution is not None
            ):
                total = _plus(total, edge.contribution)
        return total

    def check(self) -> Checks:
        """Compare each hand-derived step of each layer that ran with the engine's gradients.

        A layer that no backward ran through is left out, and stands in `skipped`.

        Raises: GradientError if that leaves none of those that have such steps.
        """
        from ..check import compare
        from .record import Check, Checks, rms

        checks = Checks()
        for e in self._expectations:
            out = self.entries[e.symbols["out"]] if "out" in e.symbols else None
            if out is None or out.gradient is None:
                checks.skipped.append(e.scope or "the layer")
                continue
            known = {**e.plain, "grad_output": out.gradient}
            names = signature(e.steps).parameters
            steps = e.steps(**{name: known[name] for name in names if name in known})
            for step in steps:
                largest = max(float(np.abs(g).max(initial=0.0)) for g in step.gradients.values())
                for symbol, formula in step.gradients.items():
                    engine = None
                    if symbol in e.symbols:
                        engine = self._gradient_within(e.symbols[symbol], e)
                    difference = None if engine is None else compare(engine, formula, largest)
                    tex = step.formulas[symbol]
                    facts = (e.scope, step.number, step.title, step.forward, symbol, tex)
                    sizes = (formula.shape, rms(formula))
                    checks.append(Check(*facts, *sizes, difference, e.symbols))
        if checks.skipped and not checks:
            raise GradientError(f"check: no backward ran through {checks.skipped[0]} in this trace")
        return checks

    def checked(self) -> Checks:
        """What `check` measures; nothing where no backward ran through a layer that has steps."""
        from .record import Checks

        try:
            return self.check()
        except GradientError:
            return Checks()

    def __iter__(self) -> Iterator[Entry]:
        self._settle()
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _plus(total: Any, part: Any) -> Any:
    array = np.asarray(part._data if isinstance(part, Tensor) else part)
    return array if total is None else np.asarray(total + array)


def _formulas(op: Op, inputs: Any, settings: Any, out: Any) -> dict[str, Any]:
    """The formulas of one call; those that tell more than is known of it are the op's name."""
    try:
        tex, rules = op.formulas(inputs, settings, out)
    except (AttributeError, IndexError, TypeError, ValueError):
        names = op.input_names(len(inputs))
        tex = rf"\operatorname{{{op.name}}}({', '.join(f'<{name}>' for name in names)})"
        rules = {name: r"\text{its rule}" for name in names}
    return {"tex": tex, "vjp_tex": rules}


def _known_inputs(node: Node) -> list[Any]:
    """A node's inputs: of one that needs no gradient the graph knows nothing."""
    known = dict(zip(node.plan.needed, node.edges, strict=True))
    return [known.get(i) for i in range(len(node.plan.kinds))]
