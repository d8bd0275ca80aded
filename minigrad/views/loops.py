"""Loops: what one line of a program, or one module, did again and again is steps in time.

A place that runs three times or more begins an iteration each time; all that runs until the next
belongs to it. Iterations are steps where one hands on to the next, or all use one leaf; they get
scopes of their own, `cell[0]`, `cell[1]` … for calls of a module, `step[0]` … for lines, and
`fold` then draws those that are alike once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from ..recording.record import Entry
from ..recording.trace import Trace

__all__ = ["scopes_with_steps"]

FEWEST = 3  # times that make a loop


@dataclass
class Item:
    """What stands directly in a scope: an op, or one call of an inner scope."""

    key: Any  # the same for each run of a place
    ops: list[Entry]
    name: str = ""  # of the inner scope


def scopes_with_steps(trace: Trace, without: frozenset[str] = frozenset()) -> dict[int, str]:
    """The scope of each op, with the steps of loops as scopes. Args: without: loops left out."""
    found: dict[int, str] = {}
    ops = [e for e in trace.entries if e.op is not None]
    if any(edge.crosses for edge in trace.edges):  # ranks take turns, and are no loop
        ops.sort(key=lambda e: e.scope.partition("/")[0])
    pending = [("", 0, ops)]
    while pending:
        path, depth, ops = pending.pop()
        for scope, group in _parts(trace, path, _items(ops, depth), without):
            if isinstance(group, Item) and not group.name:
                found[group.ops[0].id] = scope
            elif isinstance(group, Item):
                pending.append((scope, depth + 1, group.ops))
            else:
                pending.append((scope, depth, [op for item in group for op in item.ops]))
    return found


def _items(ops: Sequence[Entry], depth: int) -> list[Item]:
    def call(op: Entry) -> Any:
        names = op.scope.split("/") if op.scope else []
        return (names[depth], op.calls[depth : depth + 1]) if len(names) > depth else (None, op.id)

    items = []
    for (name, _), group in groupby(ops, key=call):
        inside = list(group)
        key = name if name is not None else _place(inside[0])
        items.append(Item(key, inside, name or ""))
    return items


def _place(op: Entry) -> Any:
    made = op.made_at
    return op.op, getattr(made, "code", None), getattr(made, "offset", None)


def _parts(
    trace: Trace, path: str, items: list[Item], without: frozenset[str]
) -> Iterator[tuple[str, Item | list[Item]]]:
    """Each item with its scope, or the items of one iteration with theirs."""
    begun: Counter[str] = Counter()
    counts, at, refused = Counter(item.key for item in items), 0, set()
    while at < len(items):
        key = items[at].key
        ends = [] if counts[key] < FEWEST or key in refused else _iterations(items, at)
        refused.add(key)
        steps = [items[a:b] for a, b in pairwise(ends)]
        alone = {len(step) for step in steps} == {1} and steps[0][0].name
        name = alone or f"step{begun['step'] or ''}"
        base = f"{path}/{name}" if path else name
        if len(steps) >= FEWEST and base not in without and _is_loop(trace, steps):
            begun["step"] += not alone
            for number, step in enumerate(steps):
                yield f"{base}[{number}]", (step[0] if alone else step)
            at = ends[-1]
            continue
        item = items[at]
        yield (f"{path}/{item.name}" if path else item.name) if item.name else path, item
        at += 1


def _iterations(items: list[Item], at: int) -> list[int]:
    """Where the iterations of the loop that an item begins start, and where the last one ends."""
    starts = [i for i in range(at, len(items)) if items[i].key == items[at].key]
    body = {item.key for item in items[starts[0] : starts[-1]]}
    end = starts[-1] + 1
    while end < len(items) and items[end].key in body:
        end += 1
    return [*starts, end]


def _is_loop(trace: Trace, steps: list[list[Item]]) -> bool:
    first, second = ([op for item in step for op in item.ops] for step in steps[1:3])
    used = [{edge.source for op in ops for edge in trace.into(op)} for ops in (first, second)]
    leaves = [{i for i in sources if trace[i].op is None} for sources in used]
    return bool({op.id for op in first} & used[1] or leaves[0] & leaves[1])
