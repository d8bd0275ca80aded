"""Every op again, with memory used anew for each array, however small."""

import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS
from minigrad.fast.memory import release

KERNELS = [
    sys.modules[f"minigrad.{name}"]
    for name in ("ops.elementwise", "ops.linalg", "ops.reduce", "engine.sparse")
]


@pytest.fixture
def all_large(monkeypatch):
    for module in KERNELS:
        monkeypatch.setattr(module, "FEW", 0)
    with LIMITS.changed(reuse_bytes=1):
        yield
    release()


def _results(case, invoke, leaves, cotangent):
    tensors = leaves(case)
    for x in tensors:
        if isinstance(x, mg.Tensor):
            x.data.flags.writeable = False
    out = invoke(case.op, tensors, case.settings)
    u = cotangent(out.shape)
    u.flags.writeable = False
    return [out.numpy(), *mg.grad(out, [tensors[i] for i in case.free], u)]


def test_large_arrays_give_what_small_ones_give(case, invoke, leaves, cotangent, all_large):
    """And nothing that a kernel or a rule was given is written to: all of it is read-only."""
    large = [_results(case, invoke, leaves, cotangent) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch, LIMITS.changed(reuse_bytes=1 << 40):
        for module in KERNELS:
            patch.setattr(module, "FEW", 1 << 40)
        small = _results(case, invoke, leaves, cotangent)
    for results in large:
        for got, expected in zip(results, small, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
