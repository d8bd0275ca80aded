"""What each kind of attention gives up, and what it saves: error, cost and memory, as n doubles.

Every kind attends over the same queries, keys and values. Its error is measured against exact
attention, ‖O − O_exact‖ / ‖O_exact‖; FLOPs are counted op by op in the recorded graph, and so are
the bytes that its forward keeps for backward. × is what doubling n does to both.

Tiles and masks: attention in tiles is exact, and keeps no n × n array. Its op counts FLOPs as if
no tile were skipped; `scores` is the share of scores that the pattern leaves open, towards which
tiles of 128 × 128 can skip once n is well beyond 128. Linear attention is no estimate of softmax
but another weighting: its error says how far apart the two are, not how good it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from layers import (
    big_bird_mask,
    dilated_mask,
    global_mask,
    linear_attention,
    linformer_attention,
    orthogonal_features,
    performer_attention,
    sliding_window_mask,
)

LENGTHS = (64, 128, 256)
D, WINDOW, MIXTURES, FEATURES = 16, 8, 32, 64

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


def exact(Q: Any, K: Any, V: Any) -> Any:
    return mg.scaled_dot_product_attention(Q, K, V, method="exact")


def tiled(Q: Any, K: Any, V: Any, mask: Any = None) -> Any:
    return mg.scaled_dot_product_attention(Q, K, V, mask, method="tiled")


def linformer(Q: Any, K: Any, V: Any) -> Any:
    """E = F, drawn as in the paper's proof: N(0, 1/k)."""
    E = np.random.default_rng(1).normal(0, MIXTURES**-0.5, (MIXTURES, K.shape[-2]))
    return linformer_attention(Q, K, V, E, E)


def performer(Q: Any, K: Any, V: Any) -> Any:
    return performer_attention(Q, K, V, orthogonal_features(FEATURES, D, rng=1))


def kinds(n: int) -> dict[str, tuple[Callable[..., Any], float]]:
    """Each kind of attention over n tokens, and the share of scores it wants."""
    found: dict[str, tuple[Callable[..., Any], float]] = {"exact": (exact, 1), "tiled": (tiled, 1)}
    for name, make in MASKS.items():
        mask = make(n)
        found[name] = (lambda Q, K, V, mask=mask: tiled(Q, K, V, mask)), mask.mean()
    return found | {
        "Linformer": (linformer, MIXTURES / n),
        "Performer": (performer, 0),
        "linear": (linear_attention, 0),
    }


def measured(n: int) -> dict[str, Row]:
    """Every kind's row at this length."""
    rng = np.random.default_rng(0)
    leaves = [mg.tensor(rng.normal(size=(1, n, D)), requires_grad=True) for _ in range(3)]
    truth = exact(*leaves).numpy()
    rows = {}
    for name, (attention, scores) in kinds(n).items():
        with mg.trace() as trace:
            out = attention(*leaves)
        error = np.linalg.norm(out.numpy() - truth) / np.linalg.norm(truth)
        flops = sum(entry.flops or 0 for entry in trace.entries)
        rows[name] = Row(error, scores, flops, sum(entry.saved_bytes for entry in trace.entries))
    return rows


def main() -> None:
    tables = {n: measured(n) for n in LENGTHS}
    print(f"d = {D}, window {WINDOW}, Linformer k = {MIXTURES}, Performer m = {FEATURES}")
    print(f"{'':<16}{'n':>4}  {'error':>8}{'scores':>8}{'FLOPs':>11}   ×  {'saved':>9}   ×")
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
            )
            before = row
    check(tables)


def check(tables: dict[int, dict[str, Row]]) -> None:
    """The headlines: exact quadruples, the efficient ones double, tiles are exact in linear memory."""
    short, long = tables[128], tables[256]
    for name in ("Linformer", "Performer", "linear"):
        assert 1.9 < long[name].flops / short[name].flops <= 2.001, name
        assert 1.9 < long[name].saved / short[name].saved <= 2.001, name
    assert 3.9 < long["exact"].flops / short["exact"].flops <= 4
    assert long["exact"].saved / short["exact"].saved > 3.3
    assert long["tiled"].error < 1e-14
    assert long["tiled"].saved / short["tiled"].saved < 2.2
    for name in MASKS:
        assert long[name].scores < 0.6 * short[name].scores, name


if __name__ == "__main__":
    main()
