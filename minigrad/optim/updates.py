"""Updates of weights, gradients or settings: each is one event for listeners and observers.

A compiled step repeats such an update by calling it again, without recording what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..engine.errors import ArgumentError, DTypeError
from ..engine.listener import Listener, Observer, notify, observers
from ..engine.tensor import Tensor, mark_parameter

__all__ = [
    "ObservedSetting",
    "Observer",
    "check_state",
    "checked_parameters",
    "observers",
    "update",
]


class ObservedSetting:
    """An attribute whose reads notify listeners: a compiled step depends on what it reads."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, holder: object | None, kind: type) -> Any:
        if holder is None:
            return self
        if self.name not in vars(holder):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {self.name!r}")
        value = vars(holder)[self.name]
        notify(Listener.setting_read, holder, self.name, value)
        return value

    def __set__(self, holder: object, value: Any) -> None:
        vars(holder)[self.name] = value


@contextmanager
def update(owner: object, again: Callable[[], object]) -> Iterator[list[object]]:
    """Notify listeners before and after; `again` repeats the update. Put its result in the list.

    A listener that follows an outer update answers False to `update_started`; then no listener
    gets `update_finished` for the inner one.
    """
    within_another = False in notify(Listener.update_started, owner, again)
    for observer in observers:
        observer.before_update(owner)
    result: list[object] = []
    yield result
    if not within_another:
        notify(Listener.update_finished, owner, again, result[0] if result else None)
    for observer in observers:
        observer.after_update(owner)


def check_state(kind: str, state: Mapping[str, object], names: Iterable[str]) -> None:
    """Raise ArgumentError, naming what is missing, unless a state has all of these."""
    if missing := [name for name in names if name not in state]:
        raise ArgumentError(
            f"load_state_dict(state): this is no state of a {kind}: it has no {', '.join(missing)}"
        )


def checked_parameters(call: str, parameters: object) -> list[Tensor]:
    """The parameters as a list, marked so that views call them parameters.

    Raises: DTypeError unless each is a leaf Tensor; ArgumentError if there is none, if one comes
        twice, or if one needs no gradient.
    """
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        hint = "[w]" if kind == "Tensor" else "model.parameters()"
        raise DTypeError(
            f"{call}: parameters must be a list of Tensors, got a {kind}; write {hint}"
        )
    found = list(parameters)
    if not found:
        raise ArgumentError(f"{call}: got no parameters")
    first: dict[int, int] = {}
    for i, p in enumerate(found):
        if not isinstance(p, Tensor) or not p.is_leaf:
            what = " ".join(repr(p).split())
            hint = "; write model.parameters()" if hasattr(p, "parameters") else ""
            raise DTypeError(f"{call}: each must be a leaf Tensor, got {what:.80}{hint}")
        if not p.requires_grad:
            raise ArgumentError(
                f"{call}: {_said(p, i)} needs no gradient and would never move; leave it out: "
                "[p for p in parameters if p.requires_grad]; or train it: p.requires_grad_()"
            )
        if first.setdefault(id(p), i) != i:
            raise ArgumentError(
                f"{call}: {_said(p, first[id(p)])} comes again at {i}; it would move twice a step"
            )
        mark_parameter(p)
    return found


def _said(p: Tensor, position: int) -> str:
    return f"parameter {position}{f' ({p.name})' if p.name else ''} of shape {p.shape}"
