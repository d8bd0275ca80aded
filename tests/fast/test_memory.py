"""The first backward pass tells the C library to keep what is freed, unless told not to."""

import platform

import pytest

from tests.process import python

PROGRAM = """
import sys
import numpy as np
import minigrad as mg

def faults():
    with open("/proc/self/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[7])

def touch():
    np.ones(1 << 18)  # two megabytes

for _ in sys.argv[1:]:
    mg.exp(mg.tensor(1.0, requires_grad=True)).backward()
touch()
before = faults()
for _ in range(50):
    touch()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its settings are glibc's")
@pytest.mark.parametrize(
    ("steps", "changes", "keeps"),
    [(["a step"], {}, True), ([], {}, False), (["a step"], {"MINIGRAD_MALLOPT": "0"}, False)],
)
def test_after_a_step_what_is_freed_is_used_again_unless_told_not(steps, changes, keeps):
    """In a process whose C library would map each array of 64 KiB anew."""
    done = python("-c", PROGRAM, *steps, MALLOC_MMAP_THRESHOLD_="65536", **changes)
    assert (int(done.stdout) < 1000) == keeps
