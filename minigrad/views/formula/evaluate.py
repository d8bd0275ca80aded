r"""The value of a formula, so that what is shown can be compared with what the code computes.

Σ, mean, max and min bind loosest: they take all that follows in their term. Then come ⊙ and ⊘, from
the left. Factors side by side bind tightest: a product of matrices, or of a number and anything.
Subscripts of a value are labels of its axes, which a Σ sums over; axes without labels have the
letters of `ops.notation.letters`. A sign that is defined behind `\quad` is evaluated where it is
used.

>>> from . import parse
>>> evaluate(parse(r"\sum_j <x>_{i,j} + n, \quad n = 10"), {"x": np.ones((2, 3))})
array([13., 13.])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...engine.errors import UnreadableFormulaError
from ...engine.types import Array
from ...ops.notation import letters
from . import named
from .indices import Places, ordered, read
from .named import Slots
from .products import gradient_of
from .recurrence import Steps
from .tree import (
    CIRCLE,
    COMMA,
    EMPTY,
    MINUS,
    ODOT,
    OSLASH,
    PLUS,
    TRANSPOSE,
    Formula,
    base_of,
    items_of,
    letter,
    operator,
    row,
    script,
    split,
)
from .tree import definitions as defined
from .write import text

__all__ = ["evaluate"]

COUNT = operator(r"\#")
COMPARE: dict[str, np.ufunc] = {
    "=": np.equal,
    "<": np.less,
    ">": np.greater,
    r"\lt": np.less,
    r"\gt": np.greater,
    r"\le": np.less_equal,
    r"\ge": np.greater_equal,
    r"\ne": np.not_equal,
}
AXIS_LABEL = re.compile(r"[^\W\d](_\d+)?'*")
SOFTMAX, LOG_SOFTMAX = Formula("function", "softmax"), Formula("function", r"\log softmax")
NUMBERS = ("number", "frac", "tfrac", "sqrt")  # what is multiplied entry by entry


class Labelled(NamedTuple):
    """An array, the labels that subscripts gave its axes, and whether it is a vector's ᵀ."""

    array: Array
    labels: tuple[str, ...] | None = None
    transposed: bool = False

    def mapped(self, change: Callable[[Array], Array]) -> Labelled:
        return Labelled(change(self.array), self.labels)

    @property
    def known_labels(self) -> tuple[str, ...]:
        """Its labels, or the usual letters of so many axes."""
        return tuple(letters(self.array.ndim)) if self.labels is None else self.labels


def _unlabelled(value: ArrayLike) -> Labelled:
    return Labelled(np.asarray(value))


def evaluate(
    formula: Formula,
    slots: Slots,
    *,
    settings: Slots | None = None,
    shape: tuple[int, ...] = (),
) -> Array:
    """The array that a formula gives.

    Args:
        slots: arrays and numbers in the place of its slots.
        settings: of the call, for named functions that say more than their subscript.
        shape: of the result, for functions that fill it and letters that range over its axes.
    Raises: UnreadableFormulaError, naming the part, for what the grammar cannot read.
    """
    body, definitions = defined(formula)
    run = _Evaluation(formula, definitions, named.FormulaCall(shape, settings or {}, slots))
    try:
        found = run.value(body)
    except RecursionError:
        raise UnreadableFormulaError("more steps than Python's recursion limit allows") from None
    if found.labels is None:
        return found.array
    usual = ordered(found.labels) if run.places else tuple(letters(found.array.ndim))
    return _aligned(found, usual) if {*usual} == {*found.labels} else found.array


