"""A record holds every op that ran while it was open, and the last backward, as plain data."""

import copy
import json
import pickle

import numpy as np
import pytest

import minigrad as mg
from layers import Dropout, Linear, MultiHeadAttention
from minigrad.errors import DTypeError, GradientError
from minigrad.optim import SGD
from minigrad.record.finish import finish
from minigrad.record.record import Record
from minigrad.record.recorder import record_graph
from tests.compare import assert_same

from .models import leaf, traced


def test_values_and_gradients_are_those_of_the_run(rng):
    x, W = leaf(2, 3, name="x"), leaf(3, 5, name="W", seed=1)
    with mg.trace() as t:
        h = mg.tanh(x @ W).named("h")
        mg.sum(h * h).named("loss").backward()
    assert_same(t["h"].value, np.tanh(x.numpy() @ W.numpy()))
    assert_same(t["h"].gradient, 2 * h.numpy())
    assert_same(t["W"].gradient, W.grad)
    assert [e.op for e in t if e.op] == ["matmul", "tanh", "multiply", "sum"]
    assert [t[i].op for i in t.backward] == ["sum", "multiply", "tanh", "matmul"]
    (a, b) = t["multiply"].takes
    assert_same(a.contribution + b.contribution, t["h"].gradient)


def test_an_entry_is_found_by_name_path_end_of_path_and_number():
    with mg.trace() as t, mg.scope("encoder"), mg.scope("attn"):
        mg.exp(leaf(2, name="x")).named("A")
    entry = t["encoder/attn/A"]
    assert entry is t["attn/A"] is t["A"] is t[entry.id]
    with pytest.raises(KeyError, match="no entry named 'B'; names: encoder/attn/x, encoder/attn/A"):
        t["B"]


def test_leaves_are_parameters_inputs_or_constants(rng):
    layer = Linear(3, 5, rng=rng)
    with mg.trace() as t:
        out = layer(leaf(2, 3, name="x")) * leaf(5, name="w") + np.ones(5)
        mg.sum(out + mg.tensor(np.zeros(5), name="shift")).backward()
    assert {entry.label: entry.kind for entry in t if not entry.op} == {
        "x": "input",
        "W": "parameter",
        "b": "parameter",
        "w": "leaf",
        "constant 6": "constant",
        "shift": "input",
    }
    assert (t["shift"].why, t["constant 6"].why) == ("frozen", "constant")


def test_of_several_backwards_the_record_holds_the_last_and_says_so():
    w = leaf(3, name="w")
    with mg.trace() as t:
        mg.sum(w * 2.0).named("first").backward()
        mg.sum(w * w).named("second").backward()
    assert_same(t["w"].gradient, 2 * w.numpy())
    assert_same(w.grad, 2 * w.numpy() + 2)
    assert t["first"].gradient is None
    assert t[t.loss].name == "second"
    assert t["first"].why == "only in an earlier backward"
    assert [t[i].op for i in t.backward] == ["sum", "multiply"]
    assert t.notes == [
        "2 backwards ran, and the gradients are those of the last",
        ".grad of w holds more: what stood there before",
    ]


def test_grad_is_a_backward_that_adds_to_nothing():
    w = leaf(3, name="w")
    with mg.trace() as t:
        loss = mg.sum(w**3.0)
        (g,) = mg.grad(loss, [w])
    assert_same(t["w"].gradient, g)
    assert (w.grad, t.notes) == (None, [])


def test_what_an_optimizer_writes_later_is_not_in_the_record():
    w = leaf(3, name="w")
    before = w.numpy().copy()
    t = traced(lambda: mg.sum((w.T * 1.0) ** 2.0))
    SGD([w], lr=0.5).step()
    assert_same(t["w"].value, before)
    assert_same(t["transpose"].value, before)
    assert t.check(ops=True).ok


def test_a_leaf_that_is_written_to_between_two_uses_is_two_leaves():
    w = leaf(3, name="w")
    with mg.trace() as t:
        mg.sum(w * w).backward()
        SGD([w], lr=0.5).step()
        mg.sum(w * w).backward()
    both = [entry for entry in t if entry.name == "w"]
    assert len(both) == 2
    assert_same(both[1].value, w.numpy())
    assert_same(both[1].gradient, 2 * both[1].value)
    assert t.check(ops=True).ok


