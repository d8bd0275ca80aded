"""What the tests of ranks over MPI run: `mpiexec -n 2 python -m mpi4py mpi_programs.py NAME`."""

import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import distributed as dist
from minigrad.distributed import beside
from minigrad.distributed.over_mpi import MPIRanks


def collectives():
    """Each gives what it gives between threads; by both ways to agree, in any dtype and order."""
    from mpi4py import MPI

    world = dist.world()
    assert bool(world.board) == (sys.argv[2:] != ["apart"])
    by_header = MPIRanks(MPI.COMM_WORLD, shared=False)
    halves = world.split(world.rank % 2)
    for ranks in (world, by_header, halves):
        p, rank = ranks.size, ranks.rank
        for dtype in (np.float16, np.float32, np.float64, complex):
            xs = [np.arange(72.0).reshape(2, 3, 12).T.astype(dtype) + r for r in range(p)]
            x = xs[rank]
            same = np.testing.assert_array_equal
            same(dist.all_reduce(x, ranks), sum(xs))
            same(dist.all_gather(x, ranks), np.concatenate(xs))
            same(dist.reduce_scatter(x, ranks), np.split(sum(xs), p)[rank])
            same(dist.broadcast(x, ranks, root=p - 1), xs[-1])
            same(dist.scatter(x, ranks), np.split(xs[0], p)[rank])
            same(dist.ring_shift(x, ranks), xs[rank - 1])
            same(dist.all_reduce(x.sum(), ranks), sum(xs).sum())
        same(dist.all_reduce(np.array([rank == 0, False]), ranks), [True, False])
    x = mg.tensor(np.ones(3), requires_grad=True)
    dist.all_reduce(dist.copy_to_ranks(x) * (world.rank + 1.0)).sum().backward()
    np.testing.assert_array_equal(x.grad, np.full(3, world.size * (world.size + 1) / 2))
    print(f"rank {world.rank} agrees", flush=True)


def one_raises():
    if dist.world().rank == 1:
        raise ValueError("a bad batch")
    dist.all_reduce(np.ones(3))


def one_is_killed():
    for step in range(1000):
        dist.all_reduce(np.ones(3))
        if step == 50 and dist.world().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def says_what_it_shares_and_is_killed():
    dist.all_reduce(np.ones(3))
    print(Path("/proc/self/maps").read_text(encoding="utf-8"), flush=True)
    one_is_killed()


def one_leaves():
    dist.all_reduce(np.ones(3))
    if dist.world().rank == 1:
        os._exit(0)


def gone_before_heard():
    """No MPI: the process beside the ranks hears of rank 1 when that is gone and reaped."""
    beside.ABORT_SECONDS = 0
    alive, gone = (subprocess.Popen(["sleep", n]) for n in ("600", "0"))
    gone.wait()
    ear = socket.socket(socket.AF_UNIX)
    ear.bind("")
    ear.listen(2)
    lines = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for rank, (line, process) in enumerate(zip(lines, (alive, gone), strict=True)):
        line.connect(ear.getsockname())
        line.sendall(f"{rank} {process.pid}\n".encode())
    lines[1].close()
    if os.fork() == 0:
        beside._outlive(Namespace(ranks=[0, 1], last_words=lambda rank: "last here"), ear)
        os._exit(0)
    ear.close()
    lines[0].close()
    print(f"rank 0 ended by signal {-alive.wait(60)}")


def one_is_stopped():
    for step in range(1000):
        dist.all_reduce(np.ones(300_000))
        if step == 20 and dist.world().rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)


def one_loops():
    dist.all_reduce(np.ones(3))
    while dist.world().rank == 1:
        time.sleep(0.01)
    dist.all_reduce(np.ones(3))


def one_skips_before_a_save():
    dist.all_reduce(np.ones(3))
    if dist.world().rank == 0:
        dist.world().collect(1)
    dist.all_reduce(np.ones(3))


def one_skips():
    if dist.world().rank == 0:
        dist.all_reduce(np.ones(3))


def one_differs():
    x = mg.tensor(np.ones(3 + dist.world().rank), name="x")
    dist.all_reduce(x)


def one_exits():
    if dist.world().rank == 1:
        sys.exit(3)
    dist.all_reduce(np.ones(3))


def training_that_is_killed():
    """The example, of which one rank is killed in step 13, after the file of step 10."""
    example = runpy.run_path("examples/parallel_gpt.py")
    batch = example["batch"]

    def deadly(step):
        if step == 13 and dist.world().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch(step)

    example["train"].__globals__["batch"] = deadly
    example["train"](Namespace(tensor=2, steps=20, file=Path(sys.argv[2])))


def a_compiled_step():
    """Of which rank 1 does not read one sum; it takes part all the same."""
    x = mg.tensor(np.ones((3, 4)), requires_grad=True, name="x")

    def step(x):
        y = dist.all_reduce(mg.tanh(x)).named("y")
        total = dist.all_reduce(mg.sum(y)).named("total")
        loss = mg.sum(y) + total if dist.world().rank == 0 else mg.sum(y)
        loss.backward()

    compiled = mg.compile(step)
    for _ in range(4):
        x.grad = None
        compiled(x)
    assert not compiled.reasons
    twice = 2.0 if dist.world().rank == 0 else 1.0
    np.testing.assert_allclose(x.grad, twice * (1 - np.tanh(1) ** 2) * np.ones((3, 4)))


def compiled_on_batches_of_other_sizes():
    """Rank 1 meets another size at call 3, so its program for each size runs less often."""
    compiled = mg.compile(lambda x: dist.all_reduce(mg.sum(mg.tanh(x))))
    for call in range(1, 18):
        odd = call == 3 and dist.world().rank == 1
        total = compiled(mg.tensor(np.full(3 if odd else 4, call / 20)))
        np.testing.assert_allclose(total.item(), np.tanh(call / 20) * (7 if call == 3 else 8))
    assert not compiled.reasons


def compiled_steps():
    a_compiled_step()
    compiled_on_batches_of_other_sizes()


def compiled_on_one_rank():
    step = lambda x: dist.all_reduce(mg.sum(mg.tanh(x)))  # noqa: E731
    step = mg.compile(step) if dist.world().rank == 0 else step
    for _ in range(3):
        step(mg.tensor(np.ones(3)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
