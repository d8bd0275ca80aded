"""Formulas as trees of MathML, which the page builds as elements: no markup reaches it.

A tree is text or a list: the tag, attributes if there are any, then children. Three tags are the
page's own: ["slot", "x"] is the place of the input x, ["shape", "(2, 3)"] a symbol's shape, and
["room"] the space between two factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from .tree import CLOSING, EMPTY, SPACES, SUM, Formula, items_of, shown

__all__ = ["Tree", "mathml"]

Tree: TypeAlias = "str | dict[str, str] | Sequence[Tree]"  # a dict has attributes
TAGS = {"number": "mn", "operator": "mo", "text": "mtext", "shape": "shape", "slot": "slot"}
SIGNS = {"-": "−", r"\top": "⊤", r"\sum": "∑", r"\circ": "∘"}  # where plain text has another
ACCENT_SIGNS = {"hat": "^", "bar": "¯"}
# subscripts of these are written below them
UNDER = (SUM, Formula("function", r"\max"), Formula("function", r"\min"))
ROOM = ["room"]  # between factors; the third of the page's own tags
FULL_SIZE = {"displaystyle": "false", "scriptlevel": "0"}


def mathml(node: Formula) -> Tree:
    r"""A formula as a tree of MathML.

    >>> from . import parse
    >>> mathml(parse("-<g>"))
    ['mrow', ['mo', '−'], ['slot', 'g']]
    >>> mathml(parse(r"\operatorname{mine}(<x>)"))[1]
    ['mrow', ['mi', 'mine'], ['mrow', ['mo', '('], ['slot', 'x'], ['mo', ')']]]
    """
    return ["mrow", *_beside(node)]


def _beside(node: Formula) -> list[Tree]:
    """The items of a row, with room between the factors of a product."""
    trees: list[Tree] = []
    for item, after in pairwise((*items_of(node), Formula("space"))):
        trees.append(_tree(item))
        if not {item.kind, after.kind} & {"operator", "space"}:
            trees.append(ROOM)
    return trees


def _tree(node: Formula) -> Tree:
    match node:
        case Formula("space", tex):
            return ["mspace", {"width": SPACES[tex[1:]]}]
        case Formula("row"):
            return mathml(node)
        case Formula("group" | "tall", open, (inside,)):
            return ["mrow", ["mo", open], *_beside(inside), ["mo", CLOSING[open]]]
        case Formula("call", _, (head, group)):
            return ["mrow", _tree(head), _tree(group)]
        case Formula("frac" | "tfrac" as kind, _, (top, bottom)):
            made = ["mfrac", _tree(top), _tree(bottom)]
            return ["mstyle", FULL_SIZE, made] if kind == "tfrac" else made
        case Formula("script", _, (base, below, above)):
            under, over = ("under", "over") if base in UNDER and below != EMPTY else ("sub", "sup")
            marks = {under: below, over: above}
            tag = "m" + "".join(name for name, mark in marks.items() if mark != EMPTY)
            return [tag, _tree(base), *(_small(m) for m in marks.values() if m != EMPTY)]
        case Formula("sqrt", _, (base,)):
            return ["msqrt", *_beside(base)]
        case Formula("hat" | "bar" as mark, _, (base,)):
            return ["mover", _tree(base), ["mo", {"stretchy": "false"}, ACCENT_SIGNS[mark]]]
    prefix = [{"form": "prefix"}] if node.text == r"\partial" else []
    return [TAGS.get(node.kind, "mi"), *prefix, SIGNS.get(node.text, shown(node))]


def _small(node: Formula) -> Tree:
    return ["mrow", *map(_tree, node.parts)] if node.kind == "row" else _tree(node)
