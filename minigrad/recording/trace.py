"""TraceRecord: the record of a forward and backward pass, which is all that views read.

A record holds plain data: entries (leaves and ops, numbered in the order they were made), edges
between them, the order of the forward and of the backward steps, and the hand-derived steps that
layers expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Any, Self

import numpy as np

from ..engine.errors import GradientError
from ..engine.listener import listen
from ..engine.tensor import Node, Tensor, order
from ..paths import matches
from .by_hand import check_by_hand
from .checks import KINDS, CheckKind, CheckResult, Checks
from .formulas import facts_of_node
from .reach import Path, explain_zeros, measure_reach, worst_path
from .record import Edge, Entry
from .recorder import Recorder, _OpenRun
from .step_check import not_measured

__all__ = ["TraceRecord"]


class TraceRecord(Recorder):
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

    @classmethod
    def of(cls, output: Tensor) -> Self:
        """The record of an existing graph, without its intermediate values and gradients."""
        made = cls()
        if output.node is None:
            made._leaf(output, "")
            return made
        for node in reversed(order([output.node])):
            op = node.op
            shown = {
                n: repr(v)
                for n, v in zip(op.settings, node.settings, strict=True)
                if np.ndim(v) == 0
            }
            sources = [
                made._open.ids[edge] if isinstance(edge, Node) else made._leaf(edge, node.scope)
                for edge in node.edges
            ]
            entry = made._entry(
                node,
                kind="op",
                op=op.name,
                name=node.name,
                scope=node.scope,
                shape=node.shape,
                dtype=str(node.dtype),
                made_at=node.place,
                needs=True,
                declared=facts_of_node(node, shown),
            )
            names = op.input_names(len(node.plan.kinds))
            for source, position in zip(sources, node.plan.needed, strict=True):
                made.add_edge(Edge(source, entry.id, names[position]))
            made._note_saved(entry, node, {e.input: e.source for e in made.into(entry)})
            made.forward_steps.append(entry.id)
        made.entries[-1].value = output._data
        made.roots = [len(made.entries) - 1]
        made._settle()
        return made

    def __getitem__(self, key: int | str) -> Entry:
        """An entry by its number, or the last one of a name, a path or the end of a path.

        Of a leaf that was written to between its uses, the name and the path give the last value.
        """
        if isinstance(key, int):
            return self.entries[key]
        self.analyze()
        for entry in reversed(self.entries):
            paths = (entry.path, entry.path.removesuffix(entry.which_value))
            if key == entry.name or key in paths or any(matches(key, path) for path in paths):
                return entry
        raise KeyError(
            f"no entry named {key!r}; names: {', '.join(e.path for e in self.entries if e.name)}"
        )

    def explain_missing(self, entry: Entry) -> str:
        """Why an entry has no gradient."""
        if entry.why:
            return entry.why
        if any(edge.contribution is not None for edge in self.uses(entry)):
            return "backward ended here"
        return "unreached" if self.backward_steps else "backward not run"

    def check(self, ops: bool = False) -> Checks:
        """Compare each hand-derived step of what ran, layer or op, with the engine's gradients.

        A layer that no backward ran through is left out, and stands in `skipped`.

        Args: ops: hold every backward step against a numeric derivative of its op as well, in a
            random direction; under twice the time of the run. Where such steps leave out a
            parameter, it is done unasked.
        Raises: GradientError if no step ran backward, or not through any layer that has such steps.
        """
        if not self.backward_steps:
            raise GradientError(
                "check: no backward ran within this trace; call loss.backward() inside "
                "`with mg.trace() as t:`"
            )
        found = check_by_hand(self)
        measured = {result.step for result in found.results if result.ok is not None}
        parameters = {e.id for e in self.entries if e.learns and e.gradient is not None}
        checks = self._checked(found, ops or not measured or not parameters <= measured)
        if checks.skipped and not checks and not checks.steps:
            raise GradientError(f"check: no backward ran through {checks.skipped[0]} in this trace")
        return checks

    def checked(self, ops: bool = False) -> Checks:
        """What `check` measures; nothing where no backward ran through a layer that has steps."""
        return self._checked(check_by_hand(self), ops)

    def _checked(self, found: Checks, ops: bool) -> Checks:
        dropped = [i for i, _, _ in self.earlier]
        ran = [self.entries[i] for i in dict.fromkeys([*self.backward_steps, *dropped])]
        self._measure_steps(ran, ops)
        steps = (r for kind in KINDS.values() for r in self._of_steps(kind, ran, ops))
        checks = Checks([*found.results, *steps], found.skipped, found.uncovered)
        checks.broken = self._first_broken()
        return checks

    def _measure_steps(self, ran: list[Entry], ops: bool) -> None:
        """Measure the steps without a result, if `ops` says so, or did when the run began."""
        for kind in KINDS.values():
            for entry in ran if kind.measure and (ops or self.checks_ops) else ():
                known = entry.checks.get(kind.name)
                if known is None or (ops and known.ok is None):
                    assert kind.measure is not None
                    entry.note(kind.measure(self, entry))
        for i, gradient, sent in self.earlier if ops else ():
            self.entries[i].note(self._checked_step(self.entries[i], gradient, sent))

    def _of_steps(self, kind: CheckKind, ran: list[Entry], ops: bool) -> list[CheckResult]:
        """The results of the steps that ran; none where none was to be measured."""
        if not ops and not any(kind.name in entry.checks for entry in ran):
            return []
        found = []
        for entry in ran:
            if (result := entry.checks.get(kind.name)) is not None:
                found.append(result)
            elif kind.missing:
                found.append(not_measured(entry, kind.missing, kind.name))
        return found

    def _first_broken(self) -> str:
        """The op that first made NaN or infinity, forward or else backward."""
        for entry in (self.entries[i] for i in self.forward_steps):
            if entry.broken:
                before = self._minus_infinity_before(entry)
                if before is None:
                    return f"{entry.op} made it first, at {entry.path}"
                return (
                    f"{before.op} made -inf first, at {before.path}; {entry.op} made NaN or +inf "
                    f"of it, at {entry.path}"
                )
        for entry in (self.entries[i] for i in self.backward_steps):
            for edge in self.into(entry):
                size = edge.contribution_rms
                if size is not None and not isfinite(size):
                    return f"the backward of {entry.op} made it first, at {entry.path}"
        return ""

    def _minus_infinity_before(self, entry: Entry) -> Entry | None:
        """The op that first made the -inf from which an entry was computed."""
        found = None
        while True:
            sources = (self.entries[edge.source] for edge in self.into(found or entry))
            below = next((e for e in sources if e.op and _has_minus_infinity(e)), None)
            if below is None:
                return found
            found = below

    def measure_step(self, entry: Entry) -> CheckResult | None:
        """Compare a step with its kernel after the run; None where its arrays were not kept."""
        return self._checked_step(entry, entry.gradient, self.sent(entry))

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled: places and formulas as text, and no call of a collective."""
        self.analyze()
        shown = [
            replace(entry, made_at=entry.place, declared=entry.declaration)
            for entry in self.entries
        ]
        calls = {i: call for i, call in self._calls.items() if not call.op.effect}
        state = vars(self) | {"_open": _OpenRun(), "_calls": calls, "entries": shown}
        del state["_listening"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._listening = listen(self)

    def analyze(self) -> None:
        """Find what the sizes of gradients mean, once for each state of the record."""
        self._settle()
        ran = len(self.entries), len(self.backward_steps), self._sweeps.number
        if ran != self._analyzed:
            self._analyzed = ran
            went = dict.fromkeys(self.backward_steps)
            self._measure_steps([self.entries[i] for i in went], ops=False)
            measure_reach(self)
            explain_zeros(self)

    @property
    def worst_path(self) -> Path | None:
        """The path along which the gradient shrinks, or grows, most."""
        self.analyze()
        return worst_path(self)

    def __iter__(self) -> Iterator[Entry]:
        self.analyze()
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _has_minus_infinity(entry: Entry) -> bool:
    facts = entry.value_facts
    return facts is not None and facts.low == -np.inf
