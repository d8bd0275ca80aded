"""Every error minigrad raises on purpose, under the name people import them by."""

from .engine.errors import (
    ArgumentError,
    DeclarationError,
    DTypeError,
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
