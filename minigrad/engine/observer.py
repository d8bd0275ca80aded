"""Observer: who is told of what runs. A trace, a watch, an intervention, a compiled step are some.

The engine knows none of them. What layers, optimizers and leaves have to say beside goes through
`said`, by kind:

| kind | facts | said by |
|---|---|---|
| `write` | tensor, array | `assign_`, before it writes |
| `leaf` | leaf, data | `tensor(data)` |
| `read` | tensor, array | `numpy()`, `item()`, `data`: entries are taken out of the graph |
| `backward` | output, seed, retain | `backward()`; the answer True says that the observer ran it |
| `grad` | output, seed, wanted, retain | `mg.grad`; an answer that is a list holds the gradients |
| `cleared` | parameters | `zero_grad()` |
| `update`, `updated` | owner, again; result too | optimizers and clipping, around an update |
| `input` | tensor | `mg.mark_input` |
| `expect` | steps, symbols | `mg.expect_gradients` |
| `constant` | array | an array that is the same at every call |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .context import current
from .context import observe as observe
from .listener import Listener

if TYPE_CHECKING:
    from .op import Op
    from .tensor import Node, Tensor

__all__ = ["Observer", "observe", "say"]


class Observer(Listener):
    """Override what you want to be told; each method may be left out.

    >>> import minigrad as mg
    >>> class Names(Observer):
    ...     def made(self, op, inputs, settings, result, seconds):
    ...         print(op.name, result.shape)
    >>> with observe(Names()):
    ...     x = mg.exp(mg.tensor([1.0, 2.0]))
    exp (2,)
    """

    def before(self, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Any:
        """An op is about to run. Other inputs that are returned take the place of these."""

    def made(self, op: Op, inputs: Any, settings: Any, result: Tensor, seconds: float) -> Any:
        """An op ran. A Tensor that is returned takes the place of the result."""

    def named(self, tensor: Tensor) -> Any:
        """A tensor got its name. A Tensor that is returned takes its place."""

    def sent(self, node: Node, gradient: Any, parts: list[Any], seconds: float) -> None:
        """A node's rules ran; it sends `parts` along `node.edges`."""

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        """A leaf's whole gradient is known."""

    def said(self, kind: str, **facts: Any) -> Any:
        """A layer, an optimizer or a leaf says something of itself: see the table above."""

    # ------------------------------------------------------------------ today's events

    changes_values = True

    def change_arguments(self, op: Op, inputs: Any, settings: Any) -> tuple[Any, Any]:
        return self.before(op, inputs, settings) or inputs, settings

    def forward(self, op: Op, inputs: Any, settings: Any, output: Tensor, seconds: float) -> Any:
        return self.made(op, inputs, settings, output, seconds)

    def tensor_named(self, tensor: Tensor) -> Any:
        return self.named(tensor)

    def backward(self, node: Node, gradient: Any, contributions: Any, seconds: float) -> None:
        self.sent(node, gradient, contributions, seconds)

    def leaf_created(self, leaf: Tensor, data: object) -> None:
        self.said("leaf", leaf=leaf, data=data)

    def data_read(self, tensor: Tensor, array: Any, whole: bool) -> Any:
        return self.said("read", tensor=tensor, array=array)

    def tensor_assigned(self, tensor: Tensor, array: Any, index: Any = ...) -> None:
        self.said("write", tensor=tensor, array=array)

    def intercept_backward(self, output: Tensor, seed: Any, retain: bool) -> bool:
        return bool(self.said("backward", output=output, seed=seed, retain=retain))

    def intercept_grad(self, output: Tensor, seed: Any, wanted: list[Tensor], retain: bool) -> Any:
        return self.said("grad", output=output, seed=seed, wanted=wanted, retain=retain)

    def gradients_cleared(self, parameters: Any) -> None:
        self.said("cleared", parameters=parameters)

    def update_started(self, owner: object, again: Callable[[], object]) -> bool | None:
        answer = self.said("update", owner=owner, again=again)
        return None if answer is None else bool(answer)

    def update_finished(self, owner: object, again: Callable[[], object], result: object) -> None:
        self.said("updated", owner=owner, again=again, result=result)

    def mark_input(self, tensor: Tensor) -> None:
        self.said("input", tensor=tensor)

    def mark_constant(self, array: Any) -> None:
        self.said("constant", array=array)

    def expect_gradients(self, steps: Any, symbols: dict[str, object]) -> None:
        self.said("expect", steps=steps, symbols=symbols)


def say(kind: str, **facts: Any) -> list[Any]:
    """Tell every observer, and return what they answered."""
    observers = [x for x in current().listeners if isinstance(x, Observer)]
    return [observer.said(kind, **facts) for observer in observers]
