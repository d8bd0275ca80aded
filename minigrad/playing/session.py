"""A function, the changes of its run, their undo, and the page of the run that they give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, MinigradError
from ..record.record import Entry
from ..views import words
from ..views.page import content
from .run import Edit, LossFunction, Run, run_loss

__all__ = ["PlaySession"]

Change = tuple[str, list[Edit], dict[str, Any]]  # what is said of it, what it puts where, arguments


class PlaySession:
    """Answers what a page asks; a change that fails is left out, and the page hears why.

    Raises: ArgumentError if the function returns no loss.
    """

    def __init__(self, source: LossFunction) -> None:
        self.source = source
        with source.around():
            self.function = source.load()
        self.changes: list[Change] = []
        self.given = _defaults(self.function)
        self.milliseconds = 0.0
        self.run = self._run([])

    def _run(self, changes: list[Change]) -> Run:
        start = perf_counter()
        edits = [edit for _, edits, _ in changes for edit in edits]
        arguments = {name: x for _, _, given in changes for name, x in given.items()}
        with self.source.around():
            run = run_loss(self.function, self.source.title, arguments, edits)
        run.record.finish()
        for entry in run.record.entries:  # it is a trial, which leaves no gradients behind
            entry.made_at = entry.place
        self.milliseconds = 1000 * (perf_counter() - start)
        return run

    # ------------------------------------------------------------------ what the page asks

    def content(self) -> dict[str, Any]:
        """The page's data, and what can be changed."""
        arguments = self.given | {
            name: x for _, _, given in self.changes for name, x in given.items()
        }
        tokens = self.source.tokens
        for name, default in self.given.items():  # positions are named by the words of the run
            if tokens and default in (tokens[0], tokens):
                tokens = [arguments[name]] if default == tokens[0] else arguments[name]
        title = self.source.title + (f": {' '.join(tokens[0])}" if tokens else "")
        shown = content(self.run.record, tokens=tokens, title=title)
        shown["play"] = {
            "changes": [said for said, _, _ in self.changes],
            "arguments": [[name, _text(x)] for name, x in arguments.items()],
            "milliseconds": round(self.milliseconds),
        }
        return shown

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The page after a change, or why it was not made."""
        try:
            changes = self._changed(asked)
            self.run, self.changes = self._run(changes), changes
            return self.content()
        except (MinigradError, KeyError, TypeError, ValueError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return {"error": words.one_line(first, 300)}

    def _changed(self, asked: dict[str, Any]) -> list[Change]:
        """The changes with one more, or with fewer. Raises: ArgumentError if that cannot be."""
        do = asked.get("do")
        if do == "undo":
            return self.changes[:-1]
        if do == "reset":
            return []
        if do == "argument":
            name = str(asked["name"])
            value = _read(self.given[name], str(asked["value"]))
            return [
                *self.changes,
                (f"{name} = {words.one_line(_text(value), 60)}", [], {name: value}),
            ]
        if do == "step":
            return [*self.changes, self._step(float(asked["lr"]))]
        entry = self.run.record.entries[int(asked["entry"])]
        doing: dict[Any, Callable[[Entry, dict[str, Any]], Change]] = {
            "set": self._set, "cut": self._cut, "setting": self._setting,
        }  # fmt: skip
        if do not in doing:
            raise ArgumentError(
                f"a page asks for set, cut, setting, argument, step, undo or reset, got {do!r}"
            )
        return [*self.changes, doing[do](entry, asked)]

    def _set(self, entry: Entry, asked: dict[str, Any]) -> Change:
        value, flat = float(asked["value"]), int(asked["flat"])
        if not 0 <= flat < entry.size:
            raise ArgumentError(f"{entry.label} has {entry.size} entries, got {flat}")
        index = (
            ", ".join(str(int(i)) for i in np.unravel_index(flat, entry.shape))
            if entry.shape
            else ""
        )
        return f"{words.label(entry)}[{index}] = {value:g}", [self.run.edit(entry, value, flat)], {}

    def _cut(self, entry: Entry, asked: dict[str, Any]) -> Change:
        """Zeros in the place of a value, or of one input of an op."""
        name = asked.get("input")
        if not name:
            return f"{words.label(entry)} = 0", [self.run.edit(entry)], {}
        return (
            f"{words.label(entry)} without {name}",
            [Edit(self.run.numbers[entry.id], str(name), cut=True)],
            {},
        )

    def _setting(self, entry: Entry, asked: dict[str, Any]) -> Change:
        name = str(asked["name"])
        known = entry.settings[name]
        value = (
            type(known)(float(asked["value"])) if isinstance(known, int | float) else asked["value"]
        )
        return (
            f"{words.label(entry)}: {name} = {value}",
            [Edit(self.run.numbers[entry.id], name, value)],
            {},
        )

    def _step(self, lr: float) -> Change:
        """Parameters, or else other leaves, moved against their gradients."""
        moved = [e for e in self.run.record.entries if e.learns and e.gradient is not None]
        moved = [e for e in moved if e.kind == "parameter"] or moved
        if not moved:
            raise ArgumentError("no leaf has a gradient to step along")
        edits = [self.run.edit(e, e.value - lr * e.gradient) for e in moved]  # type: ignore[operator]
        return f"a step of lr = {lr:g}", edits, {}


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that can be changed: numbers, texts and lists of words with a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if _is_plain(p.default)}


def _is_plain(value: Any) -> bool:
    words_ = isinstance(value, list) and bool(value) and all(isinstance(x, str) for x in value)
    return words_ or (isinstance(value, int | float | str) and not isinstance(value, bool))


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _read(default: Any, text: str) -> Any:
    """A text as a value of the kind of the default. Raises: ValueError."""
    return text.split() if isinstance(default, list) else type(default)(text)
