"""Formulas and names as Markdown that GitHub renders, and what the signs in them mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ..plain import asset, one_line

__all__ = ["aligned", "code", "escaped", "inline", "listed", "notation"]


def inline(tex: str) -> str:
    """LaTeX within a line, in GitHub's form that no Markdown sign can disturb."""
    tex = " ".join(tex.replace("`", "'").split())
    return f"$`{tex}`$"


def code(text: str) -> str:
    """A name as code within a line; it cannot end the span."""
    return f"`{one_line(text, 120).replace('`', chr(39))}`"


def escaped(text: str) -> str:
    r"""A sentence as it reads, whatever signs of Markdown are in it.

    >>> print(escaped("a*b <i>"))
    a\*b \<i>
    """
    return re.sub(r"([\\`*_\[\]<$#&|~])", r"\\\1", one_line(text))


def listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def aligned(rows: Sequence[tuple[str, str, str]]) -> str:
    """Equations below one another, and the space of each left side."""
    lines = [rf"{a} &= {b}" + (rf" && \in {c}" if c else "") for a, b, c in rows]
    inner = lines[0].replace("&= ", "= ").replace(" && ", r" \quad ") if len(lines) == 1 else ""
    between = " \\\\[4pt]\n"
    text = inner or f"\\begin{{aligned}}\n{between.join(lines)}\n\\end{{aligned}}"
    return f"```math\n{text}\n```"


@cache
def _signs() -> list[tuple[str, str]]:
    """A pattern and a sentence for each sign that may occur: signs.txt says how it is written."""
    text = asset("derivation/signs.txt")
    blocks = [block.split("\n", 1) for block in text.strip().split("\n\n")[1:]]
    return [(pattern, " ".join(sentence.split())) for pattern, sentence in blocks]


def notation(text: str, conventions: list[str]) -> list[str]:
    """A section on the signs that occur in a text; nothing if none of them does."""
    said = [*conventions] + [sentence for pattern, sentence in _signs() if re.search(pattern, text)]
    lines = ["- " + re.sub(r"\$(.*?)\$", lambda m: inline(m[1]), sentence) for sentence in said]
    return ["## Notation", "\n".join(lines)] if lines else []
