"""A ledger as text: lines that add up, followed to the loss."""

import re

import numpy as np

import minigrad as mg
from layers import Linear
from minigrad import distributed
from minigrad.views import ledger
from minigrad.views.ledger import headline_lines, shown_ledgers
from tests.record.models import leaf, traced

from .graphs import mlp


def sums_of(text):
    """Of each entry in a printed ledger its total, and the numbers that its lines begin with."""
    for block in re.split(r"^∂L/∂", text, flags=re.MULTILINE)[1:]:
        head, *lines = block.splitlines()
        starts = [re.match(r"  (-?[\d.e+-]+)(?= )", line) for line in lines]
        yield float(head.rsplit(" = ")[1]), [float(start[1]) for start in starts if start]


def test_the_lines_of_each_entry_add_up_and_end_at_the_loss(rng):
    net = Linear(7, 5, rng=rng)
    x = mg.tensor(rng.normal(size=(3, 7)), requires_grad=True, name="x")
    text = str(traced(lambda: mg.mean(mg.softmax(net(x)) ** 2).named("loss")).why("x"))
    sums = [*sums_of(text)]
    assert len(sums) == 5
    for total, lines in sums:
        np.testing.assert_allclose(sum(lines), total, atol=1e-3 * sum(map(abs, lines)))
    assert text.endswith("∂L/∂loss = 1\n  1 where backward began")


def test_lines_of_a_rule_that_a_check_refutes_are_marked(plant):
    plant("tanh", "x", lambda g: g * 1.01)
    t = traced(lambda: mg.sum(mg.tanh(leaf(5, name="x")) * 3.0))
    assert "✗" not in str(t.why("x"))
    t.check(ops=True)
    first, second, *others = str(t.why("x")).splitlines()
    assert re.search(r"by tanh to tanh\[\d\] ✗ for x: \S+ off$", second)
    assert "✗" not in "".join([first, *others])


def test_what_is_left_over_is_said():
    x = mg.tensor([2.0, -3.0], requires_grad=True, name="x")
    x.register_hook(lambda g: g * 2)
    text = str(traced(lambda: mg.sum(x)).why("x", 1))
    assert "\n  1 by a hook, or ops outside of the record\n" in text


# ---------------------------------------------------------------- in the page


def test_the_page_holds_the_largest_entry_of_each_gradient_and_its_way_to_the_loss():
    t = mlp()
    ledgers = shown_ledgers(t)
    for entry in t:
        if entry.gradient is not None:
            key = ledgers[str(entry.id)]
            assert ledgers[key]["title"] == str(t.why(entry.id)).splitlines()[0]
            while ledgers[key]["rows"][0]["made"] is not None:
                row = ledgers[key]["rows"][0]
                key = f"{row['made']} {row['at']}"
            assert ledgers[key]["title"] == "∂L/∂loss = 1"


def test_what_is_too_much_work_is_left_out_leaves_last(monkeypatch):
    t = mlp()
    whole = {key for key in shown_ledgers(t) if " " not in key}
    monkeypatch.setattr(ledger, "LEAST_WORK", 3 * ledger.OVERHEAD)
    some = shown_ledgers(t)
    leaves = [str(entry.id) for entry in t if not entry.op and entry.gradient is not None]
    assert set() < {key for key in some if " " not in key} < {*leaves} < whole


def test_a_collective_is_not_run_again_for_a_page():
    x = leaf(4, 3, name="x")
    t = traced(lambda: mg.sum(distributed.all_reduce(x)))
    assert str(t["x"].id) not in shown_ledgers(t)


def test_the_derivation_begins_with_three_lines_on_the_headline_s_gradient(tmp_path):
    t = mlp()
    three = headline_lines(t)
    assert three[0] == str(t.why(t.way.edges[-1].source)).splitlines()[0]
    assert len(three) == 3
    assert "\n".join(three) in t.derivation(tmp_path / "d.md").read_text()
