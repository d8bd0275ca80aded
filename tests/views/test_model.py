"""What is told of a model: ranges over copies, the one that differs, where gradients shrink."""

import re

import numpy as np
import pytest

import minigrad as mg
from layers import Encoder
from minigrad.engine.errors import ArgumentError
from minigrad.views import outline as outlines
from minigrad.views.dot import trace_dot
from minigrad.views.model import AnnotatedTrace
from minigrad.views.outline import outline
from minigrad.views.plain import sized

from . import conftest as graphs


def recurrent(steps):
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


def scaled(factors):
    """A chain of h ← h √s with one s a step; the slope of the root is infinite at 0."""
    h = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t, np.errstate(all="ignore"):
        for i, factor in enumerate(factors):
            with mg.scope(f"step{i}"):
                h = (h * mg.sqrt(mg.tensor(factor, requires_grad=True, name="s"))).named("h")
        mg.sum(h * h).named("loss").backward()
    return t


def drawn(trace, **options):
    return outline(AnnotatedTrace(trace), **options)


# ---------------------------------------------------------------- copies


def test_copies_are_one_box_with_the_range_of_their_gradients():
    t = graphs.chain(5)
    text = trace_dot(t).text
    assert "block0 … block4" in text
    assert "×5" in text
    sizes = [np.sqrt(np.mean(np.square(e.gradient))) for e in t if e.op == "matmul"]
    assert f"{sized(min(sizes))} to {sized(max(sizes))}" in text
    assert "block0 …" not in trace_dot(t, fold=False).text
    assert len(drawn(t).boxes) < len(t) / 3


def test_what_each_step_hands_to_the_next_is_a_line_with_the_range_of_its_gradients():
    t = recurrent(20)
    (line,) = (line for line in drawn(t).lines if line.link.step)
    assert (line.source.label, line.target.label, line.link.step) == ("h", "matmul", 1)
    sent = [e.contribution for h in t if h.name == "h" for e in t.uses(h) if t[e.target].scope]
    assert len(line.edges) == len(sent) == 19
    np.testing.assert_allclose(line.sent, [np.sqrt(np.mean(g**2)) for g in sent], rtol=1e-12)
    dot = trace_dot(t)
    assert "to the next, 19 times" in dot.text
    assert any("h is used by matmul (to the next, 19 times)" in s for s in dot.titles.values())


def test_collapsed_copies_feed_one_another_too():
    loops = [line for line in drawn(recurrent(4), depth=0).lines if line.source is line.target]
    assert [(line.source.kind, len(line.edges)) for line in loops] == [("scope", 3)]


def test_the_strip_holds_the_gradient_of_each_step_in_order():
    model = AnnotatedTrace(recurrent(20))
    strip = model.strips["step0"]
    made = [e for e in model.trace.entries if e.name == "h"]
    assert (strip.label, strip.ends) == ("h", ("step0", "step19"))
    assert strip.sizes == [e.gradient_rms for e in made]
    text = trace_dot(model.trace).text
    assert len(re.findall(r'WIDTH="5"', text)) == 20
    assert "gradient of h, step0 to step19: " in text


def test_the_sum_of_a_shared_weight_counts_every_step():
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


def test_blocks_of_which_some_are_frozen_are_drawn_once():
    with mg.trace() as t:
        h = mg.tensor(np.ones(3), requires_grad=True, name="x")
        for i in range(4):
            with mg.scope(f"block{i}"):
                h = h * mg.tensor([0.5, 1.0, 2.0], requires_grad=i < 2, name="w")
        mg.sum(h).backward()
    text = trace_dot(t).text
    assert text.count("<B>w</B>") == 1
    assert "2 of 4 no gradient: block2" in text


def test_the_copy_that_differs_is_named_and_within_a_collapsed_scope_by_its_path():
    t = scaled([np.ones(2), np.array([1.0, 0.0]), np.ones(2), np.ones(2)])
    model = AnnotatedTrace(t)
    assert model.spread(model.copies(t["step0/s"].id)).state == "non-finite"
    text = trace_dot(t, theme="light").text
    assert "‼ 1 of 4 NaN or infinite: step1" in text
    assert ">0.71<" in text  # what the others are
    (spread,) = (s for b, s in drawn(t, depth=0).spreads.items() if b.kind == "scope")
    assert spread.note == "‼ 1 of 12 NaN or infinite: step1/s"


def test_a_gradient_that_is_not_finite_is_red_on_its_line_too():
    t = scaled([np.array([1.0, 0.0])])
    lines = re.findall(r"n\d+ -> n\d+ \[.*\]", trace_dot(t, theme="light").text)
    assert sum('"#b3261e"' in line and "class=gradient" in line for line in lines) == 1


# ---------------------------------------------------------------- where a gradient shrinks


def test_the_op_that_shrinks_a_gradient_is_named_with_how_much_in_table_and_picture(rng):
    weights = [mg.tensor(rng.normal(size=(16, 16)) / 4, requires_grad=True) for _ in range(8)]
    with mg.trace() as t:
        h = mg.tensor(rng.normal(size=(32, 16)))
        for W in weights:
            h = mg.sigmoid(h @ W)
        mg.sum(h).named("loss").backward()
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


