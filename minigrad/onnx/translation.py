"""Translations: the form of each op in ONNX, declared apart from the op.

    @translation(softmax)
    def _(to, x, axis):
        return to.Softmax(x, axis=axis)

The first parameter writes the model (see graph.py). The others name what is needed: inputs, which
are GraphValues or None; settings, as they were given, arrays among them as GraphValues; `out`,
shape and dtype of the result. A call that ONNX cannot express raises `Untranslatable`. An op
without a translation is followed through its kernel: what NumPy computes there is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ..engine.op import Op
from ..engine.plan import parameters_of
from ..engine.types import Arguments

if TYPE_CHECKING:
    from .graph import Graph, GraphValue
    from .program import SizedForm

__all__ = ["Untranslatable", "declare", "is_translated", "translate", "translation"]

Translation: TypeAlias = "Callable[..., GraphValue]"

_TRANSLATIONS: dict[Op, Translation] = {}


class Untranslatable(Exception):
    """A call has no form in ONNX, for the reason given."""


def translation(*ops: Op) -> Callable[[Translation], Translation]:
    """Declare what these ops are in ONNX; `@translation(cube)` does it for an op of your own."""

    def decorate(function: Translation) -> Translation:
        declare(dict.fromkeys(ops, function))
        return function

    return decorate


def declare(table: Mapping[Op, Translation]) -> None:
    """Declare what each op of a table is in ONNX."""
    _TRANSLATIONS.update(table)


def is_translated(op: Op) -> bool:
    """Whether it has a translation; if not, its kernel is followed."""
    return op in _TRANSLATIONS


def translate(
    to: Graph, op: Op, inputs: Arguments, settings: Arguments, out: SizedForm
) -> GraphValue:
    """The GraphValue of one call.  Raises: Untranslatable."""
    if op not in _TRANSLATIONS:
        raise Untranslatable(
            "has no form in ONNX, and its kernel could not be followed; declare one: "
            f"@minigrad.onnx.translation({op.name}) def _(to, {', '.join(op.inputs)}): …"
        )
    named = {op.inputs[0]: inputs} if op.variadic else dict(zip(op.inputs, inputs, strict=True))
    values = named | dict(zip(op.settings, settings, strict=True)) | {"out": out}
    function = _TRANSLATIONS[op]
    return function(to, *(values[name] for name in parameters_of(function)[1:]))
