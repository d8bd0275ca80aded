"""Every overlay, by NumPy or by a loop, gives what its op's kernel and rules give: on all samples
and on large arrays; and what some of them promise beyond that.
"""

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.loops import HAS_LOOPS, IS_WANTED, load
from minigrad.fast.overlay import overlays_of
from tests.compare import assert_same
from tests.conftest import CASES

if IS_WANTED:
    load()
OVERLAYS = [
    overlay
    for op in mg.registry.values()
    if op.faster is not None and op.name != "tiled_attention"
    for overlay in overlays_of(op).every
]
BOTH_DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def every_overlay(of=lambda op: True):
    """One test for each overlay whose op is wanted."""
    wanted = [overlay for overlay in OVERLAYS if of(overlay.of)]
    ids = [f"{x.name}-{'loop' if '.loops.' in x.when.__module__ else 'numpy'}" for x in wanted]
    return pytest.mark.parametrize("overlay", wanted, ids=ids)


def test_loops_are_those_of_the_table_where_numba_is_installed():
    by_loops = {x.of for x in OVERLAYS if ".loops." in x.when.__module__}
    assert by_loops == ({*HAS_LOOPS} if IS_WANTED else set())


@pytest.fixture(autouse=True)
def alone(request, monkeypatch):
    """Of an op's overlays only the one that is tested runs, on arrays of any size."""
    overlay = (
        request.node.callspec.params.get("overlay") if hasattr(request.node, "callspec") else None
    )
    if overlay is not None:
        overlays = overlays_of(overlay.of)
        monkeypatch.setattr(overlays, "every", [overlay])
        monkeypatch.setattr(overlays, "above", 0)


def compare(invoke, op, make, settings, u):
    """The result and all gradients, with the overlay and without; whether it took the call.

    All that kernels and rules are given is read-only, so a write would raise.
    """
    results, plans = [], []
    for overlay in (op.faster, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(op, "faster", overlay)
            tensors = make()
            out = invoke(op, tensors, settings)
            leaves = [x for x in tensors if isinstance(x, mg.Tensor) and x.requires_grad]
            results.append([out.numpy(), *mg.grad(out, leaves, np.asarray(u, out.dtype))])
            plans.append(out.node.plan)
            assert out.node.op is op
    assert_same(*results, 1e-4 if out.dtype == np.float32 else 1e-11)
    return plans[0] is not plans[1]


@every_overlay()
@BOTH_DTYPES
def test_on_every_sample(overlay, dtype, invoke, leaves, cotangent):
    took = False
    for case in [case for case in CASES if case.op is overlay.of]:

        def make(case=case):
            tensors = leaves(case, dtype)
            for x in tensors:
                if isinstance(x, mg.Tensor):
                    x._data.flags.writeable = False
            return tensors

        tensors = make()
        out = invoke(case.op, tensors, case.settings)
        u = cotangent(out.shape, out.dtype)
        u.flags.writeable = False
        needed = [tensors[i] for i in case.free]
        recorded = mg.grad(out, needed, u, create_graph=True)  # by the op's own rules
        gradients = mg.grad(out, needed, u)
        assert_same(recorded, gradients, 1e-4 if dtype == np.float32 else 1e-11)
        given = [out.numpy(), *gradients]
        before = [array.copy() for array in given]
        took |= compare(invoke, case.op, make, case.settings, u)
        assert_same(given, before, 0)
    assert took


def turned(x):
    """The same entries, of which the last axis lies from its end on."""
    return np.ascontiguousarray(x[..., ::-1])[..., ::-1]


def large(op, dtype):
    """A call on large arrays."""
    rng = np.random.default_rng(5)

    def draw(*shape):
        return rng.uniform(-2, 2, shape).astype(dtype)

    x = draw(7, 60, 50)
    return {
        "gelu": lambda: ([x], ["none"]),
        "softmax": lambda: ([x], [-1]),
        "layer_norm": lambda: ([x, draw(50), draw(50)], [1e-5]),
        "rms_norm": lambda: ([x, draw(50)], [1e-5]),
        "conv2d": lambda: ([x.reshape(7, 5, 12, 50), draw(6, 5, 3, 3), draw(6)], [1, 1, 1, 1]),
        "max_pool": lambda: ([draw(7, 6, 10, 90)], [3, 2, 1]),
        "lstm": lambda: (
            [x, draw(80, 50), draw(80, 20), draw(80), draw(60, 20), draw(60, 20)],
            [np.arange(7)[:, None] < rng.integers(1, 8, 60)],
        ),
    }[op.name]()


@every_overlay()
@BOTH_DTYPES
@pytest.mark.parametrize("layout", [np.array, np.asfortranarray, turned])
def test_on_large_arrays_in_any_layout(overlay, dtype, layout, invoke, cotangent):
    """Rows one after the other, columns, and the last axis from its end."""
    inputs, settings = large(overlay.of, dtype)

    def make():
        tensors = [mg.tensor(x, requires_grad=True) for x in inputs]
        for x in tensors:
            x._data = layout(x._data)
        return tensors

    out = invoke(overlay.of, make(), settings)
    assert compare(invoke, overlay.of, make, settings, layout(cotangent(out.shape, dtype)))


@every_overlay(lambda op: len(op.inputs) > 1)
def test_the_dtype_of_a_result_does_not_depend_on_its_size(overlay, invoke, monkeypatch):
    """float32 beside float64 gives float64, as NumPy has it, of large arrays too."""
    declared = overlay.of
    given, settings = large(declared, np.float32)
    for i in range(len(given)):
        inputs = [x.astype(np.float64) if i == j else x for j, x in enumerate(given)]
        made = invoke(declared, inputs, settings)
        with monkeypatch.context() as patch:
            patch.setattr(declared, "faster", None)
            assert invoke(declared, inputs, settings).dtype == made.dtype


STRANGE = "a", None, (), [[1.0], [2.0, 3.0]], 3.0, 1, np.zeros((0, 3))


@every_overlay()
def test_a_strange_argument_is_taken_or_refused_as_by_the_op_alone(overlay, monkeypatch):
    """An error begins with the call; a number of Python may stand for an array."""
    op = overlay.of
    inputs, settings = large(op, np.float32)
    arguments = dict(zip(op.inputs + op.settings, [*inputs, *settings], strict=False))

    def outcomes():
        for name in op.inputs + op.settings:
            for value in STRANGE:
                try:
                    yield op(**arguments | {name: value}).shape
                except mg.errors.MinigradError as error:
                    yield str(error).startswith(str(op))

    by_overlay = [*outcomes()]
    monkeypatch.setattr(op, "faster", None)
    assert by_overlay == [*outcomes()]
    assert False not in by_overlay


@every_overlay()
def test_large_arrays_may_be_of_the_other_byte_order(overlay, invoke):
    """As files have them that were written on other machines."""
    given, settings = large(overlay.of, np.float32)
    expected = invoke(overlay.of, given, settings)
    found = invoke(overlay.of, [x.astype(x.dtype.newbyteorder()) for x in given], settings)
    assert_same(found.astype(np.float32), expected, 1e-5)


@every_overlay(lambda op: op.name not in ("conv2d", "lstm"))
def test_special_entries_go_through_both_alike(overlay, invoke):
    """NaN, infinities, zeros, and entries that meet their like."""
    declared = overlay.of
    inputs, settings = large(declared, np.float64)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, 1.0, -1.0])
    inputs = [np.resize(special[i:], x.shape) if i < 2 else x for i, x in enumerate(inputs)]

    def make():
        return [mg.tensor(x, requires_grad=True) for x in inputs]

    with np.errstate(all="ignore"):
        out = invoke(declared, make(), settings)
        assert compare(invoke, declared, make, settings, np.ones(out.shape))


