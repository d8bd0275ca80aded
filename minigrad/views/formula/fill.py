"""Values in the place of a formula's slots, written as a person would.

A product of matrices stays one, numbers stand in front, factors of one are left out, and what would
be misread gets brackets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .products import ONE, bracketed, factors, is_factor, is_one, transposed
from .tree import (
    ADDING,
    COMMA,
    MINUS,
    TOP,
    Accent,
    Call,
    Fraction,
    Group,
    Node,
    Row,
    Script,
    Sign,
    Slot,
    base_of,
    is_negative,
    items_of,
    level,
    operator,
    row,
    split,
)

__all__ = ["fill"]

CIRCLE, TIMES = operator(r"\circ"), operator(r"\odot")
ENTRYWISE = (TIMES, operator(r"\oslash"))
THIN = Sign("space", r"\,")
GRADIENT = Slot("g")


def fill(node: Node, values: Mapping[str, Node]) -> Node:
    r"""A formula with values in the place of its slots; a slot without one stays.

    >>> from . import latex, parse
    >>> template = parse(r"<g> \odot <a>^{\circ (<n> - 1)} \odot <n>")
    >>> latex(fill(template, {"a": parse("X"), "n": parse("3"), "g": parse("a + b")}))
    '3\\, \\left(a + b\\right) \\odot X^{\\circ 2}'
    """
    match node:
        case Slot(name):
            return values.get(name, node)
        case Row(items):
            return _tidy(row(_filled(_without_ones(items, values), values)))
        case Group(inside=inside):
            return replace(node, inside=fill(inside, values))
        case Call(head, group):
            function = fill(head, values)
            whole = replace(group, inside=fill(group.inside, values))
            return Call(_base(function, True) if isinstance(head, Slot) else function, whole)
        case Fraction(top, bottom):
            return replace(node, top=fill(top, values), bottom=fill(bottom, values))
        case Script():
            return _script(node, values)
        case Accent(mark, base):
            return Accent(mark, fill(base, values))
    return node


def _script(script: Script, values: Mapping[str, Node]) -> Node:
    below = None if script.below is None else fill(script.below, values)
    above = None if script.above is None else _exponent(fill(script.above, values))
    base = fill(script.base, values)
    if not isinstance(script.base, Slot) or base == script.base:
        return Script(base, below, above)
    if above == TOP and below is None:
        return transposed(base)
    if above == ONE and below is None:
        return base
    base = _base(base, index=below is not None)
    if isinstance(base, Script) and base.above is None and below is None:
        return replace(base, above=above)
    return Script(base, below, above)


def _base(node: Node, index: bool) -> Node:
    """A value that a script or an index stands behind."""
    inner = base_of(node)
    symbol = isinstance(inner, Sign) and inner.kind in ("letter", "word", "function", "operator")
    scripted = isinstance(node, Script) and (
        node.above == TOP or (index and node.below is not None)
    )
    if isinstance(node, Slot | Group) or (symbol and not scripted):
        return node
    return bracketed(node)


def _exponent(node: Node) -> Node:
    """An exponent entry by entry, worked out if it is one number less another."""
    items = items_of(node)
    if len(items) != 2 or items[0] != CIRCLE or not isinstance(items[1], Group):
        return node
    terms = split(items[1].inside, MINUS)
    if len(terms) != 2 or not all(isinstance(t, Sign) and t.kind == "number" for t in terms):
        return node
    try:
        power = float(terms[0].tex) - float(terms[1].tex)  # type: ignore[union-attr]
    except ValueError:
        return node
    return ONE if power == 1 else Row((CIRCLE, Sign("number", f"{power:g}")))


def _without_ones(items: tuple[Node, ...], values: Mapping[str, Node]) -> list[Node]:
    """A row less its factors <g> where the gradient is 1: it need not be written."""
    kept = list(items)
    while is_one(values.get("g", GRADIENT)) and GRADIENT in kept and len(kept) > 1:
        at = kept.index(GRADIENT)
        before, after = kept[at - 1 : at], kept[at + 1 : at + 2]
        if after == [TIMES] or (after and is_factor(after[0])):
            del kept[at : at + 1 + (after == [TIMES])]
        elif before in ([TIMES], [THIN]) or (before and is_factor(before[0])):
            del kept[at - (before in ([TIMES], [THIN])) : at + 1]
        else:
            break
    return kept


def _filled(items: list[Node], values: Mapping[str, Node]) -> list[Node]:
    found: list[Node] = []
    for i, item in enumerate(items):
        value = fill(item, values)
        before = items[i - 1] if i else None
        after = items[i + 1] if i + 1 < len(items) else None
        if value is item or not _needs_brackets(value, before, after):
            found += items_of(value)
        else:
            found.append(bracketed(value))
    return found


def _needs_brackets(value: Node, before: Node | None, after: Node | None) -> bool:
    """Whether a value would be misread between its neighbours."""
    edges = (None, COMMA)
    if level(value) == "atom" or (before in edges and after in edges):
        return False
    terms = (None, *ADDING)
    if before in terms and after in terms and not is_negative(value):
        return level(value) == "sum" and before is not None
    beside = before in ENTRYWISE or after in ENTRYWISE or _is_function(before)
    return beside or not factors(value)


def _is_function(node: Node | None) -> bool:
    return isinstance(node, Sign) and node.kind == "function"


def _tidy(node: Node) -> Node:
    """Numbers stand before what they multiply entry by entry."""
    parts = split(node, TIMES)
    if len(parts) == 1 or level(node) != "product":
        return node
    numbers = [part for part in parts if _is_number(part)]
    others = [part for part in parts if part not in numbers]
    if not numbers or not others:
        return node
    items: list[Node] = []
    for number in numbers:
        items += [*items_of(number), THIN]
    for i, part in enumerate(others):
        items += [*([TIMES] if i else []), *items_of(part)]
    return row(items)


def _is_number(node: Node) -> bool:
    if isinstance(node, Fraction):
        return node.small and _is_number(node.top)
    return isinstance(node, Sign) and node.kind == "number"
