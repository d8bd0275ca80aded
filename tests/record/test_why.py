"""Every entry of every gradient is the sum of the terms that its ledger gives."""

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, MultiHeadAttention, causal
from minigrad.engine import backward
from minigrad.errors import ArgumentError, GradientError
from minigrad.record import why
from minigrad.record.why import Ledger

from .models import DRAWN, leaf, traced, trained


def places(g, rng, count=2):
    """Where the largest entry is, and some others."""
    flat = {int(np.argmax(np.abs(g))), *rng.integers(g.size, size=count).tolist()}
    return [np.unravel_index(k, g.shape) for k in sorted(flat)]


def assert_adds_up(record, rng):
    """Of each gradient of a record some entries; returns of how many gradients that was."""
    count = 0
    for entry in record:
        if entry.gradient is None or not entry.gradient.size or entry.id in record.roots:
            continue
        for index in places(entry.gradient, rng):
            ledger = Ledger(record, entry.id, index)
            size = sum(abs(term.value) for term in ledger.terms)
            assert abs(ledger.rest) <= 1e-12 * size, (entry, index)
            for term in ledger.terms[:1]:
                assert ledger.words(term) == "" or term.factor != 0
        count += 1
    return count


def test_the_terms_of_every_op_add_up_to_its_gradients(case, invoke, leaves, cotangent, rng):
    with mg.trace() as t:
        out = invoke(case.op, leaves(case), case.settings)
        out.backward(cotangent(out.shape))
    assert assert_adds_up(t, rng) == sum(case.inputs[i].size > 0 for i in case.free)


@pytest.mark.parametrize("seed", range(len(DRAWN)))
def test_the_terms_add_up_in_models_of_every_kind(seed, rng):
    """Shared weights, residuals and loops among them."""
    assert assert_adds_up(trained(seed), rng) > 3


def test_faster_ops_and_what_they_fuse_add_up(rng):
    x = mg.tensor(rng.normal(size=(64, 131)), requires_grad=True, name="x")
    w = mg.tensor(rng.normal(size=131), requires_grad=True, name="w")
    t = traced(lambda: mg.mean(mg.softmax(mg.rms_norm(x, w)) ** 2))
    assert assert_adds_up(t, rng) == 5


# ---------------------------------------------------------------- a planted fault is seen


def without_the_largest(jvp):
    def wrong(*arguments):
        out, factors = jvp(*arguments)
        factors.flat[np.argmax(np.abs(factors))] = 0
        return out, factors

    return wrong


