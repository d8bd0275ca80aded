"""masked is np.where(mask, x, 0) to the last bit, whatever x holds and however it lies."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.ops.masked import masked

STRANGE = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0]


@pytest.fixture(params=["few", "many"])
def how_many(request, monkeypatch):
    if request.param == "many":
        monkeypatch.setattr(mg.ops.masked, "FEW", 0)


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


@pytest.mark.parametrize("op", [mg.relu, mg.abs, mg.maximum, mg.clip, mg.where])
def test_an_infinite_gradient_is_nothing_where_the_other_side_was_taken(op, monkeypatch):
    """Zero times infinity would be NaN."""
    monkeypatch.setattr(mg.ops.masked, "FEW", 0)
    x = mg.tensor([-1.0, 2.0, 5.0], requires_grad=True)
    calls = {
        mg.maximum: lambda: op(x, 0.0),
        mg.clip: lambda: op(x, 0.0, 10.0),
        mg.where: lambda: op(x.data > 0, x, 0.0),
    }
    out = calls.get(op, lambda: op(x))()
    with np.errstate(all="raise"):
        out.backward(np.array([np.inf, np.inf, 3.0]))
    expected = [-np.inf if op is mg.abs else 0.0, np.inf, 3.0]
    np.testing.assert_array_equal(x.grad, expected)


def test_equal_entries_share_an_infinite_gradient(monkeypatch):
    monkeypatch.setattr(mg.ops.masked, "FEW", 0)
    a, b = (mg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    mg.maximum(a, b).backward(np.array([np.inf, 3.0]))
    np.testing.assert_array_equal(a.grad, [np.inf, 1.5])
    np.testing.assert_array_equal(b.grad, [np.inf, 1.5])
