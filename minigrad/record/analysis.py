"""What the numbers of a record mean: states of gradients, the way of the loss, zeros in theory,
attention; and the checks: gradients beside steps derived by hand, rules beside numeric derivatives.

Sizes are norms. An op changes the gradient that reaches it by a gain: the norm of what it sends to
an input over the norm of what came. The product of the gains along a path is its reach. Three edges
have gain 1: where the gradient of a scalar is spread (a mean over n entries gives each 1/n, which
shrinks nothing), where entries were picked, and where it reaches a parameter (whose shape says how
many terms are summed).

A gradient that is zero in theory consists of rounding, and does not vanish. To find such gradients
a value is moved, and the ops that it reaches are run again. If every path
ends at an op whose result does not move, the gradient is zero because of those ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from math import isfinite
from typing import Any

import numpy as np

from ..check import VAGUE, check_rules, compare, kernel_of
from ..engine.errors import ShapeError
from ..engine.op import EXPLAINED, call_by_name, registry
from .data import (
    Array,
    AttentionWeights,
    Check,
    Checks,
    Edge,
    Entry,
    Expectation,
    RecordData,
    Way,
    rms,
)
from .fold import is_within

__all__ = ["add_checks", "analyze", "attentions", "by_derivative", "saturation"]

EXTREME = 1e4  # a gradient so much smaller than the loss's vanishes, a larger one explodes
FIRST_LAYERS = 0.75  # of the longest way to the loss: from there on are the first layers
STILL = 1e3  # rounding units: a result that moves by no more does not move
MOST_RERUNS = 64  # ops that are run again for one value
MOST_SHARE = 0.9  # of |∂L/∂S|, from which on the loss depends on one query
MASKED_SCORE = -1e8  # a score at or below it was masked
FOUND = "ok", "difference", "tolerance", "measured", "expected", "index"  # of a comparison
ENTRIES_PER_UNIT = 16  # with fewer, a unit that is 0 in all of them may be so by chance


def analyze(record: RecordData) -> None:
    """Set what the record says of its entries, and of the whole."""
    ends = [record.entries[i] for i in record.roots]
    named = len(ends) == 1 and ends[0].size == 1 and ends[0].name in ("", "loss", "L")
    record.loss = ends[0].id if named else None
    for entry in reversed(record.entries):  # what was used comes last
        entry.checks, entry.note = [], ""
        _measure_reach(record, entry)
        if entry.gradient is None:
            entry.state, entry.why = "none", _why_none(record, entry)
            continue
        entry.state, entry.why = _state(entry), _why_zero(record, entry)
        if entry.why:
            entry.state = "zero in theory"
    record.zeros = [e.id for e in record.entries if e.state == "zero in theory" and not e.op]
    record.way = _way(record)
    for edge in record.edges:
        edge.on_way = record.way is not None and edge in record.way.edges
    record.checks = by_hand(record)
    add_checks(record, [])
    for entry in (record.entries[i] for i in record.forward):
        entry.note = _saturation_note(entry)
    record.asked = _asked(record)
    record.checks.first_broken = _first_broken(record)
    record.notes = [*_notes(record)]


def add_checks(record: RecordData, more: Iterable[Check]) -> None:
    """Add checks to those of the record, and all of them to their entries."""
    record.checks.results += more
    for entry in record.entries:
        entry.checks = []
    for check in record.checks.results:
        if check.entry is not None:
            entry = record.entries[check.entry]
            entry.checks = [*entry.checks, check]
            if check.ok is False and entry.gradient is not None:
                entry.state = "wrong"


def _why_none(record: RecordData, entry: Entry) -> str:
    if not entry.needs:
        return entry.why
    if entry.id in record.earlier:
        return "only in an earlier backward"
    if any(edge.contribution is not None for edge in record.uses(entry)):
        return "backward ended here"
    return "backward did not reach it" if record.backwards else "no backward ran"


def _state(entry: Entry) -> str:
    """By its reach; near the ends of the dtype's range, by its size itself."""
    facts = entry.gradient_facts
    if facts is None or not facts.finite:
        return "not finite"
    if facts.rms == 0:
        return "zero"
    ends = np.finfo(entry.dtype if entry.dtype.startswith("float") else float)
    reach = 1.0 if entry.reach is None else entry.reach
    if reach < 1 / EXTREME or facts.rms < EXTREME * float(ends.tiny):
        return "vanishing"
    return "exploding" if reach > EXTREME or facts.rms > float(ends.max) / EXTREME else "ok"


