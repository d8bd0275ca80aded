"""Text from a language model: one token after another, drawn from its logits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad.errors import (
    ArgumentError,
    MissingDependencyError,
    NonFiniteError,
    OutOfRangeError,
    explained,
)

from .cache import KVCache
from .initialisers import Seed, generator
from .linear import check_sizes
from .mask import padded_rows
from .module import Module

__all__ = ["generate"]

STOPPED = -1  # in place of the token of a row that has stopped
CACHE_COLUMNS = 32  # caches are rounded up to it, so that prompts of about one length share a step


@explained
def generate(
    model: Module,
    tokens: NDArray[np.integer] | Sequence[int] | Sequence[Sequence[int]],
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
        temperature: 0, the default, takes the likeliest token, whatever top_k and top_p are; else
            softmax(logits / temperature) is drawn from.
        top_k: draw from the k likeliest only.  top_p: from the fewest whose probabilities reach p.
        stop: a token, or several, after which a row ends; the token itself is still yielded. Unless
            given, those that a checkpoint names as its end (`eos_token_id`); () for none.
        rng: draws; a Generator, a seed, or None for fresh entropy.
    Yields:  an integer; of several rows an array (B,), −1 where a row has stopped.
    Raises:  ArgumentError for an encoder, which writes no text, an empty prompt, more tokens than
             the model has positions for, or a setting out of its range; OutOfRangeError for a token
             that the model does not have; NonFiniteError, at the token, for logits that are NaN.

    >>> from layers import LanguageModel
    >>> model = LanguageModel(n_tokens=11, d_model=6, n_heads=3, n_layers=2, max_len=9, rng=0)
    >>> first = list(generate(model, [3, 1, 4], max_new=5))
    >>> both = np.stack(list(generate(model, [[3, 1, 4], [1, 5]], max_new=5)), axis=1)
    >>> both.shape, both[0].tolist() == first
    ((2, 5), True)
    """
    _check_model(model)
    draw = Draw(temperature, top_k, top_p, generator(rng))
    is_single = not len(tokens) or np.ndim(tokens[0]) == 0
    rows = [np.asarray(row) for row in ([tokens] if is_single else tokens)]
    stop = getattr(model, "end_tokens", ()) if stop is None else stop
    ends = [stop] if isinstance(stop, int | np.integer) else list(stop)
    _check_tokens(model, rows, ends, max_new)
    steps = _continued(model, rows, max_new, draw, ends)
    return (int(step[0]) for step in steps) if is_single else steps


def _check_model(model: Module) -> None:
    """Raise ArgumentError for a model that has no decoder, or that holds a part of one."""
    if not hasattr(getattr(model, "decoder", None), "blocks"):
        raise ArgumentError(
            f"generate: {type(model).__name__} has no decoder.blocks, so it writes no text; an "
            "encoder only reads it"
        )
    for block in model.decoder.blocks:
        if not hasattr(block.attention, "window"):
            raise ArgumentError(
                f"generate: a block has a {type(block.attention).__name__}, and decoding needs "
                "attention that takes a KVCache, as MultiHeadAttention does"
            )


def _check_tokens(model: Module, rows: list[NDArray[Any]], stop: list[int], max_new: int) -> None:
    check_sizes("generate", max_new=max_new)
    if any(row.ndim != 1 or row.dtype.kind not in "iu" or not row.size for row in rows):
        raise ArgumentError("generate: tokens must be integers, at least one in each row")
    n = len(model.embedding.W) if hasattr(model, "embedding") else np.inf
    strange = [int(token) for row in rows for token in row if not 0 <= token < n]
    if strange:
        raise OutOfRangeError(f"generate: tokens must lie in [0, {n}), got {strange[0]}")
    if not all(isinstance(token, int | np.integer) for token in stop):
        raise ArgumentError(f"generate: stop must be a token or several, as integers, got {stop}")
    positions = getattr(model, "position_embedding", None)
    needed = max(row.size for row in rows) + max_new - 1
    if positions is not None and needed > len(positions.P):
        raise ArgumentError(
            f"generate: the model has {len(positions.P)} positions, the prompt and max_new need "
            f"{needed}"
        )


def _continued(
    model: Module,
    rows: list[NDArray[Any]],
    max_new: int,
    draw: Draw,
    stop: list[int],
) -> Iterator[NDArray[np.integer]]:
    prompt, lengths = padded_rows(rows)
    session = _session(model, len(rows), prompt.shape[1] + max_new)
    try:
        logits = session.read(prompt, lengths)
        running = np.ones(len(rows), dtype=bool)
        for k in range(max_new):
            token = np.where(running, draw(logits), STOPPED)
            yield token
            running = running & ~np.isin(token, stop)
            if k + 1 == max_new or not running.any():
                break
            with mg.no_grad():
                arguments = np.maximum(token, 0).reshape(-1, 1), (lengths + k).reshape(-1, 1)
                logits = session.step(*arguments).numpy()[:, 0]
    finally:  # also where the caller stops before the last token
        if isinstance(model, Module) and not getattr(session.step, "reasons", ()):
            model._sessions["last"] = session


