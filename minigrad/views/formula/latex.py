"""Formulas as LaTeX that GitHub, MathJax and KaTeX render alike.

GitHub refuses \\operatorname, and Markdown reads some characters on its own: none of these is
written.
"""

from __future__ import annotations

import re
from itertools import pairwise

from ..plain import one_line
from .tree import (
    COMMA,
    SUM,
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
    walk,
)

__all__ = ["latex", "text_tex"]

SPECIAL = {"\\": r"\backslash ", "<": r"\lt ", ">": r"\gt ", "|": r"\vert ", "~": r"\sim ",
           "^": r"\wedge ", "`": "'"} | {c: rf"\{c}" for c in "_{}$%#&"}  # fmt: skip
BRACKETS = {"|": (r"\lvert ", r"\rvert")}
THIN = r"\, "


def latex(node: Node) -> str:
    r"""A formula as LaTeX; a slot that is not filled is its name as a word.

    >>> from . import parse
    >>> latex(parse(r"\operatorname{softmax}(S)  V^\top"))
    '\\mathrm{softmax}(S) V^\\top'
    """
    return _write(node, False)


def text_tex(text: str, limit: int = 32) -> str:
    r"""Any text as one LaTeX atom; control and direction characters are spelled out.

    >>> text_tex("50% of x")
    '{\\text{50}\\%\\text{ of x}}'
    """
    pieces = re.findall(r"[\\<>|~^`_{}$%#&]|[^\\<>|~^`_{}$%#&]+", one_line(text, limit))
    return "{" + "".join(SPECIAL.get(p) or rf"\text{{{p}}}" for p in pieces) + "}"


def _write(node: Node, small: bool) -> str:
    """A node's LaTeX; in a script, which is small, nothing stands apart."""
    match node:
        case Sign():
            return _sign(node)
        case Slot(name):
            return rf"\mathrm{{{name}}}"
        case Row(items):
            return _row(items, small)
        case Group():
            return _group(node)
        case Call(head, group):
            return _glued(_write(head, small), _group(group))
        case Fraction(top, bottom, tiny):
            return _fraction(_write(top, False), _write(bottom, False), tiny)
        case Root(inside):
            return rf"\sqrt{{{_write(inside, False)}}}"
        case Script():
            return _script(node, small)
        case Accent(mark, base):
            return rf"\{mark} {_write(base, small)}"


def _sign(sign: Sign) -> str:
    if sign.kind == "word" or (sign.kind == "function" and sign.tex[:1] != "\\"):
        return rf"\mathrm{{{sign.tex}}}"
    if sign.kind in ("text", "shape"):
        simple = re.fullmatch(r"[\w ,.]+", sign.tex.replace("_", "|")) and len(sign.tex) <= 32
        return rf"\text{{{sign.tex}}}" if simple else text_tex(sign.tex)
    return {"<": r"\lt", ">": r"\gt", "|": r"\vert"}.get(sign.tex, sign.tex)


def _group(group: Group) -> str:
    inside = _write(group.inside, False)
    open, close = BRACKETS.get(group.open, (group.open, group.close))
    if group.tall or any(isinstance(n, Fraction) and not n.small for n in walk(group.inside)):
        return rf"\left{open}{inside}\right{close}"
    return f"{open}{inside}{close}"


def _fraction(top: str, bottom: str, tiny: bool) -> str:
    if tiny and len(top) == len(bottom) == 1:
        return rf"\tfrac{top}{bottom}"
    return rf"\{'tfrac' if tiny else 'frac'}{{{top}}}{{{bottom}}}"


def _script(script: Script, small: bool) -> str:
    base = _write(script.base, small)
    if isinstance(script.base, Script | Row):
        base = f"{{{base}}}"
    whole = isinstance(script.base, Sign) and script.base.kind in ("operator", "function")
    below = "" if script.below is None else f"_{_raised(script.below, whole)}"
    above = "" if script.above is None else f"^{_raised(script.above, False)}"
    return base + below + above


def _raised(node: Node, always: bool) -> str:
    tex = _write(node, True)
    bare = len(tex) == 1 or re.fullmatch(r"\\[A-Za-z]+", tex)
    return tex if bare and not always else f"{{{tex}}}"


# ---------------------------------------------------------------- side by side


def _row(items: tuple[Node, ...], small: bool) -> str:
    if not items:
        return ""
    text = _write(items[0], small)
    before: Node | None = None
    for node, after in pairwise(items):
        text = _glued(text, _gap(before, node, after, small) + _write(after, small))
        before = node
    return text


def _gap(before: Node | None, node: Node, after: Node, small: bool) -> str:
    """What stands between a node and the next."""
    if isinstance(node, Sign) and node.kind == "space":
        return " "
    if after == COMMA or is_glued(node) or is_glued(after) or _space(after):
        return ""
    if node == COMMA:
        return "" if small else " "
    if is_prefix(before, node):
        return ""
    if _operator(node) or _operator(after):
        return " "
    if small:
        return ""
    tiny = isinstance(node, Fraction) and node.small
    return THIN if tiny or _worded(node) or _worded(after) else " "


def _space(node: Node) -> bool:
    return isinstance(node, Sign) and node.kind == "space"


def _operator(node: Node) -> bool:
    base = node.base if isinstance(node, Script) else node
    return is_operator(node) or base == SUM


def _worded(node: Node) -> bool:
    base = node.base if isinstance(node, Script) else node
    return isinstance(base, Slot) or (isinstance(base, Sign) and base.kind in ("word", "text"))


def _glued(left: str, right: str) -> str:
    """Two pieces; a command and a letter need a space between them."""
    apart = re.search(r"\\[A-Za-z]+$", left) and right[:1].isalpha()
    return f"{left} {right}" if apart else left + right
