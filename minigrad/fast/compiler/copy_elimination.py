"""Results are written in the first place to where they would be copied."""

from __future__ import annotations

import numpy as np

from .axes import sources
from .program import Program, Step, Value, root
from .rewrite import Rewriting, final_readers, uses_of

__all__ = ["place_copies", "place_puts"]


def place_puts(program: Program) -> bool:
    """A sum of arrays, each of zeros but for a part of its own, is one array with those parts."""
    uses = uses_of(program)
    terms: dict[int, list[Step]] = {}  # of a sum, by the id of its value
    for step in program.steps:
        if step.kind == "put":
            terms[id(step.out)] = [step]
        elif step.text == "np.add" and all(
            v.__class__ is Value and id(v) in terms and len(uses[id(v)]) == 1 for v in step.args
        ):
            terms[id(step.out)] = terms[id(step.args[0])] + terms[id(step.args[1])]
    rooms: dict[int, tuple[Value, Step]] = {}  # of a term: the room, and the step that ends the sum
    for step in program.steps:
        puts = terms.get(id(step.out)) if step.outs else None
        readers = uses.get(id(step.out), []) if puts else []
        ends = not any(reader and reader.outs and id(reader.out) in terms for reader in readers)
        if puts and len(puts) > 1 and ends and _cover(puts, step.out):
            room = Value("room", None, step.out.shape, step.out.dtype)
            room.name = step.out.name
            rooms.update((id(put), (room, step)) for put in puts)
    last: dict[int, tuple[Value, list[Value]]] = {
        id(end): (room, []) for room, end in rooms.values()
    }
    r = Rewriting(program)

    def visit(step: Step) -> bool:
        if id(step) in rooms:
            room, end = rooms[id(step)]
            x, index = step.args[:2]
            whole = room if end.into is None else _again(r, r.map(end.into))
            target = r.view(whole, "getitem", (index,))
            made = r.emit("copy", "reshape", (x, target.shape), target.shape, room.dtype)
            r.put(r.steps[-1], target)
            last[id(end)][1].append(made)
            return True
        if id(step) in last:
            room, parts = last[id(step)]
            r.replace(step.out, r.joined(step.into or room, *parts))
            return True
        return False

    return r.run(visit)


def _cover(puts: list[Step], total: Value) -> bool:
    """Whether the parts fill the whole, each entry once."""
    counts = np.zeros(total.shape, np.int8)
    for put in puts:
        counts[put.args[1]] += 1
    return bool((counts == 1).all()) and all(put.args[0].dtype == total.dtype for put in puts)


def place_copies(program: Program) -> bool:
    """A result that is copied into another order of axes is written in that order at once."""
    uses = uses_of(program)
    pinned = {
        id(root(v))
        for step in program.steps
        if step.kind == "grad" or step.shares
        for v in step.reads()
    }
    wanted: dict[int, Step] = {}  # by the id of what is copied, in its first order: the copy
    rooms: list[Value] = []
    for copy in program.steps:
        source = _copied(copy)
        if source is not None and id(source) not in pinned and id(source) not in wanted:
            if None not in final_readers(uses, source):
                wanted[id(source)] = copy
                rooms += [source] if source.kind == "room" else []
    r = Rewriting(program)
    done: dict[int, Value] = {}

    def turned(copy: Step, source: Value) -> Value | None:
        """A view of where the copy would go, in the source's order of axes."""
        into = r.map(copy.into) if copy.into is not None else None
        target = _again(r, into) if into is not None else None
        target = target or Value("room", None, copy.out.shape, copy.out.dtype)
        target.name = target.name or copy.out.name
        seen = r.reshaped(target, copy.args[0].shape)
        for text, form in _way_back(copy.args[0], source):
            seen = r.view(seen, text, (form,))
        if root(seen) is not root(target):
            return None
        done[id(copy)] = target
        return seen

    def visit(step: Step) -> bool:
        if step.outs and id(step.out) in wanted:  # a product, or a sum of several
            seen = turned(wanted[id(step.out)], step.out)
            if seen is None:
                return False
            seen.name = seen.name or step.out.name
            r.put(step, seen)
        elif id(step) in done:
            made = r.joined(done[id(step)], step.args[0])
            made.name = step.out.name
            r.now[id(step.out)] = made
            return True
        return False

    for room in rooms:  # its parts are written to where they would be copied
        r.now[id(room)] = turned(wanted[id(room)], room) or room
    return r.run(visit)


def _again(r: Rewriting, value: Value) -> Value:
    """The same view, made here."""
    step = value.step
    if step is None or step.kind != "view":
        return r.map(value)  # type: ignore[no-any-return]
    return r.view(_again(r, step.args[0]), step.text, step.args[1:])


def _copied(copy: Step) -> Value | None:
    """What a copy makes another order of, if a step can write it in that order itself: a product,
    a result entry by entry, or a room.
    """
    if copy.kind != "copy" or copy.text != "reshape":
        return None
    value: Value = copy.args[0]
    while value.step is not None and _turns(value.step):
        value = value.step.args[0]
    step = value.step
    if value.kind == "room":
        return value
    ready = step is not None and step.kind in ("matmul", "elementwise") and step.into is None
    return value if ready else None


def _turns(step: Step) -> bool:
    """Whether a view only brings axes into another order, or adds and drops axes of length one."""
    if step.kind == "view" and step.text == "reshape":
        source, out = step.args[0].shape, step.out.shape
        return [n for n in source if n != 1] == [n for n in out if n != 1]
    return step.text in ("swapaxes", "transpose", "joined")


def _way_back(value: Value, source: Value) -> list[tuple[str, tuple[int, ...]]]:
    """The views that lead from `value` back to `source`."""
    views: list[tuple[str, tuple[int, ...]]] = []
    while value is not source:
        step = value.step
        assert step is not None
        if step.text == "reshape":
            views.append(("reshape", step.args[0].shape))
        elif step.text != "joined":
            views.append(("transpose", tuple(int(i) for i in np.argsort(sources(step)))))
        value = step.args[0]
    return views
