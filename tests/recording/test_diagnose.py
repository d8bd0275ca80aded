"""What `flow.diagnose()` says of planted problems, and that it says nothing of healthy runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from benchmarks.findings import MODELS, PROBLEMS, train
from layers import Linear
from minigrad.optim import SGD, Adam
from minigrad.recording.diagnose import diagnose
from minigrad.recording.flow import FlowRecord, Row, Sample

QUICK = (
    "vanishing", "exploding", "dead units", "oscillating", "slow", "dead gelu", "wrong sign",
    "weight decay too large", "clipped to nothing", "schedule at 0", "weights all equal",
    "embedding rows unused", "deep without norms", "vanishing through time",
    "exploding through time", "labels constant", "sorted batches", "no causal mask",
    "dropout in evaluation", "evaluation mode in training", "no zero_grad", "detached branch",
    "unused branch", "branch under no_grad", "not in the optimizer",
)  # fmt: skip


@pytest.mark.parametrize(
    "problem",
    [pytest.param(p, marks=[] if p in QUICK else [pytest.mark.slow]) for p in PROBLEMS],
)
def test_a_planted_problem_is_named_as_the_one_cause(problem: str) -> None:
    """In all models, over many seeds: python -m benchmarks.findings."""
    kinds, models, settings = PROBLEMS[problem]
    found = train(models[0], settings, seed=0).diagnose()
    assert found.kinds[0] in kinds
    assert len(found.kinds) == 1


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_found_in_a_healthy_run(model: str) -> None:
    assert train(model, {}, seed=0).diagnose() == []


def test_what_follows_from_a_cause_stands_under_it_in_order() -> None:
    (found,) = train("MLP", PROBLEMS["exploding"][-1], seed=0).diagnose()
    assert found.kind == "exploding"
    assert "values grow by depth" in found.text
    assert "dead units" in {symptom.kind for symptom in found.symptoms}
    assert f"so also: {found.follows}" in str(found)
    two = {"branch": "unused", "lr": 1e-6}
    assert train("MLP", two, seed=0).diagnose().kinds == ["no gradient", "slow"]


def test_a_loss_that_backward_takes_with_a_minus_is_named() -> None:
    flow = run_of(NOISE)
    for sample in flow.samples:
        sample.loss = -float(NOISE[sample.step])
    assert "wrong sign" in diagnose(flow).kinds


def run_of(losses: Any, samples: list[dict[str, float]] | None = None, **logged: Any) -> FlowRecord:
    """A record of one weight, with a loss at each step."""
    flow = FlowRecord()
    flow.add("rows", Row("W", "weight", shape=(5, 7)))
    usual = {"value": 1.0, "gradient": 0.1, "ratio": 1e-3, "cosine": 0.3, "drift": 0.1}
    for i, own in enumerate(samples or [{}] * 6):
        flow.add("samples", Sample(i * 4, rows={"W": usual | own}))
    for i, loss in enumerate(losses):
        flow.add("logged", {"step": i, "loss": loss} | {n: x[i] for n, x in logged.items()})
    flow.steps = len(losses)
    return flow


FALLING = np.geomspace(2.0, 0.1, 40)
NOISE = np.random.default_rng(0).normal(1, 0.05, size=40)


@pytest.mark.parametrize(
    ("kind", "step", "words", "flow"),
    [
        ("plateau", 0, "began at 2 and ended at 2", run_of(np.full(40, 2.0))),
        ("diverging", 2, "ended at 9.19", run_of(np.linspace(1, 10, 40), [{"ratio": 0.05}] * 6)),
        ("slow", 0, "1,000 times", run_of(NOISE, [{"ratio": 1e-6, "drift": 1e-5}] * 6)),
        ("update ratio", 0, "0.3 of their size", run_of(NOISE, [{"ratio": 0.3}] * 6)),
        ("oscillating", 0, "-0.60", run_of(NOISE, [{"cosine": -0.6, "ratio": 0.04}] * 6)),
        ("exploding", 8, "rms is 1e+03", run_of(NOISE, [{}, {}, *[{"gradient": 1e3}] * 4])),
        (
            "overfitting",
            19,
            "val_loss was 0.5 at its best",
            run_of(FALLING, val_loss=0.5 + np.abs(np.arange(40) - 19) / 100),
        ),
    ],
)
def test_what_the_loss_shows_is_found_with_its_step(
    kind: str, step: int, words: str, flow: FlowRecord
) -> None:
    (finding,) = diagnose(flow)
    assert (finding.kind, finding.step) == (kind, step)
    assert words in str(finding)


@pytest.mark.parametrize(
    "flow",
    [
        run_of([]),
        run_of(FALLING),
        run_of(FALLING * NOISE),
        run_of([*FALLING, *[0.1] * 60]),  # converged
        run_of(FALLING, [{"gradient": 500.0}] * 6),  # of a sum over a large batch
        run_of(FALLING, val_loss=FALLING * 1.2),
        run_of(FALLING, [{"ratio": 0.0}] + [{"ratio": 0.4}] * 5),  # began as zeros
        run_of(FALLING * np.random.default_rng(1).uniform(0.3, 1.7, size=40)),  # batches of one
        run_of([0.1, *np.random.default_rng(2).exponential(size=40) * FALLING + 0.05]),
    ],
)
def test_nothing_is_found_where_the_loss_falls(flow: FlowRecord) -> None:
    assert diagnose(flow) == []
    assert str(diagnose(flow)) == "nothing found"


def test_noise_of_the_batches_is_no_divergence() -> None:
    for seed in range(50):
        losses = np.random.default_rng(seed).exponential(size=60) + 0.2
        assert set(diagnose(run_of(losses)).kinds) <= {"plateau"}


def test_the_first_nan_is_named_with_its_op_and_operands() -> None:
    w = mg.tensor([4.0, 1.0], requires_grad=True, name="w")
    optimizer = SGD([w], lr=0.5)
    with mg.watch([w], every=1) as flow, np.errstate(all="ignore"):
        for _ in range(6):
            optimizer.zero_grad()
            with mg.scope("head"):
                loss = mg.sum(mg.log(w))
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
    finding = flow.diagnose()[0]
    assert (finding.kind, finding.path) == ("not finite", "head/log")
    assert "log made it from finite operands" in finding.text
    assert finding.step == next(i for i, x in flow.logs("loss") if not np.isfinite(x))


def test_a_nan_between_the_steps_looked_at_has_its_step_and_a_remedy() -> None:
    w = mg.tensor([1.0], requires_grad=True, name="w")
    optimizer = SGD([w], lr=0.1)
    with mg.watch([w], every=5) as flow:
        for step in range(9):
            optimizer.zero_grad()
            mg.sum(w * (np.nan if step == 3 else 1.0)).backward()
            optimizer.step()
    finding = flow.diagnose()[0]
    assert (finding.kind, finding.step) == ("not finite", 3)
    assert "mg.anomaly() from step 2 on" in finding.remedy


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("learns", [False, True])
def test_what_ends_no_better_than_a_constant_guess_is_named(
    numbers: bool, learns: bool, rng: np.random.Generator
) -> None:
    """The loss falls a lot, from scores or an offset far off, and says nothing of the inputs."""
    layer = Linear(5, 1 if numbers else 3, rng=rng)
    layer.b.assign_(np.full(1, 9.0) if numbers else np.array([9.0, 0.0, -9.0]))
    optimizer = Adam(layer.parameters(), lr=0.5)
    with mg.watch(layer, every=4) as flow:
        for _ in range(120):
            x, noise = rng.normal(size=(64, 5)), rng.normal(size=(64, 5))
            from_inputs = x if learns else noise
            optimizer.zero_grad()
            out = layer(mg.tensor(x))
            if numbers:
                loss = mg.mean((out - 3 * from_inputs[:, :1]) ** 2)
            else:
                loss = mg.cross_entropy(out, from_inputs[:, :3].argmax(axis=1))
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
            optimizer.lr *= 0.95
    assert flow.samples[0].guess == pytest.approx(9.0 if numbers else np.log(3), rel=0.4)
    assert ("no better than guessing" in flow.diagnose().kinds) == (not learns)


def test_units_that_are_copies_of_each_other_are_found(rng: np.random.Generator) -> None:
    first, last = Linear(3, 4, rng=rng), Linear(4, 2, rng=rng)
    first.W, last.W = np.arange(3.0)[:, None] * np.ones((3, 4)), np.full((4, 2), 0.2)
    optimizer = SGD([*first.parameters(), *last.parameters()], lr=0.1)
    with mg.watch([*first.parameters(), *last.parameters()], every=1) as flow:
        for _ in range(4):
            optimizer.zero_grad()
            out = last(mg.tanh(first(mg.tensor(rng.normal(size=(5, 3))))))
            mg.mean((out - np.array([1.0, -1.0])) ** 2).backward()
            optimizer.step()
    (finding,) = flow.diagnose()
    assert (finding.kind, finding.path) == ("symmetric", "linear/W")


def test_the_gradient_of_a_keys_bias_is_no_problem(rng: np.random.Generator) -> None:
    """It is 0 in theory: softmax does not see what all keys share."""
    from layers import MultiHeadAttention

    layer = MultiHeadAttention(8, 2, use_bias=True, rng=rng)
    optimizer = SGD(layer.parameters(), lr=0.1)
    with mg.watch(layer, every=1) as flow:
        for _ in range(4):
            optimizer.zero_grad()
            mg.mean((layer(rng.normal(size=(3, 5, 8))) - 1) ** 2).backward()
            optimizer.step()
    assert flow.samples[0].notes == {"multi_head_attention/b_K": "cancels"}
    assert flow.diagnose() == []
