"""Errors of calls: what to write for a keyword that is not there, and short tracebacks.

The remedies stand in the table of `minigrad.habits`, which is read only once an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dis import opname
from functools import wraps
from inspect import signature
from types import FrameType, TracebackType
from typing import Any

from .errors import DTypeError, MinigradError
from .types import Function

__all__ = ["checked_keywords", "explained", "runs", "unknown_keyword", "without_our_frames"]

OUR_MODULES = ("minigrad.", "layers.")


def runs(frame: FrameType, instruction: str) -> bool:
    """Whether the frame stands at an instruction, as UNPACK_SEQUENCE is of `a, b = ...`."""
    return opname[frame.f_code.co_code[frame.f_lasti]] == instruction


def unknown_keyword(
    call: str, given: Mapping[str, object], offered: Iterable[str], others: bool = False
) -> DTypeError | None:
    """The error of a call with a keyword that it does not have; None if it has them all.

    Args: others: the call takes other keywords too, so refuse only those of other libraries.
    """
    from ..habits import for_keyword, is_habit

    offered = [*offered]
    for name in given:
        if name not in offered and (not others or is_habit(name, offered)):
            return DTypeError(
                f"{call}: got an unexpected keyword argument {name!r}; {for_keyword(name, offered)}"
            )
    return None


def checked_keywords(
    call: str, given: Mapping[str, object], offered: Iterable[str], others: bool = False
) -> None:
    """Raise DTypeError for a keyword that a call does not have, with the one that it has."""
    error = unknown_keyword(call, given, offered, others)
    if error is not None:
        raise error


def explained(function: Function) -> Function:
    """Decorate a public function: errors name the right keyword, and tracebacks are short."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MinigradError as error:
            raise without_our_frames(error) from error.__cause__
        except TypeError as error:
            within = error.__traceback__.tb_next if error.__traceback__ is not None else None
            if within is None:  # Python could not call it
                raise _not_callable_so(function, kwargs, error) from None
            raise

    return call  # type: ignore[return-value]


def _not_callable_so(
    function: Callable[..., Any], given: Mapping[str, object], error: TypeError
) -> DTypeError:
    """The error of a call whose arguments do not fit the parameters, with what to write."""
    parameters = [p for p in signature(function).parameters.values() if p.name != "self"]
    names = [p.name for p in parameters]
    shown = f"{function.__qualname__.removesuffix('.__init__')}({', '.join(names)})"
    others = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = unknown_keyword(shown, given, names, others)
    if unknown is not None:
        return unknown
    text = str(error).partition("() ")[2] or str(error)
    by_name = [f"{p.name}=" for p in parameters if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
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
