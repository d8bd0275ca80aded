"""Ranks over MPI: the same results, and no program that hangs."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minigrad.distributed import beside

pytest.importorskip("mpi4py")
ROOT = Path(__file__).parents[2]
MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec")


EXAMPLE = ROOT / "examples" / "parallel_gpt.py"
PROGRAMS = Path(__file__).with_name("mpi_programs.py")
APART = {"MPIR_CVAR_NOLOCAL": "1"}  # MPICH takes each rank to be on a machine of its own
SOON = {"MINIGRAD_WAIT": "5"}


def run(*program, ranks=2, options=(), fails=False, **environment):
    """What a program prints on some ranks, which end well, or badly where `fails`."""
    python = [sys.executable, "-m", "mpi4py"]
    command = [MPIEXEC, *options, "-n", str(ranks), *python, *map(str, program)]
    known = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=known)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, text
    return text


@pytest.mark.parametrize(("p", "apart"), [(3, []), (2, ["apart"])])
def test_collectives_over_mpi_give_what_they_say(p, apart):
    text = run(PROGRAMS, "collectives", *apart, ranks=p, **APART if apart else {})
    assert all(f"rank {rank} agrees" in text for rank in range(p))


SIZES = ["rank 0: all_reduce(x) of (3,)", "rank 1: all_reduce(x) of (4,)"]
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("program", "environment", "said"),
    [
        ("one_raises", {}, ["rank 1 of 2 ends all: ValueError: a bad batch"]),
        ("one_skips", {}, ["rank 0 waits in all_reduce", "rank 1", "its program has ended"]),
        ("one_differs", {}, SIZES),
        ("one_exits", {}, []),
        pytest.param("one_is_stopped", SOON, ["for 5 s (MINIGRAD_WAIT)", "rank 1",
                     "last in all_reduce"], marks=slow),
        pytest.param("one_loops", SOON, ["rank 0 waits in all_reduce", "for rank 1",
                     "for 5 s (MINIGRAD_WAIT)"], marks=slow),
        ("one_skips_before_a_save", {}, ["ranks disagree", "rank 0: collect",
         "rank 1: all_reduce"]),
        ("one_differs", APART, SIZES),
        ("one_is_killed", APART, []),
        pytest.param("one_skips", APART | SOON, ["rank 0 waits in all_reduce",
                     "nothing of the others for 5 s"], marks=slow),
    ],
)  # fmt: skip
def test_a_program_that_goes_wrong_on_one_rank_ends_on_all(program, environment, said):
    """On one machine, or apart from each other, where no wait is without an end either."""
    text = run(PROGRAMS, program, fails=True, **environment)
    for part in said:
        assert part in text


def test_a_rank_that_mpiexec_leaves_alive_is_ended():
    text = run(PROGRAMS, "one_leaves", options=["-disable-auto-cleanup"], fails=True)
    for part in ("rank 1 (process", "left by os._exit; last in all_reduce"):
        assert part in text


def test_a_rank_that_was_gone_before_its_line_was_heard_is_named_and_the_others_end():
    done = subprocess.run(
        [sys.executable, PROGRAMS, "gone_before_heard"], capture_output=True, text=True
    )
    assert "rank 1 (process" in done.stderr
    assert done.stdout == "rank 0 ended by signal 9\n"


@pytest.mark.skipif(not Path("/dev/shm").exists(), reason="no /dev/shm")
def test_a_rank_that_is_killed_is_named_and_leaves_no_shared_memory_behind():
    text = run(PROGRAMS, "says_what_it_shares_and_is_killed", fails=True)
    line = PROGRAMS.read_text(encoding="utf-8").partition("def one_is_killed")[0].count("\n") + 3
    for part in ("rank 1 (process", "killed", "last in all_reduce() of (3,)", f".py:{line}"):
        assert part in text
    made = {Path(word) for word in text.split() if word.startswith("/dev/shm/mpich")}
    assert made
    until = time.monotonic() + 20  # what is beside the ranks outlives mpiexec
    while any(path.exists() for path in made) and time.monotonic() < until:
        time.sleep(0.1)
    assert [path for path in made if path.exists()] == []


def test_what_a_run_without_survivors_left_is_removed_by_the_next(tmp_path, monkeypatch):
    """A note of a process that is gone, and the file it names."""
    monkeypatch.setattr(beside.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(beside, "MPICH_FILES", str(tmp_path / "mpich"))
    left, other = tmp_path / "mpich_shm_1", tmp_path / "somebody_elses"
    left.touch()
    other.touch()
    gone = subprocess.Popen(["true"])
    gone.wait()
    note = tmp_path / f"{beside.NOTE_NAME}-{os.getuid()}-{gone.pid}"
    note.write_text(f"{left}\n{other}", encoding="utf-8")
    beside.SharedFiles()
    assert not left.exists()
    assert not note.exists()
    assert other.exists()


def test_training_goes_on_after_a_rank_was_killed(tmp_path):
    """From its last whole file; the example itself compares the losses with one process."""
    file = tmp_path / "run.npz"
    assert "step 10" in run(PROGRAMS, "training_that_is_killed", file, fails=True)
    assert "4 losses, each at most" in run(EXAMPLE, "--steps", 14, "--file", file)


def test_one_rank_alone_is_told_how_to_start_several():
    assert "one rank alone has nothing to share" in run(EXAMPLE, ranks=1, fails=True)


def test_compiled_steps_make_the_same_collectives_on_every_rank():
    """Also those whose result a rank does not read, and in the calls that run both ways."""
    run(PROGRAMS, "compiled_steps")


def test_a_step_compiled_on_one_rank_alone_is_an_error_with_its_remedy():
    text = run(PROGRAMS, "compiled_on_one_rank", fails=True)
    assert "of () float64, again, to compare" in text
    assert "a step is compiled on every rank or on none" in text
