"""A function that is played with: its changes, their undo, and the run that they give."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from math import isfinite
from typing import Any

import numpy as np

from .. import optim
from ..engine.creation import tensor
from ..engine.errors import ArgumentError
from ..recording.record import Entry
from ..views.plain import one_line
from .addresses import (
    address_of,
    address_of_argument,
    addresses_of_uses,
    addresses_to_set,
    keys_of,
    label_of,
)
from .changes import (
    Change,
    Cut,
    Freeze,
    Given,
    Hold,
    SetValue,
    Step,
    arguments_of,
    python_of,
)
from .run import Run, run_loss

__all__ = ["Played", "Session"]

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop")
TEXT = (int, float, str)


@dataclass
class Played:
    """What is played with.

    Attributes:
        load: gives the function, which returns a loss; its arguments' defaults can be changed.
        title: one line that says what it is.
        python: statements that define it, under the name `name`.
        page: what the page shows beside the record of a run, as options of `page_content`.
        around: what loading and running are within.
    """

    load: Callable[[], Callable[..., Any]]
    title: str
    name: str
    python: str
    page: Callable[[Run], dict[str, Any]]
    around: Callable[[], AbstractContextManager[None]] = nullcontext


class Session:
    """Attributes: run: the latest run that succeeded; changes: those it is within."""

    def __init__(self, played: Played) -> None:
        self.played = played
        with played.around():
            self.function = played.load()
        self.defaults = _defaults(self.function)
        self.changes = list[Change]()
        self.past = list[list[Change]]()
        self.undone = list[list[Change]]()
        self.before: Run | None = None
        self.version, self.gesture = 0, ""
        self.run = self._run([])
        self.page = self._page(self.run)

    # ---------------------------------------------------------------- runs

    def _run(self, changes: list[Change]) -> Run:
        contexts = [one for change in changes for one in change.contexts()]
        with self.played.around():
            return run_loss(self.function, self.played.title, arguments_of(changes), contexts)

    def _take(self, changes: list[Change]) -> None:
        """Run with these; if that fails all stays as it is.

        Raises: ArgumentError if the loss is no longer finite; whatever the function raises.
        """
        run = self._run(changes)
        if not isfinite(run.loss) and isfinite(self.run.loss):
            where = run.trace.checked().broken
            raise ArgumentError(f"the loss would be {run.loss}{f': {where}' if where else ''}")
        page = self._page(run)
        self.before = self.run
        self.run = run
        self.page = page
        self.changes = changes
        self.version += 1
        self.gesture = ""

    def _page(self, run: Run) -> dict[str, Any]:
        """What the page shows besides; positions are named by a text that was given instead."""
        page = self.played.page(run)
        names = page.get("tokens") or []
        names = [*names[0]] if names and isinstance(names[0], list | tuple) else [*names]
        for name, value in run.arguments.items():
            if names and _words(self.defaults[name]) == names:
                page["tokens"] = _words(value)
                page["title"] = page["title"].replace(" ".join(names), " ".join(page["tokens"]))
        return page

    def change(self, change: Change, gesture: str = "") -> None:
        """Make a change, and remember how it was.

        Args: gesture: names a drag, of which the last change counts and undo takes back all.
        """
        again = bool(gesture) and gesture == self.gesture
        past = self.changes
        overwrites = bool(past) and change.overwrites(past[-1])
        self._take([*(past[:-1] if again or overwrites else past), change])
        if not again:
            self.past.append(past)
        self.undone.clear()
        self.gesture = gesture

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
        past = self.changes
        self._take([])
        self.past.append(past)
        self.undone.clear()

    # ---------------------------------------------------------------- changes

    def entry(self, node: Any) -> Entry:
        entries = self.run.trace.entries
        if not isinstance(node, int) or not 0 <= node < len(entries):
            raise ArgumentError(f"this run has no value {node!r}")
        return entries[node]

    def set_entry(self, node: int, index: Any, value: Any, gesture: str = "") -> None:
        """One entry of a leaf, a constant or a computed value becomes a number."""
        entry = self.entry(node)
        place = _index(entry.shape, index)
        number = _number(value, entry.dtype)
        places = tuple(addresses_to_set(self.run.trace, entry))
        said = f"{self._name(entry, place)} = {number:g}"
        self.change(SetValue(said, places, place, number), gesture)

    def set_argument(self, node: int, name: str, value: Any, gesture: str = "") -> None:
        """A plain number that an op was given, such as a factor, becomes another one."""
        entry = self.entry(node)
        place = address_of_argument(self.run.trace, entry, name)
        number = _number(value, "float64")
        shown = int(number) if number % 1 == 0 and _is_integer(entry.settings.get(name)) else number
        said = f"{name} of {label_of(self.run.trace, entry)} = {number:g}"
        self.change(SetValue(said, (place,), None, shown), gesture)

    def cut(self, node: int, index: Any = None, of: str | None = None) -> None:
        """A value, or an entry of it, is zero; or one edge, to the argument `of` of this op."""
        entry, trace = self.entry(node), self.run.trace
        if of is not None:
            sources = [e.source for e in trace.into(entry) if e.input == of]
            name = label_of(trace, trace.entries[sources[0]]) if sources else of
            said = f"cut {name} → {label_of(trace, entry)}"
            self.change(Cut(said, (address_of_argument(trace, entry, of),)))
            return
        place = None if index is None else _index(entry.shape, index)
        said = f"cut {self._name(entry, place)}"
        self.change(Cut(said, tuple(addresses_to_set(trace, entry)), place))

    def freeze(self, node: int) -> None:
        """A leaf gets no gradient; a computed value stays as it is now, and hands none on."""
        entry, trace = self.entry(node), self.run.trace
        said = f"freeze {label_of(trace, entry)}"
        if entry.op is None:
            self.change(Freeze(said, tuple(addresses_of_uses(trace, entry))))
        else:
            self.change(Hold(said, address_of(trace, entry), np.array(entry.value)))

    def step(self, lr: Any, optimizer: Any = "SGD") -> None:
        """One step of an optimizer: of all parameters, or else of all leaves with a gradient.

        A second step goes on from the state of the first.

        Raises: ArgumentError without one to move, for an unknown optimizer or a number that is
            none.
        """
        if optimizer not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise ArgumentError(f"there is no optimizer {optimizer!r}; they are {known}")
        rate, trace = _number(lr, "float64"), self.run.trace
        learning = [e for e in trace if e.learns and e.gradient is not None]
        held = any(e.kind == "parameter" for e in learning)
        kind = "parameter" if held else "leaf"
        moved = {address_of(trace, e): e for e in learning if e.kind == kind}
        if again := next((place.path for place in moved if place.call is not None), ""):
            raise ArgumentError(f"two parameters have the path {again}: name them apart")
        if not moved:
            raise ArgumentError("no parameter got a gradient in this run, so there is no step")
        weights = {place: tensor(e.value, requires_grad=True) for place, e in moved.items()}
        for place, w in weights.items():
            w.grad = moved[place].gradient.copy()
        made = getattr(optim, optimizer)([*weights.values()], lr=rate)
        steps = [change for change in self.changes if isinstance(change, Step)]
        same = bool(steps) and steps[-1].optimizer == optimizer and steps[-1].lr == rate
        continues = same and [*steps[-1].values] == [*weights]
        if continues:
            made.load_state_dict(deepcopy(steps[-1].state))
        made.step()
        values = {place: w.numpy().copy() for place, w in weights.items()}
        state, said = deepcopy(made.state_dict()), f"a step of {optimizer}, lr {rate:g}"
        self.change(Step(said, optimizer, rate, kind, values, state, continues, self.run.inside))

    def set_keyword(self, name: str, value: Any, gesture: str = "") -> None:
        """An argument of the function itself, such as a temperature or a text."""
        if name not in self.defaults:
            known = ", ".join(self.defaults) or "none"
            raise ArgumentError(f"{self.played.title} has no argument {name!r}; it has {known}")
        given = _like(self.defaults[name], name, value)
        self.change(Given(f"{name} = {value}", name, given), gesture)

    def _name(self, entry: Entry, index: tuple[int, ...] | None) -> str:
        name = label_of(self.run.trace, entry)
        return name if index is None else f"{name}[{', '.join(map(str, index))}]"

    @property
    def optimizer(self) -> tuple[str, float]:
        """What a step is of at first: the kind and lr of `function.optimizer`, if it has one."""
        own: Any = getattr(self.function, "optimizer", None)
        known = type(own).__name__ in OPTIMIZERS
        return (type(own).__name__, float(own.lr)) if known else ("SGD", 0.1)

    # ---------------------------------------------------------------- told

    def look(self, node: int, index: Any) -> dict[str, Any]:
        """One entry as it is: its value in full, and between which numbers to drag it."""
        entry = self.entry(node)
        if entry.dtype[:1] == "c" or entry.value is None:
            raise ArgumentError(f"{entry.label} holds no numbers to change")
        place = _index(entry.shape, index)
        addresses_to_set(self.run.trace, entry)  # raises where it cannot be changed
        array = np.asarray(entry.value)
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.ravel()
        size = float(np.abs(finite).max(initial=0.0)) or 1.0
        return self._toggled(entry, array, place) | {
            "node": node,
            "index": [*place],
            "name": one_line(self._name(entry, place)),
            "value": _shown(array[place].item()),
            "span": size,
            "kind": array.dtype.kind,
            "shape": [*entry.shape],
        }

    def _toggled(self, entry: Entry, array: Any, place: tuple[int, ...]) -> dict[str, Any]:
        """Of a mask, what a click makes of an entry: open what is closed, close what is open."""
        if entry.op is not None or entry.learns or array.ndim < 2:
            return {}
        if array.dtype == bool:
            return {"toggle": int(not array[place])}
        if (
            array.dtype.kind == "f"
            and np.isneginf(array).any()
            and not array[array > -np.inf].any()
        ):
            return {"toggle": "-inf" if array[place] == 0 else 0}
        return {}

    def python(self) -> str:
        """The program that makes this run."""
        played = self.played
        return python_of(self.changes, played.python, played.name, self.run.inside)

    def differences(self) -> dict[int, list[float | None]]:
        """By how much each value and gradient differs from the run before, relative to its size."""
        if self.before is None:
            return {}
        old, new = self.before.trace.entries, self.run.trace.entries
        found = {}
        for before, now in self.moved().items():
            other, entry = old[before], new[now]
            if other.shape == entry.shape:
                noise = {other.state, entry.state} <= {"zero", "cancels", "none"}
                gradient = 0.0 if noise else _gap(other.gradient, entry.gradient)
                pair = [_gap(other.value, entry.value), gradient]
                if any(pair):
                    found[entry.id] = pair
        return found

    def moved(self) -> dict[int, int]:
        """Which entry of this run each entry of the run before is."""
        if self.before is None or self.alike:
            return {entry.id: entry.id for entry in self.run.trace.entries}
        now = {key: i for i, key in keys_of(self.run.trace).items()}
        before = keys_of(self.before.trace)
        return {i: now[key] for i, key in before.items() if key in now}

    @property
    def alike(self) -> bool:
        """Whether the graph is that of the run before."""
        return self.before is not None and _form(self.before) == _form(self.run)


def _form(run: Run) -> Any:
    trace = run.trace
    entries = [(e.kind, e.op, e.path, e.shape, e.gradient is None) for e in trace.entries]
    edges = [(e.source, e.target, e.input, e.contribution is None) for e in trace.edges]
    return entries, edges, trace.forward_steps, trace.backward_steps


def _gap(old: Any, new: Any) -> float | None:
    """‖new − old‖ / ‖old‖ over finite entries; None if either is missing, 0 if they are equal."""
    if old is None or new is None or old.dtype.kind not in "fiub":
        return None
    if np.array_equal(old, new, equal_nan=old.dtype.kind == "f"):
        return 0.0
    before, after = np.asarray(old, float), np.asarray(new, float)
    both = np.isfinite(before) & np.isfinite(after)
    size = float(np.linalg.norm(before[both]))
    gap = float(np.linalg.norm(after[both] - before[both]))
    return gap / size if size and gap else 1.0


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _index(shape: tuple[int, ...], index: Any) -> tuple[int, ...]:
    whole = isinstance(index, list) and all(isinstance(i, int) for i in index)
    if not whole or len(index) != len(shape):
        said = f"an index of shape {shape} is {len(shape)} whole numbers, got {index!r}"
        raise ArgumentError(said)
    if any(not 0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise ArgumentError(f"index {index} is outside shape {shape}")
    return tuple(index)


def _number(value: Any, dtype: str) -> Any:
    """A number that an array of this dtype can hold. Raises: ArgumentError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"a number is needed, got {value!r:.60}") from None
    if number != number:
        raise ArgumentError("a number is needed, got NaN")
    if dtype.startswith("float"):
        return number
    if number % 1 != 0:
        raise ArgumentError(f"a whole number is needed ({dtype}), got {number:g}")
    if dtype == "bool" and number not in (0, 1):
        raise ArgumentError(f"0 or 1 is needed, got {number:g}")
    return bool(number) if dtype == "bool" else int(number)


def _is_integer(text: str | None) -> bool:
    return text is not None and text.lstrip("-").isdecimal()


def _like(default: Any, name: str, value: Any) -> Any:
    """A value of the kind that the default has. Raises: ArgumentError."""
    if isinstance(default, bool):
        return bool(_number(value, "bool"))
    if isinstance(default, int | float):
        return _number(value, "int64" if isinstance(default, int) else "float64")
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{name}: a text is needed, got {value!r:.60}")
    return value if isinstance(default, str) else type(default)(value.split())


def _words(value: Any) -> list[str]:
    """A text's words; of a number none."""
    return value.split() if isinstance(value, str) else [*value] if np.iterable(value) else []


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that can be changed: numbers, texts, and lists of words."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return {}
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    words = {n for n, x in given.items() if isinstance(x, list | tuple) and x}
    words = {n for n in words if all(isinstance(word, str) for word in given[n])}
    return {n: x for n, x in given.items() if isinstance(x, TEXT) or n in words}
