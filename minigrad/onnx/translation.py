"""Translations: what an op is in ONNX, declared beside each other and apart from the op.

    @translation(softmax)
    def _(to, x, axis):
        return to.Softmax(x, axis=axis)

The first parameter writes the model (see graph.py). The others name what is needed: inputs, which
are Values of the model or None; settings, as they were given, arrays among them as Values; `out`,
shape and dtype of the result. A call that cannot be told in ONNX raises `Untranslatable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine.op import Op
from ..engine.plan import parameters_of

__all__ = ["TRANSLATIONS", "Untranslatable", "translate", "translation"]

TRANSLATIONS: dict[Op, Callable[..., Any]] = {}


class Untranslatable(Exception):
    """A call that has no form in ONNX; says why."""


def translation(*ops: Op) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare what these ops are in ONNX; `@translation(cube)` does it for an op of your own."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            TRANSLATIONS[op] = function
        return function

    return declare


def translate(to: Any, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...], out: Any) -> Any:
    """The Value of one call.  Raises: Untranslatable."""
    if op not in TRANSLATIONS:
        raise Untranslatable(
            "has no form in ONNX; declare one: @minigrad.onnx.translation"
            f"({op.name}) def _(to, {', '.join(op.inputs)}): …"
        )
    named = {op.inputs[0]: inputs} if op.variadic else dict(zip(op.inputs, inputs, strict=True))
    told = named | dict(zip(op.settings, settings, strict=True)) | {"out": out}
    function = TRANSLATIONS[op]
    return function(to, *(told[name] for name in parameters_of(function)[1:]))
