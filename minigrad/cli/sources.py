"""What can be explained: a function of the user's own, or a sentence through one attention layer.

A function is named FILE.py:FUNCTION or package.module:function, and takes no arguments.
A file is run as Python runs a script, with its folder first on sys.path, but not as `__main__`.
"""

from __future__ import annotations

import re
import runpy
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path

import numpy as np

import minigrad as mg

from ..playing.run import LossFunction, tokens_of
from . import UsageError

__all__ = ["DEFAULT_TEXT", "LAYER", "source_of"]

LAYER = "self-attention"
DEFAULT_TEXT = "The animal didn't cross the street because it was too tired"
D_MODEL = 32


def source_of(arguments: Namespace) -> LossFunction:
    """What the arguments name. Raises: UsageError if there is nothing of this name."""
    what = arguments.what
    text = arguments.text
    if what == LAYER:
        return sentence(DEFAULT_TEXT if text is None else text)
    if text is not None:
        raise UsageError(f"--text is for {LAYER}, and does not go with {what}")
    place, _, function = what.rpartition(":")
    if not place or not function:
        known = f"FILE.py:FUNCTION, package.module:function or {LAYER}"
        raise UsageError(f"nothing to explain is named {what!r}; it is {known}")
    return own_function(place, function)


# ---------------------------------------------------------------- a function of the user's own


def own_function(place: str, name: str) -> LossFunction:
    """A function of a file or a module, with its attribute `tokens`."""
    sys.path.insert(0, str(Path(place).absolute().parent))  # of a module it is where we are
    if not place.endswith(".py"):
        names = vars(import_module(place))
    elif Path(place).is_file():
        names = runpy.run_path(place, run_name="__explained__")
    else:
        raise UsageError(f"there is no file {place}")
    function = names.get(name)
    if not callable(function):
        raise UsageError(f"{place} has no function {name!r}")
    return LossFunction(function, f"{place}:{name}", tokens_of(function))


# ---------------------------------------------------------------- a sentence through one layer


def sentence(text: str) -> LossFunction:
    """X = E[ids],    out = layer(X),    logits = out Eᵀ,    loss = cross-entropy(logits, ids).

    The weights are drawn, not learned, and nothing tells the layer where a token stands.
    What is shown is how the numbers flow, not what a trained model thinks.

    >>> sentence("a b a").function().shape
    ()
    """
    from ..layers import SelfAttention

    tokens: list[str] = re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]", text)
    if not tokens:
        raise UsageError(f"--text: there is no word in {text!r}")

    def run(words: list[str] = tokens) -> mg.Tensor:
        rng = np.random.default_rng(0)
        vocabulary, places = np.unique([word.lower() for word in words], return_inverse=True)
        ids = places[None]  # (1, n)
        E = mg.tensor(rng.normal(size=(len(vocabulary), D_MODEL)), requires_grad=True, name="E")
        layer = SelfAttention(D_MODEL, 8, 8, rng=rng)
        with mg.scope("embedding"):
            X = mg.take(E, ids, axis=0).named("X")  # (1, n, d_model)
        out = layer(X)  # (1, n, d_model)
        with mg.scope("prediction"):
            logits = (out @ E.mT).named("logits")  # (1, n, vocabulary)
        loss: mg.Tensor = mg.cross_entropy(logits, ids).named("loss")
        return loss

    return LossFunction(run, f"{LAYER} with untrained weights", tokens)
