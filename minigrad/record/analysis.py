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

from collections.abc import Iterable, Iterator
from dataclasses import replace
from inspect import signature
from math import isfinite, prod
from typing import Any

import numpy as np

from ..check import VAGUE, Comparison, check_rules, compare, kernel_of
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
from .heads import are_weights, position_names

__all__ = ["add_checks", "analyze", "attentions", "by_derivative", "saturation"]

EXTREME = 1e4  # a gradient so much smaller than the loss's vanishes, a larger one explodes
FIRST_LAYERS = 0.75  # of the longest way to the loss: from there on are the first layers
STILL = 1e3  # rounding units: a result that moves by no more does not move
MOST_RERUNS = 64  # ops that are run again for one value
MOST_SHARE = 0.9  # of |∂L/∂A|, from which on the loss depends on one query
MASKED_SCORE = -1e8  # a score at or below it was masked
FOUND = "ok", "difference", "tolerance", "measured", "expected", "index"  # of a comparison
ENTRIES_PER_UNIT = 16  # with fewer, a unit that is 0 in all of them may be so by chance


def analyze(record: RecordData) -> None:
    """Set what the record says of its entries, and of the whole."""
    ends = [record.entries[i] for i in record.roots]
    named = len(ends) == 1 and ends[0].size == 1 and ends[0].name in ("", "loss", "L")
    record.loss = ends[0].id if named else None
    via = _measure_reach(record)
    for entry in reversed(record.entries):  # what was used comes last
        entry.state, entry.why = _state(record, entry)
    record.zeros = [e.id for e in record.entries if e.state == "zero in theory" and not e.op]
    record.way = _way(record, via)
    for edge in record.edges:
        edge.on_way = record.way is not None and edge in record.way.edges
    record.checks = by_hand(record)
    add_checks(record, [])
    for entry in (record.entries[i] for i in record.forward):
        found = None if entry.value is None else saturation(entry.op, entry.value, entry.settings)
        entry.note = f"{found[0]:,} of {found[1]:,} {found[2]}" if found and found[0] else ""
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


def _state(record: RecordData, entry: Entry) -> tuple[str, str]:
    """What a gradient is, and why it is none or zero in theory.

    It is vanishing or exploding by its reach; near the ends of the dtype's range, by its size.
    """
    if entry.gradient is None:
        return "none", _why_none(record, entry)
    facts, reach = entry.gradient_facts, entry.reach or 0.0
    if facts is None or not facts.finite:
        return "not finite", ""
    ends = np.finfo(entry.dtype if entry.dtype.startswith("float") else float)
    state = "ok"
    if reach < 1 / EXTREME or facts.rms < EXTREME * float(ends.tiny):
        state = "vanishing" if facts.rms else "zero"
    elif reach > EXTREME or facts.rms > float(ends.max) / EXTREME:
        state = "exploding"
    why = _why_zero(record, entry, state)
    return ("zero in theory", why) if why else (state, "")


def _why_none(record: RecordData, entry: Entry) -> str:
    if not entry.needs:
        return entry.why
    if entry.id in record.earlier:
        return "only in an earlier backward"
    if any(edge.contribution is not None for edge in record.uses(entry)):
        return "backward ended here"
    return "backward did not reach it" if record.backwards else "no backward ran"


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


def _measure_reach(record: RecordData) -> dict[int, Edge]:
    """Set the gain of each use and the reach of each entry; returns the use that sent it most."""
    via: dict[int, Edge] = {}
    for entry in reversed(record.entries):
        entry.reach = None if entry.gradient is None else 1.0
        ways: list[tuple[float, Edge, float]] = []
        for edge in record.uses(entry):
            if edge.contribution is entry.gradient:
                edge._facts = entry.gradient_facts
            edge.gain = None if edge.contribution is None else _gain(record, edge)
            before = record.entries[edge.target].reach
            if edge.gain is not None and before is not None and isfinite(before * edge.gain):
                ways.append((edge.norm, edge, before * edge.gain))
        if ways and entry.gradient is not None:
            norm, via[entry.id], reach = max(ways, key=lambda way: way[0])
            entry.reach = reach * (entry.norm / norm if norm else 0.0)
    return via


def _gain(record: RecordData, edge: Edge) -> float:
    source, target = record.entries[edge.source], record.entries[edge.target]
    spread = target.size == 1 < source.size
    picked = target.op in ("getitem", "take", "split") and source.op != ""
    if spread or picked or (not source.op and source.shape != target.shape):
        return 1.0
    came = target.norm
    return edge.norm / came if came else 0.0


def _way(record: RecordData, via: dict[int, Edge]) -> Way | None:
    """The way on which the gradient shrinks most, or grows most if that is more.

    It ends at an input or a parameter that the first layers use: one that the loss is reached from
    by at least three quarters as many steps as from any other.
    """
    steps: dict[int, int] = {}
    for entry in reversed(record.entries):
        ahead = (edge for edge in record.uses(entry) if edge.contribution is not None)
        steps[entry.id] = 1 + max((steps[edge.target] for edge in ahead), default=0)
    reach = {i: found for i in sorted(via) if (found := record.entries[i].reach)}
    reached = [record.entries[i] for i in reach]
    reached = [e for e in reached if e.state != "zero in theory"]
    leaves = [e.id for e in reached if not e.op] or [e.id for e in reached]
    farthest = max((steps[i] for i in leaves), default=0)
    leaves = [i for i in leaves if steps[i] >= FIRST_LAYERS * farthest]
    if not leaves:
        return None
    extremes = [pick(leaves, key=reach.__getitem__) for pick in (min, max)]
    end = max(extremes, key=lambda i: max(reach[i], 1 / reach[i]))
    one = record.entries[end]
    edges: list[Edge] = []
    factors: dict[str, list[float]] = {}
    while one.id in via:
        edge = via[one.id]
        target = record.entries[edge.target]
        factors.setdefault(target.op, []).append(edge.gain or 0.0)
        if record.sums(one) and edge.norm:
            factors.setdefault("sums", []).append(one.norm / edge.norm)
        edges.insert(0, edge)
        one = target
    op = (min if reach[end] < 1 else max)(factors, key=lambda op: prod(factors[op]))
    ids = (*(edge.target for edge in edges), end)
    return Way(ids, tuple(edges), reach[end], op, len(factors[op]))


