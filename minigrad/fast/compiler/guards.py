"""Guards: one generated function that says whether a program still fits.

Everything the recorded run depended on, other than the numbers in arrays, is compared with what it
was: plain values
by value, containers and objects by identity, arguments by kind, shape, strides, dtype and flags.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.context import current
from ...engine.tensor import Tensor
from .find_dependencies import Entry, Survey, _Slots
from .record import Recorder

__all__ = ["guard"]


def _same(now: Any, then: Any) -> bool:
    """Equal, of one type; NaN equals itself, 0.0 is not -0.0."""
    if type(now) is not type(then):
        return False
    return (
        repr(now) == repr(then)
        if isinstance(now, float | complex | np.generic)
        else bool(now == then)
    )


class _Conditions:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {
            "same": _same,
            "current": current,
            "Tensor": Tensor,
            "ndarray": np.ndarray,
        }
        self._names: dict[int, str] = {}

    def bind(self, thing: Any) -> str:
        name = self._names.get(id(thing))
        if name is None:
            name = self._names[id(thing)] = f"o{len(self._names)}"
            self.objects[name] = thing
        return name

    def where(self, entry: Entry) -> str:
        """The expression that finds an entry again."""
        owner, key = entry.owner, entry.key
        if owner is None:
            return str(key)
        if isinstance(owner, _Slots):
            return f"{self.bind(owner.owner)}.{key}"
        if key == "cell_contents":
            return f"{self.bind(owner)}.cell_contents"
        return (
            f"{self.bind(owner)}[{key!r}]"
            if isinstance(key, str | int)
            else f"{self.bind(owner)}[{self.bind(key)}]"
        )

    def plain(self, where: str, value: Any) -> None:
        held = self.bind(value)
        if value is None or isinstance(value, bool):
            self.lines.append(f"{where} is {value!r}")
        else:
            self.lines.append(f"({where} is {held} or same({where}, {held}))")

    def array(self, where: str, array: Any) -> None:
        self.lines.append(f"{where}.shape == {array.shape!r}")
        self.lines.append(f"{where}.strides == {array.strides!r}")
        dtype = self.bind(array.dtype)
        self.lines.append(f"({where}.dtype is {dtype} or {where}.dtype == {dtype})")


def guard(
    found: Survey, recorder: Recorder, changing: set[tuple[int, Any]], recording: bool
) -> Any:
    """The function (args, kwargs) → bool for one recorded run.

    `changing` are the attributes that the step sets itself.
    """
    c = _Conditions()
    c.lines.append(f"(now := current()).recording is {recording!r}")
    c.lines.append("not now.listeners")
    fresh: list[tuple[str, Any]] = []
    for entry in found.entries:
        if entry.owner is None and not entry.fresh:
            continue
        if not entry.fresh and _key(entry) in changing:
            continue
        where = c.where(entry) if entry.kind != "length" or entry.fresh else ""
        if entry.kind == "length":
            if entry.fresh:
                kind, length = entry.value
                c.lines.append(f"{where}.__class__ is {c.bind(kind)} and len({where}) == {length}")
            else:
                c.lines.append(f"len({c.bind(entry.owner)}) == {entry.value}")
        elif entry.kind == "plain":
            c.plain(where, entry.value)
        elif not entry.fresh or entry.kind == "object":
            c.lines.append(f"{where} is {c.bind(entry.value)}")
        else:
            fresh.append((where, entry.value))
            _fresh(c, where, entry)
    _identities(c, fresh, found, recorder)
    _leaves(c, found, recorder)
    conditions = "".join(f"        if not ({line}): return False\n" for line in c.lines)
    failing = "KeyError, IndexError, AttributeError, TypeError, ValueError"
    source = f"def matches(args, kwargs):\n    try:\n{conditions}        return True\n"
    source += f"    except ({failing}):\n        return False\n"
    namespace = c.objects
    exec(compile(source, "<minigrad.compile guards>", "exec"), namespace)
    matches = namespace["matches"]
    matches.source = source
    return matches


def _key(entry: Entry) -> tuple[int, Any]:
    owner = entry.owner.owner if isinstance(entry.owner, _Slots) else entry.owner
    return id(owner), entry.key


def _fresh(c: _Conditions, where: str, entry: Entry) -> None:
    """An argument that may be another Tensor or array each time."""
    if entry.kind == "tensor":
        t = entry.value
        c.lines.append(f"{where}.__class__ is Tensor")
        c.lines.append(f"{where}._needs is {t._needs!r}")
        c.lines.append(f"not {where}._hooks")
        if t._needs:
            c.lines.append(f"{where}._node is None")
        c.array(f"{where}._data", t._data)
    else:
        c.lines.append(f"{where}.__class__ is ndarray")
        c.array(where, entry.value)


def _identities(
    c: _Conditions, fresh: list[tuple[str, Any]], found: Survey, recorder: Recorder
) -> None:
    """Which arguments are one and the same, and which are also reached by the step itself."""
    for i, (where, value) in enumerate(fresh):
        for other, second in fresh[:i]:
            c.lines.append(f"{where} {'is' if value is second else 'is not'} {other}")
        if id(value) in found.fixed:
            c.lines.append(f"{where} is {c.bind(value)}")
    used = {key for key in recorder.arrays.leaves if key in found.fixed}
    used |= {id(v) for v in found.fixed.values() if isinstance(v, np.ndarray)}
    if used and fresh:
        known = c.bind(frozenset(used))
        for where, value in fresh:
            if id(value) not in found.fixed:
                c.lines.append(f"id({where}) not in {known}")


def _leaves(c: _Conditions, found: Survey, recorder: Recorder) -> None:
    """The Tensors that the program reads or writes."""
    for key, leaf in recorder.arrays.leaves.items():
        where = recorder.arrays.fresh[key][0] if key in recorder.arrays.fresh else c.bind(leaf)
        if key in found.fixed:
            where = c.bind(leaf)
            c.lines.append(f"{where}._data is {c.bind(leaf._data)}")
            c.lines.append(f"{where}._needs is {leaf._needs!r}")
            c.lines.append(f"not {where}._hooks")
        if key in recorder.entry_grads:
            c.lines.append(f"{where}.grad is {'' if recorder.entry_grads[key] else 'not '}None")
    for value in recorder.arrays.captured:
        c.lines.append(f"{c.bind(value)}.shape == {value.shape!r}")
