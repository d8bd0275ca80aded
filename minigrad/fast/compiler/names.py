"""What the variables of generated source are called: the layers' symbols where there are any, or
what the value is: `A_T`, `S_max`, `gelu_tanh`, `d_layer_norm`.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

import numpy as np

from .buffer_assignment import Array, Homes, stem
from .program import Value, root

__all__ = ["Names", "comment"]

_OF_INPUTS = {"argument": "x", "constant": "constant", "captured": "array", "leaf": "w"}


def comment(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return re.sub(r"[^\w /.,:()<>-]", "_", text)


class Names:
    """Every name once. `objects` are those that the source is handed."""

    def __init__(self, homes: Homes) -> None:
        self.homes = homes
        self.objects: dict[str, Any] = {"np": np}
        self._taken = {"np", "build", "step", "args", "kwargs", "Tensor", *keyword.kwlist}
        self._taken |= {"part", "low", "high", "own", "sums", "rows", "m"}
        self._counts: dict[str, int] = {}
        self._bound: dict[int, str] = {}
        self._values: dict[int, str] = {}
        self._arrays: dict[int, str] = {}
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
        known = self._bound.get(id(thing))
        if known is None:
            known = self._bound[id(thing)] = self.fresh(wanted)
            self.objects[known] = thing
            self._kept.append(thing)
        return known

    def of(self, value: Value) -> str:
        """The name of an input or a view."""
        known = self._values.get(id(value))
        if known is None:
            known = self._values[id(value)] = self.fresh(self.wanted(value))
            self._kept.append(value)
        return known

    def of_array(self, array: Array) -> str:
        """The name of an array: its value's symbol, or what those of several have in common."""
        known = self._arrays.get(id(array))
        if known is None:
            symbols = set(array.symbols)
            wanted = symbols.pop() if symbols else self.wanted(array.values[0])
            wanted = stem(wanted) if symbols else wanted
            known = self._arrays[id(array)] = self.fresh(wanted)
        return known

    def wanted(self, value: Value) -> str:
        """What a value would be called if nothing else were."""
        if value.name:
            return value.name
        step = value.step
        if step is None:
            return _OF_INPUTS.get(value.kind, "joint")
        if step.kind == "view":
            return self._of_view(value)
        if step.text == "spread":
            array = self.homes.arrays.get(id(root(step.args[0])))
            return f"{self.of_array(array) if array else self.wanted(step.args[0])}_full"
        arrays = [self.homes.arrays.get(id(root(v))) for v in step.reads()]
        base = next((self.of_array(a) for a in arrays if a and a.values[0].name), None)
        what = step.text.removeprefix("np.").removesuffix(".reduce")
        what = {"add": "sum", "maximum": "max", "minimum": "min"}.get(what, what)
        if step.kind == "reduce" and base:
            return f"{base}_{what}"
        if step.op in (what, f"d_{what}") or what in (
            "matmul",
            "add",
            "subtract",
            "reshape",
            "sum",
        ):
            return step.op or what
        return f"{step.op}_{what}" if step.op else what

    def _of_view(self, value: Value) -> str:
        """K_T, X_2d: after the nearest thing that has a name."""
        turned, source = False, value
        while source.step is not None and source.step.kind == "view" and not source.name:
            turned ^= source.step.text in ("swapaxes", "transpose")
            source = source.step.args[0]
        array = self.homes.arrays.get(id(source))
        base = self.of_array(array) if array is not None else self.wanted(source)
        if turned:
            return base.removesuffix("_T") if base.endswith("_T") else f"{base}_T"
        return f"{base}_{len(value.shape)}d"
