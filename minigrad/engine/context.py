"""What surrounds a call: is the graph being recorded, in which scope, and who listens.

All of it is one immutable `Context` in one ContextVar, so threads and asyncio tasks never disturb
each other, and an op pays one look-up for the three of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from .errors import ArgumentError

__all__ = [
    "Change",
    "Context",
    "Listener",
    "current",
    "enable_grad",
    "expect_gradients",
    "listen",
    "listening",
    "mark_constant",
    "mark_input",
    "no_grad",
    "scope",
    "tell",
    "within",
]


class Listener:
    """Hears of every op that runs and of every backward step. Override what you need.

    Further events, of which few need to hear, are told by name (see `tell`): one that records
    programs has methods `read`, `made`, `assigned` and the like.

    Attributes:
        shows_inputs: whether it wants the gradients of inputs that nobody else asks for.
        changes_values: whether it puts other values into a run, and so into its second run too.
    """

    shows_inputs = True
    changes_values = False

    def enter(self, op: Any, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> None:
        """An op is about to run."""

    def forward(
        self,
        op: Any,
        inputs: tuple[Any, ...],
        settings: tuple[Any, ...],
        output: Any,
        seconds: float,
    ) -> None:
        """An op ran; `output` is its Tensor, whose node is None when nothing was recorded."""

    def backward(self, node: Any, gradient: Any, contributions: list[Any], seconds: float) -> None:
        """A node's rules ran: `contributions` are what it sends along `node.edges`, in order."""

    def arrived(self, leaf: Any, gradient: Any) -> None:
        """A leaf's whole gradient is known."""

    def mark_input(self, tensor: Any) -> None:
        """A layer was handed this tensor: it is an input, not a parameter."""

    def expect_gradients(self, steps: Callable[..., Any], symbols: dict[str, Any]) -> None:
        """A layer says which hand-derived steps its gradients must equal, and what is what."""


class Context:
    """One setting of the surroundings, and the one around it, to which leaving it goes back."""

    __slots__ = ("listeners", "outer", "recording", "scope")

    def __init__(
        self,
        recording: bool,
        scope: str,
        listeners: tuple[Listener, ...],
        outer: Context | None = None,
    ) -> None:
        self.recording, self.scope, self.listeners, self.outer = recording, scope, listeners, outer


_OUTERMOST = Context(True, "", ())
_CURRENT: ContextVar[Context] = ContextVar("minigrad.context", default=_OUTERMOST)
current = _CURRENT.get


class Change:
    """Enter changed surroundings, leave to the ones before. Works as `with` and as a decorator.

    It keeps no state of its own, so one object may be entered many times, nested and by several
    threads.
    """

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        raise NotImplementedError

    def __enter__(self) -> Any:
        before = current()
        try:
            _CURRENT.set(self._changed(before))
            return self
        except BaseException:  # Ctrl-C right after it: the block will not be entered, nor left
            _CURRENT.set(before)
            raise

    def __exit__(self, *exception: object, now: Any = None) -> None:
        try:
            now = current()
            _CURRENT.set(now.outer or now)
        except BaseException:  # Ctrl-C anywhere in it: leave all the same
            now = now or current()
            _CURRENT.set(now.outer or now)
            raise

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
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

            return awaited

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


class no_grad(Change):
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


class enable_grad(Change):
    """Within, ops record again, even inside `no_grad()`."""

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        return Context(True, now.scope, now.listeners, now)


class scope(Change):
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


class listen(Change):
    """Within, `listener` hears of every op and every backward step."""

    __slots__ = ("listener",)

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def _changed(self, now: Context) -> Context:
        return Context(now.recording, now.scope, (*now.listeners, self.listener), now)


def tell(event: str, *args: Any) -> list[Any]:
    """Call the method of that name on each listener that has one; what they answered."""
    answers = []
    for listener in current().listeners:
        method = getattr(listener, event, None)
        if method is not None:
            answers.append(method(*args))
    return answers


def mark_constant(array: Any) -> Any:
    """Say that this array is the same at every call, whatever the arguments hold; returns it."""
    tell("mark_constant", array)
    return array


def listening() -> bool:
    """Whether anyone hears what is said here."""
    return bool(current().listeners)


def mark_input(*values: Any) -> None:
    """Say what a layer was handed: a record calls these tensors inputs, not parameters."""
    if not current().listeners:
        return
    for value in values:
        if hasattr(value, "__apply__"):
            tell("mark_input", value)


def expect_gradients(steps: Callable[..., Any], of: Any = None, /, **symbols: Any) -> None:
    """Say which hand-derived steps the gradients here must equal; a trace measures whether they do.

    Args:
        steps: called with those of `symbols` that its parameters name, as arrays, and with
            `grad_output`, the gradient of what is named `out`; returns steps, each with a number,
            a title and gradients by symbol.
        of: a layer whose Tensors bear symbols as their attributes' names.
        symbols: what the steps' symbols are in this run: tensors, arrays, plain values, or the
            name of a tensor. Tensors of this scope that bear a symbol's name need no mention.
    """
    listeners = current().listeners
    if listeners and of is not None:
        own = {name: x for name, x in vars(of).items() if hasattr(x, "__apply__")}
        symbols = own | symbols
    tell("expect_gradients", steps, symbols)


class within(Change):
    """Within, the surroundings are exactly `context`: so `checkpoint` goes back to where it ran."""

    __slots__ = ("context",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def _changed(self, now: Context) -> Context:
        return Context(self.context.recording, self.context.scope, self.context.listeners, now)
