"""Text from a language model: one token after another, drawn from its logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, MissingDependencyError, OutOfRangeError, explained

from .cache import KVCache
from .initialisers import Seed, generator
from .linear import check_sizes
from .module import Module

__all__ = ["generate"]

STOPPED = -1  # what stands for the token of a row that has stopped
CACHE_COLUMNS = 32  # caches are rounded up to it, so that prompts of about one length share a step


@explained
def generate(
    model: Any,
    tokens: NDArray[np.integer],
    max_new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Collection[int] | None = None,
    rng: Seed = None,
) -> Iterator[Any]:
    """The tokens that a model continues with, one by one as they are found.

    The prompt goes in one pass; then each token is one call on a cache of fixed size, compiled at
    the first. Caches and program stay with the model, for the next call of that size. The model is
    read as it is: call `model.eval()` before, if it drops out.

    Args:
        model: a LanguageModel, or any with its forward, and attention layers in `decoder.blocks`;
            or a TextToText, which reads the tokens and writes an answer.
        tokens: a sequence of integers; or several, of any lengths, which go on side by side.
        max_new: how many tokens to yield at most.
        temperature: 0 takes the likeliest token; else softmax(logits / temperature) is drawn from.
        top_k: draw from the k likeliest only.  top_p: from the fewest whose probabilities reach p.
        stop: a token, or several, after which a row ends; the token itself is still yielded. Unless
            given, those that a checkpoint names as its end (`eos_token_id`); () for none.
        rng: draws; a Generator, a seed, or None for fresh entropy.
    Yields:  an integer; of several rows an array (B,), −1 where a row has stopped.
    Raises:  ArgumentError for an encoder, which writes no text, an empty prompt, more tokens than
             the model has positions for, or a setting out of its range; OutOfRangeError for a token
             that the model does not have.

    >>> from layers import LanguageModel
    >>> model = LanguageModel(n_tokens=11, d_model=6, n_heads=3, n_layers=2, max_len=9, rng=0)
    >>> first = list(generate(model, [3, 1, 4], max_new=5))
    >>> both = np.stack(list(generate(model, [[3, 1, 4], [1, 5]], max_new=5)), axis=1)
    >>> both.shape, both[0].tolist() == first
    ((2, 5), True)
    """
    _check_writes(model)
    alone = not len(tokens) or np.ndim(tokens[0]) == 0
    rows = [np.asarray(row) for row in ([tokens] if alone else tokens)]
    lengths = np.array([row.size for row in rows])
    stop = getattr(model, "end_tokens", ()) if stop is None else stop
    ends = [stop] if isinstance(stop, int | np.integer) else list(stop)
    _check(model, rows, lengths, max_new, temperature, top_k, top_p)
    _check_tokens(model, rows, ends)
    if hasattr(model, "writer"):  # it reads these tokens, and writes others
        model, rows = model.writer(rows)
        lengths = np.array([row.size for row in rows])
    draw = Draw(temperature, top_k, top_p, generator(rng))
    found = _continued(model, rows, lengths, max_new, draw, ends)
    return (int(step[0]) for step in found) if alone else found


def _check_writes(model: Any) -> None:
    """Raise ArgumentError for a model that has no decoder, by which text is written."""
    if not hasattr(model, "writer") and not hasattr(getattr(model, "decoder", None), "blocks"):
        raise ArgumentError(
            f"generate: {type(model).__name__} has no decoder.blocks, so it writes no text; an "
            "encoder only reads it: call it for vectors, and its logits or sentence where it has "
            "them, or load a checkpoint of a language model (...ForCausalLM) or of a T5"
        )


def _check(
    model: Any, rows: Any, lengths: Any, max_new: int, temperature: float, top_k: Any, top_p: Any
) -> None:
    if "layout" in vars(model):
        raise ArgumentError(
            "generate: the model holds this rank's part of the logits; gather(model, like) of "
            "layers.parallel makes an ordinary one of it"
        )
    check_sizes("generate", max_new=max_new, **({} if top_k is None else {"top_k": top_k}))
    if not temperature >= 0:
        raise ArgumentError(f"generate: temperature must be 0 or more, got {temperature}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ArgumentError(f"generate: top_p must lie in (0, 1], got {top_p}")
    learned = getattr(model, "position_embedding", None)
    most, wanted = (None if learned is None else len(learned.P)), lengths.max() + max_new - 1
    if most is not None and wanted > most:
        raise ArgumentError(
            f"generate: the model has {most} positions, the prompt and max_new need {wanted}"
        )


def _check_tokens(model: Any, rows: Any, stop: list[Any]) -> None:
    if any(row.ndim != 1 or row.dtype.kind not in "iu" or not row.size for row in rows):
        raise ArgumentError("generate: tokens must be integers, at least one in each row")
    n = len(model.embedding.W) if hasattr(model, "embedding") else np.inf
    strange = [int(token) for row in rows for token in row if not 0 <= token < n]
    if strange:
        raise OutOfRangeError(f"generate: tokens must lie in [0, {n}), got {strange[0]}")
    if not all(isinstance(token, int | np.integer) for token in stop):
        raise ArgumentError(f"generate: stop must be a token or several, as integers, got {stop}")


def _continued(
    model: Any, rows: Any, lengths: Any, max_new: int, draw: Draw, stop: Any
) -> Iterator[NDArray[Any]]:
    padded = np.zeros((len(rows), int(lengths.max())), np.intp)
    for row, given in zip(padded, rows, strict=True):
        row[: given.size] = given
    session = _session(model, len(rows), padded.shape[1] + max_new)
    try:
        logits = session.read(padded, lengths)
        running = np.ones(len(rows), dtype=bool)
        for k in range(max_new):
            token = np.where(running, draw(logits), STOPPED)
            yield token
            running = running & ~np.isin(token, stop)
            if k + 1 == max_new or not running.any():
                break
            with mg.no_grad():
                given = np.maximum(token, 0).reshape(-1, 1), (lengths + k).reshape(-1, 1)
                logits = session.step(*given).numpy()[:, 0]
    finally:  # also where the caller stops before the last token
        if isinstance(model, Module) and not getattr(session.step, "reasons", ()):
            model._sessions["last"] = session


def _session(model: Any, rows: int, columns: int) -> DecodingSession:
    """The one that an earlier call left behind, if it is of the size and form that are needed;
    or a new one.

    Nobody else has it until the call ends: two that take turns have one each.
    """
    dtype = model.parameters()[0].dtype if isinstance(model, Module) else None
    size = rows, CACHE_COLUMNS * -(-columns // CACHE_COLUMNS), dtype
    kept = getattr(model, "_sessions", {}).pop("last", None)  # one thread gets it
    if kept is not None and kept.size == size and kept.form == _form(model):
        return kept
    return DecodingSession(model, size)


def _form(model: Any) -> list[Any]:
    """What caches are made for: the attention layers, their windows and sizes. What else changes in
    a model is followed by the compiled step itself.
    """
    layers = [block.attention for block in model.decoder.blocks]
    return [(x, x.window, [p.shape for p in x.parameters()]) for x in layers]


class DecodingSession:
    """Caches of a fixed size, and the step that is compiled over them."""

    def __init__(self, model: Any, size: tuple[int, int, Any]) -> None:
        self.model = model
        self.size = size
        self.form = _form(model)
        blocks = model.decoder.blocks
        caches = [KVCache(window=b.attention.window, max_len=size[1]) for b in blocks]

        def step(token: Any, at: Any) -> Any:
            for cache in caches:
                cache.at = at
            return model(token, cache=caches)

        self.caches, self.step = caches, step  # type: Any, Any
        with suppress(MissingDependencyError):  # where minigrad/fast is missing or off
            self.step = mg.compile(step)

    def read(self, padded: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
        """The logits of each row's last token, (B, V), once the caches have read the prompt."""
        for cache in self.caches:
            cache.at = cache.lengths = None
        with mg.no_grad():
            logits = self.model(padded, cache=self.caches).numpy()
        for cache in self.caches:
            cache.crop(lengths)
            cache.lengths = None  # from now on `at` counts
        return np.asarray(logits[np.arange(len(padded)), lengths - 1])


