"""Formulas as one line of readable text, for a terminal or a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from .parse import parse
from .signs import shown
from .tree import (
    COMMA,
    Accent,
    Call,
    Fraction,
    Group,
    Node,
    Root,
    Row,
    Script,
    Sign,
    Slot,
    is_glued,
    is_operator,
    is_prefix,
)

__all__ = ["plain", "text"]

ACCENTS = {"hat": ("\u0302", "_hat"), "bar": ("\u0304", "_bar")}
RAISED = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
SIMPLE = re.compile(r"[\w∂√.,\u0302\u0304]+|(√|sqrt)?\([^()]*(\([^()]*\)[^()]*)*\)")
PREFIXES = tuple(Sign("operator", tex) for tex in (r"\partial", r"\lnot", r"\circ"))


def plain(tex: str, names: Mapping[str, str] | None = None, *, ascii: bool = False) -> str:
    r"""LaTeX of an op or of a hand-derived step as one line of readable text.

    Args:
        names: what to write for each slot `<name>`; by default the name itself.
        ascii: ASCII only.

    >>> plain(r"O^\top \frac{\partial L}{\partial \mathrm{out}}")
    'Oᵀ ∂L/∂out'
    >>> plain(r"<a>^\top <g>", {"a": "X", "g": "∂L/∂Q"})
    'Xᵀ ∂L/∂Q'
    >>> plain(r"\frac{1}{\sqrt{d_k}} \odot x", ascii=True)
    '1/sqrt(d_k) * x'
    """
    return text(parse(tex), names, ascii=ascii)


def text(node: Node, names: Mapping[str, str] | None = None, *, ascii: bool = False) -> str:
    """A formula's tree as one line of readable text; arguments as for `plain`."""
    written = _Text(names or {}, ascii).write(node)
    return re.sub(" +", " ", written).strip()


class _Text:
    def __init__(self, names: Mapping[str, str], ascii: bool) -> None:
        self.names, self.ascii = names, ascii

    def write(self, node: Node, small: bool = False) -> str:
        match node:
            case Sign():
                return shown(node, self.ascii)
            case Slot(name):
                return self.names.get(name, name)
            case Row(items):
                return self.row(items, small)
            case Group(open, inside, close):
                return f"{open}{self.write(inside)}{close}"
            case Call(head, group):
                return self.write(head) + self.write(group)
            case Fraction(top, bottom):
                return f"{self.simple(top)}/{self.simple(bottom)}"
            case Root(inside):
                return f"sqrt({self.write(inside)})" if self.ascii else f"√{self.simple(inside)}"
            case Script():
                return self.script(node)
            case Accent(mark, base):
                return self.write(base) + ACCENTS[mark][self.ascii]

    def simple(self, node: Node, small: bool = False) -> str:
        """A node in brackets, unless it is one word."""
        written = self.write(node, small).strip()
        bare = SIMPLE.fullmatch(written) and not ("," in written and "_" in written)
        return written if bare else f"({written})"

    def script(self, script: Script) -> str:
        written = self.write(script.base)
        if script.below is not None:
            written += f"_{self.simple(script.below, True)}"
        if script.above is None:
            return written
        above = self.write(script.above, True).strip()
        if script.above == Sign("operator", r"\top"):
            return written + (f"^{above}" if self.ascii else above)
        if not self.ascii and re.fullmatch(r"[-+]?\d+", above):
            return written + above.translate(RAISED)
        return f"{written}^{above if SIMPLE.fullmatch(above) else f'({above})'}"

    def row(self, items: tuple[Node, ...], small: bool) -> str:
        written = ""
        before: Node | None = None
        for node, after in pairwise((*items, None)):
            assert node is not None
            written += self.write(node, small)
            if after is not None and not self.tight(before, node, after, small):
                written += " "
            before = node
        return written

    @staticmethod
    def tight(before: Node | None, node: Node, after: Node, small: bool) -> bool:
        """Whether no blank stands between a node and the next."""
        if after == COMMA or (node == COMMA and small) or is_glued(node) or is_glued(after):
            return True
        if node in PREFIXES or is_prefix(before, node):
            return True
        return small and not is_operator(node) and not is_operator(after)
