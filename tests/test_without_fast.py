"""Without minigrad/fast, deleted or turned off, all else works and what is missing says so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad as mg

ROOT = Path(mg.__file__).parents[1]
START = """
import sys
import numpy as np
import minigrad as mg
from layers import SelfAttention, create_causal_mask

def refused(call):
    try:
        call()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

def step(x):
    (x * x).sum().backward()

X = np.random.default_rng(5).normal(size=(2, 67, 13))
"""


@pytest.fixture(params=["deleted", "MINIGRAD_FAST=0"])
def without_fast(request, tmp_path):
    """Run a program without minigrad/fast; what it prints."""
    root, turned = ROOT, {"MINIGRAD_FAST": "0"}
    if request.param == "deleted":
        root, turned = tmp_path, {}
        for package in ("minigrad", "layers"):
            ignored = shutil.ignore_patterns("fast", "__pycache__")
            shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)

    def run(program):
        environment = {**os.environ, **turned, "PYTHONPATH": str(root)}
        command = [sys.executable, "-W", "error", "-c", START + program]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_nothing_of_it_is_loaded_and_no_op_has_an_overlay(without_fast):
    program = """
import layers.transformer, minigrad.check, minigrad.optim
assert mg.softmax(mg.tensor(X, requires_grad=True)).shape == X.shape
print([name for name in sys.modules if name.startswith("minigrad.fast")])
print([op.name for op in mg.registry.values() if op.overlay is not None])
"""
    assert without_fast(program) == "[]\n[]"


def test_compile_and_tiles_say_what_is_missing(without_fast):
    program = """
refused(lambda: mg.compile(step)(mg.tensor(X, requires_grad=True)))
refused(lambda: mg.scaled_dot_product_attention(X, X, X, method="tiled"))
refused(lambda: SelfAttention(13, 5, 7, method="tiled")(X))
"""
    lines = without_fast(program).split("\n")
    assert len(lines) == 3
    assert all("minigrad/fast" in line and "MINIGRAD_FAST=0" in line for line in lines), lines


def test_auto_is_exact_whatever_the_length(without_fast):
    program = """
print(mg.attention_method(8, 8192, 8192))
out = SelfAttention(13, 5, 7, method="auto")(np.zeros((1, 1500, 13)))
print(out.node.op.name)
"""
    assert without_fast(program) == "exact\nlinear"
