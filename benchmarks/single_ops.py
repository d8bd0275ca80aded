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
    positive: bool = False
    indices: tuple[int, ...] = ()  # shape of an index below `below`, given after the inputs
    below: int = 0

    @property
    def images(self) -> bool:
        """Whether the first input is (N, C, …)."""
        return len(self.shapes[0]) > 2 and self.title.split()[0] in _OF_IMAGES

    def arrays(self) -> tuple[list[Any], list[Any]]:
        """Inputs that need a gradient, and those that do not."""
        rng = np.random.default_rng(0)
        draw = (lambda s: rng.uniform(0.5, 1.5, s)) if self.positive else rng.standard_normal
        leaves = [np.asarray(draw(shape), np.float32) for shape in self.shapes]
        constants = [rng.integers(0, self.below, self.indices)] if self.indices else []
        return leaves, constants


_OF_IMAGES = ("convolution", "conv1d", "depthwise", "batch_norm", "max_pool", "avg_pool")


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
    name = "conv2d" if len(x) == 4 else "conv1d"
    shapes = (x, weight, weight[:1])
    return SingleOp(title, shapes, _call(name, **settings), functional(name, **settings))


_EVERY = [
    _convolution("convolution 3-32-32", (64, 3, 32, 32), (32, 3, 3, 3), padding=1),
    _convolution("convolution 32-32-32", IMAGES, (32, 32, 3, 3), padding=1),
    _convolution("convolution 32-16-64", (64, 32, 16, 16), (64, 32, 3, 3), padding=1),
    _convolution("convolution 16-16-16", (32, 16, 16, 16), (16, 16, 3, 3), padding=1),
    _convolution("convolution 1×1", IMAGES, (32, 32, 1, 1)),
    _convolution("convolution stride 2", IMAGES, (32, 32, 3, 3), padding=1, stride=2),
    _convolution("convolution dilation 2", IMAGES, (32, 32, 3, 3), padding=2, dilation=2),
    _convolution("convolution 4 groups", IMAGES, (32, 8, 3, 3), padding=1, groups=4),
    _convolution("depthwise convolution", (32, 64, 32, 32), (64, 1, 3, 3), padding=1, groups=64),
    _convolution("conv1d", (32, 64, 1000), (64, 64, 5), padding=2),
    SingleOp(
        "batch_norm",
        (IMAGES, (32,), (32,)),
        _call("batch_norm"),
        lambda torch, x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
    ),
    SingleOp(
        "max_pool", (IMAGES,), _call("max_pool", size=2), functional("max_pool2d", kernel_size=2)
    ),
    SingleOp(
        "avg_pool", (IMAGES,), _call("avg_pool", size=2), functional("avg_pool2d", kernel_size=2)
    ),
    *(_both(name, LARGE) for name in ("exp", "tanh", "sigmoid", "relu")),
    *(
        SingleOp(name, (LARGE,), _call(name), functional(name))
        for name in ("silu", "softplus", "gelu")
    ),
    SingleOp(
        "gelu tanh",
        (LARGE,),
        _call("gelu", approximate="tanh"),
        functional("gelu", approximate="tanh"),
    ),
    SingleOp(
        "layer_norm",
        ((4096, 512), (512,), (512,)),
        _call("layer_norm"),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (512,), w, b),
    ),
    SingleOp(
        "rms_norm",
        ((4096, 512), (512,)),
        _call("rms_norm"),
        lambda torch, x, w: torch.nn.functional.rms_norm(x, (512,), w, 1e-5),
    ),
    SingleOp("softmax", (SCORES,), _call("softmax"), _call("softmax", dim=-1)),
    SingleOp("log_softmax", (SCORES,), _call("log_softmax"), _call("log_softmax", dim=-1)),
    SingleOp(
        "cross_entropy",
        (SCORES,),
        _call("cross_entropy"),
        functional("cross_entropy"),
        indices=(4096,),
        below=1000,
    ),
    SingleOp("sum", (LARGE,), _call("sum", axis=0), _call("sum", dim=0)),
    SingleOp("mean", (LARGE,), _call("mean", axis=0), _call("mean", dim=0)),
    SingleOp("var", (LARGE,), _call("var", axis=0), _call("var", dim=0, correction=0)),
    SingleOp("max", (LARGE,), _call("max", axis=-1), _call("amax", dim=-1)),
    SingleOp("cumsum", (LARGE,), _call("cumsum", axis=-1), _call("cumsum", dim=-1)),
    _both("add", LARGE, LARGE),
    _both("multiply", LARGE, LARGE),
    SingleOp("divide", (LARGE, LARGE), _call("divide"), _call("divide"), positive=True),
    _both("power", LARGE, call=lambda engine, x: x**3),
    _both("maximum", LARGE, LARGE),
    _both("abs", LARGE),
    SingleOp("clip", (LARGE,), _call("clip", low=-1, high=1), _call("clamp", min=-1, max=1)),
    SingleOp(
        "where",
        (LARGE, LARGE),
        lambda mg, a, b: mg.where(a.data > 0, a, b),
        lambda torch, a, b: torch.where(a > 0, a, b),
    ),
    SingleOp(
        "dropout",
        (LARGE,),
        lambda mg, x: mg.dropout(x, 0.1, np.random.default_rng(0)),
        functional("dropout", p=0.1),
    ),
    SingleOp(
        "concatenate",
        (LARGE, LARGE),
        lambda mg, a, b: mg.concatenate([a, b], axis=1),
        lambda torch, a, b: torch.cat([a, b], 1),
    ),
    SingleOp(
        "embedding",
        ((30_000, 256),),
        _call("take", axis=0),
        lambda torch, x, i: torch.nn.functional.embedding(i, x),
        indices=(64, 128),
        below=30_000,
    ),
    _both("matmul", (1024, 1024), (1024, 1024)),
    _both("bmm", (64, 128, 64), (64, 64, 128), call=_call("matmul")),
    SingleOp(
        "attention",
        ((4, 8, 256, 64),) * 3,
        _call("tiled_attention"),
        functional("scaled_dot_product_attention"),
    ),
]
OPS: dict[str, SingleOp] = {op.title: op for op in _EVERY}
