"""masked is np.where(mask, x, 0) to the last bit, whatever x holds and however it lies."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS
from minigrad.fast.overlays.masked import masked

STRANGE = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0]


@pytest.fixture(params=["few", "many"])
def how_many(request):
    with LIMITS.changed(small_entries=0 if request.param == "many" else 1 << 12):
        yield


@pytest.mark.usefixtures("how_many")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.int64, complex])
@pytest.mark.parametrize(
    "lay", [lambda x: x, lambda x: x.T, lambda x: x[::-2, ::2], lambda x: x[:1], lambda x: x[0, 0]]
)
def test_it_is_where_to_the_last_bit(dtype, lay, rng):
    with np.errstate(invalid="ignore"):
        x = rng.choice(STRANGE, (8, 6)).astype(dtype)
        x[3, 2] = np.array(np.finfo(np.float16).tiny).astype(dtype)
    mask = rng.uniform(size=(8, 6)) < 0.5
    for given, where in (
        (lay(x), lay(mask)),
        (lay(x), np.ones((2, 1, 1), bool)),
        (x[:, :1], mask),
    ):
        found, expected = masked(given, where), np.where(where, given, 0)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


def test_it_writes_where_it_is_told_even_over_its_input(rng):
    x, mask = rng.normal(size=(5, 7)), rng.uniform(size=(5, 7)) < 0.5
    expected = np.where(mask, x, 0)
    assert masked(x, mask, out=x) is x
    np.testing.assert_array_equal(x, expected)


def test_large_results_lie_where_earlier_ones_lay_and_leave_their_input_alone(rng):
    x = rng.normal(size=(400, 300))
    mask = x > 0
    x.flags.writeable = False
    mg.fast.memory.release()
    for _ in range(2):
        found = masked(x, mask)
        np.testing.assert_array_equal(found, np.maximum(x, 0))
        del found
        assert sum(mg.fast.memory.by_size().values()) == 1
