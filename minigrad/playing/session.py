"""A function that is played with: its changes, their undo, and the run that they give."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from math import isfinite
from typing import Any, TypeAlias

import numpy as np

from .. import optim
from ..engine.creation import tensor
from ..engine.errors import ArgumentError
from ..engine.types import Array
from ..recording.record import Entry
from ..views.data import number as as_json
from ..views.page import page_content
from ..views.plain import one_line
from .addresses import (
    address_of,
    address_of_argument,
    addresses_of_uses,
    addresses_to_set,
    in_place_of,
    label_of,
)
from .changes import Change, Given, Hold, OptimizerStep, Put, arguments_of, detached, python_of
from .run import Run, Source, run_loss
from .values import defaults_of, index_of, number_of, value_like, words_of

__all__ = ["PageOptions", "PlaySession"]

PageOptions: TypeAlias = dict[str, Any]  # of `page_content`
OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop")


class PlaySession:
    """A run of a source, whose arguments' defaults can be changed, and its changes.

    Args: page: what a run's page shows beside its record, as options of `page_content`.
    Attributes:
        run: the latest run that succeeded.  changes: those it is within.
        varies: whether the function gives another loss each time, as one that draws numbers does.
        shown: what `page_content` gives of the run.
    """

    def __init__(self, source: Source, page: Callable[[Run], PageOptions]) -> None:
        self.source = source
        self._options = page
        with source.around():
            self.function = source.load()
        self.defaults = defaults_of(self.function)
        self.changes = list[Change]()
        self.past = list[list[Change]]()
        self.undone = list[list[Change]]()
        self.before: Run | None = None
        self.version, self.gesture = 0, ""
        self.run = self._run([])
        self.varies = self._run([]).loss != self.run.loss == self.run.loss  # NaN is no other
        self.page = self._page(self.run)
        self.shown = page_content(self.run.trace, **self.page)

    # ---------------------------------------------------------------- runs

    def _run(self, changes: list[Change]) -> Run:
        contexts = [one for change in changes for one in change.contexts()]
        with self.source.around():
            return run_loss(self.function, self.source.title, arguments_of(changes), contexts)

    def _take(self, changes: list[Change]) -> None:
        """Run with these; if that fails all stays as it is.

        Raises: ArgumentError if the loss is no longer finite, or no page can show the run;
            whatever the function raises.
        """
        run = self._run(changes)
        if not isfinite(run.loss) and isfinite(self.run.loss):
            where = run.trace.checked().broken
            raise ArgumentError(f"the loss would be {run.loss}{f': {where}' if where else ''}")
        page = self._page(run)
        shown = page_content(run.trace, **page)
        self.before = self.run
        self.run = run
        self.page = page
        self.shown = shown
        self.changes = changes
        self.version += 1
        self.gesture = ""

    def _page(self, run: Run) -> PageOptions:
        """What the page shows besides; positions are named by a text that was given instead."""
        page = self._options(run)
        names = page.get("tokens") or []
        names = [*names[0]] if names and isinstance(names[0], list | tuple) else [*names]
        for name, value in run.arguments.items():
            if names and words_of(self.defaults[name]) == names:
                page["tokens"] = words_of(value)
                page["title"] = page["title"].replace(" ".join(names), " ".join(page["tokens"]))
        return page

    def change(self, change: Change, gesture: str = "") -> None:
        """Make a change, and remember how it was.

        Args: gesture: names a drag, of which the last change counts and undo takes back all.
        """
        again = bool(gesture) and gesture == self.gesture
        past = self.changes
        overwrites = bool(past) and change.overwrites(past[-1])
        self._advance([*(past[:-1] if again or overwrites else past), change], again)
        self.gesture = gesture

    def _advance(self, changes: list[Change], again: bool = False) -> None:
        past = self.changes
        self._take(changes)
        if not again:
            self.past.append(past)
        self.undone.clear()

    def undo(self) -> None:
        """Raises: ArgumentError if there is nothing to undo."""
        self._travel(self.past, self.undone, "undo")

    def redo(self) -> None:
        """Raises: ArgumentError if there is nothing to redo."""
        self._travel(self.undone, self.past, "redo")

    def _travel(self, here: list[list[Change]], there: list[list[Change]], name: str) -> None:
        if not here:
            raise ArgumentError(f"there is nothing to {name}")
        now = self.changes
        self._take(here[-1])
        here.pop()
        there.append(now)

    def reset(self) -> None:
        """All as the function has it; undo brings the changes back."""
        self._advance([])

    # ---------------------------------------------------------------- changes

    def entry(self, node: object) -> Entry:
        entries = self.run.trace.entries
        if not isinstance(node, int) or not 0 <= node < len(entries):
            raise ArgumentError(f"this run has no value {node!r}")
        return entries[node]

    def set_entry(self, node: int, index: object, value: object, gesture: str = "") -> None:
        """One entry of a leaf, a constant or a computed value becomes a number."""
        entry = self.entry(node)
        place = index_of(entry.shape, index)
        number = number_of(value, entry.dtype)
        places = tuple(addresses_to_set(self.run.trace, entry))
        said = f"{self._name(entry, place)} = {number:g}"
        self.change(Put(said, places, place, number), gesture)

    def set_argument(self, node: int, name: str, value: object, gesture: str = "") -> None:
        """A plain number that an op was given, such as a factor, becomes another one."""
        entry = self.entry(node)
        place = address_of_argument(self.run.trace, entry, name)
        number = number_of(value, "float64")
        was_whole = entry.settings.get(name, "").lstrip("-").isdecimal()
        said = f"{name} of {label_of(self.run.trace, entry)} = {number:g}"
        new = int(number) if was_whole and number % 1 == 0 else number
        self.change(Put(said, (place,), None, new), gesture)

    def cut(self, node: int, index: object = None, of: str | None = None) -> None:
        """A value, or an entry of it, is zero; or one edge, to the argument `of` of this op."""
        entry, trace = self.entry(node), self.run.trace
        if of is not None:
            sources = [e.source for e in trace.into(entry) if e.input == of]
            name = label_of(trace, trace.entries[sources[0]]) if sources else of
            said = f"cut {name} → {label_of(trace, entry)}"
            self.change(Put(said, (address_of_argument(trace, entry, of),), cut=True))
            return
        place = None if index is None else index_of(entry.shape, index)
        said = f"cut {self._name(entry, place)}"
        self.change(Put(said, tuple(addresses_to_set(trace, entry)), place, cut=True))

    def freeze(self, node: int) -> None:
        """A leaf gets no gradient; a computed value stays as it is now, and sends none back."""
        entry, trace = self.entry(node), self.run.trace
        said = f"freeze {label_of(trace, entry)}"
        if entry.op is None:
            self.change(Put(said, tuple(addresses_of_uses(trace, entry)), value=detached))
        else:
            value = np.array(in_place_of(trace, entry).value)
            self.change(Hold(said, address_of(trace, entry), value))

    def step(self, lr: object, optimizer: str = "SGD") -> None:
        """One step of an optimizer: of all parameters, or else of all leaves with a gradient.

        A second step goes on from the state of the first.

        Raises: ArgumentError without one to move, for an unknown optimizer or a number that is
            none.
        """
        if optimizer not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise ArgumentError(f"there is no optimizer {optimizer!r}; they are {known}")
        rate, trace = number_of(lr, "float64"), self.run.trace
        learning = [e for e in trace if e.learns and e.gradient is not None]
        held = any(e.kind == "parameter" for e in learning)
        kind = "parameter" if held else "leaf"
        moved = {address_of(trace, e): e for e in learning if e.kind == kind}
        if not moved:
            raise ArgumentError("no parameter got a gradient in this run, so there is no step")
        weights = {place: tensor(e.value, requires_grad=True) for place, e in moved.items()}
        for place, w in weights.items():
            w.grad = moved[place].gradient.copy()
        made = getattr(optim, optimizer)([*weights.values()], lr=rate)
        steps = [change for change in self.changes if isinstance(change, OptimizerStep)]
        same = bool(steps) and steps[-1].optimizer == optimizer and steps[-1].lr == rate
        continues = same and [*steps[-1].values] == [*weights]
        if continues:
            made.load_state_dict(deepcopy(steps[-1].state))
        made.step()
        values = {place: w.numpy().copy() for place, w in weights.items()}
        state, said = deepcopy(made.state_dict()), f"a step of {optimizer}, lr {rate:g}"
        inside = self.run.inside
        self.change(OptimizerStep(said, optimizer, rate, kind, values, state, continues, inside))

    def set_keyword(self, name: str, value: object, gesture: str = "") -> None:
        """An argument of the function itself, such as a temperature or a text."""
        if name not in self.defaults:
            known = ", ".join(self.defaults) or "none"
            raise ArgumentError(f"{self.source.title} has no argument {name!r}; it has {known}")
        given = value_like(self.defaults[name], name, value)
        self.change(Given(f"{name} = {value}", name, given), gesture)

    def _name(self, entry: Entry, index: tuple[int, ...] | None) -> str:
        name = label_of(self.run.trace, entry)
        return f"{name}[{', '.join(map(str, index))}]" if index else name  # a scalar's is ()

    @property
    def optimizer(self) -> tuple[str, float]:
        """What a step is of at first: the kind and lr of `function.optimizer`, if it has one."""
        own: Any = getattr(self.function, "optimizer", None)
        known = type(own).__name__ in OPTIMIZERS
        return (type(own).__name__, float(own.lr)) if known else ("SGD", 0.1)

    # ---------------------------------------------------------------- what the page shows

    def look(self, node: object = None, index: object = None) -> dict[str, Any]:
        """One entry as it is: its value in full, and between which numbers to drag it."""
        entry = self.entry(node)
        if entry.dtype[:1] == "c" or entry.value is None:
            raise ArgumentError(f"{entry.label} holds no numbers to change")
        place = index_of(entry.shape, index)
        addresses_to_set(self.run.trace, entry)  # raises where it cannot be changed
        array = np.asarray(entry.value)
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.ravel()
        size = float(np.abs(finite).max(initial=0.0)) or 1.0
        return self._toggled(entry, array, place) | {
            "node": node,
            "index": [*place],
            "name": one_line(self._name(entry, place)),
            "value": as_json(array[place].item()),
            "span": size,
            "kind": array.dtype.kind,
        }

    def _toggled(self, entry: Entry, array: Array, place: tuple[int, ...]) -> dict[str, Any]:
        """Of a mask, what a click makes of an entry: open what is closed, close what is open."""
        if entry.op is None and not entry.learns and array.ndim > 1:
            if array.dtype == bool:
                return {"toggle": int(not array[place])}
            if np.isin(array, (0, -np.inf)).all() and np.isneginf(array).any():
                return {"toggle": "-inf" if array[place] == 0 else 0}
        return {}

    def python(self) -> str:
        """The program that makes this run."""
        return python_of(self.changes, self.source.python, self.source.name, self.run.inside)
