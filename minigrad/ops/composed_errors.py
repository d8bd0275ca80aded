"""Functions composed of ops name themselves in what they raise, as ops do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..engine.declaration import parameters_of
from ..engine.errors import kind_of
from ..engine.op import EXPLAINED
from ..habits import instead_of_keywords

__all__ = ["composed"]

P = ParamSpec("P")
R = TypeVar("R")


def composed(function: Callable[P, R]) -> Callable[P, R]:
    """Raise what fails in a function as an error of ours that begins with the call."""
    name = function.__name__
    parameters = parameters_of(function)
    call = f"{name}({', '.join(parameters)})"

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EXPLAINED as error:
            message = str(error).removeprefix(f"{name}() ")
            remedy = instead_of_keywords(name, kwargs, parameters)
            raise kind_of(error)(f"{call}: {message}{remedy}") from error

    return named
