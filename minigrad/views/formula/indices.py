r"""Computed indices, as in x_{n,c,2 i + k - 1}: what their letters range over, and what is read.

In a formula with a computed index, the last index of an array is a place: its letters have one
number for each of the array's remaining axes, and the labels of i are i#0, i#1, …. Entries outside
of an array are 0, or −∞ below a maximum. A letter ranges over the axis that it labels, over a size
that `k < <size>` gives, or else over an axis of the result, whose axes are in the order n, o, d, c,
f, m, i, k: examples and channels before places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ...engine.types import Array
from .named import FOLDS, Slots
from .tree import COMMA, EMPTY, EQUALS, Formula, operator, split

__all__ = ["Places", "ordered", "read"]

ORDER = "nodcfmik"
LESS = operator("<")


class Places:
    """What the letters of a formula range over; false where no index is computed.

    Args: slots: arrays and settings.  shape: the result's.  defined: letters that are numbers.
    """

    def __init__(
        self,
        formula: Formula,
        slots: Slots,
        shape: tuple[int, ...],
        defined: Collection[str] = (),
    ) -> None:
        self.ranges: dict[str, tuple[int, ...]] = {}
        self.axes = 0
        indexed = [
            (np.shape(slots[node.parts[0].text]), split(node.parts[1], COMMA))
            for node in formula
            if node.kind == "script" and node.parts[0].kind == "slot"
            and node.parts[0].text in slots and node.parts[1].kind == "row"
        ]  # fmt: skip
        equated = {letter for node in formula if (letter := _equated_letter(node))}
        if not equated and not any(part.kind == "row" for _, parts in indexed for part in parts):
            return
        self.axes = max((len(sizes) - len(parts) + 1 for sizes, parts in indexed), default=0)
        for sizes, parts in indexed:
            for at, part in enumerate(parts):
                if part.kind == "letter":
                    self.ranges[part.text] = sizes[at:] if part is parts[-1] else (sizes[at],)
        folded: set[str] = set()
        for part in (part for node in formula for part in _folded(node)):
            sign, *size = split(part, LESS)
            folded.add(sign.text)
            if size:
                counts = np.broadcast_to(slots[size[0].text], self.axes)
                self.ranges[sign.text] = tuple(map(int, counts))
        used = {name for _, parts in indexed for part in parts for name in _letters(part)}
        result = sorted((equated | used) - folded - {*defined}, key=ORDER.index)
        for at, name in enumerate(result):
            self.ranges.setdefault(name, shape[at:] if name == result[-1] else (shape[at],))

    def __bool__(self) -> bool:
        return self.axes > 0

    def labels(self, letter: str) -> list[str]:
        """The labels of a letter's axes."""
        sizes = self.ranges.get(letter, (0,))
        return [f"{letter}#{k}" for k in range(len(sizes))] if letter in "mik" else [letter]


def _folded(node: Formula) -> list[Formula]:
    """The parts of the subscript of a sum or of another fold."""
    is_fold = node.kind == "script" and node.parts[0].text in {*FOLDS, "first"}
    return split(node.parts[1], COMMA) if is_fold and node.parts[1] != EMPTY else []


def _equated_letter(node: Formula) -> str:
    """The left-hand side of an equation in brackets, such as [m = i + k]; or nothing."""
    if node.kind in ("group", "tall") and node.text == "[":
        left, *right = split(node.parts[0], EQUALS)
        if len(right) == 1 and left.kind == "letter" and len(left.text) == 1:
            return left.text
    return ""


def _letters(part: Formula) -> set[str]:
    return {node.text for node in part if node.kind == "letter"}


def ordered(labels: tuple[str, ...]) -> tuple[str, ...]:
    """A result's labels in the order of its axes."""
    return tuple(sorted(labels, key=lambda label: (ORDER.index(label[0]), label)))


def read(array: Array, indices: Sequence[Array], fill: float) -> Array:
    """The entries at indices, one array for each axis; `fill` for those outside of the array."""
    places = [at.astype(int) for at in indices]
    inside = np.ones((), bool)
    for at, n in zip(places, array.shape, strict=True):
        inside = inside & (at >= 0) & (at < n)
    if not array.size:
        return np.full(inside.shape, fill)
    near = tuple(np.clip(at, 0, n - 1) for at, n in zip(places, array.shape, strict=True))
    return np.where(inside, array[near], fill)
