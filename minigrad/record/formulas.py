r"""Formulas of a run: what its ops declare, with symbols and numbers in the place of <slots>.

A formula is LaTeX that GitHub, MathJax and the page render alike. A value stands for its symbol,
which no other has; the gradient of X is ∂L/∂X. A product keeps its matrix form: where a product of
stacks of matrices is added up, Σ_b stands before it, b an axis of the stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..engine.backward import broadcast_axes
from ..engine.declaration import Shaped
from ..engine.op import registry
from .record import Edge, Entry, Record, show

__all__ = ["first_sentence", "number", "symbol_of", "write_formulas"]

READ_BY_LATEX = r"[\\<>|~^`_{}$%#&]"  # of LaTeX
WORD = 14  # characters of a name that is a symbol; a longer one is quoted
LONGEST = 32  # of what is quoted
AXES = {1: "i", 2: "ij", 3: "bij", 4: "bhij", 5: "bhgij"}  # letters of an array's axes
GREEK_NAMES = set(
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi "
    "psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split()
)
RESHAPING = r"\operatorname", r"\sum", "<g>["  # in rules that send what has the input's shape
# letters for what has no name, by what it is: the first that nothing else has
UNNAMED, PARAMETER = "HZUYGEDRN", (r"\theta", r"\vartheta", r"\psi")
BY_INPUT = {"mask": "MB", "targets": "t", "a": "ck", "b": "ck", "x": "Xck"}


@lru_cache(maxsize=512)
def first_sentence(function: Callable[..., Any]) -> str:
    """What a docstring says first, up to the formula or the detail behind a colon or semicolon.

    >>> first_sentence(registry["exp"]), first_sentence(lambda x: x)
    ('Raises e to the power of each entry.', '')
    """
    claim = " ".join((function.__doc__ or "").strip().partition("\n\n")[0].split())
    sentence = re.split(r"[.:;](?=\s|$)", claim, maxsplit=1)[0]
    return f"{sentence}." if sentence else ""


def write_formulas(record: Record) -> None:
    """Set the formulas of a record's entries and edges, with symbols in their slots."""
    for entry in record.ops:
        _declare(record, entry)
    _name(record)
    for entry in record.ops:
        values, op = _values(record, entry), registry[entry.op]
        entry.equation, entry.where = _written(entry.tex, values)
        values |= {"g": entry.slope, "out": entry.symbol}
        for edge in entry.takes:
            rule = entry.vjp_tex.get(edge.input, "")
            if edge.contribution is not None or (rule and not record.backwards):
                equation, edge.where = _written(rule, values)
                edge.equation = _repeated(record, edge, rule) + equation
                declared = op.rules.get(op.inputs[0] if op.variadic else edge.input)
                edge.says = first_sentence(declared.function) if declared else ""


def _declare(record: Record, entry: Entry) -> None:
    """What its op declares of the call that made an entry."""
    op = registry[entry.op]
    entry.says = first_sentence(op.kernel)
    forms: dict[str, Any] = dict(entry.numbers)
    for edge in entry.takes:
        source = record.entries[edge.source]
        forms[edge.input] = Shaped(source.shape, np.dtype(source.dtype))
    if not forms.keys() >= {*entry.inputs}:  # a graph holds no numbers
        return
    call = [forms[name] for name in entry.inputs], [*entry.settings.values()]
    out = Shaped(entry.shape, np.dtype(entry.dtype))
    entry.tex, entry.vjp_tex = op.formulas(*call, out)
    entry.flops = op.count_flops(*call, out)


# ---------------------------------------------------------------- symbols


def symbol_of(name: str) -> str:
    r"""The symbol that a name spells, or the name itself as text.

    >>> [symbol_of(name) for name in ("W_Q", "b1", "S_raw", "out", "fc1_w", "alpha")]
    ['W_Q', 'b_1', 'S_{\\mathrm{raw}}', '\\mathrm{out}', '\\mathrm{fc}_{1,w}', '\\alpha']
    >>> symbol_of("hidden_state_of_the_encoder")
    '{\\text{hidden state of the encoder}}'
    """
    parts = re.fullmatch(r"([A-Za-z]+)(\d*)((?:_[A-Za-z0-9]+)*)", name)
    if not parts or len(name) > WORD + 6 or len(parts[1]) > WORD:
        text = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        return rf"{{\text{{{re.sub(READ_BY_LATEX, ' ', text)}}}}}"  # one atom
    word, digits, rest = parts.groups()
    below = ",".join(map(_word, filter(None, [digits, *rest.split("_")])))
    return _word(word) + (_index(below) if below else "")


