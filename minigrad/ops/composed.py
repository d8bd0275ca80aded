"""Functions composed of ops name themselves in what they raise, as ops do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..engine.errors import kind_of
from ..engine.op import EXPLAINED, parameters_of

__all__ = ["composed"]

P = ParamSpec("P")
R = TypeVar("R")


def composed(function: Callable[P, R]) -> Callable[P, R]:
    """Raise what fails in a function as an error of ours that begins with the call."""
    call = f"{function.__name__}({', '.join(parameters_of(function))})"

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EXPLAINED as error:
            raise kind_of(error)(f"{call}: {error}") from error

    return named
