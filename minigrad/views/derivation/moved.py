"""Formulas of ops that move or pick entries: to which shape, along which axis, at which index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .axes import missing
from .call import Call, Said
from .indices import along, index_tex, span
from .symbols import array_letters, number_tex, times

__all__ = ["SAY"]


def _swapped(call: Call) -> Said | None:
    axes = [call.setting(name) for name in ("axis1", "axis2")]
    if None in axes or not call.x:
        return None
    one, two = sorted(axis % len(call.x) for axis in axes)
    if two == len(call.x) - 1 and one == two - 1:
        return r"<x>^\top", {"x": r"<g>^\top"}
    name = rf"\operatorname{{swap}}_{{{one},{two}}}"
    return f"{name}(<x>)", {"x": f"{name}(<g>)"}


def _transposed(call: Call) -> Said | None:
    axes, ndim = call.setting("axes"), len(call.x)
    if axes is None and ndim == 2:
        return r"<x>^\top", {"x": r"<g>^\top"}
    order = tuple(axes) if axes is not None else tuple(reversed(range(ndim)))
    back = np.argsort(np.array(order, int) % max(ndim, 1))
    turned = [",".join(str(a % ndim) for a in o) for o in (order, back)]
    there, again = (rf"\operatorname{{transpose}}_{{{o}}}" for o in turned)
    return f"{there}(<x>)", {"x": f"{again}(<g>)"}


def _reshaped(call: Call) -> Said | None:
    there, back = (rf"\operatorname{{reshape}}_{{{times(s)}}}" for s in (call.entry.shape, call.x))
    return f"{there}(<x>)", {"x": f"{back}(<g>)"}


def _expanded(call: Call) -> Said | None:
    axis, ndim = call.setting("axis"), len(call.entry.shape)
    axes = (axis,) if isinstance(axis, int) else axis or ()
    at = ",".join(str(a) for a in sorted(a % ndim for a in axes))
    return rf"\operatorname{{expand}}_{{{at}}}(<x>)", {
        "x": rf"\operatorname{{squeeze}}_{{{at}}}(<g>)"
    }


def _squeezed(call: Call) -> Said | None:
    axes = call.axes()
    if call.setting("axis") is None:
        axes = [k for k, n in enumerate(call.x) if n == 1]
    if not axes:
        return None
    at = ",".join(map(str, axes))
    return rf"\operatorname{{squeeze}}_{{{at}}}(<x>)", {
        "x": rf"\operatorname{{expand}}_{{{at}}}(<g>)"
    }


def _repeated(call: Call) -> Said | None:
    whole = call.entry.shape
    letters = array_letters(len(whole))
    over = ",".join(letters[k] for k in missing(call.x, whole))
    there = rf"\operatorname{{broadcast}}_{{{times(whole)}}}(<x>)"
    return there, {"x": rf"\sum_{{{over}}} <g>" if over else "<g>"}


def _joined(call: Call) -> Said | None:
    """Each input gets its own part of the gradient back."""
    whole, axis = call.entry.shape, call.setting("axis")
    if call.text("axis") == "None":
        sizes = [int(np.prod(shape, dtype=int)) for shape in call.shapes]
        return r"\operatorname{concat}(<arrays>)", call.parts(0, sizes)
    k = axis % len(whole)
    there = rf"\operatorname{{concat}}_{{{array_letters(len(whole))[k]}}}(<arrays>)"
    return there, call.parts(k, [shape[k] for shape in call.shapes])


def _stacked(call: Call) -> Said | None:
    ndim = len(call.entry.shape)
    k = call.setting("axis") % ndim
    there = rf"\operatorname{{stack}}_{{{array_letters(ndim)[k]}}}(<arrays>)"
    rules = (f"<g>[{along(k, ndim, str(i))}]" for i in range(len(call.inputs)))
    return there, dict(zip(call.inputs, rules, strict=True))


def _padded(call: Call) -> Said | None:
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


def _index(call: Call, name: str) -> str:
    """An index: the symbol of an array, or what the record has as text."""
    return f"<{name}>" if name in call.inputs else index_tex(call.text(name))


def _picked(call: Call) -> Said | None:
    at = _index(call, "index")
    return f"<x>[{at}]", {"x": rf"\operatorname{{scatter}}_{{{at}}}(<g>)"}


def _scattered(call: Call) -> Said | None:
    at = _index(call, "index")
    return rf"\operatorname{{scatter}}_{{{at}}}(<x>)", {"x": f"<g>[{at}]"}


def _taken(call: Call) -> Said | None:
    at, axis, size = _index(call, "indices"), call.setting("axis"), int(np.prod(call.x, dtype=int))
    if axis is None:
        there = rf"\operatorname{{reshape}}_{{{size}}}(<x>)[{at}]"
        flat = rf"\operatorname{{scatter}}_{{{at}}}(<g>)"
        return there, {"x": rf"\operatorname{{reshape}}_{{{times(call.x)}}}({flat})"}
    at = along(axis % len(call.x), len(call.x), at) if axis % len(call.x) else at
    return f"<x>[{at}]", {"x": rf"\operatorname{{scatter}}_{{{at}}}(<g>)"}


# op: its formulas in one call; None where the declared ones say everything
SAY: dict[str, Callable[[Call], Said | None]] = {
    "broadcast_to": _repeated,
    "concatenate": _joined,
    "expand_dims": _expanded,
    "getitem": _picked,
    "pad": _padded,
    "reshape": _reshaped,
    "scatter_add": _scattered,
    "squeeze": _squeezed,
    "stack": _stacked,
    "swapaxes": _swapped,
    "take": _taken,
    "transpose": _transposed,
}
