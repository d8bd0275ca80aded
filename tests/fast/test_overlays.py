"""Every overlay gives what its op's kernel and rules give: on all samples and on large arrays; and
what some of them promise beyond that.
"""

from copy import deepcopy

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS
from tests.compare import assert_same

HAS_OVERLAY = pytest.mark.only(lambda x: getattr(x, "op", x).faster is not None)


@pytest.fixture
def always(monkeypatch):
    """Overlays run on arrays of any size."""
    for op in mg.registry.values():
        if op.faster is not None:
            monkeypatch.setattr(op.faster.__self__, "above", 0)
    with LIMITS.changed(small_entries=0, cached_entries=9, block_entries=9):
        yield


def run(invoke, op, tensors, settings, u, overlay):
    """The result and all gradients, with the overlay where it takes the call, or without."""
    with pytest.MonkeyPatch.context() as patch:
        if not overlay:
            patch.setattr(op, "faster", None)
        out = invoke(op, tensors, deepcopy(settings))
        leaves = [x for x in tensors if isinstance(x, mg.Tensor) and x.requires_grad]
        return out, [out.numpy(), *mg.grad(out, leaves, np.asarray(u, out.dtype))]


def compare(invoke, op, make, settings, u):
    """Both ways; all that kernels and rules are given is read-only, so a write would raise."""
    (out, fast), (_, plain) = (
        run(invoke, op, make(), settings, u, overlay) for overlay in (True, False)
    )
    assert_same(fast, plain, 1e-4 if out.dtype == np.float32 else 1e-11)
    return out.node.op is op and out.node.plan not in op.plans.values()


@HAS_OVERLAY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_every_sample(case, dtype, invoke, leaves, cotangent, always):
    def make():
        tensors = leaves(case, dtype)
        for x in tensors:
            if isinstance(x, mg.Tensor):
                x._data.flags.writeable = False
        return tensors

    tensors = make()
    out = invoke(case.op, tensors, deepcopy(case.settings))
    u = cotangent(out.shape, out.dtype)
    u.flags.writeable = False
    needed = [tensors[i] for i in case.free]
    recorded = mg.grad(out, needed, u, create_graph=True)  # by the op's own rules
    gradients = mg.grad(out, needed, u)
    assert_same(recorded, gradients, 1e-4 if dtype == np.float32 else 1e-11)
    given = [out.numpy(), *gradients]
    before = [array.copy() for array in given]
    for _ in range(2):  # in memory that was used, but for what is still there
        compare(invoke, case.op, make, case.settings, u)
    assert_same(given, before, 0)


def _large(op, dtype):
    """A call on large arrays, with infinities where a mask may have them."""
    rng = np.random.default_rng(5)

    def draw(*shape, low=-2.0, high=2.0):
        return rng.uniform(low, high, shape).astype(dtype)

    x, weight, bias = draw(7, 60, 50), draw(50), draw(50)
    calls = {
        "layer_norm": ([x + dtype(3e3), weight, bias], [1e-5]),  # its mean is far from 0
        "rms_norm": ([x, weight], [1e-5]),
        "conv1d": ([x, draw(20, 30, 3), draw(20)], [1, 1, 1, 2]),
        "conv2d": ([x.reshape(7, 5, 12, 50), draw(6, 5, 3, 3), draw(6)], [2, 1, 1, 1]),
        "max_pool": ([np.round(x)], [3, 2, 1]),  # of equal ones the first
        "lstm": (
            [x, draw(80, 50), draw(80, 20), draw(80), draw(60, 20), draw(60, 20)],
            [np.arange(7)[:, None] < rng.integers(1, 8, 60)],
        ),
    }
    return calls.get(op.name, ([x], []))


def has_overlay(op):
    """But for attention in tiles, which has tests of its own."""
    op = getattr(op, "op", op)
    return op.faster is not None and op.name != "tiled_attention"


@pytest.mark.only(lambda op: has_overlay(op))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_large_arrays(declared, dtype, invoke, cotangent):
    inputs, settings = _large(declared, dtype)

    def make():
        return [mg.tensor(x, requires_grad=True) for x in inputs]

    out = invoke(declared, make(), deepcopy(settings))
    assert compare(invoke, declared, make, settings, cotangent(out.shape, dtype))


