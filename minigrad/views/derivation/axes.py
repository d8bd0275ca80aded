"""Axes: those along which a value was repeated, and formulas that say which axes an op works on."""

from __future__ import annotations

import re
from ast import literal_eval
from typing import TYPE_CHECKING, Any

import numpy as np

from .symbols import array_letters

if TYPE_CHECKING:
    from ...record import Edge, Entry
    from ...trace import Trace

__all__ = [
    "base_of",
    "broadcasts",
    "in_product",
    "index_of",
    "missing",
    "stack_letters",
    "templates",
]


def stack_letters(ndim: int) -> list[str]:
    """The letters that index a stack of matrices: b, or b and h, or b_1, b_2, …"""
    return ["b", "h"][:ndim] if ndim < 3 else [f"b_{k}" for k in range(1, ndim + 1)]


def missing(shape: tuple[int, ...], whole: tuple[int, ...]) -> list[int]:
    """The axes along which a shape is repeated to fill the whole; a length of 1 repeats nothing."""
    padded = (0,) * (len(whole) - len(shape)) + shape
    return [k for k, (n, m) in enumerate(zip(padded, whole, strict=True)) if n != m != 1]


def broadcasts(shapes: list[tuple[int, ...]], whole: tuple[int, ...]) -> bool:
    try:
        return len(shapes) > 1 and np.broadcast_shapes(*shapes) == whole
    except ValueError:
        return False


def index_of(shape: tuple[int, ...], over: list[int], letters: list[str]) -> str:
    """The letters that index a factor of a stack, of those summed over."""
    shift = len(letters) - len(shape)
    return ",".join(letters[k] for k in over if k >= shift and shape[k - shift] != 1)


def _setting(entry: Entry, name: str) -> Any:
    try:
        return literal_eval(entry.settings[name])
    except (KeyError, ValueError, SyntaxError):
        return None


def _swap(entry: Entry, shape: tuple[int, ...]) -> tuple[str, str]:
    axes = [_setting(entry, name) for name in ("axis1", "axis2")]
    if None in axes or not shape:
        return "", ""
    one, two = sorted(axis % len(shape) for axis in axes)
    if two == len(shape) - 1 and one == two - 1:
        return r"<x>^\top", r"<g>^\top"
    name = rf"\operatorname{{swap}}_{{{one},{two}}}"
    return f"{name}(<x>)", f"{name}(<g>)"


def _transposition(entry: Entry, shape: tuple[int, ...]) -> tuple[str, str]:
    axes = _setting(entry, "axes")
    if axes is None and len(shape) == 2:
        return r"<x>^\top", r"<g>^\top"
    order = tuple(axes) if axes is not None else tuple(reversed(range(len(shape))))
    turned = [",".join(map(str, o)) for o in (order, np.argsort(np.array(order) % len(shape)))]
    there, back = (rf"\operatorname{{transpose}}_{{{o}}}" for o in turned)
    return f"{there}(<x>)", f"{back}(<g>)"


def _reshaped(entry: Entry, shape: tuple[int, ...]) -> tuple[str, str]:
    there, back = (rf"\operatorname{{reshape}}_{{{_times(s)}}}" for s in (entry.shape, shape))
    return f"{there}(<x>)", f"{back}(<g>)"


def _times(shape: tuple[int, ...]) -> str:
    return r" \times ".join(map(str, shape)) or "1"


def _summed(entry: Entry, shape: tuple[int, ...]) -> tuple[str, str]:
    axis = _setting(entry, "axis")
    letters = array_letters(len(shape))
    axes = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    over = ",".join(letters[k] for k in sorted(a % len(shape) for a in axes)) if shape else ""
    return (rf"\sum_{{{over}}} <x>_{{{','.join(letters)}}}", "") if over else ("", "")


# op: its formula and the rule of its one input; empty where the declared ones stand
SAID = {"swapaxes": _swap, "transpose": _transposition, "reshape": _reshaped, "sum": _summed}


def templates(trace: Trace, entry: Entry) -> tuple[str, dict[str, str]]:
    """An op's formulas, with axes said where the declared ones leave them unsaid."""
    edges = trace.into(entry)
    said = SAID.get(entry.op or "")
    there, back = said(entry, trace[edges[0].source].shape) if said and edges else ("", "")
    if there:
        return there, {"x": back or entry.vjp_tex.get("x", "")}
    if entry.value is None:  # a graph's bare record does not know its constants
        return entry.tex, entry.vjp_tex
    given = {edge.input for edge in edges} | {base_of(edge, entry) for edge in edges}
    given |= {*entry.settings, "g", "out"}
    rules = {k: _without(rule, given) for k, rule in entry.vjp_tex.items()}
    if entry.op == "linear":  # a sum over every axis but the last, which the caller writes out
        rules["b"] = "<g>"
    return _without(entry.tex, given), rules


def _without(template: str, given: set[str]) -> str:
    """A formula less the terms and factors that are optional and were not given."""
    for name in set(re.findall(r"<(\w+)>", template)) - given:
        template = re.sub(rf" (\+|\\odot) <{name}>", "", template)
    return template


def in_product(edge: Edge, user: Entry) -> bool:
    """Whether a use is as a factor in a product of matrices."""
    return user.op == "matmul" or (user.op == "linear" and edge.input != "b")


def base_of(edge: Edge, user: Entry) -> str:
    """An op's own name of an input: `arrays` for `arrays2`."""
    return edge.input if edge.input in user.vjp_tex else edge.input.rstrip("0123456789")
