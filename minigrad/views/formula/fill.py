"""Values in the place of a formula's slots, and numbers, written as a person would.

A product of matrices stays one, numbers are written in front, factors of 1 are left out, and
brackets surround what would be misread without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ..plain import bare
from .parse import parse
from .products import ONE, bracketed, factors, is_factor, transposed
from .tree import (
    COMMA,
    EMPTY,
    GRADIENT,
    MINUS,
    ODOT,
    OSLASH,
    PLUS,
    TRANSPOSE,
    Formula,
    base_of,
    is_negative,
    items_of,
    level,
    operator,
    row,
    script,
    split,
)

__all__ = ["fill", "number"]

THIN = Formula("space", r"\,")


def fill(node: Formula, values: Mapping[str, Formula]) -> Formula:
    r"""A formula with values in the place of its slots; a slot without one stays.

    >>> from . import latex, parse
    >>> template = parse(r"<g> \odot <a>^{\circ (<n> - 1)} \odot <n>")
    >>> latex(fill(template, {"a": parse("X"), "n": parse("3"), "g": parse("a + b")}))
    '3\\, \\left(a + b\\right) \\odot X^{\\circ 2}'
    """
    match node:
        case Formula("slot", name):
            return values.get(name, node)
        case Formula("row", _, items):
            kept = _without_ones(items) if values.get("g") == ONE else items
            return _numbers_first(row(_filled(kept, values)))
        case Formula("call", _, (Formula("slot") as head, group)):
            return Formula("call", "", (_base(fill(head, values), True), fill(group, values)))
        case Formula("script", _, (Formula("slot") as base, below, above)):
            marks = fill(below, values), _exponent(fill(above, values))
            return _scripted(fill(base, values), *marks)
    return node.mapped(lambda part: fill(part, values))


def _scripted(base: Formula, below: Formula, above: Formula) -> Formula:
    if below == EMPTY and above in (TRANSPOSE, ONE):
        return transposed(base) if above == TRANSPOSE else base
    base = _base(base, below != EMPTY)
    if base.kind == "script" and base.parts[2] == below == EMPTY:
        base, below = base.parts[:2]
    return script(base, below, above)


def _base(node: Formula, index: bool) -> Formula:
    """A value that a script or an index follows, in brackets unless it is a symbol."""
    symbol = base_of(node).kind in ("letter", "word", "function", "operator")
    if node.kind == "script":
        _, below, above = node.parts
        symbol = symbol and above != TRANSPOSE and not (index and below != EMPTY)
    return node if symbol or node.kind in ("slot", "group", "tall") else bracketed(node)


def _exponent(node: Formula) -> Formula:
    """An exponent; the difference of two numbers is computed."""
    match items_of(node):
        case (Formula(_, r"\circ") as circle, Formula("group", _, (inside,))):
            terms = split(inside, MINUS)
            if len(terms) == 2 and all(t.kind == "number" and "\\" not in t.text for t in terms):
                power = float(terms[0].text) - float(terms[1].text)
                return ONE if power == 1 else row((circle, Formula("number", f"{power:g}")))
    return node


def _without_ones(items: Sequence[Formula]) -> list[Formula]:
    """A row without its factors <g>: a gradient that is 1 need not be written."""
    kept = [*items]
    for at in reversed([i for i, item in enumerate(items) if item == GRADIENT]):
        before, after = kept[max(at - 1, 0) : at], kept[at + 1 : at + 2]
        if after == [ODOT]:
            del kept[at : at + 2]
        elif before in ([ODOT], [THIN]):
            del kept[at - 1 : at + 1]
        elif any(map(is_factor, before + after)):
            del kept[at]
    return kept


def _filled(items: Sequence[Formula], values: Mapping[str, Formula]) -> list[Formula]:
    found: list[Formula] = []
    for before, item, after in zip((EMPTY, *items), items, (*items[1:], EMPTY), strict=False):
        value = fill(item, values)
        as_it_is = value == item or not _needs_brackets(value, before, after)
        found += items_of(value) if as_it_is else (bracketed(value),)
    return found


def _needs_brackets(value: Formula, before: Formula, after: Formula) -> bool:
    """Whether a value would be misread between its neighbours."""
    if level(value) == "atom" or {before, after} <= {EMPTY, COMMA}:
        return False
    if {before, after} <= {EMPTY, PLUS, MINUS} and not is_negative(value):
        return level(value) == "sum" and before != EMPTY
    entrywise = {before, after} & {ODOT, OSLASH} or before.kind == "function"
    return bool(entrywise) or not factors(value)


def _numbers_first(node: Formula) -> Formula:
    """Write numbers before what they multiply entry by entry."""
    parts = split(node, ODOT)
    numbers = [part for part in parts if _is_number(part)]
    others = [part for part in parts if part not in numbers]
    if not numbers or not others or len(parts) == 1 or level(node) != "product":
        return node
    items = [item for number in numbers for item in (*items_of(number), THIN)]
    items += [item for part in others for item in (*items_of(part), ODOT)]
    return row(items[:-1])


def _is_number(node: Formula) -> bool:
    return node.kind == "number" or (node.kind == "tfrac" and _is_number(node.parts[0]))


# ---------------------------------------------------------------- numbers


def number(text: str) -> Formula:
    r"""A number as Python prints it, as a person writes it; other text as text.

    >>> from . import latex
    >>> [latex(number(x)) for x in ("2.0", "0.5773502691896258", "1e-05", "-0.125", "0.123456789")]
    ['2', '\\tfrac{1}{\\sqrt{3}}', '10^{-5}', '-0.125', '0.123457\\ldots']
    >>> [latex(number(x)) for x in ("0.3333333333333333", "0.25", "-2.0")]
    ['\\tfrac13', '0.25', '-2']
    """
    try:
        value = float(bare(text))
    except ValueError:
        return Formula("text", text)
    if value != value:
        return Formula("word", "nan")
    return row((MINUS, _positive(-value))) if value < 0 else _positive(value)


def _positive(value: float) -> Formula:
    if value == inf:
        return parse(r"\infty")
    if value == int(value) and value < 1e6:
        return Formula("number", str(int(value)))
    return _unit_fraction(value) or _decimal(value)


def _unit_fraction(value: float) -> Formula | None:
    if not 0 < value < 1 or len(repr(value)) <= 7:
        return None
    for tex, n, root in (
        (r"\tfrac{{1}}{{{}}}", 1 / value, 1),
        (r"\tfrac{{1}}{{\sqrt{{{}}}}}", value**-2, 2),
    ):
        if 1 < round(n) < 1e5 and abs(value - round(n) ** (-1 / root)) < 4e-16:
            return parse(tex.format(round(n)))
    return None


def _decimal(value: float) -> Formula:
    short = f"{value:.6g}"
    digits, _, power = short.partition("e")
    mantissa = Formula("number", digits + r"\ldots" * (float(short) != value))
    if not power:
        return mantissa
    ten = parse(f"10^{{{int(power)}}}")
    return ten if digits == "1" else row((mantissa, operator(r"\cdot"), ten))
