"""What `mg.watch` measures, when it looks, and what it leaves alone."""

import csv
import json

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, MultiHeadAttention, Sequential, causal
from minigrad.errors import ArgumentError, DTypeError
from minigrad.optim import SGD, clip_grad_norm
from minigrad.recording.measures import cosine, saturation
from minigrad.watching import Flow

from .watched import watched


class Run:
    """A small training run, the same for the same seed."""

    def __init__(self, compiled=False):
        self.rng = np.random.default_rng(0)
        widths = ((5, 7), (7, 3))
        first, second = (Linear(m, n, rng=self.rng) for m, n in widths)
        self.model = Sequential(first, mg.relu, second)
        self.optimizer = SGD(self.model.parameters(), lr=0.1)
        self.step = mg.compile(self._step) if compiled else self._step

    def _step(self, x, y):
        self.optimizer.zero_grad()
        loss = mg.cross_entropy(self.model(mg.tensor(x)), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, steps, flow=None):
        for _ in range(steps):
            x = self.rng.normal(size=(11, 5))
            loss = self.step(x, (x[:, 0] > 0).astype(int))
            if flow is not None:
                flow.log(loss=loss)

    def watch(self, steps, **options):
        with mg.watch(self.model, **options) as flow:
            self.train(steps, flow)
        return flow


def vector(name, *entries):
    return mg.tensor([*entries], requires_grad=True, name=name)


@pytest.mark.parametrize("compiled", [False, True])
def test_watching_changes_no_bit_of_an_eager_run_and_counts_every_step(compiled):
    """A compiled step that is looked at runs eagerly: there the weights agree to rounding."""
    alone, other = Run(compiled), Run(compiled)
    alone.train(23)
    flow = other.watch(23, every=5)
    assert [s.step for s in flow.samples] == [0, 5, 10, 15, 20]
    assert flow.steps == 23
    assert [step for step, _ in flow.logs("loss")] == list(range(23))
    rtol = 1e-12 if compiled else 0
    for mine, theirs in zip(alone.model.parameters(), other.model.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=rtol)


def test_figures_are_those_of_the_step_itself_in_the_order_of_the_forward_pass():
    run = Run()
    W, b = run.model.layers[0].parameters()
    before = W.numpy().copy()
    flow = run.watch(1, every=1)
    moved = W.numpy() - before

    def rms(x):
        return pytest.approx(float(np.sqrt(np.mean(np.square(x)))))

    (sample,) = flow.samples
    row = sample.rows["sequential/layers.0/W"]
    assert (row["gradient"], row["value"], row["update"]) == (rms(W.grad), rms(before), rms(moved))
    assert row["ratio"] == pytest.approx(row["update"] / row["value"])
    assert sample.rows["sequential/layers.0/b"]["gradient"] == rms(b.grad)
    assert flow.rows["sequential/layers.0/W"].name == "layers.0.W"
    assert sample.lr == 0.1
    assert [path.removeprefix("sequential/") for path in flow.rows] == [
        "layers.0/W", "layers.0/b", "layers.0/linear", "relu",
        "layers.2/W", "layers.2/b", "layers.2/linear",
    ]  # fmt: skip


def test_of_a_line_that_runs_many_times_the_first_eight_have_rows_powers_of_two_and_the_last():
    w = vector("w", 0.5, 1.0)

    def loss(step):
        h = w
        for _ in range(40):
            h = mg.tanh(h)
        return mg.sum(h)

    flow = watched([w], loss)
    numbers = ["", *(f"[{i}]" for i in (*range(1, 8), 15, 31, "last"))]
    assert [path for path in flow.rows if "tanh" in path] == [f"tanh{n}" for n in numbers]
    assert flow.samples[0].rows["tanh[last]"]["count"] == 40


def test_nobody_listens_between_the_steps_that_are_looked_at():
    run, heard = Run(), []
    with mg.watch(run.model, every=3):
        for _ in range(6):
            with mg.scope("outer"):  # the step ends within: it reaches the surroundings too
                heard.append(len(mg.engine.context.current().listeners))
                run.train(1)
    assert [bool(x) for x in heard] == [True, False, False, True, False, False]
    assert mg.engine.context.current().listeners == ()


def test_updates_written_by_hand_end_a_step_when_something_is_logged():
    w = vector("w", 3.0, -4.0)
    with mg.watch([w], every=2) as flow:
        for _ in range(5):
            w.grad = None
            loss = mg.sum(w * w)
            loss.backward()
            w.data -= 0.25 * w.grad
            flow.log(loss=loss)
    assert [s.step for s in flow.samples] == [0, 2, 4]
    assert [x for _, x in flow.logs("loss")] == [25.0 / 4**i for i in range(5)]
    assert [x for _, x in flow.series("w", "ratio")] == [0.5, 0.5, 0.5]


def test_the_next_batch_says_how_far_gradients_point_one_way():
    assert cosine(np.array([3.0, 0.0]), np.array([0.0, 3.0])) == (0.0, 2.0)
    assert cosine(np.array([1.0, 2.0]), np.array([-1.0, -2.0]))[0] == -1.0
    w, sides = vector("w", 1.0, 1.0), (1.0, -1.0, 1.0, 1.0)
    flow = watched([w], lambda step: mg.sum(w * sides[step]), 4, SGD([w], lr=0.0), every=2)
    assert [x for _, x in flow.series("w", "cosine")] == [-1.0, 1.0]