def _word(text: str) -> str:
    if text in GREEK_NAMES:
        return rf"\{text}"
    return text if len(text) == 1 or text.isdigit() else rf"\mathrm{{{_escaped(text)}}}"


def _escaped(text: str) -> str:
    return text.replace("_", r"\_")


def _index(text: str) -> str:
    return f"_{text}" if len(text) == 1 else f"_{{{text}}}"


def _name(record: Record) -> None:
    """Give each entry a symbol, no two alike, and its gradient's; the loss is L."""
    groups: dict[str | tuple[str, ...], list[Entry]] = {}
    transposes = set[int]()
    for entry in record.entries:
        entry.symbol = symbol_of(entry.name) if entry.name else ""
        if entry.id == record.loss:
            entry.symbol = ""
        elif not entry.name and _is_transpose(record, entry, transposes):
            transposes.add(entry.id)
        elif not entry.name:
            groups.setdefault(_choices(entry), []).append(entry)
    taken = {"L", *(re.split(r"[_^]", e.symbol, maxsplit=1)[0] for e in record.entries)}
    for choices, entries in groups.items():
        base = next((c for c in choices if c not in taken), r"\mathrm{tmp}")
        taken.add(base)
        for k, entry in enumerate(entries, 1):
            entry.symbol = base + _index(str(k)) if len(entries) > 1 else base
    _distinguish(record)
    for entry in record.entries:
        if entry.kind == "constant" and entry.size == 1 and entry.value is not None:
            entry.number = number(entry.value.item())
        if entry.id == record.loss:
            entry.symbol = "L"
        elif entry.id in transposes:
            source = record.entries[entry.takes[0].source]
            entry.symbol = _before_script(source.symbol, "^") + r"^\top"
        entry.slope = rf"\frac{{\partial L}}{{\partial {entry.symbol}}}"


def _is_transpose(record: Record, entry: Entry, transposes: set[int]) -> bool:
    """Whether it is the one transpose of what has a symbol of its own."""
    if entry.tex != r"<x>^\top":
        return False
    source = record.entries[entry.takes[0].source]
    alike = [use for use in source.uses if record.entries[use.target].op == entry.op]
    return len(alike) == 1 and source.id not in transposes


def _choices(entry: Entry) -> str | tuple[str, ...]:
    """The letters that an entry without a name may have, by the input that it first is."""
    if entry.op:
        return UNNAMED
    if entry.learns:
        return PARAMETER
    part = entry.uses[0].input.rstrip("0123456789") if entry.uses else "x"
    return BY_INPUT.get(part, (_word(part),))


def _distinguish(record: Record) -> None:
    """Mark equal symbols: by the number in their scopes if it differs, else by counting."""
    alike: dict[str, list[Entry]] = {}
    for entry in record.entries:
        if entry.symbol:
            alike.setdefault(entry.symbol, []).append(entry)
    for symbol, entries in alike.items():
        first = 2 if symbol == "L" else 1  # L alone is the loss
        marks = [(re.findall(r"\d+", entry.scope) or [""])[-1] for entry in entries]
        if "" in marks or len({*marks}) < len(entries) or symbol == "L":
            marks = [str(n) for n in range(first, first + len(entries))]
        if len(entries) > 1 or symbol == "L":
            for entry, mark in zip(entries, marks, strict=True):
                entry.symbol = rf"{symbol}^{{({mark})}}"


# ---------------------------------------------------------------- filling


def _values(record: Record, entry: Entry) -> dict[str, str]:
    """What the slots of an op's formulas are filled with: its inputs and settings."""
    known = entry.settings | entry.numbers
    values = {name: number(x) for name, x in known.items() if x is not None}
    for edge in entry.takes:
        source = record.entries[edge.source]
        values[edge.input] = source.number or source.symbol
        if source.copy_of is not None:
            values[edge.input] = rf"\mathrm{{detach}}({record.entries[source.copy_of].symbol})"
    op = registry[entry.op]
    if op.variadic:
        values[op.inputs[0]] = ", ".join(values[name] for name in entry.inputs)
    return values


def _written(template: str, values: dict[str, str]) -> tuple[str, list[str]]:
    """A formula with values in its slots, and the signs that are defined behind it."""
    body, *signs = (fill(part, values) for part in re.split(r",?\s*\\quad\s*", template))
    return body, [sign for sign in signs if len({*map(str.strip, sign.split("=", 1))}) > 1]


