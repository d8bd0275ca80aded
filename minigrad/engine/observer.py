"""Observer: who is told of what runs. A trace, a watch, a replacement, a compiled step are some.

The engine knows none of them. What layers, optimizers and leaves have to say beside goes through
`said`, by kind:

| kind | facts | said by |
|---|---|---|
| `leaf` | leaf, data | `tensor(data)` |
| `read` | tensor, array | `numpy()`, `item()` and the like: entries leave the graph |
| `write` | tensor, array | `assign_`, before it writes |
| `backward`, `added` | output, seed; then gradients | `backward()`, before it and after |
| `grad`, `found` | output, seed; then wanted, gradients | `mg.grad`; an answer takes their place |
| `cleared` | parameters | `zero_grad()` |
| `update`, `updated` | owner, again; result too | optimizers and clipping, around an update |
| `input` | tensor | `mg.mark_input` |
| `expect` | steps, symbols | `mg.expect_gradients` |
| `constant` | array | `mg.mark_constant`: it is the same at every call |
"""

from __future__ import annotations

from typing import Any

__all__ = ["Observer"]


class Observer:
    """Override what you want to be told; each method may be left out.

    Attributes:
        shows_inputs: gradients are computed also for leaves made by `leaf_on_demand`.
        takes_sparse: gradients are sent as rules gave them, a SparseGradient too; else as arrays.

    >>> import minigrad as mg
    >>> class Shapes(mg.Observer):
    ...     def made(self, op, inputs, settings, result, seconds):
    ...         print(op.name, result.shape)
    >>> with mg.observe(Shapes()):
    ...     x = mg.exp(mg.tensor([1.0, 2.0]))
    exp (2,)
    """

    shows_inputs = True
    takes_sparse = False

    # The arguments are an Op, Tensors and Nodes; they are not named here, so that no file of the
    # engine imports another in a circle.

    def before(self, op: Any, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Any:
        """An op is about to run. Other inputs that are returned take the place of these."""

    def made(self, op: Any, inputs: Any, settings: Any, result: Any, seconds: float) -> Any:
        """An op ran. A Tensor that is returned takes the place of the result."""

    def named(self, tensor: Any) -> Any:
        """A tensor got its name. A Tensor that is returned takes its place: see `Tensor.named`."""

    def sent(self, node: Any, gradient: Any, parts: list[Any], seconds: float) -> None:
        """A node's rules ran; it sends `parts` along `node.edges`."""

    def arrived(self, leaf: Any, gradient: Any) -> None:
        """A leaf's whole gradient is known."""

    def said(self, kind: str, **facts: Any) -> Any:
        """A layer, an optimizer or a leaf says something of itself: see the table above."""
