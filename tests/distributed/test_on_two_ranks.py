"""Collectives, split layers and training on two ranks over MPI, and how a run ends that fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad import distributed as dist
from minigrad.errors import ArgumentError, OutOfRangeError
from tests.compare import refusals

ROOT = Path(__file__).parents[2]
MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
PROGRAMS = Path(__file__).with_name("on_two_ranks.py")


def run(*program, status=0):
    """What a program prints on two ranks, which end with this status."""
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("no mpiexec")
    command = [MPIEXEC, "-n", "2", sys.executable, "-W", "error", "-m", "mpi4py", *program]
    known = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, cwd=ROOT, env=known
    )
    text = done.stdout + done.stderr
    assert done.returncode == status, text
    return text


CLAIMS = ["values", "gradients", "split_layers", "training", "compiled"]


def test_values_gradients_split_layers_and_training_are_those_of_one_process():
    text = run(PROGRAMS, *CLAIMS)
    assert all(f"rank {rank}: {claim}" in text for rank in range(2) for claim in CLAIMS)


@pytest.mark.parametrize("how", [[], ["--rows"]])
def test_a_gpt_on_two_ranks_learns_what_one_process_learns(how):
    assert "on 2 rank(s)" in run("examples/parallel_gpt.py", "--quick", *how)


def test_a_rank_that_raises_ends_all_with_its_traceback_and_status_1():
    text = run(PROGRAMS, "one_raises", status=1)
    for part in ("rank 1 of 2 ends all ranks", "Traceback", "ValueError: a bad batch"):
        assert part in text


SAID = [
    "other shapes: RankError", "rank 0: all_reduce(x) of x (3,)", "rank 1: all_reduce(x) of x (4,)",
    "other collectives: RankError", "rank 0: broadcast(x, root=0)",
    "other weights: RankError", "drawn from the same seed",
    "clipped alone: ArgumentError", "these are this rank's part of a model",
    "scaled alone: ArgumentError: LossScale(optimizer): these are this rank's part",
    "other seeds: RankError", "frozen on one: RankError",
    "a step of one alone: RankError", "rank 1: average_gradients(model) of weights 0x",
    "2 ranks cannot share 3 heads equally", "2 ranks cannot share 5 hidden entries equally",
    "the bias of ALiBi is not split", "Linear holds nothing that is split",
    "layers.1 is a BatchNorm, whose statistics", "cannot share axis 0 of length 3 equally",
    "no such root: OutOfRangeError",
]  # fmt: skip


def test_what_is_refused_is_refused_on_every_rank_and_none_waits():
    text = run(PROGRAMS, "refusals")
    assert [part for part in SAID if part not in text] == []


test_what_is_refused_on_one_rank_too = refusals(
    (lambda: dist.all_reduce(np.ones(3), 2), ArgumentError, "must be a group of ranks or None"),
    (lambda: dist.broadcast(np.ones(3), root=1), OutOfRangeError, r"root must lie in \[0, 1\)"),
)  # fmt: skip


def test_one_rank_alone_is_all_of_them():
    assert repr(dist.world().split(5)) == "<rank 0 of 1>"
    for op in (dist.all_reduce, dist.all_gather, dist.reduce_scatter, dist.broadcast, dist.reduce):
        x = np.arange(6.0).reshape(2, 3)
        found = op(x)
        np.testing.assert_array_equal(found, x)
        assert not np.shares_memory(found, x)
