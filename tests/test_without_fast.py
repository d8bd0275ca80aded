"""Without minigrad/fast, deleted or turned off, all else works and what is missing says so."""

import shutil
from pathlib import Path

import pytest

import minigrad as mg
from tests.process import python

ROOT = Path(mg.__file__).parents[1]
PROGRAM = """
import sys
import numpy as np
import minigrad as mg
import layers.transformer, minigrad.check, minigrad.optim
from layers import SelfAttention

def refused(call):
    try:
        call()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

def step(x):
    (x * x).sum().backward()

X = np.random.default_rng(5).normal(size=(2, 67, 13))
assert mg.softmax(mg.tensor(X, requires_grad=True)).shape == X.shape
print([name for name in sys.modules if name.startswith("minigrad.fast")])
print([op.name for op in mg.registry.values() if op.overlay is not None])
print(mg.attention_method(8, 8192, 8192))
print(SelfAttention(13, 5, 7, method="auto")(np.zeros((1, 1500, 13))).node.op.name)
refused(lambda: mg.compile(step)(mg.tensor(X, requires_grad=True)))
refused(lambda: mg.scaled_dot_product_attention(X, X, X, method="tiled"))
refused(lambda: SelfAttention(13, 5, 7, method="tiled")(X))
"""


@pytest.mark.parametrize("how", ["deleted", "MINIGRAD_FAST=0"])
def test_nothing_of_it_is_loaded_auto_is_exact_and_what_is_missing_says_so(how, tmp_path):
    root, turned = ROOT, {"MINIGRAD_FAST": "0"}
    if how == "deleted":
        root, turned = tmp_path, {}
        for package in ("minigrad", "layers"):
            ignored = shutil.ignore_patterns("fast", "__pycache__")
            shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    done = python("-W", "error", "-c", PROGRAM, cwd=root, root=root, **turned)
    loaded, overlays, method, op, *refusals = done.stdout.splitlines()
    assert (loaded, overlays, method, op) == ("[]", "[]", "exact", "linear")
    assert len(refusals) == 3
    assert all("minigrad/fast" in line and "MINIGRAD_FAST=0" in line for line in refusals)
