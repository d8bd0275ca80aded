"""On paper: how long a training step takes on p ranks, split in one of four ways.

    time = FLOPs / (p speed) + bytes moved / (p bandwidth) + bytes sent / wire + messages · latency

FLOPs and bytes are those of a stack of transformer blocks; sums go round a ring of ranks, which
sends 2 (p - 1) / p of an array in 2 (p - 1) messages (Thakur, Rabenseifner & Gropp 2005).
"""

from __future__ import annotations

from typing import NamedTuple

from minigrad.errors import ArgumentError

__all__ = ["SPLITS", "Machine", "Sizes", "StepTime", "step_time"]

SPLITS = ("heads", "sequence", "data", "pipeline")


class Sizes(NamedTuple):
    """A stack of transformer blocks, and what goes through it."""

    batch: int
    tokens: int
    d_model: int
    layers: int
    heads: int
    itemsize: int = 4

    @property
    def weights(self) -> int:
        """Entries: 4 d² of attention and 8 d² of the feed-forward layer in each block."""
        return 12 * self.d_model**2 * self.layers

    @property
    def flops(self) -> int:
        """Forward and, at twice that, backward: 2 for each weight and token, 4 n d for scores."""
        rows = self.batch * self.tokens
        return 3 * rows * (2 * self.weights + 4 * self.tokens * self.d_model * self.layers)

    @property
    def activation_bytes(self) -> int:
        """What blocks hand to each other, once."""
        return self.batch * self.tokens * self.d_model * self.itemsize

    @property
    def moved_bytes(self) -> int:
        """Memory: weights three times, and some 16 arrays of a block's width, forward and back."""
        return 3 * self.weights * self.itemsize + 2 * 16 * self.activation_bytes * self.layers


class Machine(NamedTuple):
    """One rank: FLOPs a second, bytes a second of memory and of wire, seconds a message."""

    flops: float = 3e14  # an accelerator of 2023, half used
    memory: float = 2e12
    wire: float = 5e10
    latency: float = 5e-6


class StepTime(NamedTuple):
    """Seconds of one step: computing, moving in memory, sending, waiting for messages."""

    compute: float
    memory: float
    wire: float
    latency: float

    @property
    def total(self) -> float:
        return sum(self)


def step_time(split: str, p: int, sizes: Sizes, machine: Machine = Machine()) -> StepTime:  # noqa: B008
    """One training step on p ranks, split one way; infinite where ranks outnumber what is split.

    Pipelines run as many small batches as there are rows, and stand idle for p - 1 of them.

    >>> sizes = Sizes(batch=256, tokens=1024, d_model=1024, layers=24, heads=16)
    >>> one, eight = (step_time("data", p, sizes).total for p in (1, 8))
    >>> 4 < one / eight < 8
    True
    """
    most = {
        "heads": sizes.heads, "sequence": sizes.tokens, "data": sizes.batch,
        "pipeline": sizes.layers,
    }  # fmt: skip
    if split not in most:
        raise ArgumentError(f"step_time: split must be one of {', '.join(SPLITS)}, got {split!r}")
    if p > most[split]:
        return StepTime(float("inf"), 0.0, 0.0, 0.0)
    around, steps = 2 * (p - 1) / p, 2 * (p - 1)
    gradients = sizes.weights * sizes.itemsize
    idle = 1 + (p - 1) / sizes.batch if split == "pipeline" else 1.0
    sent, messages = {
        "heads": (4 * sizes.layers * around * sizes.activation_bytes, 4 * sizes.layers * steps),
        "sequence": (
            6 * sizes.layers * sizes.activation_bytes / p * (p - 1) + around * gradients,
            2 * sizes.layers * (p - 1) + steps,
        ),
        "data": (around * gradients, steps),
        "pipeline": (2 * sizes.activation_bytes * (p > 1), 2 * sizes.batch * (p > 1)),
    }[split]
    return StepTime(
        sizes.flops / p / machine.flops * idle,
        sizes.moved_bytes / p / machine.memory * idle,
        sent / machine.wire,
        messages * machine.latency,
    )