class _Evaluation:
    """The values of a formula's parts.

    Attributes: axis: along which of the axes of places an index is computed, if one is.
        fill: the value of entries outside of an array.
    """

    def __init__(
        self, formula: Formula, definitions: list[tuple[Formula, Formula]], call: named.FormulaCall
    ) -> None:
        self.call = call
        self.slots = slots = call.slots
        self.definitions = {
            sign: body
            for sign, body in definitions
            if sign.kind != "text" or sign.text not in slots
        }
        self.steps = Steps(formula, definitions, slots, lambda part: self.value(part).array)
        defined_letters = [sign.text for sign, _ in definitions]
        self.places = Places(formula, {} if self.steps else slots, call.shape, defined_letters)
        self.axis: int | None = None
        self.fill = 0.0
        self.known: dict[Formula, Labelled | None] = {}  # None while it is computed

    # ------------------------------------------------------------------ sums and products

    def value(self, node: Formula) -> Labelled:
        """The value of any part."""
        if (node, EMPTY) in self.steps.rules:
            return Labelled(self.steps.all(node))
        if node in self.definitions and not (self.steps and node.kind == "script"):
            return self.definition(node)
        if node.kind != "row":
            return self.atom(node)
        if (choice := split(node, operator("?")))[1:]:
            yes, no = split(choice[1], operator(":"))
            parts = (self.value(choice[0]).array, self.value(yes).array, self.value(no).array)
            return Labelled(np.where(*parts))
        return self.sum(items_of(node))

    def definition(self, sign: Formula) -> Labelled:
        if self.axis is not None:  # it may differ from axis to axis
            return self.value(self.definitions[sign])
        if sign in self.known:
            value = self.known[sign]
            if value is None:
                raise UnreadableFormulaError(f"{text(sign)} is defined by itself")
            return value
        self.known[sign] = None
        self.known[sign] = value = self.value(self.definitions[sign])
        return value

    def sum(self, items: Sequence[Formula]) -> Labelled:
        """Terms added and subtracted; a Σ takes its whole term."""
        terms: list[tuple[Formula, list[Formula]]] = [(PLUS, [])]
        for item in items:
            if item in (PLUS, MINUS):
                terms.append((item, []))
            else:
                terms[-1][1].append(item)
        if not terms[0][1]:  # the formula begins with a sign
            del terms[0]
        values = []
        for sign, term in terms:
            value = self.product(term)
            if sign == MINUS:
                value = value.mapped(np.negative)
            if len(terms) > 1 and value.array.dtype == bool:
                value = value.mapped(_as_mask)
            values.append(value)
        if not values:
            raise UnreadableFormulaError("an empty formula")
        return reduce(partial(_together, np.add), values)

    def product(self, items: Sequence[Formula]) -> Labelled:
        """Chunks between ⊙ and ⊘, from the left."""
        total: Labelled | None = None
        chunk: list[tuple[Formula, Labelled]] = []
        how: np.ufunc = np.multiply
        rest = [item for item in items if item.kind != "space"]
        while rest:
            item = rest.pop(0)
            if item in (ODOT, OSLASH, operator("/"), operator(r"\cdot")):
                total = _chunked(total, how, chunk)
                how = np.multiply if item in (ODOT, operator(r"\cdot")) else np.divide
                chunk = []
            else:
                value, rest = self.prefixed(item, rest)
                chunk.append((item, value))
        return _chunked(total, how, chunk)

    def prefixed(self, item: Formula, rest: list[Formula]) -> tuple[Labelled, list[Formula]]:
        """The value of an item with what it applies to, and the rest of the term."""
        base, below, above = item.parts if item.kind == "script" else (item, EMPTY, EMPTY)
        name = base.text
        if base.kind in ("operator", "function") and name in named.FOLDS:
            if above != EMPTY:
                raise UnreadableFormulaError(f"the superscript {text(above)} of {text(base)}")
            if self.steps and below == letter("t"):
                return Labelled(self.steps.sum(row(rest))), []
            outer, self.fill = self.fill, -np.inf if name == r"\max" else 0.0
            value = self.product(rest)
            self.fill = outer
            return self.folded(name, below, value), []
        if base == operator(r"\lnot"):
            value, rest = self.prefixed(rest[0], rest[1:])
            return value.mapped(np.logical_not), rest
        if base.kind == "function" and name in named.ENTRYWISE:
            if not rest:
                raise UnreadableFormulaError(f"{name} of nothing")
            if name == r"\log" and _is_softmax(rest[0]):
                return self.value(_log_of(rest[0])), rest[1:]
            value, rest = self.prefixed(rest[0], rest[1:])
            value = value.mapped(named.ENTRYWISE[name])
            return (value if above == EMPTY else _power(value, self.value(above))), rest
        return self.value(item), rest

    # ------------------------------------------------------------------ factors

    def atom(self, node: Formula) -> Labelled:
        match node:
            case Formula("number", digits):
                return _unlabelled(float(digits))
            case Formula("letter", r"\pi"):
                return _unlabelled(np.pi)
            case Formula("letter", r"\infty"):
                return _unlabelled(np.inf)
            case Formula("letter", name) if name in self.places.ranges:
                return self.place(name)
            case Formula("text" | "slot", name) if name in self.slots:
                return _unlabelled(self.slots[name])
            case Formula("group" | "tall", "[", (inside,)):
                return self.holds(inside)
            case Formula("group" | "tall", "|", (inside,)):
                return self.value(inside).mapped(np.abs)
            case Formula("group" | "tall", _, (inside,)):
                parts = split(inside, COMMA)
                return self.value(inside) if len(parts) == 1 else self.several(parts)
            case Formula("frac" | "tfrac", _, (top, bottom)):
                return _together(np.divide, self.value(top), self.value(bottom))
            case Formula("sqrt", _, (inside,)):
                return self.value(inside).mapped(np.sqrt)
            case Formula("script", _, (base, below, above)):
                return self.scripted(base, below, above)
            case Formula("call", _, (head, Formula(_, bracket, (inside,)))):
                return self.called(head, bracket, inside)
        raise UnreadableFormulaError(f"{text(node) or node.text!r} is not defined")

    def place(self, name: str) -> Labelled:
        """All numbers that a letter of an index takes."""
        at = self.axis or 0
        return Labelled(np.arange(self.places.ranges[name][at]), (self.places.labels(name)[at],))

    def several(self, parts: Sequence[Formula]) -> Labelled:
        """Brackets with commas: steps of a sign, arrays side by side, or a number for each axis."""
        if any(part.text == r"\ldots" for part in parts):
            return Labelled(self.steps.sequence(parts))
        if self.axis is not None:
            return self.value(parts[self.axis])
        return Labelled(np.concatenate([self.value(part).array for part in parts], axis=-1))

    def along(self, axis: int, node: Formula) -> Labelled:
        """An index along one of the axes of places."""
        outer, self.axis = self.axis, axis
        value = self.value(node)
        self.axis = outer
        return value

    def scripted(self, base: Formula, below: Formula, above: Formula) -> Labelled:
        if self.steps and (found := self.steps.script(base, below, above)) is not None:
            return self.raised(Labelled(found[0]), found[1])
        if base == Formula("letter", "e") and below == EMPTY:
            return self.value(above).mapped(np.exp)
        if above != EMPTY and (sign := script(base, below)) in self.definitions:
            return self.raised(self.definition(sign), above)
        return self.raised(
            self.value(base) if below == EMPTY else self.subscripted(base, below), above
        )

    def raised(self, value: Labelled, above: Formula) -> Labelled:
        """A value with its superscript: a power, or a transposition."""
        if above == EMPTY:
            return value
        if above == TRANSPOSE:
            if value.array.ndim == 1:
                return Labelled(value.array, transposed=True)
            return value.mapped(lambda x: np.swapaxes(x, -1, -2) if x.ndim > 1 else x)
        items = items_of(above)
        if items[0] == CIRCLE:
            return _power(value, self.value(row(items[1:])))
        if value.array.ndim == 0:
            return _power(value, self.value(above))
        raise UnreadableFormulaError(f"the superscript {text(above)}")

    def subscripted(self, base: Formula, below: Formula) -> Labelled:
        """A value with labels for its axes, or one entry of each row, as x_{i, t_i} picks it."""
        value = self.value(base)
        if self.places and base.kind == "slot":
            return self.read(value.array, split(below, COMMA))
        signs = [text(part) for part in split(below, COMMA)]
        if any("_" in sign and not AXIS_LABEL.fullmatch(sign) for sign in signs):
            return self.picked(value, split(below, COMMA))
        if computed := [sign for sign in signs if not AXIS_LABEL.fullmatch(sign)]:
            raise UnreadableFormulaError(f"the index {computed[0]} is computed")
        if value.array.ndim > len(signs):  # axes that were summed away
            value = Labelled(np.squeeze(value.array))
        if value.array.ndim != len(signs):
            raise UnreadableFormulaError(f"{len(signs)} labels for {value.array.ndim} axes")
        return Labelled(value.array, tuple(signs))

    def read(self, array: Array, parts: list[Formula]) -> Labelled:
        """The entries of an array at indices, each of which may be computed."""
        count = array.ndim - len(parts) + 1  # of axes that the last part indexes
        found = [self.value(part) for part in parts[:-1]]
        found += [self.along(axis, parts[-1]) for axis in range(count)]
        labels = tuple(dict.fromkeys(label for one in found for label in one.labels or ()))
        return Labelled(read(array, [_aligned(one, labels) for one in found], self.fill), labels)

    def picked(self, value: Labelled, parts: list[Formula]) -> Labelled:
        """x_{i, t_i}: of each row the entry at t; rows over several axes count as one axis."""
        at = next(i for i, part in enumerate(parts) if part.kind == "script")
        where = self.value(parts[at].parts[0]).array.astype(int)
        labels = tuple(text(part) for i, part in enumerate(parts) if i != at)
        axis = at if len(parts) == value.array.ndim else -1
        found = np.take_along_axis(value.array, np.expand_dims(where, axis), axis)
        found = np.squeeze(found, axis)
        return Labelled(found if found.ndim == len(labels) else found.reshape(-1), labels)

    def holds(self, inside: Formula) -> Labelled:
        """Iverson's bracket: 1 where a condition holds, 0 elsewhere."""
        items = items_of(inside)
        signs = [i for i, item in enumerate(items) if item.text in COMPARE]
        if not signs:
            return self.value(inside).mapped(lambda x: x.astype(bool).astype(float))
        if self.places and len(signs) == 1 and items[0].kind == "letter":
            return self.is_at(items[0].text, row(items[2:]))
        bounds = [-1, *signs, len(items)]
        sides = [self.value(row(items[a + 1 : b])) for a, b in pairwise(bounds)]
        found = _unlabelled(1.0)
        for at, sign in enumerate(signs):
            one = _together(COMPARE[items[sign].text], sides[at], sides[at + 1])
            found = _together(np.multiply, found, one.mapped(lambda x: x.astype(float)))
        return found

    def is_at(self, name: str, where: Formula) -> Labelled:
        """[m = 2 i + k]: 1 where a letter equals a computed index along every axis."""
        found = _unlabelled(1.0)
        for axis in range(len(self.places.labels(name))):
            one = _together(
                np.equal, self.along(axis, Formula("letter", name)), self.along(axis, where)
            )
            found = _together(np.multiply, found, one.mapped(lambda x: x.astype(float)))
        return found

    def first(self, below: Formula, inside: Formula) -> Labelled:
        """1 at the first place, in the order of a letter, where a condition holds; 0 elsewhere."""
        outer, self.fill = self.fill, -np.inf
        value = self.value(inside)
        self.fill = outer
        name = text(items_of(below)[0])
        ends = [label for label in value.labels or () if label in self.places.labels(name)]
        rest = tuple(label for label in value.labels or () if label not in ends)
        array = _aligned(value, (*rest, *ends))
        rows = _flat(array, len(ends)) > 0
        found = rows & (np.cumsum(rows, axis=-1) == 1)
        return Labelled(np.reshape(found, array.shape).astype(float), (*rest, *ends))

    def called(self, head: Formula, bracket: str, inside: Formula) -> Labelled:
        base, below, above = head.parts if head.kind == "script" else (head, EMPTY, EMPTY)
        if base == COUNT:
            return self.folded(r"\sum", below, self.holds(inside), keep=True)
        if bracket == "[":
            return Labelled(self.value(head).array[named.index(text(inside), self.slots)])
        parts = split(inside, COMMA)
        name = base.text
        if name == "first":
            return self.first(below, inside)
        if base.kind in ("group", "tall"):  # (σ, tanh)(z): each function of its part
            functions = split(base.parts[0], COMMA)
            shares = np.split(self.value(inside).array, len(functions), axis=-1)
            pairs = zip(functions, shares, strict=True)
            made = [named.ENTRYWISE[f.text](share) for f, share in pairs]
            return Labelled(np.concatenate(made, axis=-1))
        if name in named.ENTRYWISE:
            value = self.value(inside).mapped(named.ENTRYWISE[name])
            return value if above == EMPTY else _power(value, self.value(above))
        if above != EMPTY:
            raise UnreadableFormulaError(f"the superscript {text(above)} of {text(base)}")
        if name in named.FOLDS and len(parts) == 1:
            return self.folded(name, below, self.value(inside), keep=True)
        if name in (r"\max", r"\min"):
            if below != EMPTY:
                raise UnreadableFormulaError(f"the subscript {text(below)} of {text(base)}")
            chosen = np.maximum if name == r"\max" else np.minimum
            return reduce(partial(_together, chosen), map(self.value, parts))
        if name not in named.FUNCTIONS:
            raise UnreadableFormulaError(f"the function {text(base) or name}")
        outer = self.call
        if name == "reshape":  # before it, entries lie in a row
            self.call = outer._replace(shape=(int(np.prod(outer.shape)),))
        values = [one for part in parts for one in self.arguments(part)]
        self.call = outer
        return Labelled(named.FUNCTIONS[name](self.call, text(below), *values))

    def arguments(self, part: Formula) -> list[Array | str]:
        """The values of one argument: several for a slot with several arrays."""
        if part.kind == "text":
            return [part.text]
        if part.kind == "slot" and isinstance(self.slots.get(part.text), tuple):
            return [*map(np.asarray, self.slots[part.text])]
        return [self.value(part).array]

    # ------------------------------------------------------------------ folds

    def folded(self, name: str, below: Formula, value: Labelled, keep: bool = False) -> Labelled:
        """Σ, mean, max … over labels; over all without any."""
        fold = named.FOLDS[name]
        array = value.array
        if below == EMPTY or not items_of(below):
            return Labelled(fold(array))
        if (cumulated := self.cumulated(name, below, value)) is not None:
            return cumulated
        names = [text(items_of(part)[0]) for part in split(below, COMMA)]
        if self.places:
            names = [label for name in names for label in self.places.labels(name)]
        axes = _axes_of(names, value)
        if value.labels is None:
            return Labelled(fold(array, axis=axes, keepdims=keep))
        left = tuple(label for label in value.labels if label not in names)
        return Labelled(fold(array, axis=axes), left)

    def cumulated(self, name: str, below: Formula, value: Labelled) -> Labelled | None:
        """A sum up to, or from, each place, as in Σ over i' ≤ i; a product of all but each."""
        sign = next((item.text for item in items_of(below) if item.text in COMPARE), None)
        if sign is None or value.labels is None or self.places:
            return None
        sides = [split(_inside(part), COMMA) for part in split(below, operator(sign))]
        first, second = ([text(part) for part in side] for side in sides)
        axes = _axes_of(first, value)
        ends = np.moveaxis(value.array, axes, range(-len(axes), 0))
        flat = _flat(ends, len(axes))
        found = np.reshape(named.cumulated(name, sign, flat), ends.shape)
        found = np.moveaxis(found, range(-len(axes), 0), axes)
        renamed = dict(zip(first, second, strict=True))
        return Labelled(found, tuple(renamed.get(x, x) for x in value.labels))


