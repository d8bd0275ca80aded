"""Normalisation of rows."""

import numpy as np
import pytest

import minigrad as mg


def test_layer_norms_gradient_is_orthogonal_to_ones_and_to_its_result(rng):
    """Shifting or stretching x changes nothing, so the gradient has no part along either."""
    x = mg.tensor(rng.normal(size=(3, 7)), requires_grad=True)
    g = mg.grad(mg.layer_norm(x, None, None, eps=0.0), x, rng.normal(size=(3, 7)))
    np.testing.assert_allclose(g.sum(-1), np.zeros(3), atol=1e-14)
    np.testing.assert_allclose((g * x.data).sum(-1), np.zeros(3), atol=1e-14)


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_either_parameter_may_be_left_out(weight, bias, rng):
    x, w, b = (mg.tensor(rng.normal(size=s), requires_grad=True) for s in ((3, 5), (5,), (5,)))
    out = mg.layer_norm(x, w if weight else None, b if bias else None)
    out.sum().backward()
    assert (w.grad is not None, b.grad is not None) == (weight, bias)
    if bias:
        np.testing.assert_allclose(b.grad, np.full(5, 3))