NOTHING = {
    "conv2d": [(0, 5, 3, 3), (0,)],
    "lstm": [(0, 50), (0, 0), (0,), (60, 0), (60, 0)],
}


@every_overlay(lambda op: op.name in NOTHING)
def test_without_filters_or_units_the_gradient_of_a_large_input_is_zero(overlay, invoke):
    inputs, settings = large(overlay.of, np.float64)
    arrays = [inputs[0], *map(np.zeros, NOTHING[overlay.of.name])]
    leaves = [mg.tensor(x, requires_grad=True) for x in arrays]
    gradients = mg.grad(invoke(overlay.of, leaves, settings).sum(), leaves)
    assert_same(gradients, [np.zeros_like(x) for x in arrays], 0)


# ---------------------------------------------------------------- convolution


def test_images_lie_as_the_next_convolution_reads_them_and_frozen_weights_keep_none(rng):
    """The batch last, behind the shape (N, C, H, W)."""
    x = mg.tensor(rng.normal(size=(3, 5, 19, 23)), requires_grad=True)
    out = mg.conv2d(x, rng.normal(size=(7, 5, 3, 3)), None, 1, 1)
    assert out.shape == (3, 7, 19, 23)
    assert out.data.transpose(1, 2, 3, 0).flags.c_contiguous
    assert not any(saved is x.data for saved in out.node.saved)


@every_overlay(lambda op: op.name == "conv2d")
@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ((3, 8, 6, 7), (1, (2, 1), 2, 4)),
        ((2, 5, 4, 3), (1, "same", 1, 1)),
        ((2, 5, 4, 3), (1, 7, 1, 1)),
        ((2, 5, 4, 3), (1, 7, 2, 1)),
        ((1, 12, 9, 11), (1, (9, 0), (1, 2), 4)),
        ((3, 8, 6, 7), ((1, 1), (0, 8), 1, 8)),
    ],
)
def test_convolution_with_any_setting(overlay, size, settings, rng, invoke):
    """Some windows lie in the padding alone."""
    groups = settings[3]
    x, w = rng.normal(size=size), rng.normal(size=(2 * groups, size[1] // groups, 3, 2))

    def make():
        return [*(mg.tensor(a, requires_grad=True) for a in (x, w)), None]

    shape = mg.conv2d(x, w, None, *settings).shape
    assert compare(invoke, overlay.of, make, settings, rng.normal(size=shape))
