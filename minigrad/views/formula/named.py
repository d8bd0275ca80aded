"""The functions that formulas name: one table of what each does to arrays.

A function takes the call, its subscript as text, and its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import erf
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...engine.errors import UnreadableFormulaError
from ...engine.types import Array
from ...ops.notation import letters

__all__ = [
    "ENTRYWISE", "FOLDS", "FUNCTIONS", "FormulaCall", "Slots", "cumulated", "index",
]  # fmt: skip

Slots: TypeAlias = Mapping[str, Any]  # arrays and settings by name


class FormulaCall(NamedTuple):
    """What a function may depend on: the result's shape, the op's settings, and the slots."""

    shape: tuple[int, ...]
    settings: Slots
    slots: Slots


ERF = np.vectorize(erf, otypes=[float])
ENTRYWISE: dict[str, Callable[[Array], Array]] = {
    "round": np.rint,
    "floor": np.floor,
    r"\log": np.log,
    r"\exp": np.exp,
    r"\tanh": np.tanh,
    r"\sin": np.sin,
    r"\cos": np.cos,
    r"\sinh": np.sinh,
    r"\cosh": np.cosh,
    r"\arctan": np.arctan,
    "sign": np.sign,
    "erf": ERF,
    r"\sigma": lambda x: 1 / (1 + np.exp(-x)),
    r"\Phi": lambda x: 0.5 * (1 + ERF(x / np.sqrt(2))),  # the normal distribution, its density
    r"\varphi": lambda x: np.exp(-np.square(x) / 2) / np.sqrt(2 * np.pi),
}


# ------------------------------------------------------------------ folds


FOLDS: dict[str, Callable[..., Array]] = {
    r"\sum": np.sum,
    "sum": np.sum,
    r"\prod": np.prod,
    r"\max": np.max,
    r"\min": np.min,
    "mean": np.mean,
    "var": np.var,
}


CUMULATED: dict[str, Callable[..., Array]] = {
    r"\sum": np.cumsum,
    "sum": np.cumsum,
    r"\prod": np.cumprod,
}


def cumulated(name: str, sign: str, array: Array) -> Array:
    """Along the last axis: sums up to each place (≤), from each (≥); products of all others (≠)."""
    if sign not in (r"\le", r"\ge", r"\ne") or (sign != r"\ne" and name not in CUMULATED):
        raise UnreadableFormulaError(f"{name} below which stands {sign}")
    if sign == r"\ne":
        others = [np.delete(array, i, -1) for i in range(array.shape[-1])]
        return np.stack([FOLDS[name](part, axis=-1) for part in others], -1)
    step = CUMULATED[name]
    if sign == r"\le":
        return step(array, axis=-1)
    return np.flip(step(np.flip(array, -1), axis=-1), -1)


# ------------------------------------------------------------------ axes, shapes, indices


def _axes(below: str, array: Array) -> tuple[int, ...] | None:
    """The axes that a subscript names, by letter or by number; None for all."""
    if not below:
        return None
    known = letters(array.ndim)
    parts = [part.strip() for part in below.split(",")]
    return tuple(int(p) if p.lstrip("-").isdigit() else known.index(p) for p in parts)


def _axis(below: str, array: Array) -> int | None:
    """The one axis that a subscript names; None for all entries in a row."""
    axes = _axes(below, array)
    return None if axes is None else axes[0]


def _shape(below: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", below))


def index(written: str, slots: Slots) -> Any:
    """NumPy's index for one that is written as `…, 1:2` or `[0, 2], new`."""
    if written in slots:
        return slots[written]
    parts = re.findall(r"\s*(\[[^\]]*\]|[^,]+)", written)
    return tuple(_part(part.strip()) for part in parts if part.strip())


def _part(written: str) -> Any:
    if written == "…":
        return Ellipsis
    if written == "new":
        return None
    if written.startswith("["):
        return [int(n) for n in re.findall(r"-?\d+", written)]
    if ":" in written:
        return slice(*(int(part) if part else None for part in written.split(":")))
    return int(written)


# ------------------------------------------------------------------ the functions


def _row(fold: str) -> Callable[..., Array]:
    return lambda call, below, x: FOLDS[fold](x, axis=-1, keepdims=True)


