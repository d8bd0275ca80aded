"""Formulas as the page has them: trees of MathML, and the same with shapes for symbols."""

from __future__ import annotations

from collections.abc import Mapping

from ..formula import Node, Tree, changed, gradient_of, mathml, parse, symbol_name
from ..formula.tree import Script, Sign

__all__ = ["shape_text", "shapes_of", "tree_of"]


def tree_of(tex: str) -> Tree:
    r"""The tree of a formula, its slots to be filled by the page.

    >>> tree_of("-<g>")
    ['mrow', ['mo', '−'], ['slot', 'g']]
    """
    return mathml(parse(tex))


def shapes_of(tex: str, shapes: Mapping[str, tuple[int, ...]]) -> Tree:
    """The tree with each symbol's shape in its place, and that of ∂L/∂X in its own.

    >>> shapes_of("O = A V", {"A": (5, 5), "V": (5, 4), "O": (5, 4)})[1]
    ['shape', '(5, 4)']
    """

    def shape(node: Node) -> Node | None:
        name = symbol_name(gradient_of(node) or node)
        if name == "d_k" and "K" in shapes:
            return Sign("number", str(shapes["K"][-1]))
        if name not in shapes:
            return None
        found = Sign("shape", shape_text(shapes[name]))
        above = node.above if isinstance(node, Script) else None
        return found if above is None else Script(found, above=above)

    return mathml(changed(parse(tex), shape))


def shape_text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
