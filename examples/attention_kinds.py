"""What each kind of attention gives up, and what it saves: error, cost and memory, as n doubles.

Every kind attends over the same queries, keys and values. Its error is measured against exact
attention, ‖O − O_exact‖ / ‖O_exact‖; FLOPs are counted op by op in the recorded graph, and so are
the bytes that its forward keeps for backward. × is what doubling n does to both.

Tiles and masks: attention in tiles is exact, and keeps no n × n array. Its op counts FLOPs as if
no tile were skipped; `scores` is the share of scores that the pattern leaves open, towards which
tiles of 128 × 128 can skip once n is well beyond 128. The mask itself, a byte an entry, is kept:
n² small ones. Linear attention is no estimate of softmax but another weighting: its error says how
far apart the two are, not how good it is.

Decoding: what the n-th token costs, and what is kept for it of the n − 1 before: keys and values,
the last few of them, or two sums of a size that stays. The error is that of all n outputs against
exact causal attention with the same weights. Linformer has no causal form.

The last line is a time: Q Kᵀ where each head's K is a view with the strides of all heads side by
side, as a layer splits them, against the same product after copying K into one block.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from layers import (
    KernelState,
    KVCache,
    LinearAttention,
    MultiHeadAttention,
    PerformerAttention,
    big_bird_mask,
    dilated_mask,
    global_mask,
    linear_attention,
    linformer_attention,
    orthogonal_features,
    performer_attention,
    sinusoidal_encoding,
    sliding_window_mask,
    split_heads,
)

LENGTHS = (64, 128, 256)
D, WINDOW, MIXTURES, FEATURES = 16, 8, 32, (32, 256)

MASKS: dict[str, Callable[[int], Any]] = {
    "sliding window": lambda n: sliding_window_mask(n, WINDOW),
    "dilated window": lambda n: dilated_mask(n, WINDOW, 2),
    "global + window": lambda n: global_mask(n, WINDOW, [0, 1]),
    "BigBird": lambda n: big_bird_mask(n, block=4, n_global=1, n_random=2, rng=0),
}


class Row(NamedTuple):
    error: float
    scores: float  # the share of all n² that is wanted; 0 where there are none
    flops: int
    saved: int  # bytes
    peak: int  # bytes


def exact(Q: Any, K: Any, V: Any) -> Any:
    return mg.scaled_dot_product_attention(Q, K, V, method="exact")


def tiled(Q: Any, K: Any, V: Any, mask: Any = None) -> Any:
    """With no tile kept for backward, which makes each anew."""
    return mg.tiled_attention(Q, K, V, mask, keep=0)


def linformer(Q: Any, K: Any, V: Any) -> Any:
    """E = F: means of n / k neighbours, one of the projections that the paper names."""
    E = np.repeat(np.eye(MIXTURES), K.shape[-2] // MIXTURES, axis=1) * MIXTURES / K.shape[-2]
    return linformer_attention(Q, K, V, E, E)


def performer(m: int) -> Callable[..., Any]:
    return lambda Q, K, V: performer_attention(Q, K, V, orthogonal_features(m, D, rng=1))


def kinds(n: int) -> dict[str, tuple[Callable[..., Any], float]]:
    """Each kind of attention over n tokens, and the share of scores it wants."""
    found: dict[str, tuple[Callable[..., Any], float]] = {"exact": (exact, 1), "tiled": (tiled, 1)}
    for name, make in MASKS.items():
        mask = make(n)
        found[name] = (lambda Q, K, V, mask=mask: tiled(Q, K, V, mask)), mask.mean()
    return found | {
        "Linformer": (linformer, MIXTURES / n),
        **{f"Performer {m}": (performer(m), 0) for m in FEATURES},
        "linear": (linear_attention, 0),
    }


def sequence(n: int) -> Any:
    """Q, K and V (3, 1, n, D) of tokens that resemble their neighbours, as those of texts do."""
    noise = np.random.default_rng(0).normal(0, 0.3, (3, 1, n, D))
    return 1.5 * sinusoidal_encoding(n, D, base=200) + noise


def measured(n: int) -> dict[str, Row]:
    """Every kind's row at this length."""
    leaves = [mg.tensor(x, requires_grad=True) for x in sequence(n)]
    truth = exact(*leaves).numpy()
    rows = {}
    for name, (attention, scores) in kinds(n).items():
        with mg.trace() as trace:
            out = attention(*leaves)
        error = np.linalg.norm(out.numpy() - truth) / np.linalg.norm(truth)
        flops = sum(entry.flops or 0 for entry in trace.entries)
        saved = sum(entry.saved_bytes for entry in trace.entries)
        rows[name] = Row(error, scores, flops, saved, trace.memory.peak)
    return rows


class Decoded(NamedTuple):
    error: float
    flops: int  # of the last token
    kept: int  # bytes


def decoders() -> dict[str, tuple[Any, Any]]:
    """Causal layers of one head of width D, with the same weights, and what each keeps."""
    exactly = MultiHeadAttention(D, 1, is_causal=True, rng=0)
    found: dict[str, tuple[Any, Any]] = {
        "exact": (exactly, KVCache()),
        "sliding window": (
            MultiHeadAttention(D, 1, is_causal=True, window=WINDOW),
            KVCache(window=WINDOW),
        ),
        **{
            f"Performer {m}": (PerformerAttention(D, 1, m, is_causal=True, rng=1), KernelState())
            for m in FEATURES
        },
        "linear": (LinearAttention(D, 1, is_causal=True), KernelState()),
    }
    for layer, _ in found.values():
        layer.load_state_dict(exactly.state_dict())
    return found


