"""Products of matrices: transposed factor by factor, taken matrix by matrix, added over a stack."""

from __future__ import annotations

from .tree import (
    COMMA,
    EMPTY,
    SUM,
    TRANSPOSE,
    Formula,
    base_of,
    items_of,
    letter,
    level,
    operator,
    row,
    script,
)
from .write import text

ONE = Formula("number", "1")
PARTIAL, LOSS_LETTER = operator(r"\partial"), letter("L")


def gradient(symbol: Formula) -> Formula:
    return Formula("frac", "", (row((PARTIAL, LOSS_LETTER)), row((PARTIAL, symbol))))


def gradient_of(node: Formula) -> Formula | None:
    """The symbol X of ∂L/∂X; None for anything else."""
    is_one = node.kind == "frac" and items_of(node.parts[0]) == (PARTIAL, LOSS_LETTER)
    return items_of(node.parts[1])[-1] if is_one else None


def symbol_name(node: Formula) -> str:
    r"""The name that a symbol spells, whatever is above it; nothing for what is no symbol.

    >>> from . import parse
    >>> symbol_name(parse(r"S_{\mathrm{raw}}^\top")), symbol_name(parse("X Y"))
    ('S_raw', '')
    """
    if base_of(node).kind not in ("letter", "word"):
        return ""
    return text(script(*node.parts[:2]) if node.kind == "script" else node)


def bracketed(node: Formula) -> Formula:
    return Formula("tall", "(", (node,))


def factors(node: Formula) -> tuple[Formula, ...]:
    """The factors of a product of matrices; none if it is something else."""
    items = items_of(node)
    return items if all(map(is_factor, items)) else ()


def is_factor(node: Formula) -> bool:
    kinds = ("letter", "word", "text", "group", "tall", "row", "slot")
    return base_of(node).kind in kinds or gradient_of(base_of(node)) is not None


def transposed(node: Formula) -> Formula:
    r"""A formula's transpose; of a product, factor by factor.

    >>> from . import latex, parse
    >>> latex(transposed(parse(r"A^\top B")))
    'B^\\top A'
    """
    if len(several := factors(node)) > 1:
        return row([transposed(factor) for factor in reversed(several)])
    match node:
        case Formula("script", _, (base, below, above)) if above == TRANSPOSE:
            if below != EMPTY:
                return script(base, below)
            return base.parts[0] if base.kind == "tall" else base
        case Formula("script", _, (base, below, above)) if above == EMPTY:
            return script(base, below, TRANSPOSE)
        case Formula("row" | "frac" | "tfrac" | "call"):
            return script(bracketed(node), above=TRANSPOSE)
    return node if node == ONE else script(node, above=TRANSPOSE)


def indexed(node: Formula, index: Formula) -> Formula:
    r"""One matrix of a stack of them; all of it if the index is EMPTY.

    >>> from . import latex, parse
    >>> latex(indexed(gradient(parse("W_Q")), parse("b")))
    '\\frac{\\partial L}{\\partial W_{Q,b}}'
    """
    if index == EMPTY or node == ONE:
        return node
    if (symbol := gradient_of(node)) is not None:
        return gradient(indexed(symbol, index))
    match node:
        case Formula("script", _, (Formula("tall", open, (inside,)), _, above)) if (
            above == TRANSPOSE
        ):
            return script(Formula("tall", open, (indexed(inside, index),)), above=TRANSPOSE)
        case Formula("script", _, (base, below, above)):
            before = () if below == EMPTY else (*items_of(below), COMMA)
            return script(base, row((*before, *items_of(index))), above)
    return script(node if node.kind in ("letter", "word") else bracketed(node), index)


def summed(node: Formula, over: Formula) -> Formula:
    """The sum over some indices; the formula itself over none."""
    if over == EMPTY:
        return node
    body = bracketed(node) if level(node) == "sum" else node
    return row((script(SUM, over), *items_of(body)))
