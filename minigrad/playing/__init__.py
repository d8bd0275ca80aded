"""`mg.play` and `minigrad play`: the page of a run whose numbers can be changed.

run      a function that returns a loss, run and recorded, with changes put in by number
session  a function, its changes, their undo, and the page of the run that they give
server   serves the page on this machine alone, and answers its requests
"""

from __future__ import annotations

from collections.abc import Callable

from ..engine.errors import DTypeError
from ..engine.tensor import Tensor
from .run import LossFunction, tokens_of
from .server import PlayServer
from .session import PlaySession

__all__ = ["play"]


def play(function: Callable[..., Tensor]) -> PlayServer:
    """Open a function that returns a loss as a page whose numbers can be changed.

    The page is that of `t.html`, served on this machine alone at an address with a token.
    Set an entry of a value, an attention weight or a setting, cut an edge, or take a step.
    The function then runs again, forward and backward, and all of it is drawn anew.
    Numbers and texts that are defaults of the function's arguments can be changed too.
    `function.tokens` names the positions that attention looks at.

    Returns: what serves it, which a notebook shows as the page: `.address`, which is printed too;
        `.wait()`, for a script; `.close()`.
    Raises: DTypeError for what cannot be called; ArgumentError if it returns no loss.
    """
    if not callable(function):
        raise DTypeError(
            f"play(function): takes a function that returns a loss, got {type(function).__name__}"
        )
    name = getattr(function, "__name__", "function")
    source = LossFunction(function, name, tokens_of(function))
    server = PlayServer(PlaySession(source))
    print(f"mg.play: {name} is at {server.address}", flush=True)
    return server
