"""What attention costs, in closed form: floating-point operations, bytes, and their ratio.

A product (m, k) @ (k, n) counts 2·m·k·n operations, a softmax 5 an element (subtract the maximum,
exponentiate, sum, divide, one more); scale, mask and biases are not counted. All counts are ints.
"""

from operator import index
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "A100_RIDGE",
    "arithmetic_intensity",
    "count_flops",
    "count_memory_bytes",
    "flops_by_step",
    "memory_by_array",
    "roofline",
]

A100_RIDGE = 156.0
"""FLOPs per byte at which an A100 turns from memory-bound to compute-bound, about."""


@overload
def count_flops(batch_size: int, seq_len: int, d_model: int, d_k: int, d_v: int) -> int: ...
@overload
def count_flops(batch_size: int, seq_len: int, d_model: int, n_heads: int) -> int: ...
def count_flops(batch_size: int, seq_len: int, d_model: int, *rest: int, **named: int) -> int:
    """Floating-point operations of one forward pass of attention; the sum of `flops_by_step`.

        one head:    2 B n d_model (2 d_k + 2 d_v) + 2 B n² (d_k + d_v) + 5 B n²
        h heads:     8 B n d_model² + 4 B n² d_model + 5 B h n²        (d_k = d_v = d_model / h)

    Call it with d_k and d_v for one head, or with n_heads: a lone fourth positional is n_heads.

    Raises:  TypeError for any other mixture, or a size that is no integer; ValueError for a size
             below 1, or n_heads that does not divide d_model.

    >>> count_flops(2, 5, 7, 3, 11)
    5570
    >>> count_flops(batch_size=1, seq_len=10, d_model=64, n_heads=8) == count_flops(1, 10, 64, 8)
    True
    """
    return sum(_flops("count_flops", batch_size, seq_len, d_model, rest, named).values())


def flops_by_step(
    batch_size: int, seq_len: int, d_model: int, *rest: int, **named: int
) -> dict[str, int]:
    """The operations of `count_flops`, step by step; it takes the same arguments.

    One head as wide as the model and h heads that share its width cost the same in every step but
    the softmax, which has h times as many elements.

    >>> flops_by_step(1, 10, 64, 1)
    {'projections': 245760, 'scores': 12800, 'softmax': 500, 'values': 12800, 'output': 81920}
    >>> flops_by_step(1, 10, 64, 8)
    {'projections': 245760, 'scores': 12800, 'softmax': 4000, 'values': 12800, 'output': 81920}
    """
    return _flops("flops_by_step", batch_size, seq_len, d_model, rest, named)


def count_memory_bytes(
    batch_size: int,
    seq_len: int,
    d_k: int | None = None,
    d_v: int | None = None,
    dtype: DTypeLike = "float32",
    *,
    d_model: int | None = None,
    n_heads: int | None = None,
) -> int:
    """Bytes of Q, K, V, the attention matrix and the heads' output; the sum of `memory_by_array`.

        one head:    (2 B n d_k + 2 B n d_v + B n²) · itemsize
        h heads:     (4 B n d_model + B h n²) · itemsize

    Positions 3 and 4 are d_k and d_v; d_model and n_heads are keywords, for nothing else could
    tell (B, n, d_k, d_v) from (B, n, d_model, n_heads).

    Raises:  TypeError unless exactly one pair is given, or for a dtype that is not floating or a
             size that is no integer; ValueError for a size below 1, or heads that do not divide.

    >>> count_memory_bytes(1, 4096, 64, 64) / 2**20
    68.0
    >>> count_memory_bytes(1, 4096, d_model=2048, n_heads=32, dtype="float16") / 2**20
    1088.0
    """
    widths = {"d_k": d_k, "d_v": d_v, "d_model": d_model, "n_heads": n_heads}
    return sum(_memory("count_memory_bytes", batch_size, seq_len, dtype=dtype, **widths).values())


def memory_by_array(batch_size: int, seq_len: int, *rest: Any, **named: Any) -> dict[str, int]:
    """The bytes of `count_memory_bytes`, array by array; it takes the same arguments.

    >>> memory_by_array(1, 4096, 64, 64)["attention matrix"] == 64 * 2**20    # 64 MiB a head
    True
    >>> memory_by_array(2, 5, 3, 7, "float64")
    {'Q': 240, 'K': 240, 'V': 560, 'attention matrix': 400, 'output': 560}
    """
    return _memory("memory_by_array", batch_size, seq_len, *rest, **named)