@dataclass
class Draw:
    """A token for each row of logits."""

    temperature: float
    top_k: int | None
    top_p: float | None
    rng: np.random.Generator

    def __call__(self, logits: NDArray[Any]) -> NDArray[Any]:
        if not self.temperature or self.top_k == 1:
            return np.asarray(logits.argmax(axis=-1))
        z = logits.astype(np.float64) / self.temperature
        tokens, row = np.broadcast_to(np.arange(z.shape[1]), z.shape), np.arange(len(z))[:, None]
        if self.top_k is not None and self.top_k < z.shape[1]:
            tokens = np.argpartition(z, -self.top_k, axis=-1)[:, -self.top_k :]
            z = z[row, tokens]
        p = np.exp(z - z.max(axis=-1, keepdims=True))
        if self.top_p is not None:
            order = np.argsort(-p, axis=-1, kind="stable")  # the likeliest first
            p, tokens = p[row, order], tokens[row, order]
            p /= p.sum(axis=-1, keepdims=True)
            p[np.cumsum(p, axis=-1) - p >= self.top_p] = 0
        ends = np.cumsum(p, axis=-1)
        drawn = self.rng.random(len(p)) * ends[:, -1]
        rank = np.sum(ends <= drawn[:, None], axis=-1, keepdims=True)
        return np.asarray(tokens[row, rank][:, 0])
