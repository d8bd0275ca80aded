"""What binds loosest in a formula, where brackets are needed, and how tall they are."""

from __future__ import annotations

import re

__all__ = ["atomic", "grown", "level", "tidy"]


def level(tex: str) -> str:
    """What binds loosest outside of all brackets: a sum, a product, or nothing."""
    outside = re.sub(r"\\left|\\right|\\text\{[^{}]*\}", "", tex)
    outside = re.sub(r"\\(tfrac|frac|mathrm|mathbb)", r"\\f", outside)
    while (shorter := re.sub(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]", "", outside)) != outside:
        outside = shorter
    if re.search(r"(^|\s)[-+]", outside.strip()):
        return "sum"
    inner = re.sub(r"\\f[_^\\A-Za-z]*|\\[,;!]$", "", outside.strip())
    return "product" if " " in inner.strip() or r"\," in inner else "atom"


def atomic(tex: str) -> bool:
    return level(tex) == "atom"


def tidy(tex: str) -> str:
    """Exponents computed, and numbers before what they multiply."""
    tex = re.sub(r"\^\{\\circ \((-?[\d.]+) - 1\)\}", lambda m: _exponent(float(m[1]) - 1), tex)
    parts = re.split(r" \\odot ", tex) if level(tex) == "product" else [tex]
    if len(parts) == 1 or any(p.count("(") != p.count(")") for p in parts):
        return tex
    numbers = [p for p in parts if re.fullmatch(r"-?[\d.]+(\\ldots)?|\\tfrac\{1\}\{\S+\}", p)]
    others = [p for p in parts if p not in numbers]
    return r"\, ".join([*numbers, r" \odot ".join(others)]) if others else tex


def grown(tex: str) -> str:
    """Round brackets as tall as what they hold, where that is a fraction."""
    opened: list[int] = []
    for i, c in reversed(
        list(enumerate(tex))
    ):  # from the right, so that positions to the left stay
        if c == ")" and not tex[:i].endswith(r"\right"):
            opened.append(i)
        elif c == "(" and opened and not tex[:i].endswith(r"\left"):
            end = opened.pop()
            if r"\frac" in tex[i:end]:
                tex = rf"{tex[:i]}\left({tex[i + 1 : end]}\right){tex[end + 1 :]}"
                opened = [j + len(r"\left\right") for j in opened]
    return tex


def _exponent(n: float) -> str:
    return "" if n == 1 else rf"^{{\circ {n:g}}}"
