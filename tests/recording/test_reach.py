"""What sizes of gradients mean, beside what left the loss; and those that are zero in theory."""

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_bias_of_keys_is_zero_in_theory_and_the_record_says_why(dtype, rng):
    layer = MultiHeadAttention(15, 3, use_bias=True, rng=rng, dtype=dtype)
    layer.b_K.assign_(rng.normal(size=15).astype(dtype))
    x = mg.tensor(rng.normal(size=(2, 7, 15)).astype(dtype), requires_grad=True)
    with mg.trace() as t:
        mg.mean(layer(x) ** 2).backward()
    states = {e.name: e.state for e in t if e.kind == "parameter"}
    assert {name for name, state in states.items() if state == "cancels"} == {"b_K"}
    assert t["b_K"].why == "softmax does not see it"
    assert "zero in theory, as softmax does not see" in " ".join(t.table(200).split())


def test_a_shift_that_a_later_mean_takes_away_is_seen_without_any_declaration(rng):
    b = mg.tensor(rng.normal(size=5), requires_grad=True, name="b")
    X = rng.normal(size=(7, 5))
    with mg.trace() as t:
        h = X + b
        mg.sum((h - mg.mean(h, axis=0)) ** 3).backward()
    assert (t["b"].state, t["b"].why) == ("cancels", "subtract does not see it")


def test_a_zero_that_no_theory_explains_stays_zero(rng):
    x = mg.tensor(rng.normal(size=5), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(mg.relu(x - 100.0)).backward()
    assert t["x"].state == "zero"


def test_an_op_that_takes_no_complex_numbers_leaves_a_zero_unexplained():
    @mg.op(tex="<x>", vjp_tex={"x": "0 <g>"}, flops=lambda out: 0)
    def shy(x):
        if np.iscomplexobj(x):
            raise TypeError("no complex numbers")
        return x * 0.0

    shy.vjp("x")(lambda g: g * 0.0)
    try:
        x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
        with mg.trace() as t:
            shy(x).sum().backward()
        assert t["x"].state == "zero"
    finally:
        del mg.registry["shy"]


def test_a_sum_of_paths_is_judged_by_the_one_most_of_it_came_through(rng):
    """With a residual nothing vanishes, whatever the branch does."""
    x = mg.tensor(rng.normal(size=5), requires_grad=True, name="x")
    with mg.trace() as t:
        h = x * 1.0
        for _ in range(9):
            h = h + mg.sigmoid(h * 0.1)
        mg.sum(h).backward()
    assert t["x"].reach is not None
    assert t["x"].reach > 1
    assert t["x"].state == "ok"


@pytest.mark.parametrize(("factor", "state"), [(1e-310, "vanishing"), (1e307, "exploding")])
def test_the_ends_of_the_dtype_are_limits_whatever_left_the_loss(factor, state):
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        (x * 1.0).backward(np.full(2, factor))
    assert t["x"].state == state


def cosine_of_unit_vectors(X):
    unit = X / mg.sqrt(mg.sum(X * X, axis=-1, keepdims=True)).named("length")
    lengths = mg.sqrt(mg.sum(unit * unit, axis=-1))
    return mg.sum(unit[0] * unit[1]) / (lengths[0] * lengths[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_length_of_a_vector_that_is_normalised_again_is_no_vanishing_gradient(dtype, rng):
    W = mg.tensor(rng.normal(size=(5, 7)).astype(dtype), requires_grad=True, name="W")
    with mg.trace() as t:
        cosine_of_unit_vectors(rng.normal(size=(2, 5)).astype(dtype) @ W).backward()
    states = {e.name or e.op: e.state for e in t if e.gradient is not None}
    assert states["length"] in ("cancels", "zero")
    assert states["W"] == "ok"
    assert "vanishing" not in states.values()


def test_what_is_used_only_for_what_is_zero_in_theory_is_so_too(rng):
    x = rng.normal(size=(1, 5)).astype("f4").repeat(2, axis=0)  # one text, twice: at its maximum
    W = mg.tensor(rng.normal(size=(5, 7)).astype("f4"), requires_grad=True, name="W")
    with mg.trace() as t:
        cosine_of_unit_vectors(mg.matmul(x, W).named("h")).backward()
    assert {t[name].state for name in ("W", "h")} <= {"cancels", "zero"}
    assert t.worst_path is None or t["W"].gradient_rms == 0  # as it rounds
    assert not any(word in t.table(200) for word in ("shrinks", "grows"))


def test_a_use_that_sends_zero_makes_no_gradient_vanish(rng):
    """The first state of a recurrent network is zero, and so is what its step sends to W."""
    W = mg.tensor(rng.normal(size=(3, 3)), requires_grad=True, name="W")
    X, h, loss = rng.normal(size=(4, 2, 3)), np.zeros((2, 3)), 0.0
    with mg.trace() as t:
        for row in X:
            h = mg.tanh(row + h @ W)
            loss = loss + mg.mean(h**2)
        (loss / 4).backward()
    assert t["W"].state == "ok"
    assert t["W"].via.contribution_rms == max(edge.contribution_rms for edge in t.uses(t["W"]))
