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
    AttentionWeights,
    Check,
    Checks,
    Edge,
    Entry,
    Facts,
    RecordData,
    Way,
    measure,
    plain,
    rms,
    show,
)
from .fold import Fold, folded
from .formulas import write_formulas

__all__ = [
    "AttentionWeights", "Check", "Checks", "Edge", "Entry", "Facts", "Record", "Way", "measure",
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

    def attention(self, tokens: Any = None) -> list[AttentionWeights]:
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