def _notes(record: RecordData) -> Iterator[str]:
    """What every view says first."""
    names = [record.entries[i].path for i in record.more_in_grad]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    held = f".grad of {', '.join(names[:3])}{more} holds more" if names else ""
    if record.backwards > 1:
        said = f"{record.backwards} backwards ran, and the gradients are those of the last"
        yield f"{said}; {held}" if held else said
    elif held:
        yield f"{held}: what stood there before"
    if record.checks.first_broken:
        yield f"not finite: {record.checks.first_broken}"


def _first_broken(record: RecordData) -> str:
    """The op that first made NaN or infinity, forward or else backward."""
    for entry in (record.entries[i] for i in record.forward):
        facts = entry.value_facts
        if facts is not None and not facts.finite:
            return f"{entry.op} made it first, at {entry.path}"
    for entry in (record.entries[i] for i in record.backward):
        if any(
            edge.facts is not None and not isfinite(edge.facts.rms) for edge in record.into(entry)
        ):
            return f"the backward of {entry.op} made it first, at {entry.path}"
    return ""


# ---------------------------------------------------------------- reach, and the way of the loss


def _measure_reach(record: RecordData, entry: Entry) -> None:
    """Set the gain of each of its uses, and its own reach and the use that sent most."""
    entry.reach = entry.via = None
    ways: list[tuple[Edge, float]] = []
    for edge in record.uses(entry):
        if edge.contribution is entry.gradient:
            edge._facts = entry.gradient_facts
        edge.gain = None if edge.contribution is None else _gain(record, edge)
        before = record.entries[edge.target].reach
        if edge.gain is not None and before is not None and isfinite(found := before * edge.gain):
            ways.append((edge, found))
    if entry.gradient is None:
        return
    if not ways:
        entry.reach = 1.0
        return
    entry.via, reach = max(ways, key=lambda way: way[0].norm)
    entry.reach = reach * (entry.norm / entry.via.norm if entry.via.norm else 0.0)


def _gain(record: RecordData, edge: Edge) -> float:
    source, target = record.entries[edge.source], record.entries[edge.target]
    spread = target.size == 1 < source.size
    picked = target.op in ("getitem", "take", "split") and source.op != ""
    if spread or picked or (not source.op and source.shape != target.shape):
        return 1.0
    came = target.norm
    return edge.norm / came if came else 0.0


def _way(record: RecordData) -> Way | None:
    """The way on which the gradient shrinks most, or grows most if that is more.

    It ends at an input or a parameter that the first layers use: one that the loss is reached from
    by at least three quarters as many steps as from any other.
    """
    steps: dict[int, int] = {}
    for entry in reversed(record.entries):
        behind = [
            steps[edge.target] for edge in record.uses(entry) if edge.contribution is not None
        ]
        steps[entry.id] = 1 + max(behind, default=0)
    reached = [e for e in record.entries if e.reach and e.via is not None]
    leaves = [e for e in reached if not e.op] or reached
    leaves = [e for e in leaves if e.state != "zero in theory"]
    farthest = max((steps[e.id] for e in leaves), default=0)
    leaves = [e for e in leaves if steps[e.id] >= FIRST_LAYERS * farthest]
    if not leaves:
        return None
    extremes = [pick(leaves, key=lambda e: e.reach or 0.0) for pick in (min, max)]
    return _way_to(record, max(extremes, key=lambda e: max(e.reach or 0.0, 1 / (e.reach or 1.0))))


