"""A text through a checkpoint as a source; all options are checked before its weights are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import layers
from ..engine.errors import ArgumentError, MinigradError
from ..engine.tensor import Tensor
from ..playing.run import Guess, Source
from ..views.model_figures import likeliest, quoted
from ..views.plain import of_bytes, one_line
from .sentence import DEFAULT_TEXT

if TYPE_CHECKING:
    from layers.pretrained import encoders, files, load_pretrained, loading, models, objectives
else:
    encoders, files, loading, models, objectives = (
        import_module(f".pretrained.{name}", layers.__name__)
        for name in ("encoders", "files", "loading", "models", "objectives")
    )
    load_pretrained = loading.load_pretrained

__all__ = ["CheckpointRun", "checkpoint", "numbers"]

MASKS = ("[MASK]", "<mask>")
MOST_GUESSES = 5  # at a place


def checkpoint(model: str, **options: str) -> Source:
    """A run of the checkpoint in a folder. Raises: ArgumentError, as `CheckpointRun` does."""
    run = CheckpointRun(model, **options)
    task = run.task
    targets = f" of {', '.join(quoted(run.name(i)) for i in task.targets)}" if task.targets else ""
    arguments = "".join(f", {name}={value!r}" for name, value in options.items())

    def load() -> Callable[..., Tensor]:
        loss = run.load()
        if run.text is None:
            return loss

        def loss_of_text(text: str = run.text) -> Tensor:
            run.task = run.task_of(run.ids_of_text("--text", text))
            source.tokens = run.tokens
            source.ids = run.task.ids
            return loss()

        return loss_of_text

    known: dict[str, Any] = {"model": model, "family": run.family_name}
    known |= {"objective": task.objective, "targets": task.targets}
    source = Source(
        load,
        f"{run.family_name} {one_line(model, 60)}, {task.objective} loss{targets}",
        run.tokens,
        run.facts,
        known,
        guesses=run.guesses,
        ids=task.ids,
        logits=lambda: run.logits if run.is_causal else None,
        python="from minigrad.cli.checkpoint import checkpoint\n\n"
        f"run = checkpoint({model!r}{arguments}).load()",
    )
    return source


class Task(NamedTuple):
    """A text and what is computed of it.

    objective: the loss: "next-token", "masked" or "similarity".  ids: of its tokens, (B, n).
    names: of the tokens of each row.  places: where tokens are guessed.  targets: the tokens that
        they should be; none where the model's own guesses are taken.
    """

    objective: str
    ids: NDArray[np.intp]
    names: list[list[str]]
    places: list[int]
    targets: list[int]


class CheckpointRun:
    """A checkpoint, and the task that its text and the target set.

    Raises: ArgumentError, in the words of the command line, for options that do not fit.
    """

    def __init__(
        self,
        model: str,
        *,
        text: str | None = None,
        dtype: str = "float32",
        tokens: str | None = None,
        target: str | None = None,
    ) -> None:
        if tokens is not None and text is not None:
            raise ArgumentError("--tokens takes the place of --text: give one of them")
        if target == "":
            raise ArgumentError("--target holds no token")
        self.model = model
        self.dtype = np.dtype(dtype)
        self.target = target
        self.text = (DEFAULT_TEXT if text is None else text) if tokens is None else None
        with _refusals():
            self.folder = files.open_folder(model)
            self.family, self.settings = loading.read_settings(self.folder)
        self.config = self.folder.json("config.json")
        self.family_name = str(self.config["model_type"])
        self.is_causal = self.family.model == "PretrainedLanguageModel"  # guesses each next token
        self.answers = "n_decoder_layers" in self.settings  # writes a text for the one it reads
        self.tokenizer: Any = None
        self.logits: Any = None
        optional = suppress(MinigradError)  # with --tokens a tokenizer only names the ids
        with _refusals("; --tokens 1,2,3 takes ids") if tokens is None else optional:
            self.tokenizer = models.tokenizer_of(self.folder)
        if self.text is None:
            first = self._ids("--tokens", tokens or "")
        else:
            first = self.ids_of_text("--text", self.text)
        self.task = self.task_of(first)

    def task_of(self, first: list[int]) -> Task:
        """What is computed of a text of these tokens, and of the target."""
        rows = [first]
        objective = self._objective(first)
        if objective == "similarity":
            if not self.target:
                hint = f"write {MASKS[0]} in --text where it is to guess, or " * self._has_head
                hint += "give --target, a second text to compare with"
                raise ArgumentError(f"{self.family_name} of {one_line(self.model, 60)}: {hint}")
            rows.append(self.ids_of_text("--target", self.target))
        longest = max(map(len, rows))
        ids = np.array([row + [0] * (longest - len(row)) for row in rows])  # (B, n)
        names = [[self.name(i) for i in row] for row in rows]
        task = Task(objective, ids, names, *self._goal(objective, first))
        self._check_sizes(task)
        return task

    @property
    def tokens(self) -> list[list[str]] | None:
        """Names of the positions; none where they would name two texts of one length."""
        width = self.task.ids.shape[1]
        if self.answers and len(self.task.targets) == width:
            return None
        return [row + ["(padding)"] * (width - len(row)) for row in self.task.names]

    @property
    def facts(self) -> list[str]:
        counts = " and ".join(f"{n} token{'s' * (n > 1)}" for n in map(len, self.task.names))
        facts = [counts, self.dtype.name]
        if self.task.objective == "similarity" and encoders.POOLING not in self.folder.files:
            facts.append(
                f"a text's vector is the mean of its tokens', as there is no {encoders.POOLING}"
            )
        return facts

    def _objective(self, ids: list[int]) -> str:
        """The loss that is taken: tokens are guessed where the checkpoint can and the text asks."""
        if self.answers or self.is_causal:
            return "next-token"
        return "masked" if self._has_head and self._masked(ids) else "similarity"

    @property
    def _has_head(self) -> bool:
        return "head" in self.settings.get("heads", ())

    def _masked(self, ids: list[int]) -> list[int]:
        """Where the text has a mask."""
        masks = [self.tokenizer.token_to_id(m) for m in MASKS] if self.tokenizer else []
        return [k for k, i in enumerate(ids) if i in masks]

    # ---------------------------------------------------------------- tokens

    def name(self, i: int) -> str:
        """How a token is written: its text, or its number."""
        if self.tokenizer is None:
            return str(i)
        text = str(self.tokenizer.decode([i], skip_special_tokens=False))
        is_whole = text and "\N{REPLACEMENT CHARACTER}" not in text
        return text if is_whole else str(self.tokenizer.id_to_token(i) or i)

    def _ids(self, option: str, text: str) -> list[int]:
        return numbers(option, text, self.settings["n_tokens"])

    def ids_of_text(self, option: str, text: str) -> list[int]:
        if self.tokenizer is None:
            return self._ids(option, text)
        ids = list(self.tokenizer.encode(text).ids)
        if not text.strip() or not ids:
            raise ArgumentError(f"{option} holds no token: give at least one word")
        return ids

    def _goal(self, objective: str, ids: list[int]) -> tuple[list[int], list[int]]:
        """Where tokens are guessed, and which they should be: none where the model chooses."""
        if objective == "similarity":
            return [], []
        if self.answers:
            targets = self.ids_of_text("--target", self.target) if self.target else []
            return [max(len(targets) - 1, 0)], targets
        places = self._masked(ids) if objective == "masked" else [len(ids) - 1]
        words = [self.target] if self.target else []
        if self.target and objective == "masked" and len(places) > 1:
            words = self.target.split()
        if words and len(words) != len(places):
            counts = f"--text has {len(places)} masks, --target {len(words)} words"
            raise ArgumentError(f"{counts}: give one token for each")
        if len(ids) < 2 and not words and objective == "next-token":
            raise ArgumentError("--text has 1 token: a next one needs two, or give it as --target")
        return places, [self._token(word) for word in words]

    def _token(self, text: str) -> int:
        """The one token of a text. Raises: ArgumentError if it is none, or several."""
        if self.tokenizer is None:
            return self._ids("--target", text)[0]
        found = self.tokenizer.encode(text, add_special_tokens=False)
        shown = repr(one_line(text, 40))
        unknown = getattr(self.tokenizer.model, "unk_token", None)
        if not found.ids or found.tokens[0] == unknown:
            raise ArgumentError(f"--target {shown} is no token of this tokenizer")
        if len(found.ids) > 1:
            parts = ", ".join(repr(one_line(self.name(i), 20)) for i in found.ids[:6])
            raise ArgumentError(
                f"--target {shown} is {len(found.ids)} tokens, {parts}: give one of them (a blank "
                "before a word counts)"
            )
        return int(found.ids[0])

    # ---------------------------------------------------------------- sizes

    def _check_sizes(self, task: Task) -> None:
        """Raise ArgumentError for a token, a length or a need of memory that is too large."""
        n_tokens, n = self.settings["n_tokens"], task.ids.shape[1]
        if (largest := max(*task.ids.flat, *task.targets, 0)) >= n_tokens:
            raise ArgumentError(f"token {largest} is beyond the model's {n_tokens:,}")
        context = self.settings.get("max_len") or self.config.get("max_position_embeddings")
        if context and n > context:
            raise ArgumentError(f"--text has {n:,} tokens; the model's context holds {context:,}")
        needs, has = self._bytes_needed(task), memory()
        if has and needs > has:
            raise ArgumentError(
                f"{n:,} tokens need about {of_bytes(needs)} of memory, this machine has "
                f"{of_bytes(has)}: give a shorter --text"
            )

    def _bytes_needed(self, task: Task) -> int:
        """About how much the run holds: weights, their copies and gradients, and every value."""
        s, (rows, n) = self.settings, task.ids.shape
        of_weights = 3 * self.folder.n_entries + 5 * s["n_tokens"] * s["d_model"]
        of_block = 10 * s["n_heads"] * n * n + n * (28 * s["d_model"] + 8 * s["d_ff"])
        of_logits = 8 * n * s["n_tokens"] * (task.objective != "similarity")
        of_text = of_block * s["n_layers"] + of_logits
        return int(self.dtype.itemsize * (of_weights + rows * of_text))

    # ---------------------------------------------------------------- the run

    def load(self) -> Callable[[], Tensor]:
        """The model's loss of the task, once the model is loaded."""
        with _refusals():
            model = load_pretrained(self.model, self.dtype)
        for _, part in model.named_modules():
            if hasattr(part, "method"):
                part.method = "exact"  # every step a node

        def run() -> Tensor:
            loss, out = self._loss(model)
            self.logits = out.numpy()
            return loss

        return run

    def guesses(self) -> list[Guess]:
        """The likeliest tokens at each place, and the target there."""
        task = self.task
        targets = dict(zip(task.places[::-1], task.targets[::-1], strict=False))
        best = partial(likeliest, name=self.name, most=MOST_GUESSES)
        return [
            (self._place(k), best(self.logits[0, k], target=targets.get(k))) for k in task.places
        ]

    def _place(self, place: int) -> str:
        task = self.task
        names = ["(start)", *map(self.name, task.targets)] if self.answers else task.names[0]
        before = " ".join(map(quoted, names[max(place - 3, 0) : place + 1]))
        return f"likeliest {'at' if task.objective == 'masked' else 'after'} {before}"

    def _loss(self, model: Any) -> tuple[Tensor, Tensor]:
        """The loss, and the logits or vectors it came from."""
        objective, ids, names, places, targets = self.task
        if objective == "similarity":
            lengths = [*map(len, names)]
            return objectives.similarity(model, ids, lengths, encoders.POOLING in self.folder.files)
        if objective == "masked":
            return objectives.masked(model, ids, places, targets)
        if self.answers:
            return objectives.written(model, ids, targets)
        return objectives.next_token(model, ids, *targets)


def numbers(option: str, text: str, count: int) -> list[int]:
    """The numbers in 0,3,8-11, each less than count. Raises: ArgumentError.

    >>> numbers("--tokens", "0,2-4", 6)
    [0, 2, 3, 4]
    """
    found = list[int]()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+))?\s*", part, re.ASCII)
        if match is None:
            raise ArgumentError(f"{option} must be numbers such as 0,3,8-11, got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < count:
            raise ArgumentError(f"{option} {part}: the model's tokens are 0 to {count - 1:,}")
        found += range(first, last + 1)
    return found


def memory() -> int:
    """Bytes of this machine's memory; 0 where they cannot be known."""
    with suppress(AttributeError, OSError, ValueError):
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 0


@contextmanager
def _refusals(hint: str = "") -> Iterator[None]:
    """What is wrong with a checkpoint, in one line of the command's."""
    try:
        yield
    except MinigradError as error:
        lines = str(error).removeprefix("load_pretrained: ").splitlines()
        left = [f"and {len(lines) - 3} more"] if len(lines) > 3 else []
        shown = "; ".join([*map(str.strip, lines[:3]), *left])
        raise ArgumentError(f"--model: {shown}{hint}") from error
