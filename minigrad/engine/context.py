"""The surroundings of a call: whether the graph is recorded, the scope, and the listeners.

All of it is one immutable `Context` in one ContextVar, so threads and asyncio tasks never disturb
each other, and an op pays one look-up for the three of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Self

from .errors import ArgumentError
from .types import Function

if TYPE_CHECKING:
    from .listener import Listener

__all__ = [
    "Context",
    "ContextChange",
    "current",
    "enable_grad",
    "no_grad",
    "observe",
    "scope",
    "use_context",
]


@dataclass(slots=True, eq=False)
class Context:
    """What surrounds a call, and `outer`, the context that is restored on leaving this one."""

    recording: bool
    scope: str
    listeners: tuple[Listener, ...]
    outer: Context | None = None


_OUTERMOST = Context(True, "", ())
_CURRENT: ContextVar[Context] = ContextVar("minigrad.context", default=_OUTERMOST)
current = _CURRENT.get


class ContextChange:
    """Base of `no_grad`, `scope` and the like: another context, as `with` block or decorator.

    It keeps no state of its own, so one object may be entered many times, nested and by several
    threads.
    """

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        raise NotImplementedError

    def __enter__(self) -> Self:
        before = current()
        try:
            _CURRENT.set(self._changed(before))
            return self
        except BaseException:  # Ctrl-C after `set`: Python neither enters the block nor leaves it
            _CURRENT.set(before)
            raise

    def __exit__(self, *exception: object, now: Context | None = None) -> None:
        try:
            now = current()
            _CURRENT.set(now.outer or now)
        except BaseException:  # Ctrl-C: leave all the same
            now = now or current()
            _CURRENT.set(now.outer or now)
            raise

    def __call__(self, function: Function) -> Function:
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise ArgumentError(
                f"a generator function cannot be decorated with {type(self).__name__}: "
                "its body runs after the call has ended; write `with` inside it"
            )
        if iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return awaited  # type: ignore[return-value]

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


class no_grad(ContextChange):
    """Within, ops record no graph: results never require a gradient.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with mg.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        return Context(False, now.scope, now.listeners, now)


class enable_grad(ContextChange):
    """Within, ops record again, even inside `no_grad()`."""

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        return Context(True, now.scope, now.listeners, now)


class scope(ContextChange):
    """Name a part of the model: nodes made within carry the path, and views draw it as a box.

    Scopes nest: inside `scope("encoder")`, `scope("attn")` gives the path `encoder/attn`.

    Raises: ArgumentError if the name is empty.

    >>> import minigrad as mg
    >>> x = mg.tensor(3.0, requires_grad=True)
    >>> with mg.scope("encoder"), mg.scope("attn"):
    ...     y = x * x
    >>> y.node.scope
    'encoder/attn'
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"scope(name): name must be a non-empty string, got {name!r}")
        self.name = name

    def _changed(self, now: Context) -> Context:
        path = f"{now.scope}/{self.name}" if now.scope else self.name
        return Context(now.recording, path, now.listeners, now)


class observe(ContextChange):
    """Within, `observer` is told of every op and every backward step."""

    __slots__ = ("observer",)

    def __init__(self, observer: Listener) -> None:
        self.observer = observer

    def _changed(self, now: Context) -> Context:
        return Context(now.recording, now.scope, (*now.listeners, self.observer), now)


class use_context(ContextChange):
    """Within, the surroundings are those of `context`."""

    __slots__ = ("context",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def _changed(self, now: Context) -> Context:
        return Context(self.context.recording, self.context.scope, self.context.listeners, now)