def _way_to(record: RecordData, end: Entry) -> Way:
    edges: list[Edge] = []
    by_op: dict[str, float] = {}
    times: dict[str, int] = {}
    one = end
    while one.via is not None:
        target = record.entries[one.via.target]
        parts = [(target.op, one.via.gain or 0.0)]
        if record.sums(one) and one.via.norm:
            parts.append(("sums", one.norm / one.via.norm))
        for op, factor in parts:
            by_op[op] = by_op.get(op, 1.0) * factor
            times[op] = times.get(op, 0) + 1
        edges.append(one.via)
        one = target
    edges.reverse()
    whole = end.reach or 0.0
    op = (min if whole < 1 else max)(by_op, key=by_op.__getitem__)
    ids = (*(edge.target for edge in edges), end.id)
    return Way(ids, tuple(edges), whole, op, times[op])


# ---------------------------------------------------------------- zero in theory


def _why_zero(record: RecordData, entry: Entry) -> str:
    """Why a gradient that is no larger than rounding is zero in theory; empty if it is not."""
    uses = [
        record.entries[edge.target] for edge in record.uses(entry) if edge.contribution is not None
    ]
    if not uses or entry.id in record.roots:
        return ""
    if all(use.state == "zero in theory" for use in uses):
        return uses[0].why
    if entry.op and entry.state != "vanishing":
        return ""
    g, came = entry.gradient, max(use.gradient_rms or 0.0 for use in uses)
    if (
        g is None
        or g.dtype.kind != "f"
        or (entry.gradient_rms or 0.0) > STILL * 10 * np.finfo(g.dtype).eps * came
    ):
        return ""
    return _why_unseen(record, entry)


def _why_unseen(record: RecordData, leaf: Entry) -> str:
    """The ops whose results do not move with it, in words; empty if it is seen, or unknown."""
    rng = np.random.default_rng(leaf.id)

    def drawn(shape: tuple[int, ...]) -> Array:
        return (rng.random(shape, np.float32) + np.float32(0.5)).astype(leaf.dtype, copy=False)

    moves = {leaf.id: drawn(leaf.shape)}
    still: list[str] = []
    waiting, seen = [leaf.id], {leaf.id}
    while waiting:
        one = record.entries[min(waiting)]  # all that it was computed from has a smaller number
        waiting.remove(one.id)
        if one.id != leaf.id:
            others = {i: drawn(m.shape) * m.dtype.type(rms(m)) for i, m in moves.items()}
            move, usual = _move(record, one, moves), _move(record, one, others)
            if move is None or usual is None or not rms(usual) or len(moves) > MOST_RERUNS:
                return ""
            if rms(move) <= STILL * np.finfo(one.dtype).eps * rms(usual):
                still.append(one.op)
                continue
            moves[one.id] = move
        ahead = {edge.target for edge in record.uses(one)} - seen
        ahead = {i for i in ahead if record.entries[i].gradient is not None}
        if not ahead and one.id in record.roots:
            return ""
        waiting, seen = [*waiting, *ahead], seen | ahead
    return ", ".join(f"{op} does not see it" for op in dict.fromkeys(still))


def _move(record: RecordData, entry: Entry, moves: dict[int, Array]) -> Array | None:
    """By how much an op's result moves with its inputs; None if its kernel refuses them."""
    op, inputs = registry[entry.op], arguments(record, entry)
    by = {e.input: moves[e.source] for e in record.into(entry) if e.source in moves}
    moved = [x + by[name] if name in by else x for name, x in inputs.items()]
    if entry.value is None or np.dtype(entry.dtype).itemsize < 4 or not op.analytic:
        return None  # a kink may lie beside it
    try:
        with np.errstate(all="ignore"):
            return np.nan_to_num(kernel_of(op, [*entry.settings.values()])(moved) - entry.value)
    except EXPLAINED:
        return None


# ---------------------------------------------------------------- checks, by hand


def by_hand(record: RecordData) -> Checks:
    """Hold the calls of layers that a backward ran through against the steps that they named."""
    found = Checks(steps=len(record.backward))
    for call, expected in enumerate(record.expectations):
        out = expected.symbols.get("out")
        ran = out is not None and record.entries[out].gradient is not None
        if isinstance(expected.steps, str):
            found.uncovered += [expected.steps] * ran
        elif ran:
            found.results += _compared(record, expected, call)
        else:
            found.skipped.append(expected.scope or "a layer")
    return found