def fill(template: str, values: dict[str, str]) -> str:
    r"""A formula with values in the place of its slots; a slot without one is its name.

    Brackets surround what would be misread without them.

    >>> fill(r"<g> <b>^\top", {"g": "G", "b": "K^{(1)}"})
    'G {K^{(1)}}^\\top'
    >>> fill(r"<g> \odot <x>^{\circ 2}", {"g": "G", "x": "-2"})
    'G \\odot \\left(-2\\right)^{\\circ 2}'
    """
    parts = re.split(r"<(\w+)>", template)
    out = parts[0]
    for name, after in zip(parts[1::2], parts[2::2], strict=True):
        value = values.get(name, _word(name))
        if after.startswith(r"^\top") and value.endswith(r"^\top"):  # the transpose of a transpose
            value, after = value.removesuffix(r"^\top"), after.removeprefix(r"^\top")
            value = value[1:-1] if value[:1] == "{" else value
        elif after[:1] in ("^", "_", "["):
            value = _before_script(value, after[0])
        elif _is_sum(value) and not _is_end(out, after):
            value = rf"\left({value}\right)"
        if value[:1].isalpha() and re.search(r"\\[A-Za-z]+$", out):
            out += " "
        out += value + after
    return out.replace(r"\operatorname", r"\mathrm")  # which GitHub takes


def _is_end(before: str, after: str) -> bool:
    """Whether what stands between is a whole side, argument or exponent."""
    return bool(
        re.search(r"(^|[(\[{,=]|\\left\()\s*$", before)
        and re.match(r"\s*($|[)\]},=]|\\right)", after)
    )


def _is_sum(value: str) -> bool:
    """Whether a value has a sign outside of all brackets."""
    bare, changes = value, 1
    while changes:
        bare, changes = re.subn(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]", "", bare)
    return bool(re.search(r"[-+=]|\\[lg][et]\b", bare))


def _before_script(value: str, sign: str) -> str:
    """A value that a script or an index follows."""
    if _is_sum(value) or (sign == "^" and r"\frac" in value[:6]):
        return rf"\left({value}\right)"
    scripts = "^" in value if sign == "^" else "^" in value or "_" in value
    return f"{{{value}}}" if scripts and sign != "[" else value


def _repeated(record: Record, edge: Edge, rule: str) -> str:
    """Σ over the axes that an input was repeated along, which its gradient is added up over."""
    shape, own = record.entries[edge.target].shape, record.entries[edge.source].shape
    letters = AXES.get(len(shape), "")
    sent = rule.partition(r", \quad")[0]
    is_product = r"^\top" in sent  # of matrices, in stacks
    if not ("<g>" in sent or is_product) or any(sign in sent for sign in RESHAPING):
        return ""  # the rule says what shape it gives
    if is_product:
        shape, own = shape[:-2], own[:-2]
        letters = letters[:-2]
    over = [letters[axis] for axis in broadcast_axes(own, shape) or () if letters]
    return rf"\sum_{{{','.join(over)}}} " if over else ""


# ---------------------------------------------------------------- numbers


def number(value: Any) -> str:
    r"""A setting as a person writes it: 1/√8 stays a root.

    >>> [number(x) for x in (2.0, 8**-0.5, 1e-05, -0.125, 0.123456789, 1 / 3, (0, slice(1, None)))]
    ['2', '\\tfrac{1}{\\sqrt{8}}', '10^{-5}', '-0.125', '0.123457\\ldots', '\\tfrac{1}{3}', '0,
    1{:}']
    """
    if isinstance(value, tuple | list):
        return ", ".join(map(number, value))
    if isinstance(value, slice):
        ends = [value.start, value.stop]
        if value.step is not None:
            ends.append(value.step)
        return "{:}".join("" if end is None else number(end) for end in ends)
    if value is Ellipsis:
        return r"\ldots"
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return rf"\text{{{_escaped(value if isinstance(value, str) else show(value))}}}"
    x = float(value)
    if x != x:
        return r"\mathrm{nan}"
    return f"-{_positive(-x)}" if x < 0 else _positive(x)


def _positive(x: float) -> str:
    if x == np.inf:
        return r"\infty"
    if x == int(x) and x < 1e6:
        return str(int(x))
    if 1e-5 < x < 1 and len(repr(x)) > 7:
        for below, power in (("{}", 1), (r"\sqrt{{{}}}", 2)):
            n = round(x**-power)
            if 1 < n < 1e5 and abs(x - n ** (-1 / power)) < 4e-16:
                return rf"\tfrac{{1}}{{{below.format(n)}}}"
    digits, _, power_of_ten = f"{x:.6g}".partition("e")
    if float(f"{x:.6g}") != x:
        digits += r"\ldots"
    if not power_of_ten:
        return digits
    ten = f"10^{{{int(power_of_ten)}}}"
    return ten if digits == "1" else rf"{digits} \cdot {ten}"
