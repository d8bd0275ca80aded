"""Formulas as LaTeX that GitHub, MathJax and KaTeX render alike.

GitHub refuses \\operatorname, and Markdown reads some characters on its own: none of these is
written.
"""

from __future__ import annotations

import re

from ..plain import one_line
from .tree import (
    SUM,
    Accent,
    Call,
    Fraction,
    Group,
    Node,
    Row,
    Script,
    Sign,
    Slot,
    base_of,
    is_operator,
    walk,
)
from .writer import Writer

__all__ = ["latex", "text_tex"]

SPECIAL = {"\\": r"\backslash ", "<": r"\lt ", ">": r"\gt ", "|": r"\vert ", "~": r"\sim ",
           "^": r"\wedge ", "`": "'"} | {c: rf"\{c}" for c in "_{}$%#&"}  # fmt: skip
OPERATORS = {"<": r"\lt", ">": r"\gt", "|": r"\vert", "?": r"\mathbin{?}"}
BRACKETS = {"|": (r"\lvert ", r"\rvert")}


def latex(node: Node) -> str:
    r"""A formula as LaTeX; a slot that is not filled is its name as a word.

    >>> from . import parse
    >>> latex(parse(r"\operatorname{softmax}(S)  V^\top"))
    '\\mathrm{softmax}(S) V^\\top'
    """
    return _Latex().write(node)


def text_tex(text: str, limit: int = 32) -> str:
    r"""Any text as one LaTeX atom; control and direction characters are spelled out.

    >>> text_tex("50% of x")
    '{\\text{50}\\%\\text{ of x}}'
    """
    pieces = re.findall(r"[\\<>|~^`_{}$%#&]|[^\\<>|~^`_{}$%#&]+", one_line(text, limit))
    return "{" + "".join(SPECIAL.get(p) or rf"\text{{{p}}}" for p in pieces) + "}"


class _Latex(Writer):
    def sign(self, sign: Sign) -> str:
        if sign.kind == "word" or (sign.kind == "function" and sign.tex[:1] != "\\"):
            return rf"\mathrm{{{sign.tex}}}"
        if sign.kind in ("text", "shape"):
            simple = re.fullmatch(r"[^\W_]([^\W_]|[ ,.]){,31}", sign.tex)
            return rf"\text{{{sign.tex}}}" if simple else text_tex(sign.tex)
        return OPERATORS.get(sign.tex, sign.tex)

    def slot(self, slot: Slot) -> str:
        return rf"\mathrm{{{slot.name}}}"

    def group(self, group: Group) -> str:
        inside = self.write(group.inside)
        open, close = BRACKETS.get(group.open, (group.open, group.close))
        if group.tall or any(isinstance(n, Fraction) and not n.small for n in walk(group.inside)):
            return rf"\left{open}{inside}\right{close}"
        return f"{open}{inside}{close}"

    def call(self, call: Call) -> str:
        return self.joined(self.write(call.head), self.group(call.group))

    def fraction(self, fraction: Fraction) -> str:
        top, bottom = self.write(fraction.top), self.write(fraction.bottom)
        if fraction.small and len(top) == len(bottom) == 1:
            return rf"\tfrac{top}{bottom}"
        return rf"\{'tfrac' if fraction.small else 'frac'}{{{top}}}{{{bottom}}}"

    def accent(self, accent: Accent) -> str:
        base = self.write(accent.base)
        return rf"\sqrt{{{base}}}" if accent.mark == "sqrt" else rf"\{accent.mark} {base}"

    def script(self, script: Script) -> str:
        base = self.write(script.base)
        if isinstance(script.base, Script | Row):
            base = f"{{{base}}}"
        of_many = isinstance(script.base, Sign) and script.base.kind in ("operator", "function")
        below = "" if script.below is None else f"_{self.raised(script.below, of_many)}"
        above = "" if script.above is None else f"^{self.raised(script.above, False)}"
        return base + below + above

    def raised(self, node: Node, braces: bool) -> str:
        tex = self.write(node, small=True)
        return tex if (len(tex) == 1 or tex == r"\top") and not braces else f"{{{tex}}}"

    def gap(self, node: Node, after: Node) -> str:
        """A thin space beside a word or a small fraction in a product."""
        if base_of(node) == SUM or base_of(after) == SUM or is_operator(node) or is_operator(after):
            return " "
        tiny = isinstance(node, Fraction) and node.small
        return r"\, " if tiny or _is_word(node) or _is_word(after) else " "

    def joined(self, left: str, right: str) -> str:
        """A command and a letter need a space between them."""
        apart = re.search(r"\\[A-Za-z]+$", left) and right[:1].isalpha()
        return f"{left} {right}" if apart else left + right


def _is_word(node: Node) -> bool:
    base = base_of(node)
    return isinstance(base, Slot) or (isinstance(base, Sign) and base.kind in ("word", "text"))
