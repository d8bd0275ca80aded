"""Symbols and the spaces they live in, as a derivation writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ops.notation import times
from ..formula import Node, parse
from ..formula.tree import Group, Script, Sign, row

if TYPE_CHECKING:
    from ...recording.record import Entry
    from ...recording.trace import Trace

__all__ = ["letters", "space", "symbol_of", "symbols"]

GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split()
)
WORD = 14  # characters of a name that is a symbol; a longer one is quoted
LOSS = Sign("letter", "L")
# letters for what has no name: the first that no one else uses
UNNAMED = "H Z U Y"
BY_PART = {"mask": "M B", "targets": "t", "a": "c k", "b": "c k", "x": "X c k"}


# ---------------------------------------------------------------- one symbol


def symbol_of(name: str) -> Node:
    r"""The symbol that a name spells, or the name itself as text.

    >>> from ..formula import latex
    >>> [latex(symbol_of(name)) for name in ("W_Q", "b1", "S_raw", "gamma", "out", "fc1_w")]
    ['W_Q', 'b_1', 'S_{\\mathrm{raw}}', '\\gamma', '\\mathrm{out}', '\\mathrm{fc}_{1,w}']
    >>> latex(symbol_of("50% of <x>"))
    '{\\text{50}\\%\\text{ of }\\lt \\text{x}\\gt }'
    """
    found = re.fullmatch(r"([A-Za-z]+)(\d*)((?:_[A-Za-z0-9]+)*)", name)
    if not found or len(name) > WORD + 6 or len(found[1]) > WORD:
        return Sign("text", name)
    word, digits, rest = found.groups()
    below = letters([digits] * bool(digits) + rest.split("_")[1:])
    return _word(word) if below is None else Script(_word(word), below)


def _word(text: str) -> Sign:
    if text in GREEK:
        return Sign("letter", rf"\{text}")
    kind = "number" if text.isdigit() else "letter" if len(text) == 1 else "word"
    return Sign(kind, text)


def letters(names: Iterable[str]) -> Node | None:
    """Names beside one another, as they stand below a sign; None for none."""
    items: list[Node] = []
    for name in names:
        items += [Sign("operator", ","), parse(name) if "_" in name else _word(name)]
    return row(items[1:]) if items else None


# ---------------------------------------------------------------- the symbols of a trace


def symbols(trace: Trace, used: Iterable[int], loss: int | None) -> dict[int, Node]:
    """A symbol for each entry used, no two alike; `loss` is the entry that is L itself."""
    entries = [trace[i] for i in sorted(used) if i != loss]
    found = {e.id: symbol_of(e.name) for e in entries if e.name}
    taken = {symbol.base if isinstance(symbol, Script) else symbol for symbol in found.values()}
    taken.add(LOSS)
    groups: dict[str, list[int]] = {}
    for e in entries:
        if not e.name:
            groups.setdefault(_choices(trace, e), []).append(e.id)
    for choices, ids in groups.items():
        letter = next((c for c in map(parse, choices.split()) if c not in taken), _word("tmp"))
        taken.add(letter)
        for i, k in enumerate(ids, 1):
            found[k] = Script(letter, Sign("number", str(i))) if len(ids) > 1 else letter
    found = _told_apart(trace, found)
    return found | ({loss: LOSS} if loss is not None else {})


def _choices(trace: Trace, entry: Entry) -> str:
    """The letters that an entry without a name may have, after the part that it plays first."""
    if entry.op is not None:
        return UNNAMED
    if entry.kind == "parameter":
        return r"\theta \vartheta \psi"
    uses = trace.uses(entry)
    part = uses[0].input if uses else "x"
    return BY_PART.get(part, rf"\mathrm{{{part}}}" if len(part) > 1 else part)


def _told_apart(trace: Trace, plain: dict[int, Node]) -> dict[int, Node]:
    """Mark namesakes: by the number in their scopes if that tells them apart, else by counting."""
    alike: dict[Node, list[int]] = {}
    for i, symbol in sorted(plain.items()):
        alike.setdefault(symbol, []).append(i)
    alike.setdefault(LOSS, []).insert(0, -1)  # L is the loss, so nothing else is L alone
    found = {}
    for symbol, ids in alike.items():
        numbers = [(re.findall(r"\d+", trace[i].scope if i >= 0 else "") or [""])[-1] for i in ids]
        if "" in numbers or len(set(numbers)) < len(ids):
            numbers = [str(n) for n in range(1, len(ids) + 1)]
        for i, digits in zip(ids, numbers, strict=True):
            found[i] = _marked(symbol, digits) if len(ids) > 1 else symbol
    return {i: symbol for i, symbol in found.items() if i >= 0}


def _marked(symbol: Node, digits: str) -> Node:
    mark = Group("(", Sign("number", digits), ")")
    return replace(symbol, above=mark) if isinstance(symbol, Script) else Script(symbol, above=mark)


def space(shape: tuple[int, ...], dtype: str = "float64") -> str:
    r"""Where an array lives.

    >>> space((2, 7)), space(())
    ('\\mathbb{R}^{2 \\times 7}', '\\mathbb{R}')
    """
    kind = {"i": r"\mathbb{Z}", "u": r"\mathbb{N}", "b": r"\{0, 1\}"}.get(dtype[:1], r"\mathbb{R}")
    return f"{kind}^{{{times(shape)}}}" if shape else kind
