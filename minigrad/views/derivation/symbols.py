r"""Names, shapes and numbers as LaTeX that GitHub, MathJax and KaTeX render alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING

from ..plain import one_line

if TYPE_CHECKING:
    from ...recording.record import Entry
    from ...recording.trace import Trace

__all__ = [
    "Symbol",
    "array_letters",
    "number_tex",
    "space",
    "symbol_of",
    "symbols",
    "text_tex",
    "times",
]

GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split()
)
SPECIAL = {"\\": r"\backslash ", "<": r"\lt ", ">": r"\gt ", "|": r"\vert ", "~": r"\sim ",
           "^": r"\wedge ", "`": "'"} | {c: rf"\{c}" for c in "_{}$%#&"}  # fmt: skip
LONGEST, WORD = 32, 14  # characters of a name that is quoted, and of one that is a symbol
# letters for what has no name: the first that no one else uses
UNNAMED = "H Z U Y"
BY_PART = {"mask": "M B", "targets": "t", "a": "c k", "b": "c k", "x": "X c k"}


# ---------------------------------------------------------------- one symbol


@dataclass(frozen=True)
class Symbol:
    r"""A letter or word with a subscript; `mark` tells namesakes apart.

    >>> Symbol("W", "Q").tex(), Symbol("X").tex("b"), Symbol("W", "Q", "2").tex("b")
    ('W_Q', 'X_b', '{W_{Q,b}^{(2)}}')
    """

    base: str
    sub: str = ""
    mark: str = ""

    def tex(self, index: str = "") -> str:
        below = ",".join(part for part in (self.sub, index) if part)
        below = f"_{below}" if len(below) == 1 else f"_{{{below}}}" if below else ""
        return f"{{{self.base}{below}^{{({self.mark})}}}}" if self.mark else self.base + below


def symbol_of(name: str) -> Symbol:
    r"""The symbol that a name spells, or the name itself as text.

    >>> [symbol_of(name).tex() for name in ("W_Q", "b1", "S_raw", "gamma", "out", "fc1_w")]
    ['W_Q', 'b_1', 'S_{\\mathrm{raw}}', '\\gamma', '\\mathrm{out}', '\\mathrm{fc}_{1,w}']
    >>> symbol_of("50% of <x>").tex()
    '{\\text{50}\\%\\text{ of }\\lt \\text{x}\\gt }'
    """
    found = re.fullmatch(r"([A-Za-z]+)(\d*)((?:_[A-Za-z0-9]+)*)", name)
    if not found or len(name) > WORD + 6 or len(found[1]) > WORD:
        return Symbol(text_tex(name))
    word, number, rest = found.groups()
    sub = [number] * bool(number) + [_upright(part) for part in rest.split("_")[1:]]
    base = word if len(word) == 1 else rf"\{word}" if word in GREEK else rf"\mathrm{{{word}}}"
    return Symbol(base, ",".join(sub))


def _upright(part: str) -> str:
    if part in GREEK:
        return rf"\{part}"
    return part if len(part) == 1 or part.isdigit() else rf"\mathrm{{{part}}}"


def text_tex(text: str, limit: int = LONGEST) -> str:
    """Any text as one LaTeX atom; control and direction characters are spelled out."""
    pieces = re.findall(r"[\\<>|~^`_{}$%#&]|[^\\<>|~^`_{}$%#&]+", one_line(text, limit))
    return "{" + "".join(SPECIAL.get(p) or rf"\text{{{p}}}" for p in pieces) + "}"


# ---------------------------------------------------------------- the symbols of a trace


def symbols(trace: Trace, used: Iterable[int], loss: int | None) -> dict[int, Symbol]:
    """A symbol for each entry used, no two alike; `loss` is the entry that is L itself."""
    entries = [trace[i] for i in sorted(used)]
    plain = {e.id: symbol_of(e.name) for e in entries if e.name and e.id != loss}
    taken = {symbol.base for symbol in plain.values()} | {"L"}
    groups: dict[str, list[int]] = {}
    for e in entries:
        if e.id not in plain and e.id != loss:
            groups.setdefault(_letters(trace, e), []).append(e.id)
    for letters, ids in groups.items():
        letter = next((c for c in letters.split() if c not in taken), r"\mathrm{tmp}")
        taken.add(letter)
        many = len(ids) > 1
        plain |= {k: Symbol(letter, str(i) if many else "") for i, k in enumerate(ids, 1)}
    found = _told_apart(trace, plain)
    return found | ({loss: Symbol("L")} if loss is not None else {})


def _letters(trace: Trace, entry: Entry) -> str:
    """The letters that an entry without a name may have, after the part that it plays first."""
    if entry.op is not None:
        return UNNAMED
    if entry.kind == "parameter":
        return r"\theta \vartheta \psi"
    uses = trace.uses(entry)
    part = uses[0].input if uses else "x"
    return BY_PART.get(part, symbol_of(part).tex())


def _told_apart(trace: Trace, plain: dict[int, Symbol]) -> dict[int, Symbol]:
    """Mark namesakes: by the number in their scopes if that tells them apart, else by counting."""
    alike: dict[Symbol, list[int]] = {}
    for i, symbol in sorted(plain.items()):
        alike.setdefault(symbol, []).append(i)
    alike.setdefault(Symbol("L"), []).insert(0, -1)  # L is the loss, so nothing else is L alone
    found = {}
    for symbol, ids in alike.items():
        numbers = [(re.findall(r"\d+", trace[i].scope if i >= 0 else "") or [""])[-1] for i in ids]
        if "" in numbers or len(set(numbers)) < len(ids):
            numbers = [str(n) for n in range(1, len(ids) + 1)]
        for i, number in zip(ids, numbers, strict=True):
            found[i] = replace(symbol, mark=number) if len(ids) > 1 else symbol
    return {i: symbol for i, symbol in found.items() if i >= 0}


# ---------------------------------------------------------------- shapes and numbers


def space(shape: tuple[int, ...], dtype: str = "float64") -> str:
    r"""Where an array lives.

    >>> space((2, 7)), space(())
    ('\\mathbb{R}^{2 \\times 7}', '\\mathbb{R}')
    """
    kind = {"i": r"\mathbb{Z}", "u": r"\mathbb{N}", "b": r"\{0, 1\}"}.get(dtype[:1], r"\mathbb{R}")
    return f"{kind}^{{{times(shape)}}}" if shape else kind


def times(shape: tuple[int, ...]) -> str:
    r"""A shape as a product of sizes.

    >>> times((2, 7)), times(())
    ('2 \\times 7', '1')
    """
    return r" \times ".join(map(str, shape)) or "1"


def array_letters(ndim: int) -> list[str]:
    """The letters that index an array's axes: b for a batch, h for heads, i and j for the last two.

    A fifth is g, of what is grouped: heads that share keys, or chunks of a sequence.

    >>> array_letters(3), array_letters(5), array_letters(6)[-1]
    (['b', 'i', 'j'], ['b', 'h', 'g', 'i', 'j'], 'i_6')
    """
    usual = ["", "i", "ij", "bij", "bhij", "bhgij"]
    return list(usual[ndim]) if ndim < len(usual) else [f"i_{k}" for k in range(1, ndim + 1)]


def number_tex(text: str) -> str:
    r"""A number as Python prints it, as a person writes it; other text as text.

    >>> [number_tex(x) for x in ("2.0", "0.5773502691896258", "1e-05", "-0.125", "0.123456789")]
    ['2', '\\tfrac{1}{\\sqrt{3}}', '10^{-5}', '-0.125', '0.123457\\ldots']
    """
    try:
        value = float(re.sub(r"^np\.\w+\((.*)\)$", r"\1", text))
    except ValueError:
        return text_tex(text)
    if not isfinite(value):
        return r"\mathrm{nan}" if value != value else (r"-\infty" if value < 0 else r"\infty")
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 0 < value < 1 and len(repr(value)) > 7:
        for root, squared in (("", 1 / value), (r"\sqrt", 1 / value**2)):
            n = round(squared)
            if 1 < n < 1e5 and abs(value - (1 / sqrt(n) if root else 1 / n)) < 4e-16:
                return rf"\tfrac{{1}}{{{root}{{{n}}}}}" if root else rf"\tfrac{{1}}{{{n}}}"
    short = f"{value:.6g}"
    mantissa, _, power = short.partition("e")
    dots = "" if float(short) == value else r"\ldots"
    if not power:
        return mantissa + dots
    times = "" if mantissa == "1" else rf"{mantissa}{dots} \cdot "
    return rf"{times}10^{{{int(power)}}}"