FAULTS = {
    "a term is dropped": (why, "jvp", without_the_largest),
    "what was broadcast is not summed": (
        backward, "sum_to", lambda sum_to: lambda x, shape, axes: sum_to(x, shape, axes) * 2.0
    ),
    "g is not multiplied": (
        why, "Term", lambda Term: lambda value, g, factor, *facts: Term(factor, g, factor, *facts)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_ledger_is_seen(fault, rng, monkeypatch):
    t = traced(lambda: mg.mean((leaf(2, 3, 5) * leaf(3, 1) + leaf(5)) ** 2))
    owner, name, spoil = FAULTS[fault]
    monkeypatch.setattr(owner, name, spoil(getattr(owner, name)))
    with pytest.raises((AssertionError, IndexError)):
        assert_adds_up(t, rng)


# ---------------------------------------------------------------- what is refused


def test_what_has_no_gradient_and_no_such_entry_is_refused(rng):
    x = mg.tensor(rng.normal(size=(3, 5)), requires_grad=True, name="x")
    t = traced(lambda: mg.sum(x * mg.tensor(rng.normal(size=5), name="frozen")))
    with pytest.raises(GradientError, match=r"why\(frozen\): it has no gradient: frozen"):
        t.why("frozen")
    for index in [(3, 0), (0,), (0, 0, 0), 1, (0, -1), (0, 1.5), slice(0, 1)]:
        with pytest.raises(ArgumentError, match=r"its gradient has shape \(3, 5\)"):
            t.why("x", index)
    with pytest.raises(KeyError, match="no entry named 'y'"):
        t.why("y")


# ---------------------------------------------------------------- what it says


def test_without_an_index_it_is_the_largest_entry_and_what_is_no_number_is_the_largest():
    x = mg.tensor([1.0, -7.0, 3.0], requires_grad=True, name="x")
    with np.errstate(invalid="ignore"):
        assert traced(lambda: mg.sum(x * x)).why("x").index == (1,)
        bad = traced(lambda: mg.sum(x * np.array([1.0, 9.0, np.nan])))
    assert bad.why("x").index == (2,)
    assert np.isnan(bad.why("x").terms[0].value)


def test_a_factor_is_named_where_the_rule_takes_it_and_nowhere_else(rng):
    layer = MultiHeadAttention(8, 2, mask=causal, rng=rng)
    x = mg.tensor(rng.normal(size=(2, 5, 8)), requires_grad=True, name="x")
    t = traced(lambda: mg.mean(layer(x) ** 2))

    def named(key, index):
        ledger = t.why(key, index)
        return {ledger.words(term) for term in ledger.terms}

    assert {f"W_Q[3, {k}]" for k in range(8)} <= named("x", (1, 2, 3))
    assert named("Q", (0, 1, 2, 3)) == {f"K[0, 1, {k}, 3]" for k in range(5)}  # of K's transpose
    assert named("V", (0, 1, 2, 3)) == {f"A[0, 1, {k}, 2]" for k in range(2, 5)}
    assert named("S_raw", (0, 1, 2, 0)) == {"factor"}
    assert named("S_masked", (0, 1, 2, 0)) == {""}  # no entry, though A is in it


def test_a_factor_that_equals_an_entry_by_chance_is_not_named():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    ledger = traced(lambda: mg.sum(mg.square(x))).why("x", 0)
    assert ledger.terms[0].factor == 2.0  # as is x[1]
    assert ledger.words(ledger.terms[0]) == ""


def test_relu_lets_through():
    x = mg.tensor([2.0, -3.0], requires_grad=True, name="x")
    t = traced(lambda: mg.sum(mg.relu(x)))
    ledger = t.why("x", 0)
    assert ledger.words(ledger.terms[0]) == "relu let it through"


def test_the_way_of_a_zero_ends_where_all_factors_are_zero(rng):
    layer = MultiHeadAttention(8, 2, mask=causal, rng=rng)
    x = mg.tensor(rng.normal(size=(2, 5, 8)), requires_grad=True)
    t = traced(lambda: mg.mean(layer(x) ** 2))
    *_, last = t.why("S_raw", (0, 0, 1, 3)).way()
    assert (last.entry.name, last.index, last.terms) == ("S_masked", (0, 0, 1, 3), [])


def test_sums_by_call_and_along_an_axis_add_up(rng):
    shared = Linear(5, 5, rng=rng)
    x = mg.tensor(rng.normal(size=(2, 3, 5)), requires_grad=True, name="x")
    t = traced(lambda: mg.mean(shared(mg.tanh(shared(x))) ** 2))
    ledger = t.why("W", (1, 2))
    assert {*ledger.by_call()} == {"linear ·1/linear", "linear ·2/linear"}
    assert sorted(ledger.along(0)) == [0, 1]
    assert sorted(ledger.along(1)) == [0, 1, 2]
    for sums in (ledger.by_call(), ledger.along(0), ledger.along(1)):
        np.testing.assert_allclose(sum(sums.values()), ledger.total, rtol=1e-12)


def test_asking_within_an_open_trace_adds_nothing_to_it(rng):
    x = mg.tensor(rng.normal(size=5), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(mg.dropout(x, 0.5, rng) ** 2).backward()
        before = len(t.entries), t.backwards, rng.bit_generator.state
        ledger = t.why("x")
        assert ledger.words(ledger.terms[0]) == ""
        assert (len(t.entries), t.backwards, rng.bit_generator.state) == before
