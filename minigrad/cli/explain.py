"""`minigrad explain` and `minigrad play`: run a function that returns a loss, and show the run."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ..engine.errors import ArgumentError
from ..playing.run import Run, Source
from ..playing.server import PlayServer
from ..playing.session import PlaySession
from ..recording.checks import Checks
from ..views.plain import one_line
from ..views.terminal import finished, wide
from .output import show, staged, wrapped
from .own_function import own_function
from .report import EMBEDDED, FILES, Report, run_source
from .sentence import DEFAULTS, LAYER_DEFAULTS, MULTI_HEAD, Settings, sentence

__all__ = ["play", "run", "session_of"]


def run(arguments: Namespace) -> int:
    if not arguments.out:
        raise ArgumentError("--out needs the name of a folder")
    out, source = Path(arguments.out), source_of(arguments)
    with staged(out) as folder:
        with redirect_stdout(sys.stderr if arguments.json else sys.stdout):
            report = run_source(source)
        undrawn = report.write(folder, arguments.theme, arguments.depth, arguments.embed)
    if arguments.json:
        show(report.record())
        if undrawn:
            print(f"minigrad: {undrawn}", file=sys.stderr)
    else:
        width = wide(None)
        missing, every = undrawn.partition(":")[0], FILES | (EMBEDDED if arguments.embed else {})
        written = [
            f"wrote {one_line(str(out / name))}: {what}"
            for name, what in every.items()
            if name not in missing
        ]
        files = "\n".join(wrapped(line, width) for line in [*[undrawn] * bool(undrawn), *written])
        show(finished("\n\n".join([*report.parts(width, arguments.all), files])))
    return 0 if report.succeeded() and not undrawn else 1


def play(arguments: Namespace) -> int:
    """Serve the page until Ctrl-C."""
    with redirect_stdout(sys.stderr):
        session = session_of(arguments)
        server = PlayServer(session)
    show(f"{session.source.title}\nopen {server.address} in a browser; Ctrl-C ends it")
    server.wait()
    return 0


def session_of(arguments: Namespace) -> PlaySession:
    """The function of the arguments, run once. Raises: ArgumentError; whatever it raises."""
    source = source_of(arguments)

    def page(run: Run) -> dict[str, Any]:
        return Report(source, run, Checks([])).page_options()

    return PlaySession(source, page)


def source_of(arguments: Namespace) -> Source:
    """A user's function, or a sentence through a layer. Raises: ArgumentError."""
    what = arguments.what or MULTI_HEAD
    if arguments.text == "-":
        arguments.text = _standard_input()
    layers = [*DEFAULTS, *(name for own in LAYER_DEFAULTS.values() for name in own)]
    options = {name: getattr(arguments, name) for name in layers}
    options = {name: value for name, value in options.items() if value is not None}
    own = own_function(what) if ":" in what else None
    of_layer = [*DEFAULTS, *LAYER_DEFAULTS.get(what, ())] if own is None else []
    for name in options:
        if name not in of_layer:
            raise ArgumentError(_refusal(name, what, own))
    if own:
        return own
    settings: dict[str, Any] = DEFAULTS | LAYER_DEFAULTS[what] | options
    return sentence(Settings(what, **settings))


def _standard_input() -> str:
    if sys.stdin is None:
        raise ArgumentError("--text -: standard input is closed")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"--text -: standard input is no text in {error.encoding}") from error


def _refusal(name: str, what: str, own: Source | None) -> str:
    option = "--" + name.replace("_", "-")
    if own:
        return f"{option} is for the two layers and does not go with {own.title}"
    why = "it has one head" if name == "heads" else "its heads are d_model / heads wide"
    return f"{option} does not go with {what}: {why}"
