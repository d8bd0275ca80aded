"""Losses, normalisation, dropout: closed forms and what they refuse."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError

# ---------------------------------------------------------------- cross-entropy


def test_equal_logits_cost_the_logarithm_of_their_number():
    np.testing.assert_allclose(mg.cross_entropy(np.zeros((3, 7)), np.array([0, 3, 6])), np.log(7))


def test_its_gradient_is_softmax_less_one_hot_over_rows(rng):
    z, t = rng.normal(size=(2, 3, 5)), rng.integers(0, 5, (2, 3))
    x = mg.tensor(z, requires_grad=True)
    expected = (mg.softmax(z) - np.eye(5)[t]) / 6
    np.testing.assert_allclose(mg.grad(mg.cross_entropy(x, t), x), expected, rtol=1e-14)


def test_it_is_log_softmax_picked_and_averaged(rng):
    z, t = rng.normal(size=(3, 5)), np.array([4, 0, 2])
    np.testing.assert_allclose(mg.cross_entropy(z, t), -mg.log_softmax(z)[np.arange(3), t].mean())


def test_logits_far_apart_stay_finite():
    x = mg.tensor([[800.0, -800.0], [-800.0, 800.0]], requires_grad=True)
    loss = mg.cross_entropy(x, np.array([0, 0]))
    np.testing.assert_allclose(loss.item(), 800)
    np.testing.assert_allclose(mg.grad(loss, x), [[0, 0], [-0.5, 0.5]])


def test_one_row_without_batch_and_lists_are_accepted():
    np.testing.assert_allclose(mg.cross_entropy(np.zeros(5), 3), np.log(5))
    np.testing.assert_allclose(mg.cross_entropy([[0.0, 0.0]], [1]), np.log(2))
    np.testing.assert_allclose(
        mg.cross_entropy(mg.tensor(np.zeros((2, 3))), mg.tensor(np.array([0, 2]))).item(), np.log(3)
    )


@pytest.mark.parametrize(
    ("shape", "targets", "kind", "text"),
    [
        (
            (3, 5),
            [0, 1],
            ShapeError,
            r"targets \(2,\) must have logits' shape without its last axis, \(3,\)",
        ),
        ((3, 5), np.eye(3, 5), ShapeError, r"targets \(3, 5\) must have"),
        ((), 0, ShapeError, "targets"),
        ((3, 5), [0.0, 1.0, 2.0], DTypeError, "targets must be integers, got float64"),
        ((3, 5), [True, False, True], DTypeError, "targets must be integers, got bool"),
        ((3, 5), [0, 5, 1], OutOfRangeError, r"targets must lie in \[0, 5\), got 5"),
        ((3, 5), [0, -1, 9], OutOfRangeError, r"targets must lie in \[0, 5\), got -1"),
        ((0, 5), np.zeros(0, int), ShapeError, "a mean over no rows; logits need at least one"),
    ],
)
def test_targets_that_do_not_fit_are_refused(shape, targets, kind, text):
    with pytest.raises(kind, match=rf"cross_entropy\(logits, targets\): {text}"):
        mg.cross_entropy(mg.tensor(np.zeros(shape)), targets)


# ---------------------------------------------------------------- dropout


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


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_p_is_a_probability(p, rng):
    with pytest.raises(ArgumentError, match=r"dropout\(x, p, rng\): p must lie in \[0, 1\], got"):
        mg.dropout(mg.tensor([1.0]), p, rng)


@pytest.mark.parametrize("rng", [None, 0, np.random])
def test_dropout_needs_a_generator(rng):
    with pytest.raises(
        DTypeError, match=r"dropout\(x, p, rng\): rng must be a np.random.Generator, got"
    ):
        mg.dropout(mg.tensor([1.0]), 0.5, rng)


# ---------------------------------------------------------------- normalisation


def test_layer_norm_rows_have_mean_0_and_variance_1(rng):
    out = mg.layer_norm(rng.normal(3, 5, (2, 3, 101)), None, None, eps=0.0)
    np.testing.assert_allclose(out.mean(-1), np.zeros((2, 3)), atol=1e-14)
    np.testing.assert_allclose(out.var(-1), np.ones((2, 3)), rtol=1e-13)


def test_rms_norm_rows_have_mean_square_1(rng):
    out = mg.rms_norm(rng.normal(3, 5, (2, 3, 101)), None, eps=0.0)
    np.testing.assert_allclose((out**2).mean(-1), np.ones((2, 3)), rtol=1e-13)


def test_layer_norms_gradient_is_orthogonal_to_ones_and_to_its_result(rng):
    """Shifting or stretching x changes nothing, so the gradient has no part along either."""
    x = mg.tensor(rng.normal(size=(3, 7)), requires_grad=True)
    g = mg.grad(mg.layer_norm(x, None, None, eps=0.0), x, rng.normal(size=(3, 7)))
    np.testing.assert_allclose(g.sum(-1), np.zeros(3), atol=1e-14)
    np.testing.assert_allclose((g * x.data).sum(-1), np.zeros(3), atol=1e-14)


def test_a_constant_row_is_saved_by_eps():
    x = mg.tensor(np.full((1, 5), 3.0), requires_grad=True)
    out = mg.layer_norm(x, np.ones(5), np.zeros(5))
    np.testing.assert_allclose(out.data, np.zeros((1, 5)))
    assert np.isfinite(mg.grad(out, x, np.arange(5.0)[None])).all()


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_either_parameter_may_be_left_out(weight, bias, rng):
    x, w, b = (mg.tensor(rng.normal(size=s), requires_grad=True) for s in ((3, 5), (5,), (5,)))
    out = mg.layer_norm(x, w if weight else None, b if bias else None)
    out.sum().backward()
    assert (w.grad is not None, b.grad is not None) == (weight, bias)
    if bias:
        np.testing.assert_allclose(b.grad, np.full(5, 3))


LAST = r" must have the shape of x's last axis, \(5,\), got "


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: mg.layer_norm(x, np.ones(3), None), "weight" + LAST + r"\(3,\)"),
        (lambda x: mg.layer_norm(x, None, np.ones((3, 5))), "bias" + LAST + r"\(3, 5\)"),
        (lambda x: mg.rms_norm(x, np.ones((1, 5))), r"rms_norm\(x, weight, eps\): weight"),
        (lambda x: mg.layer_norm(x, 2.0, None), "weight" + LAST + r"\(\)"),
        (lambda x: mg.layer_norm(x[0, 0], None, None), "x needs at least one axis"),
        (lambda x: mg.rms_norm(3.0, None), "x needs at least one axis"),
    ],
)  # fmt: skip
def test_parameters_must_fit_the_last_axis(f, text):
    with pytest.raises(ShapeError, match=text):
        f(mg.tensor(np.ones((3, 5))))
