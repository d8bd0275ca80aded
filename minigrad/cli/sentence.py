"""A sentence through one layer as a source: tokens → embedding → layer → loss.

    X = E[ids],    out = layer(X),    logits = out Eᵀ,    loss = cross-entropy(logits, targets)

The weights are drawn, not learned, and nothing tells the layer where a token stands: what is shown
is how the numbers flow, not what a trained model thinks.
"""

from __future__ import annotations

import math
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

import minigrad as mg

from ..engine.errors import ArgumentError
from ..playing.run import Source
from ..views.plain import one_line

__all__ = ["DEFAULTS", "LAYER_DEFAULTS", "Settings", "sentence", "tokenize"]

MULTI_HEAD, SELF_ATTENTION = "multi-head", "self-attention"
DEFAULT_TEXT = "The animal didn't cross the street because it was too tired"
DEFAULTS = {"text": DEFAULT_TEXT, "d_model": 32, "causal": False, "seed": 0, "dtype": "float64"}
LAYER_DEFAULTS: dict[str, dict[str, Any]] = {
    MULTI_HEAD: {"heads": 4, "bias": False},
    SELF_ATTENTION: {"d_k": 8, "d_v": 8, "bias": True},
}
MOST_SCORES = 2**20  # a trace holds about ten arrays of this many entries
MOST_WEIGHTS = 2**26


@dataclass
class Settings:
    """What to run. Raises: ArgumentError, in the words of the command line, for what cannot be."""

    layer: str
    text: str
    d_model: int
    causal: bool
    bias: bool
    seed: int
    dtype: str
    heads: int = 1
    d_k: int = 0  # multi-head: d_model / heads, and so is d_v
    d_v: int = 0

    def __post_init__(self) -> None:
        self.text = decoded(self.text)
        n, heads = len(tokenize(self.text)), self.heads
        if self.layer == MULTI_HEAD:
            rule = f"--heads must divide --d-model, got {heads} and {self.d_model}"
            _require(self.d_model % heads == 0, rule)
            self.d_k = self.d_v = self.d_model // heads
        weights = self.d_model * (n + 2 * heads * (self.d_k + self.d_v))
        most = int((MOST_SCORES / heads) ** 0.5)
        _require(n > 0, "--text holds no token: give at least one word")
        needs = "--causal predicts the next token, so --text needs at least two tokens, got 1"
        _require(n > 1 or not self.causal, needs)
        _require(
            n <= most, f"--text has {n} tokens; with {heads} heads at most {most} can be shown"
        )
        many = f"these sizes make {weights:,} weights; at most {MOST_WEIGHTS:,} can be shown"
        _require(weights <= MOST_WEIGHTS, many)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ArgumentError(rule)


def decoded(text: str) -> str:
    """Bytes that Python could not decode, as in the locale C, are read as UTF-8 if they are that.

    Others become a token each, and are spelled out where they are shown.
    """
    with suppress(UnicodeError):
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    return text


def tokenize(text: str) -> list[str]:
    """Words, each with its inner apostrophes and hyphens, and single punctuation marks.

    >>> tokenize("The animal didn't cross -- it was too tired.")
    ['The', 'animal', "didn't", 'cross', '-', '-', 'it', 'was', 'too', 'tired', '.']
    """
    return re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]", unicodedata.normalize("NFC", text))


def sentence(s: Settings) -> Source:
    """A run of the layer over the words of a text, whose names the positions have.

    >>> s = Settings("multi-head", "a b a", 6, True, False, 0, "float64", heads=2)
    >>> sentence(s).load()().shape
    ()
    """
    tokens = tokenize(s.text)
    vocabulary = sorted({token.lower() for token in tokens})
    n = len(tokens)
    facts = [f"{n} token{'s' * (n > 1)} ({len(vocabulary)} different)", f"d_model {s.d_model}"]
    heads = f"{s.heads} head{'s' * (s.heads > 1)} of {s.d_k}"
    facts.append(heads if s.layer == MULTI_HEAD else f"d_k {s.d_k}, d_v {s.d_v}")
    facts += ["causal"] * s.causal + ["biases"] * s.bias + [s.dtype, f"seed {s.seed}"]
    goal = "the next token" if s.causal else "each token itself"
    facts.append(f"predicting {goal}, where guessing evenly gives {math.log(len(vocabulary)):.4f}")
    source = Source(
        lambda: run,
        f"{s.layer} with untrained weights: {one_line(' '.join(s.text.split()), 60)}",
        [tokens],
        facts,
        {**vars(s), "tokens": tokens, "vocabulary": vocabulary},
        python=_python(s),
    )

    def run(text: str = s.text) -> mg.Tensor:
        """The loss of this text; a word that the first text lacks gets a vector of its own."""
        words = tokenize(replace(s, text=text).text)
        new = dict.fromkeys(word.lower() for word in words)
        known = vocabulary + [word for word in new if word not in vocabulary]
        source.tokens = [words]
        return _loss(s, words, known, len(vocabulary))

    return source


def _python(s: Settings) -> str:
    arguments = ", ".join(f"{field.name}={getattr(s, field.name)!r}" for field in fields(s))
    return (
        "from minigrad.cli.sentence import Settings, sentence\n\n"
        f"run = sentence(Settings({arguments})).load()"
    )


def _loss(s: Settings, tokens: list[str], vocabulary: list[str], first: int) -> mg.Tensor:
    """The loss of a text. Args: first: how many words' vectors are drawn before the layer is."""
    from ..layers import MultiHeadAttention, SelfAttention, create_causal_mask

    n = len(tokens)
    dtype = np.dtype(s.dtype)
    rng = np.random.default_rng(s.seed)
    ids = np.array([[vocabulary.index(token.lower()) for token in tokens]])  # (1, n)
    drawn = rng.normal(size=(first, s.d_model))
    common: dict[str, Any] = {"use_bias": s.bias, "rng": rng, "dtype": dtype}
    layer: SelfAttention | MultiHeadAttention = (
        SelfAttention(s.d_model, s.d_k, s.d_v, **common)
        if s.layer == SELF_ATTENTION
        else MultiHeadAttention(s.d_model, s.heads, **common)
    )
    others = rng.normal(size=(len(vocabulary) - first, s.d_model))
    table = np.concatenate([drawn, others]).astype(dtype)
    E = mg.tensor(table, requires_grad=True, name="E")  # (vocabulary, d_model)
    mask = create_causal_mask(n, dtype=dtype) if s.causal else None
    with mg.scope("embedding"):
        X = mg.take(E, ids, axis=0).named("X")  # (1, n, d_model)
    out = layer(X, mask)  # (1, n, d_model)
    with mg.scope("prediction"):
        logits = mg.matmul(out, mg.swapaxes(E, 0, 1)).named("logits")  # (1, n, vocabulary)
    with mg.scope("loss"):
        # a causal layer predicts the next token, any other each token itself
        seen, targets = (logits[:, :-1], ids[:, 1:]) if s.causal else (logits, ids)
        loss: mg.Tensor = mg.cross_entropy(seen, targets).named("loss")
    return loss
