"""What the variables of generated source are called: the layers' symbols where there are any, or
what the value is: `A_T`, `Q_2d`, `gelu_tanh`, `d_layer_norm`.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

import numpy as np

from .program import Value, is_transpose, root, transposed_name

__all__ = ["Names", "comment"]

_INPUTS = {"argument": "x", "constant": "constant", "captured": "array", "leaf": "w"}
_OF_ROWS = {"maximum.reduce": "max", "minimum.reduce": "min", "add.reduce": "sum"}
_OF_ROWS |= {"spread": "spread", "argmax": "argmax"}
_PLAIN = ("matmul", "add", "subtract", "reshape", "sum")  # the op says enough


def comment(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return re.sub(r"[^\w /.,:()<>-]", "_", text)


class Names:
    """Every name once. `objects` are those that the source is handed."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {"np": np}
        self._taken = {"np", "build", "step", "args", "kwargs", "Tensor", *keyword.kwlist}
        self._taken |= {"low", "high", "own", "sums", "rows", "m"}
        self._counts: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no id() comes again

    def fresh(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "t"
        base = f"t_{base}" if base[0].isdigit() else base
        name, n = base, self._counts.get(base, 1)
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._counts[base] = n
        self._taken.add(name)
        return name

    def bind(self, thing: Any, wanted: str) -> str:
        """The name of an object that the source is handed."""
        if id(thing) not in self._names:
            self._name(thing, wanted)
            self.objects[self._names[id(thing)]] = thing
        return self._names[id(thing)]

    def of(self, value: Value) -> str:
        """The name of a value."""
        if id(value) not in self._names:
            self._name(value, self._wanted(value))
        return self._names[id(value)]

    def share(self, value: Value, other: Value) -> None:
        """Call a value by the name of another, over which it is written."""
        self._names[id(value)] = self.of(other)
        self._kept.append(value)

    def _name(self, thing: Any, wanted: str) -> None:
        self._names[id(thing)] = self.fresh(wanted)
        self._kept.append(thing)

    def _wanted(self, value: Value) -> str:
        """What a value would be called if nothing else were: S_max, S_sum, b_spread, K_T, Q_2d."""
        step = value.step
        if value.name or step is None:
            before = f"d_{value.what[0].name or 'w'}_before" if value.kind == "grad" else value.kind
            return value.name or _INPUTS.get(value.kind, before)
        source = next((v for v in step.reads() if v.kind != "constant"), None)
        if step.kind == "view":
            base = self._called(step.args[0])
            return transposed_name(base) if is_transpose(step) else f"{base}_{len(value.shape)}d"
        what = step.text.removeprefix("np.")
        if what in _OF_ROWS and source is not None:
            return f"{self._called(root(source))}_{_OF_ROWS[what]}"
        if what == "matmul" and any(
            v.kind == "constant" and v.name == "ones" for v in step.reads()
        ):
            return f"{self._called(root(source))}_sum" if source is not None else "sum"
        what = what.removesuffix(".reduce")
        if what in _PLAIN or not step.op or step.op in (what, f"d_{what}"):
            return step.op or what
        return f"{step.op}_{what}"

    def _called(self, value: Value) -> str:
        return self._names.get(id(value)) or self._wanted(value)
