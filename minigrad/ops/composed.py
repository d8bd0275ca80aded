"""Functions composed of ops name themselves in what they raise, as ops do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..engine.errors import kind_of
from ..engine.op import EXPLAINED, parameters_of
from ..habits import instead_of_keywords

__all__ = ["composed"]

P = ParamSpec("P")
R = TypeVar("R")


def composed(function: Callable[P, R]) -> Callable[P, R]:
    """Raise what fails in a function as an error of ours that begins with the call."""
    parameters = parameters_of(function)
    call = f"{function.__name__}({', '.join(parameters)})"

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EXPLAINED as error:
            remedy = instead_of_keywords(function.__name__, kwargs, parameters)
            message = f"{call}: {error}; {remedy}" if remedy else f"{call}: {error}"
            raise kind_of(error)(message) from error

    return named
