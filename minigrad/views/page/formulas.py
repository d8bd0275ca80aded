r"""Formulas as trees of MathML, which the page builds as elements: no LaTeX or markup reaches it.

A tree is text or a list: the tag, attributes if there are any, then children. Two tags are the
page's own: ["slot", "x"] is what stands for the input x, ["shape", "(2, 3)"] a symbol's shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from ..plain import plain

__all__ = ["known_formulas", "shape_text", "tree_of", "with_shapes"]

Tree = Any
_PLACEHOLDER = re.compile("\ue000(\\w+)\ue001")


@cache
def known_formulas() -> dict[str, str]:
    """LaTeX to MathML, for every formula in the project; tests/views/mathml.py wrote it."""
    text = (files(__package__) / "assets" / "mathml.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@cache
def tree_of(tex: str) -> Tree:
    r"""The tree of a formula; of one that is not known, as a user's own op may have, readable text.

    >>> tree_of("-<g>")
    ['mrow', ['mo', '−'], ['slot', 'g']]
    >>> tree_of(r"\operatorname{mine}(<x>)")
    ['mrow', ['mtext', 'mine('], ['slot', 'x'], ['mtext', ')']]
    """
    known = known_formulas().get(tex)
    if known is not None:
        return _tree(ElementTree.fromstring(known)[0])
    names = {name: f"\ue000{name}\ue001" for name in re.findall(r"<(\w+)>", tex)}
    pieces = _PLACEHOLDER.split(plain(tex, names))
    row = [["slot" if i % 2 else "mtext", piece] for i, piece in enumerate(pieces) if piece]
    return ["mrow", *row]


def _tree(element: ElementTree.Element) -> Tree:
    if element.get("class") == "slot":
        return ["slot", element.text]
    attributes = [dict(element.attrib)] if element.attrib else []
    text = [element.text] if element.text else []
    return [element.tag, *attributes, *text, *(_tree(child) for child in element)]


def with_shapes(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> Tree:
    """The tree with each symbol's shape in its place, and that of ∂L/∂X in its own.

    >>> with_shapes(tree_of("O = A V"), {"A": (5, 5), "V": (5, 4), "O": (5, 4)})[1]
    ['shape', '(5, 4)']
    """
    if isinstance(tree, str) or not isinstance(tree, list):
        return tree
    tag, *children = tree
    if tag == "mfrac" and _letters(children[0]) == "∂L":
        of = _symbol(children[1][-1])
        return ["shape", shape_text(shapes[of])] if of in shapes else tree
    if tag in ("mi", "msub") and (name := _symbol(tree)):
        if name == "d_k" and "K" in shapes:
            return ["mn", str(shapes["K"][-1])]
        if name in shapes:
            return ["shape", shape_text(shapes[name])]
    if tag == "msubsup" and (name := _symbol(["msub", *children[:2]])) in shapes:
        return ["msup", ["shape", shape_text(shapes[name])], children[2]]
    return [tag, *(with_shapes(child, shapes) for child in children)]


def shape_text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _letters(tree: Tree) -> str:
    if isinstance(tree, dict):
        return ""
    return tree if isinstance(tree, str) else "".join(map(_letters, tree[1:]))


def _symbol(tree: Tree) -> str:
    """W_Q of what is drawn as W with a small Q."""
    if isinstance(tree, list) and tree[0] == "msub":
        return f"{_letters(tree[1])}_{_letters(tree[2])}"
    return _letters(tree)
