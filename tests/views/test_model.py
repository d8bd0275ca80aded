"""What repeats is found and kept whole: ranges, the one that differs, what goes to the next."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.tracing import Trace
from minigrad.views.dot import trace_dot
from minigrad.views.model import AnnotatedTrace
from minigrad.views.outline import Outline, outline
from minigrad.views.plain import sized

from . import conftest as graphs


def recurrent(steps: int) -> Trace:
    """h ← tanh(x U + h W), one scope a step."""
    rng = np.random.default_rng(17)
    W = mg.tensor(0.5 * rng.normal(size=(3, 3)), requires_grad=True, name="W")
    U = mg.tensor(rng.normal(size=(2, 3)), requires_grad=True, name="U")
    h = mg.tensor(np.ones((5, 3)), requires_grad=True, name="h0")
    with mg.trace() as t:
        for i in range(steps):
            with mg.scope(f"step{i}"):
                h = mg.tanh(mg.tensor(rng.normal(size=(5, 2)), name="x") @ U + h @ W).named("h")
        mg.mean(h * h).named("loss").backward()
    return t


def scaled(factors: list[Any]) -> Trace:
    """A chain of h ← h √s with one s a step; the slope of the root is infinite at 0."""
    h = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t, np.errstate(all="ignore"):
        for i, factor in enumerate(factors):
            with mg.scope(f"step{i}"):
                h = (h * mg.sqrt(mg.tensor(factor, requires_grad=True, name="s"))).named("h")
        mg.sum(h * h).named("loss").backward()
    return t


def drawn(trace: Trace, **options: Any) -> Outline:
    return outline(AnnotatedTrace(trace), **options)


def test_copies_are_one_box_with_the_range_of_their_gradients() -> None:
    t = graphs.chain(5)
    text = trace_dot(t).text
    assert "block0 … block4" in text
    assert "×5" in text
    sizes = [np.sqrt(np.mean(np.square(e.gradient))) for e in t if e.op == "matmul"]
    assert f"{sized(min(sizes))} to {sized(max(sizes))}" in text
    assert "block0 …" not in trace_dot(t, fold=False).text
    assert len(drawn(t).boxes) < len(t) / 3


def test_blocks_that_differ_are_not_folded() -> None:
    """Planted: the second of three blocks has another op."""
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.trace() as t:
        for i, f in enumerate((mg.tanh, mg.exp, mg.tanh)):
            with mg.scope(f"block{i}"):
                x = f(x)
    assert AnnotatedTrace(t).fold.times == {}


def test_what_each_step_hands_to_the_next_is_a_line_with_the_range_of_its_gradients() -> None:
    t = recurrent(20)
    (line,) = (line for line in drawn(t).lines if line.link.step)
    assert (line.source.label, line.target.label, line.link.step) == ("h", "matmul", 1)
    sent = [e.contribution for h in t if h.name == "h" for e in t.uses(h) if t[e.target].scope]
    assert len(line.edges) == len(sent) == 19
    np.testing.assert_allclose(line.sent, [np.sqrt(np.mean(g**2)) for g in sent], rtol=1e-12)
    dot = trace_dot(t)
    assert "to the next, 19 times" in dot.text
    assert any("h is used by matmul (to the next, 19 times)" in s for s in dot.titles.values())


def test_collapsed_copies_feed_one_another_too() -> None:
    loops = [line for line in drawn(recurrent(4), depth=0).lines if line.source is line.target]
    assert [(line.source.kind, len(line.edges)) for line in loops] == [("scope", 3)]


def test_blocks_of_which_some_are_frozen_are_drawn_once() -> None:
    with mg.trace() as t:
        h = mg.tensor(np.ones(3), requires_grad=True, name="x")
        for i in range(4):
            with mg.scope(f"block{i}"):
                h = h * mg.tensor([0.5, 1.0, 2.0], requires_grad=i < 2, name="w")
        mg.sum(h).backward()
    assert list(AnnotatedTrace(t).fold.times.values()) == [4]
    assert trace_dot(t).text.count("<B>w</B>") == 1
    assert "2 of 4 no gradient: block2" in trace_dot(t).text


@pytest.mark.parametrize("make", [lambda: graphs.chain(5), lambda: recurrent(6)])
def test_no_edge_of_the_record_is_lost_by_folding(make: Any) -> None:
    t = make()
    assert sum(len(line.edges) for line in drawn(t).lines) == len(t.edges)


def test_the_sum_of_a_shared_weight_counts_every_step() -> None:
    """‖Σg‖ / Σ‖g‖ is at most 1, for whatever is folded."""
    t = recurrent(6)
    plan = drawn(t)
    (box,) = (box for box in plan.sums if box.label == "W")
    sizes = [np.sqrt(np.mean(e.contribution**2)) for e in t.uses(t["W"])]
    ratio = np.sqrt(np.mean(t["W"].gradient ** 2)) / sum(sizes)
    found = re.findall(r"> ([\d.]+)</FONT>> class=sum", trace_dot(t).text)
    assert sized(ratio) in found
    assert all(float(r) <= 1.0 for r in found)
    assert [len(line.edges) for line in plan.lines if line.source is box] == [6]


def test_the_copy_that_differs_is_named_beside_the_range_of_the_others() -> None:
    t = scaled([np.ones(2), np.array([1.0, 0.0]), np.ones(2), np.ones(2)])
    model = AnnotatedTrace(t)
    spread = model.spread(model.copies(t["step0/s"].id))
    assert spread.state == "non-finite"
    assert spread.note == "‼ 1 of 4 NaN or infinite: step1"
    text = trace_dot(t).text
    assert "‼ 1 of 4 NaN or infinite: step1" in text
    assert ">0.71<" in text  # what the others are


def test_within_a_collapsed_scope_the_worst_is_named_by_its_path() -> None:
    t = scaled([np.ones(2), np.array([1.0, 0.0])])
    (spread,) = (s for b, s in drawn(t, depth=0).spreads.items() if b.kind == "scope")
    assert spread.note == "‼ 1 of 6 NaN or infinite: step1/s"


def test_a_gradient_that_is_not_finite_is_red_on_its_line_too() -> None:
    t = scaled([np.array([1.0, 0.0])])
    red = '"#b3261e"'
    lines = re.findall(r"n\d+ -> n\d+ \[.*\]", trace_dot(t, theme="light").text)
    assert [red in line for line in lines if "class=gradient" in line].count(True) == 1


def test_a_leaf_that_only_the_first_copy_uses_stands_outside() -> None:
    t = graphs.chain(3)
    model = AnnotatedTrace(t)
    assert model.place[t["X"].id] == ""
    assert model.place[t["block2/mlp/W"].id] == "block0/mlp"
