r"""LaTeX of this project as MathML and as plain text, for pages and terminals without a network.

It reads the LaTeX of ops and records, not LaTeX at large.
A command that it does not know is a word, and missing parts are left out: any text is a formula.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from html.entities import html5
from typing import NamedTuple

__all__ = ["mathml", "plain", "portable"]

LATEX_TOKEN = re.compile(
    r"\\(?:text|mathrm|mathbf|operatorname)\{(?:[^{}\\]|\\.)*\}"
    r"|\\[A-Za-z]+|\\.|<\w+>|\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d_]'*|\S"
)
# Signs that HTML names otherwise than LaTeX; all others have the same name in both.
OTHERWISE = dict(
    zip(
        "partial circ oslash cdot to ldots infty lnot lvert rvert phi varphi".split(),
        "∂∘⊘·→…∞¬||ϕφ",
        strict=True,
    )
)
FUNCTION_NAMES = "max min log exp tanh cosh sinh sin cos det arg ln".split()
SPACES = {",": ".17em", ";": ".28em", "quad": "1em", "qquad": "2em", " ": ".25em"}
ACCENTS = {"hat": "^\u0302", "bar": "¯\u0304", "tilde": "~\u0303"}  # above a formula, within a text
KINDS = {",": "comma", "∂": "prefix", "¬": "prefix"} | dict.fromkeys("([⌊", "open")
KINDS |= dict.fromkeys(")]⌋", "close") | dict.fromkeys("∞∇⊤", "atom")
RAISED = str.maketrans("0123456789-+()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺⁽⁾")


class Part(NamedTuple):
    """A part of a formula: how it binds, as MathML and as text."""

    kind: str  # atom, function, operator, sign, open, close, prefix, space, comma, group, text
    xml: str
    text: str


EMPTY = Part("atom", "<mrow></mrow>", "")
FACTORS = "atom", "group", "function", "text"  # kinds that a product is made of


@lru_cache(maxsize=8192)
def mathml(tex: str) -> str:
    r"""A formula as MathML.

    >>> mathml(r"-x^2")
    '<math><mrow><mo>−</mo><msup><mi>x</mi><mn>2</mn></msup></mrow></math>'
    """
    return f"<math>{_Reader(tex).row().xml}</math>"


@lru_cache(maxsize=8192)
def plain(tex: str) -> str:
    r"""A formula as one line of readable text.

    >>> plain(r"O^\top \frac{\partial L}{\partial \mathrm{out}}")
    'Oᵀ ∂L/∂out'
    >>> plain(r"\frac{1}{\sqrt{d_k}} \odot x")
    '1/√d_k ⊙ x'
    """
    return _Reader(tex).row().text


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
        self.tokens = LATEX_TOKEN.findall(tex)[::-1]  # the next one is the last

    def next(self) -> str:
        return self.tokens.pop() if self.tokens else ""

    def row(self) -> Part:
        """Parts up to the end of a group or of the formula."""
        parts: list[Part] = []
        while (token := self.next()) not in ("", "}"):
            if token in "^_":
                parts.append(self.scripted(parts.pop() if parts else EMPTY, token))
            elif (part := self.part(token)) is not None:
                parts.append(part)
        return _row(parts)

    def group(self) -> Part:
        """What a command applies to: a group in braces, or one token."""
        token = self.next()
        if token.isdigit() and len(token) > 1:  # of a number, one digit
            self.tokens.append(token[1:])
            token = token[0]
        return (self.part(token) if token else None) or EMPTY

    def scripted(self, base: Part, sign: str) -> Part:
        """What stands below a part, above it, or both: beside it, or of a sum under it."""
        scripts = {sign: self.group()}
        other = "_" if sign == "^" else "^"
        if self.tokens[-1:] == [other]:
            self.next()
            scripts[other] = self.group()
        is_wide = base.text in ("∑", "∏", "max", "min") and "_" in scripts
        tag = "m"
        xml, text = base.xml, base.text
        if below := scripts.get("_"):
            tag += "under" if is_wide else "sub"
            xml += below.xml
            text += f"_{_atom(below)}"
        if above := scripts.get("^"):
            tag += "over" if is_wide else "sup"
            xml += above.xml
            text += _raised(above)
        kind = base.kind if base.kind in ("function", "operator") else "atom"
        return Part(kind, f"<{tag}>{xml}</{tag}>", text)

    def part(self, token: str) -> Part | None:
        """What begins at a token; None for a command that only sets a style."""
        if token == "{":
            return self.row()._replace(kind="group")
        if token[0] == "\\":
            return self.word(token) if token[2:].endswith("}") else self.command(token[1:])
        if token[0].isdigit():
            return Part("atom", f"<mn>{token}</mn>", token)
        if token[0].isalpha() or token[1:]:
            return _word(token.strip("<>"))
        return _sign(token)

    def word(self, token: str) -> Part:
        """A name of several letters, or a text."""
        command, _, name = token[1:-1].partition("{")
        name = re.sub(r"\\(.)", r"\1", name)
        if command == "text":
            return Part("text", f"<mtext>{escape(name)}</mtext>", name)
        is_function = command == "operatorname" or (
            command == "mathrm" and self.tokens[-1:] == ["("]
        )
        return _word(name, "function" if is_function else "atom")

    def command(self, name: str) -> Part | None:
        if name in ("frac", "tfrac"):
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
            accent = ACCENTS[name]
            xml = f'<mover>{inner.xml}<mo stretchy="false">{accent[0]}</mo></mover>'
            return Part("atom", xml, inner.text + accent[1])
        if name in ("left", "right"):
            bracket = self.next()
            bracket = {".": "", r"\lvert": "|", r"\rvert": "|"}.get(bracket, bracket).lstrip("\\")
            kind = "open" if name == "left" else "close"
            return Part(kind, f"<mo>{escape(bracket)}</mo>", bracket)
        if name in FUNCTION_NAMES:
            return _word(name, "function")
        if name in SPACES:
            return Part("space", f'<mspace width="{SPACES[name]}"></mspace>', " ")
        if "style" in name or name in ("mathbin", "limits"):
            return None
        sign = OTHERWISE.get(name) or html5.get(f"{name};", name)
        return _word(sign) if sign.isalpha() else _sign(sign)


def _word(name: str, kind: str = "atom") -> Part:
    return Part(kind, f"<mi>{escape(name)}</mi>", name)


def _sign(sign: str) -> Part:
    """An operator or a bracket."""
    shown = {"-": "−", "*": "∗"}.get(sign, sign)
    form = ' form="prefix"' if sign == "∂" else ""
    return Part(KINDS.get(sign, "operator"), f"<mo{form}>{escape(shown)}</mo>", sign)


def _row(parts: list[Part]) -> Part:
    """Parts beside one another: room between the factors of a product, and around operators."""
    if len(parts) == 1:
        return parts[0]
    xml, text = "", ""
    before = "operator"
    bar = "open"  # the first of a pair opens
    for part in parts:
        kind = part.kind
        if part.text == "|":
            kind = bar
            bar = "close" if bar == "open" else "open"
        if part.text in ("+", "-") and before in ("operator", "open", "comma"):
            kind = "sign"
        if before in ("atom", "group", "close", "text") and kind in FACTORS:
            xml += '<mspace width=".2em"></mspace>'
        is_call = part.kind == "open" and before in ("function", "atom", "group")
        if not (is_call or before in ("open", "prefix", "sign") or kind in ("close", "comma")):
            text += " "
        xml += part.xml
        text += part.text
        before = kind
    return Part("row", f"<mrow>{xml}</mrow>", " ".join(text.split()))


def _atom(part: Part) -> str:
    """A part in brackets, unless it is one word."""
    bare = re.fullmatch(r"[\w∂√.'ᵀ\u0302\u0304]+|√?\([^()]*\)", part.text)
    return part.text if bare else f"({part.text})"


def _raised(part: Part) -> str:
    if part.text == "⊤":
        return "ᵀ"
    if re.fullmatch(r"[-+]?\d+|\(\d+\)", part.text):
        return part.text.translate(RAISED)
    return f"^{_atom(part)}"
