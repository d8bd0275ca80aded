"""Every error minigrad raises on purpose, under the name people import them by."""

from .engine.errors import (
    ArgumentError,
    DeclarationError,
    DTypeError,
    FileError,
    FreedGraphError,
    GradcheckError,
    GradientError,
    MinigradError,
    MissingDependencyError,
    NonFiniteError,
    OutOfRangeError,
    OverwrittenError,
    ShapeError,
)

__all__ = [
    "ArgumentError",
    "DTypeError",
    "DeclarationError",
    "FileError",
    "FreedGraphError",
    "GradcheckError",
    "GradientError",
    "MinigradError",
    "MissingDependencyError",
    "NonFiniteError",
    "OutOfRangeError",
    "OverwrittenError",
    "ShapeError",
]
