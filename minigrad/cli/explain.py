"""`minigrad explain`: a sentence through a layer, or a user's function, run and told."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from ..engine.errors import ArgumentError
from ..views.plain import one_line
from ..views.terminal import only_ascii, wide
from .checkpoint import QUESTION, Question
from .checkpoint_report import CheckpointReport
from .explanation import FILES, Explanation
from .output import show, staged, wrapped
from .own_function import FunctionReport, Target
from .sentence import DEFAULTS, LAYERS, MULTI_HEAD, Settings
from .sentence_report import SentenceReport

__all__ = ["run"]


def run(arguments: Namespace) -> int:
    if not arguments.out:
        raise ArgumentError("--out needs the name of a folder")
    if arguments.text == "-":
        arguments.text = sys.stdin.read()
    out, explained = Path(arguments.out), _asked_for(arguments)
    with staged(out) as folder:
        with redirect_stdout(sys.stderr if arguments.json else sys.stdout):
            made = explained()
        undrawn = made.write(folder, arguments.theme, arguments.depth)
    if arguments.json:
        show(made.record(), False)
        if undrawn:
            print(f"minigrad: {undrawn}", file=sys.stderr)
    else:
        width = wide(None)
        written = [f"wrote {one_line(str(out / name))}: {what}" for name, what in FILES.items()]
        files = "\n".join(wrapped(line, width) for line in [undrawn or written[0], *written[1:]])
        parts = made.parts(width, only_ascii(None), arguments.all)
        show("\n\n".join([*parts, files, *made.closing(width)]))
    return 0 if made.succeeded() and not undrawn else 1


def _asked_for(arguments: Namespace) -> Callable[[], Explanation]:
    """What runs a checkpoint, a function, or a sentence through a layer. Raises: ArgumentError."""
    what, model = arguments.what or MULTI_HEAD, arguments.model
    if model is not None and arguments.what:
        raise ArgumentError(f"--model runs a checkpoint and does not go with {what}")
    layers = DEFAULTS | {name: value for own in LAYERS.values() for name, value in own.items()}
    asked = {name: getattr(arguments, name) for name in layers | QUESTION}
    asked = {name: value for name, value in asked.items() if value is not None}
    target = Target(what) if model is None and ":" in what else None
    known = QUESTION if model is not None else {} if target else DEFAULTS | LAYERS[what]
    for name in asked.keys() - known.keys():
        option = "--" + name.replace("_", "-")
        if name not in layers:
            raise ArgumentError(f"{option} goes with --model alone")
        if known is QUESTION or target:
            with_ = target or "--model"
            raise ArgumentError(f"{option} is for the two layers and does not go with {with_}")
        why = "it has one head" if name == "heads" else "its heads are d_model / heads wide"
        raise ArgumentError(f"{option} does not go with {what}: {why}")
    if model is not None:
        return partial(CheckpointReport, Question(model, **asked))
    if target:
        return partial(FunctionReport, target)
    if heads := asked.get("heads"):
        if not heads.isdecimal() or not int(heads):
            raise ArgumentError(f"--heads must be an integer of at least 1, got {heads!r}")
        asked["heads"] = int(heads)
    return partial(SentenceReport, Settings(what, **known | asked))
