r"""Formulas as one call needs them: less what it was not given, changed as its settings change it.

An op declares one formula for all of its calls. What a call leaves out falls away (`+ <mask>`
without a mask), and a setting that makes it another function shows (causal attention, the other
gelu, a clip that is open on one side). There are a few variants of each op; `variants` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..engine.op import Op
    from ..recording.record import Edge, Entry
    from ..recording.trace import Trace

__all__ = ["WHERE", "Formulas", "base_of", "formulas_of", "is_bare", "variant", "variants"]

WHERE = r", \quad "  # after a formula, before what defines one of its signs
GELU = r"u = \sqrt{2 / \pi}\, (<x> + 0.044715\, <x>^{\circ 3})"
SLOPE = r"\sqrt{2 / \pi}\, (1 + 0.134145\, <x>^{\circ 2})"  # of u


class Formulas(NamedTuple):
    """The right-hand side of an op, and of its rule for each input."""

    tex: str
    vjp_tex: Mapping[str, str]


def formulas_of(trace: Trace, entry: Entry) -> Formulas:
    """The formulas of what one entry computed."""
    edges = trace.into(entry)
    given = {edge.input for edge in edges} | {base_of(edge, entry) for edge in edges}
    given |= {name for name, text in entry.settings.items() if text != "None"}
    if is_bare(entry):
        given |= {*entry.vjp_tex, "mask"}
    return variant(entry.op, Formulas(entry.tex, entry.vjp_tex), entry.settings, given)


def base_of(edge: Edge, user: Entry) -> str:
    """An op's own name of an input: `arrays` for `arrays2`."""
    return edge.input if edge.input in user.vjp_tex else edge.input.rstrip("0123456789")


def is_bare(entry: Entry) -> bool:
    """Whether an entry is of a graph's bare record, which has not all settings and constants."""
    return entry.flops is None


def variant(
    op: str | None, formulas: Formulas, settings: Mapping[str, str], given: Collection[str]
) -> Formulas:
    r"""The formulas of one call.

    Args: given: the inputs and settings that the call had.

    >>> variant(None, Formulas("<x> <W> + <b>", {}), {}, {"x", "W"}).tex
    '<x> <W>'
    >>> clip = Formulas(r"\min(\max(<x>, <low>), <high>)", {})
    >>> variant("clip", clip, {"high": "1.0"}, {"x", "high"}).tex
    '\\min(<x>, <high>)'
    """
    change = _CHANGES.get(op or "")
    formulas = change(formulas, settings, given) if change else formulas
    known = {*given, "g", "out"}
    rules = {name: _without(rule, known) for name, rule in formulas.vjp_tex.items()}
    return Formulas(_without(formulas.tex, known), rules)


def variants(op: Op) -> Iterator[Formulas]:
    """Every variant of an op's formulas, for what must be prepared ahead."""
    parameters = op.signature.parameters
    optional = [name for name in (*op.inputs, *op.settings) if parameters[name].default is None]
    optional += _OPTIONAL.get(op.name, ())
    always = {*op.inputs, *op.settings} - {*optional}
    declared = Formulas(op.tex, op.vjp_tex)
    for kept in product((True, False), repeat=len(optional)):
        given = always | {name for name, keep in zip(optional, kept, strict=True) if keep}
        for settings in ({}, *_SWITCHES.get(op.name, ())):
            yield variant(op.name, declared, settings, given)


def _without(template: str, given: Collection[str]) -> str:
    """A formula less the terms and factors that are optional and were not given."""
    for name in set(re.findall(r"<(\w+)>", template)).difference(given):
        template = re.sub(rf" (\+|\\odot) <{name}>", "", template)
    return template


# ---------------------------------------------------------------- ops whose settings choose


def _attention(formulas: Formulas, settings: Mapping[str, str], given: Collection[str]) -> Formulas:
    """Causality as the range of the softmax; the usual scale where none was given."""

    def changed(tex: str) -> str:
        if settings.get("is_causal") == "True":
            tex = tex.replace(r"\operatorname{softmax}", r"\operatorname{softmax}_{j \le i}")
        return tex if "scale" in given else tex.replace("<scale>", r"\tfrac{1}{\sqrt{d_k}}")

    rules = {name: changed(rule) for name, rule in formulas.vjp_tex.items()}
    return Formulas(changed(formulas.tex), rules)


def _gelu(formulas: Formulas, settings: Mapping[str, str], given: Collection[str]) -> Formulas:
    if settings.get("approximate") != "'tanh'":
        return formulas
    slope = rf"1 + \tanh u + <x> \odot (1 - \tanh^2 u) \odot {SLOPE}"
    return Formulas(
        rf"\tfrac12 <x> \odot (1 + \tanh u){WHERE}{GELU}",
        {"x": rf"\tfrac12 <g> \odot ({slope}){WHERE}{GELU}"},
    )


def _clip(formulas: Formulas, settings: Mapping[str, str], given: Collection[str]) -> Formulas:
    """Open where there is no bound."""
    if "low" in given and "high" in given:
        return formulas
    if "low" in given:
        return Formulas(r"\max(<x>, <low>)", {"x": r"<g> \odot [<low> \le <x>]"})
    if "high" in given:
        return Formulas(r"\min(<x>, <high>)", {"x": r"<g> \odot [<x> \le <high>]"})
    return Formulas("<x>", {"x": "<g>"})


_CHANGES = {"tiled_attention": _attention, "gelu": _gelu, "clip": _clip}
_OPTIONAL = {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}  # without a default
_SWITCHES: dict[str, tuple[dict[str, str], ...]] = {
    "tiled_attention": ({"is_causal": "True"},),
    "gelu": ({"approximate": "'tanh'"},),
}