def test_clipping_by_norm_is_measured():
    w = vector("w", 3.0, 4.0)
    optimizer = SGD([w], lr=0.1)
    with mg.watch([w]) as flow:
        mg.sum(w * w).backward()
        clip_grad_norm([w], 2.5)
        optimizer.step()
    assert flow.samples[0].rows["w"]["clipped"] == pytest.approx(0.75)
    assert flow.samples[0].rows["w"]["gradient"] == pytest.approx(np.sqrt(50))


def test_a_dead_unit_is_0_for_the_whole_batch(rng):
    x, b = mg.tensor(rng.normal(size=(17, 4)), name="x"), vector("b", -50.0, 0.0, 0.0, -50.0)
    flow = watched([b], lambda step: mg.sum(mg.relu(x + b)))
    assert flow.samples[0].rows["relu"]["saturated"] == 0.5
    assert flow.rows["relu"].saturates == "units dead"
    assert "50% of units dead" in flow.table(140)


@pytest.mark.parametrize(
    ("name", "out", "settings", "share"),
    [
        ("relu", np.eye(3)[[0, 1] * 30], (), 1 / 3),
        ("relu", np.eye(3)[[0, 1] * 2], (), None),  # four entries a unit: too few to tell
        ("relu", np.ones((40, 3, 5, 5)) * [[[0.0]], [[1.0]], [[1.0]]], (), 1 / 3),  # a channel
        ("relu", np.repeat([[0.0, 1.0], [1.0, 1.0]], [40, 10], axis=0), (), 0),  # woken later
        ("tanh", np.linspace(-1, 1, 8), (), 0.25),
        ("softmax", np.array([[1.0, 0.0], [0.5, 0.5], [0.995, 0.005]]), (-1,), 1 / 3),
    ],
)
def test_how_much_saturates_is_what_the_op_declares(name, out, settings, share):
    assert saturation(mg.registry[name], out, settings) == share


@pytest.mark.parametrize("mask", [None, causal])
def test_heads_of_uniform_weights_agree_and_have_all_the_entropy_that_the_mask_leaves(rng, mask):
    layer, x = MultiHeadAttention(8, 2, mask=mask, rng=rng), rng.normal(size=(3, 5, 8))
    flow = watched(layer, lambda step: mg.mean(layer(x) ** 2))
    (drawn,) = [row for row in flow.samples[0].rows.values() if "entropy" in row]
    assert 0 < drawn["entropy"] < 0.9999
    A = np.stack([one / np.linalg.norm(one) for one in layer.attention_weights.reshape(6, 25)])
    cosines = (A[::2] * A[1::2]).sum(axis=-1)  # of the two heads, for each of the batch
    assert drawn["agreement"] == pytest.approx(cosines.mean(), rel=1e-5)
    layer.W_Q.assign_(np.zeros((8, 8)))
    flow = watched(layer, lambda step: mg.mean(layer(x) ** 2))
    (uniform,) = [row for row in flow.samples[0].rows.values() if "entropy" in row]
    assert (uniform["entropy"], uniform["agreement"]) == pytest.approx((1, 1), abs=1e-6)


def test_heads_agree_as_they_do_without_an_example_that_is_masked_whole(rng):
    layer, x = MultiHeadAttention(8, 2, rng=rng), rng.normal(size=(3, 5, 8))
    mask = np.arange(3).reshape(3, 1, 1, 1) > 0
    flow = watched(layer, lambda step: mg.mean(layer(x, mask=np.tile(mask, (1, 1, 5, 5))) ** 2))
    (masked,) = [row for row in flow.samples[0].rows.values() if "agreement" in row]
    A = np.stack([one / np.linalg.norm(one) for one in layer.attention_weights[1:].reshape(4, 25)])
    assert masked["agreement"] == pytest.approx((A[::2] * A[1::2]).sum(axis=-1).mean(), rel=1e-5)


def test_a_value_that_shares_memory_with_a_weight_has_the_figures_from_before_the_update():
    w = vector("w", 3.0, 4.0)
    flow = watched([w], lambda step: mg.sum(mg.reshape(w, (2, 1)).named("column") ** 2))
    assert flow.samples[0].rows["column"]["value"] == pytest.approx(np.sqrt(12.5))


@pytest.mark.parametrize(
    ("why", "use"),
    [
        ("unused", lambda v: 0.0),
        ("detached", lambda v: (v * 1.0).detach()),
        ("zero", lambda v: v * 0.0),
        ("not given", lambda v: v),
    ],
)
def test_why_a_parameter_does_not_learn(why, use):
    w, v = (vector(name, 1.0, 2.0) for name in "wv")
    optimizer = SGD([w] if why == "not given" else [w, v], lr=0.1)
    flow = watched([w, v], lambda step: mg.sum(w * w + use(v)), optimizer=optimizer)
    assert flow.samples[0].notes == {"v": why}


