"""Formulas as trees of MathML, which the page builds as elements: no markup reaches it.

A tree is text or a list: the tag, attributes if there are any, then children. Two tags are the
page's own: ["slot", "x"] is what stands for the input x, ["shape", "(2, 3)"] a symbol's shape.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

from .signs import SPACES, shown
from .tree import SUM, Accent, Call, Fraction, Group, Node, Row, Script, Sign, Slot, items_of

__all__ = ["Tree", "mathml"]

Tree: TypeAlias = Any
TAGS = {"letter": "mi", "number": "mn", "operator": "mo", "text": "mtext", "shape": "shape"}
ACCENTS = {"hat": "^", "bar": "¯"}
SIGNS = {
    "-": "−",
    r"\top": "⊤",
    r"\sum": "∑",
    r"\circ": "∘",
}  # where MathML's sign is not that of plain text
UNDER = (SUM, Sign("function", r"\max"), Sign("function", r"\min"))  # scripts stand below these
NARROW = "0.17em"  # between neighbours in a product, whose symbols may be words


def mathml(node: Node) -> Tree:
    r"""A formula as a tree of MathML.

    >>> from . import parse
    >>> mathml(parse("-<g>"))
    ['mrow', ['mo', '−'], ['slot', 'g']]
    >>> mathml(parse(r"\operatorname{mine}(<x>)"))[1]
    ['mrow', ['mi', 'mine'], ['mrow', ['mo', '('], ['slot', 'x'], ['mo', ')']]]
    """
    return ["mrow", *_parts(node)]


def _parts(node: Node) -> list[Tree]:
    """What stands beside one another, with room between the factors of a product."""
    trees: list[Tree] = []
    for item, after in pairwise((*items_of(node), None)):
        assert item is not None
        trees.append(_tree(item))
        if after is not None and _is_factor(item) and _is_factor(after):
            trees.append(["mspace", {"width": NARROW}])
    return trees


def _is_factor(node: Node) -> bool:
    return not (isinstance(node, Sign) and node.kind in ("operator", "space"))


def _tree(node: Node) -> Tree:
    match node:
        case Sign():
            return _sign(node)
        case Slot(name):
            return ["slot", name]
        case Row():
            return mathml(node)
        case Group(open, inside, close):
            return ["mrow", ["mo", open], *_parts(inside), ["mo", close]]
        case Call(head, group):
            return ["mrow", _tree(head), _tree(group)]
        case Fraction(top, bottom, small):
            made = ["mfrac", _tree(top), _tree(bottom)]
            style = {"displaystyle": "false", "scriptlevel": "0"}
            return ["mstyle", style, made] if small else made
        case Script(base, below, above):
            scripts = [_small(script) for script in (below, above) if script is not None]
            return [_script_tag(node), _tree(base), *scripts]
        case Accent("sqrt", base):
            return ["msqrt", *_parts(base)]
        case Accent(mark, base):
            return ["mover", _tree(base), ["mo", {"stretchy": "false"}, ACCENTS[mark]]]


def _script_tag(script: Script) -> str:
    if script.below is None:
        return "msup"
    under = script.base in UNDER
    if script.above is not None:
        return "munderover" if under else "msubsup"
    return "munder" if under else "msub"


def _small(node: Node) -> Tree:
    """A script, where nothing needs room."""
    items = items_of(node)
    return _tree(node) if len(items) == 1 else ["mrow", *map(_tree, items)]


def _sign(sign: Sign) -> Tree:
    if sign.kind == "space":
        return ["mspace", {"width": SPACES[sign.tex[1:]]}]
    attributes = [{"form": "prefix"}] if sign.tex == r"\partial" else []
    return [TAGS.get(sign.kind, "mi"), *attributes, SIGNS.get(sign.tex, shown(sign))]
