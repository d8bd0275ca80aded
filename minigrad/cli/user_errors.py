"""What a user's own function raises: one line, and the traceback with the user's frames only."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import TracebackException

from ..engine.errors import ArgumentError, MinigradError
from ..views.plain import one_line
from .load_function import Target

__all__ = ["guarded"]

HERE = Path(__file__).resolve().parents[2]
INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
NOT_THE_USERS = [HERE / "minigrad", HERE / "layers", *INSTALLED]


@contextmanager
def guarded(target: Target) -> Iterator[None]:
    """Whatever user code raises becomes a MinigradError of one line, its traceback as a note."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        told = TracebackException.from_exception(error)
        _keep_users_frames(told, target)
        if isinstance(error, ArgumentError) and not told.stack:
            raise  # it is ours: what was asked for cannot be
        failed = MinigradError(f"{target} raised {_summary(error)}")
        if _has_frames(told) or isinstance(error, SyntaxError):  # which says its own file and line
            lines = "".join(told.format()).splitlines()
            failed.add_note("\n".join(one_line(line.expandtabs()) for line in lines))
        raise failed from None


def _summary(error: BaseException) -> str:
    try:
        text = str(error).strip()
    except Exception:  # a message that cannot be told
        text = ""
    first = one_line((text.splitlines() or [""])[0])
    return f"{type(error).__name__}{f': {first}' if first else ''}"


def _keep_users_frames(told: TracebackException, target: Target) -> None:
    """Drop the other frames, and causes that came from elsewhere altogether."""
    chain = [told]
    for one in chain:  # grows as it goes: what this one came from
        one.stack[:] = [frame for frame in one.stack if _is_users(frame.filename, target)]
        chain += [e for e in (one.__cause__, one.__context__, *(one.exceptions or ())) if e]
    for one in reversed(chain):
        if one.__cause__ is not None and not _has_frames(one.__cause__):
            one.__cause__ = None
        if one.__context__ is not None and not _has_frames(one.__context__):
            one.__context__ = None


def _has_frames(one: TracebackException) -> bool:
    return bool(one.stack or one.__cause__ or one.__context__ or one.exceptions)


def _is_users(filename: str, target: Target) -> bool:
    """Whether a file is the user's: the innermost known folder around it decides."""
    if filename.startswith("<"):  # generated code, and what imports
        return False
    file, own = Path(filename).resolve(), Path(target.folder)
    around = [folder for folder in NOT_THE_USERS if folder in file.parents]
    inner = max((len(folder.parts) for folder in around), default=-1)
    return inner < 0 or (own in file.parents and len(own.parts) > inner)