def _softmax(call: FormulaCall, below: str, x: Array) -> Array:
    axes = _axes(below, x) if "≤" not in below else (-1,)
    axes = (-1,) if axes is None and x.ndim else axes
    if "≤" in below or "<" in below:
        x = np.where(_allowed(below, x.shape[-2:]), x, -np.inf)
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    weights = np.exp(x - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=axes, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def _log_softmax(call: FormulaCall, below: str, x: Array) -> Array:
    """The logarithm of softmax, also where softmax itself is too small for a float."""
    axes = _axes(below, x)
    axes = (-1,) if axes is None and x.ndim else axes
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    return x - top - np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True))


def _allowed(below: str, shape: tuple[int, int]) -> Array:
    """Which keys j a query i may attend to, by conditions such as j ≤ i and |i - j| < n."""
    i, j = np.arange(shape[0])[:, None], np.arange(shape[1])
    allowed = j <= i if "j ≤ i" in below else np.ones(shape, bool)
    near = re.search(r"\|i - j\| < (\d+)", below)
    return allowed & (np.abs(i - j) < int(near[1])) if near else allowed


def _broadcast(call: FormulaCall, below: str, x: Array) -> Array:
    """To the shape in the subscript, or to the result's shape along the axes that it names."""
    if re.search(r"\d", below):
        return np.broadcast_to(x, _shape(below))
    axes = _axes(below, np.empty(call.shape))
    if axes is not None and x.ndim < len(call.shape):
        x = np.expand_dims(x, axes)
    return np.broadcast_to(x, call.shape)


def _scatter(call: FormulaCall, below: str, x: Array, where: Array | str | None = None) -> Array:
    """Each entry of x added where it was taken from: at an index, by padding, along an axis."""
    made = np.zeros(call.shape)
    if where is None:
        places = index(below, call.slots)
        np.add.at(made, places, np.reshape(x, made[places].shape))
    elif isinstance(where, str):  # the mode of the padding
        places = np.arange(made.size).reshape(call.shape)
        np.add.at(made.reshape(-1), _pad(call, below, places, where), x)
    else:
        np.add.at(made, _along(where, _axis(below, made) or 0), x)
    return made


def _along(indices: Array, axis: int) -> tuple[Array, ...]:
    """The index of NumPy's take_along_axis."""
    places = [*np.ix_(*map(np.arange, indices.shape))]
    places[axis] = indices
    return tuple(places)


def _unsorted(call: FormulaCall, below: str, g: Array) -> Array:
    """Undo sorting: the entry of g at the place to which sorting moved each entry of x."""
    x = call.slots["x"]
    axis = _axis(below, x)
    back = np.argsort(np.argsort(x, axis, "stable"), axis, "stable")
    return np.take_along_axis(g, back, axis).reshape(x.shape)


def _repeated(call: FormulaCall, below: str, x: Array) -> Array:
    return np.repeat(x, call.settings["repeats"], _axis(below, x))


def _summed_repeats(call: FormulaCall, below: str, g: Array) -> Array:
    """The sum of the copies of each entry."""
    made = np.zeros(call.shape)
    places = _repeated(call, below, np.arange(made.size).reshape(call.shape))
    np.add.at(made.reshape(-1), places, g)
    return made


def _onehot(call: FormulaCall, below: str, targets: Array) -> Array:
    axis = int(below or -1)
    scores = call.slots["logits" if "logits" in call.slots else "log_probs"]
    return np.moveaxis(np.eye(scores.shape[axis])[targets.astype(int)], -1, axis)


def _einsum(call: FormulaCall, below: str, *operands: Array) -> Array:
    """NumPy's, where the output may also repeat along a letter, or have it twice: a diagonal."""
    written = below.replace(" ", "").replace("…", ".").replace("1", "")
    inputs, _, output = written.partition("→")
    terms = inputs.split(",")
    ranks = [
        *((x.ndim, term) for x, term in zip(operands, terms, strict=True)),
        (len(call.shape), output),
    ]
    dots = max([0, *(rank + 1 - len(term) for rank, term in ranks if "." in term)])
    spare = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    ellipsis, spare = "".join(spare[:dots]), spare[dots:]
    for i, (rank, term) in enumerate(ranks[:-1]):
        terms[i] = term.replace(".", ellipsis[dots - (rank + 1 - len(term)) :])
    factors = [*operands]
    letters_out: list[str] = []
    for at, letter in enumerate(output.replace(".", ellipsis)):
        name = letter
        if letter in letters_out:
            name = spare.pop()
            terms.append(letter + name)
            factors.append(np.eye(call.shape[at]))
        elif not any(letter in term for term in terms):
            terms.append(letter)
            factors.append(np.ones(call.shape[at]))
        letters_out.append(name)
    return np.einsum(f"{','.join(terms)}->{''.join(letters_out)}", *factors)


