"""Record: a forward pass and the last backward as plain data, which is all that views read.

A `Recorder` fills it while ops run. `analyze` then finds, once, what the numbers mean: states,
checks by hand, the way of the loss; `finish` writes the formulas too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .analysis import add_checks, analyze, attentions
from .data import (
    BY_DERIVATIVE,
    Attention,
    Check,
    Checks,
    Edge,
    Entry,
    Facts,
    RecordData,
    Way,
    measure,
    number,
    rms,
    show,
)
from .fold import Fold, folded
from .formulas import write_formulas

__all__ = [
    "Attention", "Check", "Checks", "Edge", "Entry", "Facts", "Record", "Way", "measure",
    "rms", "show",
]  # fmt: skip


@dataclass(repr=False)
class Record(RecordData):
    """A forward pass and the last backward. It can be copied and pickled. See `RecordData`."""

    _analyzed: Any = None  # the state of the record that was analyzed, and that has formulas
    _written: Any = None

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

    @property
    def _state(self) -> tuple[int, int, int]:
        return len(self.entries), len(self.backward), self.backwards

    def analyze(self) -> Record:
        """Find what the numbers mean, once for each state of the record; and return it."""
        if self._analyzed != self._state:
            self._analyzed = self._state
            self.__dict__.pop("folded", None)
            self.__dict__.pop("unfolded", None)
            analyze(self)
        return self

    def finish(self) -> Record:
        """`analyze`, and write the formulas with symbols in their slots, once too."""
        self.analyze()
        if self._written != self._state:
            self._written = self._state
            write_formulas(self)
        return self

    def check(self, ops: bool = False) -> Checks:
        """The checks by hand; with `ops`, also each backward step beside a numeric derivative."""
        self.analyze()
        if ops and not self.checks.of(BY_DERIVATIVE):
            from .checks import by_derivative

            add_checks(self, by_derivative(self))
        return self.checks

    @cached_property
    def folded(self) -> Fold:
        """Where each entry is drawn, alike modules of a chain once."""
        return folded(self.analyze())

    @cached_property
    def unfolded(self) -> Fold:
        """Where each entry is drawn, each module on its own."""
        return folded(self.analyze(), fold=False)

    def attention(self, tokens: Any = None) -> list[Attention]:
        """The attention weights of the run. Args: tokens: see `attentions` in analysis.

        Raises: ShapeError if a list of tokens is not as long as the axis that it names.
        """
        return attentions(self.analyze(), tokens)

    # ------------------------------------------------------------------ as data

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled: places as text."""
        for entry in self.entries:
            entry.made_at = entry.place
        return {name: x for name, x in vars(self).items() if name not in ("folded", "unfolded")}

    def to_dict(self) -> dict[str, Any]:
        """All of it but arrays and times, ready for JSON; the same for the same program.

        >>> import json, minigrad as mg
        >>> x = mg.tensor([3.0, 4.0], requires_grad=True)
        >>> with mg.trace() as t:
        ...     mg.sum(x * x).backward()
        >>> record = json.loads(json.dumps(t.to_dict(), allow_nan=False))
        >>> record["entries"][0]["gradient"]["max"], record["forward"], record["backward"]
        (8.0, [1, 2], [2, 1])
        """
        self.finish()
        at = {id(edge): i for i, edge in enumerate(self.edges)}
        way = None
        if self.way is not None:
            way = self.way._asdict() | {
                "edges": [at[id(edge)] for edge in self.way.edges],
                "whole": number(self.way.whole),
            }
        names = "forward backward roots backwards more_in_grad loss notes zeros asked".split()
        checks = self.checks
        return {name: getattr(self, name) for name in names} | {
            "version": 2,
            "entries": [_entry_to_dict(entry) for entry in self.entries],
            "edges": [_edge_to_dict(edge) for edge in self.edges],
            "way": way,
            "checks": {
                "ok": checks.ok,
                "steps": checks.steps,
                "results": [check.to_dict() for check in checks.results],
                "skipped": checks.skipped,
                "uncovered": checks.uncovered,
                "first_broken": checks.first_broken,
            },
        }


ENTRY_FIELDS = (
    "id kind op name path scope dtype place flops saved_bytes needs copy_of state why note says "
    "symbol slope number equation where ok"
).split()


def _entry_to_dict(entry: Entry) -> dict[str, Any]:
    plain = {name: getattr(entry, name) for name in ENTRY_FIELDS}
    facts = {"value": entry.value_facts, "gradient": entry.gradient_facts}
    return plain | {
        "shape": list(entry.shape),
        "settings": {name: show(x) for name, x in entry.settings.items() if x is not None},
        "reach": number(entry.reach),
        **{name: None if x is None else x.to_dict() for name, x in facts.items()},
    }


def _edge_to_dict(edge: Edge) -> dict[str, Any]:
    names = "source target input on_way equation where says".split()
    sent = None if edge.facts is None else edge.facts.to_dict()
    return {name: getattr(edge, name) for name in names} | {"gain": number(edge.gain), "sent": sent}
