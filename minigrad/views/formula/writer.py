"""What the writers of a line share: each kind of node in turn, and what stands close or apart."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .tree import ADDING, COMMA, Node, Row, Sign, is_operator

__all__ = ["Writer"]


class Writer:
    """Writes a tree from left to right; LaTeX and plain text say how each kind of node looks."""

    prefixes: tuple[Node, ...] = ()  # operators that stand close to what follows

    def write(self, node: Node, small: bool = False) -> str:
        """A node as text; in a script, which is small, letters stand close."""
        if isinstance(node, Row):
            return self.row(node.items, small)
        kind: Any = getattr(self, type(node).__name__.lower())
        return str(kind(node))

    def row(self, items: tuple[Node, ...], small: bool) -> str:
        written = self.write(items[0], small) if items else ""
        dense = small and not any(map(_is_glued, items))  # letters of axes, but not an index
        before: Node | None = None
        for node, after in pairwise(items):
            close = dense if node == COMMA else small
            gap = "" if self.is_close(before, node, after, close) else self.gap(node, after)
            written = self.joined(written, gap + self.write(after, small))
            before = node
        return written

    def is_close(self, before: Node | None, node: Node, after: Node, small: bool) -> bool:
        """Whether nothing stands between a node and the next."""
        if after == COMMA or node == COMMA:
            return after == COMMA or (small and not is_operator(before) and not is_operator(after))
        if _is_glued(node) or _is_glued(after) or _is_space(after) or node in self.prefixes:
            return True
        sign = node in ADDING and (before is None or is_operator(before))
        return sign or (small and not is_operator(node) and not is_operator(after))

    def gap(self, node: Node, after: Node) -> str:
        return " "

    def joined(self, left: str, right: str) -> str:
        return left + right


def _is_glued(node: Node) -> bool:
    """Whether a node is an operator in braces, which stands close to both sides."""
    return isinstance(node, Sign) and node.tex[:1] == "{"


def _is_space(node: Node) -> bool:
    return isinstance(node, Sign) and node.kind == "space"
