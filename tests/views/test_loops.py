"""Loops are drawn as steps in time, and where a gradient shrinks is told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import LSTM, Encoder, Module
from minigrad.engine.errors import ArgumentError
from minigrad.tracing import Trace
from minigrad.views import outline as outlines
from minigrad.views.dot import trace_dot
from minigrad.views.model import AnnotatedTrace
from minigrad.views.outline import outline

rng = np.random.default_rng(17)


class Cell(Module):
    def __init__(self) -> None:
        self.W = mg.tensor(0.4 * rng.normal(size=(5, 5)), requires_grad=True)

    def forward(self, x: Any, h: Any) -> Any:
        return mg.tanh(x + h @ self.W).named("h")


def recurrent(steps: int) -> Trace:
    cell, X = Cell(), mg.tensor(rng.normal(size=(steps, 3, 5)), name="X")
    with mg.trace() as t:
        h = np.zeros((3, 5))
        for k in range(steps):
            h = cell(X[k], h)
        mg.mean(h * h).named("loss").backward()
    return t


def sigmoids(layers: int) -> Trace:
    weights = [mg.tensor(rng.normal(size=(16, 16)) / 4, requires_grad=True) for _ in range(layers)]
    with mg.trace() as t:
        h = mg.tensor(rng.normal(size=(32, 16)))
        for W in weights:
            h = mg.sigmoid(h @ W)
        mg.sum(h).named("loss").backward()
    return t


def test_calls_of_one_module_in_a_loop_are_steps_without_any_scope_named() -> None:
    model = AnnotatedTrace(recurrent(20))
    assert model.fold.times == {"step[0]": 20}
    assert set(model.place.values()) == {"", "step[0]", "step[0]/cell"}
    assert model.fold.path_of(model.trace["cell/h"].id) == "step[19]/cell"
    line = next(line for line in outline(model).lines if line.link.step)
    assert (line.source.label, line.link.step, len(line.edges)) == ("h", 1, 19)


def test_steps_that_a_layer_names_fold_though_each_takes_another_index() -> None:
    x = mg.tensor(rng.normal(size=(3, 20, 5)), requires_grad=True)
    with mg.trace() as t:
        mg.mean(LSTM(5, 7, rng=rng, method="steps")(x)).backward()
    model = AnnotatedTrace(t)
    assert list(model.fold.times.values()) == [20]
    assert len(outline(model).boxes) < 40


def test_the_strip_holds_the_gradient_of_each_step_in_order() -> None:
    model = AnnotatedTrace(recurrent(20))
    strip = model.strips["step[0]"]
    made = [e for e in model.trace.entries if e.name == "h"]
    assert (strip.label, strip.ends) == ("h", ("step[0]", "step[19]"))
    assert strip.sizes == [e.gradient_rms for e in made]
    text = trace_dot(model.trace).text
    assert len(re.findall(r'WIDTH="5"', text)) == 20
    assert "gradient of h, step[0] to step[19]: " in text


@pytest.mark.parametrize("lines", [2, 20])
def test_what_is_not_a_loop_keeps_its_scope(lines: int) -> None:
    """Two times are no loop, and neither are calls that share nothing."""
    xs = [mg.tensor(rng.normal(size=3), requires_grad=True) for _ in range(lines)]
    with mg.trace() as t:
        tops = [mg.tanh(x) for x in xs]
        mg.sum(mg.stack(tops)).backward()
    assert set(AnnotatedTrace(t).place.values()) == {""}


def test_steps_of_which_each_differs_are_no_steps() -> None:
    with mg.trace() as t:
        h: Any = mg.tensor(rng.normal(size=11), requires_grad=True)
        while h.size > 3:
            h = mg.tanh(h[1:])
        mg.sum(h).backward()
    assert set(AnnotatedTrace(t).place.values()) == {""}


def test_the_op_that_shrinks_a_gradient_is_named_with_how_much_in_table_and_picture() -> None:
    t = sigmoids(8)
    path = t.worst_path
    assert path is not None
    assert (path.op, path.times) == ("sigmoid", 8)
    first = next(e for e in t.entries if e.op == "matmul")
    ratio = np.linalg.norm(first.gradient) / np.sqrt(32 * 16)  # of sum's gradient, all ones
    np.testing.assert_allclose(path.whole, ratio)
    np.testing.assert_allclose(path.each, ratio ** (1 / 8))
    said = f"the gradient shrinks ×{path.each:.2f} a layer, {float(f'{1 / ratio:.2g}'):,.0f} times"
    assert said in " ".join(t.table(200).split())
    assert said in trace_dot(t).text
    assert t.entries[1].state == "vanishing"


def test_a_large_mean_makes_no_gradient_vanish() -> None:
    x = mg.tensor(rng.normal(size=100_000), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.mean(x * 2.0).backward()
    assert t["x"].state == "ok"


def test_units_that_are_dead_and_rows_that_are_saturated_are_counted() -> None:
    x = np.array([[1.0, -1.0, -2.0], [-1.0, -3.0, 5.0]])
    with mg.trace() as t:
        mg.relu(mg.tensor(x, requires_grad=True)).named("r")
        mg.softmax(mg.tensor(x * 10, requires_grad=True)).named("s")
    model = AnnotatedTrace(t)
    assert model.unresponsive(t["r"]) == "1 of 3 units dead"
    assert model.unresponsive(t["s"]) == "2 of 2 rows saturated"
    assert "1 of 3 units dead" in t.table(200)


def test_a_picture_of_too_much_closes_scopes_and_says_so(monkeypatch: Any) -> None:
    with mg.trace() as t:
        h: Any = mg.tensor(1.0, requires_grad=True)
        for name in ("a", "bb", "ccc"):
            with mg.scope(name):
                for k in range(150):
                    h = mg.tanh(h) if k * len(name) % 4 else mg.exp(h * 0.1)
        h.backward()
    plan = outline(AnnotatedTrace(t, fold=False), limit=300)
    assert [box.label for box in plan.boxes] == ["a", "bb", "ccc"]
    assert "depth=0 is chosen" in plan.left_out
    assert len(outline(AnnotatedTrace(t, fold=False)).boxes) > 300
    monkeypatch.setattr(outlines, "MOST", 100)
    with pytest.raises(ArgumentError, match="a picture takes 100: trace a shorter part"):
        outline(AnnotatedTrace(t))


def test_a_flat_graph_of_too_much_is_cut_into_sections() -> None:
    with mg.trace() as t:
        h: Any = mg.tensor(1.0, requires_grad=True)
        for k in rng.integers(0, 3, 1000):
            h = [mg.tanh, mg.exp, mg.sin if hasattr(mg, "sin") else mg.sigmoid][k](h * 0.5)
        h.backward()
    plan = outline(AnnotatedTrace(t, fold=False), limit=300)
    assert len(plan.boxes) <= 100
    assert plan.boxes[0].label.startswith("values 1 to ")


@pytest.mark.parametrize("style", ["standard", "slide", "full"])
@pytest.mark.parametrize("direction", ["down", "right"])
def test_no_type_is_below_nine_points(style: str, direction: str) -> None:
    text = trace_dot(recurrent(4), style=style, direction=direction).text
    assert min(int(size) for size in re.findall(r'POINT-SIZE="(\d+)"', text)) >= 9
    assert "class=saved" not in text
    assert f"rankdir={'LR' if direction == 'right' else 'TB'}" in text


def test_sums_of_gradients_are_what_makes_a_gradient_grow_that_is_added_to_itself() -> None:
    x = mg.tensor(rng.normal(size=3), requires_grad=True, name="x")
    with mg.trace() as t:
        h: Any = x * 1.0
        for _ in range(12):
            h = h + h
        mg.sum(mg.scale(h, 1.5)).backward()
    said = "the gradient grows ×2.1 a step, 6,100 times in all, most by sums of gradients at Σ"
    assert said in AnnotatedTrace(t).flow


def test_a_slice_of_a_stack_shrinks_no_gradient() -> None:
    x = mg.tensor(rng.normal(size=3), requires_grad=True, name="x")
    with mg.trace() as t:
        parts = [mg.exp(x * 0.001 * k) for k in range(150)]
        mg.sum(mg.concatenate(parts)[:3]).backward()
    assert "keeps its size" in AnnotatedTrace(t).flow


def test_the_way_to_the_first_layers_is_followed_not_to_a_weight_of_the_last() -> None:
    last = mg.tensor(1e-9 * np.ones((16, 16)), requires_grad=True, name="last")
    weights = [mg.tensor(np.eye(16) / 2, requires_grad=True, name=f"W{k}") for k in range(8)]
    with mg.trace() as t:
        h = mg.tensor(rng.normal(size=(32, 16)))
        for W in weights:
            h = mg.tanh(h @ W)
        mg.sum(h * 1e-6 @ (last * 1e-9)).backward()
    assert t.worst_path is not None
    assert t.worst_path.entry.name == "W0"


def test_the_first_block_is_meant_however_short_the_way_past_the_others_is() -> None:
    for seed in range(4):
        encoder, own = Encoder(5, 8, 2, rng=seed), np.random.default_rng(seed)
        with mg.trace() as t:
            mg.mse_loss(encoder(own.normal(size=(1, 5, 8))), own.normal(size=(1, 5, 8))).backward()
        assert t.worst_path is not None
        assert not any(f"blocks.{n}" in t.worst_path.entry.path for n in range(1, 5))


def test_a_loop_over_inputs_of_their_own_has_steps_and_no_layers() -> None:
    W = mg.tensor(np.eye(3) / 2, requires_grad=True, name="W")
    with mg.trace() as t:
        h = mg.tensor(np.ones((2, 3)))
        for _ in range(5):
            h = mg.tanh(h @ W + mg.tensor(rng.normal(size=(2, 3))))
        mg.sum(h).backward()
    assert {scope for scope in AnnotatedTrace(t).place.values() if scope} == {"step[0]"}


def test_of_an_infinity_that_became_nan_both_ops_are_named() -> None:
    x = mg.tensor([0.0, 1.0], requires_grad=True, name="x")
    with mg.trace() as t, np.errstate(all="ignore"):
        mg.sum(mg.log(x) * x).backward()
    said = "log made -inf first, at log; multiply made NaN or +inf of it, at multiply"
    assert t.check().broken == said


def test_a_run_with_nan_is_red_and_names_the_op_that_made_it() -> None:
    x = mg.tensor([1.0, -1.0], requires_grad=True, name="x")
    with mg.trace() as t, np.errstate(all="ignore"), mg.scope("layer"):
        mg.sum(mg.sqrt(x) * 2.0).backward()
    assert AnnotatedTrace(t).flow == ""
    assert t.check().ok is False
    said = "NaN or infinity in this run: sqrt made it first, at layer/sqrt"
    assert said in " ".join(t.table(200).split())
    assert said in trace_dot(t).text
