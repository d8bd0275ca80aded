"""What ops give where a closed form is known: at ends, kinks and ties, masked, in other dtypes."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.check import check_rules
from minigrad.ops.dtypes import masked
from tests.compare import assert_same

NaN, INF = np.nan, np.inf


def slope(f, *arrays):
    """The gradient of the sum of f in each array."""
    leaves = [mg.tensor(np.asarray(a, float), requires_grad=True) for a in arrays]
    out = f(*leaves)
    found = mg.grad(out, leaves, np.ones(out.shape))
    return found[0] if len(found) == 1 else found


# ---------------------------------------------------------------- entry by entry


def test_sigmoid_and_silu_neither_overflow_nor_lose_their_small_tails():
    x = mg.tensor([-800.0, -40.0, 0.0, 40.0, 800.0])
    np.testing.assert_allclose(mg.sigmoid(x).data, [0, math.exp(-40), 0.5, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(mg.silu(x).data, [0, -40 * math.exp(-40), 0, 40, 800], rtol=1e-15)
    assert_same(slope(mg.sigmoid, x.data), [0, math.exp(-40), 0.25, 0, 0], 1e-15)
    assert mg.sigmoid(np.float32(-100.0)) > 0  # though e^100 is beyond float32


def test_far_out_nothing_overflows():
    x = np.array([-1e4, -40.0, 40.0, 1e4])
    np.testing.assert_allclose(mg.softplus(x), [0, np.exp(-40), 40, 1e4], rtol=1e-14)
    np.testing.assert_allclose(mg.elu(x), [-1, -1, 40, 1e4])
    np.testing.assert_allclose(slope(mg.elu, x), [0, np.exp(-40), 1, 1], rtol=1e-14)
    with np.errstate(over="ignore"):  # of the cube
        tails = slope(lambda x: mg.gelu(x, "tanh"), [-1e110, 1e110])
    np.testing.assert_array_equal(tails, [0, 1])


def test_clip_passes_inside_and_at_its_ends_which_may_be_arrays():
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, -1, 1), x), [0, 1, 1, 1, 0])
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, low=-1), x), [0, 1, 1, 1, 1])
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, high=1), x), [1, 1, 1, 1, 0])
    np.testing.assert_allclose(slope(mg.clip, x), [1, 1, 1, 1, 1])
    assert_same(mg.clip(mg.tensor([0.0, 5.0]), np.array([[1.0], [2.0]])), [[1, 5], [2, 5]], 1e-7)
    assert_same(slope(lambda x: mg.clip(x, np.array([[1.0], [-2.0]])), [0.0, 5.0]), [1, 2], 1e-7)


INFINITE_SLOPES = {
    "relu": mg.relu,
    "abs": mg.abs,
    "maximum": lambda x: mg.maximum(x, 0.0),
    "clip": lambda x: mg.clip(x, 0.0, 10.0),
    "where": lambda x: mg.where(x > 0, x, 0.0),
    "sign": lambda x: mg.where(x > 0, x, mg.sign(x)),
}


@pytest.mark.parametrize("name", INFINITE_SLOPES)
def test_an_infinite_gradient_is_nothing_where_the_other_side_was_taken(name):
    """Zero times infinity would be NaN."""
    x = mg.tensor([-1.0, 2.0, 5.0], requires_grad=True)
    out = INFINITE_SLOPES[name](x)
    with np.errstate(all="raise"):
        out.backward(np.array([INF, INF, 3.0]))
    np.testing.assert_array_equal(x.grad, [-INF if name == "abs" else 0.0, INF, 3.0])


STRANGE = [0.0, -0.0, INF, -INF, np.nan, 1.5, -2.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", complex])
def test_masked_is_where_to_the_last_bit_whatever_x_holds(dtype, rng):
    with np.errstate(invalid="ignore"):
        x = rng.choice(STRANGE, (40, 30)).astype(dtype)
    mask = rng.uniform(size=(40, 30)) < 0.5
    for part in (np.s_[:], np.s_[::-2, ::2], np.s_[0, 0]):
        found, expected = masked(x[part], mask[part]), np.where(mask[part], x[part], 0)
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())


def test_dropout_keeps_or_zeroes_and_rescales_as_its_generator_says(rng):
    x = mg.tensor(np.full((100, 7), 3.0), requires_grad=True)
    out = mg.dropout(x, 0.25, rng)
    assert set(np.unique(out.data)) == {0.0, 4.0}
    np.testing.assert_allclose(out.data.mean(), 3.0, rtol=0.1)
    np.testing.assert_allclose(mg.grad(out.sum(), x), out.data / 3)
    first, again = (mg.dropout(x, 0.5, np.random.default_rng(3)).data for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_the_normal_distribution_is_right_to_its_last_digits_in_small_tails_too():
    """Few entries and many, which take another way."""
    x = np.concatenate([np.linspace(-37, 9, 997), [0.0, 1e-9, INF, -INF, NaN]])
    cdf = [0.5 * math.erfc(-v / math.sqrt(2)) for v in x]
    for n in (1, len(x)):
        parts = np.array_split(x, len(x) // n)
        found = np.concatenate([mg.registry["normal_cdf"](part) for part in parts])
        np.testing.assert_allclose(found, cdf, rtol=3e-13)  # erfc rounds x / √2
    np.testing.assert_allclose(mg.erf(x), [math.erf(v) for v in x], rtol=4e-16)
    narrow = x.astype(np.float32)
    exact = mg.registry["normal_cdf"](narrow.astype(np.float64))
    found = mg.registry["normal_cdf"](narrow)
    np.testing.assert_allclose(found, exact, rtol=5e-6, atol=1e-37)


# ---------------------------------------------------------------- along an axis


@pytest.mark.parametrize(
    ("stride", "expected"), [(None, [1, 0, 0, 1, 1, 0]), (1, [1, 0, 1, 2, 1, 0])]
)
def test_the_gradient_of_a_window_with_nan_goes_to_the_first(stride, expected):
    found = slope(lambda x: mg.max_pool(x, 2, stride), [[[NaN, 1.0, 2.0, NaN, NaN, 3.0]]])
    np.testing.assert_array_equal(found, [[expected]])


def test_a_product_with_zeros_has_the_products_of_the_others_for_gradient():
    found = slope(lambda x: mg.prod(x, axis=1), [[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]])
    np.testing.assert_array_equal(found, [[0, 6, 0], [0, 0, 0]])
    for n in (1, 2, 3, 4, 7, 100_001):  # of a matrix n x n there would be no memory
        x = 1 + np.linspace(-1, 1, n) / (n + 1)
        np.testing.assert_allclose(slope(mg.prod, x), np.prod(x) / x)


def test_logsumexp_of_infinite_entries_and_of_none_is_infinite_and_other_rows_stay():
    x = np.array([[INF, 1.0], [0.0, 0.0], [INF, -INF], [-INF, -INF]])
    np.testing.assert_array_equal(mg.logsumexp(x, axis=1), [INF, np.log(2), INF, -INF])
    np.testing.assert_array_equal(mg.logsumexp(np.zeros((2, 0)), axis=1), [-INF, -INF])
    assert mg.logsumexp(x) == INF
    found = slope(lambda x: mg.logsumexp(x, axis=1), np.full((2, 3), -INF))
    np.testing.assert_array_equal(found, np.zeros((2, 3)))


# ---------------------------------------------------------------- products, norms, losses


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_their_number():
    """Of one row without a batch, and of lists."""
    np.testing.assert_allclose(mg.cross_entropy(np.zeros(5), 3), np.log(5))
    np.testing.assert_allclose(mg.cross_entropy([[0.0, 0.0]], [1]), np.log(2))


def test_a_logit_of_minus_infinity_counts_nothing_where_its_probability_is_zero():
    x = mg.tensor([[-INF, 0.0, 0.0]], requires_grad=True)
    for targets in (np.array([1]), np.array([[0.0, 0.5, 0.5]])):
        loss = mg.cross_entropy(x, targets)
        np.testing.assert_allclose(loss.item(), np.log(2))
        assert np.isfinite(mg.grad(loss, x)).all()
    assert mg.cross_entropy(x, np.array([0])).item() == INF


def test_the_slope_of_elu_at_0_is_alpha():
    np.testing.assert_array_equal(slope(lambda x: mg.elu(x, 0.3), [0.0]), [0.3])


def test_at_their_kinks_norm_std_and_sign_have_a_gradient_of_zero():
    for op in (mg.norm, mg.std, mg.sign, mg.abs, mg.relu):
        x = mg.tensor(np.zeros(3), requires_grad=True)
        gradient = mg.grad(mg.sum(op(x)), x)
        np.testing.assert_array_equal(gradient, np.zeros(3))
        u = np.ones(op(x).shape)
        assert "at kinks" in check_rules(op, (x.numpy(),), op.defaults, u, {0: gradient}).why


@pytest.mark.parametrize("loss", [mg.l1_loss, mg.huber_loss, mg.mse_loss, mg.bce_with_logits])
def test_a_loss_of_integers_without_a_sign_is_that_of_the_same_floats(loss):
    x, target = np.array([0, 3], np.uint8), np.array([255, 1], np.uint8)
    expected = loss(x.astype(float), target.astype(float))
    assert loss(x, target) == loss(mg.tensor(x), target).item() == expected


# ---------------------------------------------------------------- dtypes beside each other

NARROW = np.ones((2, 3), np.float32)
DTYPES = [
    (lambda x: mg.scale(x, np.float64(0.5)), np.float32),
    (lambda x: mg.leaky_relu(x, np.float64(0.5)), np.float32),
    (lambda x: mg.huber_loss(x, NARROW, delta=np.float64(0.5)), np.float32),
    (lambda x: mg.mask_add(x, np.ones(3, bool)), np.float32),
    (lambda x: mg.mask_add(x, np.zeros(3)), np.float32),
    (lambda x: x / np.sqrt(3), np.float32),
    (lambda x: np.float64(2) * x, np.float32),
    (lambda x: mg.linear(x, NARROW.T, np.zeros(2)), np.float64),
    (lambda x: mg.concatenate([np.zeros((2, 3)), x, NARROW]), np.float64),
    (lambda x: x.astype(np.float16), np.float16),
]


@pytest.mark.parametrize(("call", "dtype"), DTYPES)
def test_a_result_is_as_wide_as_numpy_has_it_and_a_gradient_as_its_input(call, dtype):
    x = mg.tensor(NARROW, requires_grad=True)
    out = call(x)
    assert out.dtype == dtype
    out.sum().backward()
    assert x.grad.dtype == np.float32


# ---------------------------------------------------------------- masks


def test_a_boolean_mask_is_an_additive_one_and_other_floats_are_added(rng):
    scores, mask = rng.normal(size=(2, 3, 3)), np.tril(np.ones((3, 3), bool))
    additive = np.where(mask, 0, -INF)
    np.testing.assert_array_equal(mg.mask_add(scores, mask), mg.mask_add(scores, additive))
    np.testing.assert_array_equal(mg.mask_add(scores, mask)[:, mask], scores[:, mask])
    for other in (np.zeros((3, 3)), np.tri(3) * 2, np.array([1.0, 0.5, 0])):
        np.testing.assert_array_equal(mg.mask_add(scores, other), scores + other)


def test_where_we_differ_from_pytorch_on_purpose():
    """The NaNs of a row share its gradient, where PyTorch's amax gives NaN to the whole row; abs
    clip and elu pass the gradient of NaN, where PyTorch gives 0 or NaN; the softmax of a masked
    row is zero.
    """
    np.testing.assert_array_equal(
        slope(lambda x: mg.max(x, axis=1), [[1, NaN, 2, NaN], [3, 3, 1, 0]]),
        [[0, 0.5, 0, 0.5], [0.5, 0.5, 0, 0]],
    )
    ends = [NaN, INF, -INF, 0.0, 1.0, -1.0]
    np.testing.assert_array_equal(slope(mg.abs, ends), [1, 1, -1, 0, 1, -1])
    np.testing.assert_array_equal(slope(mg.elu, ends[:5]), [1, 1, 0, 1, 1])
    np.testing.assert_array_equal(slope(lambda x: mg.clip(x, -1, 1), ends), [1, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(slope(mg.softmax, [-INF, -INF]), [0, 0])
    np.testing.assert_array_equal(slope(mg.logsumexp, [-INF, -INF]), [0, 0])
