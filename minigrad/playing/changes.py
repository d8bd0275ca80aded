"""Changes of a run: what each puts where, in words, and as the Python that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ..engine.tensor import Tensor
from ..engine.types import Array, StateDict
from ..interventions import Replacement, ablate, replace
from .addresses import Address
from .values import Argument

__all__ = ["Change", "Given", "Hold", "OptimizerStep", "Put", "arguments_of", "python_of"]

# of a program that runs the function several times: calls are counted within each run
CHANGED = """\
changes = []


@contextmanager
def changed():
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change())
        yield


""".splitlines()

Position: TypeAlias = tuple[int, ...] | None  # one entry of a value, or all of it
Detach: TypeAlias = Callable[[Tensor], Tensor]


class PythonCall(NamedTuple):
    """A call of minigrad as Python writes it: its name and its arguments."""

    name: str
    arguments: str

    def __str__(self) -> str:
        return f"mg.{self.name}({self.arguments})"

    @property
    def partial(self) -> str:
        """What makes the call when it is called itself."""
        return f"partial(mg.{self.name}, {self.arguments})"


@dataclass(frozen=True)
class Change:
    """One change, kept so that it can be made again in each run.

    Attributes: said: what the list of changes shows.
    """

    said: str

    def contexts(self) -> Iterator[Replacement]:
        """What a run is within, from the outermost in."""
        yield from ()

    def given(self) -> dict[str, Argument]:
        """Arguments of the function itself."""
        return {}

    def overwrites(self, before: Change) -> bool:
        """Whether nothing is left of the change before it."""
        return False

    def calls(self) -> list[PythonCall]:
        """Python that makes the contexts, where it needs nothing but itself."""
        return []

    def lines(self, call: str) -> Iterator[str]:
        """Python that adds them to `changes`; `call` is the call of the function so far."""
        for one in self.calls():
            yield f"changes.append({one.partial})"


@dataclass(frozen=True)
class Put(Change):
    """Replaces an entry, or all of a value or an argument; if cut, by 0 without a gradient."""

    places: tuple[Address, ...]
    index: Position = None
    value: float | Detach = 0.0
    cut: bool = False

    def overwrites(self, before: Change) -> bool:
        if not isinstance(before, Put) or self.cut or before.cut:
            return False
        return (before.places, before.index) == (self.places, self.index)

    def contexts(self) -> Iterator[Replacement]:
        for place in self.places:
            call, of = place.call, place.of
            if self.cut:
                yield ablate(place.path, index=self.index, call=call, of=of)
            else:
                yield replace(place.path, self.value, index=self.index, call=call, of=of)

    def calls(self) -> list[PythonCall]:
        if self.cut:
            return [_call("ablate", place, self.index) for place in self.places]
        return [_call("replace", place, self.index, literal(self.value)) for place in self.places]


def detached(x: Tensor) -> Tensor:
    """What each use of a frozen leaf gets: it sends no gradient back."""
    return x.detach()


@dataclass(frozen=True)
class Hold(Change):
    """Keeps a value as it is now, whatever else changes; it sends no gradient back."""

    place: Address
    value: Array

    def contexts(self) -> Iterator[Replacement]:
        yield replace(self.place.path, self.value, call=self.place.call, of=self.place.of)

    def lines(self, call: str) -> Iterator[str]:
        yield f"with changed(), mg.capture({self.place.path!r}) as seen:"
        yield f"    {call}"
        yield f"held = [*seen][{self.place.call or 0}].value"
        yield f"changes.append({_call('replace', self.place, None, 'held').partial})"


@dataclass(frozen=True)
class OptimizerStep(Change):
    """One step of an optimizer: the values that it gave the entries of one kind.

    Attributes:
        state: the optimizer's after it.  continues: it began from the state of the step before.
        inside: whether the function runs backward itself.
    """

    optimizer: str
    lr: float
    kind: str
    values: dict[Address, Array]
    state: StateDict
    continues: bool
    inside: bool

    def contexts(self) -> Iterator[Replacement]:
        for place, value in self.values.items():
            yield replace(place.path, value, call=place.call, of=place.of)

    def lines(self, call: str) -> Iterator[str]:
        yield "with changed(), mg.trace() as t:"
        yield f"    {call}{'' if self.inside else '.backward()'}"
        yield f"moved = [e for e in t if e.kind == {self.kind!r} and e.gradient is not None]"
        yield "weights = [mg.tensor(e.value, requires_grad=True) for e in moved]"
        yield "for w, e in zip(weights, moved, strict=True):"
        yield "    w.grad = e.gradient.copy()"
        yield f"optimizer = {self.optimizer}(weights, lr={self.lr!r})"
        if self.continues:
            yield "optimizer.load_state_dict(state)"
        yield "optimizer.step()"
        yield "state = optimizer.state_dict()"
        anchored = any(place.path.startswith("/") for place in self.values)
        path = 'f"/{e.path}"' if anchored else "e.path"
        calls = [place.call for place in self.values]
        if all(call is None for call in calls):
            yield "for w, e in zip(weights, moved, strict=True):"
            yield f"    changes.append(partial(mg.replace, {path}, w.numpy()))"
        else:
            yield f"calls = {calls}  # of parameters of one path, in the order of their first use"
            yield "for w, e, call in zip(weights, moved, calls, strict=True):"
            yield f"    changes.append(partial(mg.replace, {path}, w.numpy(), call=call))"


@dataclass(frozen=True)
class Given(Change):
    """The function is called with another argument."""

    name: str
    value: Argument

    def given(self) -> dict[str, Argument]:
        return {self.name: self.value}

    def overwrites(self, before: Change) -> bool:
        return isinstance(before, Given) and before.name == self.name


def arguments_of(changes: Sequence[Change]) -> dict[str, Argument]:
    """The arguments of the function after these changes."""
    return {name: value for change in changes for name, value in change.given().items()}


def _call(name: str, place: Address, index: Position, *values: str) -> PythonCall:
    given = [repr(place.path), *values]
    given += [f"index={index!r}"] if index is not None else []
    given += [f"{option}={x!r}" for option, x in place.options().items()]
    return PythonCall(name, ", ".join(given))


def literal(value: Argument | Detach) -> str:
    """A value as Python writes it, infinities as NumPy's; of what freezes, the function."""
    if value is detached:
        return "lambda x: x.detach()"
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "np.inf", "-inf": "-np.inf"}.get(str(value), "np.nan")
    return repr(value)


