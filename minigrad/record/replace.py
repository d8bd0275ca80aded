"""`mg.replace(path, value)`: a run with another value in the place of a named one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..engine.backward import broadcast_axes
from ..engine.context import current, observe
from ..engine.errors import ArgumentError, ShapeError
from ..engine.observer import Observer
from ..engine.tensor import Tensor
from .calls import RunCalls
from .record import ends_with

__all__ = ["replace"]

NewValue: TypeAlias = "Tensor | ArrayLike | Callable[[Tensor], Tensor | ArrayLike]"

_REPLACING = ContextVar("minigrad.replacing", default=False)  # whether one of them computes


class replace(Observer):
    """Within `with`, another value stands in the place of each tensor of this path.

    What is computed of it later, its gradient and its checks are those of the new value.

    Args:
        path: scope and name, as in a trace, or the end of it: "encoder/attn/A", "A". What has no
            name goes by its op. "pool" stands for every call of it, "pool ·2/A" for the second.
        value: an array or a number, broadcast, through which no gradient flows; a Tensor; or a
            function of the tensor that gives either.
    Raises: ArgumentError on leaving if no tensor had the path.
        ShapeError for a value that does not fit.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with mg.replace("h", lambda h: h * [1.0, 0.0]):
    ...     y = mg.sum((x * x).named("h"))
    >>> y.backward()
    >>> y.item(), x.grad
    (1.0, array([2., 0.]))
    """

    def __init__(self, path: str, value: NewValue) -> None:
        if not isinstance(path, str) or not path:
            raise ArgumentError(f"replace(path, value): a path is a non-empty string, got {path!r}")
        self.path, self.value = path, value
        self._met: dict[str, bool] = {}  # paths of the run, and whether they match
        self._observing = observe(self)

    def __enter__(self) -> Self:
        self._met.clear()
        self._calls = RunCalls()
        self._observing.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._observing.__exit__()
        if kind is None and not any(self._met.values()):
            near = get_close_matches(self.path, self._met, n=3, cutoff=0.4)
            hint = f"; near it are {', '.join(near)}" if near else ""
            raise ArgumentError(f"replace({self.path!r}): no tensor of the run has this path{hint}")

    def made(self, op: Any, inputs: Any, settings: Any, result: Tensor, seconds: float) -> Any:
        return self._instead_of(result, op.name)

    def named(self, tensor: Tensor) -> Any:
        return self._instead_of(tensor, tensor.name or "")

    def _instead_of(self, tensor: Tensor, name: str) -> Tensor | None:
        """What stands in the place of a tensor; None if it stays."""
        if _REPLACING.get():  # what it computes, and its new name, are no reason to replace again
            return None
        call = self._calls.of((current() if tensor.node is None else tensor.node).call)
        path = f"{call.path}/{name}" if call.path else name
        matches = ends_with(f"{call.marked}/{name}", self.path)
        self._met[path] = self._met.get(path, False) or matches
        if not matches:
            return None
        began = _REPLACING.set(True)
        try:
            return self._new(tensor, path).named(name)
        finally:
            _REPLACING.reset(began)

    def _new(self, tensor: Tensor, path: str) -> Tensor:
        """The value that fits in the place of a tensor."""
        new = self.value(tensor) if callable(self.value) else self.value
        shape = np.shape(new)
        fits = not isinstance(new, Tensor) and broadcast_axes(shape, tensor.shape) is not None
        if shape != tensor.shape and not fits:
            raise ShapeError(
                f"replace({self.path!r}, value): {path} has shape {tensor.shape}, got {shape}"
            )
        if isinstance(new, Tensor):
            return new
        return Tensor(np.array(np.broadcast_to(np.asarray(new, tensor.dtype), tensor.shape)))
