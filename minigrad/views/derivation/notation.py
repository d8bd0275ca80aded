"""What the signs in a derivation mean: those that occur in it, each once."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from ..plain import one_line

__all__ = ["code", "inline", "notation"]


@cache
def _signs() -> list[tuple[str, str]]:
    """A pattern and a sentence for each sign that may occur: signs.txt says how it is written."""
    text = (files(__package__) / "signs.txt").read_text(encoding="utf-8")
    blocks = [block.split("\n", 1) for block in text.strip().split("\n\n")[1:]]
    return [(pattern, " ".join(sentence.split())) for pattern, sentence in blocks]


def inline(tex: str) -> str:
    """LaTeX within a line, in GitHub's form that no Markdown sign can disturb."""
    tex = " ".join(tex.replace("`", "'").split())
    return f"$`{tex}`$"


def code(text: str) -> str:
    """A name as code within a line; it cannot end the span."""
    return f"`{one_line(text, 120).replace('`', chr(39))}`"


def notation(text: str, conventions: list[str]) -> list[str]:
    """A chapter on the signs that occur in a text; nothing if it has none of them."""
    said = [*conventions] + [sentence for pattern, sentence in _signs() if re.search(pattern, text)]
    lines = ["- " + re.sub(r"\$(.*?)\$", lambda m: inline(m[1]), sentence) for sentence in said]
    return ["## Notation", "\n".join(lines)] if lines else []
