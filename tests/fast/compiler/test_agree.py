"""What is followed gives eager's numbers: sums in another order do, other numbers never."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from layers import LayerNorm, MultiHeadAttention, SelfAttention
from minigrad.fast.compiler.numeric_check import all_agree
from minigrad.fast.compiler.program import Program
from minigrad.fast.compiler.symbol import Symbol

RNG = np.random.default_rng(0)
LAYERS = {
    "grouped": lambda dtype: MultiHeadAttention(64, 4, 1, rng=0, use_bias=True, dtype=dtype),
    "one head": lambda dtype: SelfAttention(64, 16, 16, rng=0, dtype=dtype),
    "norm": lambda dtype: LayerNorm(64, dtype=dtype),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_rules_whose_gradients_vanish_are_followed(make, dtype):
    """Of a bias of keys, say: sums of what cancels, in eager's order and in another."""
    x = mg.tensor(RNG.normal(size=(4, 96, 64)).astype(dtype), requires_grad=True, name="X")
    layer = make(dtype)

    @mg.compile
    def step(x):
        out = mg.sum(layer(x))
        out.backward()
        return out

    step(x)
    assert not step.reasons
    assert "_backward(" not in step.source


def _judged(function, *arrays, wanted):
    """Whether a function of Symbols of these arrays is found to give `wanted`."""
    program = Program()
    symbols = [Symbol(program, program.constant(a), a) for a in arrays]
    given = {s.value: s.a for s in symbols}
    made = function(*symbols)
    return all_agree([made], (wanted,), program.steps, given)


CANCELLING = np.concatenate([x := RNG.normal(size=(500, 3)), -x[::-1]])
FOLLOWED = {
    "a sum": lambda g: g.sum(axis=0),
    "what is made of a sum": lambda g: (g.sum(axis=0) * 3.0)[::-1].reshape(1, 3) / 2.0,
    "what is repeated": lambda g: np.ones((2, 3)) * 0.0 - (-g.sum(axis=0)),
    "a sum of all": lambda g: g.sum(),
    "a product": lambda g: g.T @ np.ones(len(g)),
    "sums that are added": lambda g: g[:900].sum(axis=0) + g[900:].sum(axis=0),
}


@pytest.mark.parametrize("function", FOLLOWED.values(), ids=FOLLOWED)
def test_sums_that_vanish_may_differ_by_rounding_of_their_terms_only(function):
    rounding = np.finfo(np.float64).eps * np.abs(CANCELLING).sum(axis=0).min()
    wanted = function(CANCELLING) * 0.0
    assert _judged(function, CANCELLING, wanted=wanted + rounding)
    assert not _judged(function, CANCELLING, wanted=wanted + 1000 * rounding)


def test_rounding_of_what_does_not_reach_a_result_excuses_nothing():
    """Large inputs, and sums of them that are not added to it."""
    big = 1e6 * CANCELLING

    def function(g, h):
        g.sum(axis=0)
        return h * 2.0

    small = np.full(3, 1e-6)
    wanted = small * 2.0
    assert _judged(function, big, small, wanted=wanted)
    assert not _judged(function, big, small, wanted=wanted * (1 + 1e-12))


def test_entries_are_judged_one_by_one():
    """A column of large terms excuses nothing in another."""
    scaled = CANCELLING * [1e9, 1.0, 1.0]
    for column, agrees in ((0, True), (1, False)):
        wanted = np.zeros(3)
        wanted[column] = 1e-6
        assert _judged(lambda g: g.sum(axis=0), scaled, wanted=wanted) is agrees


def test_sums_of_what_is_infinite_excuse_nothing():
    infinite = np.array([[np.inf, 1.0]] * 2)
    assert _judged(lambda g: g.sum(axis=0), infinite, wanted=np.array([np.inf, 2.0]))
    assert not _judged(lambda g: g.sum(axis=0), infinite, wanted=np.array([1.0, 2.0]))


def test_functions_other_than_sums_and_products_carry_no_rounding_on():
    wanted = np.exp(CANCELLING.sum(axis=0))
    eps = np.finfo(np.float64).eps
    assert _judged(lambda g: np.exp(g.sum(axis=0)), CANCELLING, wanted=wanted * (1 + 8 * eps))
    assert not _judged(lambda g: np.exp(g.sum(axis=0)), CANCELLING, wanted=wanted * (1 + 1e-12))
