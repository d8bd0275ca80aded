"""Single ops, forward and backward, at sizes people train: what each engine is given and calls.

Both get the same arrays. Images lie in memory as the engine's own convolution leaves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["OPS", "SingleOp", "functional"]

LARGE = (2000, 2000)  # 4 M entries
IMAGES = (64, 32, 32, 32)
SCORES = (4096, 1000)


@dataclass(frozen=True)
class SingleOp:
    """One call: the shapes of its inputs, and how each engine writes it."""

    title: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]  # (mg, *inputs)
    theirs: Callable[..., Any]  # (torch, *inputs)
    indices: tuple[int, ...] = ()  # shape of an index below `below`, given after the inputs
    below: int = 0

    @property
    def images(self) -> bool:
        """Whether the first input is (N, C, …)."""
        return len(self.shapes[0]) > 2 and self.title.split()[0] in _OF_IMAGES

    def arrays(self) -> tuple[list[Any], list[Any]]:
        """Inputs that need a gradient, and those that do not."""
        rng = np.random.default_rng(0)
        leaves = [rng.standard_normal(shape, np.float32) for shape in self.shapes]
        constants = [rng.integers(0, self.below, self.indices)] if self.indices else []
        return leaves, constants


_OF_IMAGES = ("convolution", "max_pool")


def _call(name: str, **settings: Any) -> Callable[..., Any]:
    """A call of that name: `minigrad.name(*inputs)`, `torch.name(*inputs)`."""
    return lambda engine, *inputs: getattr(engine, name)(*inputs, **settings)


def functional(name: str, **settings: Any) -> Callable[..., Any]:
    """`torch.nn.functional.name(*inputs)`."""
    return lambda torch, *inputs: getattr(torch.nn.functional, name)(*inputs, **settings)


def _both(title: str, *shapes: tuple[int, ...], call: Callable[..., Any] | None = None) -> SingleOp:
    """What both write alike: the op of that title, unless it is given."""
    call = _call(title) if call is None else call
    return SingleOp(title, shapes, call, call)


def _convolution(title: str, x: Any, weight: Any, **settings: Any) -> SingleOp:
    calls = _call("conv2d", **settings), functional("conv2d", **settings)
    return SingleOp(title, (x, weight, weight[:1]), *calls)


_EVERY = [
    _convolution("convolution 3-32-32", (64, 3, 32, 32), (32, 3, 3, 3), padding=1),
    _convolution("convolution 32-32-32", IMAGES, (32, 32, 3, 3), padding=1),
    _convolution("convolution stride 2", IMAGES, (32, 32, 3, 3), padding=1, stride=2),
    SingleOp(
        "max_pool", (IMAGES,), _call("max_pool", size=2), functional("max_pool2d", kernel_size=2)
    ),
    *(_both(name, LARGE) for name in ("exp", "tanh", "relu")),
    SingleOp("gelu", (LARGE,), _call("gelu"), functional("gelu")),
    SingleOp(
        "layer_norm",
        ((4096, 512), (512,), (512,)),
        _call("layer_norm"),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (512,), w, b),
    ),
    SingleOp("softmax", (SCORES,), _call("softmax"), _call("softmax", dim=-1)),
    SingleOp(
        "cross_entropy",
        (SCORES,),
        _call("cross_entropy"),
        functional("cross_entropy"),
        indices=(4096,),
        below=1000,
    ),
    SingleOp("sum", (LARGE,), _call("sum", axis=0), _call("sum", dim=0)),
    _both("add", LARGE, LARGE),
    _both("power", LARGE, call=lambda engine, x: x**3),
    SingleOp(
        "embedding",
        ((30_000, 256),),
        _call("take", axis=0),
        lambda torch, x, i: torch.nn.functional.embedding(i, x),
        indices=(64, 128),
        below=30_000,
    ),
    _both("matmul", (1024, 1024), (1024, 1024)),
    SingleOp(
        "attention",
        ((4, 8, 256, 64),) * 3,
        _call("tiled_attention"),
        functional("scaled_dot_product_attention"),
    ),
]
OPS: dict[str, SingleOp] = {op.title: op for op in _EVERY}
