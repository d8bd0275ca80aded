r"""Formulas that say their settings: over which axes a maximum is, what an index picks.

The declared formulas of an op leave this unsaid; here it is filled in from one call's settings and
shapes. Everything that changes what an op computes shows in its formula, or else in words beside it
(`unsaid`).
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ..variants import Formulas, formulas_of, is_bare
from .axes import missing
from .indices import along, index_tex, span
from .symbols import array_letters, number_tex, times

if TYPE_CHECKING:
    from ...record import Entry
    from ...trace import Trace

__all__ = ["templates", "unsaid"]

QUIET = ("rng", "keepdims")  # which changes no entry, and is in the shape of the result
Said = tuple[str, dict[str, str]]


def templates(trace: Trace, entry: Entry) -> Said:
    """An op's formulas for one call; a rule may be told for one of many inputs, as `arrays2`."""
    made = formulas_of(trace, entry)
    plain = made.tex, dict(made.vjp_tex)
    say = _SAY.get(entry.op or "")
    try:
        return (say(_Call(trace, entry, made)) if say and trace.into(entry) else None) or plain
    except _Unknown:
        return plain


def unsaid(trace: Trace, entry: Entry) -> dict[str, str]:
    """The settings of a call that its formulas leave unsaid."""
    if entry.op in _SAY or entry.op in _BY_VARIANT:
        return {}
    tex, rules = templates(trace, entry)
    said = " ".join([tex, *rules.values()])
    return {
        name: text
        for name, text in entry.settings.items()
        if f"<{name}>" not in said and name not in QUIET and text != "None"
    }


class _Unknown(Exception):
    """A setting that the record does not hold."""


@dataclass
class _Call:
    """One call: what was declared, the settings, and the shapes."""

    trace: Trace
    entry: Entry
    made: Formulas

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.trace[edge.source].shape for edge in self.trace.into(self.entry)]

    @property
    def x(self) -> tuple[int, ...]:
        return self.shapes[0]

    @property
    def inputs(self) -> list[str]:
        return [edge.input for edge in self.trace.into(self.entry)]

    def text(self, name: str) -> str:
        if is_bare(self.entry) and name not in self.entry.settings:
            raise _Unknown(name)
        return self.entry.settings.get(name, "None")

    def setting(self, name: str) -> Any:
        try:
            return literal_eval(self.text(name))
        except (ValueError, SyntaxError):
            return None

    def axes(self, name: str = "axis") -> list[int]:
        """The axes of x that a setting names; all without one."""
        axis, ndim = self.setting(name), len(self.x)
        named = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        return sorted(a % ndim for a in named) if ndim else []

    def parts(self, axis: int, sizes: list[int]) -> dict[str, str]:
        """For each input the rule that cuts its part out of the gradient."""
        rules, end = {}, 0
        for name, size in zip(self.inputs, sizes, strict=True):
            cut = along(axis, len(self.entry.shape), span(end, end + size))
            rules[name] = f"<g>[{cut}]"
            end += size
        return rules

    def over(self) -> tuple[str, str]:
        """The letters of the axes that the op goes over, and x with all of its letters."""
        letters = array_letters(len(self.x))
        over = ",".join(letters[k] for k in self.axes())
        return over, f"<x>_{{{','.join(letters)}}}" if letters else "<x>"

    def partly(self) -> str:
        """A subscript: over which axes, if not over all."""
        over, _ = self.over()
        return f"_{{{over}}}" if over and len(self.axes()) < len(self.x) else ""


# ---------------------------------------------------------------- over axes


def _summed(call: _Call) -> Said | None:
    over, x = call.over()
    if not over:
        return None
    return rf"\sum_{{{over}}} {x}", {"x": rf"\operatorname{{broadcast}}{call.partly()}(<g>)"}


def _averaged(call: _Call) -> Said | None:
    if not (where := call.partly()):
        return None
    back = rf"\tfrac1n \operatorname{{broadcast}}{where}(<g>)"
    return rf"\operatorname{{mean}}{where}\, {call.over()[1]}", {"x": back}


def _varying(call: _Call) -> Said | None:
    where, ddof = call.partly(), call.setting("ddof") or 0
    n = f"n - {ddof}" if ddof else "n"
    mean = rf"\operatorname{{mean}}{where}(<x>)"
    there = (
        rf"\operatorname{{var}}{where}\, {call.over()[1]}" if where else r"\operatorname{var}(<x>)"
    )
    if ddof:
        over = call.over()[0]
        there = rf"\tfrac{{1}}{{{n}}} \sum_{{{over}}} (<x> - {mean})^{{\circ 2}}"
    back = rf"\tfrac{{2}}{{{n}}} \operatorname{{broadcast}}{where}(<g>) \odot (<x> - {mean})"
    return there, {"x": back}


def _extreme(call: _Call) -> Said | None:
    if not (where := call.partly()):
        return None
    back = rf"<g> \odot [<x> = <out>] \oslash \#{where}[<x> = <out>]"
    return rf"\{call.entry.op}{where} {call.over()[1]}", {"x": back}


