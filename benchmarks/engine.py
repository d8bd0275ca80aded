"""What does the engine itself cost? Microseconds a node, beyond the NumPy work nodes stand for.

    python benchmarks/engine.py [--nodes 1000000] [--rounds 15] [--json]

Two measurements, each with its contestants in turn within one round, medians over rounds:
  chains   1,000 ops on 4×4 float32: minigrad's forward and backward against bare NumPy loops that
           do the same arithmetic (and PyTorch, if installed).
  million  a chain of --nodes additions of a scalar, forward and backward once; the rules' own work
           is nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date

import numpy as np

import minigrad as mg

CHAIN = 1000
X = np.full((4, 4), 1.0, np.float32)
W = np.full((4, 4), 0.999, np.float32)
ONE = np.ones((4, 4), np.float32)

Timing = tuple[float, float]  # seconds: forward, backward


def engine(times: bool) -> Timing:
    x, w = mg.tensor(X, requires_grad=True), mg.tensor(W, requires_grad=True)
    start = time.perf_counter()
    for _ in range(CHAIN):
        x = x * w if times else x + w
    middle = time.perf_counter()
    x.backward(ONE)
    return middle - start, time.perf_counter() - middle


def bare(times: bool) -> Timing:
    """The same arithmetic by hand: a loop that keeps what backward needs, and a loop backward."""
    x, kept, d, d_w = X, [], ONE, np.zeros_like(W)
    start = time.perf_counter()
    for _ in range(CHAIN):
        if times:
            kept.append(x)
            x = x * W
        else:
            x = x + W
    middle = time.perf_counter()
    if times:
        for x in reversed(kept):
            d_w += d * x
            d = d * W
    else:
        for _ in range(CHAIN):
            d_w += d
    return middle - start, time.perf_counter() - middle


def pytorch(times: bool) -> Timing:
    import torch

    x, w = (torch.from_numpy(a.copy()).requires_grad_() for a in (X, W))
    one = torch.from_numpy(ONE)
    start = time.perf_counter()
    for _ in range(CHAIN):
        x = x * w if times else x + w
    middle = time.perf_counter()
    x.backward(one)
    return middle - start, time.perf_counter() - middle


def chains(rounds: int) -> dict[str, dict[str, float]]:
    """Median microseconds a node, forward and backward, for each contestant and op."""
    contestants: dict[str, Callable[[bool], Timing]] = {"bare NumPy": bare, "minigrad": engine}
    try:
        pytorch(True)
        contestants["PyTorch"] = pytorch
    except ImportError:
        print("PyTorch is not installed: left out")
    taken: dict[tuple[str, str], list[Timing]] = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            for op, times in (("add", False), ("multiply", True)):
                taken.setdefault((name, op), []).append(run(times))
    result: dict[str, dict[str, float]] = {}
    for (name, op), runs in taken.items():
        forward, backward = (statistics.median(r[i] for r in runs) / CHAIN * 1e6 for i in (0, 1))
        result.setdefault(name, {}).update({f"{op} forward": forward, f"{op} backward": backward})
    for name in set(result) - {"bare NumPy"}:
        for op in ("add", "multiply"):
            both = [f"{op} forward", f"{op} backward"]
            result[name][f"{op} over bare"] = sum(
                result[name][k] - result["bare NumPy"][k] for k in both
            )
    return result


def million(nodes: int) -> dict[str, float]:
    """Microseconds a node of one very long chain; freeing it is timed too."""
    x = mg.tensor(1.0, requires_grad=True)
    gc.collect()
    start = time.perf_counter()
    y = x
    for _ in range(nodes):
        y = y + 1e-9
    made = time.perf_counter()
    y.backward()
    done = time.perf_counter()
    if float(x.grad) != 1.0:
        raise AssertionError(f"wrong gradient {x.grad}")
    del y
    freed = time.perf_counter()
    scale = 1e6 / nodes
    return {
        "forward": (made - start) * scale,
        "backward": (done - made) * scale,
        "freeing": (freed - done) * scale,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}",
        "chains, us/node": chains(options.rounds),
        f"chain of {options.nodes} nodes, us/node": million(options.nodes),
    }
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(result.pop("date"), result.pop("machine"))
    for title, rows in result.items():
        print(f"\n{title}")
        for name, value in rows.items():
            cells = value.items() if isinstance(value, dict) else [("", value)]
            print(f"  {name:12}" + "".join(f"  {k} {v:.2f}" for k, v in cells))


if __name__ == "__main__":
    main()
