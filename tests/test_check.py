"""The checkers, each against a planted fault: they must find it, and name the entry."""

import numpy as np
import pytest

import minigrad as mg
from layers import BatchNorm, Linear, Module, SelfAttention, Sequential
from minigrad.check import compare
from minigrad.errors import ArgumentError, DTypeError, GradcheckError, GradientError
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


RIGHT = {
    "analytic": (_square(lambda g, x: 2 * g * x), x, 1, "complex step", 3),
    "not analytic": (_square(lambda g, x: 2 * g * x, False), x, 1, "central differences", 3),
    "an integer, held constant": (lambda a, i: a[i], [x, np.array([0, 2, 0])], 1, None, 3),
    "minus infinity by a mask, no part of it": (
        lambda a: mg.mask_add(a, np.array([True, False, True])), x, 2, None, 3,
    ),
    "saturated: derivatives of 1e-50, below rounding of the result": (
        mg.softmax, np.array([0.0, 120.0, -300.0]), 2, None, 3,
    ),
    "steep but smooth: no kinks": (
        lambda a: mg.abs(a) + mg.tanh(a * 50), np.array([0.01, -0.02, 0.5]), 1, None, 3,
    ),
    "a kink, left out": (mg.relu, np.array([-1.0, 0.0, 2.0]), 1, "central differences", 2),
}  # fmt: skip


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_rule_passes(what):
    f, inputs, order, method, entries = RIGHT[what]
    report = mg.gradcheck(f, inputs, order=order)
    assert report
    assert report.method == method or method is None
    assert (report.order, report.entries) == (order, entries)
    assert report.difference < {"analytic": 1e-14, "not analytic": 1e-9}.get(what, 1e-6)
    assert report.kinks == (("inputs[0][1]",) if entries == 2 else ())
    assert ("1 at kinks left out (inputs[0][1] …)" in str(report)) == (entries == 2)


def _hidden(g, x):
    """Right in value, but the second time it hides x from the graph."""
    return 2 * g * (x.detach() if isinstance(x, mg.Tensor) else x)