def doubled(x):
    h = x * 1.0
    for _ in range(12):
        h = h + h
    return mg.scale(h, 1.5)


GROWS = "the gradient grows ×2.1 a step, 6,100 times in all, most by sums of gradients at Σ"


@pytest.mark.parametrize(
    ("function", "size", "said"),
    [
        (doubled, 3, GROWS),
        (lambda x: mg.concatenate([mg.exp(x * 0.001 * k) for k in range(150)])[:3], 3, "keeps"),
        (lambda x: mg.mean(x * 2.0), 100_000, "keeps"),
    ],
    ids=["added to itself", "a slice of a stack", "a large mean"],
)
def test_what_makes_a_gradient_grow_or_shrink_is_told_from_what_does_not(function, size, said, rng):
    x = mg.tensor(rng.normal(size=size), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(function(x)).backward()
    assert said in AnnotatedTrace(t).flow
    assert t["x"].state != "vanishing"


def test_the_way_to_the_first_layers_is_followed_not_to_a_weight_of_the_last(rng):
    last = mg.tensor(1e-9 * np.ones((16, 16)), requires_grad=True, name="last")
    weights = [mg.tensor(np.eye(16) / 2, requires_grad=True, name=f"W{k}") for k in range(8)]
    with mg.trace() as t:
        h = mg.tensor(rng.normal(size=(32, 16)))
        for W in weights:
            h = mg.tanh(h @ W)
        mg.sum(h * 1e-6 @ (last * 1e-9)).backward()
    assert t.worst_path is not None
    assert t.worst_path.entry.name == "W0"


def test_the_first_block_is_meant_however_short_the_way_past_the_others_is():
    for seed in range(4):
        encoder, own = Encoder(5, 8, 2, rng=seed), np.random.default_rng(seed)
        with mg.trace() as t:
            mg.mse_loss(encoder(own.normal(size=(1, 5, 8))), own.normal(size=(1, 5, 8))).backward()
        assert t.worst_path is not None
        assert not any(f"blocks.{n}" in t.worst_path.entry.path for n in range(1, 5))


def test_units_that_are_dead_and_rows_that_are_saturated_are_counted():
    x = np.array([[1.0, -1.0, -2.0], [-1.0, -3.0, 5.0]])
    with mg.trace() as t:
        mg.relu(mg.tensor(x, requires_grad=True)).named("r")
        mg.softmax(mg.tensor(x * 10, requires_grad=True)).named("s")
    assert "1 of 3 units dead" in t.table(200)
    assert "2 of 2 rows saturated" in t.table(200)


def test_a_run_with_nan_is_red_and_names_the_ops_that_made_it():
    x = mg.tensor([0.0, 1.0, -1.0], requires_grad=True, name="x")
    with mg.trace() as infinite, np.errstate(all="ignore"):
        mg.sum(mg.log(x[:2]) * x[:2]).backward()
    said = "log made -inf first, at log; multiply made NaN or +inf of it, at multiply"
    assert infinite.check().broken == said
    with mg.trace() as t, np.errstate(all="ignore"), mg.scope("layer"):
        mg.sum(mg.sqrt(x) * 2.0).backward()
    assert AnnotatedTrace(t).flow == ""
    assert t.check().ok is False
    said = "NaN or infinity in this run: sqrt made it first, at layer/sqrt"
    assert said in " ".join(t.table(200).split())
    assert said in trace_dot(t).text


# ---------------------------------------------------------------- too much


def test_a_picture_of_too_much_closes_scopes_and_says_so(monkeypatch):
    with mg.trace() as t:
        h = mg.tensor(1.0, requires_grad=True)
        for name in ("a", "bb", "ccc"):
            with mg.scope(name):
                for k in range(150):
                    h = mg.tanh(h) if k * len(name) % 4 else mg.exp(h * 0.1)
        h.backward()
    plan = outline(AnnotatedTrace(t, fold=False), limit=300)
    assert [box.label for box in plan.boxes] == ["a", "bb", "ccc"]
    assert "depth=0 is chosen" in plan.left_out
    assert len(outline(AnnotatedTrace(t, fold=False)).boxes) > 300
    monkeypatch.setattr(outlines, "LARGEST_PICTURE", 100)
    with pytest.raises(ArgumentError, match="a picture takes 100: trace a shorter part"):
        outline(AnnotatedTrace(t))


def test_a_flat_graph_of_too_much_is_cut_into_sections(rng):
    with mg.trace() as t:
        h = mg.tensor(1.0, requires_grad=True)
        for k in rng.integers(0, 3, 400):
            h = [mg.tanh, mg.exp, mg.sigmoid][k](h * 0.5)
        h.backward()
    plan = outline(AnnotatedTrace(t, fold=False), limit=300)
    assert len(plan.boxes) <= 100
    assert plan.boxes[0].label.startswith("values 1 to ")
