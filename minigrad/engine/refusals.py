"""Errors of calls, and short tracebacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dis import opname
from functools import wraps
from inspect import signature
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from .errors import DTypeError, MinigradError, OutOfRangeError, ShapeError
from .types import Function

__all__ = [
    "EXPLAINED",
    "checked_keywords",
    "explained",
    "kind_of",
    "refusal",
    "runs",
    "unknown_keyword",
    "without_our_frames",
]

OUR_MODULES = ("minigrad.", "layers.")
NOT_A_USERS = {"minigrad", "layers", "numpy"} | sys.stdlib_module_names

EXPLAINED = (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError)
"""What Python and NumPy raise for arguments that do not fit; of it an error of ours is made."""


def runs(frame: FrameType, instruction: str) -> bool:
    """Whether the frame stands at an instruction, as UNPACK_SEQUENCE is of `a, b = ...`."""
    return opname[frame.f_code.co_code[frame.f_lasti]] == instruction


def unknown_keyword(
    call: str, given: Mapping[str, object], offered: Iterable[str], others: bool = False
) -> DTypeError | None:
    """The error of a call with a keyword that it does not have; None if it has them all.

    Args: others: the call takes other keywords too.
    """
    offered = [*offered]
    for name in given:
        if name not in offered and not others:
            takes = f"it takes {', '.join(offered)}"
            return DTypeError(f"{call}: got an unexpected keyword argument {name!r}; {takes}")
    return None


def checked_keywords(
    call: str, given: Mapping[str, object], offered: Iterable[str], others: bool = False
) -> None:
    """Raise DTypeError for a keyword that a call does not have, with the one that it has."""
    error = unknown_keyword(call, given, offered, others)
    if error is not None:
        raise error


def explained(function: Function) -> Function:
    """Decorate a public function: errors name the right keyword, and tracebacks are short.

    What Python or NumPy raises within our own code names the call and its arguments. An error of
    a user's function that we call stays as it is.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MinigradError as error:
            raise without_our_frames(error) from error.__cause__
        except (*EXPLAINED, AttributeError, KeyError) as error:
            refused = refusal(function, args, kwargs, error)
            if refused is None:
                raise
            raise refused from None

    return call  # type: ignore[return-value]


def refusal(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, object],
    error: Exception,
) -> MinigradError | None:
    """What to raise for an error of Python or NumPy that just left a function of ours.

    None if it passed through a user's code, or is of a class that somebody else defined.
    """
    within = error.__traceback__.tb_next if error.__traceback__ is not None else None
    if within is None:  # Python could not call it
        return _not_callable_so(function, args, kwargs, error)
    if type(error).__module__.partition(".")[0] not in ("builtins", "numpy"):
        return None
    step: TracebackType | None = within
    while step is not None:
        module = step.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in NOT_A_USERS:
            return None
        step = step.tb_next
    try:
        given = signature(function).bind(*args, **kwargs).arguments
    except TypeError:  # a decorator of ours called it
        return _not_callable_so(function, args, kwargs, error)
    said = f"there is no {error}" if isinstance(error, KeyError) else error
    lines = [f"{_shown(function, args)}: {said}"]
    lines += [_described(name, value) for name, value in given.items() if name != "self"]
    return kind_of(error)("\n".join(lines))


def kind_of(error: Exception) -> type[MinigradError]:
    """The class of ours that says what an error of Python or NumPy says of an argument."""
    if isinstance(error, np.exceptions.AxisError):
        return ShapeError
    if isinstance(error, LookupError):
        return OutOfRangeError
    return DTypeError if isinstance(error, TypeError | AttributeError) else ShapeError


def _described(name: str, value: Any) -> str:
    """A line of an error that says what an argument was: shape, dtype and path, or its value."""
    if not isinstance(getattr(value, "shape", None), tuple) or not hasattr(value, "dtype"):
        return f"  {name} = {' '.join(repr(value).split())[:80]}"
    return f"  {name}: {np.shape(value)} {value.dtype}   {getattr(value, 'path', '')}".rstrip()


def _shown(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The call as errors name it; of a method, with the object's class."""
    names = list(signature(function).parameters)
    if names[:1] != ["self"]:
        return f"{function.__qualname__}({', '.join(names)})"
    runs_it = function.__name__ in ("__init__", "forward")
    call = type(args[0]).__name__ + ("" if runs_it else f".{function.__name__}")
    return f"{call}({', '.join(names[1:])})"


def _not_callable_so(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    given: Mapping[str, object],
    error: Exception,
) -> DTypeError:
    """The error of a call whose arguments do not fit the parameters, with what to write."""
    parameters = [p for p in signature(function).parameters.values() if p.name != "self"]
    names = [p.name for p in parameters]
    shown = _shown(function, args)
    others = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = unknown_keyword(shown, given, names, others)
    if unknown is not None:
        return unknown
    text = str(error).partition("() ")[2] or str(error)
    by_name = [f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY]
    by_name += [f"**{p.name}" for p in parameters if p.kind is p.VAR_KEYWORD]
    if "positional argument" in text and "missing" not in text and by_name:
        text += f"; the others go by keyword: {', '.join(by_name)}"
    return DTypeError(f"{shown}: {text}")


def without_our_frames(error: MinigradError) -> MinigradError:
    """The error with a traceback that leaves out the frames of minigrad and layers.

    Frames of a user's own layers, hooks and ops stay.
    """
    kept: list[TracebackType] = []
    step = error.__traceback__
    while step is not None:
        if not step.tb_frame.f_globals.get("__name__", "").startswith(OUR_MODULES):
            kept.append(step)
        step = step.tb_next
    found: TracebackType | None = None
    for step in reversed(kept):
        found = TracebackType(found, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return error.with_traceback(found)
