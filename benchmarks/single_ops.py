"""Single ops, forward and backward, at sizes people train: what each engine is given and calls.

Both get the same arrays. Images lie in memory as the engine's own convolution leaves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["OPS", "SingleOp"]

LARGE = (2000, 2000)  # 4 M entries
IMAGES = (64, 32, 32, 32)


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
        given = [rng.integers(0, self.below, self.indices)] if self.indices else []
        return leaves, given


_OF_IMAGES = ("convolution", "conv1d", "depthwise", "batch_norm", "max_pool", "avg_pool")


def _entrywise(name: str, theirs: Callable[..., Any] | None = None) -> SingleOp:
    def called(torch: Any, x: Any) -> Any:
        return getattr(torch, name)(x)

    return SingleOp(name, (LARGE,), lambda mg, x: getattr(mg, name)(x), theirs or called)


def _convolution(title: str, x: Any, weight: Any, **settings: Any) -> SingleOp:
    name = "conv2d" if len(x) == 4 else "conv1d"
    return SingleOp(
        title,
        (x, weight, weight[:1]),
        lambda mg, *inputs: getattr(mg, name)(*inputs, **settings),
        lambda torch, *inputs: getattr(torch.nn.functional, name)(*inputs, **settings),
    )


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
        lambda mg, x, w, b: mg.batch_norm(x, w, b),
        lambda torch, x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
    ),
    SingleOp(
        "max_pool",
        (IMAGES,),
        lambda mg, x: mg.max_pool(x, 2),
        lambda torch, x: torch.nn.functional.max_pool2d(x, 2),
    ),
    SingleOp(
        "avg_pool",
        (IMAGES,),
        lambda mg, x: mg.avg_pool(x, 2),
        lambda torch, x: torch.nn.functional.avg_pool2d(x, 2),
    ),
    _entrywise("exp"),
    _entrywise("tanh"),
    _entrywise("sigmoid"),
    _entrywise("relu"),
    _entrywise("silu", lambda torch, x: torch.nn.functional.silu(x)),
    _entrywise("softplus", lambda torch, x: torch.nn.functional.softplus(x)),
    _entrywise("gelu", lambda torch, x: torch.nn.functional.gelu(x)),
    SingleOp(
        "gelu tanh",
        (LARGE,),
        lambda mg, x: mg.gelu(x, approximate="tanh"),
        lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
    SingleOp(
        "layer_norm",
        ((4096, 512), (512,), (512,)),
        lambda mg, x, w, b: mg.layer_norm(x, w, b),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (512,), w, b),
    ),
    SingleOp(
        "rms_norm",
        ((4096, 512), (512,)),
        lambda mg, x, w: mg.rms_norm(x, w),
        lambda torch, x, w: torch.nn.functional.rms_norm(x, (512,), w, 1e-5),
    ),
    SingleOp(
        "softmax",
        ((4096, 1000),),
        lambda mg, x: mg.softmax(x),
        lambda torch, x: torch.softmax(x, -1),
    ),
    SingleOp(
        "log_softmax",
        ((4096, 1000),),
        lambda mg, x: mg.log_softmax(x),
        lambda torch, x: torch.log_softmax(x, -1),
    ),
    SingleOp(
        "cross_entropy",
        ((4096, 1000),),
        lambda mg, x, t: mg.cross_entropy(x, t),
        lambda torch, x, t: torch.nn.functional.cross_entropy(x, t),
        indices=(4096,),
        below=1000,
    ),
    SingleOp("sum", (LARGE,), lambda mg, x: mg.sum(x, axis=0), lambda torch, x: x.sum(0)),
    SingleOp("mean", (LARGE,), lambda mg, x: mg.mean(x, axis=0), lambda torch, x: x.mean(0)),
    SingleOp(
        "var", (LARGE,), lambda mg, x: mg.var(x, axis=0), lambda torch, x: x.var(0, correction=0)
    ),
    SingleOp("max", (LARGE,), lambda mg, x: mg.max(x, axis=-1), lambda torch, x: x.amax(-1)),
    SingleOp(
        "cumsum", (LARGE,), lambda mg, x: mg.cumsum(x, axis=-1), lambda torch, x: x.cumsum(-1)
    ),
    SingleOp(
        "sort",
        (LARGE,),
        lambda mg, x: mg.sort(x),
        lambda torch, x: x.sort(stable=True, dim=-1).values,
    ),
    SingleOp("add", (LARGE, LARGE), lambda mg, a, b: mg.add(a, b), lambda torch, a, b: a + b),
    SingleOp(
        "multiply", (LARGE, LARGE), lambda mg, a, b: mg.multiply(a, b), lambda torch, a, b: a * b
    ),
    SingleOp("divide", (LARGE, LARGE), lambda mg, a, b: a / b, lambda torch, a, b: a / b, True),
    SingleOp("power", (LARGE,), lambda mg, x: x**3, lambda torch, x: x**3),
    SingleOp(
        "maximum",
        (LARGE, LARGE),
        lambda mg, a, b: mg.maximum(a, b),
        lambda torch, a, b: torch.maximum(a, b),
    ),
    SingleOp("abs", (LARGE,), lambda mg, x: mg.abs(x), lambda torch, x: x.abs()),
    SingleOp("clip", (LARGE,), lambda mg, x: mg.clip(x, -1, 1), lambda torch, x: x.clamp(-1, 1)),
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
        lambda torch, x: torch.nn.functional.dropout(x, 0.1),
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
        lambda mg, x, i: mg.take(x, i, axis=0),
        lambda torch, x, i: torch.nn.functional.embedding(i, x),
        indices=(64, 128),
        below=30_000,
    ),
    SingleOp(
        "matmul", ((1024, 1024), (1024, 1024)), lambda mg, a, b: a @ b, lambda torch, a, b: a @ b
    ),
    SingleOp(
        "bmm", ((64, 128, 64), (64, 64, 128)), lambda mg, a, b: a @ b, lambda torch, a, b: a @ b
    ),
    SingleOp(
        "attention",
        ((4, 8, 256, 64),) * 3,
        lambda mg, *qkv: mg.scaled_dot_product_attention(*qkv),
        lambda torch, *qkv: torch.nn.functional.scaled_dot_product_attention(*qkv),
    ),
]
OPS: dict[str, SingleOp] = {one.title: one for one in _EVERY}