# ---------------------------------------------------------------- zero in theory


def _why_zero(record: RecordData, entry: Entry, state: str) -> str:
    """Why a gradient that is no larger than rounding is zero in theory; empty if it is not."""
    ahead = [edge.target for edge in record.uses(entry) if edge.contribution is not None]
    uses, g = [record.entries[i] for i in ahead], entry.gradient
    if not uses or entry.id in record.roots:
        return ""
    if all(use.state == "zero in theory" for use in uses):
        return uses[0].why
    if g is None or g.dtype.kind != "f" or (entry.op and state != "vanishing"):
        return ""
    came = max(use.gradient_rms or 0.0 for use in uses)
    rounding = STILL * 10 * float(np.finfo(g.dtype).eps) * came
    return _why_unseen(record, entry) if (entry.gradient_rms or 0.0) <= rounding else ""


def _why_unseen(record: RecordData, leaf: Entry) -> str:
    """The ops whose results do not move with it, in words; empty if it is seen, or unknown."""
    rng = np.random.default_rng(leaf.id)

    def drawn(like: Array) -> Array:
        """A move of the same size in another direction."""
        move = rng.random(like.shape, np.float32) + np.float32(0.5)
        return move.astype(like.dtype, copy=False) * like.dtype.type(rms(like))

    moves = {leaf.id: drawn(np.ones(leaf.shape, leaf.dtype))}
    still: dict[str, None] = {}
    for one in record.entries[leaf.id + 1 :]:  # all that it was computed from comes before it
        known = {e.source: moves[e.source] for e in record.into(one) if e.source in moves}
        if not known or one.gradient is None:
            continue
        move = _move(record, one, known)
        usual = _move(record, one, {i: drawn(m) for i, m in known.items()})
        if move is None or usual is None or not rms(usual) or len(moves) > MOST_RERUNS:
            return ""
        if rms(move) <= STILL * np.finfo(one.dtype).eps * rms(usual):
            still[f"{one.op} does not see it"] = None
        elif one.id in record.roots:
            return ""
        else:
            moves[one.id] = move
    return ", ".join(still)


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
            found, measured = (
                Comparison(why="the run has no such gradient"),
                _within(record, call, symbol),
            )
            if measured is not None:
                found = compare(measured, formula, size or max(sizes))
                vague = found.tolerance >= VAGUE
                found = replace(found, why="in a dtype too coarse to tell" if vague else "")
            yield _check(
                "by hand",
                call.symbols.get(symbol),
                found,
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
            )


def _check(kind: str, entry: int | None, found: Comparison, **facts: Any) -> Check:
    """A check with what was found, unless nothing was compared."""
    names = () if found.why else FOUND
    return Check(
        kind, entry, why=found.why, **{name: getattr(found, name) for name in names}, **facts
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
    parts = {edge.input: edge.contribution for edge in record.into(entry)}
    sent = {i: c for i, name in enumerate(inputs) if (c := parts.get(name)) is not None}
    found = Comparison(why="its rules sent nothing")
    if g is not None and sent:
        op, settings = registry[entry.op], [*entry.settings.values()]
        found = check_rules(op, [*inputs.values()], settings, g, sent, entry.id)
    where = {"scope": entry.scope, "path": entry.path, "op": entry.op}
    return _check(
        "by derivative", entry.id, found, symbol=found.where, method=found.method, **where
    )


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


def attentions(record: RecordData, tokens: Any = None) -> list[AttentionWeights]:
    """The weights named A, with their gradient, their mask, and names of the positions."""
    named = [entry for entry in record.entries if entry.name == "A" and entry.op]
    values = [(entry, _made(record, entry).value) for entry in named]
    known = [e for e, A in values if A is not None and A.ndim > 1 and A.size and are_weights(A)]
    return [_attention(record, entry, tokens) for entry in known]


def _made(record: RecordData, entry: Entry) -> Entry:
    """What made weights, before another value was put among them."""
    sources = (record.entries[edge.source] for edge in record.into(entry))
    other = next((one for one in sources if one.op), None) if entry.op == "where" else None
    return entry if other is None else _made(record, other)


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
    names = position_names(tokens, entry.shape, f"attention(tokens): {entry.path}")
    return AttentionWeights(entry.id, entry.path, lifted(entry.value), dA, lifted(masked), *names)


def _asked(record: RecordData) -> int | None:
    """The query through whose weights nearly all of the loss's gradient passes."""
    found = [np.abs(one.dA).sum(axis=-1) for one in attentions(record) if one.dA is not None]
    shares = [rows.reshape(-1, rows.shape[-1]).sum(axis=0) / (rows.sum() or 1.0) for rows in found]
    if not shares or len({len(share) for share in shares}) > 1:
        return None
    total = np.sum(shares, axis=0)
    most = int(np.argmax(total))
    return most if len(total) > 1 and total[most] >= MOST_SHARE * total.sum() > 0 else None
