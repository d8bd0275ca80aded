"""Formulas as one line: as LaTeX that GitHub, MathJax and KaTeX render alike, or as plain text.

GitHub refuses \\operatorname, and Markdown reads some characters on its own: none of these is
written as LaTeX.
"""

from __future__ import annotations

import re

from ..plain import one_line
from .parse import parse
from .tree import (
    CLOSING,
    COMMA,
    EMPTY,
    MINUS,
    PLUS,
    SUM,
    TRANSPOSE,
    Formula,
    base_of,
    operator,
    shown,
)

__all__ = ["latex", "plain", "text"]

SPECIAL = {"\\": r"\backslash ", "<": r"\lt ", ">": r"\gt ", "|": r"\vert ", "~": r"\sim ",
           "^": r"\wedge ", "`": "'"} | {c: rf"\{c}" for c in "_{}$%#&"}  # fmt: skip
LATEX_OPERATORS = {"<": r"\lt", ">": r"\gt", "|": r"\vert", "?": r"\mathbin{?}"}
ABSOLUTE_VALUE = {"|": (r"\lvert ", r"\rvert")}

COMBINING_ACCENTS = {"hat": "\u0302", "bar": "\u0304"}
RAISED = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
ATOM = re.compile(r"[\w∂√.,\u0302\u0304]+|√?\([^()]*(\([^()]*\)[^()]*)*\)")


def latex(node: Formula) -> str:
    r"""A formula as LaTeX; a slot that is not filled is its name as a word.

    >>> latex(parse(r"\operatorname{softmax}(S)  V^\top"))
    '\\mathrm{softmax}(S) V^\\top'
    """
    return _Latex().write(node)


def text(node: Formula) -> str:
    """A formula's tree as one line of readable text; a slot is its name."""
    return re.sub(" +", " ", _Text().write(node)).strip()


def plain(tex: str) -> str:
    r"""LaTeX of an op or of a hand-derived step as one line of readable text.

    >>> plain(r"O^\top \frac{\partial L}{\partial \mathrm{out}}")
    'Oᵀ ∂L/∂out'
    >>> plain(r"\frac{1}{\sqrt{d_k}} \odot x")
    '1/√d_k ⊙ x'
    """
    return text(parse(tex))


class _FormulaWriter:
    """Writes a tree from left to right; subclasses say how each kind of node looks."""

    prefixes: tuple[Formula, ...] = ()  # operators without room behind them

    def write(self, node: Formula, small: bool = False) -> str:
        """A formula as text; in a script, which is small, letters have no room between them."""
        return self.row(node.parts, small) if node.kind == "row" else self.node(node)

    def node(self, node: Formula) -> str:
        raise NotImplementedError

    def gap(self, node: Formula, after: Formula) -> str:
        return " "

    def joined(self, left: str, right: str) -> str:
        return left + right

    def row(self, items: tuple[Formula, ...], small: bool) -> str:
        written = self.write(items[0], small) if items else ""
        dense = small and not any(map(_is_glued, items))  # letters of axes, but not an index
        for before, node, after in zip((EMPTY, *items), items, items[1:], strict=False):
            close = self.is_close(before, node, after, dense if node == COMMA else small)
            gap = "" if close else self.gap(node, after)
            written = self.joined(written, gap + self.write(after, small))
        return written

    def is_close(self, before: Formula, node: Formula, after: Formula, small: bool) -> bool:
        """Whether there is no room between a node and the next."""
        letters = small and after.kind != "operator"
        if after == COMMA or node == COMMA:
            return after == COMMA or (letters and before.kind != "operator")
        if _is_glued(node) or _is_glued(after) or after.kind == "space" or node in self.prefixes:
            return True
        is_sign = node in (PLUS, MINUS) and before.kind in ("empty", "operator")
        return is_sign or (letters and node.kind != "operator")


def _is_glued(node: Formula) -> bool:
    """Whether a node is an operator in braces, which has no room on either side."""
    return node.text[:1] == "{"