def arithmetic_intensity(
    seq_len: int, d_k: int, d_v: int | None = None, dtype: DTypeLike = "float32"
) -> float:
    """FLOPs per byte of one head's core (scores, softmax, values), every array moved once.

        n (2 d_k + 2 d_v + 5) / (itemsize (2 d_k + 2 d_v + n));    n (4 d + 5) / (4 (4 d + n))
        for d = d_k = d_v in float32

    It grows with n towards (4 d + 5) / 4. Batch and heads cancel. d_v is d_k unless given.

    >>> round(arithmetic_intensity(4096, 64), 1)
    61.4
    """
    call = "arithmetic_intensity"
    n, d_k = _size(call, "seq_len", seq_len), _size(call, "d_k", d_k)
    widths = 2 * d_k + 2 * (d_k if d_v is None else _size(call, "d_v", d_v))
    return n * (widths + 5) / (_itemsize(call, dtype) * (widths + n))


def roofline(
    intensity: float, ridge: float = A100_RIDGE
) -> Literal["memory-bound", "compute-bound"]:
    """Which resource limits a kernel: bandwidth below the ridge, arithmetic from it on.

    Raises:  ValueError unless intensity ≥ 0 and ridge > 0.
    Source:  Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.

    >>> roofline(arithmetic_intensity(4096, 64), ridge=156)
    'memory-bound'
    """
    if not (intensity >= 0 and ridge > 0):
        raise ValueError(
            f"roofline: intensity must be >= 0 and ridge > 0, got {intensity} and {ridge}"
        )
    return "memory-bound" if intensity < ridge else "compute-bound"


def _flops(
    call: str,
    batch_size: int,
    seq_len: int,
    d_model: int,
    rest: tuple[int, ...],
    named: dict[str, int],
) -> dict[str, int]:
    rule = f"{call}: after d_model give d_k and d_v, or n_heads alone"
    named = {name: value for name, value in named.items() if value is not None}
    names = ["n_heads"] if len(rest) == 1 and not named else ["d_k", "d_v"]
    if len(rest) > 2 or named.keys() & set(names[: len(rest)]):
        raise TypeError(f"{rule}, got {len(rest)} positional and {sorted(named)}")
    widths: dict[str, int | None] = {**dict(zip(names, rest, strict=False)), **named}
    B, n = _size(call, "batch_size", batch_size), _size(call, "seq_len", seq_len)
    d_model = _size(call, "d_model", d_model)
    if widths.keys() == {"n_heads"}:
        widths["d_model"] = d_model
    h, d_k, d_v = _heads_and_widths(call, rule, widths)
    return {
        "projections": 2 * B * n * d_model * h * (2 * d_k + d_v),
        "scores": 2 * B * h * n * n * d_k,
        "softmax": 5 * B * h * n * n,
        "values": 2 * B * h * n * n * d_v,
        "output": 2 * B * n * h * d_v * d_model,
    }


def _memory(
    call: str,
    batch_size: int,
    seq_len: int,
    d_k: int | None = None,
    d_v: int | None = None,
    dtype: DTypeLike = "float32",
    **wide: int | None,
) -> dict[str, int]:
    rule = f"{call}: give d_k and d_v, or the keywords d_model and n_heads"
    widths = {"d_k": d_k, "d_v": d_v} | wide
    B, n = _size(call, "batch_size", batch_size), _size(call, "seq_len", seq_len)
    h, d_k, d_v = _heads_and_widths(call, rule, widths)
    elements = {
        "Q": B * h * n * d_k,
        "K": B * h * n * d_k,
        "V": B * h * n * d_v,
        "attention matrix": B * h * n * n,
        "output": B * h * n * d_v,
    }
    itemsize = _itemsize(call, dtype)
    return {name: count * itemsize for name, count in elements.items()}


def _heads_and_widths(call: str, rule: str, widths: dict[str, int | None]) -> tuple[int, int, int]:
    """(h, d_k, d_v) from exactly one of the two pairs."""
    given = {name: _size(call, name, value) for name, value in widths.items() if value is not None}
    if given.keys() == {"d_k", "d_v"}:
        return 1, given["d_k"], given["d_v"]
    if given.keys() != {"d_model", "n_heads"}:
        raise TypeError(f"{rule}, got {', '.join(given) or 'neither'}")
    d_model, h = given["d_model"], given["n_heads"]
    if d_model % h:
        raise ValueError(f"{call}: n_heads must divide d_model, got {h} and {d_model}")
    return h, d_model // h, d_model // h


def _size(call: str, name: str, value: int) -> int:
    try:
        size = index(value)  # a Python int, which cannot overflow
    except TypeError:
        raise TypeError(f"{call}: {name} must be an integer, got {value!r}") from None
    if size < 1:
        raise ValueError(f"{call}: {name} must be at least 1, got {size}")
    return size


def _itemsize(call: str, dtype: DTypeLike) -> int:
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError):
        kind = np.dtype(np.void)
    if dtype is None or not np.issubdtype(kind, np.floating):  # None would mean float64 to NumPy
        raise TypeError(f"{call}: dtype must be a floating NumPy dtype, got {dtype!r}")
    return kind.itemsize
