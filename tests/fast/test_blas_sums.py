"""Sums by BLAS are NumPy's sums, of whatever form, and lose less."""

import numpy as np

from minigrad.fast.blas_sums import column_sums, sum_over
from minigrad.fast.limits import LIMITS


def _forms(rng):
    x = rng.normal(size=(3, 5, 7))
    yield x
    yield x[0]
    yield x[0, 0]
    yield x.transpose(2, 0, 1)
    yield x[:, ::2, ::-1]
    yield x.astype(np.float32)
    yield x.astype(np.float16)
    yield np.arange(30).reshape(2, 3, 5)
    yield np.zeros((0, 5))
    yield np.zeros((5, 0))
    yield rng.normal(size=(2, LIMITS.summed_rows + 3, 2))


def test_column_sums_are_numpys(rng):
    for x in _forms(rng):
        for axes in range(x.ndim):
            expected = x.sum(axis=tuple(range(axes)))
            found = sum_over(x, tuple(range(axes)))
            assert found.shape == expected.shape
            rounding = 2e-3 if x.dtype == np.float16 else 1e-6 if x.dtype == np.float32 else 1e-12
            np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)


def test_columns_lose_less_than_one_entry_after_the_other(rng):
    x = rng.normal(size=(1 << 14, 8)).astype(np.float32)
    exact = x.astype(np.float64).sum(axis=0)
    assert np.abs(column_sums(x) - exact).max() < np.abs(x.sum(axis=0) - exact).max()
