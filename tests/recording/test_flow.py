"""What `mg.watch` measures, when it looks, and what it leaves alone."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Module, MultiHeadAttention
from minigrad.errors import ArgumentError, DTypeError
from minigrad.optim import SGD, Adam, clip_grad_norm
from minigrad.recording.measures import cosine, heads, saturation
from minigrad.watching import Flow


class MLP(Module):
    def __init__(self, rng: np.random.Generator, widths: tuple[int, ...] = (5, 7, 3)) -> None:
        self.layers = [Linear(m, n, rng=rng) for m, n in pairwise(widths)]

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        for layer in self.layers[:-1]:
            x = mg.relu(layer(x))
        return self.layers[-1](x)


class Run:
    """A small training run, the same for the same seed."""

    def __init__(self, compiled: bool = False, lr: float = 0.1) -> None:
        self.rng = np.random.default_rng(0)
        self.model = MLP(self.rng)
        self.optimizer = SGD(self.model.parameters(), lr=lr)
        self.step = mg.compile(self._step) if compiled else self._step

    def _step(self, x: Any, y: Any) -> mg.Tensor:
        self.optimizer.zero_grad()
        loss = mg.cross_entropy(self.model(mg.tensor(x)), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, steps: int, flow: Any = None) -> list[float]:
        losses = []
        for _ in range(steps):
            x = self.rng.normal(size=(11, 5))
            loss = self.step(x, (x[:, 0] > 0).astype(int))
            losses.append(loss.item())
            if flow is not None:
                flow.log(loss=loss)
        return losses


def weights(model: Module) -> bytes:
    return b"".join(p.numpy().tobytes() for p in model.parameters())


@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.needs_fast("compile"))]
)
def test_watching_changes_no_bit_of_an_eager_run_and_counts_every_step(compiled: bool) -> None:
    """A compiled step that is looked at runs eagerly: there the weights agree to rounding."""
    alone, watched = Run(compiled), Run(compiled)
    alone.train(23)
    with mg.watch(watched.model, every=5) as flow:
        watched.train(23, flow)
    assert [s.step for s in flow.samples] == [0, 5, 10, 15, 20]
    assert flow.steps == 23
    assert [step for step, _ in flow.logs("loss")] == list(range(23))
    for one, other in zip(alone.model.parameters(), watched.model.parameters(), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    if not compiled:
        assert weights(alone.model) == weights(watched.model)


def test_figures_are_those_of_the_step_itself() -> None:
    run = Run()
    W, b = run.model.layers[0].W, run.model.layers[0].b
    before = W.numpy().copy()
    with mg.watch(run.model, every=1) as flow:
        run.train(1)
    row, moved = flow.samples[0].rows["mlp/layers.0/W"], W.numpy() - before

    def rms(x: Any) -> float:
        return float(np.sqrt(np.mean(np.square(x))))

    assert row["gradient"] == pytest.approx(rms(W.grad))
    assert row["value"] == pytest.approx(rms(before))
    assert row["update"] == pytest.approx(rms(moved))
    assert row["ratio"] == pytest.approx(rms(moved) / rms(before))
    assert flow.samples[0].rows["mlp/layers.0/b"]["gradient"] == pytest.approx(rms(b.grad))
    assert flow.rows["mlp/layers.0/W"].name == "layers.0.W"
    assert flow.samples[0].lr == 0.1


def test_rows_stand_in_the_order_of_the_forward_pass() -> None:
    run = Run()
    with mg.watch(run.model) as flow:
        run.train(1)
    assert [row.path.removeprefix("mlp/") for row in flow.rows.values()] == [
        "layers.0/W", "layers.0/b", "layers.0/linear", "relu",
        "layers.1/W", "layers.1/b", "layers.1/linear",
    ]  # fmt: skip


def test_nobody_listens_between_the_steps_that_are_looked_at() -> None:
    run, heard = Run(), []
    with mg.watch(run.model, every=3):
        for _ in range(6):
            with mg.scope("outer"):  # the step ends within: it reaches the surroundings too
                heard.append(len(mg.engine.context.current().listeners))
                run.train(1)
    assert [bool(x) for x in heard] == [True, False, False, True, False, False]
    assert mg.engine.context.current().listeners == ()


def test_updates_written_by_hand_end_a_step_when_something_is_logged() -> None:
    w = mg.tensor([3.0, -4.0], requires_grad=True, name="w")
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


def test_the_next_batch_says_how_far_gradients_point_one_way() -> None:
    assert cosine(np.array([3.0, 0.0]), np.array([0.0, 3.0])) == (0.0, 2.0)
    assert cosine(np.array([1.0, 2.0]), np.array([-1.0, -2.0]))[0] == -1.0
    w = mg.tensor([1.0, 1.0], requires_grad=True, name="w")
    optimizer = SGD([w], lr=0.0)
    with mg.watch([w], every=2) as flow:
        for side in (1.0, -1.0, 1.0, 1.0):
            optimizer.zero_grad()
            mg.sum(w * side).backward()
            optimizer.step()
    assert [x for _, x in flow.series("w", "cosine")] == [-1.0, 1.0]


def test_clipping_by_norm_is_measured() -> None:
    w = mg.tensor([3.0, 4.0], requires_grad=True, name="w")
    optimizer = SGD([w], lr=0.1)
    with mg.watch([w]) as flow:
        mg.sum(w * w).backward()
        clip_grad_norm([w], 2.5)
        optimizer.step()
    assert flow.samples[0].rows["w"]["clipped"] == pytest.approx(0.75)
    assert flow.samples[0].rows["w"]["gradient"] == pytest.approx(np.sqrt(50))


def test_a_dead_unit_is_0_for_the_whole_batch(rng: np.random.Generator) -> None:
    x = mg.tensor(rng.normal(size=(17, 4)), name="x")
    b = mg.tensor([-50.0, 0.0, 0.0, -50.0], requires_grad=True, name="b")
    optimizer = SGD([b], lr=0.0)
    with mg.watch([b]) as flow:
        mg.sum(mg.relu(x + b)).backward()
        optimizer.step()
    assert flow.samples[0].rows["relu"]["saturated"] == 0.5
    assert flow.rows["relu"].saturates == "units dead"
    assert "50% of units dead" in flow.table(140)


@pytest.mark.parametrize(
    ("name", "out", "settings", "share"),
    [
        ("relu", np.eye(3)[[0, 1] * 30], (), 1 / 3),
        ("relu", np.eye(3)[[0, 1] * 2], (), None),  # four entries a unit: too few to tell
        ("relu", np.ones((40, 3, 5, 5)) * [[[0.0]], [[1.0]], [[1.0]]], (), 1 / 3),  # a channel
        ("tanh", np.linspace(-1, 1, 8), (), 0.25),
        ("softmax", np.array([[1.0, 0.0], [0.5, 0.5], [0.995, 0.005]]), (-1,), 1 / 3),
    ],
)
def test_how_much_saturates_is_what_the_op_declares(
    name: str, out: Any, settings: Any, share: Any
) -> None:
    assert saturation(mg.registry[name], out, settings) == share


def test_a_unit_that_only_later_examples_wake_is_alive() -> None:
    out = np.ones((50, 2))
    out[:40, 0] = 0
    assert saturation(mg.registry["relu"], out, ()) == 0


def test_attention_of_equal_heads_agrees_and_uniform_rows_have_all_the_entropy() -> None:
    A = np.full((2, 3, 5, 5), 0.2)
    found = heads(A)
    assert found is not None
    np.testing.assert_allclose([found[k] for k in ("entropy", "agreement")], [1, 1], atol=1e-6)
    causal = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    assert heads(causal[None, None])["entropy"] == pytest.approx(1)  # type: ignore[index]
    assert heads(np.ones((4, 4))) is None


def test_attention_weights_have_figures(rng: np.random.Generator) -> None:
    layer = MultiHeadAttention(8, 2, use_bias=True, rng=rng)
    optimizer = Adam(layer.parameters())
    with mg.watch(layer) as flow:
        mg.mean(layer(rng.normal(size=(3, 5, 8))) ** 2).backward()
        optimizer.step()
    (row,) = [row for row in flow.samples[0].rows.values() if "entropy" in row]
    assert 0 < row["entropy"] <= 1
    assert 0 < row["agreement"] <= 1
    notes = {flow.rows[path].name: note for path, note in flow.samples[0].notes.items()}
    assert notes == {"b_K": "cancels"} or all("K" in name for name in notes)


@pytest.mark.parametrize(
    ("why", "use"),
    [
        ("unused", lambda v: 0.0),
        ("detached", lambda v: (v * 1.0).detach()),
        ("zero", lambda v: v * 0.0),
        ("not given", lambda v: v),
    ],
)
def test_why_a_parameter_does_not_learn(why: str, use: Any) -> None:
    w, v = (mg.tensor([1.0, 2.0], requires_grad=True, name=name) for name in "wv")
    optimizer = SGD([w] if why == "not given" else [w, v], lr=0.1)
    with mg.watch([w, v]) as flow:
        mg.sum(w * w + use(v)).backward()
        optimizer.step()
    assert flow.samples[0].notes == {"v": why}


def test_frozen_and_uncleared_gradients_are_noted() -> None:
    w = mg.tensor([1.0, 2.0], requires_grad=True, name="w")
    v = mg.tensor([1.0, 2.0], name="v")
    optimizer = SGD([w], lr=0.1)
    with mg.watch({"w": w, "v": v}, every=1) as flow:
        for _ in range(2):  # without zero_grad
            mg.sum(w * v).backward()
            optimizer.step()
    assert [sample.notes for sample in flow.samples] == [
        {"v": "frozen"},
        {"w": "stale", "v": "frozen"},
    ]


def test_lines_are_readable_after_a_kill_and_hold_all_of_the_record(tmp_path: Path) -> None:
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


def test_a_table_of_comma_separated_values_holds_every_figure(tmp_path: Path) -> None:
    run = Run()
    with mg.watch(run.model, every=2) as flow:
        run.train(5, flow)
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


def test_the_record_is_data_of_six_digits_even_with_nan(tmp_path: Path) -> None:
    w = mg.tensor([1.0], requires_grad=True, name="w")
    optimizer, path = SGD([w], lr=1.0), tmp_path / "nan.jsonl"
    with mg.watch([w], every=1, path=path) as flow, np.errstate(all="ignore"):
        for _ in range(2):
            mg.sum(mg.log(w - 1.0)).backward()
            optimizer.step()
            flow.log(loss=float("nan"))
    assert "nan" in json.dumps(flow.to_dict(), allow_nan=False)
    assert Flow.read(path).to_dict() == flow.to_dict()
    (event,) = flow.events
    assert event["step"] == 0
    assert event["text"].startswith("forward of log at ")


def test_a_few_whole_traces_are_kept_the_first_and_the_latest() -> None:
    run = Run()
    with mg.watch(run.model, every=1, traces=3) as flow:
        run.train(20)
    assert [*flow.traces] == [0, 8, 16]
    assert flow.traces[8]["mlp/layers.0/W"].gradient_rms == pytest.approx(
        flow.samples[8].rows["mlp/layers.0/W"]["gradient"]
    )


def test_what_cannot_be_watched_is_refused() -> None:
    model = MLP(np.random.default_rng(0))
    with pytest.raises(
        DTypeError, match="must be a Module, or Tensors in a list or a dict, got str"
    ):
        mg.watch(["w"])
    with pytest.raises(ArgumentError, match="the model has no parameters"):
        mg.watch([])
    with pytest.raises(ArgumentError, match="every must be a whole number from 1, got 0"):
        mg.watch(model, every=0)
    with pytest.raises(ArgumentError, match=r"layers.0.W must be of .5, 7., is missing"):
        mg.watch(model, reference={})
    with (
        mg.watch(model) as flow,
        pytest.raises(ArgumentError, match="must be one number, got"),
    ):
        flow.log(loss=np.ones(2))


def test_a_step_that_needs_no_trace_is_measured_as_one_that_has_it() -> None:
    """With traces=0 all but the first three are heard alone; else 1, 2, 4, 8 … are traced too."""
    flows = []
    for traces in (0, 3):
        run = Run()
        with mg.watch(run.model, every=1, traces=traces) as flow:
            run.train(9, flow)
        flows.append(flow)
    alone, traced = flows
    assert [*traced.traces] == [0, 4, 8]
    for one, other in zip(alone.samples, traced.samples, strict=True):
        assert one.to_dict() == other.to_dict()
        assert {path: len(x) for path, x in one.entries.items()} == dict.fromkeys(other.entries, 2)


def test_a_step_unlike_those_before_it_and_a_nan_in_a_late_one_are_traced_after_all() -> None:
    w = mg.tensor([2.0, 3.0], requires_grad=True, name="w")
    optimizer = SGD([w], lr=0.1)
    with mg.watch([w], every=1, traces=0) as flow, np.errstate(all="ignore"):
        for step in range(9):
            optimizer.zero_grad()
            y = mg.tanh(w) if step == 5 else w * w
            with mg.scope("head"):
                mg.sum(mg.log(y * 0.0 - 1.0) if step == 7 else y).backward()
            optimizer.step()
    assert "tanh" in flow.samples[5].rows
    assert "tanh" not in flow.samples[6].rows
    assert (flow.events[0]["step"], flow.events[0]["path"]) == (7, "head/log")
