"""Hooks: functions of a user that see gradients during backward, and may replace them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .errors import GradientError
from .types import Gradient
from .writes import next_number

if TYPE_CHECKING:
    from .tensor import Operand

__all__ = ["RETAIN_GRAD", "Handle", "Hook", "NodeHook", "like_gradient", "read_only", "run_hooks"]

Hook: TypeAlias = "Callable[[Gradient], Operand | None]"
NodeHook: TypeAlias = "Callable[[list[Gradient], Gradient], Sequence[Operand | None] | None]"

RETAIN_GRAD = -1  # the key of the hook of retain_grad, which runs last, and never for mg.grad


class Handle:
    """A registered hook; `remove()` takes it off again."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., object]) -> None:
        self._hooks, self._key = hooks, next_number()
        hooks[self._key] = hook

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


def run_hooks(hooks: dict[int, Hook], gradient: Gradient, retain_grad: bool) -> Gradient:
    """Let each hook see the gradient, read-only, and replace it; `retain_grad` sees it last."""
    for key, hook in list(hooks.items()):
        if key == RETAIN_GRAD:
            continue
        gradient = read_only(gradient)
        new = hook(gradient)
        if new is not None:
            if np.shape(new) != gradient.shape:
                raise GradientError(
                    f"hook: replaced a gradient {gradient.shape} by one of shape {np.shape(new)}"
                )
            new = like_gradient(new, gradient)
            gradient = new if new.dtype == gradient.dtype else new.astype(gradient.dtype)
    if retain_grad and RETAIN_GRAD in hooks:
        hooks[RETAIN_GRAD](gradient)
    return gradient


def read_only(gradient: Gradient) -> Gradient:
    """A view through which no hook can write; a Tensor as it is."""
    if not isinstance(gradient, np.ndarray):
        return gradient
    view = gradient.view()
    view.flags.writeable = False
    return view


def like_gradient(new: Operand, gradient: Gradient) -> Gradient:
    """What a hook gave, as an array; a Tensor stays one where gradients are Tensors."""
    recorded = hasattr(gradient, "__apply__") and hasattr(new, "__apply__")
    return new if recorded else np.asarray(new)
