"""The surroundings of a call: whether the graph is recorded, the scope, and who observes.

All three are in one `Context`, which nobody changes, in one ContextVar: threads and asyncio tasks
never disturb each other, and an op pays one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Self, TypeAlias, TypeVar

from .errors import ArgumentError
from .observer import Observer

__all__ = [
    "Context",
    "ContextChange",
    "ScopeCall",
    "current",
    "enable_grad",
    "listening",
    "no_grad",
    "observe",
    "say",
    "scope",
]

F = TypeVar("F", bound=Callable[..., Any])
Owner: TypeAlias = "Callable[[], Any] | None"  # a weak reference to a module; None of a plain name


@dataclass(eq=False, slots=True)
class ScopeCall:
    """One call of a module, or one `with mg.scope(name)`: each time that it is entered, a new one.

    Attributes:
        name: of the scope; of the outermost call, within which all others are, the empty string.
        owner: a weak reference to the module that was called; None of a `with`.
        outer: the call within which this one was entered.
    """

    name: str
    owner: Owner = None
    outer: ScopeCall | None = None

    @property
    def path(self) -> str:
        """The names of the calls from outside in, as in `encoder/attn`."""
        around = "" if self.outer is None else self.outer.path
        return f"{around}/{self.name}" if around else self.name


_OUTERMOST_CALL = ScopeCall("")


@dataclass(eq=False, slots=True)
class Context:
    """What surrounds a call, and `outer`, which is restored on leaving; never changed once made."""

    recording: bool = True
    call: ScopeCall = _OUTERMOST_CALL
    observers: Sequence[Observer] = ()
    outer: Context | None = None

    @property
    def scope(self) -> str:
        return self.call.path


_OUTERMOST = Context()
_CURRENT: ContextVar[Context] = ContextVar("minigrad.context", default=_OUTERMOST)
current = _CURRENT.get


class ContextChange(ContextDecorator):
    """A `with` block or decorator, within which some fields of the context are others.

    It keeps no state, so one object may be entered many times, nested and by several threads.
    """

    __slots__ = ()

    def changed(self, now: Context) -> Context:
        """What surrounds the calls within; its `outer` is `now`."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        _CURRENT.set(self.changed(current()))
        return self

    def __exit__(self, *exception: object) -> None:
        _CURRENT.set(current().outer or _OUTERMOST)

    def __call__(self, function: F) -> F:
        runs_later = iscoroutinefunction(function) or isasyncgenfunction(function)
        if runs_later or isgeneratorfunction(function):
            raise ArgumentError(
                f"{type(self).__name__}() cannot decorate {function.__name__}: the body of a "
                "generator or coroutine runs after the call has ended; decorate a plain function "
                "that it calls"
            )
        return super().__call__(function)


class no_grad(ContextChange):
    """Within, no graph is recorded: results never require a gradient.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with mg.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ()

    def changed(self, now: Context) -> Context:
        return Context(False, now.call, now.observers, now)


class enable_grad(ContextChange):
    """Within, ops record again, even inside `no_grad()`."""

    __slots__ = ()

    def changed(self, now: Context) -> Context:
        return Context(True, now.call, now.observers, now)


class scope(ContextChange):
    """Name a part of the model: what is made within carries the path, and views draw it as a box.

    Raises: ArgumentError for a name that is no text, or empty.

    >>> import minigrad as mg
    >>> x = mg.tensor(3.0, requires_grad=True)
    >>> with mg.scope("encoder"), mg.scope("attn"):
    ...     y = x * x
    >>> y.node.scope
    'encoder/attn'
    """

    __slots__ = ("name", "owner")

    def __init__(self, name: str, owner: Owner = None) -> None:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"scope(name): a name is a non-empty string, got {name!r}")
        self.name = name
        self.owner = owner

    def changed(self, now: Context) -> Context:
        call = ScopeCall(self.name, self.owner, now.call)
        return Context(now.recording, call, now.observers, now)


class observe(ContextChange):
    """Within, `observer` is told of every op and every backward step."""

    __slots__ = ("observer",)

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def changed(self, now: Context) -> Context:
        return Context(now.recording, now.call, (*now.observers, self.observer), now)


def say(kind: str, **facts: Any) -> list[Any]:
    """Tell every observer, and return what they answered: see `Observer.said`."""
    return [observer.said(kind, **facts) for observer in current().observers]


def listening() -> bool:
    """Whether anybody observes: what is said to nobody need not be computed."""
    return bool(current().observers)
