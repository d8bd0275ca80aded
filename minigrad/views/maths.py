r"""LaTeX of this project as MathML and as plain text, for pages and terminals without a network.

It reads the LaTeX of ops and records, not LaTeX at large: a command that it does not know is a
word, and missing parts are left out, so that any text gives a formula.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from typing import NamedTuple

__all__ = ["mathml", "plain", "portable"]

LATEX_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|<\w+>|\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d_]'*|\S")
OPERATOR_SIGNS = {
    "odot": "⊙", "oslash": "⊘", "top": "⊤", "circ": "∘", "partial": "∂", "sum": "∑", "prod": "∏",
    "lnot": "¬", "le": "≤", "ge": "≥", "lt": "<", "gt": ">", "ne": "≠", "in": "∈", "to": "→",
    "cdot": "·", "times": "×", "ldots": "…", "dots": "…", "pm": "±", "approx": "≈", "mid": "|",
    "lvert": "|", "rvert": "|", "vert": "|", "lfloor": "⌊", "rfloor": "⌋", "otimes": "⊗",
    "ast": "∗", "lVert": "‖", "rVert": "‖", "colon": ":", "wedge": "∧", "sim": "∼", "neg": "¬",
    "leq": "≤", "geq": "≥", "neq": "≠", "land": "∧", "lor": "∨",
}  # fmt: skip
GREEK = {
    name: letter
    for name, letter in zip(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi "
        "rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma "
        "Upsilon Phi Psi Omega infty ell nabla".split(),
        "αβγδϵεζηθικλμνξπρστυϕφχψωΓΔΘΛΞΠΣΥΦΨΩ∞ℓ∇",
        strict=True,
    )
}
FUNCTION_NAMES = "max min log exp tanh cosh sinh sin cos det arg ln".split()
SPACES = {",": ".17em", ";": ".28em", "quad": "1em", "qquad": "2em", " ": ".25em"}
ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "overline": "¯"}
ACCENTS_OF_TEXT = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303", "overline": "\u0304"}
RAISED = str.maketrans("0123456789-+()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺⁽⁾")
CLOSING = (")", "]", "}", r"\right", r"\}", "")
TIGHT = ("open", "close", "prefix")


class Part(NamedTuple):
    """A part of a formula: how it binds, as MathML and as text."""

    kind: str  # atom, function, operator, open, close, prefix, space, comma, group
    xml: str
    text: str


@lru_cache(maxsize=8192)
def mathml(tex: str) -> str:
    r"""A formula as MathML.

    >>> mathml(r"-x^2")
    '<math><mrow><mo>−</mo><msup><mi>x</mi><mn>2</mn></msup></mrow></math>'
    """
    return f"<math>{_row(_Reader(tex).row()).xml}</math>"


@lru_cache(maxsize=8192)
def plain(tex: str) -> str:
    r"""A formula as one line of readable text.

    >>> plain(r"O^\top \frac{\partial L}{\partial \mathrm{out}}")
    'Oᵀ ∂L/∂out'
    >>> plain(r"\frac{1}{\sqrt{d_k}} \odot x")
    '1/√d_k ⊙ x'
    """
    return _row(_Reader(tex).row()).text


def portable(tex: str) -> str:
    r"""LaTeX that GitHub, MathJax and KaTeX render alike: GitHub refuses \operatorname.

    >>> print(portable(r"\operatorname{softmax}(<x>)"))
    \mathrm{softmax}(\mathrm{x})
    """
    tex = re.sub(r"<(\w+)>", r"\\mathrm{\1}", tex).replace(r"\operatorname", r"\mathrm")
    return re.sub(r"(?<!\\)<", r"\\lt ", re.sub(r"(?<!\\)>", r"\\gt ", tex))


class _Reader:
    """Reads tokens from the left."""

    def __init__(self, tex: str) -> None:
        self.tokens = [*LATEX_TOKEN.findall(tex), ""]
        self.source, self.at = tex, 0

    def next(self) -> str:
        token = str(self.tokens[self.at])
        self.at += bool(token)
        return token

    def row(self, ends: tuple[str, ...] = ("", "}")) -> list[Part]:
        """Nodes up to an end, which is left."""
        found: list[Part] = []
        while (token := self.tokens[self.at]) not in ends:
            self.at += 1
            if token in "^_" and token:
                base = found.pop() if found else Part("atom", "<mrow></mrow>", "")
                found.append(self.scripted(base, token))
            elif (node := self.node(token)) is not None:
                found.append(node)
        return found

    def group(self) -> Part:
        """What a command applies to: a group in braces, or one token."""
        token = self.next()
        if token == "{":
            node = _row(self.row())
            self.next()
            return node._replace(kind="group")
        if token.isdigit() and len(token) > 1:  # of a number, one digit
            self.at -= 1
            self.tokens[self.at] = token[1:]
            token = token[0]
        return self.node(token) or Part("atom", "<mrow></mrow>", "")

    def raw(self) -> str:
        """The text of a group, as it is."""
        if self.tokens[self.at] != "{":
            return self.next()
        depth, parts = 0, []
        while token := self.next():
            depth += {"{": 1, "}": -1}.get(token, 0)
            if depth == 0:
                break
            parts.append(token)
        return _spaced(self.source, parts[1:])

    def scripted(self, base: Part, sign: str) -> Part:
        first, second = {sign: self.group()}, self.tokens[self.at]
        if second in ("^", "_") and second != sign:
            self.at += 1
            first[second] = self.group()
        below, above = first.get("_"), first.get("^")
        wide = base.text in ("∑", "∏", "max", "min") and below is not None
        names = ("under", "over") if wide else ("sub", "sup")
        tag = "m" + names[0] * (below is not None) + names[1] * (above is not None)
        marks = "".join(mark.xml for mark in (below, above) if mark)
        text = base.text + (f"_{_atom(below)}" if below else "") + (_raised(above) if above else "")
        kind = base.kind if base.kind in ("function", "operator") else "atom"
        return Part(kind, f"<{tag}>{base.xml}{marks}</{tag}>", text)

    def node(self, token: str) -> Part | None:
        """What begins at a token; None for a command that only sets a style."""
        if token == "{":
            self.at -= 1
            return self.group()
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0] == "<" and token[1:]:
            return Part("atom", f"<mi>{token[1:-1]}</mi>", token[1:-1])
        if token[0].isdigit():
            return Part("atom", f"<mn>{token}</mn>", token)
        if token[0].isalpha():
            return Part("atom", f"<mi>{escape(token)}</mi>", token)
        if token in "([":
            return Part("open", f"<mo>{token}</mo>", token)
        if token in ")]":
            return Part("close", f"<mo>{token}</mo>", token)
        return _operator(token)

    def command(self, name: str) -> Part | None:
        if name in ("frac", "tfrac", "dfrac"):
            top, bottom = self.group(), self.group()
            xml = f"<mfrac>{top.xml}{bottom.xml}</mfrac>"
            if name == "tfrac":
                xml = f'<mstyle displaystyle="false" scriptlevel="0">{xml}</mstyle>'
            return Part("atom", xml, f"{_atom(top)}/{_atom(bottom)}")
        if name == "sqrt":
            inner = self.group()
            return Part("atom", f"<msqrt>{inner.xml}</msqrt>", f"√{_atom(inner)}")
        if name in ACCENTS:
            inner = self.group()
            xml = f'<mover>{inner.xml}<mo stretchy="false">{ACCENTS[name]}</mo></mover>'
            return Part("atom", xml, inner.text + ACCENTS_OF_TEXT[name])
        if name in ("mathrm", "mathbf", "mathit", "operatorname", "text"):
            said = self.raw()
            tag = "mtext" if name == "text" else "mi"
            kind = {"operatorname": "function", "text": "text"}.get(name, "atom")
            if name == "mathrm" and self.tokens[self.at] == "(":
                kind = "function"
            return Part(kind, f"<{tag}>{escape(said)}</{tag}>", said)
        if name in ("left", "right"):
            bracket = self.next()
            shown = {".": "", r"\{": "{", r"\}": "}", r"\lvert": "|", r"\rvert": "|"}.get(
                bracket, bracket
            )
            return Part("open" if name == "left" else "close", f"<mo>{escape(shown)}</mo>", shown)
        if name in FUNCTION_NAMES:
            return Part("function", f"<mi>{name}</mi>", name)
        if name in GREEK:
            return Part("atom", f"<mi>{GREEK[name]}</mi>", GREEK[name])
        if name in SPACES:
            return Part("space", f'<mspace width="{SPACES[name]}"></mspace>', " ")
        if name in OPERATOR_SIGNS:
            return _operator(OPERATOR_SIGNS[name])
        if len(name) == 1 and not name.isalpha():
            return _operator(name) if name != "!" else None
        return None if "style" in name or name in ("mathbin", "mathrel", "limits") else _word(name)


def _spaced(source: str, parts: list[str]) -> str:
    """The tokens of a text with the blanks that stood between them."""
    pattern = r"(\s*)".join(map(re.escape, parts))
    found = re.search(r"\{(\s*)" + pattern + r"(\s*)\}", source) if parts else None
    if found is None:
        return " ".join(parts)
    blanks = found.groups()
    text = blanks[0] + "".join(part + blank for part, blank in zip(parts, blanks[1:], strict=True))
    return re.sub(r"\\([_#$%&{}])", r"\1", text)


def _word(name: str) -> Part:
    return Part("atom", f"<mi>{escape(name)}</mi>", name)


def _operator(sign: str) -> Part:
    shown = {"-": "−", "*": "∗"}.get(sign, sign)
    kind = {",": "comma", "∂": "prefix", "¬": "prefix", "⌊": "open", "⌋": "close", "⊤": "atom"}.get(
        shown, "operator"
    )
    tag = ' form="prefix"' if shown == "∂" else ""
    return Part(kind, f"<mo{tag}>{escape(shown)}</mo>", "-" if shown == "−" else shown)


def _row(nodes: list[Part]) -> Part:
    """Nodes beside one another: room between the factors of a product, and around operators."""
    if len(nodes) == 1:
        return nodes[0]
    xml, text = "", ""
    before, bars = Part("operator", "", ""), 0
    for node in nodes:
        bars += node.text == "|"
        tight = (
            before.kind in ("open", "prefix") or node.kind in ("close", "comma")
            or (node.kind == "open" and before.kind in ("function", "atom", "group"))
            or (node.text == "|" and bars % 2 == 0) or (before.text == "|" and bars % 2 == 1)
            or (before.text in "+-" and before.kind == "sign")
        )  # fmt: skip
        sign = (
            node.kind == "operator"
            and node.text in "+-"
            and before.kind in ("operator", "open", "comma")
        )
        factors = before.kind in ("atom", "group", "close", "text") and node.kind in (
            "atom",
            "group",
            "function",
            "text",
        )
        xml += ('<mspace width=".2em"></mspace>' if factors else "") + node.xml
        text += ("" if tight or not text else " ") + node.text
        before = node._replace(kind="sign") if sign else node
    return Part(
        "atom" if len(nodes) == 1 else "row", f"<mrow>{xml}</mrow>", re.sub(" +", " ", text).strip()
    )


def _atom(node: Part) -> str:
    """A part in brackets, unless it is one word."""
    bare = re.fullmatch(r"[\w∂√.'ᵀ\u0302\u0304]+|√?\([^()]*\)", node.text)
    return node.text if bare else f"({node.text})"


def _raised(node: Part) -> str:
    if node.text == "⊤":
        return "ᵀ"
    if re.fullmatch(r"[-+]?\d+|\(\d+\)", node.text):
        return node.text.translate(RAISED)
    return f"^{_atom(node)}"
