"""What attention costs, in closed form: floating-point operations, bytes, and their ratio.

A product (m, k) @ (k, n) counts 2·m·k·n operations, a softmax 5 an element (subtract the maximum,
exponentiate, sum, divide, one more); scale, mask and biases are not counted. All counts are ints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from minigrad.errors import ArgumentError, DTypeError

from .basic import check_sizes

__all__ = [
    "Traffic",
    "arithmetic_intensity",
    "count_flops",
    "count_memory_bytes",
    "count_traffic_bytes",
    "flops_by_step",
    "memory_by_array",
    "roofline",
]


def count_flops(
    batch_size: int,
    seq_len: int,
    d_model: int,
    d_k: int | None = None,
    d_v: int | None = None,
    *,
    n_heads: int | None = None,
) -> int:
    """Floating-point operations of one forward pass of attention; the sum of `flops_by_step`.

        one head:    2 B n d_model (2 d_k + 2 d_v) + 2 B n² (d_k + d_v) + 5 B n²
        h heads:     8 B n d_model² + 4 B n² d_model + 5 B h n²        (d_k = d_v = d_model / h)

    Call it with d_k and d_v for one head, or with n_heads: a lone fourth positional is n_heads. The
    product with W_O is among them.

    Raises:  ArgumentError for any other mixture, a size that is no integer of at least 1, or
             n_heads that does not divide d_model.

    >>> count_flops(2, 5, 7, 3, 11)
    5570
    >>> count_flops(batch_size=1, seq_len=10, d_model=64, n_heads=8) == count_flops(1, 10, 64, 8)
    True
    """
    return sum(flops_by_step(batch_size, seq_len, d_model, d_k, d_v, n_heads=n_heads).values())


def flops_by_step(
    batch_size: int,
    seq_len: int,
    d_model: int,
    d_k: int | None = None,
    d_v: int | None = None,
    *,
    n_heads: int | None = None,
) -> dict[str, int]:
    """The operations of `count_flops`, step by step; it takes the same arguments.

    >>> flops_by_step(1, 10, 64, 1)
    {'projections': 245760, 'scores': 12800, 'softmax': 500, 'values': 12800, 'output': 81920}
    """
    if d_v is None and n_heads is None:
        d_k, n_heads = None, d_k
    of_many = None if n_heads is None else d_model
    widths = {"d_k": d_k, "d_v": d_v, "d_model": of_many, "n_heads": n_heads}
    h, d_k, d_v = _widths("count_flops", (), widths)
    check_sizes("count_flops", batch_size=batch_size, seq_len=seq_len, d_model=d_model)
    B, n = int(batch_size), int(seq_len)
    d_model = int(d_model)
    return {
        "projections": 2 * B * n * d_model * h * (2 * d_k + d_v),
        "scores": 2 * B * h * n * n * d_k,
        "softmax": 5 * B * h * n * n,
        "values": 2 * B * h * n * n * d_v,
        "output": 2 * B * n * h * d_v * d_model,
    }


def count_memory_bytes(
    batch_size: int,
    seq_len: int,
    *by_position: Any,
    dtype: DTypeLike = "float32",
    **widths: int,
) -> int:
    """Bytes of Q, K, V, the attention matrix and the heads' output; the sum of `memory_by_array`.

        one head:    (2 B n d_k + 2 B n d_v + B n²) · itemsize
        h heads:     (4 B n d_model + B h n²) · itemsize

    Args:    widths: d_k and d_v of one head, or d_model and n_heads of many.
    Raises:  ArgumentError unless just one of these pairs is given, by name, for a size below 1, or
             heads that do not divide; DTypeError for a dtype that is not floating.

    >>> count_memory_bytes(1, 4096, d_k=64, d_v=64) / 2**20
    68.0
    >>> count_memory_bytes(1, 4096, d_model=2048, n_heads=32, dtype="float16") / 2**20
    1088.0
    """
    arrays = memory_by_array(batch_size, seq_len, *by_position, dtype=dtype, **widths)
    return sum(arrays.values())


def memory_by_array(
    batch_size: int,
    seq_len: int,
    *by_position: Any,
    dtype: DTypeLike = "float32",
    **widths: int,
) -> dict[str, int]:
    """The bytes of `count_memory_bytes`, array by array; it takes the same arguments.

    >>> memory_by_array(1, 4096, d_k=64, d_v=64)["attention matrix"] / 2**20
    64.0
    >>> memory_by_array(2, 5, d_k=3, d_v=7, dtype="float64")
    {'Q': 240, 'K': 240, 'V': 560, 'attention matrix': 400, 'output': 560}
    """
    call = "count_memory_bytes"
    h, d_k, d_v = _widths(call, by_position, widths)
    check_sizes(call, batch_size=batch_size, seq_len=seq_len)
    entries = int(batch_size) * h * int(seq_len) * _itemsize(call, dtype)
    widths = {"Q": d_k, "K": d_k, "V": d_v, "attention matrix": int(seq_len), "output": d_v}
    return {name: entries * width for name, width in widths.items()}


class Traffic(NamedTuple):
    """Bytes read from main memory, and written to it.

    >>> Traffic(reads=3, writes=4).total
    7
    """

    reads: int
    writes: int

    @property
    def total(self) -> int:
        return self.reads + self.writes


def count_traffic_bytes(
    batch_size: int,
    seq_len: int,
    *by_position: Any,
    dtype: DTypeLike = "float32",
    masked: bool = False,
    on_chip: int | None = None,
    **widths: int,
) -> Traffic:
    """Bytes that one forward of attention's core moves between main memory and the chip.

        exact:   reads  n (2 d_k + d_v) + p n²,   writes  n d_v + p n²     a head, in entries
        tiled:   reads  n d_k + ⌈n / r⌉ n (d_k + d_v),   writes  n d_v,   r = M / 2 (d_k + d_v)

    Exact attention writes S, scaled S, masked S and A, and reads each again: p = 3, or 4 if
    `masked`. In tiles r queries, their outputs and r keys and values share a chip's M entries, and
    K and V pass once for each block of queries: about 8 n² d² / M for d = d_k = d_v.

    Args:    as `count_memory_bytes`; on_chip: bytes of fast memory, for tiles; None for exact.
    Raises:  as `count_memory_bytes`; ArgumentError if not one row of each fits on the chip.
    Source:  Dao et al. 2022, theorem 2, arXiv:2205.14135.

    >>> [count_traffic_bytes(1, 4096, d_k=64, d_v=64).total // 2**20, 3 + 1 + 6 * 64]
    [388, 388]
    >>> count_traffic_bytes(1, 4096, d_k=64, d_v=64, on_chip=192 * 1024).total // 2**20
    46
    """
    call = "count_traffic_bytes"
    h, d_k, d_v = _widths(call, by_position, widths)
    check_sizes(call, batch_size=batch_size, seq_len=seq_len)
    n, itemsize = int(seq_len), _itemsize(call, dtype)
    if on_chip is None:
        passes = (4 if masked else 3) * n * n
        reads, writes = n * (2 * d_k + d_v) + passes, n * d_v + passes
    else:
        rows = on_chip // (itemsize * 2 * (d_k + d_v))
        if rows < 1:
            raise ArgumentError(
                f"{call}: on_chip must hold a row of each array, got {on_chip} bytes"
            )
        reads, writes = n * d_k + -(-n // rows) * n * (d_k + d_v), n * d_v
    heads = int(batch_size) * h * itemsize
    return Traffic(heads * reads, heads * writes)


def arithmetic_intensity(
    seq_len: int, d_k: int, d_v: int | None = None, dtype: DTypeLike = "float32"
) -> float:
    """FLOPs per byte of one head's core (scores, softmax, values), every array moved once.

        n (2 d_k + 2 d_v + 5) / (itemsize (2 d_k + 2 d_v + n));    n (4 d + 5) / (4 (4 d + n))
        for d = d_k = d_v in float32

    It grows with n towards (4 d + 5) / 4. Batch and heads cancel. d_v is d_k unless given.

    >>> round(arithmetic_intensity(64, 64), 1), round(arithmetic_intensity(4096, 64), 1)
    (13.1, 61.4)
    """
    call, d_v = "arithmetic_intensity", d_k if d_v is None else d_v
    check_sizes(call, seq_len=seq_len, d_k=d_k, d_v=d_v)
    n, widths = int(seq_len), 2 * int(d_k) + 2 * int(d_v)
    return n * (widths + 5) / (_itemsize(call, dtype) * (widths + n))


def roofline(intensity: float, ridge: float = 156.0) -> Literal["memory-bound", "compute-bound"]:
    """Which resource limits a kernel: bandwidth below the ridge, arithmetic from it on.

    Args:    ridge: FLOPs per byte at which a machine turns from the one to the other; unless given,
             about that of an A100.
    Source:  Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.

    >>> roofline(arithmetic_intensity(4096, 64), ridge=156)
    'memory-bound'
    """
    if not (intensity >= 0 and ridge > 0):
        raise ArgumentError(
            f"roofline: intensity must be >= 0 and ridge > 0, got {intensity} and {ridge}"
        )
    return "memory-bound" if intensity < ridge else "compute-bound"


def _widths(
    call: str, by_position: tuple[Any, ...], widths: Mapping[str, int | None]
) -> tuple[int, int, int]:
    """(h, d_k, d_v) from exactly one of the two pairs, by name: two numbers could be either."""
    sizes = {name: width for name, width in widths.items() if width is not None}
    names = sorted(sizes)
    if by_position or names not in (["d_k", "d_v"], ["d_model", "n_heads"]):
        raise ArgumentError(
            f"{call}: name d_k= and d_v= of one head, or d_model= and n_heads= of many; got "
            f"{', '.join([*map(str, by_position), *names]) or 'neither'}"
        )
    check_sizes(call, **sizes)
    first, second = (int(sizes[name]) for name in names)
    if "d_k" in sizes:
        return 1, first, second
    if first % second:
        raise ArgumentError(f"{call}: n_heads must divide d_model, got {second} and {first}")
    return second, first // second, first // second


def _itemsize(call: str, dtype: DTypeLike) -> int:
    if dtype is None or not np.issubdtype(np.dtype(dtype), np.floating):
        raise DTypeError(f"{call}: dtype must be a floating NumPy dtype, got {dtype!r}")
    return np.dtype(dtype).itemsize
