"""Two ranks beside one process: `python -m benchmarks.ranks`, which starts MPI itself.

Attention at (4, 256, 512, 8) in float32, forward and backward, split by heads, one BLAS thread a
rank: the same work on two ranks (strong scaling), twice the batch (weak), one process with two
threads, and PyTorch with gloo where it is installed; then the memory of ring attention. All take
turns, in rounds (`--quick`: one); a figure is the least of all rounds. Beside them: what a sum over
ranks costs, and what that makes of the ratio on paper.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

B, N, D, H = 4, 256, 512, 8
RING = 4096  # tokens
ROUNDS, STEPS = (1, 4) if "--quick" in sys.argv else (3, 8)
# what runs, on how many ranks, with how many threads each, on how many sequences
KINDS = {
    "1 rank": ("ours", 1, 1, B),
    "2 ranks, strong": ("ours", 2, 1, B),
    "2 ranks, weak": ("ours", 2, 1, 2 * B),
    "1 process, 2 threads": ("ours", 1, 2, B),
    "PyTorch, 1 rank": ("torch", 1, 1, B),
    "PyTorch, gloo, 2 ranks": ("torch", 2, 1, B),
}
RINGS = {p: ("ring", p, 1, 1) for p in (1, 2)}


def ours(ranks, X, U):
    import minigrad as mg
    from layers import MultiHeadAttention
    from layers.parallel import shard

    layer = MultiHeadAttention(D, H, rng=0, dtype=np.float32)
    layer = layer if ranks.size == 1 else shard(layer)
    x = mg.tensor(X, requires_grad=True)

    def step():
        layer.zero_grad()
        x.grad = None
        layer(x).backward(U)

    return step


def torch(ranks, X, U):
    """The same by hand: this rank's columns and rows, and the two sums over ranks."""
    import torch
    from torch import distributed as gloo
    from torch.nn.functional import scaled_dot_product_attention

    p, several = ranks.size, ranks.size > 1
    torch.set_num_threads(int(os.environ["OPENBLAS_NUM_THREADS"]))
    if several:
        store = "file://" + os.environ["RANKS_STORE"]
        gloo.init_process_group("gloo", init_method=store, rank=ranks.rank, world_size=p)

    def summed(x):
        gloo.all_reduce(x)
        return x

    class Sum(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: summed(x))
        backward = staticmethod(lambda ctx, g: g)

    class Copy(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: x.view_as(x))
        backward = staticmethod(lambda ctx, g: summed(g))

    torch.manual_seed(0)
    x, u = torch.tensor(X, requires_grad=True), torch.tensor(U)
    maps = [torch.nn.Linear(D, D // p, bias=False) for _ in "QKV"]
    last = torch.nn.Linear(D // p, D, bias=False)
    every = [x, last.weight, *(m.weight for m in maps)]

    def step():
        for w in every:
            w.grad = None
        here = Copy.apply(x) if several else x
        heads = [m(here).view(len(X), N, H // p, D // H).transpose(1, 2) for m in maps]
        out = last(scaled_dot_product_attention(*heads).transpose(1, 2).reshape(len(X), N, D // p))
        (Sum.apply(out) if several else out).backward(u)

    return step


def ring(ranks):
    """The most bytes that a step of ring attention holds on a rank."""
    import minigrad as mg
    from layers.parallel import ring_attention

    rows = RING // ranks.size
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, rows, 64)).astype(np.float32)
    tracemalloc.start()
    q, k, v = (mg.tensor(x.copy(), requires_grad=True) for x in (q, k, v))
    mg.sum(ring_attention(q, k, v, ranks)).backward()
    return tracemalloc.get_traced_memory()[1]


def measure(what, batch):
    """In a process of its own: the least seconds of a step, or its bytes, as JSON."""
    from minigrad import distributed as dist

    ranks, found = dist.world(), {}
    if what == "ring":
        found["bytes"] = ring(ranks)
    else:
        X, U = np.random.default_rng(0).normal(size=(2, int(batch), N, D)).astype(np.float32)
        step = {"ours": ours, "torch": torch}[what](ranks, X, U)
        best(step, 2)
        found["wall"], found["processor"] = best(step, STEPS)
        if what == "ours" and ranks.size > 1:
            found["sum"] = best(lambda: dist.all_reduce(X, ranks), STEPS)[0]
    if ranks.rank == 0:
        print(json.dumps(found))


def best(run, times):
    found = []
    for _ in range(times):
        wall, processor = time.perf_counter(), time.process_time()
        run()
        found.append((time.perf_counter() - wall, time.process_time() - processor))
    return [min(seconds) for seconds in zip(*found, strict=True)]


def start(what, ranks, threads, batch):
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or "mpiexec"
    options = ["--quick"] if "--quick" in sys.argv else []
    program = ["-m", "benchmarks.ranks", "--measure", what, str(batch), *options]
    over_mpi = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py"]
    command = [*(over_mpi if ranks > 1 else [sys.executable]), *program]
    with TemporaryDirectory() as folder:
        known = {"OPENBLAS_NUM_THREADS": str(threads), "RANKS_STORE": str(Path(folder, "store"))}
        done = subprocess.run(
            command, env=os.environ | known, stdout=subprocess.PIPE, check=True, timeout=300
        )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.parse_args()
    kinds = {n: k for n, k in (KINDS | RINGS).items() if k[0] != "torch" or find_spec("torch")}
    least: dict = {name: {} for name in kinds}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            for key, found in start(*kind).items():
                least[name][key] = min(found, least[name].get(key, found))
    alone = least["1 rank"]
    for name in [name for name in KINDS if name in least]:
        of = least["PyTorch, 1 rank" if "gloo" in name else "1 rank"]
        wall, processor = (least[name][key] / of[key] for key in ("wall", "processor"))
        ratios = f"{wall:.2f} of {'its' if 'gloo' in name else 'our'} one rank's time"
        print(
            f"{name:24}{least[name]['wall'] * 1e3:7.1f} ms, {ratios}, {processor:.2f} of the "
            "processor time, each"
        )
    summed, strong = least["2 ranks, strong"]["sum"], least["2 ranks, strong"]["wall"]
    size, part = B * N * D * 4, 2 * summed / strong
    print(f"a sum over 2 ranks of {size:,} bytes: {summed * 1e3:.2f} ms; two: {part:.0%} of a step")
    paper = 0.5 + 2 * summed / alone["wall"]
    print(f"on paper, half the work and two sums: {paper:.2f} of one rank's time")
    whole, half = (least[p]["bytes"] for p in RINGS)
    print(f"ring attention to {RING:,} tokens: {whole / 2**20:.1f} MiB on one rank, on each of two")
    print(f"{half / whole:.2f} of that")


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure(*sys.argv[sys.argv.index("--measure") + 1 :][:2])
    else:
        main()