def _axes_of(labels: Sequence[str], value: Labelled) -> tuple[int, ...]:
    known = value.known_labels
    if missing := [label for label in labels if label not in known]:
        raise UnreadableFormulaError(f"{missing[0]} labels no axis of what is summed")
    return tuple(map(known.index, labels))


def _flat(array: Array, axes: int) -> Array:
    """The last so many axes as one."""
    lead = array.shape[: array.ndim - axes]
    return np.reshape(array, (*lead, int(np.prod(array.shape[array.ndim - axes :]))))


def _inside(node: Formula) -> Formula:
    """A formula without the brackets around it."""
    return node.parts[0] if node.kind in ("group", "tall") else node


def _is_softmax(node: Formula) -> bool:
    node = base_of(node)
    return base_of(node.parts[0] if node.kind == "call" else node) == SOFTMAX


def _log_of(node: Formula) -> Formula:
    """The logarithm of a call of softmax, by a function that does not underflow."""
    return LOG_SOFTMAX if node == SOFTMAX else node.mapped(_log_of)


def _chunked(
    total: Labelled | None, how: np.ufunc, chunk: list[tuple[Formula, Labelled]]
) -> Labelled:
    """Factors side by side, multiplied, then combined with the total before them."""
    if not chunk:
        raise UnreadableFormulaError("a product without a factor")
    (node, found), *others = chunk
    for other, value in others:
        scalar = found.array.ndim == 0 or value.array.ndim == 0
        entrywise = any(map(_is_entrywise, (node, other)))
        labelled = found.labels is not None or value.labels is not None
        if scalar or entrywise or labelled:
            found = _together(np.multiply, found, value)
        else:
            found = Labelled(_matrix_product(found, value))
        node = other
    return found if total is None else _together(how, total, found)


