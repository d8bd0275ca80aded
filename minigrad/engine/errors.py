"""The errors that are raised on purpose. Each is also the built-in error a NumPy user expects."""

import numpy as np

__all__ = [
    "ArgumentError",
    "CompileWarning",
    "DTypeError",
    "DeclarationError",
    "FileError",
    "FreedGraphError",
    "GradcheckError",
    "GradientError",
    "MinigradError",
    "MissingDependencyError",
    "MissingNameError",
    "NonFiniteError",
    "OutOfRangeError",
    "OverwrittenError",
    "RankError",
    "ShapeError",
]


class MinigradError(Exception):
    """Base of all errors below, for `except minigrad.errors.MinigradError`."""


class ShapeError(MinigradError, ValueError):
    """Shapes or axes do not fit the call."""


class DTypeError(MinigradError, TypeError):
    """A dtype, or the type of an argument, does not fit the call."""


class ArgumentError(MinigradError, ValueError):
    """A setting has a value the call cannot take."""


class OutOfRangeError(MinigradError, IndexError):
    """An index or a target lies outside its axis."""


class DeclarationError(MinigradError, TypeError):
    """An op is declared wrongly: a rule names what it cannot have, or a piece is missing."""


class MissingNameError(MinigradError, AttributeError):
    """A name that does not exist; where another library has it, the text says what to write."""


class GradientError(MinigradError, RuntimeError):
    """A gradient that cannot be computed: no graph, no scalar, or a rule of the wrong shape."""


class FreedGraphError(GradientError):
    """Backward ran through this graph before, and what it saved is gone."""


class OverwrittenError(GradientError):
    """An array that backward needs was overwritten after it was saved."""


class NonFiniteError(MinigradError, FloatingPointError):
    """The first NaN or infinity within `anomaly()`."""


class FileError(MinigradError, OSError):
    """A file that is not there, is damaged, or is of another kind."""


class MissingDependencyError(MinigradError, ImportError):
    """Something optional is not installed; the message says what to install."""


class RankError(MinigradError, RuntimeError):
    """Ranks of a parallel program disagree."""


class GradcheckError(MinigradError, AssertionError):
    """Engine and numeric derivative disagree; `report` says where and by how much."""

    def __init__(self, message: str, report: object) -> None:
        super().__init__(message)
        self.report = report


class CompileWarning(UserWarning):
    """A compiled step runs eagerly: what compile cannot follow, where, and what to do about it."""


for _name in __all__:  # shown and pickled under the name that people import
    globals()[_name].__module__ = "minigrad.errors"


def kind_of(error: Exception) -> type[MinigradError]:
    """The class of ours that says the same as an error of Python or NumPy."""
    if isinstance(error, MinigradError):
        return type(error)
    if isinstance(error, np.exceptions.AxisError):
        return ShapeError
    if isinstance(error, LookupError):
        return OutOfRangeError
    return DTypeError if isinstance(error, TypeError | AttributeError) else ShapeError
