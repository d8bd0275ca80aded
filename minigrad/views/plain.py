r"""Formulas, names and numbers as plain text that a terminal and a picture can show.

`plain` reads the LaTeX of this project (op declarations and hand-derived steps), not LaTeX at
large: a command it does not know comes out as its name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from math import isfinite

__all__ = ["counted", "of_bytes", "one_line", "plain", "shaped", "sized"]

# command: (Unicode, ASCII). A trailing space is LaTeX's own and kept only between words.
COMMANDS = {
    "odot": ("⊙", "*"),
    "oslash": ("⊘", "/"),
    "top": ("ᵀ", "T"),
    "circ": ("", ""),
    "partial": ("∂", "d"),
    "sum": ("Σ", "sum"),
    "sigma": ("σ", "sigma"),
    "Phi": ("Φ", "Phi"),
    "varphi": ("φ", "phi"),
    "mu": ("μ", "mu"),
    "varepsilon": ("ε", "eps"),
    "lnot": ("¬", "not "),
    "le": ("≤", "<="),
    "ge": ("≥", ">="),
    "cdot": ("·", "*"),
    "times": ("×", "x"),
    "infty": ("∞", "inf"),
    "quad": (" ", " "),
    ",": (" ", " "),
    "#": ("#", "#"),
}
SILENT = {
    "textstyle",
    "displaystyle",
    "left",
    "right",
    "mathrm",
    "mathbin",
    "operatorname",
    "text",
    "mathbf",
}
ACCENTS = {"hat": ("\u0302", "_hat"), "bar": ("\u0304", "_bar")}
RAISED = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|<\w+>|\s+|.", re.DOTALL)
_SIMPLE = re.compile(r"[\w∂√.,\u0302\u0304]+|(√|sqrt)?\([^()]*(\([^()]*\)[^()]*)*\)")


def plain(tex: str, names: Mapping[str, str] | None = None, *, ascii: bool = False) -> str:
    r"""LaTeX of an op or of a hand-derived step as one line of readable text.

    Args:
        names: what to write for each placeholder `<name>`; by default the name itself.
        ascii: ASCII only.

    >>> plain(r"O^\top \frac{\partial L}{\partial \mathrm{out}}")
    'Oᵀ ∂L/∂out'
    >>> plain(r"<a>^\top <g>", {"a": "X", "g": "∂L/∂Q"})
    'Xᵀ ∂L/∂Q'
    >>> plain(r"\frac{1}{\sqrt{d_k}} \odot x", ascii=True)
    '1/sqrt(d_k) * x'
    """
    reader = _Reader(_TOKEN.findall(tex), names or {}, 1 if ascii else 0)
    text = re.sub(r"\s+", " ", reader.group()).strip()
    text = re.sub(r" +([,)\]])", r"\1", text)
    return re.sub(r"([(\[]) +", r"\1", text)


class _Reader:
    """Reads tokens from the left; a group ends at its closing brace."""

    def __init__(self, tokens: list[str], names: Mapping[str, str], which: int) -> None:
        self.tokens, self.names, self.which, self.at = tokens, names, which, 0

    def group(self) -> str:
        text = ""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token == "}":
                break
            if token in ("^", "_"):
                self.at += 1
                text = self.script(text, token, self.argument())
            else:
                text += self.piece()
        return text

    def piece(self) -> str:
        """One token, with the arguments it takes."""
        token = self.tokens[self.at]
        self.at += 1
        if token == "{":
            return self.close(self.group())
        if token.startswith("\\"):
            return self.command(token[1:])
        if len(token) > 2 and token[0] == "<":
            return self.names.get(token[1:-1], token[1:-1])
        return token

    def close(self, text: str) -> str:
        self.at += 1
        return text

    def argument(self) -> str:
        """What a command applies to: a group, or the next token, which of a number is one digit."""
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        return self.piece() if self.at < len(self.tokens) else ""

    def command(self, name: str) -> str:
        if name in ("frac", "tfrac"):
            top, bottom = self.argument(), self.argument()
            return f"{self.wrapped(top)}/{self.wrapped(bottom)}"
        if name == "sqrt":
            inside = self.argument()
            if self.which:
                return f"sqrt({inside})"
            return f"√{self.wrapped(inside)}"
        if name in ACCENTS:
            return self.argument() + ACCENTS[name][self.which]
        if name == "partial":
            return COMMANDS[name][self.which] + self.argument()
        if name in SILENT:
            return ""
        return COMMANDS[name][self.which] if name in COMMANDS else name

    def wrapped(self, text: str) -> str:
        return text if _SIMPLE.fullmatch(text) else f"({text.strip()})"

    def script(self, base: str, sign: str, text: str) -> str:
        """A subscript or an exponent."""
        text = text.strip()
        if sign == "_":
            return f"{base}_{text if _SIMPLE.fullmatch(text) else '(' + text + ')'}"
        if text == "ᵀ":
            return base + text
        if not self.which and re.fullmatch(r"[-+]?\d+", text):
            return base + text.translate(RAISED)
        return f"{base}^{text if _SIMPLE.fullmatch(text) else '(' + text + ')'}"


# ---------------------------------------------------------------- names and numbers


def one_line(text: str, limit: int | None = None) -> str:
    r"""A name as one harmless line: control and direction-changing characters are spelled out.

    >>> one_line("a\nb\u202ec")
    'a\\nb\\u202ec'
    >>> one_line("a very long name indeed", limit=12)
    'a very long…'
    """
    bad = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    if not text.isascii() or not text.isprintable():
        text = "".join(
            c.encode("unicode_escape").decode() if unicodedata.category(c) in bad else c
            for c in text
        )
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def shaped(shape: tuple[int, ...]) -> str:
    """A shape as people write it: 2 × 7 × 11; a scalar for ().

    >>> shaped((2, 7, 11)), shaped(())
    ('2×7×11', 'scalar')
    """
    return "×".join(map(str, shape)) if shape else "scalar"


def sized(number: float | None) -> str:
    """A size to two digits, such as an rms.

    >>> [sized(x) for x in (0.0, 0.0123, 3.0, 12345.0, 2e-9, float("nan"), None)]
    ['0', '0.012', '3.0', '1.2e+04', '2.0e-09', 'nan', '']
    """
    if number is None:
        return ""
    if number == 0 or not isfinite(number):
        return f"{number:.0f}"
    if not 1e-3 <= abs(number) < 1e3:
        return f"{number:.1e}"
    return f"{number:.0f}" if abs(number) >= 99.5 else f"{number:#.2g}".rstrip(".")


def counted(number: int | None, units: tuple[str, ...] = ("", "k", "M", "G", "T", "P")) -> str:
    """A count to three digits with a unit.

    >>> [counted(n) for n in (0, 999, 1500, 123_456_789)]
    ['0', '999', '1.5k', '123M']
    """
    if number is None:
        return ""
    value = float(number)
    for unit in units[:-1]:
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}{units[-1]}"


def of_bytes(number: int) -> str:
    """A number of bytes, in powers of 1000.

    >>> of_bytes(0), of_bytes(2688)
    ('0 B', '2.69 kB')
    """
    return counted(number, (" B", " kB", " MB", " GB", " TB"))