def test_a_buffer_that_is_filled_anew_is_another_constant_and_a_wrong_gradient_is_found():
    x, batch = leaf(3, name="x"), np.ones(3)
    with mg.trace() as t:
        one = mg.sum(x * batch)
        batch[:] = 5.0  # nobody can tell the engine, which saved it for the backward
        (one + mg.sum(x * batch)).backward()
    assert [e.value[0] for e in t if e.kind == "constant"] == [1.0, 5.0]
    assert [check.scope for check in t.check(ops=True).wrong] == ["multiply"]


def test_a_detached_copy_says_of_what():
    with mg.trace() as t:
        h = mg.exp(leaf(3)).named("h")
        mg.sum(h * h.detach()).backward()
    (copied,) = (entry for entry in t if entry.copy_of is not None)
    assert (copied.kind, copied.copy_of) == ("constant", t["h"].id)
    assert r"\mathrm{detach}(h)" in t["multiply"].equation


def test_ops_under_no_grad_are_in_it_without_a_gradient():
    with mg.trace() as t, mg.no_grad():
        mg.exp(leaf(3))
    assert (t["exp"].state, t["exp"].why, t["exp"].needs) == ("none", "not recorded", False)


def test_what_was_made_before_is_an_input_with_its_gradient():
    h = mg.exp(leaf(3)).named("h")
    t = traced(lambda: mg.sum(h * 3.0))
    assert (t["h"].kind, t["h"].op) == ("input", "")
    assert_same(t["h"].gradient, np.full(3, 3.0))


def test_a_generator_is_kept_as_it_was_before_it_drew():
    t = traced(lambda: mg.sum(Dropout(0.5, rng=0)(leaf(7, 5))))
    assert t.check(ops=True).ok


def test_it_is_opened_by_with_and_closed_also_by_an_error():
    with pytest.raises(DTypeError, match=r"within `with mg\.trace"):
        mg.trace(abs)
    with pytest.raises(DTypeError), mg.trace() as t:
        mg.exp("x")
    mg.exp(leaf(2))
    assert len(t) == 0


def test_it_can_be_copied_and_pickled_and_is_the_same_for_the_same_program(rng):
    def run():
        layer, X = MultiHeadAttention(12, 3, rng=0), leaf(2, 7, 12)
        return traced(lambda: mg.sum(layer(X) ** 2.0))

    first = run()
    data = json.dumps(first.to_dict(), allow_nan=False)
    for other in (run(), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert json.dumps(other.to_dict(), allow_nan=False) == data


def test_numbers_that_json_has_not_are_text():
    with np.errstate(all="ignore"), mg.trace() as t:
        mg.log(mg.tensor([0.0, -1.0], requires_grad=True))
    entry = t.to_dict()["entries"][1]
    assert entry["value"] == {"rms": "nan", "low": "nan", "high": "nan", "finite": False}


def test_a_graph_without_a_run_has_formulas_and_no_gradients():
    x = leaf(2, 3, name="x")
    record = Record()
    record_graph(mg.sum(mg.tanh(x) * 2.0).named("loss"), record)
    finish(record)
    assert [entry.op for entry in record.entries if entry.op] == ["tanh", "multiply", "sum"]
    assert record["tanh"].equation == r"\tanh x"
    assert {entry.state for entry in record.entries} == {"none"}
    record_graph(x, leaf_alone := Record())
    assert finish(leaf_alone).entries[0].name == "x"


def test_what_was_saved_for_backward_is_counted_once():
    x = leaf(11, name="x")
    t = traced(lambda: mg.sum((h := mg.exp(x)) * h))
    assert [e.saved_bytes for e in t if e.op] == [88, 0, 0]


def test_a_closed_trace_is_finished_so_its_fields_hold_what_its_views_say():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.trace() as t:
        mg.sum(x * x).backward()
    assert [entry.flops for entry in t.entries if entry.op] == [2, 2]
    assert t.way is not None


def test_a_second_run_in_one_trace_is_refused():
    with mg.trace() as t:
        mg.exp(leaf(2))
    with pytest.raises(GradientError, match="holds a run already"), t:
        mg.exp(leaf(2))
