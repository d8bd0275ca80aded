"""Symbols and the spaces they live in, as a derivation writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...ops.notation import shape_product
from ...recording.record import Entry
from ...recording.trace import TraceRecord
from ..formula import Formula, parse
from ..formula.products import LOSS_LETTER
from ..formula.tree import COMMA, EMPTY, GREEK, letter, row, script

__all__ = ["letters", "space", "symbol_of", "symbols"]

WORD = 14  # characters of a name that is a symbol; a longer one is quoted
# letters for what has no name: the first that nothing else has
UNNAMED = "H Z U Y"
PARAMETER = r"\theta \vartheta \psi"
BY_PART = {"mask": "M B", "targets": "t", "a": "c k", "b": "c k", "x": "X c k"}


def symbol_of(name: str) -> Formula:
    r"""The symbol that a name spells, or the name itself as text.

    >>> from ..formula import latex
    >>> [latex(symbol_of(name)) for name in ("W_Q", "b1", "S_raw", "x_hat", "out", "fc1_w")]
    ['W_Q', 'b_1', 'S_{\\mathrm{raw}}', '\\hat x', '\\mathrm{out}', '\\mathrm{fc}_{1,w}']
    >>> [latex(symbol_of(name)) for name in ("alpha", "Q_phi", "W12", "x y")]
    ['\\alpha', 'Q_{\\phi}', 'W_{12}', '\\text{x y}']
    >>> latex(symbol_of("50% of <x>"))
    '{\\text{50}\\%\\text{ of }\\lt \\text{x}\\gt }'
    """
    if name.endswith("_hat") and len(name) == 5:
        return Formula("hat", "", (letter(name[0]),))
    found = re.fullmatch(r"([A-Za-z]+)(\d*)((?:_[A-Za-z0-9]+)*)", name)
    if not found or len(name) > WORD + 6 or len(found[1]) > WORD:
        return Formula("text", name)
    word, digits, rest = found.groups()
    below = letters([digits] * bool(digits) + rest.split("_")[1:])
    return _word(word) if below == EMPTY else script(_word(word), below)


def _word(text: str) -> Formula:
    if text in GREEK:
        return letter(rf"\{text}")
    return Formula("number" if text.isdigit() else "letter" if len(text) == 1 else "word", text)


def letters(names: Iterable[str]) -> Formula:
    """Names separated by commas, as in a subscript; EMPTY for none."""
    items: list[Formula] = []
    for name in names:
        items += [COMMA, parse(name) if "_" in name else _word(name)]
    return row(items[1:]) if items else EMPTY


def symbols(trace: TraceRecord, used: Iterable[int], loss: int | None) -> dict[int, Formula]:
    """A symbol for each entry used, no two alike; `loss` is the entry that is L itself."""
    entries = [trace[i] for i in sorted(used) if i != loss]
    found = {e.id: symbol_of(e.name) for e in entries if e.name}
    taken = {LOSS_LETTER, *(s.parts[0] if s.kind == "script" else s for s in found.values())}
    groups: dict[str, list[int]] = {}
    for e in entries:
        if not e.name:
            groups.setdefault(_choices(trace, e), []).append(e.id)
    for choices, ids in groups.items():
        base = next((c for c in map(parse, choices.split()) if c not in taken), _word("tmp"))
        taken.add(base)
        for k, i in enumerate(ids, 1):
            found[i] = script(base, Formula("number", str(k))) if len(ids) > 1 else base
    return _distinct(trace, found) | ({} if loss is None else {loss: LOSS_LETTER})


def _choices(trace: TraceRecord, entry: Entry) -> str:
    """The letters that an entry without a name may have, by the input that it first is."""
    if entry.op is not None or entry.learns:
        return PARAMETER if entry.op is None else UNNAMED
    use = trace.first_use(entry)
    part = "x" if use is None else use.input
    return BY_PART.get(part, rf"\mathrm{{{part}}}" if len(part) > 1 else part)


def _distinct(trace: TraceRecord, found: dict[int, Formula]) -> dict[int, Formula]:
    """Mark equal symbols: by the number in their scopes if it differs, else by counting."""
    alike: dict[Formula, list[int]] = {}
    for i, symbol in sorted(found.items()):
        alike.setdefault(symbol, []).append(i)
    for symbol, ids in alike.items():
        first = 2 if symbol == LOSS_LETTER else 1  # L alone is the loss
        if len(ids) < 2 and first == 1:
            continue
        marks = [(re.findall(r"\d+", trace[i].scope) or [""])[-1] for i in ids]
        if "" in marks or len(set(marks)) < len(ids) or first > 1:
            marks = [str(n) for n in range(first, len(ids) + first)]
        base, below, _ = symbol.parts if symbol.kind == "script" else (symbol, EMPTY, EMPTY)
        for i, mark in zip(ids, marks, strict=True):
            found[i] = script(base, below, Formula("group", "(", (Formula("number", mark),)))
    return found


def space(shape: tuple[int, ...], dtype: str = "float64") -> str:
    r"""The space of an array.

    >>> space((2, 7)), space(())
    ('\\mathbb{R}^{2 \\times 7}', '\\mathbb{R}')
    """
    kind = {"i": r"\mathbb{Z}", "u": r"\mathbb{N}", "b": r"\{0, 1\}"}.get(dtype[:1], r"\mathbb{R}")
    return f"{kind}^{{{shape_product(shape)}}}" if shape else kind
