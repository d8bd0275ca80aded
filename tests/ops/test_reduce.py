"""Reductions and what goes along an axis: closed forms, ties, masks, extremes."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ShapeError

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
        np.testing.assert_allclose(
            out.data, getattr(np, name)(x, axis=axis, keepdims=keepdims), rtol=1e-14, atol=1e-15
        )
    mg.gradcheck(lambda x: op(x, axis=axis, keepdims=keepdims), x)


def test_sum_and_mean_spread_their_gradient(rng):
    x = mg.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    np.testing.assert_allclose(mg.grad(x.sum(), x), np.ones((2, 3)))
    np.testing.assert_allclose(
        mg.grad(x.mean(axis=1), x, np.array([3.0, 6.0])), [[1, 1, 1], [2, 2, 2]]
    )


def test_var_divides_by_n_less_ddof():
    x = mg.tensor([1.0, 2.0, 6.0], requires_grad=True)
    np.testing.assert_allclose([x.var().item(), x.var(ddof=1).item()], [14 / 3, 7])
    np.testing.assert_allclose(mg.grad(x.var(ddof=1), x), [-2, -1, 3])


@pytest.mark.parametrize("op", [mg.max, mg.min])
def test_ties_share_the_gradient_evenly(op):
    x = mg.tensor([[3.0, 3.0, 3.0], [1.0, 1.0, 7.0 if op is mg.min else -7.0]], requires_grad=True)
    found = mg.grad(op(x, axis=1), x, np.ones(2))
    np.testing.assert_allclose(found, [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]])


def test_the_maximum_over_several_axes_counts_ties_in_all(rng):
    x = np.zeros((2, 3, 5))
    x[:, 1, 0] = 7
    leaf = mg.tensor(x, requires_grad=True)
    np.testing.assert_allclose(
        mg.grad(leaf.max(axis=(0, 1)), leaf, np.ones(5))[:, 1, 0], [0.5, 0.5]
    )
    np.testing.assert_allclose(mg.grad(leaf.max(), leaf)[:, 1, 0], [0.5, 0.5])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_cumsum_is_numpys(axis, rng):
    x = rng.normal(size=(3, 5))
    np.testing.assert_allclose(mg.cumsum(mg.tensor(x), axis).data, np.cumsum(x, axis))
    leaf = mg.tensor(x, requires_grad=True)
    whole = mg.cumsum(leaf, axis)
    (n,) = {None: (15,), 0: (3,), 1: (5,), -1: (5,)}[axis]
    down = np.arange(n, 0, -1.0)
    expected = (
        down.reshape(3, 5)
        if axis is None
        else np.broadcast_to(down[:, None] if axis == 0 else down, (3, 5))
    )
    np.testing.assert_allclose(mg.grad(whole, leaf, np.ones(whole.shape)), expected)


# ---------------------------------------------------------------- softmax


def test_softmax_rows_sum_to_one_and_ignore_a_shift(rng):
    x = rng.normal(size=(3, 5))
    s = mg.softmax(x)
    np.testing.assert_allclose(s.sum(-1), np.ones(3), rtol=1e-15)
    np.testing.assert_allclose(mg.softmax(x + 100), s, rtol=1e-13)
    np.testing.assert_allclose(s, np.exp(x) / np.exp(x).sum(-1, keepdims=True), rtol=1e-14)


def test_softmax_and_its_kin_neither_overflow_nor_underflow():
    x = mg.tensor([800.0, -800.0, 799.0], requires_grad=True)
    e = np.exp(-1.0)
    np.testing.assert_allclose(mg.softmax(x).data, [1 / (1 + e), 0, e / (1 + e)], rtol=1e-15)
    np.testing.assert_allclose(
        mg.log_softmax(x).data, [-np.log1p(e), -1600 - np.log1p(e), -1 - np.log1p(e)], rtol=1e-14
    )
    np.testing.assert_allclose(mg.logsumexp(x).item(), 800 + np.log1p(e), rtol=1e-15)
    for op in (mg.softmax, mg.log_softmax, mg.logsumexp):
        out = op(x)
        assert np.isfinite(mg.grad(out, x, np.ones(out.shape))).all()


@pytest.mark.parametrize("order", [1, 2])
def test_a_fully_masked_row_gives_zeros_forward_and_backward(order, rng):
    scores = mg.tensor(
        np.where(np.array([[True], [False]]), rng.normal(size=(2, 3)), -np.inf), requires_grad=True
    )
    A = mg.softmax(scores)
    np.testing.assert_allclose(A.data[1], np.zeros(3))
    np.testing.assert_allclose(A.data[0].sum(), 1)
    found = mg.grad((A * A * np.arange(3.0)).sum(), scores, create_graph=order == 2)
    if order == 2:
        found = mg.grad((found * found).sum(), scores)
    np.testing.assert_allclose(found[1], np.zeros(3))
    assert np.isfinite(found[0]).all()


def test_masked_entries_get_exactly_zero(rng):
    x = rng.normal(size=5)
    x[[1, 3]] = -np.inf
    leaf = mg.tensor(x, requires_grad=True)
    s = mg.softmax(leaf)
    np.testing.assert_array_equal(s.data[[1, 3]], [0, 0])
    np.testing.assert_array_equal(mg.grad(s, leaf, rng.normal(size=5))[[1, 3]], [0, 0])
    np.testing.assert_allclose(s.data[[0, 2, 4]], mg.softmax(x[[0, 2, 4]]), rtol=1e-15)


def test_over_nothing_but_minus_infinity_logsumexp_is_minus_infinity():
    x = mg.tensor(np.full((2, 3), -np.inf), requires_grad=True)
    np.testing.assert_array_equal(mg.logsumexp(x, axis=1).data, [-np.inf, -np.inf])
    np.testing.assert_array_equal(mg.grad(mg.logsumexp(x, axis=1), x, np.ones(2)), np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("other", [-1e4, -100, -39, -9, 0, 9, 39, 41, 88, 1e4])
def test_softmax_of_few_rows_is_right_beside_a_row_of_any_size(rng, dtype, other):
    x = rng.normal(size=(2, 3, 5)).astype(dtype)
    x[1, 2] += dtype(other)
    with np.errstate(all="raise", under="ignore"):
        found = mg.softmax(x)
    less = x.astype(np.longdouble) - x.max(-1, keepdims=True).astype(np.longdouble)
    expected = np.exp(less) / np.exp(less).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected.astype(dtype), rtol=8 * float(np.finfo(dtype).eps))
    assert found.dtype == dtype


def test_softmax_of_few_rows_is_to_the_bit_that_of_each_row(rng):
    x = rng.normal(size=(2, 3, 11)) * 5
    x[1, :, 7:] = -np.inf
    np.testing.assert_array_equal(mg.softmax(x), _row_by_row(mg.softmax, x))


@pytest.fixture(params=[np.float32, np.float64])
def many_rows(request, rng):
    """Rows enough to be gone through in bands, their scores small but for a few rows."""
    x = rng.normal(size=(3, 41, 47)).astype(request.param)
    x[0, 1], x[0, 3], x[1, 5, 7], x[1, 9], x[2, 40] = -200, 300, 1000, -1e30, -np.inf
    x[2, 7, 1:] = -np.inf
    return x


def _row_by_row(op, *arrays):
    """The op on one row after the other: too few entries to be treated as many."""
    rows = (op(*given) for given in zip(*(a.reshape(-1, a.shape[-1]) for a in arrays), strict=True))
    return np.reshape(list(rows), arrays[0].shape)


@pytest.mark.parametrize("offset", [0, -50, 50, -300, 300])
def test_softmax_of_many_rows_is_that_of_each_row_whatever_the_size_of_the_scores(
    many_rows, offset
):
    x = many_rows + many_rows.dtype.type(offset)
    with np.errstate(all="raise", under="ignore"):
        found = mg.softmax(x)
    assert found.dtype == x.dtype
    assert found.flags.c_contiguous
    eps = np.finfo(x.dtype).eps
    np.testing.assert_allclose(found, _row_by_row(mg.softmax, x), rtol=400 * eps, atol=0)
    np.testing.assert_array_equal(found[2, 40], np.zeros(47))
    np.testing.assert_array_equal(found[2, 7], np.eye(47)[0])


def test_softmax_of_many_rows_keeps_small_weights(rng):
    """Of -100 beside -20 it is e^-80; e^-100 by itself is no normal float32."""
    x = np.full((600, 9), -100, np.float32)
    x[:, 3] = -20
    x[::2] = rng.normal(size=(300, 9))
    np.testing.assert_allclose(mg.softmax(x)[1::2, 0], np.exp(-80.0), rtol=1e-5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_softmax_of_many_rows_is_nan_where_it_is_of_one_row_and_nowhere_else(many_rows, wrong):
    many_rows[1, 2, 3] = wrong
    with np.errstate(invalid="ignore"):
        found, expected = mg.softmax(many_rows), _row_by_row(mg.softmax, many_rows)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(found).sum() == np.isnan(found[1, 2]).sum() > 0


def test_the_gradient_of_softmax_of_many_rows_is_that_of_each_row(many_rows, rng):
    g = rng.normal(size=many_rows.shape).astype(many_rows.dtype)

    def gradient(x, g):
        leaf = mg.tensor(x, requires_grad=True)
        return mg.grad(mg.softmax(leaf), leaf, g)

    found, eps = gradient(many_rows, g), np.finfo(many_rows.dtype).eps
    np.testing.assert_allclose(
        found, _row_by_row(gradient, many_rows, g), rtol=400 * eps, atol=40 * eps
    )
    assert not found[2, 40].any()


@pytest.mark.parametrize("order", ["F", "swapped"])
def test_softmax_of_many_rows_takes_any_layout(many_rows, order):
    x = np.asfortranarray(many_rows) if order == "F" else many_rows.swapaxes(0, 1).copy()
    x = x if order == "F" else x.swapaxes(0, 1)
    assert not x.flags.c_contiguous
    np.testing.assert_allclose(mg.softmax(x), mg.softmax(many_rows), rtol=1e-5, atol=1e-7)


def test_log_softmax_of_a_masked_row_has_no_nan():
    x = mg.tensor([-np.inf, -np.inf], requires_grad=True)
    out = mg.log_softmax(x)
    np.testing.assert_array_equal(out.data, [-np.inf, -np.inf])
    assert not np.isnan(mg.grad(out, x, np.ones(2))).any()


def test_of_no_entries_softmax_is_empty_and_logsumexp_minus_infinity():
    assert mg.softmax(np.zeros((3, 0))).shape == (3, 0)
    np.testing.assert_array_equal(mg.logsumexp(np.zeros((2, 0)), axis=1), [-np.inf, -np.inf])


def test_softmax_of_integers_and_booleans_is_floating():
    np.testing.assert_allclose(mg.softmax(np.array([0, 0])), [0.5, 0.5])
    np.testing.assert_allclose(mg.softmax(np.array([True, True])), [0.5, 0.5])


@pytest.mark.parametrize("op", [mg.softmax, mg.log_softmax])
def test_softmax_over_several_axes_or_all(op, rng):
    x = rng.normal(size=(2, 3, 5))
    exact = np.exp(op(x, axis=(0, 2))) if op is mg.log_softmax else op(x, axis=(0, 2))
    np.testing.assert_allclose(exact.sum((0, 2)), np.ones(3), rtol=1e-14)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "name", ["sum", "mean", "var", "max", "min", "logsumexp", "softmax", "log_softmax", "cumsum"]
)
def test_an_axis_outside_the_array_is_named(name):
    op = getattr(mg, name)
    with pytest.raises(
        ShapeError,
        match=rf"{name}\(x, axis.*\): axis 2 is out of bounds .*\n  x: \(3, 5\)",
    ):
        op(mg.tensor(np.ones((3, 5))), axis=2)


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_largest_of_nothing_is_an_error(name):
    with pytest.raises(ShapeError, match=rf"{name}\(x, axis, keepdims\): zero-size array"):
        getattr(mg, name)(mg.tensor(np.zeros((0, 3))), axis=0)


@pytest.mark.parametrize("op", [mg.softmax, mg.log_softmax])
def test_softmax_of_one_number_is_of_that_alone(op):
    x = mg.tensor(np.asarray(1.5), requires_grad=True)
    y = op(x)
    y.backward()
    assert y.item() == op(np.array([1.5])).item()
    assert x.grad == 0


def test_logsumexp_of_an_infinite_entry_is_infinite_and_other_rows_stay():
    x = np.array([[np.inf, 1.0], [0.0, 0.0], [np.inf, -np.inf]])
    np.testing.assert_array_equal(mg.logsumexp(x, axis=1), [np.inf, np.log(2), np.inf])
    assert mg.logsumexp(x) == np.inf
