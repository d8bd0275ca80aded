"""A text through a checkpoint as a source; what is asked is checked before its weights are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import numpy as np

from .. import layers
from ..engine.errors import ArgumentError, MinigradError
from ..playing.run import Guess, Source
from ..views.model_figures import likeliest, quoted
from ..views.plain import of_bytes, one_line
from .sentence import DEFAULT_TEXT

__all__ = ["QUESTION", "Question", "checkpoint", "numbers"]

QUESTION = {"text": DEFAULT_TEXT, "dtype": "float32", "tokens": None, "target": None}
MASKS = ("[MASK]", "<mask>")
BEST = 5  # guesses at a place
pretrained = import_module(".pretrained", layers.__name__)
objectives: Any = import_module(".pretrained.objectives", layers.__name__)
files = import_module(".pretrained.files", layers.__name__)
loading = import_module(".pretrained.loading", layers.__name__)
models = import_module(".pretrained.models", layers.__name__)
load_pretrained = pretrained.load_pretrained


def checkpoint(model: str, **asked: Any) -> Source:
    """A run of the checkpoint in a folder. Raises: ArgumentError, as `Question` does."""
    q = Question(model, **asked)
    wanted = f" of {', '.join(quoted(q.name(i)) for i in q.targets)}" if q.targets else ""
    given = "".join(f", {name}={value!r}" for name, value in asked.items())

    def load() -> Callable[..., Any]:
        function: Callable[..., Any] = q.load()
        if q.text is None:
            return function

        def run(text: str = q.text) -> Any:
            q.read(text)
            made.tokens, made.ids = q.tokens, q.ids
            return function()

        return run

    made = Source(
        load,
        f"{q.kind} {one_line(model, 60)}, {q.objective} loss{wanted}",
        q.tokens,
        q.facts,
        {"model": model, "family": q.kind, "objective": q.objective, "targets": q.targets},
        guesses=q.guesses,
        ids=q.ids,
        logits=lambda: q.logits if q.causal else None,
        python="from minigrad.cli.checkpoint import checkpoint\n\n"
        f"run = checkpoint({model!r}{given}).load()",
    )
    return made


class Question:
    """Token ids (B, n), their names, the loss that the checkpoint offers first, and its target.

    Raises: ArgumentError, in the words of the command line, for what cannot be.
    """

    def __init__(self, model: str, **asked: Any) -> None:
        a, by_ids = QUESTION | asked, "tokens" in asked
        if by_ids and "text" in asked:
            raise ArgumentError("--tokens takes the place of --text: give one of them")
        if a["target"] == "":
            raise ArgumentError("--target holds no token")
        self.model, self.dtype = model, np.dtype(a["dtype"])
        with _refusals():
            self.folder = files.open_folder(model)
            self.family, self.settings = loading.read_settings(self.folder)
        self.config = self.folder.json("config.json")
        self.logits: Any = None
        with suppress(MinigradError) if by_ids else _refusals("; --tokens 1,2,3 takes ids"):
            self.tokenizer: Any = None
            self.tokenizer = models.tokenizer_of(self.folder)
        self.target = a["target"]
        self.text = None if by_ids else a["text"]
        first = self._ids("--tokens", a["tokens"]) if by_ids else self._text("--text", a["text"])
        self._take(first)

    def read(self, text: str) -> None:
        """Take another text. Raises: ArgumentError, and then all is as it was."""
        before = dict(vars(self))
        try:
            self._take(self._text("--text", text))
        except ArgumentError:
            vars(self).update(before)
            raise

    def _take(self, first: list[int]) -> None:
        """The tokens' ids and names, the loss that is taken, where tokens are guessed."""
        rows, self.objective = [first], self._objective(first)
        if self.objective == "similarity":
            if not self.target:
                said = f"write {MASKS[0]} in --text where it is to guess, or " * self._can_guess
                said += "give --target, a second text to compare with"
                raise ArgumentError(f"{self.kind} of {one_line(self.model, 60)}: {said}")
            rows.append(self._text("--target", self.target))
        longest = max(map(len, rows))
        self.ids = np.array([row + [0] * (longest - len(row)) for row in rows])  # (B, n)
        self.names = [[self.name(i) for i in row] for row in rows]
        self.places, self.targets = self._goal(first, self.target)
        self._check_sizes()

    @property
    def tokens(self) -> list[list[str]] | None:
        """Names of the positions; none where they would name two texts of one length."""
        width = self.ids.shape[1]
        if self.writes and len(self.targets) == width:
            return None
        return [row + ["(padding)"] * (width - len(row)) for row in self.names]

    @property
    def kind(self) -> str:
        return str(self.config["model_type"])

    @property
    def causal(self) -> bool:
        """Whether it guesses at each next token."""
        return bool(self.family.model == "PretrainedLanguageModel")

    @property
    def writes(self) -> bool:
        """Whether it writes a text for the one that it reads."""
        return "n_decoder_layers" in self.settings

    def _objective(self, ids: list[int]) -> str:
        """The loss that is taken: tokens are guessed where the checkpoint can and the text asks."""
        if self.writes or self.causal:
            return "next-token"
        return "masked" if self._can_guess and self._masked(ids) else "similarity"

    @property
    def _can_guess(self) -> bool:
        return "head" in self.settings.get("heads", ())

    def _masked(self, ids: list[int]) -> list[int]:
        """Where the text has a mask."""
        masks = [self.tokenizer.token_to_id(m) for m in MASKS] if self.tokenizer else []
        return [k for k, i in enumerate(ids) if i in masks]

    @property
    def pooled(self) -> bool:
        """Whether the checkpoint says what a sentence's vector is; else it is the tokens' mean."""
        return "1_Pooling/config.json" in self.folder.files

    @property
    def facts(self) -> list[str]:
        found = [" and ".join(f"{n} token{'s' * (n > 1)}" for n in map(len, self.names))]
        found.append(self.dtype.name)
        if self.objective == "similarity" and not self.pooled:
            mean = "a text's vector is the mean of its tokens'"
            found.append(f"{mean}, as there is no 1_Pooling/config.json")
        return found

    # ---------------------------------------------------------------- tokens

    def name(self, i: int) -> str:
        """How a token is written: its text, or its number."""
        if self.tokenizer is None:
            return str(i)
        text = str(self.tokenizer.decode([i], skip_special_tokens=False))
        whole = text and "\N{REPLACEMENT CHARACTER}" not in text
        return text if whole else str(self.tokenizer.id_to_token(i) or i)

    def _ids(self, option: str, text: str) -> list[int]:
        return numbers(option, text, self.settings["n_tokens"], "tokens")

    def _text(self, option: str, text: str) -> list[int]:
        if self.tokenizer is None:
            return self._ids(option, text)
        found = list(self.tokenizer.encode(text).ids)
        if not text.strip() or not found:
            raise ArgumentError(f"{option} holds no token: give at least one word")
        return found

    def _goal(self, ids: list[int], target: str | None) -> tuple[list[int], list[int]]:
        """Where tokens are guessed, and which they should be: none where the model chooses."""
        places, words = [len(ids) - 1], [target] if target else []
        if self.objective == "similarity":
            return [], []
        if self.writes:
            wanted = self._text("--target", target) if target else []
            return [max(len(wanted) - 1, 0)], wanted
        if self.objective == "masked":
            places = self._masked(ids)
            words = target.split() if target and len(places) > 1 else words
        if words and len(words) != len(places):
            said = f"--text has {len(places)} masks, --target {len(words)} words"
            raise ArgumentError(f"{said}: give one token for each")
        if len(ids) < 2 and not words and self.objective == "next-token":
            raise ArgumentError("--text has 1 token: a next one needs two, or give it as --target")
        return places, [self._token(word) for word in words]

    def _token(self, text: str) -> int:
        """The one token of a text. Raises: ArgumentError if it is none, or several."""
        if self.tokenizer is None:
            return self._ids("--target", text)[0]
        found, said = self.tokenizer.encode(text, add_special_tokens=False), one_line(text, 40)
        unknown = getattr(self.tokenizer.model, "unk_token", None)
        if not found.ids or found.tokens[0] == unknown:
            raise ArgumentError(f"--target {said!r} is no token of this tokenizer")
        if len(found.ids) > 1:
            parts = ", ".join(repr(one_line(self.name(i), 20)) for i in found.ids[:6])
            said = f"--target {said!r} is {len(found.ids)} tokens, {parts}"
            raise ArgumentError(f"{said}: give one of them (a blank before a word counts)")
        return int(found.ids[0])

    # ---------------------------------------------------------------- sizes

    def _check_sizes(self) -> None:
        """Raise ArgumentError for tokens, a length or a need of memory that cannot be."""
        most, n = self.settings["n_tokens"], self.ids.shape[1]
        if (largest := max(*self.ids.flat, *self.targets, 0)) >= most:
            raise ArgumentError(f"token {largest} is beyond the model's {most:,}")
        context = self.settings.get("max_len") or self.config.get("max_position_embeddings")
        if context and n > context:
            raise ArgumentError(f"--text has {n:,} tokens; the model's context holds {context:,}")
        needs, has = self.bytes_needed(), memory()
        if has and needs > has:
            raise ArgumentError(
                f"{n:,} tokens need about {of_bytes(needs)} of memory, this machine has "
                f"{of_bytes(has)}: give a shorter --text"
            )

    def bytes_needed(self) -> int:
        """About how much the run holds: weights, their copies and gradients, and every value."""
        s, (rows, n) = self.settings, self.ids.shape
        weights, embedding = self.folder.n_entries, s["n_tokens"] * s["d_model"]
        of_weights = 3 * weights + 5 * embedding
        of_block = 10 * s["n_heads"] * n * n + n * (28 * s["d_model"] + 8 * s["d_ff"])
        of_logits = 8 * n * s["n_tokens"] * (self.objective != "similarity")
        of_text = of_block * s["n_layers"] + of_logits
        return int(self.dtype.itemsize * (of_weights + rows * of_text))

    # ---------------------------------------------------------------- the run

    def load(self) -> Any:
        """What runs the model once it is loaded, and gives the loss."""
        with _refusals():
            model = load_pretrained(self.model, self.dtype)
        for _, part in model.named_modules():
            if hasattr(part, "method"):
                part.method = "exact"  # every step a node

        def run() -> Any:
            loss, out = self._ask(model)
            self.logits = out.numpy()
            return loss

        return run

    def guesses(self) -> list[Guess]:
        """The likeliest tokens at each place, and the one that was wanted there."""
        wanted = dict(zip(self.places[::-1], self.targets[::-1], strict=False))
        return [
            (self._place(k), likeliest(self.logits[0, k], self.name, BEST, wanted.get(k)))
            for k in self.places
        ]

    def _place(self, place: int) -> str:
        names = ["(start)", *map(self.name, self.targets)] if self.writes else self.names[0]
        before = " ".join(map(quoted, names[max(place - 3, 0) : place + 1]))
        return f"likeliest {'at' if self.objective == 'masked' else 'after'} {before}"

    def _ask(self, model: Any) -> Any:
        """The loss, and the logits or vectors it came from."""
        if self.objective == "similarity":
            return objectives.similarity(model, self.ids, [*map(len, self.names)], self.pooled)
        if self.objective == "masked":
            return objectives.masked(model, self.ids, self.places, self.targets)
        if self.writes:
            return objectives.written(model, self.ids, self.targets)
        return objectives.next_token(model, self.ids, *self.targets)


def numbers(option: str, text: str, most: int, what: str) -> list[int]:
    """The numbers in 0,3,8-11. Raises: ArgumentError.

    >>> numbers("--tokens", "0,2-4", 6, "tokens")
    [0, 2, 3, 4]
    """
    found = list[int]()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+))?\s*", part, re.ASCII)
        if match is None:
            raise ArgumentError(f"{option} must be numbers such as 0,3,8-11, got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < most:
            raise ArgumentError(f"{option} {part}: the model's {what} are 0 to {most - 1:,}")
        found += range(first, last + 1)
    return found


def memory() -> int:
    """Bytes of this machine's memory; 0 where they cannot be known."""
    with suppress(AttributeError, OSError, ValueError):
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 0


@contextmanager
def _refusals(more: str = "") -> Iterator[None]:
    """What is wrong with a checkpoint, in one line of the command's."""
    try:
        yield
    except MinigradError as error:
        lines = str(error).removeprefix("load_pretrained: ").splitlines()
        left = [f"and {len(lines) - 3} more"] if len(lines) > 3 else []
        said = "; ".join([*map(str.strip, lines[:3]), *left])
        raise ArgumentError(f"--model: {said}{more}") from error
