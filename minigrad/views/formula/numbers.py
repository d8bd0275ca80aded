"""Numbers as a person writes them."""

from __future__ import annotations

import re
from math import inf

from .parse import parse
from .tree import MINUS, Node, operator, row

__all__ = ["number"]


def number(text: str) -> Node:
    r"""A number as Python prints it, as a person writes it; other text as text.

    >>> from . import latex
    >>> [latex(number(x)) for x in ("2.0", "0.5773502691896258", "1e-05", "-0.125", "0.123456789")]
    ['2', '\\tfrac{1}{\\sqrt{3}}', '10^{-5}', '-0.125', '0.123457\\ldots']
    """
    try:
        value = float(re.sub(r"^np\.\w+\((.*)\)$", r"\1", text))
    except ValueError:
        return Node("text", text)
    if value != value:
        return Node("word", "nan")
    return row((MINUS, _positive(-value))) if value < 0 else _positive(value)


def _positive(value: float) -> Node:
    if value == inf:
        return parse(r"\infty")
    if value == int(value) and value < 1e6:
        return Node("number", str(int(value)))
    return _unit_fraction(value) or _decimal(value)


def _unit_fraction(value: float) -> Node | None:
    if not 0 < value < 1 or len(repr(value)) <= 7:
        return None
    for tex, n, root in (
        (r"\tfrac{{1}}{{{}}}", 1 / value, 1),
        (r"\tfrac{{1}}{{\sqrt{{{}}}}}", value**-2, 2),
    ):
        if 1 < round(n) < 1e5 and abs(value - round(n) ** (-1 / root)) < 4e-16:
            return parse(tex.format(round(n)))
    return None


def _decimal(value: float) -> Node:
    short = f"{value:.6g}"
    digits, _, power = short.partition("e")
    mantissa = Node("number", digits + r"\ldots" * (float(short) != value))
    if not power:
        return mantissa
    ten = parse(f"10^{{{int(power)}}}")
    return ten if digits == "1" else row((mantissa, operator(r"\cdot"), ten))