def _compared(record: RecordData, call: Expectation, number: int) -> Iterator[Check]:
    """Steps beside what the run has for each symbol.

    A difference is relative to the largest entry; where that is rounding, to the step's largest
    gradient; where all of these are exactly zero, to the largest of all steps.
    """
    assert not isinstance(call.steps, str)
    known = {**call.plain, "grad_output": record.entries[call.symbols["out"]].gradient}
    given = {name: known[name] for name in signature(call.steps).parameters if name in known}
    steps = [*call.steps(**given)]
    sizes = [
        max((float(np.abs(g).max(initial=0.0)) for g in s.gradients.values()), default=0.0)
        for s in steps
    ]
    for step, size in zip(steps, sizes, strict=True):
        for symbol, formula in step.gradients.items():
            measured, facts = _within(record, call, symbol), dict[str, Any]()
            if measured is None:
                facts = {"ok": None, "why": "the run has no such gradient"}
            else:
                gap = compare(measured, formula, size or max(sizes))
                facts = {name: getattr(gap, name) for name in FOUND}
                if gap.tolerance >= VAGUE:
                    facts = {"ok": None, "why": "in a dtype too coarse to tell"}
            yield Check(
                "by hand",
                call.symbols.get(symbol),
                **facts,
                symbol=symbol,
                scope=call.scope,
                path=f"{call.scope}/{symbol}" if call.scope else symbol,
                call=number,
                number=step.number,
                title=step.title,
                forward=step.forward,
                formula=step.formulas[symbol],
                shape=formula.shape,
                rms=rms(formula),
                symbols=call.symbols,
            )


def _within(record: RecordData, call: Expectation, symbol: str) -> Array | None:
    """The gradient that one call of a layer sends to an entry: what its own uses contribute."""
    total, known = None, call.symbols.get(symbol)
    for edge in record.uses(known) if known is not None else ():
        inside = call.first <= edge.target < call.last
        scope = record.entries[edge.target].scope
        if inside and edge.contribution is not None and is_within(scope, call.scope):
            total = edge.contribution if total is None else total + edge.contribution
    return total


# ---------------------------------------------------------------- checks, by derivative


def by_derivative(record: RecordData) -> list[Check]:
    """Hold each backward step of the record against a numeric derivative of its op's kernel.

    A direction depends on the number of the step alone, so one program has one record.
    """
    return [_checked(record, record.entries[i]) for i in record.backward]


def _checked(record: RecordData, entry: Entry) -> Check:
    inputs, g = arguments(record, entry), entry.gradient
    names = [*inputs]
    parts = {edge.input: edge.contribution for edge in record.into(entry)}
    sent = {i: c for i, name in enumerate(names) if (c := parts.get(name)) is not None}
    facts: dict[str, Any] = {"scope": entry.scope, "path": entry.path, "op": entry.op}
    facts["why"] = "" if sent else "its rules sent nothing"
    if g is not None and sent:
        settings = [*entry.settings.values()]
        found = check_rules(registry[entry.op], [*inputs.values()], settings, g, sent, entry.id)
        facts |= {"why": found.why, "symbol": found.where, "method": found.method}
        if not found.why:
            facts |= {name: getattr(found, name) for name in FOUND}
    return Check("by derivative", entry.id, **facts)


def arguments(record: RecordData, entry: Entry) -> dict[str, Any]:
    """The inputs of an op as they were when it ran, by name and in their order."""
    op = registry[entry.op]
    inputs = {edge.input: record.entries[edge.source].value for edge in record.into(entry)}
    inputs |= entry.numbers
    for name in op.settings:
        inputs.pop(name, None)
    return {name: inputs[name] for name in map(op.input_name, range(len(inputs)))}


# ---------------------------------------------------------------- saturation, attention


