"""Losses of a model on a text, each with the logits or vectors that it is computed from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad import Tensor

from ..mask import padding_mask
from ..transformer import LanguageModel
from .encoders import TextEncoder
from .text_to_text import TextToText

__all__ = ["masked", "next_token", "similarity", "written"]


def next_token(
    model: LanguageModel, tokens: NDArray[np.integer], target: int | None = None
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each next token, or of a target after the last.

    Shapes: tokens (B, n) → loss (), logits (B, n, n_tokens)
    """
    logits = model(tokens)
    with mg.scope("loss"):
        if target is None:
            return mg.cross_entropy(logits[:, :-1], tokens[:, 1:]).named("loss"), logits
        return mg.cross_entropy(logits[:, -1], np.full(len(tokens), target)).named("loss"), logits


def written(
    model: TextToText, tokens: NDArray[np.integer], targets: Sequence[int] = ()
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the answer that a TextToText should write, or of its own first guess.

    Shapes: tokens (1, n), targets m → loss (), logits (1, m, n_tokens)
    """
    logits = model(tokens, np.array([[model.start, *targets[:-1]]]))
    with mg.scope("loss"):
        expected = np.array([targets]) if targets else logits.numpy().argmax(-1)
        return mg.cross_entropy(logits, expected).named("loss"), logits


def masked(
    model: TextEncoder,
    tokens: NDArray[np.integer],
    places: Sequence[int],
    targets: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the tokens at some places, or of the model's own guesses there.

    Shapes: tokens (1, n) → loss (), logits (1, n, n_tokens)
    """
    logits = model.logits(model(tokens))
    with mg.scope("loss"):
        masked_logits = logits[0, np.array(places)]  # (places, n_tokens)
        expected = np.array(targets) if targets else masked_logits.numpy().argmax(-1)
        return mg.cross_entropy(masked_logits, expected).named("loss"), logits


def similarity(
    model: TextEncoder, tokens: NDArray[np.integer], lengths: Sequence[int], pooled: bool
) -> tuple[Tensor, Tensor]:
    """1 − cos of two texts' vectors, (2, d_model): the checkpoint's, or means of their tokens'."""
    if pooled:
        s = model.sentence(tokens, lengths)
    else:
        X = model(tokens, padding_mask(lengths, dtype=model.embedding.W.dtype))  # (2, n, d_model)
        s = mg.stack([mg.mean(X[row, :n], axis=0) for row, n in enumerate(lengths)])
    with mg.scope("loss"):
        norms = mg.sqrt(mg.sum(s * s, axis=-1))
        cosine = (mg.sum(s[0] * s[1]) / (norms[0] * norms[1])).named("cosine")
        return (1 - cosine).named("loss"), s