def _logsumexp(call: _Call) -> Said | None:
    over, x = call.over()
    if not over:
        return None
    there, where = rf"\log \sum_{{{over}}} e^{{{x}}}", call.partly()
    softmax = (
        rf"\operatorname{{softmax}}_{{{over}}}" if len(call.x) > 1 else r"\operatorname{softmax}"
    )
    g = rf"\operatorname{{broadcast}}{where}(<g>)" if where else "<g>"
    return there, {"x": rf"{g} \odot {softmax}(<x>)"}


def _softmax(call: _Call) -> Said | None:
    last = [len(call.x) - 1]
    axes = last if call.text("axis") == "-1" else call.axes()
    if axes == last or not call.x:
        return None
    over, _ = call.over()
    if call.entry.op == "log_softmax":
        back = rf"<g> - e^{{<out>}} \odot \operatorname{{sum}}_{{{over}}}(<g>)"
        return rf"\log \operatorname{{softmax}}_{{{over}}}(<x>)", {"x": back}
    back = rf"<out> \odot (<g> - \operatorname{{sum}}_{{{over}}}(<g> \odot <out>))"
    return rf"\operatorname{{softmax}}_{{{over}}}(<x>)", {"x": back}


def _running(call: _Call) -> Said | None:
    letters, axis = array_letters(len(call.x)), call.setting("axis")
    if not letters:
        return None
    flat = axis is None and len(call.x) != 1
    if flat:
        size = int(np.prod(call.x, dtype=int))
        there = rf"\sum_{{k' \le k}} \operatorname{{reshape}}_{{{size}}}(<x>)_{{k'}}"
        return there, {
            "x": rf"\operatorname{{reshape}}_{{{times(call.x)}}}(\sum_{{k' \ge k}} <g>_{{k'}})"
        }
    k = (axis or 0) % len(call.x)
    moved = ",".join(f"{c}'" if i == k else c for i, c in enumerate(letters))
    ranges = [rf"\sum_{{{letters[k]}' {sign} {letters[k]}}}" for sign in (r"\le", r"\ge")]
    return f"{ranges[0]} <x>_{{{moved}}}", {"x": f"{ranges[1]} <g>_{{{moved}}}"}


# ---------------------------------------------------------------- entries moved


def _swapped(call: _Call) -> Said | None:
    axes = [call.setting(name) for name in ("axis1", "axis2")]
    if None in axes or not call.x:
        return None
    one, two = sorted(axis % len(call.x) for axis in axes)
    if two == len(call.x) - 1 and one == two - 1:
        return r"<x>^\top", {"x": r"<g>^\top"}
    name = rf"\operatorname{{swap}}_{{{one},{two}}}"
    return f"{name}(<x>)", {"x": f"{name}(<g>)"}


def _transposed(call: _Call) -> Said | None:
    axes, ndim = call.setting("axes"), len(call.x)
    if axes is None and ndim == 2:
        return r"<x>^\top", {"x": r"<g>^\top"}
    order = tuple(axes) if axes is not None else tuple(reversed(range(ndim)))
    back = np.argsort(np.array(order, int) % max(ndim, 1))
    turned = [",".join(str(a % ndim) for a in o) for o in (order, back)]
    there, again = (rf"\operatorname{{transpose}}_{{{o}}}" for o in turned)
    return f"{there}(<x>)", {"x": f"{again}(<g>)"}


def _reshaped(call: _Call) -> Said | None:
    there, back = (rf"\operatorname{{reshape}}_{{{times(s)}}}" for s in (call.entry.shape, call.x))
    return f"{there}(<x>)", {"x": f"{back}(<g>)"}


def _expanded(call: _Call) -> Said | None:
    axis, ndim = call.setting("axis"), len(call.entry.shape)
    axes = (axis,) if isinstance(axis, int) else axis or ()
    at = ",".join(str(a) for a in sorted(a % ndim for a in axes))
    return rf"\operatorname{{expand}}_{{{at}}}(<x>)", {
        "x": rf"\operatorname{{squeeze}}_{{{at}}}(<g>)"
    }


def _squeezed(call: _Call) -> Said | None:
    axes = call.axes()
    if call.setting("axis") is None:
        axes = [k for k, n in enumerate(call.x) if n == 1]
    if not axes:
        return None
    at = ",".join(map(str, axes))
    return rf"\operatorname{{squeeze}}_{{{at}}}(<x>)", {
        "x": rf"\operatorname{{expand}}_{{{at}}}(<g>)"
    }


def _repeated(call: _Call) -> Said | None:
    whole = call.entry.shape
    letters = array_letters(len(whole))
    over = ",".join(letters[k] for k in missing(call.x, whole))
    there = rf"\operatorname{{broadcast}}_{{{times(whole)}}}(<x>)"
    return there, {"x": rf"\sum_{{{over}}} <g>" if over else "<g>"}


