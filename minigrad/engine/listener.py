"""Listener: who is notified of what a run does, one method for each event.

A trace, a watch and a compiled step are listeners. The engine
notifies those that `listen` put into the surroundings, and knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from .context import Context, ContextChange, current

if TYPE_CHECKING:
    from .op import Op
    from .tensor import Node, Tensor, TensorOrArray
    from .types import Arguments, Array, Gradient, Index

__all__ = [
    "Listener",
    "Observer",
    "clear_gradients",
    "expect_gradients",
    "hand_derived",
    "listen",
    "listening",
    "mark_constant",
    "mark_input",
    "notify",
    "observers",
]

P = ParamSpec("P")
R = TypeVar("R")
HandDerived: TypeAlias = Callable[..., Any]  # of symbols, by name, to steps with their gradients


class Listener:
    """Base class of what is notified of every op and every backward step; override its methods.

    Attributes:
        shows_inputs: gradients are computed also for inputs made with requires_grad="on demand".
        changes_values: it puts other values into a run.
    """

    shows_inputs = True
    changes_values = False

    # ------------------------------------------------------------------ ops and gradients

    def enter(self, op: Op, inputs: Arguments, settings: Arguments) -> None:
        """An op is about to run."""

    def change_arguments(
        self, op: Op, inputs: Arguments, settings: Arguments
    ) -> tuple[Arguments, Arguments]:
        """The arguments that an op gets; called only on listeners with `changes_values`."""
        return inputs, settings

    def forward(
        self,
        op: Op,
        inputs: Arguments,
        settings: Arguments,
        output: Tensor,
        seconds: float,
    ) -> Tensor | None:
        """An op ran; `output` is its Tensor, whose node is None when nothing was recorded.

        A Tensor that is returned takes its place.
        """
        return None

    def backward(
        self, node: Node, gradient: TensorOrArray, contributions: list[Gradient], seconds: float
    ) -> None:
        """A node's rules ran: `contributions` are what it sends along `node.edges`, in order."""

    def arrived(self, leaf: Tensor, gradient: TensorOrArray) -> None:
        """A leaf's whole gradient is known."""

    # ------------------------------------------------------------------ notes of layers

    def mark_input(self, tensor: Tensor) -> None:
        """A layer was called with this tensor: it is an input, not a parameter."""

    def mark_constant(self, array: Array) -> None:
        """This array is the same at every call, whatever the arguments hold."""

    def expect_gradients(self, steps: HandDerived | str, symbols: dict[str, object]) -> None:
        """A layer says which hand-derived steps its gradients must equal, and what is what."""

    # ------------------------------------------------------------------ tensors

    def leaf_created(self, leaf: Tensor, data: object) -> None:
        """`tensor(data)` made this leaf, which holds a copy of data."""

    def tensor_named(self, tensor: Tensor) -> Tensor | None:
        """A tensor was given a name. A Tensor that is returned takes its place."""
        return None

    def tensor_used(self, values: Sequence[object]) -> None:
        """An op, a backward or a reader is about to use these tensors: their names are final."""

    def data_read(self, tensor: Tensor, array: Array, whole: bool) -> Array | None:
        """The entries are read outside the graph; an array returned is what the reader gets.

        whole: the reader is another library, whose use of the entries cannot be followed.
        """

    def memory_overwritten(self, array: Array) -> None:
        """An array's entries, or some of them, are about to be overwritten in place."""

    def tensor_assigned(self, tensor: Tensor, array: Array, index: Index = ...) -> None:
        """The entries at `index` were overwritten by those of `array`."""

    def tensor_replaced(self, tensor: Tensor, new: Tensor) -> None:
        """An intervention is about to put the value of `new` in the place of `tensor`."""

    def argument_replaced(self) -> None:
        """An op is about to run with another argument than the one it was called with."""

    def tensor_detached(self, tensor: Tensor) -> None:
        """A tensor without a node was made of another one's entries."""

    def context_resumed(self, context: Context, made: Context) -> None:
        """What runs in `context` belongs to the call whose surroundings were `made`."""

    # ------------------------------------------------------------------ gradients and updates

    def intercept_backward(self, output: Tensor, seed: TensorOrArray, retain: bool) -> bool:
        """`output.backward()` is about to run; True says that the listener has run it."""
        return False

    def intercept_grad(
        self, output: Tensor, seed: TensorOrArray, wanted: list[Tensor], retain: bool
    ) -> list[Array] | None:
        """`mg.grad` is about to run; a list returned holds the gradients in its place."""

    def gradients_cleared(self, parameters: Sequence[Tensor]) -> None:
        """The gradients of these parameters were forgotten, by an optimizer or a module."""

    def setting_read(self, owner: object, name: str, value: object) -> None:
        """An attribute of an optimizer or of a schedule was read."""

    def setting_written(self, owner: object, name: str, value: object) -> None:
        """An attribute of an optimizer was set."""

    def update_started(self, owner: object, again: Callable[[], object]) -> bool | None:
        """Weights, gradients or settings are about to be updated; `again()` repeats the update.

        False says that it is a part of an update that has started before.
        """

    def update_finished(self, owner: object, again: Callable[[], object], result: object) -> None:
        """That update is done."""

    def replaces_update(self, owner: object) -> bool:
        """Whether the update that a compiled step is about to repeat is to be left out."""
        return False

    def refuse(self, reason: str, remedy: str = "") -> None:
        """The run does what no recorded program could repeat; `remedy` says what to do about it."""