_slightly = _square(lambda g, x: 2.001 * g * x)
WRONG = {
    "by a twentieth of a percent": (_slightly, 1, 0.0005),
    "so, by differences": (_square(lambda g, x: 2.001 * g * x, False), 1, 0.0005),
    "so, of a function of size 1e-20": (lambda a: _slightly(a) * 1e-20, 1, 0.0005),
    "NaN": (_square(lambda g, x: g * np.nan), 1, np.inf),
    "cut from its graph": (lambda a: mg.exp(a.detach()) + a * 0, 1, None),
    "at second order alone": (_square(_hidden), 2, None),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_rejected(what):
    f, order, error = WRONG[what]
    assert order == 1 or mg.gradcheck(f, x).order == 1
    with pytest.raises(GradcheckError, match=f"order {order} by .*: DISAGREES") as caught:
        mg.gradcheck(f, x, order=order)
    assert error is None or caught.value.report.difference == pytest.approx(error, rel=1e-2)
    assert not caught.value.report


def test_the_worst_entry_is_named_with_both_values():
    """Only the entry [1, 2] is wrong."""
    fault = np.zeros((2, 3))
    fault[1, 2] = 0.5
    with pytest.raises(GradcheckError) as error:
        mg.gradcheck(_square(lambda g, x: g * (2 * x + fault)), np.ones((2, 3)))
    report = error.value.report
    assert report.where == "inputs[0][1, 2]"
    assert abs(report.measured) == pytest.approx(abs(report.expected) * 1.25)
    assert "worst of 6 entries: inputs[0][1, 2], engine " in str(error.value)


REFUSED = {
    "random": (lambda a: mg.dropout(a, 0.5, np.random.default_rng()), np.ones(50),
               GradientError, "two different results for the same inputs; .* layer.eval()"),
    "several results": (lambda x: (x * x, x), np.ones(3), GradientError, "one Tensor, got tuple"),
    "kinks alone": (mg.relu, np.zeros(3), GradcheckError, "all 3 entries are at kinks"),
    "no function": (mg.square(2.0), np.ones(3), DTypeError, "f must be a function, got "),
    "integers": (mg.square, np.array([1, 2]), DTypeError, "must hold floats, got int64"),
    "no input": (lambda: mg.tensor(1.0), [], DTypeError, "hold floats, got no input"),
    "a third order": (mg.tanh, x, ArgumentError, "order must be 1 or 2"),
    "NaN": (mg.sqrt, np.array([-1.0, 1.0]), GradientError, "f gives NaN for these inputs"),
    "masked": (mg.square, np.ma.masked_array([1.0, 2.0], [False, True]), DTypeError, "filled"),
    "an input that is ignored": (lambda a, b: b * b, [x, x], GradientError,
                                 r"does not depend on inputs\[0\], so nothing was compared"),
    "an input whose result is not used": (lambda a: (mg.exp(a), mg.ones(3))[1], x, GradientError,
                                          r"does not depend on inputs\[0\]"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_checked_is_refused(what):
    f, inputs, kind, message = REFUSED[what]
    with pytest.raises(kind, match=message), np.errstate(invalid="ignore"):
        mg.gradcheck(f, inputs, order=3 if what == "a third order" else 1)


# ---------------------------------------------------------------- of a layer


class Scaled(Module):
    """x · w, by an op whose gradient of w is wrong by a percent."""

    def __init__(self):
        self.w = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
        self.op = declare(lambda x, w: x * w, vjp_tex={"x": "<g>", "w": "<g>"})
        self.op.vjp("x")(lambda g, w: g * w)
        self.op.vjp("w")(lambda g, x: (1.01 * g * x).sum(axis=0))

    def forward(self, x):
        return self.op(x, self.w)


def test_of_a_layer_each_parameter_is_checked_and_named():
    with pytest.raises(GradcheckError) as error:
        mg.gradcheck(Scaled(), np.ones((2, 3)))
    assert error.value.report.where.startswith("w[")
    assert error.value.report.entries == 9
    assert mg.gradcheck(Scaled().freeze(), np.ones((2, 3))).entries == 6


@pytest.mark.parametrize("order", [1, 2])
def test_a_layer_is_as_before_and_the_gradient_of_b_K_is_said_to_be_0(order, rng):
    layer = SelfAttention(5, 3, 2, rng=rng, dtype=np.float32)
    before = layer.state_dict()
    report = mg.gradcheck(layer, rng.normal(size=(1, 3, 5)), order=order)
    assert "0 throughout: b_K" in str(report)
    for path, array in layer.state_dict().items():
        assert (array == before[path]).all()
        assert array.dtype == np.float32
    assert layer.W_Q.grad is None


def test_a_batch_norm_in_training_is_checked_and_its_averages_stay(rng):
    layer = BatchNorm(3)
    assert mg.gradcheck(layer, rng.normal(size=(5, 3))).entries == 21
    assert (layer.running_mean.numpy() == 0).all()
    assert (layer.running_var.numpy() == 1).all()


def test_a_gradient_penalty_is_checked_like_any_function(rng):
    critic = Sequential(Linear(3, 5, rng=rng), mg.tanh, Linear(5, 1, rng=rng))

    def penalty(x):
        slope = mg.grad(critic(x).sum(), x, create_graph=True)
        return mg.mean((mg.norm(slope, axis=1) - 1.0) ** 2)

    assert mg.gradcheck(penalty, rng.normal(size=(2, 3))).method == "complex step"


# ---------------------------------------------------------------- compare


def test_compare_names_the_largest_gap_and_accepts_rounding_of_the_coarser_dtype():
    exact = np.array([[1.0, 2.0], [4.0, 5.0]])
    report = compare(exact + np.array([[0.0, 0.0], [0.0, 0.5]]), exact)
    assert (report.index, report.measured, report.expected, report.ok) == ((1, 1), 5.5, 5.0, False)
    assert compare(exact * (1 + 1e-14), exact).ok
    assert not compare(exact * (1 + 1e-11), exact).ok
    assert compare((exact * (1 + 1e-6)).astype(np.float32), exact).ok
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).ok


@pytest.mark.parametrize(
    ("engine", "formula"),
    [
        ([1.0, np.nan], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, np.nan]),
        ([1.0, 1e-300], [0.0, 0.0]),
        (np.ones((2, 3)), np.ones((3, 2))),
    ],
)
def test_compare_is_not_ok_for_nan_zeros_missed_or_another_shape(engine, formula):
    assert not compare(engine, formula).ok
