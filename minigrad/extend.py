"""For those who extend minigrad: ops by declaration, listeners, and what layers say to views.

    from minigrad.extend import Listener, Op, listen, registry

Programs that build and train models need none of it.
"""

from .engine.listener import (
    Listener,
    clear_gradients,
    expect_gradients,
    hand_derived,
    listen,
    listening,
    mark_constant,
    mark_input,
)
from .engine.op import Op, call, registry
from .engine.tensor import is_marked_parameter, mark_parameter

__all__ = [
    "Listener",
    "Op",
    "call",
    "clear_gradients",
    "expect_gradients",
    "hand_derived",
    "is_marked_parameter",
    "listen",
    "listening",
    "mark_constant",
    "mark_input",
    "mark_parameter",
    "registry",
]