def test_frozen_and_uncleared_gradients_are_noted():
    w, v = vector("w", 1.0, 2.0), mg.tensor([1.0, 2.0], name="v")
    optimizer = SGD([w], lr=0.1)
    flow = watched({"w": w, "v": v}, lambda step: mg.sum(w * v), 2, optimizer, zero_grad=False)
    frozen = {"v": "frozen"}
    assert [sample.notes for sample in flow.samples] == [frozen, {"w": "stale"} | frozen]


def test_lines_are_readable_after_a_kill_and_hold_all_of_the_record(tmp_path):
    path, run = tmp_path / "flow.jsonl", Run()
    with mg.watch(run.model, every=2, path=path) as flow:
        run.train(7, flow)
        torn = path.read_text()[:-9]  # as it was before the end, its last line cut
    assert Flow.read(path).to_dict() == flow.to_dict()
    path.write_text(torn)
    half = Flow.read(path)
    assert [s.step for s in half.samples] == [0, 2, 4]
    assert [step for step, _ in half.logs("loss")] == list(range(6))
    assert "update/weight" in half.table(100)
    path.write_text("what is this?\nno flow\n")
    with pytest.raises(ArgumentError, match="line 1 is none of a flow's"):
        Flow.read(path)


def test_a_table_of_comma_separated_values_holds_every_figure(tmp_path):
    flow = Run().watch(5, every=2)
    flow.log(val_loss=float("nan"))
    with flow.csv(tmp_path / "flow.csv").open(encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    found = {(int(x["step"]), x["row"], x["figure"]): float(x["value"]) for x in lines}
    assert len(found) == len(lines)
    data, told = flow.to_dict(), {}
    for sample in data["samples"]:
        told |= {(sample["step"], "", "lr"): 0.1, (sample["step"], "", "began"): sample["loss"]}
        for path, row in sample["rows"].items():
            told |= {(sample["step"], path, name): x for name, x in row.items()}
    for entry in data["logged"]:
        told |= {(entry["step"], "", k): float(x) for k, x in entry.items() if k != "step"}
    np.testing.assert_equal(found, told)
    with pytest.raises(ArgumentError, match="csv"):
        flow.csv(tmp_path / "no" / "flow.csv")


def test_the_record_is_data_of_six_digits_even_with_nan(tmp_path):
    w, path = vector("w", 1.0), tmp_path / "nan.jsonl"
    flow = watched([w], lambda step: mg.sum(mg.log(w - 1.0)), 2, SGD([w], lr=1.0), path=path)
    assert "nan" in json.dumps(flow.to_dict(), allow_nan=False)
    assert Flow.read(path).to_dict() == flow.to_dict()
    (event,) = flow.events
    assert event["step"] == 0
    assert event["text"].startswith("forward of log at ")


def test_what_cannot_be_watched_is_refused():
    model = Run().model
    for refused, error, said in (
        ({"model": ["w"]}, DTypeError, "must be a Module, or Tensors in a list or a dict, got str"),
        ({"model": []}, ArgumentError, "the model has no parameters"),
        ({"model": type(model)}, DTypeError, "in a list or a dict, got type"),
        ({"model": model, "traces": -1}, ArgumentError, "traces must be a whole number from 0"),
        ({"model": model, "traces": "all"}, ArgumentError, "traces must be .* got 'all'"),
        ({"model": model, "every": 0}, ArgumentError, "every must be a whole number from 1, got 0"),
        (
            {"model": model, "reference": {}},
            ArgumentError,
            r"layers.0.W must be of .5, 7., is missing",
        ),
    ):
        with pytest.raises(error, match=said):
            mg.watch(**refused)
    with mg.watch(model) as flow, pytest.raises(ArgumentError, match="must be one number, got"):
        flow.log(loss=np.ones(2))


def test_a_step_that_needs_no_trace_is_measured_as_one_that_has_it():
    """With traces=0 all but the first three are heard alone; else 1, 2, 4, 8 … are traced too."""
    alone, traced = (Run().watch(20, every=1, traces=traces) for traces in (0, 3))
    assert [*traced.traces] == [0, 8, 16]  # the first and the latest are kept
    assert traced.traces[8]["layers.0/W"].gradient_rms == pytest.approx(
        traced.samples[8].rows["sequential/layers.0/W"]["gradient"]
    )
    for one, other in zip(alone.samples, traced.samples, strict=True):
        assert one.to_dict() == other.to_dict()
        assert {path: len(x) for path, x in one.entries.items()} == dict.fromkeys(other.entries, 2)


def test_a_step_unlike_those_before_it_and_a_nan_in_a_late_one_are_traced_after_all():
    w = vector("w", 2.0, 3.0)

    def loss(step):
        y = mg.tanh(w) if step == 5 else w * w
        with mg.scope("head"):
            return mg.sum(mg.log(y * 0.0 - 1.0) if step == 7 else y)

    flow = watched([w], loss, 9, traces=0)
    assert "tanh" in flow.samples[5].rows
    assert "tanh" not in flow.samples[6].rows
    assert (flow.events[0]["step"], flow.events[0]["path"]) == (7, "head/log")
