"""Linear: the affine map of the last axis, and how it is drawn."""

import numpy as np
import pytest

import layers
from layers import Linear, Sequential


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (7, 2, 3, 5)])
def test_every_axis_but_the_last_is_kept(rng, shape):
    layer = Linear(5, 2, rng=rng)
    x = rng.normal(size=shape)
    out = layer(x)
    assert out.shape == (*shape[:-1], 2)
    np.testing.assert_allclose(out.numpy(), x @ layer.W.numpy() + layer.b.numpy(), rtol=1e-14)


def test_gradients_are_those_of_the_closed_form(rng):
    """∂W = Σ xᵀ g, ∂b = Σ g, ∂x = g Wᵀ."""
    layer = Linear(5, 3, rng=rng)
    x, g = rng.normal(size=(2, 7, 5)), rng.normal(size=(2, 7, 3))
    layer.forward(x)
    dx = layer.backward(g)
    np.testing.assert_allclose(layer.grad_W, np.einsum("bni,bno->io", x, g), rtol=1e-12)
    np.testing.assert_allclose(layer.grad_b, g.sum(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(dx, g @ layer.W.numpy().T, rtol=1e-12)


def test_weights_are_xavier_normal_and_biases_zero():
    """W ~ N(0, √(2 / (n_in + n_out))): mean and deviation are within 5 standard errors."""
    layer = Linear(300, 200, rng=np.random.default_rng(7))
    W, sigma = layer.W.numpy(), np.sqrt(2 / 500)
    assert abs(W.mean()) < 5 * sigma / np.sqrt(W.size)
    assert abs(W.std() / sigma - 1) < 5 / np.sqrt(2 * W.size)
    np.testing.assert_array_equal(layer.b.numpy(), np.zeros(200))


def test_a_seed_for_all_layers_gives_the_same_model_and_leaves_numpys_alone():
    """Weights, and what is dropped; each layer draws by itself, and rng= goes before."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002

    def made():
        layers.seed(5)
        model = Sequential(Linear(3, 4), layers.LSTM(4, 2), layers.Dropout(0.5))
        return model, model(np.ones((2, 3, 3))).numpy()

    (first, one), (second, other) = made(), made()
    layers.seed(None)
    np.testing.assert_array_equal(one, other)
    assert [*first.state_dict()] == [*second.state_dict()]
    for name, array in first.state_dict().items():
        np.testing.assert_array_equal(array, second.state_dict()[name])
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    fresh, again = Linear(3, 4), Linear(3, 4)
    assert not np.array_equal(fresh.W.numpy(), again.W.numpy())
    assert not np.array_equal(fresh.W.numpy(), first[0].W.numpy())
    np.testing.assert_array_equal(Linear(3, 4, rng=0).W.numpy(), Linear(3, 4, rng=0).W.numpy())
