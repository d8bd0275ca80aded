"""What a formula is made of, its signs, how it binds, and the signs that it defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Formula:
    r"""A part of a formula: its kind, its own text, and the parts within it.

    letter, number, operator, function, space   one sign, as LaTeX spells it
    word, text, shape                           a symbol of several letters, any text, a shape
    slot                  the place of an input, a setting, `g` or `out`
    row                   parts beside one another
    group, tall           a row in brackets, of which the opening one is the text; tall ones grow
    call                  a head, and the group right behind it: its arguments or its index
    frac, tfrac           top and bottom; a tfrac is small
    script                base, what is below it and what is above it, either of which may be EMPTY
    hat, bar, sqrt        an accent over its one part
    """

    kind: str
    text: str = ""
    parts: tuple[Formula, ...] = ()

    def __iter__(self) -> Iterator[Formula]:
        """The node and all within it, from the left."""
        yield self
        for part in self.parts:
            yield from part

    def mapped(self, change: Callable[[Formula], Formula]) -> Formula:
        return Formula(self.kind, self.text, tuple(map(change, self.parts)))


# ---------------------------------------------------------------- signs

OPERATOR_SIGNS = {
    "odot": "⊙", "oslash": "⊘", "top": "ᵀ", "circ": "",
    "partial": "∂", "sum": "Σ", "lnot": "¬", "le": "≤",
    "ge": "≥", "lt": "<", "gt": ">", "in": "∈", "to": "→",
    "cdot": "·", "times": "×", "ldots": "…", "#": "#",
    "prod": "Π", "ne": "≠", "pm": "±",
}  # fmt: skip
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "vartheta": "ϑ", "iota": "ι", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "upsilon": "υ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ",
    "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "infty": "∞", "ell": "ℓ",
}  # fmt: skip
FUNCTION_COMMANDS = ("max", "min", "log", "exp", "tanh", "cosh", "sinh", "sin", "cos", "det", "arg")
CLOSING = {"(": ")", "[": "]", "|": "|"}
SPACES = {",": "0.167em", ";": "0.28em", "quad": "1em", "qquad": "2em", "!": "-0.167em"}
READS_AS = {  # of each kind: how a command of LaTeX reads
    "space": dict.fromkeys(SPACES, " "),
    "operator": OPERATOR_SIGNS,
    "letter": GREEK,
    "function": {name: name for name in FUNCTION_COMMANDS},
}
KIND_OF_COMMAND = {name: kind for kind, signs in READS_AS.items() for name in signs}


def shown(sign: Formula) -> str:
    """A sign as plain text shows it."""
    if sign.kind == "operator" and sign.text.startswith("{"):  # an operator in braces
        return sign.text[1:-1]
    if sign.kind not in READS_AS or sign.text[:1] != "\\":
        return sign.text
    name = sign.text[1:]
    return READS_AS[sign.kind].get(name, name)


# ---------------------------------------------------------------- parts


def operator(tex: str) -> Formula:
    return Formula("operator", tex)


def letter(tex: str) -> Formula:
    return Formula("letter", tex)


EMPTY = Formula("empty")
COMMA, PLUS, MINUS, EQUALS, SUM, TRANSPOSE = map(operator, (",", "+", "-", "=", r"\sum", r"\top"))
CIRCLE, ODOT, OSLASH = map(operator, (r"\circ", r"\odot", r"\oslash"))
LOOSE = (PLUS, MINUS, EQUALS, *map(operator, ("<", ">", r"\le", r"\ge")))  # they bind least
QUAD = Formula("space", r"\quad")
GRADIENT = Formula("slot", "g")


def row(items: Sequence[Formula]) -> Formula:
    """Formulas beside one another; one alone stays as it is."""
    return items[0] if len(items) == 1 else Formula("row", "", tuple(items))


def items_of(node: Formula) -> tuple[Formula, ...]:
    return node.parts if node.kind == "row" else (node,)


def script(base: Formula, below: Formula = EMPTY, above: Formula = EMPTY) -> Formula:
    return Formula("script", "", (base, below, above))


def base_of(node: Formula) -> Formula:
    """A formula without its scripts."""
    return node.parts[0] if node.kind == "script" else node


def slots(node: Formula) -> list[str]:
    return list(dict.fromkeys(part.text for part in node if part.kind == "slot"))


def split(node: Formula, separator: Formula) -> list[Formula]:
    parts: list[list[Formula]] = [[]]
    for item in items_of(node):
        if item == separator:
            parts.append([])
        else:
            parts[-1].append(item)
    return [row(part) for part in parts]


def definitions(formula: Formula) -> tuple[Formula, list[tuple[Formula, Formula]]]:
    r"""A formula, and the signs that are defined behind it: each with what it is.

    >>> from . import parse, latex
    >>> body, signs = definitions(parse(r"\tfrac1n <g>, \quad n = 7"))
    >>> latex(body), [(latex(sign), latex(it)) for sign, it in signs]
    ('\\tfrac1n\\, \\mathrm{g}', [('n', '7')])
    """
    parts = [items_of(part) for part in split(formula, QUAD)]
    first, *rest = (part[:-1] if part[-1:] == (COMMA,) else part for part in parts)
    equations = ((part.index(EQUALS), part) for part in rest if EQUALS in part)
    return row(first), [(row(part[:at]), row(part[at + 1 :])) for at, part in equations]


def level(node: Formula) -> str:
    """What binds loosest outside of all brackets: "sum", "product", or "atom" if nothing does."""
    items = items_of(node)
    if any(item in LOOSE for item in items):
        return "sum"
    if len(items) == 1 and items[0].kind == "row":
        return level(items[0])
    return "atom" if len(items) == 1 else "product"


def is_negative(node: Formula) -> bool:
    return items_of(node)[:1] == (MINUS,)


def keeps_shape(rule: Formula) -> bool:
    """Whether a rule works entry by entry or as a product of matrices.

    It has the shape of the op's result then, and the engine sums over what was repeated.
    """
    return not any(map(_changes_shape, definitions(rule)[0]))


def _changes_shape(node: Formula) -> bool:
    match node:
        case Formula("function", name):
            return name[:1] != "\\"
        case Formula("call", _, (_, Formula(_, "["))):
            return True
        case Formula("script", _, (Formula("slot"), below, _)):
            return below != EMPTY
    return node == SUM
