"""What a page sends, as arguments of a run; each function raises an ArgumentError in words."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, TypeAlias

from ..engine.errors import ArgumentError

__all__ = [
    "Argument",
    "defaults_of",
    "index_of",
    "number_of",
    "value_like",
    "words_of",
]


Argument: TypeAlias = "float | str | list[str] | tuple[str, ...]"  # of a function, to be changed


def index_of(shape: tuple[int, ...], index: object) -> tuple[int, ...]:
    if (
        not isinstance(index, list)
        or len(index) != len(shape)
        or not all(isinstance(i, int) for i in index)
    ):
        said = f"an index of shape {shape} is {len(shape)} whole numbers, got {index!r}"
        raise ArgumentError(said)
    if any(not 0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise ArgumentError(f"index {index} is outside shape {shape}")
    return tuple(index)


def number_of(value: Any, dtype: str) -> float:
    """A number that an array of this dtype can hold. Raises: ArgumentError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"a number is needed, got {value!r:.60}") from None
    if number != number:
        raise ArgumentError("a number is needed, got NaN")
    if dtype.startswith("float"):
        return number
    if number % 1 != 0:
        raise ArgumentError(f"a whole number is needed ({dtype}), got {number:g}")
    if dtype == "bool" and number not in (0, 1):
        raise ArgumentError(f"0 or 1 is needed, got {number:g}")
    return bool(number) if dtype == "bool" else int(number)


def value_like(default: Argument, name: str, value: object) -> Argument:
    """A value of the kind that the default has. Raises: ArgumentError."""
    if isinstance(default, bool):
        return bool(number_of(value, "bool"))
    if isinstance(default, int | float):
        return number_of(value, "int64" if isinstance(default, int) else "float64")
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{name}: a text is needed, got {value!r:.60}")
    return value if isinstance(default, str) else type(default)(value.split())


def words_of(value: Argument) -> list[str]:
    """A text's words; of a number none."""
    if isinstance(value, str):
        return value.split()
    return [*value] if isinstance(value, list | tuple) else []


def defaults_of(function: Callable[..., object]) -> dict[str, Argument]:
    """The arguments that can be changed: numbers, texts, and lists of words."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return {}
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    words = {n for n, x in given.items() if isinstance(x, list | tuple) and x}
    words = {n for n in words if all(isinstance(word, str) for word in given[n])}
    return {n: x for n, x in given.items() if isinstance(x, int | float | str) or n in words}
