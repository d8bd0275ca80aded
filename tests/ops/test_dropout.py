"""Dropout: what is kept, who draws, and what is refused."""

import numpy as np
import pytest

import minigrad as mg


def test_dropout_keeps_or_zeroes_and_rescales(rng):
    x = mg.tensor(np.full((100, 7), 3.0), requires_grad=True)
    out = mg.dropout(x, 0.25, rng)
    assert set(np.unique(out.data)) == {0.0, 4.0}
    np.testing.assert_allclose(out.data.mean(), 3.0, rtol=0.1)
    np.testing.assert_allclose(mg.grad(out.sum(), x), out.data / 3)


@pytest.mark.parametrize(("p", "kept"), [(0, 1.0), (0.0, 1.0), (1, 0.0), (1.0, 0.0)])
def test_at_p_0_all_is_kept_and_at_p_1_nothing(p, kept, rng):
    x = mg.tensor(np.ones((3, 5)), requires_grad=True)
    out = mg.dropout(x, p, rng)
    np.testing.assert_array_equal(out.data, np.full((3, 5), kept))
    np.testing.assert_array_equal(mg.grad(out.sum(), x), np.full((3, 5), kept))


def test_the_generator_decides():
    x = mg.tensor(np.ones(50))
    first, second = (mg.dropout(x, 0.5, np.random.default_rng(3)).data for _ in range(2))
    np.testing.assert_array_equal(first, second)
    rng = np.random.default_rng(3)
    mg.dropout(x, 0.5, rng)
    assert (mg.dropout(x, 0.5, rng).data != first).any()