def _is_entrywise(factor: Formula) -> bool:
    """Whether it multiplies its neighbour entry by entry; ∂L/∂X, a matrix, does not."""
    return factor.text == "[" or (factor.kind in NUMBERS and gradient_of(factor) is None)


def _matrix_product(one: Labelled, other: Labelled) -> Array:
    """The product of matrices or stacks of them; with a vector's ᵀ, the outer product."""
    a, b = one.array, other.array
    if one.transposed:
        return a[:, None] * b[..., None, :]
    if other.transposed:
        return a[..., :, None] * b
    if a.ndim == b.ndim - 1 > 1 and a.shape[:-1] == b.shape[:-2]:  # of a vector for each matrix
        return np.matmul(a[..., None, :], b)[..., 0, :]
    if a.ndim - 1 == b.ndim > 1 and a.shape[:-2] == b.shape[:-1] and a.shape[-1] != b.shape[-2]:
        return np.matmul(a, b[..., None])[..., 0]
    return np.matmul(a, b)


def _together(combine: np.ufunc, one: Labelled, other: Labelled) -> Labelled:
    """Combines entry by entry; axes of the same label are the same axis."""
    if one.labels is None and other.labels is None:
        return Labelled(combine(one.array, other.array))
    labels = tuple(dict.fromkeys((*one.known_labels, *other.known_labels)))
    return Labelled(combine(_aligned(one, labels), _aligned(other, labels)), labels)


def _aligned(value: Labelled, labels: tuple[str, ...]) -> Array:
    """An array with an axis for each label, of length 1 where it has none."""
    known = value.known_labels
    array = np.transpose(
        value.array, sorted(range(len(known)), key=lambda i: labels.index(known[i]))
    )
    return np.expand_dims(array, [i for i, label in enumerate(labels) if label not in known])


def _as_mask(allowed: Array) -> Array:
    """What a boolean mask M adds to scores: 0 where True, −∞ where False."""
    return np.where(allowed, 0.0, -np.inf)


def _power(value: Labelled, exponent: Labelled) -> Labelled:
    return _together(np.power, value, exponent)
