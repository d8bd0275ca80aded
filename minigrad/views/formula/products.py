"""Products of matrices: transposed factor by factor, taken matrix by matrix, added over a stack."""

from __future__ import annotations

from dataclasses import replace

from .text import text
from .tree import (
    COMMA,
    SUM,
    TOP,
    Accent,
    Fraction,
    Group,
    Node,
    Row,
    Script,
    Sign,
    Slot,
    base_of,
    items_of,
    level,
    operator,
    row,
)

__all__ = [
    "ONE",
    "bracketed",
    "factors",
    "gradient",
    "gradient_of",
    "indexed",
    "is_factor",
    "is_one",
    "summed",
    "symbol_name",
    "transposed",
]

ONE = Sign("number", "1")
PARTIAL, LOSS = operator(r"\partial"), Sign("letter", "L")


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
    inner = base_of(node)
    if not isinstance(inner, Sign) or inner.kind not in ("letter", "word"):
        return ""
    return text(replace(node, above=None) if isinstance(node, Script) else node)


def bracketed(node: Node) -> Group:
    return Group("(", node, ")", tall=True)


def factors(node: Node) -> tuple[Node, ...]:
    """The factors of a product of matrices; none if it is something else."""
    items = items_of(node)
    return items if all(map(is_factor, items)) else ()


def is_factor(node: Node) -> bool:
    if isinstance(node, Script):
        return is_factor(node.base)
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
    if len(several := factors(node)) > 1:
        return row([transposed(factor) for factor in reversed(several)])
    if isinstance(node, Script) and node.above == TOP:
        inside = node.base if node.below is None else replace(node, above=None)
        return inside.inside if isinstance(inside, Group) else inside
    if isinstance(node, Script) and node.above is None:
        return replace(node, above=TOP)
    symbol = isinstance(node, Sign | Script | Accent | Group)
    return Script(node if symbol else bracketed(node), above=TOP)


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
    return Script(node if plain else bracketed(node), below=index)


def summed(node: Node, over: Node | None) -> Node:
    """The sum over some indices."""
    if over is None:
        return node
    body = bracketed(node) if level(node) == "sum" else node
    return Row((Script(SUM, below=over), *items_of(body)))
