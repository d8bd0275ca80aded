"""The checkers, each against a planted fault: they must find it, and name the entry."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.check import compare
from minigrad.errors import DTypeError, GradcheckError, GradientError
from tests.engine.declaring import declare


def _square(rule, analytic=True):
    """An op for x², unregistered, with the given backward rule."""

    def square(x):
        """x²."""
        return x * x

    made = declare(square, analytic=analytic)
    made.vjp("x")(rule)
    return made


x = np.array([1.0, -2.0, 3.0])

# ---------------------------------------------------------------- gradcheck


@pytest.mark.parametrize(
    ("analytic", "method"), [(True, "complex step"), (False, "central differences")]
)
def test_a_right_rule_passes(analytic, method):
    report = mg.gradcheck(_square(lambda g, x: 2 * g * x, analytic), x)
    assert report
    assert report.ok
    assert report.method == method
    assert report.entries == 3
    assert report.error < (1e-14 if analytic else 1e-9)


@pytest.mark.parametrize("analytic", [True, False])
def test_a_rule_wrong_by_a_twentieth_of_a_percent_is_rejected(analytic):
    with pytest.raises(GradcheckError, match="DISAGREES") as error:
        mg.gradcheck(_square(lambda g, x: 2.001 * g * x, analytic), x)
    assert error.value.report.error == pytest.approx(0.0005, rel=1e-2)
    assert not error.value.report


def test_the_worst_entry_is_named_with_both_values():
    """Only the entry [1, 2] is wrong."""
    fault = np.zeros((2, 3))
    fault[1, 2] = 0.5
    with pytest.raises(GradcheckError) as error:
        mg.gradcheck(_square(lambda g, x: g * (2 * x + fault)), np.ones((2, 3)))
    report = error.value.report
    assert report.entry == "inputs[0][1, 2]"
    assert abs(report.engine) == pytest.approx(abs(report.numeric) * 1.25)
    assert "worst of 6 entries: inputs[0][1, 2], engine " in str(error.value)
    assert f"numeric {report.numeric:.15g}, relative error " in str(error.value)


def test_a_rule_that_gives_nan_is_rejected():
    with pytest.raises(GradcheckError) as error:
        mg.gradcheck(_square(lambda g, x: g * np.nan), x)
    assert error.value.report.error == float("inf")


def test_a_wrong_rule_for_a_tiny_function_is_rejected():
    """The tolerance is relative: what is 1e-20 in size is not taken for rounding."""
    wrong = _square(lambda g, x: 2.001 * g * x)
    with pytest.raises(GradcheckError):
        mg.gradcheck(lambda a: wrong(a) * 1e-20, x)


def test_second_order_finds_what_first_order_cannot():
    """The rule is right in value, but the second time it hides x from the graph."""
    hidden = _square(lambda g, x: 2 * g * (x.detach() if isinstance(x, mg.Tensor) else x))
    assert mg.gradcheck(hidden, x).order == 1
    with pytest.raises(GradcheckError, match="order 2 by complex step: DISAGREES"):
        mg.gradcheck(hidden, x, order=2)


def test_entries_at_a_kink_are_left_out_and_counted():
    report = mg.gradcheck(mg.relu, np.array([-1.0, 0.0, 2.0]))
    assert report.kinks == ("inputs[0][1]",)
    assert report.entries == 2
    assert "1 at kinks left out (inputs[0][1] …)" in str(report)


def test_a_steep_but_smooth_function_has_no_kinks():
    report = mg.gradcheck(lambda a: mg.abs(a) + mg.tanh(a * 50), np.array([0.01, -0.02, 0.5]))
    assert report.kinks == ()


def test_one_op_that_is_not_analytic_decides_the_method():
    assert mg.gradcheck(lambda a: mg.exp(a), x).method == "complex step"
    assert mg.gradcheck(lambda a: mg.exp(mg.abs(a)), x).method == "central differences"


def test_integers_are_held_constant():
    report = mg.gradcheck(lambda a, i: a[i], [x, np.array([0, 2, 0])])
    assert report.entries == 3


def test_entries_set_to_minus_infinity_by_a_mask_are_no_part_of_the_check():
    mask = np.array([True, False, True])
    assert mg.gradcheck(lambda a: mg.mask_add(a, mask), x, order=2)


def test_saturated_results_are_not_held_against_a_rule():
    """softmax of far-apart logits has derivatives of 1e-50: below rounding of its result."""
    assert mg.gradcheck(mg.softmax, np.array([0.0, 120.0, -300.0]), order=2)


def test_a_function_that_differs_from_call_to_call_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(
        GradientError, match="gradcheck: f gave two different results for the same inputs"
    ):
        mg.gradcheck(lambda a: mg.dropout(a, 0.5, rng), np.ones(50))


def test_a_function_cut_from_its_graph_is_rejected():
    with pytest.raises(GradcheckError):
        mg.gradcheck(lambda a: mg.exp(a.detach()) + a * 0, x)


def test_nothing_is_left_behind():
    a = mg.tensor(x, requires_grad=True)
    mg.gradcheck(mg.tanh, a, order=2)
    assert a.grad is None


# ---------------------------------------------------------------- compare


def test_compare_measures_the_largest_gap_over_the_largest_entry():
    difference = compare(np.array([[1.0, 2.0], [4.0, 5.5]]), np.array([[1.0, 2.0], [4.0, 5.0]]))
    assert difference.index == (1, 1)
    assert (difference.engine, difference.formula) == (5.5, 5.0)
    np.testing.assert_allclose(difference.relative, 0.1)
    assert not difference.ok


def test_compare_accepts_rounding_of_the_coarser_dtype():
    exact = np.array([1.0, 2.0, 3.0])
    assert compare(exact * (1 + 1e-14), exact).ok
    assert not compare(exact * (1 + 1e-11), exact).ok
    assert compare((exact * (1 + 1e-6)).astype(np.float32), exact).ok


@pytest.mark.parametrize(
    ("engine", "formula"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, 2.0])),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan])),
        (np.array([np.nan, 0.0]), np.array([0.0, 0.0])),
        (np.array([1.0, 1e-300]), np.array([0.0, 0.0])),
        (np.ones((2, 3)), np.ones((3, 2))),
        (np.ones(3), np.ones(())),
    ],
)
def test_compare_is_not_ok_for_nan_zeros_missed_or_another_shape(engine, formula):
    assert not compare(engine, formula).ok


def test_entries_that_are_all_at_kinks_are_no_agreement():
    with pytest.raises(GradcheckError, match="nothing was compared: all 3 entries are at kinks"):
        mg.gradcheck(mg.relu, np.zeros(3))


def test_integers_are_refused_where_nothing_could_be_checked():
    with pytest.raises(DTypeError, match="one must hold floats, got int64"):
        mg.gradcheck(mg.square, np.array([1, 2]))


def test_a_masked_array_is_refused_before_its_mask_is_lost():
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(DTypeError, match=r"write x\.filled\(0\.0\)"):
        mg.gradcheck(mg.square, masked)
