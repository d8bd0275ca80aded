"""A function, the changes of its run, their undo, and the page of the run that they give."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from traceback import print_exc
from typing import Any, NamedTuple

import numpy as np

from ..engine.errors import ArgumentError, MinigradError
from ..views import words
from ..views.ledger import shown_ledgers
from ..views.page import content
from .run import Edit, LossFunction, Run, run_loss

__all__ = ["PlaySession"]


class Change(NamedTuple):
    """A change in words, what it puts where, and other arguments of the function."""

    text: str
    edits: Sequence[Edit] = ()
    arguments: Mapping[str, Any] = {}


class PlaySession:
    """Answers what a page asks; a change that fails is left out, and the page hears why.

    Raises: ArgumentError if the function returns no loss.
    """

    def __init__(self, source: LossFunction) -> None:
        self.source = source
        self.changes: list[Change] = []
        parameters = inspect.signature(source.function).parameters.values()
        self.defaults = {p.name: p.default for p in parameters if _is_plain(p.default)}
        self.run = self._run([])

    def _run(self, changes: Sequence[Change]) -> Run:
        start = perf_counter()
        edits = [edit for change in changes for edit in change.edits]
        run = run_loss(self.source, _arguments(changes), edits)
        self.milliseconds = 1000 * (perf_counter() - start)
        return run

    # ------------------------------------------------------------------ what the page asks

    def content(self) -> dict[str, Any]:
        """The page's data, and what can be changed."""
        arguments = self.defaults | _arguments(self.changes)
        title = self.source.title
        tokens = self.source.tokens
        if tokens:
            for name, default in self.defaults.items():
                if default == tokens:  # positions are named by the words of the run
                    tokens = arguments[name]
            title += f": {' '.join(tokens)}"
        shown = content(self.run.record, tokens=tokens, title=title, live=True)
        shown["play"] = {
            "changes": [change.text for change in self.changes],
            "arguments": [[name, _text(x)] for name, x in arguments.items()],
            "milliseconds": round(self.milliseconds),
        }
        return shown

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The page after a change, or why it was not made; or ledgers, where it asks why."""
        try:
            if asked.get("do") == "why":
                wanted = int(asked["entry"]), asked.get("index")
                return {"ledgers": shown_ledgers(self.run.record, [wanted])}
            changes = self._changed(asked)
            self.run = self._run(changes)
            self.changes = changes
            return self.content()
        except Exception as error:
            if not isinstance(error, MinigradError | LookupError | TypeError | ValueError):
                print_exc()  # the terminal says where
            first = str(error).partition("\n")[0] or type(error).__name__
            return {"error": words.one_line(first, 300)}

    def _changed(self, asked: dict[str, Any]) -> list[Change]:
        """The changes with one more, or with fewer. Raises: ArgumentError if that cannot be."""
        run = self.run
        entry = run.record.entries[int(asked.get("entry", 0))]
        name = str(asked.get("input") or asked.get("name", ""))
        label = words.label(entry)
        match asked:
            case {"do": "undo"}:
                return self.changes[:-1]
            case {"do": "reset"}:
                return []
            case {"do": "argument", "value": text}:
                kind = type(self.defaults[name])
                value = str(text).split() if kind is list else kind(text)
                text = f"{name} = {words.one_line(_text(value), 60)}"
                change = Change(text, arguments={name: value})
            case {"do": "step", "lr": lr}:
                change = self._step(float(lr))
            case {"do": "set", "flat": int(flat), "value": text}:
                value = float(text)
                index = [*map(int, np.unravel_index(flat, entry.shape))]
                edit = run.edit(entry, value, slice(flat, flat + 1))
                change = Change(f"{label}{index} = {value:g}", [edit])
            case {"do": "cut", "input": _}:
                edit = Edit(run.numbers[entry.id], name, cut=True)
                change = Change(f"{label} without {name}", [edit])
            case {"do": "cut"}:
                change = Change(f"{label} = 0", [run.edit(entry)])
            case {"do": "setting", "value": text}:
                known = entry.settings[name]
                value = type(known)(float(text)) if isinstance(known, int | float) else text
                edit = Edit(run.numbers[entry.id], name, value)
                change = Change(f"{label}: {name} = {value}", [edit])
            case _:
                raise ArgumentError(f"a page asks for no {asked}")
        return [*self.changes, change]

    def _step(self, lr: float) -> Change:
        """Parameters, or else other leaves, moved against their gradients."""
        moved = [e for e in self.run.record.entries if e.learns and e.gradient is not None]
        moved = [e for e in moved if e.kind == "parameter"] or moved
        if not moved:
            raise ArgumentError("no leaf has a gradient to step along")
        edits = [self.run.edit(e, e.value - lr * e.gradient) for e in moved]  # type: ignore[operator]
        return Change(f"a step of lr = {lr:g}", edits)


def _arguments(changes: Iterable[Change]) -> dict[str, Any]:
    """The arguments of the function that were changed."""
    return {name: x for change in changes for name, x in change.arguments.items()}


def _is_plain(default: Any) -> bool:
    """Whether an argument can be changed: a number, a text or a list of words."""
    if isinstance(default, list):
        return all(isinstance(word, str) for word in default)
    return isinstance(default, int | float | str) and not isinstance(default, bool)


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
