"""What the command `minigrad` does, whose arguments `minigrad.__main__` reads.

sources     what can be explained: a function of the user's, or a sentence through one layer
explain     it is run, printed and written; or played with, and its page served
catalogue   every op with what it declares, and its gradients checked, a line each
"""

from ..engine.errors import MinigradError

__all__ = ["UsageError"]


class UsageError(MinigradError):
    """What the command was asked for cannot be."""
