"""Every error minigrad raises on purpose, under the name people import them by."""

from .engine.errors import (
    ArgumentError,
    CompileWarning,
    DeclarationError,
    DTypeError,
    FileError,
    FreedGraphError,
    GradcheckError,
    GradientError,
    MaskWarning,
    MinigradError,
    MissingDependencyError,
    NonFiniteError,
    OutOfRangeError,
    OverwrittenError,
    RankError,
    ShapeError,
)

__all__ = [
    "ArgumentError",
    "CompileWarning",
    "DTypeError",
    "DeclarationError",
    "FileError",
    "FreedGraphError",
    "GradcheckError",
    "GradientError",
    "MaskWarning",
    "MinigradError",
    "MissingDependencyError",
    "NonFiniteError",
    "OutOfRangeError",
    "OverwrittenError",
    "RankError",
    "ShapeError",
]
