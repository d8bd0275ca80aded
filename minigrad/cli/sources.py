"""What can be explained: a function of the user's own, or a sentence through one attention layer.

A function is named FILE.py:FUNCTION or package.module:function, and takes no arguments. A file is
run as Python runs a script, with its folder first on sys.path, but not as `__main__`.
"""

from __future__ import annotations

import inspect
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import TracebackException
from types import ModuleType
from typing import Any

import numpy as np

import minigrad as mg

from ..engine.errors import ArgumentError, MinigradError
from ..playing.run import LossFunction

__all__ = ["DEFAULT_TEXT", "MULTI_HEAD", "SELF_ATTENTION", "source_of"]

MULTI_HEAD, SELF_ATTENTION = "multi-head", "self-attention"
DEFAULT_TEXT = "The animal didn't cross the street because it was too tired"
D_MODEL = 32
MOST_TOKENS = 512
OUR_FOLDERS = tuple(
    str(Path(__file__).resolve().parents[2] / room) for room in ("minigrad", "layers")
)


def source_of(arguments: Namespace) -> LossFunction:
    """What the arguments name. Raises: ArgumentError if there is nothing of this name."""
    what = arguments.what
    if ":" in what:
        if arguments.text is not None or arguments.causal:
            raise ArgumentError(
                f"--text and --causal are for the two layers, and do not go with {what}"
            )
        return own_function(what)
    if what in (MULTI_HEAD, SELF_ATTENTION):
        return sentence(
            what, DEFAULT_TEXT if arguments.text is None else arguments.text, arguments.causal
        )
    near = get_close_matches(what.replace("_", "-"), (MULTI_HEAD, SELF_ATTENTION), n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else "it is FILE.py:FUNCTION, multi-head or self-attention"
    )
    raise ArgumentError(f"nothing to explain is named {what!r}; {hint}")


# ---------------------------------------------------------------- a function of the user's own


def own_function(name: str) -> LossFunction:
    """The function of this name, loaded when it is to run, with its own attribute `tokens`."""
    place, _, function = name.rpartition(":")
    if not place or not function:
        raise ArgumentError(
            f"a function is named FILE.py:FUNCTION or package.module:function, got {name}"
        )
    source = LossFunction(
        lambda: load(), name, around=lambda: users_code(name, place), name=function
    )

    def load() -> Callable[[], Any]:
        module = _run_file(place) if place.endswith(".py") else _module(place)
        found = getattr(module, function, None)
        if not callable(found):
            own = [
                n
                for n, x in vars(module).items()
                if inspect.isfunction(x) and x.__module__ == module.__name__
            ]
            near = get_close_matches(function, own, n=3)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"it has {', '.join(own[:8]) or 'none'}"
            )
            raise ArgumentError(f"{place} has no function {function!r}, {hint}")
        source.tokens = _tokens(name, getattr(found, "tokens", None))
        return found

    return source


def _run_file(place: str) -> ModuleType:
    path = Path(place).absolute()
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ArgumentError(f"{place} cannot be read: {error.strerror}") from None
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules["__explained__"] = module  # where dataclasses, for one, look for it
    module.__name__ = "__explained__"
    exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    return module


def _module(place: str) -> ModuleType:
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise ArgumentError(
                f"no module named {place!r}; a file is named with its .py"
            ) from None
        raise  # something that it imports


def _tokens(name: str, tokens: Any) -> list[list[str]] | None:
    if tokens is None:
        return None
    texts = tokens if tokens and not isinstance(tokens[0], str) else [tokens]
    if not all(
        isinstance(t, list | tuple) and t and all(isinstance(x, str) for x in t) for t in texts
    ):
        raise ArgumentError(f"{name}.tokens must be a list of words, or of such lists")
    return [list(text) for text in texts]


@contextmanager
def users_code(name: str, place: str) -> Iterator[None]:
    """The file's folder on sys.path; what user code raises is one line, its own frames as notes."""
    paths = list(sys.path)
    sys.path.insert(0, str(Path(place).absolute().parent) if place.endswith(".py") else "")
    try:
        yield
    except (KeyboardInterrupt, ArgumentError, BrokenPipeError):
        raise
    except BaseException as error:
        shown = TracebackException.from_exception(error)
        shown.stack[:] = [
            frame for frame in shown.stack if not frame.filename.startswith(OUR_FOLDERS)
        ]
        first = (str(error).strip().splitlines() or [""])[0]
        failed = MinigradError(
            f"{name} raised {type(error).__name__}{f': {first}' if first else ''}"
        )
        failed.add_note("".join(shown.format()).rstrip())
        raise failed from None
    finally:
        sys.path[:] = paths


# ---------------------------------------------------------------- a sentence through one layer


def sentence(layer: str, text: str, causal: bool) -> LossFunction:
    """X = E[ids],    out = layer(X),    logits = out Eᵀ,    loss = cross-entropy(logits, targets).

    The weights are drawn, not learned, and nothing tells the layer where a token stands: what is
    shown is how the numbers flow, not what a trained model thinks.

    >>> sentence("multi-head", "a b a", False).load()().shape
    ()
    """
    tokens = _words(text)
    if not 1 + causal <= len(tokens) <= MOST_TOKENS:
        raise ArgumentError(f"--text: takes {1 + causal} to {MOST_TOKENS} words, got {len(tokens)}")
    title = f"{layer} with untrained weights"

    def run(text: str = text) -> mg.Tensor:
        words = _words(text)
        source.tokens = [words]
        return _loss(layer, words, sorted({word.lower() for word in tokens + words}), causal)

    source = LossFunction(lambda: run, title, [tokens])
    return source


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]", text)


def _loss(name: str, words: list[str], vocabulary: list[str], causal: bool) -> mg.Tensor:
    import layers as L

    rng = np.random.default_rng(0)
    ids = np.array([[vocabulary.index(word.lower()) for word in words]])  # (1, n)
    E = mg.tensor(rng.normal(size=(len(vocabulary), D_MODEL)), requires_grad=True, name="E")
    single = L.SelfAttention(D_MODEL, 8, 8, rng=rng)
    layer: Any = single if name == SELF_ATTENTION else L.MultiHeadAttention(D_MODEL, 4, rng=rng)
    with mg.scope("embedding"):
        X = mg.take(E, ids, axis=0).named("X")  # (1, n, d_model)
    out = layer(X, L.create_causal_mask(len(words)) if causal else None)  # (1, n, d_model)
    with mg.scope("prediction"):
        logits = mg.matmul(out, mg.swapaxes(E, 0, 1)).named("logits")  # (1, n, vocabulary)
    # a causal layer predicts the next word, any other each word itself
    seen, targets = (logits[:, :-1], ids[:, 1:]) if causal else (logits, ids)
    loss: mg.Tensor = mg.cross_entropy(seen, targets).named("loss")
    return loss
