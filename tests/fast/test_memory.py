"""The C library is told to keep freed memory, unless the environment says no."""

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

touch()
before = faults()
for _ in range(50):
    touch()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its settings are glibc's")
def test_what_is_freed_is_used_again_unless_the_environment_says_no():
    kept = int(python("-c", PROGRAM).stdout)
    off = int(python("-c", PROGRAM, MINIGRAD_MALLOPT="0", MALLOC_MMAP_THRESHOLD_="65536").stdout)
    assert kept < 1000 < off
