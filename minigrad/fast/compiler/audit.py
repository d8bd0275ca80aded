"""Audit: a step runs both ways from the same state, and what comes of it is compared.

The program runs first. What it wrote is put back, then the step runs eagerly, and that outcome
stays.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np

from ...engine.listener import Listener, listen
from ...engine.tensor import Tensor
from ...engine.types import Array, Kernel
from ...engine.writes import writes
from .cache_entry import CacheEntry, CallArguments, leaves_of, sample
from .compare import Sketch, difference, sketched, with_moved_digits
from .dependencies import GENERATORS, generator_state, same, set_generator_state
from .program import ExistingTensor, Program, flat, root
from .source import GuardFailed

__all__ = ["Audit"]

Outcome: TypeAlias = dict[str, Any]  # arrays, sketches of them and other results, by name
_UNKNOWN = (
    "something changed that a program cannot see: a number taken out of an array by np.asarray or "
    "a memoryview, the time, a file, or state of an object"
)
_RUNS = 4  # with rounding of another kind
_MARGIN = 16  # times what they show: sums in another order, of many terms
_STATE = "a step may change tensors and the state of optimizers; other state is frozen"


def _gradient(tensor: Tensor) -> Array | Sketch | None:
    """A sketch of its gradient; as precise as the tensor, where an update has widened it."""
    if tensor.grad is None:
        return None
    with np.errstate(over="ignore"):
        return sketched(np.asarray(tensor.grad, tensor.dtype))


class _Updates(Listener):
    """Notes the gradients and settings that each update finds, in the first run or the second.

    Args: skipped: the optimizers whose updates are noted and not made.
    """

    def __init__(self, skipped: Collection[object] = ()) -> None:
        self.found: Outcome = {}
        self._count, self._skipped = 0, skipped

    def replaces_update(self, owner: object) -> bool:
        skips = any(owner is one for one in self._skipped)
        if skips:
            self.update_started(owner, None)
        return skips

    def update_started(self, owner: object, again: object) -> None:
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

    def __init__(self, variant: CacheEntry, call: CallArguments) -> None:
        program, self.began = variant.program, writes.latest
        self.tensors, self.last = variant.tensors(call), last_updates(program)
        owners = [owner for owner in program.targets("update") if owner is not None]
        for owner in list(owners):  # what they update in turn
            owners += [x for x in vars(owner).values() if hasattr(x, "load_state_dict")]
        self.moved = {id(p) for owner in owners for p in getattr(owner, "parameters", ())}
        skipped = [id(owner) for owner in self.last]
        owners = [x for x in {id(x): x for x in owners}.values() if id(x) not in skipped]
        moved = [p for owner in owners for p in getattr(owner, "parameters", ())]
        assigned = program.targets("assign")
        ids = {id(existing.tensor) for existing in assigned}
        places = any(existing.expression is not None for existing in assigned)
        written = [t for t in self.tensors if id(t) in ids or (places and t._node is None)]
        forgotten = {id(x.tensor) for leaves in program.targets("forget") for x in leaves}
        self.grads = [(t, t.grad) for t in self.tensors if id(t) not in forgotten]
        self.data = [(t, t._data.copy()) for t in [*moved, *written]]
        self.drawn = [(g, generator_state(g)) for g in variant.found.of(GENERATORS)]
        self.states = [(o, dict(vars(o)), o.state_dict()) for o in owners]
        self.keeps = [(x.state, x.name) for x in program.keeps]
        self.kept = [x.state.get(x.name) if x.may_be_read else None for x in program.keeps]

    def restore(self) -> None:
        for tensor, data in self.data:
            tensor._data[...] = data
        for tensor, grad in self.grads:
            tensor.grad = grad
        for generator, state in self.drawn:
            set_generator_state(generator, state)
        for owner, _, state in self.states:
            owner.load_state_dict(state)
        for owner, attributes, _ in self.states:  # a schedule's state has set its optimizer's lr
            plain = {k: v for k, v in attributes.items() if isinstance(v, int | float)}
            vars(owner).update(plain)
        for (holder, key), value in zip(self.keeps, self.kept, strict=True):
            holder[key] = value
        self.began = writes.latest  # to load a state is to write

    def outcome(self, result: object) -> Outcome:
        """What is there now, by what it is called: copies, sketches of what is large."""
        found = {
            place: sketched(_bare(item)) for place, item in leaves_of("what it returns", result)
        }
        for i, tensor in enumerate(self.tensors):
            name = tensor.name or f"tensor {i}"
            if id(tensor) not in self.moved and writes.when(tensor._data) > self.began:
                found[f"{name} ({i})"] = sketched(tensor._data)
            found[f"the gradient of {name} ({i})"] = _gradient(tensor)
        for holder, key in self.keeps:
            found[f"the attribute {key}"] = sketched(_bare(holder[key]))
        for i, (generator, _) in enumerate(self.drawn):
            found[f"the state of generator {i}"] = repr(generator_state(generator))
        return found


class Audit:
    """One call of a step, both ways.

    Attributes:
        finding: how the two differ, "" if they do not.  cause: the likely reason.
        rounding: how they differ by rounding alone, "" if they do not.
    """

    def __init__(self, step: Kernel, variant: CacheEntry, call: CallArguments) -> None:
        self.step = step
        self.variant = variant
        self.call = call
        self.finding = ""
        self.cause = _UNKNOWN
        self.rounding = ""

    def run(self) -> Any:
        """What the eager run returns.

        Raises: GuardFailed if the program does not fit after all; what the eager run raises.
        """
        found, state = self.variant.found, _State(self.variant, self.call)
        made = self._run_program(state)
        self.variant.release()  # the program's arrays, before the step makes its own
        state.restore()
        state.grads, state.kept = [], []  # the step may free them
        arrays = found.arrays()
        before, updates = [sample(x).tobytes() for x in arrays], _Updates()
        try:
            with listen(updates):
                result = self.step(*self.call.args, **self.call.kwargs)
        except Exception as error:
            alike = type(error) is type(made)
            self.finding = "" if alike else f"an error, which only the step raises: {error!r}"
            raise
        wanted = state.outcome(result) | updates.found
        if isinstance(made, Exception):
            self.finding = f"an error, which only the program raises: {made!r}"
        else:
            self._compare(made, wanted)
        changed = [f"{name}, which the step sets" for _, name, _, _ in found.changes()]
        if before != [sample(x).tobytes() for x in arrays]:
            changed.append("an array that the step writes into")
        given, now = self.call, CallArguments(self.call.args, self.call.kwargs)
        if now.key != given.key or list(map(id, now.arrays)) != list(map(id, given.arrays)):
            changed.append("a container among its arguments, which the step changes")
        if changed:
            self.finding, self.cause = self.finding or changed[0], _STATE
        return result

    def _run_program(self, state: _State) -> Outcome | Exception:
        assert self.variant.run is not None
        updates = _Updates(skipped=state.last)
        try:
            with listen(updates):
                result = self.variant.run(self.call.args, self.call.kwargs)
            return state.outcome(result) | updates.found
        except GuardFailed:
            raise
        except Exception as error:
            return error

    def _compare(self, made: Outcome, wanted: Outcome) -> None:
        """Find how two outcomes differ, and whether by rounding alone."""
        if made.keys() != wanted.keys():
            self.finding = "how many things it returns, or which updates it makes"
            return
        gradients = [x for name, x in wanted.items() if "gradient" in name and _is_array(x)]
        scale = self.variant.largest = max([self.variant.largest, *map(_largest, gradients)])
        found = {}
        for name, theirs in wanted.items():
            mine = made[name]
            if _is_array(mine) and _is_array(theirs):
                own = scale if "gradient" in name else 0.0
                by = difference(mine, theirs, own)
            else:
                by = "" if same(mine, theirs) else f"{mine!r:.60} in place of {theirs!r:.60}"
            if by:
                found[name] = f"{name}, {by}"
        if not found:
            return
        allowed = self._noise()
        for name, finding in found.items():
            if name not in allowed or not _apart(made[name], wanted[name]) <= allowed[name]:
                self.finding = finding
                return
        self.rounding = next(iter(found.values()))

    def _noise(self) -> dict[str, float]:
        """How far rounding may move each array of the outcome; empty where that is not known.

        It is measured where the step has led to: one step changes it little.
        """
        if self.variant.has_effects:
            return {}
        after, outcomes = _State(self.variant, self.call), []
        gradients = [(tensor, tensor.grad) for tensor in after.tensors]
        attributes = [(holder, key, holder[key]) for holder, key in after.keeps]
        try:
            run = with_moved_digits(self.variant.program, np.random.default_rng(0))
            for _ in range(_RUNS):
                updates = _Updates(skipped=after.last)
                with listen(updates), np.errstate(all="ignore"):
                    result = run(self.call.args, self.call.kwargs)
                outcomes.append(after.outcome(result) | updates.found)
                after.restore()
        except Exception:  # whatever it is, nothing is known of the rounding then
            return {}
        finally:
            after.restore()
            for tensor, gradient in gradients:
                tensor.grad = gradient
            for holder, key, value in attributes:
                holder[key] = value
        first, *others = outcomes
        return {
            name: _MARGIN * max(_apart(other[name], array) for other in others)
            for name, array in first.items()
            if _is_array(array)
        }


def last_updates(program: Program) -> list[Any]:
    """The optimizers that move weights at the very end, where nothing that they change is looked at
    any more: an audit compares what they are given, and leaves it to the step to move the weights.
    """
    found: list[Any] = []
    for step in reversed(program.steps):
        if step.kind == "view":
            continue
        if step.kind != "update" or not hasattr(step.args[0], "parameters") or step.outs:
            break
        found.append(step.args[0])
    moved = {id(p) for owner in found for p in owner.parameters}
    values = [root(value) for value in program.kept()]
    shown = [value.what for value in values if value.kind == "leaf"]
    shown += [item.tensor for item in flat(program.result) if isinstance(item, ExistingTensor)]
    others = program.targets("update")
    twice = len(found) != sum(any(owner is one for one in found) for owner in others)
    return [] if twice or any(id(x) in moved for x in shown) else found


def _is_array(item: object) -> bool:
    return isinstance(item, np.ndarray | np.number | Sketch)


def _largest(array: Array | Sketch) -> float:
    return array.largest if isinstance(array, Sketch) else float(np.abs(array).max(initial=0.0))


def _apart(mine: Any, theirs: Any) -> float:
    """The largest difference; NaN where the two cannot be held against each other."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype or mine.dtype.kind not in "fc":
        return float("nan")
    if isinstance(mine, Sketch):
        mine, theirs = mine.sums, theirs.sums
    return float(np.abs(mine - theirs).max(initial=0.0))


def _bare(item: object) -> object:
    return item._data if isinstance(item, Tensor) else item
