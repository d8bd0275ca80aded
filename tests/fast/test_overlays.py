"""Every overlay gives what its op's kernel and rules give: on all samples and on large arrays."""

from copy import deepcopy

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS
from minigrad.fast.memory import release
from tests.compare import assert_same

HAS_OVERLAY = pytest.mark.only(lambda x: getattr(x, "op", x).overlay is not None)


@pytest.fixture
def always(monkeypatch):
    """Overlays run on arrays of any size, and their results lie in memory that is used again."""
    for op in mg.registry.values():
        if op.overlay is not None:
            monkeypatch.setattr(op.overlay, "above", 0)
    with LIMITS.changed(
        small_entries=0,
        reuse_bytes=1,
        patch_entries=99,
        threaded_macs=0,
        cached_entries=50,
        block_entries=50,
    ):
        yield
    release()


def run(invoke, op, tensors, settings, u, overlay):
    """The result and all gradients, with the overlay where it takes the call, or without."""
    with pytest.MonkeyPatch.context() as patch:
        if not overlay:
            patch.setattr(op, "overlay", None)
        out = invoke(op, tensors, deepcopy(settings))
        leaves = [x for x in tensors if isinstance(x, mg.Tensor) and x.requires_grad]
        return out, [out.numpy(), *mg.grad(out, leaves, np.asarray(u, out.dtype))]


def compare(invoke, op, make, settings, u):
    """Both ways; all that kernels and rules are given is read-only, so a write would raise."""
    (out, fast), (_, plain) = (
        run(invoke, op, make(), settings, u, overlay) for overlay in (True, False)
    )
    assert_same(fast, plain, 1e-4 if out.dtype == np.float32 else 1e-11)
    return out.node.plan.overlay is not None


@HAS_OVERLAY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_every_sample(case, dtype, invoke, leaves, cotangent, always):
    def make():
        tensors = leaves(case, dtype)
        for x in tensors:
            if isinstance(x, mg.Tensor):
                x._data.flags.writeable = False
        return tensors

    out = invoke(case.op, make(), deepcopy(case.settings))
    u = cotangent(out.shape, out.dtype)
    u.flags.writeable = False
    for _ in range(2):  # the second time in the memory of the first
        compare(invoke, case.op, make, case.settings, u)


def _large(op, dtype):
    """A call on large arrays, with infinities where a mask may have them."""
    rng = np.random.default_rng(5)

    def draw(*shape, low=-2.0, high=2.0):
        return rng.uniform(low, high, shape).astype(dtype)

    x, mask = draw(7, 60, 50), np.where(rng.uniform(size=(60, 50)) < 0.5, 0, -np.inf).astype(dtype)
    weight, bias, rows = draw(50), draw(50), np.arange(7)[::-1].copy()
    calls = {
        "add": ([x, weight], []),
        "multiply": ([x, weight], []),
        "power": ([np.abs(x) + 0.5, weight], []),
        "maximum": ([x, weight], []),
        "minimum": ([x, weight], []),
        "where": ([x, weight], [x > 0.3]),
        "matmul": ([x, draw(50, 40)], []),
        "linear": ([x, draw(50, 40), draw(40)], [False]),
        "mask_add": ([x, mask], []),
        "scale": ([x], [0.3]),
        "gelu": ([x], ["tanh"]),
        "clip": ([x], [-1.0, 1.0]),
        "reshape": ([x.swapaxes(0, 1)], [(-1,)]),
        "dropout": ([x], [0.4, np.random.default_rng(3)]),
        "softmax": ([x], [-1]),
        "log_softmax": ([x], [-1]),
        "cross_entropy": ([x], [rng.integers(0, 50, (7, 60))]),
        "layer_norm": ([x, weight, bias], [1e-5]),
        "rms_norm": ([x, weight], [1e-5]),
        "batch_norm": ([x.reshape(7, 50, 60), weight, bias], [None, None, 1e-5]),
        "max": ([x], [-1, False]),
        "min": ([x], [-1, False]),
        "cumsum": ([x], [-1]),
        "sort": ([x], [2]),
        "getitem": ([x], [rows]),
        "take": ([x], [rows, 0, True]),
        "scatter_add": ([x], [rows, x.shape]),
        "conv1d": ([x, draw(20, 30, 3), draw(20)], [1, 1, 1, 2]),
        "conv2d": ([x.reshape(7, 5, 12, 50), draw(6, 5, 3, 3), draw(6)], [2, 1, 1, 1]),
        "conv_transpose1d": ([x, draw(60, 10, 3), draw(20)], [2, 1, 1, 2, 1]),
        "conv_transpose2d": ([x.reshape(7, 5, 12, 50), draw(5, 6, 3, 3), draw(6)], [1, 1, 0, 1, 2]),
        "max_pool": ([x], [3, 2, 1]),
        "avg_pool": ([x], [3, 2, 1]),
        "lstm": (
            [x, draw(80, 50), draw(80, 20), draw(80), draw(60, 20), draw(60, 20)],
            [np.arange(7)[:, None] < rng.integers(1, 8, 60)],
        ),
    }
    return calls.get(op.name, ([x], []))


@pytest.mark.only(lambda op: op.overlay is not None)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_large_arrays(declared, dtype, invoke, cotangent):
    inputs, settings = _large(declared, dtype)

    def make():
        return [mg.tensor(x, requires_grad=True) for x in inputs]

    out = invoke(declared, make(), deepcopy(settings))
    assert compare(invoke, declared, make, settings, cotangent(out.shape, dtype))


SUMS = {"matmul", "linear", "scatter_add", "dropout", "lstm", "conv1d", "conv2d"}
SUMS |= {"conv_transpose1d", "conv_transpose2d"}


@pytest.mark.only(lambda op: op.overlay is not None)
def test_special_entries_go_through_both_alike(declared, invoke, always):
    """NaN, infinities, zeros, and entries that meet their like."""
    if declared.name in SUMS:
        pytest.skip("no entry goes by itself")
    inputs, settings = _large(declared, np.float64)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0])
    inputs = [np.resize(special[i:], x.shape) if i < 2 else x for i, x in enumerate(inputs)]
    if declared.name == "mask_add":
        inputs[1] = np.zeros((60, 50))

    def make():
        return [mg.tensor(x, requires_grad=True) for x in inputs]

    with np.errstate(all="ignore"):
        out = invoke(declared, make(), deepcopy(settings))
        compare(invoke, declared, make, settings, np.ones(out.shape))
