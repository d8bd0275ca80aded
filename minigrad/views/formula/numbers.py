"""Numbers as a person writes them."""

from __future__ import annotations

import re
from math import isfinite, sqrt

from .parse import parse
from .tree import MINUS, Accent, Fraction, Node, Row, Sign

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
        return Sign("text", text)
    if value != value:
        return Sign("word", "nan")
    if value < 0:
        return Row((MINUS, _positive(-value)))
    return _positive(value)


def _positive(value: float) -> Node:
    if not isfinite(value):
        return Sign("letter", r"\infty")
    if value == int(value) and value < 1e6:
        return Sign("number", str(int(value)))
    return _unit_fraction(value) or _decimal(value)


def _unit_fraction(value: float) -> Node | None:
    """1/n or 1/√n, for what would be a long decimal."""
    if not 0 < value < 1 or len(repr(value)) <= 7:
        return None
    for is_root, n in ((False, round(1 / value)), (True, round(1 / value**2))):
        if 1 < n < 1e5 and abs(value - 1 / (sqrt(n) if is_root else n)) < 4e-16:
            bottom = Sign("number", str(n))
            return Fraction(
                Sign("number", "1"), Accent("sqrt", bottom) if is_root else bottom, small=True
            )
    return None


def _decimal(value: float) -> Node:
    short = f"{value:.6g}"
    digits, _, power = short.partition("e")
    dots = "" if float(short) == value else r"\ldots"
    mantissa = Sign("number", digits + dots)
    if not power:
        return mantissa
    ten = parse(f"10^{{{int(power)}}}")
    return ten if digits == "1" else Row((mantissa, Sign("operator", r"\cdot"), ten))
