"""Sums by BLAS are NumPy's sums, of whatever form, and lose less."""

import numpy as np
import pytest

from minigrad.fast.blas_sums import as_rows, column_sums, row_sums
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
            found = column_sums(x, axes)
            assert found.shape == expected.shape
            rounding = 2e-3 if x.dtype == np.float16 else 1e-6 if x.dtype == np.float32 else 1e-12
            np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)


def test_row_sums_are_numpys(rng):
    for x in [*_forms(rng), rng.normal(size=(2, (1 << 14) + 3))]:
        rounding = 2e-3 if x.dtype == np.float16 else 1e-6 if x.dtype == np.float32 else 1e-12
        expected = x.sum(axis=-1, keepdims=True)
        assert row_sums(x).shape == expected.shape
        np.testing.assert_allclose(row_sums(x), expected, rtol=rounding, atol=rounding)


def test_columns_lose_less_than_one_entry_after_the_other(rng):
    x = rng.normal(size=(1 << 14, 8)).astype(np.float32)
    exact = x.astype(np.float64).sum(axis=0)
    assert np.abs(column_sums(x) - exact).max() < np.abs(x.sum(axis=0) - exact).max()


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5), (2, 0, 5), (2, 3, 0)])
def test_rows_are_all_axes_but_the_last_as_one(shape):
    x = np.zeros(shape)
    assert as_rows(x).shape == (int(np.prod(shape[:-1])), shape[-1])