@pytest.mark.only(lambda op: has_overlay(op) and len(op.inputs) > 1)
def test_the_dtype_of_a_result_does_not_depend_on_its_size(declared, invoke, monkeypatch):
    """float32 beside float64 gives float64, as NumPy has it, of large arrays too."""
    given, settings = _large(declared, np.float32)
    for i in range(len(given)):
        inputs = [x.astype(np.float64) if i == j else x for j, x in enumerate(given)]
        made = invoke(declared, inputs, settings)
        with monkeypatch.context() as patch:
            patch.setattr(declared, "faster", None)
            assert invoke(declared, inputs, settings).dtype == made.dtype


@pytest.mark.only(lambda op: has_overlay(op))
def test_large_arrays_may_be_of_the_other_byte_order(declared, invoke):
    """As files have them that were written on other machines."""
    given, settings = _large(declared, np.float32)
    expected = invoke(declared, given, settings)
    found = invoke(declared, [x.astype(x.dtype.newbyteorder()) for x in given], settings)
    assert_same(found.astype(np.float32), expected, 1e-5)


BESIDE_ONE = {
    "maximum": mg.maximum,
    "minimum": lambda x, one: mg.minimum(one, x),
    "power": mg.power,
    "where": lambda x, one: mg.where(x > 1, x, one),
    "clip": mg.clip,
}


@pytest.mark.parametrize("name", BESIDE_ONE)
def test_an_array_of_one_entry_may_have_more_axes_than_a_large_one(name):
    x, one = mg.tensor(np.linspace(0.5, 2.0, 150_000), requires_grad=True), np.ones((1, 1))
    out = BESIDE_ONE[name](x, one)
    assert_same(out, BESIDE_ONE[name](x[None], one), 0)
    out.backward(np.ones(out.shape))
    assert x.grad.shape == x.shape


SUMS = {"matmul", "linear", "scatter_add", "dropout", "lstm", "conv1d", "conv2d"}


@pytest.mark.only(lambda op: has_overlay(op) and op.name not in SUMS)
def test_special_entries_go_through_both_alike(declared, invoke, always):
    """NaN, infinities, zeros, and entries that meet their like, but in sums of many of them."""
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


# ---------------------------------------------------------------- convolution


def test_a_gradient_of_images_has_the_same_bits_however_threads_take_turns(rng):
    x = rng.normal(size=(11, 5, 13, 17)).astype(np.float32)
    weight = mg.tensor(rng.normal(size=(7, 5, 3, 3)).astype(np.float32), requires_grad=True)

    def gradient():
        out = mg.conv2d(mg.tensor(x, requires_grad=True), weight, None, 1, 1)
        return mg.grad(out, weight, np.sin(np.arange(out.size, dtype="f4")).reshape(out.shape))

    with LIMITS.changed(block_entries=2000, cached_entries=0):
        first = gradient()
        for _ in range(10):
            np.testing.assert_array_equal(gradient(), first)


def test_images_lie_as_the_next_convolution_reads_them_and_frozen_weights_keep_none(rng):
    """The batch last, behind the shape (N, C, H, W)."""
    x = mg.tensor(rng.normal(size=(3, 5, 19, 23)), requires_grad=True)
    out = mg.conv2d(x, rng.normal(size=(7, 5, 3, 3)), None, 1, 1)
    assert out.shape == (3, 7, 19, 23)
    assert out.data.transpose(1, 2, 3, 0).flags.c_contiguous
    assert not any(saved is x.data for saved in out.node.saved)


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ((2, 5, 4, 3), (1, 7, 1, 1)),
        ((2, 5, 4, 3), (3, 7, 2, 1)),
        ((1, 12, 9, 11), (2, (9, 0), (1, 2), 4)),
        ((3, 8, 6, 7), ((1, 4), (0, 8), 1, 8)),
    ],
)
def test_windows_that_lie_in_the_padding_alone_see_zeros(size, settings, rng, invoke):
    """One row of windows to a block: some blocks see nothing of the image."""
    groups = settings[3]
    x, w = rng.normal(size=size), rng.normal(size=(2 * groups, size[1] // groups, 3, 2))

    def make():
        return [*(mg.tensor(a, requires_grad=True) for a in (x, w)), None]

    shape = mg.conv2d(x, w, None, *settings).shape
    with LIMITS.changed(block_entries=1, cached_entries=0), pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.conv2d.faster.__self__, "above", 0)
        assert compare(invoke, mg.conv2d, make, settings, rng.normal(size=shape))
