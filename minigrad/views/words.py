"""The words and digits of every view: shapes, sizes, states, verdicts, sentences on the whole.

A view says what was measured in one run. So that no two views say it otherwise, it is said here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isfinite
from typing import NamedTuple

from ..record.record import Array, Checks, Edge, Entry, Record, ThroughTime, Way

__all__ = [
    "STATES", "VERDICT_SIGNS", "Verdict", "costs_of", "counted", "digits", "gain_of", "gradient",
    "gradient_size", "headline", "is_broken", "label", "lasted", "marks", "of_bytes", "one_line",
    "plural", "ranged", "remark", "sent_by", "shaped", "sized", "sizes_sent", "sum_of",
    "summary", "value", "verdicts",
]  # fmt: skip

VERDICT_SIGNS = {True: "✓", False: "✗", None: "–"}  # agrees, differs, not measured

STATES = {  # of a gradient, the worst last: the sign beside its size, and what that means
    "none": ("–", "no gradient"),
    "zero in theory": ("0", "zero in theory"),
    "ok": ("", "gradient"),
    "zero": ("0", "exactly zero"),
    "exploding": ("↑", "explodes: over 10,000 times the loss's"),
    "vanishing": ("↓", "vanishes: under 1/10,000 of the loss's"),
    "not finite": ("‼", "NaN or infinite"),
    "wrong": ("✗", "its rule is wrong"),
}
NEARLY_SAME = (0.9, 1.1)  # gains that are not worth a mention


# ---------------------------------------------------------------- names and numbers


def one_line(text: str, limit: int | None = None) -> str:
    r"""A name as one harmless line: control and direction-changing characters are spelled out.

    >>> one_line("a\nb\u202ec")
    'a\\nb\\u202ec'
    >>> one_line("a very long name indeed", limit=12)
    'a very long…'
    """
    if not text.isprintable():
        escape = "unicode_escape"
        text = "".join(c if c.isprintable() else c.encode(escape).decode() for c in text)
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def plural(number: int, what: str) -> str:
    """A count and its noun.

    >>> plural(1, "step"), plural(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def shaped(shape: Iterable[int]) -> str:
    """A shape as people write it.

    >>> shaped((2, 7, 11)), shaped(())
    ('2×7×11', 'scalar')
    """
    return "×".join(map(str, shape)) or "scalar"


def sized(number: float | None) -> str:
    """A size, such as an rms or a gain, to two digits.

    >>> [sized(x) for x in (0.0, 0.0012, 3.0, 12345.0, 2e-9, float("nan"), None)]
    ['0', '0.0012', '3.0', '1.2e+4', '2.0e-9', 'nan', '']
    """
    if number is None:
        return ""
    if number == 0 or not isfinite(number):
        return f"{number:.0f}"
    if not 1e-3 <= abs(number) < 1e3:
        return _short_power(f"{number:.1e}")
    return f"{number:.0f}" if abs(number) >= 99.5 else f"{number:#.2g}".rstrip(".")


def digits(number: float, places: int = 4) -> str:
    """A value to four digits: a loss in every view.

    >>> digits(-11.880637), digits(2.0), digits(1.5e-9)
    ('-11.88', '2', '1.5e-9')
    """
    return _short_power(f"{number + 0.0:.{places}g}")  # no -0


def _short_power(text: str) -> str:
    return re.sub(r"e([-+])0*(\d)", r"e\1\2", text)


def counted(number: int, blank: str = "", unit: str = "") -> str:
    """A count to three digits, in powers of 1000.

    >>> [counted(n) for n in (0, 999, 1500, 123_456_789)]
    ['0', '999', '1.5k', '123M']
    """
    value = float(number)
    power = 0
    while value >= 999.5 and power < 5:
        value /= 1000
        power += 1
    return f"{value:.3g}{blank}{' kMGTP'[power].strip()}{unit}"


def of_bytes(number: int) -> str:
    """A number of bytes.

    >>> of_bytes(0), of_bytes(2688)
    ('0 B', '2.69 kB')
    """
    return counted(number, " ", "B")


def lasted(seconds: float) -> str:
    """A time.

    >>> lasted(1.5e-5), lasted(0.0123)
    ('15 µs', '12 ms')
    """
    return f"{sized(1e3 * seconds)} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.0f} µs"


def ranged(sizes: Iterable[float]) -> str:
    """Sizes as one number, or from the least to the largest.

    >>> ranged([0.5, 0.5]), ranged([inf, 0.5]), ranged([])
    ('0.50', '0.50 to inf', '')
    """
    texts = [*map(sized, sorted(sizes, key=lambda size: size if isfinite(size) else inf))]
    return " to ".join(dict.fromkeys((*texts[:1], *texts[-1:])))


# ---------------------------------------------------------------- one entry, one use


def label(entry: Entry) -> str:
    return one_line(entry.label, 40)


def value(entry: Entry) -> str:
    """The value of one number, with its sign; nothing of other arrays.

    >>> import numpy as np
    >>> value(Entry(0, "leaf", value=np.array([-2.71828]))), value(Entry(0, "leaf"))
    ('-2.718', '')
    """
    array = entry.value
    if array is None or array.size != 1 or array.dtype.kind not in "fiub":
        return ""
    return digits(array.item())


def gradient(entry: Entry) -> str:
    """The size of a gradient, or why there is none to tell: the same words in every view.

    The size is the rms; of one number it is that number, with its sign.
    """
    if entry.state in ("zero", "not finite"):
        return entry.state
    if entry.state == "zero in theory":
        return "0 in theory"
    if entry.gradient_rms is None:
        return one_line(entry.why, 60)
    return _amount(entry.gradient, entry.gradient_rms)


def gradient_size(entry: Entry) -> float | None:
    """The rms of a gradient; None where there is none, or only rounding."""
    return None if entry.state == "zero in theory" else entry.gradient_rms


def is_broken(entry: Entry) -> bool:
    """Whether an op made NaN or infinity."""
    return bool(entry.op and entry.value_facts and not entry.value_facts.finite)


def sizes_sent(edges: Iterable[Edge]) -> list[float]:
    """The sizes of what uses sent back, of those that sent something."""
    return [edge.facts.rms for edge in edges if edge.facts is not None]


def sent_by(edges: Iterable[Edge]) -> str:
    """The sizes of what uses sent back, in words."""
    sizes = sizes_sent(edges)
    sent = [edge for edge in edges if edge.facts is not None]
    return _amount(sent[0].contribution, sizes[0]) if len(sent) == 1 else ranged(sizes)


def _amount(array: Array | None, rms: float) -> str:
    return sized(rms if array is None or array.size != 1 else array.item())


def remark(entry: Entry) -> str:
    """What there is to say of a gradient beside its size."""
    if entry.state in ("vanishing", "exploding"):
        return " ".join(STATES[entry.state])
    return entry.why if entry.state == "zero in theory" else ""


def gain_of(edges: Iterable[Edge]) -> str:
    """How uses on the way of the loss change the gradient, where that is worth a mention."""
    least, most = NEARLY_SAME
    gains = (edge.gain for edge in edges if edge.on_way)
    sizes = ranged(gain for gain in gains if gain is not None and not least < gain < most)
    return f"×{sizes}" if sizes else ""


def sum_of(record: Record, entry: Entry) -> str:
    """What Σ stands for, where gradients of several uses add."""
    agreement = entry.agreement
    if agreement is None:
        return ""
    return f"Σ of {len(sizes_sent(entry.uses))}, agreement {sized(agreement)}"


def marks(entry: Entry) -> str:
    """✓ where all that was measured of an entry agrees, ✗ with the size where it does not."""
    wrong = [check for check in entry.checks if check.ok is False]
    if wrong:
        return f"✗ for {one_line(wrong[0].symbol)}: {sized(wrong[0].difference)} off"
    return "✓" if entry.ok else ""


# ---------------------------------------------------------------- the whole


class Verdict(NamedTuple):
    """A sentence, and whether what was measured agrees; None where nothing was."""

    sentence: str
    ok: bool | None

    @property
    def signed(self) -> str:
        return f"{VERDICT_SIGNS[self.ok]} {self.sentence}"


STANDARDS = {
    "by hand": ("gradient", "equal{}", "the hand-derived steps"),
    "by derivative": ("backward step", "agree{} with", "numeric derivatives"),
}


def verdicts(checks: Checks) -> list[Verdict]:
    """All that was measured, what is wrong first; and what was not measured, counted."""
    every = [_verdict(checks, kind) for kind in STANDARDS]
    if checks.first_broken:
        every.append(Verdict(f"NaN or infinity: {one_line(checks.first_broken, 120)}", False))
    return sorted(
        (verdict for verdict in every if verdict.sentence), key=lambda v: v.ok is not False
    )


def _verdict(checks: Checks, kind: str) -> Verdict:
    what, verb, standard = STANDARDS[kind]
    measured = [check for check in checks.of(kind) if check.ok is not None]
    wrong = [check for check in measured if not check.ok]
    many = len(wrong or measured)
    s = "s" if many == 1 else ""
    rest = _left_over(checks, kind)
    if not measured:
        return Verdict("; ".join(rest), None)
    most = max(check.difference for check in measured)
    sentence = f"{plural(many, what)} {verb.format(s)} {standard}, to {sized(most)}"
    if wrong:
        first = wrong[0]
        where = f"step {first.number} of {first.scope}" if first.number else first.scope
        sentence = (
            f"{plural(many, what)} of {len(measured)} differ{s} from {standard}; "
            f"first at {one_line(where, 60)}, ∂L/∂{one_line(first.symbol)}, "
            f"{sized(first.difference)} off"
        )
    return Verdict("; ".join([sentence, *rest]), not wrong)


def _left_over(checks: Checks, kind: str) -> Iterator[str]:
    """What was not measured, counted, and why."""
    results = checks.of(kind)
    for reason, count in Counter(check.why for check in results if check.ok is None).items():
        yield f"{count} not checked: {one_line(reason, 80)}"
    if kind == "by derivative":
        rest = checks.steps - len(results)
        if rest > 0:
            asked = "" if results else " numerically: t.check(ops=True) does"
            yield f"{rest} backward steps not checked{asked}"
        return
    if checks.skipped:
        yield f"no backward ran through {one_line(', '.join(checks.skipped), 80)}"
    calls = Counter(checks.uncovered).items()
    if calls:
        each = ", ".join(f"{call} ({n} times)" if n > 1 else call for call, n in calls)
        yield f"no derived steps cover {one_line(each, 120)}"


def headline(record: Record) -> str:
    """The main sentence: the loss, and what becomes of its gradient on the way that matters."""
    return " · ".join(_facts(record))


def _facts(record: Record) -> Iterator[str]:
    entries = record.entries
    way = record.way
    if record.loss is not None and (loss := value(entries[record.loss])):
        yield f"{label(entries[record.loss])} = {loss}"
    if not record.backward:
        yield "backward has not run"
        return
    broken = [entry for entry in entries if entry.state == "not finite"]
    dead = [_path(entry) for entry in entries if entry.learns and entry.state == "zero"]
    if broken:
        first = max(broken, key=lambda entry: (bool(entry.op), entry.id))  # that backward comes to
        yield f"the gradient is NaN or infinite from {_path(first)} on"
    if dead:
        more = f" and {len(dead) - 1} more" if len(dead) > 1 else ""
        yield f"the gradient is exactly 0 at {dead[0]}{more}"
    if (change := next(iter(record.in_time), None)) and not 0.1 < change.change < 10:
        yield _in_time(change)
    elif way is not None and 0 < way.whole < inf:
        far = [entry for entry in entries if entry.state in ("vanishing", "exploding")]
        if not 0.1 < way.whole < 10:
            yield _on_the_way(way)
        elif far:
            verb = "vanishes" if far[-1].state == "vanishing" else "explodes"
            yield f"the gradient {verb} at {_path(far[-1])}: {gradient(far[-1])}"
        elif not broken and not dead:
            size = sized(way.whole)
            end = _path(way.last)
            yield f"the gradient keeps its size: ×{size} where it changes most, to {end}"


def _path(of: Entry | ThroughTime) -> str:
    return one_line(of.path, 60)


def _on_the_way(way: Way) -> str:
    """By how much the gradient changes, which is the quotient of the two sizes beside it."""
    first, last = way.first, way.last
    steps = f", its {way.times} steps together" if way.times > 1 else ""
    sizes = f"from {sized(first.gradient_rms)} at {label(first)} to {sized(last.gradient_rms)}"
    return f"{_changes(way.whole)} on the way to {_path(last)}, {sizes}, most in {way.op}{steps}"


def _in_time(change: ThroughTime) -> str:
    verb = _changes(change.change)
    if not 1e-4 <= change.change <= 1e4:
        verb = "the gradient vanishes" if change.change < 1 else "the gradient explodes"
    ends = f"{sized(change.last)} at step {change.steps}, {sized(change.first)} at step 1"
    return f"{verb} through time: {ends}, at {_path(change)}"


def _changes(whole: float) -> str:
    verb, times = ("grows", whole) if whole > 1 else ("shrinks", 1 / whole)
    number = f"{float(f'{times:.2g}'):,.0f}" if times < 1e6 else sized(times)
    return f"the gradient {verb} {number} times"


def summary(record: Record) -> str:
    """What was computed and what it cost."""
    costs = costs_of(record, record.ops)
    if flops := sum(op.flops or 0 for op in record.ops):
        costs.append(f"{counted(flops)} FLOPs")
    return " · ".join([*costs, *record.notes])


def costs_of(record: Record, ops: Sequence[Entry]) -> list[str]:
    """How many ops, their parameters, and the bytes that they save for backward."""
    costs = [plural(len(ops), "op")]
    taken = {edge.source for op in ops for edge in op.takes}
    inputs = [record.entries[number] for number in taken]
    held = sum(entry.size for entry in inputs if entry.kind == "parameter")
    if held:
        costs.append(plural(held, "parameter"))
    saved = sum(op.saved_bytes for op in ops)
    if saved:
        costs.append(f"{of_bytes(saved)} saved")
    return costs
