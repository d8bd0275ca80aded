"""What `explain` runs: a function that returns a loss, whatever it is of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Guess", "Source"]

Guess = tuple[str, list[tuple[str, float]]]  # a place, and tokens with their probabilities


@dataclass
class Source:
    """A function that returns a loss, and what is known of it besides.

    Attributes:
        load: the function, once all that it stands in has run.
        title: one line that says what it is.
        tokens: names of the positions, a list for each text.
        facts: what the title leaves unsaid, said beside the loss.
        known: what trace.json holds besides the record, as plain data.
        around: what the run is in, which tells errors of the user's own code.
        guesses: what was guessed where, once it ran.
        ids: the tokens' numbers, (B, n).
        python: statements that define the function, as a program of one's own would have them.
        name: what they call it.
        logits: once it ran, those of each next token, (B, n, n_tokens), if it guesses them.
    """

    load: Callable[[], Callable[[], Any]]
    title: str
    tokens: list[list[str]] | None = None
    facts: list[str] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    guesses: Callable[[], list[Guess]] = list
    ids: Any = None
    logits: Callable[[], Any] = lambda: None
    python: str = ""
    name: str = "run"
