"""What attention costs, in closed form: floating-point operations, bytes, and their ratio.

A product (m, k) @ (k, n) counts 2·m·k·n operations, a softmax 5 an element (subtract the maximum,
exponentiate, sum, divide, one more); scale, mask and biases are not counted. All counts are ints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "A100_RIDGE",
    "Traffic",
    "arithmetic_intensity",
    "count_flops",
    "count_memory_bytes",
    "count_traffic_bytes",
    "flops_by_step",
    "memory_by_array",
    "roofline",
]

SizeOrDtype: TypeAlias = int | DTypeLike  # a size, or the dtype of the arrays

A100_RIDGE = 156.0
"""FLOPs per byte at which an A100 turns from memory-bound to compute-bound, about."""


def count_flops(
    batch_size: int,
    seq_len: int,
    d_model: int,
    *rest: int,
    project_out: bool = True,
    **named: int | None,
) -> int:
    """Floating-point operations of one forward pass of attention; the sum of `flops_by_step`.

        one head:    2 B n d_model (2 d_k + 2 d_v) + 2 B n² (d_k + d_v) + 5 B n²
        h heads:     8 B n d_model² + 4 B n² d_model + 5 B h n²        (d_k = d_v = d_model / h)

    Call it with d_k and d_v for one head, or with n_heads: a lone fourth positional is n_heads.
    project_out=False leaves out the product with W_O.

    Raises:  TypeError for any other mixture, or a size that is no integer; ValueError for a size
             below 1, or n_heads that does not divide d_model.

    >>> count_flops(2, 5, 7, 3, 11)
    5570
    >>> count_flops(batch_size=1, seq_len=10, d_model=64, n_heads=8) == count_flops(1, 10, 64, 8)
    True
    """
    steps = flops_by_step(batch_size, seq_len, d_model, *rest, project_out=project_out, **named)
    return sum(steps.values())


def flops_by_step(
    batch_size: int,
    seq_len: int,
    d_model: int,
    *rest: int,
    project_out: bool = True,
    **named: int | None,
) -> dict[str, int]:
    """The operations of `count_flops`, step by step; it takes the same arguments.

    h heads that share the model's width cost what one as wide costs, but for h times the softmax.
    The four projections of 4096 tokens, 64 wide, take 1.3·10⁸ operations, which some texts give as
    4·10⁶.

    >>> flops_by_step(1, 10, 64, 1)
    {'projections': 245760, 'scores': 12800, 'softmax': 500, 'values': 12800, 'output': 81920}
    >>> steps = flops_by_step(1, 4096, 64, 64, 64)
    >>> f"{steps['projections'] + steps['output']:.1e}"
    '1.3e+08'
    """
    call, rule = "count_flops", "count_flops: after d_model give d_k and d_v, or n_heads alone"
    names = ["n_heads"] if len(rest) == 1 and not _without_none(named) else ["d_k", "d_v"]
    widths = _sizes_by_name(rule, names, rest, named)
    B, n = _size(call, "batch_size", batch_size), _size(call, "seq_len", seq_len)
    d_model = _size(call, "d_model", d_model)
    if widths.keys() == {"n_heads"}:
        widths["d_model"] = d_model
    h, d_k, d_v = _heads_and_widths(call, rule, widths)
    steps = {
        "projections": 2 * B * n * d_model * h * (2 * d_k + d_v),
        "scores": 2 * B * h * n * n * d_k,
        "softmax": 5 * B * h * n * n,
        "values": 2 * B * h * n * n * d_v,
    }
    return steps | ({"output": 2 * B * n * h * d_v * d_model} if project_out else {})


def count_memory_bytes(
    batch_size: int, seq_len: int, *rest: SizeOrDtype, **named: SizeOrDtype | None
) -> int:
    """Bytes of Q, K, V, the attention matrix and the heads' output; the sum of `memory_by_array`.

        one head:    (2 B n d_k + 2 B n d_v + B n²) · itemsize
        h heads:     (4 B n d_model + B h n²) · itemsize

    These arrays are what a text counts; a forward keeps less for backward (no O), and holds more at
    its peak (the scores beside A): `t.table()` shows both of a run.

    Call it with d_k and d_v, or with the keywords d_model and n_heads; dtype is "float32" unless
    given, by keyword or after d_k and d_v. Two positional sizes are d_k and d_v, and are refused
    where they could be d_model and n_heads instead: where the second divides the first.

    Raises:  TypeError unless exactly one pair is given and plain, or for a dtype that is not
             floating or a size that is no integer; ValueError for a size below 1, or heads that do
             not divide.

    >>> count_memory_bytes(1, 4096, 64, 64) / 2**20
    68.0
    >>> count_memory_bytes(1, 4096, d_model=2048, n_heads=32, dtype="float16") / 2**20
    1088.0
    """
    return sum(memory_by_array(batch_size, seq_len, *rest, **named).values())


def memory_by_array(
    batch_size: int, seq_len: int, *rest: SizeOrDtype, **named: SizeOrDtype | None
) -> dict[str, int]:
    """The bytes of `count_memory_bytes`, array by array; it takes the same arguments.

    >>> memory_by_array(1, 4096, 64, 64)["attention matrix"] == 64 * 2**20    # 64 MiB a head
    True
    >>> memory_by_array(2, 5, 3, 7, "float64")
    {'Q': 240, 'K': 240, 'V': 560, 'attention matrix': 400, 'output': 560}
    """
    B, n, h, d_k, d_v, itemsize = _array_sizes(
        "count_memory_bytes", batch_size, seq_len, rest, named
    )
    widths = {"Q": d_k, "K": d_k, "V": d_v, "attention matrix": n, "output": d_v}
    return {name: B * h * n * width * itemsize for name, width in widths.items()}


class Traffic(NamedTuple):
    """Bytes read from main memory, and written to it."""

    reads: int
    writes: int

    @property
    def total(self) -> int:
        return self.reads + self.writes


def count_traffic_bytes(
    batch_size: int,
    seq_len: int,
    *rest: SizeOrDtype,
    masked: bool = False,
    on_chip: int | None = None,
    **named: SizeOrDtype | None,
) -> Traffic:
    """Bytes that one forward of attention's core moves between main memory and the chip.

        exact:   reads  n (2 d_k + d_v) + p n²,   writes  n d_v + p n²     a head, in entries
        tiled:   reads  n d_k + ⌈n / r⌉ n (d_k + d_v),   writes  n d_v,   r = M / 2 (d_k + d_v)

    Exact attention writes S, scaled S, masked S and A, and reads each again: p = 3, or 4 if
    `masked` (so 32 heads of 4096 tokens in float32 move 8 GiB there and 8 GiB back; texts that
    count 8 in all count one way). In tiles r queries, their outputs and r keys and values share a
    chip's M entries, and K and V pass once for each block of queries: about 8 n² d² / M for
    d = d_k = d_v, which texts shorten to n² d / M.

    Args:    as `count_memory_bytes`; on_chip: bytes of fast memory, for tiles; None for exact.
    Raises:  as `count_memory_bytes`; ValueError if not one row of each fits on the chip.
    Source:  Dao et al. 2022, theorem 2, arXiv:2205.14135.

    >>> [count_traffic_bytes(1, 4096, 64, 64).total // 2**20, 3 + 1 + 6 * 64]
    [388, 388]
    >>> count_traffic_bytes(1, 4096, 64, 64, on_chip=192 * 1024).total // 2**20
    46
    """
    call = "count_traffic_bytes"
    B, n, h, d_k, d_v, itemsize = _array_sizes(call, batch_size, seq_len, rest, named)
    if on_chip is None:
        passes = (4 if masked else 3) * n * n
        reads, writes = n * (2 * d_k + d_v) + passes, n * d_v + passes
    else:
        rows = _size(call, "on_chip", on_chip) // (itemsize * 2 * (d_k + d_v))
        if rows < 1:
            raise ValueError(f"{call}: on_chip must hold a row of each array, got {on_chip} bytes")
        reads, writes = n * d_k + -(-n // rows) * n * (d_k + d_v), n * d_v
    return Traffic(B * h * reads * itemsize, B * h * writes * itemsize)


def arithmetic_intensity(
    seq_len: int, d_k: int, d_v: int | None = None, dtype: DTypeLike = "float32"
) -> float:
    """FLOPs per byte of one head's core (scores, softmax, values), every array moved once.

        n (2 d_k + 2 d_v + 5) / (itemsize (2 d_k + 2 d_v + n));    n (4 d + 5) / (4 (4 d + n))
        for d = d_k = d_v in float32

    It grows with n towards (4 d + 5) / 4: short sequences are further below a ridge than long ones,
    not compute-bound as some texts have it. Batch and heads cancel. d_v is d_k unless given.

    >>> round(arithmetic_intensity(64, 64), 1), round(arithmetic_intensity(4096, 64), 1)
    (13.1, 61.4)
    """
    call = "arithmetic_intensity"
    n, d_k = _size(call, "seq_len", seq_len), _size(call, "d_k", d_k)
    widths = 2 * d_k + 2 * (d_k if d_v is None else _size(call, "d_v", d_v))
    return n * (widths + 5) / (_itemsize(call, dtype) * (widths + n))


def roofline(
    intensity: float, ridge: float = A100_RIDGE
) -> Literal["memory-bound", "compute-bound"]:
    """Which resource limits a kernel: bandwidth below the ridge, arithmetic from it on.

    Source:  Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.

    >>> roofline(arithmetic_intensity(4096, 64), ridge=156)
    'memory-bound'
    """
    if not (intensity >= 0 and ridge > 0):
        raise ValueError(
            f"roofline: intensity must be >= 0 and ridge > 0, got {intensity} and {ridge}"
        )
    return "memory-bound" if intensity < ridge else "compute-bound"


def _array_sizes(
    call: str, batch_size: int, seq_len: int, rest: Sequence[Any], named: Mapping[str, Any]
) -> tuple[int, ...]:
    """B, n, h, d_k, d_v and the size of an entry, as `count_memory_bytes` takes them."""
    rule = f"{call}: give d_k and d_v, or the keywords d_model and n_heads"
    widths = _sizes_by_name(rule, ["d_k", "d_v", "dtype"], rest, named)
    itemsize = _itemsize(call, widths.pop("dtype", "float32"))
    B, n = _size(call, "batch_size", batch_size), _size(call, "seq_len", seq_len)
    h, d_k, d_v = _heads_and_widths(call, rule, widths)
    if len(rest) > 1 and d_v < d_k and d_k % d_v == 0:
        raise TypeError(
            f"{call}: {d_k}, {d_v} could be d_k and d_v, or d_model and n_heads; name them: "
            f"d_k={d_k}, d_v={d_v} or d_model={d_k}, n_heads={d_v}"
        )
    return B, n, h, d_k, d_v, itemsize


def _without_none(named: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords but for sizes that are None, as if they had been left out."""
    return {name: x for name, x in named.items() if x is not None or name == "dtype"}


def _sizes_by_name(
    rule: str, names: list[str], rest: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    given = _without_none(named)
    positional = dict(zip(names, rest, strict=False))
    if len(rest) > len(names) or given.keys() & positional.keys():
        raise TypeError(f"{rule}, got {len(rest)} positional and {sorted(given)}")
    return positional | given


def _heads_and_widths(call: str, rule: str, widths: dict[str, Any]) -> tuple[int, int, int]:
    """(h, d_k, d_v) from exactly one of the two pairs."""
    sizes = {name: _size(call, name, value) for name, value in widths.items()}
    if sizes.keys() == {"d_k", "d_v"}:
        return 1, sizes["d_k"], sizes["d_v"]
    if sizes.keys() != {"d_model", "n_heads"}:
        raise TypeError(f"{rule}, got {', '.join(sizes) or 'neither'}")
    width, rest = divmod(sizes["d_model"], h := sizes["n_heads"])
    if rest:
        raise ValueError(f"{call}: n_heads must divide d_model, got {h} and {sizes['d_model']}")
    return h, width, width


def _size(call: str, name: str, value: Any) -> int:
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
