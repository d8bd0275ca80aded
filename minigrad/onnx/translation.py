"""Translations: what an op is in ONNX, declared beside each other and apart from the op.

    @translation(softmax)
    def _(to, x, axis):
        return to.Softmax(x, axis=axis)

The first parameter writes the model (see graph.py). The others name what is needed: inputs, which
are Values of the model or None; settings, as they were given, arrays among them as Values; `out`,
shape and dtype of the result. A call that cannot be told in ONNX raises `Untranslatable`. An op
without a translation is followed through its kernel: what NumPy computes there is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..engine.op import Op
from ..engine.plan import parameters_of

__all__ = ["Untranslatable", "declare", "is_translated", "translate", "translation"]

_TRANSLATIONS: dict[Op, Callable[..., Any]] = {}


class Untranslatable(Exception):
    """A call that has no form in ONNX; says why."""


def translation(*ops: Op) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare what these ops are in ONNX; `@translation(cube)` does it for an op of your own."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        declare(dict.fromkeys(ops, function))
        return function

    return decorate


def declare(table: Mapping[Op, Callable[..., Any]]) -> None:
    """What each op of a table is in ONNX."""
    _TRANSLATIONS.update(table)


def is_translated(op: Op) -> bool:
    """Whether it has a translation; if not, its kernel is followed."""
    return op in _TRANSLATIONS


def translate(to: Any, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...], out: Any) -> Any:
    """The GraphValue of one call.  Raises: Untranslatable."""
    if op not in _TRANSLATIONS:
        raise Untranslatable(
            "has no form in ONNX, and its kernel could not be followed; declare one: "
            f"@minigrad.onnx.translation({op.name}) def _(to, {', '.join(op.inputs)}): …"
        )
    named = {op.inputs[0]: inputs} if op.variadic else dict(zip(op.inputs, inputs, strict=True))
    told = named | dict(zip(op.settings, settings, strict=True)) | {"out": out}
    function = _TRANSLATIONS[op]
    return function(to, *(told[name] for name in parameters_of(function)[1:]))
