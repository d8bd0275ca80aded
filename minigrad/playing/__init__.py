"""`mg.play` and `minigrad play`: the page of a run whose numbers can be changed.

    session    a function, its changes, their undo, and the run that they give
    changes    each change: what it replaces, in words, and as Python
    values     what a page sends, as arguments of a run
    addresses  paths of a record's entries, as `mg.replace` understands them
    run        a function that returns a loss, run within a trace; what differs between two runs
    server     serves the page, and answers its requests

It runs the user's own function each time, within `mg.replace` and `mg.ablate`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..engine.errors import DTypeError
from ..engine.tensor import Tensor
from .run import Run, Source
from .server import PlayServer
from .session import PageOptions, PlaySession

__all__ = ["play"]


def play(function: Callable[..., Tensor]) -> PlayServer:
    """Open a function that returns a loss as a page whose numbers can be changed.

    The page is that of `t.html`, served on this machine alone at an address with a token. Change
    an entry, cut an edge, freeze a value or step the optimizer: the function runs again within
    `mg.replace`, and values, gradients and checks are drawn anew. Numbers and texts that are
    defaults of the function's arguments can be changed too. `function.tokens` names the positions
    that attention looks at; `function.optimizer`, one of `minigrad.optim`, says which a step is of.

    Returns: what serves it, which a notebook shows as the page: `.address`, which is printed too;
        `.session.python()`, the changes as a program; `.wait()`, for a script; `.close()`.
    Raises: DTypeError for what cannot be called; ArgumentError if it returns no loss.
    """
    if not callable(function):
        kind = type(function).__name__
        raise DTypeError(f"play(function): takes a function that returns a loss, got {kind}")
    name = getattr(function, "__name__", "function")

    def page(run: Run) -> PageOptions:
        return {"title": name, "tokens": getattr(function, "tokens", None)}

    known = f"# {name} is the function that was given to mg.play"
    server = PlayServer(PlaySession(Source(lambda: function, name, python=known, name=name), page))
    print(f"mg.play: {name} is at {server.address}", flush=True)
    return server