def notify(event: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
    """Call that method of `Listener` on each listener, and return what they answered.

    >>> class Names(Listener):
    ...     def tensor_named(self, tensor):
    ...         print(tensor.name)
    >>> import minigrad as mg
    >>> with listen(Names()):
    ...     x = mg.tensor([1.0]).named("x")
    x
    """
    listeners = current().listeners
    name = event.__name__
    return [getattr(listener, name)(*args, **kwargs) for listener in listeners]


class listen(ContextChange):
    """Within, `listener` is notified of every op and every backward step."""

    __slots__ = ("listener",)

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def _changed(self, now: Context) -> Context:
        return Context(now.recording, now.scope, (*now.listeners, self.listener), now)


def listening() -> bool:
    """Whether there is a listener here."""
    return bool(current().listeners)


class Observer:
    """Is notified of every update, also in compiled steps, which listeners do not follow."""

    def before_update(self, owner: object) -> None:
        """The owner, such as an optimizer, is about to update."""

    def after_update(self, owner: object) -> None:
        """The owner has updated."""

    def gradients_cleared(self, parameters: Sequence[Tensor]) -> None:
        """The gradients of these parameters were forgotten."""


observers: list[Observer] = []


def clear_gradients(parameters: Sequence[Tensor]) -> None:
    """Set `.grad` of these parameters to None; a compiled step is told of it where it is None
    already.
    """
    for parameter in parameters:
        parameter.grad = None
    notify(Listener.gradients_cleared, parameters)
    for observer in observers:
        observer.gradients_cleared(parameters)


def mark_constant(array: Array) -> Array:
    """Say that this array is the same at every call, whatever the arguments hold; returns it."""
    notify(Listener.mark_constant, array)
    return array


def mark_input(*values: object) -> None:
    """Say what a layer was called with: a record calls these tensors inputs, not parameters."""
    if not current().listeners:
        return
    for value in values:
        if hasattr(value, "__apply__"):
            notify(Listener.mark_input, value)  # type: ignore[arg-type]


hand_derived: dict[str, HandDerived] = {}
"""By an op's name, its backward steps derived by hand, which each of its runs must equal; `layers`
puts its own here.

They are called with those of the op's inputs and settings that their parameters name, as arrays,
and with `grad_output`; the steps that they return are as `expect_gradients` says, and a symbol that
is an input's name is held against what the op's rule gave to it. A call with a setting that they do
not name is said to be not covered.
"""


def expect_gradients(steps: HandDerived | str, of: object = None, /, **symbols: object) -> None:
    """Say which hand-derived steps the gradients here must equal; a trace measures whether they do.

    Args:
        steps: called with those of `symbols` that its parameters name, as arrays, and with
            `grad_output`, the gradient of what is named `out`; returns steps, each with a number,
            a title and gradients by symbol. Or, as text, a call that no such steps cover.
        of: a layer whose Tensors bear symbols as their attributes' names.
        symbols: what the steps' symbols are in this run: tensors, arrays, plain values, or the
            name of a tensor. Tensors of this scope that bear a symbol's name need no mention.
            `first` is what a function's first op made, if it has no scope of its own.
    """
    if not current().listeners:
        return
    if of is not None:
        symbols = {k: x for k, x in vars(of).items() if hasattr(x, "__apply__")} | symbols
    notify(Listener.expect_gradients, steps, symbols)