def _joined(call: _Call) -> Said | None:
    """Each input gets its own part of the gradient back."""
    whole, axis = call.entry.shape, call.setting("axis")
    if call.text("axis") == "None":
        sizes = [int(np.prod(shape, dtype=int)) for shape in call.shapes]
        return r"\operatorname{concat}(<arrays>)", call.parts(0, sizes)
    k = axis % len(whole)
    there = rf"\operatorname{{concat}}_{{{array_letters(len(whole))[k]}}}(<arrays>)"
    return there, call.parts(k, [shape[k] for shape in call.shapes])


def _stacked(call: _Call) -> Said | None:
    ndim = len(call.entry.shape)
    k = call.setting("axis") % ndim
    there = rf"\operatorname{{stack}}_{{{array_letters(ndim)[k]}}}(<arrays>)"
    rules = (f"<g>[{along(k, ndim, str(i))}]" for i in range(len(call.inputs)))
    return there, dict(zip(call.inputs, rules, strict=True))


def _padded(call: _Call) -> Said | None:
    widths = np.broadcast_to(call.setting("pad_width") or 0, (len(call.x), 2)).tolist()
    said = ", ".join(f"{before}{{+}}{after}" for before, after in widths)
    filled, filling = call.text("constant_values"), ""
    if filled not in ("0", "None"):
        filling = f", {number_tex(filled)}"
    inside = [
        "{:}" if not before + after else span(before, before + n)
        for (before, after), n in zip(widths, call.x, strict=True)
    ]
    there = rf"\operatorname{{pad}}_{{{said}}}(<x>{filling})"
    return there, {"x": f"<g>[{', '.join(inside)}]"}


# ---------------------------------------------------------------- entries picked


def _index(call: _Call, name: str) -> str:
    """An index: the symbol of an array, or what the record has as text."""
    return f"<{name}>" if name in call.inputs else index_tex(call.text(name))


def _picked(call: _Call) -> Said | None:
    at = _index(call, "index")
    return f"<x>[{at}]", {"x": rf"\operatorname{{scatter}}_{{{at}}}(<g>)"}


def _scattered(call: _Call) -> Said | None:
    at = _index(call, "index")
    return rf"\operatorname{{scatter}}_{{{at}}}(<x>)", {"x": f"<g>[{at}]"}


def _taken(call: _Call) -> Said | None:
    at, axis, size = _index(call, "indices"), call.setting("axis"), int(np.prod(call.x, dtype=int))
    if axis is None:
        there = rf"\operatorname{{reshape}}_{{{size}}}(<x>)[{at}]"
        flat = rf"\operatorname{{scatter}}_{{{at}}}(<g>)"
        return there, {"x": rf"\operatorname{{reshape}}_{{{times(call.x)}}}({flat})"}
    at = along(axis % len(call.x), len(call.x), at) if axis % len(call.x) else at
    return f"<x>[{at}]", {"x": rf"\operatorname{{scatter}}_{{{at}}}(<g>)"}


# ---------------------------------------------------------------- others


def _einsum(call: _Call) -> Said | None:
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


def _cast(call: _Call) -> Said | None:
    there = rf"\operatorname{{cast}}_{{\text{{{call.entry.dtype}}}}}(<x>)"
    return there, {"x": "<g>" if np.dtype(call.entry.dtype).kind in "fc" else r"0\, <g>"}


def _attention(call: _Call) -> Said | None:
    """The scale as the number that it is."""
    number = number_tex(repr(1 / sqrt(call.x[-1] or 1)))

    def scaled(tex: str) -> str:
        return tex.replace(r"\tfrac{1}{\sqrt{d_k}}", number)

    return scaled(call.made.tex), {k: scaled(rule) for k, rule in call.made.vjp_tex.items()}


def _linear(call: _Call) -> Said | None:
    """The sum over every axis but the last is written by who knows the axes."""
    return call.made.tex, {**call.made.vjp_tex, "b": "<g>"}


# op: its formulas in one call; None where the declared ones say everything
_SAY: dict[str, Callable[[_Call], Said | None]] = {
    "astype": _cast,
    "broadcast_to": _repeated,
    "concatenate": _joined,
    "cumsum": _running,
    "einsum": _einsum,
    "expand_dims": _expanded,
    "getitem": _picked,
    "linear": _linear,
    "log_softmax": _softmax,
    "logsumexp": _logsumexp,
    "max": _extreme,
    "mean": _averaged,
    "min": _extreme,
    "pad": _padded,
    "reshape": _reshaped,
    "scatter_add": _scattered,
    "softmax": _softmax,
    "squeeze": _squeezed,
    "stack": _stacked,
    "sum": _summed,
    "swapaxes": _swapped,
    "take": _taken,
    "tiled_attention": _attention,
    "transpose": _transposed,
    "var": _varying,
}
_BY_VARIANT = ("clip", "gelu")  # what variants say of their settings is all there is
