"""anomaly(): the first bad value is an error that says which op made it, where, and from what."""

import os

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import NonFiniteError


def _message(f):
    with pytest.raises(NonFiniteError) as error, mg.anomaly():
        f()
    return str(error.value).splitlines()


def test_forward_names_path_place_formula_operand_and_first_bad_index():
    x = mg.tensor([[1.0, 2.0], [3.0, 0.0]], requires_grad=True)

    def f():
        with mg.scope("head"):
            mg.log(x)

    lines = _message(f)
    place = f"{os.path.relpath(__file__)}:{f.__code__.co_firstlineno + 2}"
    assert lines == [
        f"forward of head/log at {place}: log made it from finite operands",
        r"  formula: \log <x>",
        "  the result: shape (2, 2), float64, finite entries in [0, 1.099], "
        "1 not finite, first -inf at [1, 1]",
        "  x: shape (2, 2), float64, finite entries in [0, 3]",
    ]


def test_what_was_only_carried_on_is_said_to_be():
    bad = mg.tensor([1.0, np.nan])
    first, *rest = _message(lambda: bad * mg.tensor([2.0, 3.0]))
    assert "multiply carried it on from a" in first
    found = "finite entries in [1, 1], 1 not finite, first nan at [1]"
    assert f"  a: shape (2,), float64, {found}" in rest
    assert "  b: shape (2,), float64, finite entries in [2, 3]" in rest
    beside_a_mask = _message(lambda: mg.mask_add(bad, np.array([False, True])))
    assert "mask_add carried it on from scores" in beside_a_mask[0]


def test_backward_names_the_rule_and_the_incoming_gradient():
    x = mg.tensor([0.0, 4.0], requires_grad=True)
    y = mg.sqrt(x)
    lines = _message(lambda: y.sum().backward())
    assert lines[0].startswith("backward of sqrt at ")
    assert lines[0].endswith("sqrt made it from finite operands")
    assert lines[1] == r"  formula: <g> \oslash (2 <out>)"
    assert lines[2].startswith(
        "  the gradient of x: shape (2,), float64, finite entries in [0.25, 0.25], 1 not finite"
    )
    assert lines[3].startswith(
        "  the incoming gradient: shape (2,), float64, finite entries in [1, 1]"
    )


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize("mask", [np.tri(3, dtype=bool), np.zeros((3, 3), bool)])
@pytest.mark.parametrize("additive", [False, True])
def test_a_masks_minus_infinity_is_meant_also_of_a_whole_row(additive, mask, rng):
    scores = mg.tensor(rng.normal(size=(2, 3, 3)), requires_grad=True)
    with mg.anomaly():
        weights = mg.softmax(mg.mask_add(scores, np.where(mask, 0, -np.inf) if additive else mask))
        (weights * 2).sum().backward()
    np.testing.assert_allclose(scores.grad, np.zeros((2, 3, 3)), atol=1e-15)


# ---------------------------------------------------------------- its surroundings


def test_it_nests_and_decorates_is_quiet_within_and_restores_numpys_settings_after():
    @mg.anomaly()
    def f(x):
        return mg.log(x)

    before = np.geterr()
    with pytest.raises(NonFiniteError):
        f(mg.tensor(0.0))
    with mg.anomaly(), mg.anomaly():
        f(mg.tensor(1.0))
    assert np.geterr() == before
    with pytest.warns(RuntimeWarning):
        mg.log(mg.tensor(0.0))