class _Latex(_FormulaWriter):
    def node(self, node: Formula) -> str:
        match node:
            case Formula("slot" | "word", name):
                return rf"\mathrm{{{name}}}"
            case Formula("function", name) if name[:1] != "\\":
                return rf"\mathrm{{{name}}}"
            case Formula("text", words):
                simple = re.fullmatch(r"[^\W_]([^\W_]|[ ,.]){,31}", words)
                return rf"\text{{{words}}}" if simple else _any_text(words)
            case Formula("group" | "tall" as kind, bracket, (inside,)):
                open, close = ABSOLUTE_VALUE.get(bracket, (bracket, CLOSING[bracket]))
                grows = kind == "tall" or any(part.kind == "frac" for part in inside)
                left, right = (r"\left", r"\right") if grows else ("", "")
                return f"{left}{open}{self.write(inside)}{right}{close}"
            case Formula("call", _, (head, group)):
                return self.joined(self.write(head), self.write(group))
            case Formula("frac" | "tfrac" as kind, _, (top, bottom)):
                above, below = self.write(top), self.write(bottom)
                short = kind == "tfrac" and len(above) == len(below) == 1
                return rf"\{kind}{above}{below}" if short else rf"\{kind}{{{above}}}{{{below}}}"
            case Formula("sqrt", _, (base,)):
                return rf"\sqrt{{{self.write(base)}}}"
            case Formula("hat" | "bar" as mark, _, (base,)):
                return rf"\{mark} {self.write(base)}"
            case Formula("script", _, (base, below, above)):
                whole = self.write(base)
                whole = f"{{{whole}}}" if base.kind in ("script", "row") else whole
                of_many = base.kind in ("operator", "function")
                return whole + self.mark("_", below, of_many) + self.mark("^", above, False)
        return LATEX_OPERATORS.get(node.text, node.text)

    def mark(self, sign: str, node: Formula, braces: bool) -> str:
        if node == EMPTY:
            return ""
        tex = self.write(node, small=True)
        bare = (len(tex) == 1 or tex == r"\top") and not braces
        return sign + (tex if bare else f"{{{tex}}}")

    def gap(self, node: Formula, after: Formula) -> str:
        """A thin space beside a word or a small fraction in a product."""
        bases = base_of(node), base_of(after)
        if SUM in bases or "operator" in (node.kind, after.kind):
            return " "
        words = any(base.kind in ("slot", "word", "text") for base in bases)
        return r"\, " if words or node.kind == "tfrac" else " "

    def joined(self, left: str, right: str) -> str:
        """A command and a letter need a space between them."""
        apart = re.search(r"\\[A-Za-z]+$", left) and right[:1].isalpha()
        return f"{left} {right}" if apart else left + right


def _any_text(text: str) -> str:
    """Any text as one atom; control and direction characters are spelled out."""
    pieces = re.findall(r"[\\<>|~^`_{}$%#&]|[^\\<>|~^`_{}$%#&]+", one_line(text, 32))
    return "{" + "".join(SPECIAL.get(p) or rf"\text{{{p}}}" for p in pieces) + "}"


class _Text(_FormulaWriter):
    prefixes = tuple(map(operator, (r"\partial", r"\lnot", r"\circ")))

    def node(self, node: Formula) -> str:
        match node:
            case Formula("group" | "tall", open, (inside,)):
                return f"{open}{self.write(inside)}{CLOSING[open]}"
            case Formula("call", _, (head, group)):
                return self.write(head) + self.write(group)
            case Formula("frac" | "tfrac", _, (top, bottom)):
                return f"{self.atom(top)}/{self.atom(bottom)}"
            case Formula("sqrt", _, (base,)):
                return f"√{self.atom(base)}"
            case Formula("hat" | "bar" as mark, _, (base,)):
                return self.write(base) + COMBINING_ACCENTS[mark]
            case Formula("script", _, (base, below, above)):
                under = "" if below == EMPTY else f"_{self.atom(below, small=True)}"
                return self.write(base) + under + self.raised(above)
        return shown(node)

    def raised(self, node: Formula) -> str:
        if node == EMPTY:
            return ""
        written = self.write(node, small=True).strip()
        if node == TRANSPOSE or re.fullmatch(r"[-+]?\d+", written):
            return written.translate(RAISED)
        return f"^{written if ATOM.fullmatch(written) else f'({written})'}"

    def atom(self, node: Formula, small: bool = False) -> str:
        """A node in brackets, unless it is one word."""
        written = self.write(node, small).strip()
        bare = ATOM.fullmatch(written) and not ("," in written and "_" in written)
        return written if bare else f"({written})"
