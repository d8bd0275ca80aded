"""Reductions and what goes along an axis: closed forms, ties, masks, extremes."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

AXES = [None, 0, 1, -1, (0, 2), (-1, 0), (0, 1, 2), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "max", "min", "logsumexp"])
def test_every_axis_argument_gives_numpys_shape_and_a_right_gradient(name, axis, keepdims, rng):
    x = rng.permutation(np.linspace(-1, 1, 30)).reshape(2, 3, 5)
    op = getattr(mg, name)
    out = op(mg.tensor(x), axis=axis, keepdims=keepdims)
    assert out.shape == np.sum(x, axis=axis, keepdims=keepdims).shape
    if name != "logsumexp":
        assert_same(out, getattr(np, name)(x, axis=axis, keepdims=keepdims), 1e-14)
    mg.gradcheck(lambda x: op(x, axis=axis, keepdims=keepdims), x)


def test_the_maximum_over_several_axes_counts_ties_in_all(rng):
    x = np.zeros((2, 3, 5))
    x[:, 1, 0] = 7
    leaf = mg.tensor(x, requires_grad=True)
    assert_same(mg.grad(leaf.max(axis=(0, 1)), leaf, np.ones(5))[:, 1, 0], [0.5, 0.5], 1e-7)
    np.testing.assert_allclose(mg.grad(leaf.max(), leaf)[:, 1, 0], [0.5, 0.5])
