"""What one op costs, forward and backward, in closed form: layers' closed forms are sums of these.

Forward counts what an op's kernel does, as its declaration says (minigrad/ops): a product (m, k) @
(k, n) is 2·m·k·n, a softmax 5 an entry. Backward counts every op that its rules run, by the same
measure: for a product, one for either factor; for a softmax, A ⊙ (g − rowsum(g ⊙ A)), 4 an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = [
    "COSTS", "Operation", "affine", "each", "joined", "norm", "product", "reduced", "scattered",
    "summed", "tiled",
]  # fmt: skip


class Operation(NamedTuple):
    """One op of a pass: its name, FLOPs, the entries of its result, the FLOPs of its rules; and
    whether a gradient comes to its result at all."""

    name: str
    flops: int
    entries: int
    backward: int
    detached: bool = False


COSTS = {
    "add": (1, 0),
    "cumsum": (1, 1),
    "divide": (1, 4),  # 1 for the numerator, 3 for the denominator
    "dropout": (2, 1),
    "exp": (1, 1),
    "gelu": (8, 14),
    "gelu_tanh": (8, 16),
    "mask_add": (1, 0),
    "maximum": (1, 1),  # with a constant, as minimum and multiply
    "minimum": (1, 1),
    "multiply": (1, 1),
    "relu": (1, 0),
    "scale": (1, 1),
    "sigmoid": (4, 3),
    "silu": (5, 9),
    "softmax": (5, 4),
    "subtract": (1, 1),
    "tanh": (1, 3),
}
"""FLOPs an entry of the result: of the kernel; of the rules of all inputs that are no constants."""


def each(name: str, entries: int, factors: int = 1) -> Operation:
    """An op that works entry by entry; `factors` of its inputs want a gradient that is not free."""
    forward, backward = COSTS[name]
    return Operation(
        name.removesuffix("_tanh"), forward * entries, entries, factors * backward * entries
    )


def product(
    rows: int, inner: int, columns: int, factors: int = 2, name: str = "matmul"
) -> Operation:
    """(rows, inner) @ (inner, columns); one of the factors may be a constant."""
    flops = 2 * rows * inner * columns
    return Operation(name, flops, rows * columns, factors * flops)


def reduced(name: str, entries: int, to: int, detached: bool = False) -> Operation:
    """A sum or maximum of so many entries; the gradient of a sum is repeated, at no cost."""
    return Operation(name, entries, to, 0, detached)


def norm(name: str, rows: int, width: int, weight: bool, bias: bool = False) -> Operation:
    """Normalised rows; the gradients of weight and bias are products with, and sums over, rows."""
    entry, own, row = {"layer_norm": (8, 11, 8), "rms_norm": (5, 7, 6)}[name]
    entries = rows * width
    backward = row * rows + (own + 3 * weight + bias) * entries
    return Operation(name, entry * entries, entries, backward)


def affine(rows: int, W: Any, b: Any, method: str = "exact") -> Iterator[Operation]:
    """x W + b, as `linear` runs it; without a bias it is a product, but for that beside tiles."""
    n_in, n_out = W.shape
    xW, b_flops = product(rows, n_in, n_out), 0 if b is None else rows * n_out
    if b is None and method != "tiled":
        yield xW
    else:
        yield Operation("linear", xW.flops + b_flops, xW.entries, xW.backward + b_flops)


def tiled(queries: int, keys: int, d_k: int, d_v: int, masks: int) -> Operation:
    """`tiled_attention`, no tile skipped; backward makes the scores again."""
    scores = queries * keys
    forward = scores * (2 * d_k + 5 + 2 * d_v)
    again = scores * (2 * d_k + 1 + masks + 5)  # Q Kᵀ, scale, masks, softmax
    gradients = scores * (2 * (2 * d_v + 2 * d_k) + 5)  # ∂A and ∂V, ∂Q and ∂K; softmax, scale
    return Operation("tiled_attention", forward, queries * d_v, again + gradients)


# ---------------------------------------------------------------- between ops


def summed(entries: int) -> Operation:
    """A gradient of so many entries, summed over the axes along which its input was repeated."""
    return Operation("sum", 0, 0, entries)


def joined(entries: int, uses: int = 2) -> Operation:
    """The gradients of several uses, added."""
    return Operation("add", 0, 0, (uses - 1) * entries)


def scattered(entries: int) -> Operation:
    """So many entries of a gradient, put back to where they were taken."""
    return Operation("scatter_add", 0, 0, entries)