def python_of(changes: Sequence[Change], source: str, function: str, inside: bool) -> str:
    """A program that makes the same run.

    Args: source: statements that define the function.  inside: whether it runs backward itself.
    """

    def call(number: int) -> str:
        given = arguments_of(changes[:number]).items()
        return f"{function}({', '.join(f'{name}={literal(value)}' for name, value in given)})"

    body = [f"L = {call(len(changes))}"] + ([] if inside else ["L.backward()"])
    lines, head = list[str](), list[str]()
    if any([*change.lines("")] and not change.calls() for change in changes):
        lines = [line for i, change in enumerate(changes) for line in change.lines(call(i))]
        lines = [*CHANGED, *lines]
        head = ["with changed():"]
    elif contexts := [one for change in changes for one in change.calls()]:
        head = ["with (", *(f"    {one}," for one in contexts), "):"]
    text = "\n".join([*lines, *head, *(f"    {line}" if head else line for line in body)])
    imports = ["from contextlib import ExitStack, contextmanager"] if "ExitStack" in text else []
    imports += ["from functools import partial\n"] if imports else []
    imports += ["import numpy as np\n"] if "np." in text else []
    imports.append("import minigrad as mg")
    used = sorted({change.optimizer for change in changes if isinstance(change, OptimizerStep)})
    imports += [f"from minigrad.optim import {', '.join(used)}"] if used else []
    return "\n".join([*imports, "", source, "", text, "print(L.item())", ""])