def _session(model: Module, rows: int, columns: int) -> DecodingSession:
    """The session that an earlier call left behind, if its size and form are those needed; or a
    new one.

    A call takes it out of the model until it ends, so two calls that take turns have one each.
    """
    dtype = model.parameters()[0].dtype if isinstance(model, Module) else None
    size = rows, CACHE_COLUMNS * -(-columns // CACHE_COLUMNS), dtype
    kept: DecodingSession | None = getattr(model, "_sessions", {}).pop("last", None)
    if kept is not None and kept.size == size and kept.form == _form(model):
        return kept
    return DecodingSession(model, size)


def _form(model: Module) -> list[tuple[Module, int | None, list[tuple[int, ...]]]]:
    """What caches are made for: the attention layers, their windows and sizes. What else changes in
    a model is followed by the compiled step itself.
    """
    layers = [block.attention for block in model.decoder.blocks]
    return [(x, x.window, [p.shape for p in x.parameters()]) for x in layers]


class DecodingSession:
    """Caches of a fixed size, and the step that is compiled over them.

    size: rows, columns of the caches, the model's dtype.
    """

    def __init__(self, model: Module, size: tuple[int, int, np.dtype[Any] | None]) -> None:
        self.model = model
        self.size = size
        self.form = _form(model)
        blocks = model.decoder.blocks
        caches = [KVCache(window=b.attention.window, max_len=size[1]) for b in blocks]

        def step(token: Any, at: Any) -> Any:
            for cache in caches:
                cache.at = at
            return model(token, cache=caches)

        self.caches = caches
        self.step: Callable[..., Any] = step
        with suppress(MissingDependencyError):  # where minigrad/fast is missing or off
            self.step = mg.compile(step)

    def read(self, prompt: NDArray[np.intp], lengths: NDArray[np.intp]) -> NDArray[Any]:
        """The logits of each row's last token, (B, V), once the caches have read the prompt."""
        for cache in self.caches:
            cache.at = cache.lengths = None
        with mg.no_grad():
            logits = self.model(prompt, cache=self.caches).numpy()
        for cache in self.caches:
            cache.crop(lengths)
            cache.lengths = None  # from now on `at` counts
        return np.asarray(logits[np.arange(len(prompt)), lengths - 1])


@dataclass
class Draw:
    """A token for each row of logits."""

    temperature: float
    top_k: int | None
    top_p: float | None
    rng: np.random.Generator

    def __post_init__(self) -> None:
        if self.top_k is not None:
            check_sizes("generate", top_k=self.top_k)
        if not self.temperature >= 0:
            raise ArgumentError(f"generate: temperature must be 0 or more, got {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ArgumentError(f"generate: top_p must lie in (0, 1], got {self.top_p}")

    def __call__(self, logits: NDArray[Any]) -> NDArray[Any]:
        highest = logits.max(axis=-1, keepdims=True)
        if not np.isfinite(highest).all():
            raise NonFiniteError(
                "generate: the model's logits are NaN or infinite, so no token is the likeliest; "
                "has its training diverged?"
            )
        if not self.temperature or self.top_k == 1:
            return np.asarray(logits.argmax(axis=-1))
        with np.errstate(over="ignore"):  # a tiny temperature leaves only the likeliest
            z = (logits.astype(np.float64) - highest) / self.temperature
        tokens, row = np.broadcast_to(np.arange(z.shape[1]), z.shape), np.arange(len(z))[:, None]
        if self.top_k is not None and self.top_k < z.shape[1]:
            tokens = np.argpartition(z, -self.top_k, axis=-1)[:, -self.top_k :]
            z = z[row, tokens]
        p = np.exp(z)
        if self.top_p is not None:
            order = np.argsort(-p, axis=-1, kind="stable")  # the likeliest first
            p, tokens = p[row, order], tokens[row, order]
            p /= p.sum(axis=-1, keepdims=True)
            p[np.cumsum(p, axis=-1) - p >= self.top_p] = 0
        ends = np.cumsum(p, axis=-1)
        drawn = self.rng.random(len(p)) * ends[:, -1]
        rank = np.sum(ends <= drawn[:, None], axis=-1, keepdims=True)
        return np.asarray(tokens[row, rank][:, 0])
