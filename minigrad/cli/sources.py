"""What can be explained: a function of the user's own, or a sentence through one attention layer.

A function is named FILE.py:FUNCTION or package.module:function, and takes no arguments. A file is
run as Python runs a script, with its folder first on sys.path, but not as `__main__`.
"""

from __future__ import annotations

import re
import runpy
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import TracebackException

import numpy as np

import minigrad as mg

from ..engine.errors import ArgumentError, MinigradError
from ..playing.run import LossFunction, tokens_of

__all__ = ["DEFAULT_TEXT", "LAYER", "source_of"]

LAYER = "self-attention"
DEFAULT_TEXT = "The animal didn't cross the street because it was too tired"
D_MODEL = 32
HOME = Path(__file__).resolve().parents[2]
OUR_CODE = (str(HOME / "minigrad"), str(HOME / "layers"), "<frozen ")  # not the user's


def source_of(arguments: Namespace) -> LossFunction:
    """What the arguments name. Raises: ArgumentError if there is nothing of this name."""
    what, text = arguments.what, arguments.text
    if what == LAYER:
        return sentence(DEFAULT_TEXT if text is None else text)
    if text is not None:
        raise ArgumentError(f"--text is for {LAYER}, and does not go with {what}")
    place, _, function = what.rpartition(":")
    if not place or not function:
        known = f"FILE.py:FUNCTION, package.module:function or {LAYER}"
        raise ArgumentError(f"nothing to explain is named {what!r}; it is {known}")
    return own_function(place, function)


# ---------------------------------------------------------------- a function of the user's own


def own_function(place: str, name: str) -> LossFunction:
    """A function of a file or a module, with its attribute `tokens`."""
    title = f"{place}:{name}"
    if place.endswith(".py") and not Path(place).is_file():
        raise ArgumentError(f"there is no file {place}")
    with users_code(title, place):
        if place.endswith(".py"):
            function = runpy.run_path(place, run_name="__explained__").get(name)
        else:
            function = getattr(import_module(place), name, None)
    if not callable(function):
        raise ArgumentError(f"{place} has no function {name!r}")
    return LossFunction(function, title, tokens_of(function), lambda: users_code(title, place))


@contextmanager
def users_code(title: str, place: str) -> Iterator[None]:
    """The file's folder on sys.path; what user code raises is one line, its own frames as notes."""
    paths = list(sys.path)
    sys.path.insert(0, str(Path(place).absolute().parent))  # of a module it is where we are
    try:
        yield
    except (Exception, SystemExit) as error:
        shown = TracebackException.from_exception(error)
        shown.stack[:] = [frame for frame in shown.stack if not frame.filename.startswith(OUR_CODE)]
        if isinstance(error, MinigradError) and not shown.stack:  # it is about the function
            raise
        first = str(error).partition("\n")[0]
        failed = MinigradError(f"{title} raised {type(error).__name__}: {first}")
        failed.add_note("".join(shown.format()).rstrip())
        raise failed from None
    finally:
        sys.path[:] = paths


# ---------------------------------------------------------------- a sentence through one layer


def sentence(text: str) -> LossFunction:
    """X = E[ids],    out = layer(X),    logits = out Eᵀ,    loss = cross-entropy(logits, ids).

    The weights are drawn, not learned, and nothing tells the layer where a token stands: what is
    shown is how the numbers flow, not what a trained model thinks.

    >>> sentence("a b a").function().shape
    ()
    """
    from layers import SelfAttention

    tokens: list[str] = re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]", text)
    if not tokens:
        raise ArgumentError(f"--text: there is no word in {text!r}")

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
