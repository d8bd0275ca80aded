"""Names, shapes and numbers as text that a terminal and a picture can show."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from math import isfinite

from ..engine.errors import ArgumentError

__all__ = [
    "Text", "asset", "bare", "capital", "counted", "filled", "of_bytes", "one_line", "one_of",
    "shaped", "sized",
]  # fmt: skip


def one_line(text: str, limit: int | None = None) -> str:
    r"""A name as one harmless line: control and direction-changing characters are spelled out.

    >>> one_line("a\nb\u202ec")
    'a\\nb\\u202ec'
    >>> one_line("a very long name indeed", limit=12)
    'a very long…'
    """
    bad = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    if not text.isascii() or not text.isprintable():
        text = "".join(
            c.encode("unicode_escape").decode() if unicodedata.category(c) in bad else c
            for c in text
        )
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def capital(sentence: str) -> str:
    """A sentence with a large first letter.

    >>> capital("none of 3 ops")
    'None of 3 ops'
    """
    return sentence[:1].upper() + sentence[1:]


def shaped(shape: tuple[int, ...]) -> str:
    """A shape as people write it: 2 × 7 × 11; a scalar for ().

    >>> shaped((2, 7, 11)), shaped(())
    ('2×7×11', 'scalar')
    """
    return "×".join(map(str, shape)) if shape else "scalar"


def sized(number: float | None) -> str:
    """A size to two digits, such as an rms.

    >>> [sized(x) for x in (0.0, 0.0123, 3.0, 12345.0, 2e-9, float("nan"), None)]
    ['0', '0.012', '3.0', '1.2e+04', '2.0e-09', 'nan', '']
    """
    if number is None:
        return ""
    if number == 0 or not isfinite(number):
        return f"{number:.0f}"
    if not 1e-3 <= abs(number) < 1e3:
        return f"{number:.1e}"
    return f"{number:.0f}" if abs(number) >= 99.5 else f"{number:#.2g}".rstrip(".")


def counted(number: int | None, units: tuple[str, ...] = ("", "k", "M", "G", "T", "P")) -> str:
    """A count to three digits with a unit.

    >>> [counted(n) for n in (0, 999, 1500, 123_456_789)]
    ['0', '999', '1.5k', '123M']
    """
    if number is None:
        return ""
    value = float(number)
    for unit in units[:-1]:
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}{units[-1]}"


def of_bytes(number: int) -> str:
    """A number of bytes, in powers of 1000.

    >>> of_bytes(0), of_bytes(2688)
    ('0 B', '2.69 kB')
    """
    return counted(number, (" B", " kB", " MB", " GB", " TB"))


class Text(str):
    """Text whose repr is the text itself, for Python's prompt and notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def one_of(call: str, known: Collection[str | None], **option: str | None) -> None:
    """Raises: ArgumentError, naming the call, unless the option's value is a known one."""
    ((name, value),) = option.items()
    if value not in known:
        said = ", ".join(filter(None, known))
        raise ArgumentError(f"{call}: {name} must be one of {said}, got {value!r}")


def bare(text: str) -> str:
    """A number as Python prints it, without the name of its NumPy type; other text as it is.

    >>> bare("np.float64(0.5)"), bare("mean")
    ('0.5', 'mean')
    """
    return re.sub(r"^np\.\w+\((.*)\)$", r"\1", text)


@cache
def asset(name: str) -> str:
    """The text of a file within `views`."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def filled(template: str, parts: dict[str, str]) -> str:
    """A template with its parts in their places; parts are not searched for places.

    >>> filled("<p>{{text}}</p>", {"text": "{{text}}"})
    '<p>{{text}}</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], template)
