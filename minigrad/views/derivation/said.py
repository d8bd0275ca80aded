r"""Formulas that say their settings: over which axes a maximum is, what an index picks.

The declared formulas of an op leave this unsaid; here it is filled in from one call's settings and
shapes. Everything that changes what an op computes shows in its formula, or else in words beside it
(`unsaid`).
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ..variants import formulas_of
from . import moved, over
from .call import Call, Said, Unknown
from .symbols import number_tex

if TYPE_CHECKING:
    from ...recording.record import Entry
    from ...recording.trace import Trace

__all__ = ["templates", "unsaid"]

QUIET = ("rng", "keepdims")  # which changes no entry, and is in the shape of the result
BY_VARIANT = ("clip", "gelu")  # what variants say of their settings is all there is


def templates(trace: Trace, entry: Entry) -> Said:
    """An op's formulas for one call; a rule may be told for one of many inputs, as `arrays2`."""
    return _formulas(trace, entry)[0]


def unsaid(trace: Trace, entry: Entry) -> dict[str, str]:
    """The settings of a call that its formulas leave unsaid."""
    (tex, rules), all_said = _formulas(trace, entry)
    said = " ".join([tex, *rules.values()])
    return {
        name: text
        for name, text in entry.settings.items()
        if not all_said and f"<{name}>" not in said and name not in QUIET and text != "None"
    }


def _formulas(trace: Trace, entry: Entry) -> tuple[Said, bool]:
    """An op's formulas for one call, and whether they say all of its settings."""
    made = formulas_of(trace, entry)
    plain = made.tex, dict(made.vjp_tex)
    say = SAY.get(entry.op or "")
    if say is None or not trace.into(entry):
        return plain, entry.op in BY_VARIANT
    try:
        return say(Call(trace, entry, made)) or plain, True
    except Unknown:
        return plain, False


def _einsum(call: Call) -> Said | None:
    """The subscripts of forward; those of each rule have the gradient in their input's place."""
    subscripts = (call.setting("subscripts") or "").replace(" ", "")
    terms, arrow, out = subscripts.partition("->")
    parts = terms.split(",")
    if not arrow:
        letters = terms.replace(",", "").replace("...", "")
        once = sorted(c for c in {*letters} if letters.count(c) == 1)
        out = "..." * ("..." in terms) + "".join(once)
    if len(parts) != len(call.inputs):
        return None

    def einsum(given: list[str], to: str, listed: list[str]) -> str:
        left = ",".join(given) + r" \to " + (to or "1")
        return rf"\operatorname{{einsum}}_{{{left}}}({', '.join(listed)})".replace(
            "...", r"\ldots "
        )

    names = [f"<{name}>" for name in call.inputs]
    rules = {}
    for i, (name, part) in enumerate(zip(call.inputs, parts, strict=True)):
        rest = [j for j in range(len(parts)) if j != i]
        given, listed = [out, *(parts[j] for j in rest)], ["<g>", *(names[j] for j in rest)]
        rules[name] = einsum(given, part, listed)
    return einsum(parts, out, names), rules


def _cast(call: Call) -> Said | None:
    there = rf"\operatorname{{cast}}_{{\text{{{call.entry.dtype}}}}}(<x>)"
    return there, {"x": "<g>" if np.dtype(call.entry.dtype).kind in "fc" else r"0\, <g>"}


def _attention(call: Call) -> Said | None:
    """The scale as the number that it is."""
    number = number_tex(repr(1 / sqrt(call.x[-1] or 1)))

    def scaled(tex: str) -> str:
        return tex.replace(r"\tfrac{1}{\sqrt{d_k}}", number)

    return scaled(call.made.tex), {k: scaled(rule) for k, rule in call.made.vjp_tex.items()}


def _linear(call: Call) -> Said | None:
    """The sum over every axis but the last is written by who knows the axes."""
    return call.made.tex, {**call.made.vjp_tex, "b": "<g>"}


SAY = moved.SAY | over.SAY
SAY |= {"astype": _cast, "einsum": _einsum, "linear": _linear, "tiled_attention": _attention}
