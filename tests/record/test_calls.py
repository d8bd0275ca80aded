"""A scope is a call: which object, which time; entries, weights and replacements go by it."""

from contextlib import ExitStack

import numpy as np
import pytest

import minigrad as mg
from layers import BatchNorm, Linear
from minigrad.errors import ArgumentError
from minigrad.record.finish import finish
from minigrad.views.layout import layout

from .models import KINDS, Net, leaf, traced


def called_three_times():
    cell = Linear(3, 3, rng=0)
    net = Net(lambda x, cell: mg.tanh(cell(cell(cell(x)))), cell=cell)
    return cell, traced(lambda: mg.sum(net(leaf(2, 3, name="x"))))


def test_calls_of_one_object_are_told_apart_and_their_weight_is_one_thing():
    cell, t = called_three_times()
    paths = [entry.path for entry in t if entry.op == "linear"]
    assert paths == [f"net/cell ·{k}/linear" for k in (1, 2, 3)]
    (W,) = (entry for entry in t if entry.name == "W")
    assert (W.path, W.calls) == ("net/cell/W", ())
    parts = [edge.contribution for edge in W.uses]
    assert len(parts) == 3
    np.testing.assert_allclose(sum(parts), cell.W.grad)


def test_an_entry_is_found_by_its_call():
    _, t = called_three_times()
    linears = [entry for entry in t if entry.op == "linear"]
    assert t["cell ·2/linear"] is linears[1]
    assert t["cell/linear"] is linears[2]  # the last of all
    with pytest.raises(KeyError, match=r"no entry named 'cell ·4/linear'; names: .*net/cell/W"):
        t["cell ·4/linear"]


def test_the_focus_of_a_picture_is_one_call_or_all():
    t = finish(KINDS["cnn"]())

    def pools(focus):
        return [
            box.entry.path for box in layout(t, focus=focus).boxes if box.entry.op == "max_pool"
        ]

    assert pools("pool ·2") == ["net/pool ·2/max_pool"]
    assert pools("pool") == ["net/pool ·1/max_pool", "net/pool ·2/max_pool"]
    with pytest.raises(ArgumentError, match=r"names no scope .*net/pool ·1, net/pool ·2"):
        layout(t, focus="pool ·3")


def test_what_is_computed_for_a_buffer_alone_is_no_step(rng):
    norm = BatchNorm(3)
    t = traced(lambda: mg.sum(norm(leaf(5, 3, name="x")) ** 2.0))
    assert [t[i].op for i in t.forward] == ["batch_norm", "power", "sum"]
    updates = {entry.op for entry in t if entry.kind == "buffer update"}
    assert updates == {"mean", "var", "multiply", "add"}
    assert {entry.name for entry in t if entry.kind == "parameter"} == {"weight", "bias"}
    assert all(edge.target not in t.aside for edge in t.edges)


@pytest.mark.parametrize("factors", [(2.0, 3.0), (2.0, 3.0, 5.0)])
def test_each_of_several_replacements_is_applied_once_in_order(factors):
    with ExitStack() as stack:
        for factor in factors:
            stack.enter_context(mg.replace("h", lambda h, factor=factor: h * factor + 1.0))
        h = mg.exp(mg.tensor(0.0)).named("h")
    expected = 1.0
    for factor in factors:
        expected = expected * factor + 1.0
    assert h.item() == expected


def test_a_replacement_is_of_one_call_where_its_path_says_so():
    cell, x = Linear(3, 3, rng=0), leaf(2, 3)
    with mg.replace("linear ·2/linear", 0.0):
        first = cell(x)
        second = cell(x)
        third = cell(x)
    assert np.any(first.numpy())
    assert not np.any(second.numpy())
    assert np.any(third.numpy())


def test_a_graph_that_backward_freed_is_drawn_before_it(tmp_path):
    loss = mg.sum(Linear(3, 2, rng=0)(np.ones((2, 3))) ** 2.0)
    loss.backward()
    with pytest.raises(mg.errors.FreedGraphError, match=r"draw before it, or call backward\(ret"):
        mg.draw(loss, tmp_path / "g.svg")
