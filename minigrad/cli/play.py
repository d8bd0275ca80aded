"""`minigrad play`: the page of `explain`, served and alive."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import redirect_stdout
from typing import Any

from ..playing.run import Run
from ..playing.server import PlayServer
from ..playing.session import Played, Session
from ..recording.checks import Checks
from .explain import source_of
from .output import show
from .report import Report

__all__ = ["run", "session_of"]


def run(arguments: Namespace) -> int:
    """Serve the page until Ctrl-C."""
    with redirect_stdout(sys.stderr):
        session = session_of(arguments)
        server = PlayServer(session)
    show(f"{session.played.title}\nopen {server.address} in a browser; Ctrl-C ends it")
    server.wait()
    return 0


def session_of(arguments: Namespace) -> Session:
    """What is asked for, run once. Raises: ArgumentError; whatever the function raises."""
    source = source_of(arguments)

    def page(run: Run) -> dict[str, Any]:
        return Report(source, run, Checks([])).page_options()

    return Session(
        Played(source.load, source.title, source.name, source.python, page, source.around)
    )
