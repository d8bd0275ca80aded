"""Audit: a step runs both ways from the same state, and what comes of it is compared.

The program runs first. What it wrote is put back, then the step runs eagerly, and that outcome
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from ...engine.context import Listener, listen
from ...engine.tensor import Tensor
from ...engine.writes import writes
from .arguments import Arguments, leaves_of
from .compare import difference
from .dependencies import same
from .effects import Changed
from .variant import Variant, small_bytes

__all__ = ["Audit"]

_UNKNOWN = (
    "something changed that a program cannot see: a number taken out of an array by np.asarray or "
    "a memoryview, the time, a file, or state of an object"
)
_STATE = "a step may change tensors and the state of optimizers; other state is frozen"


def _gradient(tensor: Any) -> Any:
    """A copy of its gradient; as precise as the tensor, where an update has widened it."""
    if tensor.grad is None:
        return None
    with np.errstate(over="ignore"):
        return np.array(tensor.grad, tensor.dtype)


class _Updates(Listener):
    """Notes the gradients and settings that each update finds, in the first run or again."""

    def __init__(self, again: bool = False) -> None:
        self.found: dict[str, Any] = {}
        self._count, self._again = 0, again

    def asks_whether_again(self) -> bool:
        return self._again

    def updating(self, owner: Any, call: Any) -> None:
        self._count += 1
        at = f"at update {self._count}"
        for i, p in enumerate(getattr(owner, "parameters", ())):
            if p.grad is not None:
                self.found[f"the gradient of {p.name or f'parameter {i}'} {at}"] = _gradient(p)
        for name, value in vars(owner).items() if owner is not None else ():
            if isinstance(value, int | float) and name != "version":
                self.found[f"{name} {at}"] = value


class _State:
    """What a program may write, as it is before it runs."""

    def __init__(self, variant: Variant, arguments: Arguments) -> None:
        program, self.began = variant.program, writes.latest
        self.tensors = variant.tensors(arguments)
        owners = [s.args[0] for s in program.steps if s.kind == "update" and s.args[0] is not None]
        for owner in list(owners):  # what they update in turn
            owners += [x for x in vars(owner).values() if hasattr(x, "load_state_dict")]
        self.owners = list({id(owner): owner for owner in owners}.values())
        moved = [p for owner in self.owners for p in getattr(owner, "parameters", ())]
        self.moved = {id(p) for p in moved}
        assigned = {id(s.args[0]) for s in program.steps if s.kind == "assign"}
        places = any(s.kind == "assign" and s.args[1] is not None for s in program.steps)
        written = [t for t in self.tensors if id(t) in assigned or (places and t._node is None)]
        self.grads = [(t, t.grad) for t in self.tensors]
        self.data = [(t, t._data.copy()) for t in [*moved, *written]]
        generators = variant.found.of(np.random.Generator)
        self.drawn = [(g, g.bit_generator.state) for g in generators]
        self.states = [(o, dict(vars(o)), o.state_dict()) for o in self.owners]
        self.keeps = [(o, key, o[key]) for o, key, _ in program.keeps]

    def restore(self) -> None:
        for tensor, data in self.data:
            tensor._data[...] = data
        for tensor, grad in self.grads:
            tensor.grad = grad
        for generator, state in self.drawn:
            generator.bit_generator.state = state
        for owner, attributes, state in self.states:
            owner.load_state_dict(state)
            plain = {k: v for k, v in attributes.items() if isinstance(v, int | float)}
            vars(owner).update(plain)
        for holder, key, value in self.keeps:
            holder[key] = value
        self.began = writes.latest  # to load a state is to write

    def outcome(self, result: Any) -> dict[str, Any]:
        """What is there now, by what it is called."""
        found = {place: item for place, _, item in leaves_of("what it returns", result)}
        for i, tensor in enumerate(self.tensors):
            name = tensor.name or f"tensor {i}"
            if id(tensor) not in self.moved and writes.when(tensor._data) > self.began:
                found[f"{name} ({i})"] = tensor._data
            found[f"the gradient of {name} ({i})"] = _gradient(tensor)
        for holder, key, _ in self.keeps:
            found[f"the attribute {key}"] = holder[key]
        for i, (generator, _) in enumerate(self.drawn):
            found[f"the state of generator {i}"] = repr(generator.bit_generator.state)
        return found


class Audit:
    """One call of a step, both ways.

    Attributes:
        finding: how the two differ, "" if they do not.  cause: the likely reason.
    """

    def __init__(self, step: Callable[..., Any], variant: Variant, arguments: Arguments) -> None:
        self.step, self.variant, self.arguments = step, variant, arguments
        self.finding, self.cause = "", _UNKNOWN

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the eager run returns.

        Raises: Changed if the program does not fit after all; what the eager run raises.
        """
        program, found = self.variant.run, self.variant.found
        assert program is not None
        state, updates = _State(self.variant, self.arguments), _Updates()
        made: dict[str, Any] = {}
        failure: Exception | None = None
        try:
            with listen(updates):
                result = program(args, kwargs)
            made = {name: copy(_bare(x)) for name, x in state.outcome(result).items()}
            made |= updates.found
        except Changed:
            raise
        except Exception as error:
            failure = error
            self.finding = f"an error, which only the program raises: {error!r}"
        state.restore()
        arrays = found.arrays()
        before, updates = list(map(small_bytes, arrays)), _Updates(again=True)
        try:
            with listen(updates):
                result = self.step(*args, **kwargs)
        except Exception as error:
            alike = type(error) is type(failure)
            self.finding = "" if alike else f"an error, which only the step raises: {error!r}"
            raise
        wanted = state.outcome(result) | updates.found
        self.finding = self.finding or self._compared(made, wanted)
        changed = [f"{name}, which the step sets" for _, name, _, _ in found.changes()]
        if before != list(map(small_bytes, arrays)):
            changed.append("an array that the step writes into")
        if changed:
            self.finding, self.cause = self.finding or changed[0], _STATE
            found.note()
            self.variant.prepare()
        return result

    def _compared(self, found: dict[str, Any], wanted: dict[str, Any]) -> str:
        """How two outcomes differ, "" if they do not."""
        if found.keys() != wanted.keys():
            return "how many things it returns, or which updates it makes"
        sizes = [
            x for name, x in wanted.items() if "gradient" in name and isinstance(x, np.ndarray)
        ]
        largest = [float(np.abs(x).max(initial=0.0)) for x in sizes]
        scale = self.variant.largest = max([self.variant.largest, *largest])
        for name, item in wanted.items():
            mine, theirs = found[name], _bare(item)
            if isinstance(mine, np.ndarray | np.number) and isinstance(
                theirs, np.ndarray | np.number
            ):
                own = scale if "gradient" in name else 0.0
                by = difference(np.asarray(mine), np.asarray(theirs), own)
            else:
                by = "" if same(mine, theirs) else f"{mine!r:.60} in place of {theirs!r:.60}"
            if by:
                return f"{name}, {by}"
        return ""


def _bare(item: Any) -> Any:
    return item._data if isinstance(item, Tensor) else item
