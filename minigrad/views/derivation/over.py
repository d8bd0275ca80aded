"""Formulas of ops that go over some axes: over which a maximum is, and how its gradient returns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .call import Call, Said
from .symbols import array_letters, times

__all__ = ["SAY"]


def _summed(call: Call) -> Said | None:
    over, x = call.over()
    if not over:
        return None
    return rf"\sum_{{{over}}} {x}", {"x": rf"\operatorname{{broadcast}}{call.partly()}(<g>)"}


def _averaged(call: Call) -> Said | None:
    if not (where := call.partly()):
        return None
    back = rf"\tfrac1n \operatorname{{broadcast}}{where}(<g>)"
    return rf"\operatorname{{mean}}{where}\, {call.over()[1]}", {"x": back}


def _varying(call: Call) -> Said | None:
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


def _extreme(call: Call) -> Said | None:
    if not (where := call.partly()):
        return None
    back = rf"<g> \odot [<x> = <out>] \oslash \#{where}[<x> = <out>]"
    return rf"\{call.entry.op}{where} {call.over()[1]}", {"x": back}


def _logsumexp(call: Call) -> Said | None:
    over, x = call.over()
    if not over:
        return None
    there, where = rf"\log \sum_{{{over}}} e^{{{x}}}", call.partly()
    softmax = (
        rf"\operatorname{{softmax}}_{{{over}}}" if len(call.x) > 1 else r"\operatorname{softmax}"
    )
    g = rf"\operatorname{{broadcast}}{where}(<g>)" if where else "<g>"
    return there, {"x": rf"{g} \odot {softmax}(<x>)"}


def _softmax(call: Call) -> Said | None:
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


def _running(call: Call) -> Said | None:
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


# op: its formulas in one call; None where the declared ones say everything
SAY: dict[str, Callable[[Call], Said | None]] = {
    "cumsum": _running,
    "log_softmax": _softmax,
    "logsumexp": _logsumexp,
    "max": _extreme,
    "mean": _averaged,
    "min": _extreme,
    "softmax": _softmax,
    "sum": _summed,
    "var": _varying,
}
