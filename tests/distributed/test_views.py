"""Ranks seen side by side: one record of all, its picture, and the command that draws it."""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention
from layers.parallel import shard
from minigrad import distributed as dist
from minigrad.__main__ import main


@pytest.fixture(scope="module")
def record():
    """Of attention by heads on two ranks, forward and backward."""
    layer = MultiHeadAttention(8, 4, rng=0, causal=True)

    def step():
        part, x = shard(layer), mg.tensor(np.eye(5, 8)[None], requires_grad=True, name="X")
        with mg.trace() as t:
            mg.sum(part(x) ** 2).named("loss").backward()
        return t.of_all_ranks()

    return dist.run(2, step)[1]


def test_a_record_of_all_ranks_holds_each_in_its_scope_and_checks_both(record):
    scopes = {entry.scope.partition("/")[0] for entry in record if entry.op}
    assert scopes == {"rank 0", "rank 1"}
    checks = record.check()
    assert checks.ok
    assert {check.scope for check in checks} == {f"rank {r}/parallel/part" for r in (0, 1)}


def test_collectives_join_the_ranks_with_their_bytes(record, tmp_path):
    """5 · 8 numbers of 8 bytes: on a ring of two, each rank sends half of them twice."""
    across = [e for e in record.edges if e.crosses]
    assert [(record[e.target].op, e.crosses) for e in across] == [
        ("copy_to_ranks", "320 bytes back"),
        ("copy_to_ranks", "320 bytes back"),
        ("all_reduce", "320 bytes"),
        ("all_reduce", "320 bytes"),
    ]
    drawn = record.draw(tmp_path / "g.dot").read_text()
    assert drawn.count("320 bytes") >= 4
    assert all(f"rank {r}" in drawn for r in (0, 1))


def test_the_derivation_says_which_sum_crosses_ranks(record, tmp_path):
    text = record.derivation(tmp_path / "d.md").read_text()
    assert r"\sum_{r}" in text
    assert r"\frac{\partial L}{\partial X^{(0)}} = \sum_{r}" in text


@pytest.mark.parametrize("missing", [False, True])
def test_one_command_explains_a_layer_on_ranks(tmp_path, capsys, monkeypatch, missing):
    """Each rank's gradients, put together, against the hand-derived steps of the whole layer; it
    starts MPI itself, and where there is none says that ranks are threads.
    """
    mpi = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    over_mpi = mpi and find_spec("mpi4py") and not missing
    if missing:
        monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    asked = ["explain", "multi-head", "--ranks", "2", "--text", "a b c a"]
    assert main([*asked, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "all ranks, put together: engine against hand-derived steps" in shown
    assert "39 gradients equal the hand-derived steps" in shown
    kind = "2 ranks over MPI" if over_mpi else 'as threads (no MPI; pip install "minigrad[mpi]")'
    assert kind in " ".join(shown.split())
    data = json.loads((tmp_path / "out" / "trace.json").read_text())
    assert data["explain"]["ranks"] == 2


def test_ranks_that_do_not_divide_the_heads_are_refused(capsys):
    assert main(["explain", "multi-head", "--ranks", "3"]) == 2
    assert "--ranks must divide --heads, got 3 and 4" in capsys.readouterr().err
