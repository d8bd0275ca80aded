"""Values in the place of a formula's slots, written as a person would.

A product of matrices stays one: it is transposed factor by factor and takes an index. Anything else
gets brackets where it would be misread without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .text import text
from .tree import (
    ADDING,
    COMMA,
    SUM,
    Accent,
    Call,
    Fraction,
    Group,
    Node,
    Root,
    Row,
    Script,
    Sign,
    Slot,
    is_negative,
    items_of,
    level,
    row,
    split,
)

__all__ = [
    "ONE",
    "fill",
    "gradient",
    "gradient_of",
    "indexed",
    "is_one",
    "summed",
    "symbol_name",
    "transposed",
]

ONE = Sign("number", "1")
TOP, CIRCLE, MINUS = (Sign("operator", tex) for tex in (r"\top", r"\circ", "-"))
PARTIAL, LOSS = Sign("operator", r"\partial"), Sign("letter", "L")
TIMES = Sign("operator", r"\odot")
ENTRYWISE = (TIMES, Sign("operator", r"\oslash"))
THIN = Sign("space", r"\,")


def gradient(symbol: Node) -> Node:
    """The gradient of L for a symbol: ∂L/∂X."""
    return Fraction(Row((PARTIAL, LOSS)), Row((PARTIAL, symbol)))


def is_one(node: Node) -> bool:
    return node == ONE


def gradient_of(node: Node) -> Node | None:
    """The symbol X of ∂L/∂X; None for anything else."""
    if isinstance(node, Fraction) and items_of(node.top) == (PARTIAL, LOSS):
        return items_of(node.bottom)[-1]
    return None


def symbol_name(node: Node) -> str:
    r"""The name that a symbol spells, whatever is above it; nothing for what is no symbol.

    >>> from . import parse
    >>> symbol_name(parse(r"S_{\mathrm{raw}}^\top")), symbol_name(parse("X Y"))
    ('S_raw', '')
    """
    inner = node.base if isinstance(node, Script) else node
    if not isinstance(inner, Sign) or inner.kind not in ("letter", "word"):
        return ""
    return text(replace(node, above=None) if isinstance(node, Script) else node)


def _bracketed(node: Node) -> Group:
    return Group("(", node, ")", tall=True)


# ---------------------------------------------------------------- products of matrices


def _factors(node: Node) -> tuple[Node, ...]:
    """The factors of a product of matrices; none if it is something else."""
    items = items_of(node)
    return items if all(map(_is_factor, items)) else ()


def _is_factor(node: Node) -> bool:
    if isinstance(node, Script):
        return _is_factor(node.base)
    if isinstance(node, Sign):
        return node.kind in ("letter", "word", "text")
    return isinstance(node, Group | Row | Slot) or gradient_of(node) is not None


def transposed(node: Node) -> Node:
    r"""A formula's transpose; of a product, factor by factor.

    >>> from . import latex, parse
    >>> latex(transposed(parse(r"A^\top B")))
    'B^\\top A'
    """
    if is_one(node):
        return node
    factors = _factors(node)
    if len(factors) > 1:
        return row([transposed(factor) for factor in reversed(factors)])
    if isinstance(node, Script) and node.above == TOP:
        inside = node.base if node.below is None else replace(node, above=None)
        return inside.inside if isinstance(inside, Group) else inside
    if isinstance(node, Script) and node.above is None:
        return replace(node, above=TOP)
    symbol = isinstance(node, Sign | Script | Accent | Group)
    return Script(node if symbol else _bracketed(node), above=TOP)


def indexed(node: Node, index: Node | None) -> Node:
    r"""One matrix of a stack of them.

    >>> from . import latex, parse
    >>> latex(indexed(gradient(parse("W_Q")), parse("b")))
    '\\frac{\\partial L}{\\partial W_{Q,b}}'
    """
    if index is None or is_one(node):
        return node
    if (symbol := gradient_of(node)) is not None:
        return gradient(indexed(symbol, index))
    if isinstance(node, Script) and node.above == TOP and isinstance(node.base, Group):
        return replace(node, base=replace(node.base, inside=indexed(node.base.inside, index)))
    if isinstance(node, Script):
        below = [] if node.below is None else [*items_of(node.below), COMMA]
        return replace(node, below=row([*below, *items_of(index)]))
    plain = isinstance(node, Sign) and node.kind in ("letter", "word")
    return Script(node if plain else _bracketed(node), below=index)


def summed(node: Node, over: Node | None) -> Node:
    """The sum over some indices."""
    if over is None:
        return node
    body = _bracketed(node) if level(node) == "sum" else node
    return Row((Script(SUM, below=over), *items_of(body)))


# ---------------------------------------------------------------- slots


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
            return Call(_base(fill(head, values), index=True), replace_inside(group, values))
        case Fraction(top, bottom):
            return replace(node, top=fill(top, values), bottom=fill(bottom, values))
        case Root(inside):
            return Root(fill(inside, values))
        case Script():
            return _script(node, values)
        case Accent(mark, base):
            return Accent(mark, fill(base, values))
    return node


def replace_inside(group: Group, values: Mapping[str, Node]) -> Group:
    return replace(group, inside=fill(group.inside, values))


def _script(script: Script, values: Mapping[str, Node]) -> Node:
    below = None if script.below is None else fill(script.below, values)
    above = None if script.above is None else _exponent(fill(script.above, values))
    base = fill(script.base, values)
    if not isinstance(script.base, Slot):
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
    inner = node.base if isinstance(node, Script) else node
    symbol = isinstance(inner, Sign) and inner.kind in ("letter", "word", "function", "operator")
    scripted = isinstance(node, Script) and (
        node.above == TOP or (index and node.below is not None)
    )
    if isinstance(node, Slot | Group) or (symbol and not scripted):
        return node
    return _bracketed(node)


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
    while is_one(values.get("g", LOSS)) and Slot("g") in kept and len(kept) > 1:
        at = kept.index(Slot("g"))
        before, after = kept[at - 1 : at], kept[at + 1 : at + 2]
        if after == [TIMES] or (after and _is_factor(after[0])):
            del kept[at : at + 1 + (after == [TIMES])]
        elif before in ([TIMES], [THIN]) or (before and _is_factor(before[0])):
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
            found.append(_bracketed(value))
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
    return beside or not _factors(value)


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