def _pad(call: FormulaCall, below: str, x: Array, last: Array | str | float = 0.0) -> Array:
    widths = [tuple(map(int, pair.split("+"))) for pair in below.replace(" ", "").split(",")]
    if isinstance(last, str):
        return np.pad(x, widths, mode=last)  # type: ignore[call-overload]
    return np.pad(x, widths, constant_values=last)


def _rolled(by: int) -> Callable[..., Array]:
    def roll(call: FormulaCall, below: str, x: Array) -> Array:
        shift = call.settings["shift"]
        back = tuple(by * n for n in shift) if isinstance(shift, tuple) else by * shift
        return np.roll(x, back, _axes(below, x))

    return roll


def _clip(call: FormulaCall, below: str, x: Array) -> Array:
    if below.startswith("±"):
        size = float(call.slots[below[1:].strip()])
        return np.clip(x, -size, size)
    low, high = (call.slots.get(part, part) for part in below.split(","))
    return np.clip(x, float(low), float(high))


def _window_places(call: FormulaCall, shape: tuple[int, ...]) -> Array:
    """Of each window's entries, as (C, K, L, N), the place in an array (N, C, …); -1 outside."""
    n, settings = len(shape) - 2, call.settings
    size, stride, gap = (np.broadcast_to(settings[s], n) for s in ("size", "stride", "dilation"))
    span = gap * (size - 1)
    if settings["padding"] == "same":
        pads = [(s // 2, s - s // 2) for s in span]
    else:
        pads = [(p, p) for p in np.broadcast_to(settings["padding"], n)]
    places = np.arange(int(np.prod(shape))).reshape(shape)
    padded = np.pad(places, [(0, 0), (0, 0), *pads], constant_values=-1)
    spatial = tuple(range(2, 2 + n))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(span + 1), spatial)
    windows = windows[tuple(slice(None, None, step) for step in (1, 1, *stride, *gap))]
    windows = windows.transpose(1, *range(2 + n, 2 + 2 * n), *spatial, 0)  # (C, …, …, N)
    return windows.reshape(shape[1], np.prod(size), np.prod(windows.shape[1 + n : -1]), shape[0])


def _windows(call: FormulaCall, below: str, x: Array) -> Array:
    places = _window_places(call, call.settings.get("shape", x.shape))
    fill = call.settings.get("fill", 0.0)
    return np.where(places < 0, fill, np.append(np.ravel(x), fill)[places])


def _add_windows(call: FormulaCall, below: str, x: Array) -> Array:
    made = np.zeros(int(np.prod(call.shape)) + 1)
    np.add.at(made, _window_places(call, call.shape), x)
    return made[:-1].reshape(call.shape)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "rowsum": _row(r"\sum"),
    "rowmean": _row("mean"),
    "rowvar": _row("var"),
    "softmax": _softmax,
    "broadcast": _broadcast,
    "reshape": lambda call, below, x: np.reshape(x, _shape(below)),
    "transpose": lambda call, below, x: np.transpose(x, _shape(below)),
    "swap": lambda call, below, x: np.swapaxes(x, *_shape(below)),
    "expand": lambda call, below, x: np.expand_dims(x, _shape(below)),
    "squeeze": lambda call, below, x: np.squeeze(x, _shape(below) or None),
    "concat": lambda call, below, *xs: np.concatenate(xs, _axis(below, xs[0])),
    "stack": lambda call, below, *xs: np.stack(xs, letters(xs[0].ndim + 1).index(below)),
    "repeat": _repeated,
    r"sum\,of\,repeats": _summed_repeats,
    "pick": lambda call, below, x, indices: np.take_along_axis(x, indices, _axis(below, x)),
    "unsort": _unsorted,
    r"\log softmax": _log_softmax,
    "flip": lambda call, below, x: np.flip(x, _axes(below, x)),
    "roll": _rolled(1),
    "rollback": _rolled(-1),
    "tril": lambda call, below, x: np.tril(x, int(call.slots.get(below, below or 0))),
    "triu": lambda call, below, x: np.triu(x, int(call.slots.get(below, below or 0))),
    "sort": lambda call, below, x: np.sort(x, _axis(below, x)),
    "scatter": _scatter,
    "onehot": _onehot,
    "einsum": _einsum,
    "pad": _pad,
    "clip": _clip,
    "windows": _windows,
    "addwindows": _add_windows,
    "cast": lambda call, below, x: x,
}
