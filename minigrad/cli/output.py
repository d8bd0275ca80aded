"""The command's output: text that a terminal can show, and a folder written whole or not at all."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..engine.errors import ArgumentError
from ..saving import target_of, write
from ..views.formula.tree import GREEK
from ..views.plain import one_line

__all__ = ["complain", "drop_output", "readable", "show", "staged", "wrapped"]

# what a terminal without Unicode gets for each sign of the views, in as many cells where it can
TYPED = str.maketrans(
    {sign: name for name, sign in GREEK.items()}
    | dict(zip("×∂✓✗●○▲▼‼▸…–−─█▉▊▋▌▍▎▏▓▒░·≈⊙⊘’", "xd+X*0^v!>~---#####...*=:-~*/'", strict=True))
    | {"≠": "!=", "±": "+-", "≤": "<=", "≥": ">=", "∈": "in", "→": "->", "¬": "not ", "√": "sqrt",
       "∏": "prod", "Σ": "sum", "∫": "integral", "ˣ": "^x", "₀": "_0",
       "ᵀ": "^T", "½": "1/2", "ε": "eps", "ϵ": "eps", "φ": "phi", "ϑ": "theta", "∞": "inf",
       "ℓ": "l", "\u0302": "_hat", "\u0304": "_bar"}
)  # fmt: skip
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
NEEDED = "×∂✓✗●○▲▼‼–…█▏─"


def readable(text: str) -> str:
    """The text in ASCII, each sign as a person would type it, and other characters spelled out.

    >>> readable("y = x / √(σ² + ε)")
    'y = x / sqrt(sigma^2 + eps)'
    """
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda raised: "^" + raised[0].translate(SUPERSCRIPTS), text)
    return text.translate(TYPED).encode("ascii", "backslashreplace").decode()


def show(text: str) -> None:
    """Print what the terminal's encoding can show: all in ASCII if it lacks the views' signs."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        NEEDED.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text, encoding = readable(text), "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def wrapped(line: str, width: int) -> str:
    """The line, wrapped; a path is not broken."""
    return textwrap.fill(
        line, max(width, 20), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def complain(what: object, status: int) -> int:
    first = (str(what).strip().splitlines() or [type(what).__name__])[0]
    print(f"minigrad: error: {one_line(first)}", file=sys.stderr)
    return status


def drop_output() -> None:
    """Drop what is buffered, where its reader left, so that Python does not complain at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A temporary folder; at the end its files are moved into `out`, each file whole.

    `out` and its parents are made if absent. If anything fails, all stays as it was.
    Raises: ArgumentError if `out` is a file or cannot be written, at once and not after the work.
    """
    with _refusals(out):
        path = out.absolute()
        above = next(folder for folder in (path, *path.parents) if folder.exists())
        if not above.is_dir():
            raise NotADirectoryError
        place = tempfile.TemporaryDirectory(prefix=".minigrad-", dir=above)
    with place:
        yield Path(place.name)
        new = sorted(Path(place.name).iterdir())
        for file in new:  # all that can be known beforehand, so that no file moves alone
            if out.exists():
                target_of(out / file.name, "--out")
        with _refusals(out):
            out.mkdir(parents=True, exist_ok=True)
            for file in new:
                write(out / file.name, file.read_bytes(), "--out")


@contextmanager
def _refusals(out: Path) -> Iterator[None]:
    """Errors of the file system in the words of the command line."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            why = "is a file, or lies below one; a folder is needed"
        elif isinstance(error, OSError) and error.strerror:
            why = error.strerror[0].lower() + error.strerror[1:]
        raise ArgumentError(f"--out {one_line(str(out))}: {why}") from error
