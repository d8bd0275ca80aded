"""Elementwise ops: closed forms, kinks, ends, extremes."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError


def slope(f, *arrays):
    """The gradients of the sum of f."""
    leaves = [mg.tensor(np.asarray(a, float), requires_grad=True) for a in arrays]
    out = f(*leaves)
    found = mg.grad(out, leaves, np.ones(out.shape))
    return found[0] if len(found) == 1 else found


# ---------------------------------------------------------------- smooth


@pytest.mark.parametrize(
    ("op", "derivative"),
    [
        (mg.exp, np.exp),
        (mg.log, lambda x: 1 / x),
        (mg.sqrt, lambda x: 0.5 / np.sqrt(x)),
        (mg.tanh, lambda x: 1 / np.cosh(x) ** 2),
        (mg.sigmoid, lambda x: 1 / (2 + np.exp(x) + np.exp(-x))),
        (mg.silu, lambda x: (1 + np.exp(-x) * (1 + x)) / (1 + np.exp(-x)) ** 2),
        (mg.negative, lambda x: np.full(x.shape, -1.0)),
    ],
    ids=lambda f: getattr(f, "name", ""),
)
def test_a_derivative_is_the_textbooks(op, derivative):
    x = np.array([0.3, 1.0, 2.7])
    np.testing.assert_allclose(slope(op, x), derivative(x), rtol=1e-14)


def test_sigmoid_and_silu_neither_overflow_nor_lose_small_values():
    x = mg.tensor([-800.0, -40.0, 0.0, 40.0, 800.0])
    np.testing.assert_allclose(mg.sigmoid(x).data, [0, math.exp(-40), 0.5, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(mg.silu(x).data, [0, -40 * math.exp(-40), 0, 40, 800], rtol=1e-15)
    np.testing.assert_allclose(
        slope(mg.sigmoid, x.data), [0, math.exp(-40), 0.25, 0, 0], rtol=1e-15, atol=1e-17
    )


def test_exact_gelu_keeps_its_small_tail():
    """x Φ(x) at -10 is about -7.6e-23; 1 + erf would round it to 0."""
    expected = -10 * 0.5 * math.erfc(10 / math.sqrt(2))
    np.testing.assert_allclose(mg.gelu(np.array([-10.0, 0.0, 10.0])), [expected, 0, 10], rtol=1e-13)


def test_exact_gelu_of_many_entries_is_the_c_librarys():
    """Within 6 of 0 the reference is right to 30 units in the last place, as it takes the rounded
    x/√2; in the far tail to fewer digits.
    """
    x = np.linspace(-37, 37, 7001)
    expected = np.array([v * math.erfc(-v * math.sqrt(0.5)) / 2 for v in x])
    near = np.abs(x) < 6
    np.testing.assert_allclose(mg.gelu(x)[near], expected[near], rtol=1e-14)
    np.testing.assert_allclose(mg.gelu(x), expected, rtol=1e-12)


def test_exact_gelu_of_many_entries_keeps_ends_and_nan():
    x = np.resize([-np.inf, -100.0, 0.0, 100.0, np.inf, np.nan], 6000)
    with np.errstate(invalid="ignore"):  # -∞ · 0
        y = mg.gelu(x)[:6]
    np.testing.assert_array_equal(y, [np.nan, -0.0, 0.0, 100.0, np.inf, np.nan])


def test_exact_gelu_in_float32_is_float64s_rounded():
    x = np.linspace(-9, 9, 5003, dtype=np.float32)
    expected = mg.gelu(x.astype(np.float64))
    assert mg.gelu(x).dtype == np.float32
    np.testing.assert_allclose(mg.gelu(x), expected, rtol=2e-7)


def test_gelus_two_forms_are_close_but_not_the_same():
    x = np.linspace(-3, 3, 13)
    gap = np.abs(mg.gelu(x) - mg.gelu(x, approximate="tanh")).max()
    assert 1e-5 < gap < 1e-3


def test_gelu_knows_two_forms():
    with pytest.raises(
        ArgumentError,
        match=r"gelu\(x, approximate\): approximate must be \"none\" or \"tanh\", got 'erf'",
    ):
        mg.gelu(mg.tensor([1.0]), approximate="erf")


# ---------------------------------------------------------------- power


def test_powers_and_their_gradients():
    a, b = np.array([2.0, 3.0]), np.array([3.0, 0.5])
    by_a, by_b = slope(mg.power, a, b)
    np.testing.assert_allclose(by_a, b * a ** (b - 1))
    np.testing.assert_allclose(by_b, a**b * np.log(a))


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0), (0.0, 0.0), (1.0, 1.0), (1.5, 0.0)],
)
def test_a_constant_power_at_0_has_its_limit_as_gradient(exponent, expected):
    np.testing.assert_allclose(slope(lambda x: x**exponent, 0.0), expected)
    np.testing.assert_allclose(slope(lambda x: x ** np.array(exponent), 0.0), expected)


def test_0_to_the_0_is_1_with_zero_gradients():
    np.testing.assert_allclose(mg.power(mg.tensor(0.0), mg.tensor(0.0)).data, 1.0)
    np.testing.assert_allclose(slope(mg.power, 0.0, 0.0), [0, 0])


def test_negative_bases_have_integer_powers():
    np.testing.assert_allclose(slope(lambda x: x**3, [-2.0, -1.0]), [12, 3])
    np.testing.assert_allclose(slope(lambda x: x**-1, [-2.0]), [-0.25])


def test_an_infinite_slope_is_infinite():
    with np.errstate(divide="ignore"):
        for f in (mg.sqrt, mg.log, lambda x: x**0.5):
            np.testing.assert_allclose(slope(f, 0.0), np.inf)


def test_division_by_zero_is_numpys():
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose((mg.tensor([1.0, -1.0]) / 0.0).data, [np.inf, -np.inf])


# ---------------------------------------------------------------- kinks, ties, ends


def test_relu_and_abs_have_slope_0_at_0():
    np.testing.assert_allclose(slope(mg.relu, [-1.0, 0.0, -0.0, 2.0]), [0, 0, 0, 1])
    np.testing.assert_allclose(slope(mg.abs, [-1.0, 0.0, -0.0, 2.0]), [-1, 0, 0, 1])


@pytest.mark.parametrize(
    ("op", "expected"),
    [(mg.maximum, [[0, 0.5, 1], [1, 0.5, 0]]), (mg.minimum, [[1, 0.5, 0], [0, 0.5, 1]])],
)
def test_equal_entries_share_the_gradient_half_and_half(op, expected):
    np.testing.assert_allclose(slope(op, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), expected)


def test_the_maximum_of_a_value_with_itself_passes_the_whole_gradient():
    np.testing.assert_allclose(slope(lambda x: mg.maximum(x, x), [1.0, 2.0]), [1, 1])


def test_clip_passes_inside_and_at_its_ends():
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, -1, 1), x), [0, 1, 1, 1, 0])
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, low=-1), x), [0, 1, 1, 1, 1])
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, high=1), x), [1, 1, 1, 1, 0])
    np.testing.assert_allclose(slope(mg.clip, x), [1, 1, 1, 1, 1])


def test_clips_bounds_may_be_arrays_that_widen_the_result():
    np.testing.assert_allclose(
        mg.clip(mg.tensor([0.0, 5.0]), np.array([[1.0], [2.0]])).data, [[1, 5], [2, 5]]
    )
    np.testing.assert_allclose(
        slope(lambda x: mg.clip(x, np.array([[1.0], [-2.0]])), [0.0, 5.0]), [1, 2]
    )


# ---------------------------------------------------------------- where, astype


def test_where_sends_each_entry_where_it_came_from():
    chosen = np.array([True, False, True])
    np.testing.assert_allclose(
        slope(lambda a, b: mg.where(chosen, a, b), np.ones(3), np.ones(3)), [[1, 0, 1], [0, 1, 0]]
    )


def test_where_hides_a_bad_branch_forward_but_the_safe_input_must_be_chosen_first():
    """0 · inf is NaN: the gradient of log at a masked 0. With a safe input there is none."""
    x = np.array([0.0, 2.0])
    safe = slope(lambda x: mg.where(x.data > 0, mg.log(mg.where(x.data > 0, x, 1.0)), 0.0), x)
    np.testing.assert_allclose(safe, [0, 0.5])


def test_where_takes_a_tensor_as_condition():
    x = mg.tensor([1.0, -1.0])
    np.testing.assert_allclose(mg.where(mg.tensor(x > 0), x, 0.0).data, [1, 0])


def test_casting_down_and_up_keeps_each_sides_dtype():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    y = x.astype(np.float32)
    assert y.dtype == np.float32
    (y * y).sum().backward()
    assert x.grad.dtype == np.float64
    np.testing.assert_allclose(x.grad, [2, 4])


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "op", [mg.add, mg.subtract, mg.multiply, mg.divide, mg.power, mg.maximum, mg.minimum]
)
def test_shapes_that_do_not_broadcast_are_named(op):
    with pytest.raises(ShapeError) as error:
        op(mg.tensor(np.ones((2, 3)), name="x"), mg.tensor(np.ones((5, 1, 2)), name="y"))
    assert str(error.value).splitlines() == [
        f"{op.name}(a, b): shapes must broadcast, but axis -1 has 3 and 2",
        "  a: (2, 3) float64   x",
        "  b: (5, 1, 2) float64   y",
    ]


def test_a_cast_to_no_dtype_is_refused():
    with pytest.raises(DTypeError, match=r"astype\(x, dtype\): "):
        mg.tensor([1.0]).astype("floating")


def test_bounds_take_no_gradient():
    with pytest.raises(GradientError, match="clip: no gradient flows into high"):
        mg.clip(mg.tensor(1.0), high=mg.tensor(0.5, requires_grad=True))


@pytest.mark.parametrize("op", [mg.sigmoid, mg.silu])
def test_a_logistic_of_unsigned_integers_is_that_of_their_values(op):
    """-x of a uint8 wraps around; the values are computed as floats."""
    x = np.array([0, 1, 3], np.uint8)
    np.testing.assert_array_equal(op(x), op(x.astype(np.float64)))
    assert np.all(np.diff(op(x)) > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [-4, -3, -2, -1, 0, 1, 2, 3, 3.0, 4, 5, 7])
def test_whole_powers_are_numpys_whatever_the_sign(n, dtype):
    a = np.array([-3.0, -1.5, -0.0, 0.0, 0.3, 2.0, np.inf, -np.inf, np.nan], dtype)
    x = mg.tensor(a, requires_grad=True)
    with np.errstate(all="ignore"):
        found, expected = x**n, np.power(a, n)
        np.testing.assert_allclose(found.data, expected, rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(np.signbit(found.data[:-1]), np.signbit(expected[:-1]))
        found.backward(np.ones_like(a))
        slope = np.asarray(n * np.power(a, n - 1.0)) if n else np.zeros_like(a) * a
    assert found.dtype == dtype
    finite = np.isfinite(slope)
    np.testing.assert_allclose(x.grad[finite], slope[finite], rtol=8 * np.finfo(dtype).eps)


def test_silu_gives_the_derivative_of_its_derivative(rng):
    x = mg.tensor(rng.normal(size=5), requires_grad=True)
    assert mg.gradcheck(lambda x: mg.silu(x), [x], order=2)
