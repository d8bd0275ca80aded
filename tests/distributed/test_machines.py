"""Ranks on two machines: two network namespaces, which share no memory as far as MPI knows."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("mpi_programs.py")
MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
SPACES = [f"minigrad{os.getpid()}{side}" for side in "ab"]
SETUP = """
ip netns add {a} && ip netns add {b}
ip link add v0 netns {a} type veth peer name v1 netns {b}
ip -n {a} addr add 10.77.0.1/24 dev v0 && ip -n {b} addr add 10.77.0.2/24 dev v1
ip -n {a} link set v0 up && ip -n {b} link set v1 up
ip -n {a} link set lo up && ip -n {b} link set lo up
"""
SSH = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
space={a}; [[ $1 == 10.77.0.2 ]] && space={b}
shift
exec ip netns exec $space sh -c "$*"
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mpiexec(tmp_path_factory):
    """Start a program on two machines; its exit code and all that it printed."""
    if MPIEXEC is None or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs mpiexec, root and iproute2")
    names = dict(zip("ab", SPACES, strict=True))
    made = subprocess.run(["sh", "-ec", SETUP.format(**names)], capture_output=True, text=True)
    if made.returncode:
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    ssh = tmp_path_factory.mktemp("machines") / "ssh"
    ssh.write_text(SSH.format(**names), encoding="utf-8")
    ssh.chmod(0o755)

    def start(*program):
        command = ["ip", "netns", "exec", SPACES[0], MPIEXEC]
        command += ["-launcher", "ssh", "-launcher-exec", str(ssh), "-ppn", "1", "-n", "2"]
        command += ["-genv", "PYTHONPATH", str(ROOT), "-genv", "MINIGRAD_WAIT", "3"]
        command += ["-hosts", "10.77.0.1,10.77.0.2", sys.executable, "-m", "mpi4py"]
        done = subprocess.run(
            [*command, str(PROGRAMS), *program], capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    yield start
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


def test_collectives_between_machines_give_what_they_say(mpiexec):
    code, text = mpiexec("collectives", "apart")
    assert code == 0, text
    assert all(f"rank {rank} agrees" in text for rank in range(2))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("one_differs", ["rank 0: all_reduce(x) of (3,)", "rank 1: all_reduce(x) of (4,)"]),
        ("one_loops", ["rank 0 waits in all_reduce", "nothing of the others for 3 s"]),
        ("one_skips", ["rank 0 waits in all_reduce", "nothing of the others for 3 s"]),
        ("one_is_killed", []),
    ],
)
def test_what_goes_wrong_on_one_machine_ends_the_other(mpiexec, program, said):
    code, text = mpiexec(program)
    assert code != 0
    for part in said:
        assert part in text
