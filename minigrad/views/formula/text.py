"""Formulas as one line of readable text, for a terminal or a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .parse import parse
from .signs import shown
from .tree import TOP, Accent, Call, Fraction, Group, Node, Script, Sign, Slot, operator
from .writer import Writer

__all__ = ["plain", "text"]

ACCENTS = {"hat": ("\u0302", "_hat"), "bar": ("\u0304", "_bar")}
RAISED = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
SIMPLE = re.compile(r"[\w∂√.,\u0302\u0304]+|(√|sqrt)?\([^()]*(\([^()]*\)[^()]*)*\)")


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


class _Text(Writer):
    prefixes = tuple(map(operator, (r"\partial", r"\lnot", r"\circ")))

    def __init__(self, names: Mapping[str, str], ascii: bool) -> None:
        self.names, self.ascii = names, ascii

    def sign(self, sign: Sign) -> str:
        return shown(sign, self.ascii)

    def slot(self, slot: Slot) -> str:
        return self.names.get(slot.name, slot.name)

    def group(self, group: Group) -> str:
        return f"{group.open}{self.write(group.inside)}{group.close}"

    def call(self, call: Call) -> str:
        return self.write(call.head) + self.group(call.group)

    def fraction(self, fraction: Fraction) -> str:
        return f"{self.simple(fraction.top)}/{self.simple(fraction.bottom)}"

    def accent(self, accent: Accent) -> str:
        if accent.mark != "sqrt":
            return self.write(accent.base) + ACCENTS[accent.mark][self.ascii]
        return f"sqrt({self.write(accent.base)})" if self.ascii else f"√{self.simple(accent.base)}"

    def simple(self, node: Node, small: bool = False) -> str:
        """A node in brackets, unless it is one word."""
        written = self.write(node, small).strip()
        bare = SIMPLE.fullmatch(written) and not ("," in written and "_" in written)
        return written if bare else f"({written})"

    def script(self, script: Script) -> str:
        written = self.write(script.base)
        if script.below is not None:
            written += f"_{self.simple(script.below, small=True)}"
        if script.above is None:
            return written
        above = self.write(script.above, small=True).strip()
        if script.above == TOP:
            return written + (f"^{above}" if self.ascii else above)
        if not self.ascii and re.fullmatch(r"[-+]?\d+", above):
            return written + above.translate(RAISED)
        return f"{written}^{above if SIMPLE.fullmatch(above) else f'({above})'}"
