"""The facts of an array: what NumPy says of it, at every scale, measured once."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.recording import record
from minigrad.recording.record import facts_of, measure


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 40_000)])
def test_facts_are_numpys_own(dtype, shape):
    array = (np.random.default_rng(3).normal(size=shape) * 3).astype(dtype)
    wide = array.astype(np.float64)
    expected = [np.sqrt(np.mean(wide**2)), wide.min(), wide.max()]
    found = measure(array)
    np.testing.assert_allclose(
        [found.rms, found.low, found.high], expected, rtol=1e-6 if dtype == "float32" else 1e-12
    )


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-20, 1e20, 1e160, 1e300])
def test_no_scale_overflows_or_vanishes(scale):
    np.testing.assert_allclose(measure(scale * np.array([3.0, 4.0])).rms, scale * 12.5**0.5)


def test_what_is_not_finite_is_told_and_a_mask_is_left_out():
    masked = measure(np.array([3.0, -np.inf, 3.0]))
    assert (masked.finite, masked.unmasked_rms, masked.low) == (False, 3.0, -np.inf)
    assert not measure(np.array([1.0, np.nan])).finite
    assert not measure(np.array([1.0, np.inf])).finite
    assert measure(np.zeros((0, 3))).finite


def test_an_array_is_measured_once_however_many_views_ask(monkeypatch, tmp_path):
    x = mg.tensor(np.arange(5.0), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(mg.tanh(x) * 3.0).backward()
    measured = []

    def counting(array):
        measured.append(array)
        return measure(array)

    monkeypatch.setattr(record, "measure", counting)
    for _ in range(2):
        t.draw(tmp_path / "g.dot")
        t.table()
        t.html(tmp_path / "g.html")
        t.to_dict()
    assert len(measured) == len({id(array) for array in measured})


def test_facts_are_forgotten_with_their_array():
    array = np.ones(3)
    facts_of(array)
    key = id(array)
    assert key in record._measured
    del array
    assert key not in record._measured
