"""What the numbers of a record mean: states, the way of the loss, zeros in theory, attention."""

from math import hypot, sqrt

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, SelfAttention
from minigrad.record.attention import attention_weights
from minigrad.record.record import measure
from tests.compare import assert_same

from .models import leaf, traced


@pytest.mark.parametrize(
    "array",
    [
        np.float32([1e30, -1e30]),
        np.float16([6e4, 6e4]),
        np.array([1e300, 1e-300]),
        np.array([], float),
        np.array([True, False]),
    ],
)
def test_facts_are_those_of_the_entries(array):
    facts, entries = measure(array), array.astype(float)
    assert facts.finite
    assert_same(facts.rms, hypot(*entries) / sqrt(len(array) or 1))
    assert (facts.low, facts.high) == ((array.min(), array.max()) if array.size else (None, None))


def test_states_are_relative_to_the_gradient_of_the_loss():
    small, large, none = (leaf(3, name=name) for name in ("small", "large", "none"))
    t = traced(
        lambda: mg.sum(
            mg.sum(small * 1e-20) + mg.sum(large * 1e5) + mg.sum(none.detach() + none * 0.0)
        )
    )
    states = {e.name: e.state for e in t if not e.op and e.needs}
    assert states == {"small": "vanishing", "large": "exploding", "none": "zero"}


def test_a_mean_shrinks_nothing():
    x = leaf(100, 1000, name="x")
    t = traced(lambda: mg.mean(x * x) * 3.0)
    assert t["x"].state == "ok"
    assert t["x"].reach > 1


def test_the_way_leads_to_where_the_gradient_shrinks_most():
    def loss():
        h = leaf(2, 5, name="x")
        for k in range(4):
            with mg.scope(f"layers.{k}"):
                h = mg.sigmoid(Linear(5, 5, rng=k)(h) * 4.0) * 0.1
        late = mg.sum(leaf(3) * 1e-9)  # so near the loss, it is no first layer
        return (mg.sum(h * h) + late).named("loss")

    t = traced(loss)
    way = t.way
    assert t[way.edges[0].target].label == "loss"
    assert way.last.scope.startswith("layers.0")
    assert way.whole == pytest.approx(way.last.reach)
    assert (way.op, way.times) == ("multiply", 9)
    assert [edge.target for edge in way.edges[1:]] == [edge.source for edge in way.edges[:-1]]
    assert {id(edge) for edge in t.edges if edge.on_way} == {*map(id, way.edges)}


def test_where_gradients_add_their_agreement_is_measured():
    x = leaf(3, name="x")
    t = traced(lambda: mg.sum(mg.exp(x)) - mg.sum(mg.exp(x) * 0.5))
    assert t["x"].is_sum
    parts = [edge.contribution for edge in t["x"].uses]
    expected = np.linalg.norm(sum(parts)) / sum(map(np.linalg.norm, parts))
    assert t["x"].agreement == pytest.approx(expected)


# ---------------------------------------------------------------- zero in theory


def test_a_shift_before_a_norm_is_not_seen_and_a_dead_unit_is_no_theory():
    b, w = leaf(1, name="b"), leaf(3, name="w")
    t = traced(lambda: mg.sum(mg.layer_norm(leaf(2, 7) + b, np.ones(7), np.zeros(7)) ** 3.0))
    assert t["b"].why == "layer_norm does not see it"
    t = traced(lambda: mg.sum(mg.relu(w * w * -1.0 - 1.0)))
    assert t["w"].state == "zero"


def test_where_a_kernel_refuses_other_numbers_a_small_gradient_vanishes():
    @mg.op(tex=r"\operatorname{own}(<x>)", vjp_tex={"x": r"<g>"})
    def of_ones(x):
        """Takes ones alone."""
        if np.any(x != 1):
            raise ValueError("ones alone")
        return x * 1.0

    of_ones.vjp("x")(lambda g: g * 1e-30)
    try:
        t = traced(lambda: mg.sum(of_ones(mg.tensor(np.ones(3), requires_grad=True, name="x"))))
        assert t["x"].state == "vanishing"
    finally:
        del mg.registry["of_ones"]


# ---------------------------------------------------------------- not finite, saturated


def test_the_first_nan_is_named_forward_before_backward():
    with np.errstate(all="ignore"):
        t = traced(lambda: mg.sum(mg.exp(mg.log(leaf(3) * 0.0 - 1.0))))
    assert t.checks.first_broken == "log made it first, at log"
    assert t.roots == [len(t) - 1]


def test_dead_units_and_saturated_rows_are_counted():
    x = mg.tensor(np.where(np.arange(5) < 3, -1.0, 1.0) * np.ones((40, 5)), requires_grad=True)
    t = traced(
        lambda: mg.sum(mg.relu(x)) + mg.sum(mg.softmax(mg.tensor([[99.0, 0.0], [0.0, 0.0]])))
    )
    assert t["relu"].note == "3 of 5 units dead"
    assert t["softmax"].note == "1 of 2 rows saturated"


# ---------------------------------------------------------------- attention


def test_one_head_without_a_batch_is_found_too(rng):
    layer = SelfAttention(5, 3, 5, rng=0)
    t = traced(lambda: mg.sum(layer(rng.normal(size=(4, 5))) ** 2.0))
    (weights,) = attention_weights(t)
    assert weights.A.shape == (1, 1, 4, 4)
    assert t.asked is None


def test_what_is_called_A_and_is_no_attention_is_none():
    t = traced(lambda: mg.sum((leaf(3, 3) * 2.0).named("A")))
    assert attention_weights(t) == []