def saturation(op_name: str, out: Array, settings: dict[str, Any]) -> tuple[int, int, str] | None:
    """How many units, entries or rows of how many are saturated, as the op declares, and what."""
    op = registry[op_name]
    if op.saturates is None or not out.size:
        return None
    words, function = op.saturates
    where = np.asarray(call_by_name(function, {**settings, "out": out}))
    if words.startswith("units") and out.size < ENTRIES_PER_UNIT * where.size:
        return None
    return int(np.count_nonzero(where)), where.size, words


def _saturation_note(entry: Entry) -> str:
    found = None if entry.value is None else saturation(entry.op, entry.value, entry.settings)
    return f"{found[0]:,} of {found[1]:,} {found[2]}" if found and found[0] else ""


def attentions(record: RecordData, tokens: Any = None) -> list[AttentionWeights]:
    """The weights named A, with their gradient, their mask, and names of the positions.

    Args: tokens: a name for each position; or two lists, of the queries' and of the keys'
    positions.
    Raises: ShapeError if a list is not as long as the axis that it names.
    """
    weights = [e for e in record.entries if e.name == "A" and e.op and _sums_to_1(_made(record, e))]
    return [_attention(record, entry, tokens) for entry in weights]


def _made(record: RecordData, entry: Entry) -> Entry:
    """What made weights, before another value was put among them."""
    sources = (record.entries[edge.source] for edge in record.into(entry))
    other = next((one for one in sources if one.op), None) if entry.op == "where" else None
    return entry if other is None else _made(record, other)


def _sums_to_1(entry: Entry) -> bool:
    """Whether rows sum to 1, or to 0 where all is masked; NaN is no objection."""
    if entry.value is None or len(entry.shape) < 2 or not entry.size:
        return False
    sums = np.asarray(entry.value, np.float64).sum(-1)
    return not ((abs(sums - 1) > 1e-2) & (abs(sums) > 1e-2)).any()


def _attention(record: RecordData, entry: Entry, tokens: Any) -> AttentionWeights:
    scores = record.entries[record.into(_made(record, entry))[0].source]
    masked = np.zeros(entry.shape, bool)
    if scores.value is not None and scores.shape == entry.shape:
        masked = scores.value <= MASKED_SCORE
    merged = any(e.name == "C" and e.scope == entry.scope for e in record.entries[entry.id :])
    batch_first = len(entry.shape) == 3 and not merged  # (batch, n, m), not (heads, n, m)

    def lifted(array: Array) -> Array:
        array = array[:, None] if batch_first else array
        return array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array

    assert entry.value is not None
    dA = None if entry.gradient is None else lifted(entry.gradient)
    names = _names(tokens, entry)
    return AttentionWeights(
        entry.id, scores.id, entry.path, lifted(entry.value), dA, lifted(masked), *names
    )


def _names(tokens: Any, entry: Entry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of queries and keys: those given, or numbers."""
    sizes = entry.shape[-2:]
    if tokens is None:
        tokens = [range(size) for size in sizes]
    pair = len(tokens) == 2 and not any(map(np.isscalar, tokens))  # names may be numbers
    found: Sequence[Any] = list(tokens) if pair else [tokens, tokens]
    for what, names, size in zip(("queries", "keys"), found, sizes, strict=True):
        if len(names) != size:
            raise ShapeError(
                f"attention(tokens): {entry.path} has {size} {what}, got {len(names)} tokens"
            )
    return tuple(map(str, found[0])), tuple(map(str, found[1]))


def _asked(record: RecordData) -> int | None:
    """The query through whose scores nearly all of the loss's gradient passes."""
    shares = []
    for one in attentions(record):
        gradient = record.entries[one.scores].gradient
        if gradient is not None:
            by_query = np.abs(gradient).sum(axis=-1).reshape(-1, gradient.shape[-2]).sum(axis=0)
            shares.append(by_query / (by_query.sum() or 1.0))
    if not shares or len({len(share) for share in shares}) > 1:
        return None
    total = np.sum(shares, axis=0)
    most = int(np.argmax(total))
    return most if len(total) > 1 and total[most] >= MOST_SHARE * total.sum() > 0 else None