def decoded(n: int) -> dict[str, Decoded]:
    """Every kind's row after n tokens, the last of them decoded alone."""
    X, rows, truth = sequence(n)[0], {}, None
    for name, (layer, cache) in decoders().items():
        with mg.no_grad():
            first = layer(X[:, : n - 1], cache=cache).numpy()
            with mg.trace() as trace:
                last = layer(X[:, n - 1 :], cache=cache).numpy()
        out = np.concatenate((first, last), axis=1)
        truth = out if truth is None else truth
        error = np.linalg.norm(out - truth) / np.linalg.norm(truth)
        flops = sum(entry.flops or 0 for entry in trace.entries)
        rows[name] = Decoded(error, flops, cache.nbytes)
    return rows


def strided_keys(n: int = 256, heads: int = 8, d: int = 64) -> tuple[float, float]:
    """Milliseconds of Q Kᵀ with K as its heads are split, and with a contiguous copy of it.

    The least of many: what is more is the noise of other programs.
    """
    rng = np.random.default_rng(0)
    Q, K = (split_heads(rng.normal(size=(1, n, heads * d)), heads) for _ in "QK")
    copied = np.ascontiguousarray(K)
    assert copied.strides != K.strides
    times: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(40):
        for i, keys in enumerate((K, copied)):
            start = perf_counter()
            mg.matmul(Q, mg.swapaxes(keys, -1, -2))
            times[i].append(1000 * (perf_counter() - start))
    return min(times[0]), min(times[1])


def show_strides() -> None:
    as_split, contiguous = strided_keys()
    ratio = as_split / contiguous
    cost = "no penalty" if ratio < 1.1 else f"{ratio:.1f} times as long"
    print(
        f"\nQ Kᵀ with K not contiguous, as heads are split: {as_split:.2f} ms; "
        f"with K copied first: {contiguous:.2f} ms: {cost}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="changes nothing: it takes a second")
    parser.parse_args()
    tables = {n: measured(n) for n in LENGTHS}
    print(f"d = {D}; windows of {WINDOW}; Linformer to {MIXTURES} rows; Performer by its features")
    titles = f"{'':<16}{'n':>4}  {'error':>8}{'scores':>8}{'FLOPs':>11}   ×"
    print(f"{titles}  {'saved':>9}   ×  {'peak':>9}")
    for name in tables[LENGTHS[0]]:
        before = None
        for n in LENGTHS:
            row = tables[n][name]
            scores = f"{row.scores:.0%}" if row.scores else "–"
            grown = (
                ("", "") if before is None else (row.flops / before.flops, row.saved / before.saved)
            )
            by = [f"{g:.1f}" if g else "" for g in grown]
            print(
                f"{name if before is None else '':<16}{n:>4}  {row.error:>8.1e}{scores:>8}"
                f"{row.flops:>11,} {by[0]:>3}  {row.saved / 1024:>5.0f} KiB {by[1]:>3}"
                f"  {row.peak / 1024:>5.0f} KiB"
            )
            before = row
    check(tables)
    steps = {n: decoded(n) for n in LENGTHS}
    print(f"\n{'decoding':<16}{'n':>4}  {'error':>8}  {'FLOPs a token':>13}  {'kept':>9}")
    for name in steps[LENGTHS[0]]:
        for n in LENGTHS:
            row, shown = steps[n][name], name if n == LENGTHS[0] else ""
            print(f"{shown:<16}{n:>4}  {row.error:>8.1e}  {row.flops:>13,}  {row.kept:>7,} B")
    check_decoding(steps)
    show_strides()


def check_decoding(steps: dict[int, dict[str, Decoded]]) -> None:
    """Keys and values double with n; a window and sums stay as they are, and so do their costs."""
    short, long = steps[128], steps[256]
    for name in short:
        growth = 2 if name == "exact" else 1
        assert long[name].kept == growth * short[name].kept, name
        assert name == "exact" or long[name].flops == short[name].flops, name
    assert long["exact"].flops - short["exact"].flops == 128 * (
        4 * D + 6
    )  # a score and a value each


def check(tables: dict[int, dict[str, Row]]) -> None:
    """Exact quadruples, the efficient ones double; tiles are exact, in memory that doubles."""
    short, long = tables[128], tables[256]
    few, many = (f"Performer {m}" for m in FEATURES)
    for name in ("Linformer", few, many, "linear"):
        assert 1.9 < long[name].flops / short[name].flops <= 2.001, name
        assert 1.9 < long[name].saved / short[name].saved <= 2.001, name
    assert 3.9 < long["exact"].flops / short["exact"].flops <= 4
    assert long["exact"].saved / short["exact"].saved > 3.3
    assert long[many].error < 0.8 * long[few].error
    assert long["tiled"].error < 1e-14
    assert long["tiled"].saved / short["tiled"].saved < 2.2
    for name in MASKS:
        assert long[name].scores < 0.6 * short[name].scores, name


if __name__ == "__main__":
    main()
