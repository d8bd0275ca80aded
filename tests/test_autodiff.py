"""vjp, jvp, hvp and jacobian against closed forms and against each other."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import GradientError, ShapeError
from tests.compare import refusals


def f(x):
    """A function of a vector to a vector, with every kind of op on the way."""
    y = mg.tanh(x) * mg.softmax(x) + mg.exp(x[::-1]) / 3
    return mg.concatenate([y[1:], mg.logsumexp(x).reshape(1), mg.var(x * y).reshape(1)])


# ---------------------------------------------------------------- closed forms


def test_the_jacobian_has_the_outputs_axes_then_the_inputs(rng):
    x, y = rng.normal(size=(2, 3)), rng.normal(size=(3, 5))
    by_x, by_y = mg.jacobian(mg.matmul, [x, y])
    assert by_x.shape == (2, 5, 2, 3)
    assert by_y.shape == (2, 5, 3, 5)
    np.testing.assert_allclose(by_x, np.einsum("ac,bj->ajcb", np.eye(2), y))
    np.testing.assert_allclose(by_y, np.einsum("ab,jd->ajbd", x, np.eye(5)))


# ---------------------------------------------------------------- against each other


def test_vjp_and_jvp_are_the_jacobian_from_both_sides(rng):
    x, u, v = rng.normal(size=5), rng.normal(size=6), rng.normal(size=5)
    J = mg.jacobian(f, x)
    assert J.shape == (6, 5)
    for transform, along, expected in ((mg.vjp, u, u @ J), (mg.jvp, v, J @ v)):
        out, found = transform(f, x, along)
        np.testing.assert_array_equal(out, f(x))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_hvp_is_the_jacobian_of_the_gradient(rng):
    x, v = rng.normal(size=5), rng.normal(size=5)
    scalar = lambda x: (f(x) ** 2).sum()  # noqa: E731
    H = np.stack([mg.hvp(scalar, x, e)[1] for e in np.eye(5)])
    np.testing.assert_allclose(H, H.T, rtol=1e-11)
    np.testing.assert_allclose(mg.hvp(scalar, x, v)[1], H @ v, rtol=1e-11)


# ---------------------------------------------------------------- how they treat their inputs


@pytest.mark.parametrize("transform", ["vjp", "jvp", "hvp", "jacobian"])
def test_they_leave_their_inputs_as_they_were(transform):
    x = mg.tensor(2.0, requires_grad=True, name="x")
    arguments = [] if transform in ("vjp", "jacobian") else [1.0]
    result = getattr(mg, transform)(lambda x: x**3, x, *arguments)
    found = result if transform == "jacobian" else result[1]
    assert isinstance(found, np.ndarray)
    assert float(found) == 12.0  # 3x², and the second derivative 6x as well
    assert x.grad is None
    assert x.requires_grad


def test_vectors_may_be_tensors_that_need_a_gradient():
    x, v = np.array([1.0, 2.0]), mg.tensor([3.0, 5.0], requires_grad=True)
    np.testing.assert_array_equal(mg.jvp(mg.square, x, v)[1], [6.0, 20.0])
    np.testing.assert_array_equal(mg.hvp(lambda x: mg.sum(x**3), x, v)[1], [18.0, 60.0])


def test_a_sequence_in_gives_a_list_out():
    assert isinstance(mg.vjp(lambda x: x * 2, [3.0])[1], list)
    assert isinstance(mg.jacobian(lambda x, y: x * y, (3.0, 5.0)), list)


@pytest.mark.parametrize("g", [lambda x: x.detach() * 2, lambda x: mg.tensor([1.0, 2.0])])
def test_a_constant_function_has_zero_derivatives(g):
    x = np.ones(2)
    np.testing.assert_allclose(mg.vjp(g, x, np.ones(2))[1], np.zeros(2))
    np.testing.assert_allclose(mg.jvp(g, x, np.ones(2))[1], np.zeros(2))
    np.testing.assert_allclose(mg.jacobian(g, x), np.zeros((2, 2)))
    np.testing.assert_allclose(mg.hvp(lambda x: g(x).sum(), x, np.ones(2))[1], np.zeros(2))


# ---------------------------------------------------------------- what they refuse


test_what_is_refused = refusals(
    (lambda: mg.jvp(lambda x: 3.0, 1.0, 1.0), GradientError, "jvp: f must return a Tensor, got fl"),
    (lambda: mg.jvp(lambda x: x, np.ones(2), np.ones(3)),
     ShapeError, r"jvp: tangents must have shapes \[\(2,\)\], got \[\(3,\)\]"),
    (lambda: mg.hvp(lambda x, y: x.sum() * y, [np.ones(2), 1.0], [np.ones(2)]),
     ShapeError, r"hvp: vectors must have shapes \[\(2,\), \(\)\], got \[\(2,\)\]"),
    (lambda: mg.hvp(lambda x: x * 2, np.ones(2), np.ones(2)),
     ShapeError, r"an output of shape \(2,\) needs a gradient of that shape"),
)  # fmt: skip
