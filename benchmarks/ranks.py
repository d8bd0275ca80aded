"""Two ranks beside one process: `python -m benchmarks.ranks`, which starts MPI itself.

Attention at (4, 256, 512, 8) in float32, forward and backward, split by heads: one rank with one
BLAS thread, two ranks with one each, one process with two threads. The three take turns; a figure
is the least of all rounds, and a ratio is to one rank. Beside them: what a sum over ranks costs,
and what that makes of the ratio on paper.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

B, N, D, H = 4, 256, 512, 8
ROUNDS, STEPS = 3, 8


def measure() -> None:
    """In a process of its own: the least seconds of a step, and of its processor, as JSON."""
    import minigrad as mg
    from layers import MultiHeadAttention
    from layers.parallel import shard
    from minigrad import distributed as dist

    rng, ranks = np.random.default_rng(0), dist.world()
    X, U = rng.normal(size=(2, B, N, D)).astype(np.float32)
    layer = MultiHeadAttention(D, H, rng=0, dtype=np.float32)
    layer = layer if ranks.size == 1 else shard(layer)
    x = mg.tensor(X, requires_grad=True)

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x).backward(U)

    def best(run, times: int) -> tuple[float, float]:
        found = []
        for _ in range(times):
            wall, processor = time.perf_counter(), time.process_time()
            run()
            found.append((time.perf_counter() - wall, time.process_time() - processor))
        return min(w for w, _ in found), min(c for _, c in found)

    best(step, 2)
    wall, processor = best(step, STEPS)
    summed = best(lambda: dist.all_reduce(X, ranks), STEPS)[0] if ranks.size > 1 else 0.0
    if ranks.rank == 0:
        print(json.dumps({"wall": wall, "processor": processor, "sum": summed}))


def start(ranks: int, threads: int) -> dict[str, float]:
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or "mpiexec"
    program = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.ranks", "--measure"]
    command = [mpiexec, "-n", str(ranks), *program] if ranks > 1 else [program[0], *program[3:]]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    kinds = {
        "1 rank, 1 thread": (1, 1),
        "2 ranks, 1 thread each": (2, 1),
        "1 process, 2 threads": (1, 2),
    }
    least: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            for key, seconds in start(*kind).items():
                known = least.setdefault(name, {})
                known[key] = min(seconds, known.get(key, seconds))
    one = least["1 rank, 1 thread"]
    for name, found in least.items():
        ratios = f"{found['wall'] / one['wall']:.2f} of one rank's time"
        share = f", {found['processor'] / one['processor']:.2f} of its processor time a rank"
        print(f"{name:24} {found['wall'] * 1e3:7.1f} ms, {ratios}{share}")
    summed = least["2 ranks, 1 thread each"]["sum"]
    part = 2 * summed / least["2 ranks, 1 thread each"]["wall"]
    size = B * N * D * 4
    print(f"a sum over 2 ranks of {size:,} bytes: {summed * 1e3:.2f} ms; two: {part:.0%} of a step")
    paper = 0.5 + 2 * summed / one["wall"]
    print(f"on paper, half the work and two sums: {paper:.2f} of one rank's time")


if __name__ == "__main__":
    measure() if "--measure" in sys.argv else main()
