"""What `flow.diagnose()` must not say: each run is healthy, or healthy in what was said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from benchmarks.findings_models import GPT, Settings
from layers import Linear, MultiHeadAttention, lora
from minigrad.optim import SGD, Adam, LossScale
from minigrad.recording.diagnose import diagnose
from minigrad.watching import Flow

from .test_diagnose import run_of


def trained_gpt(scaled: bool, steps: int = 60, gain: float = 1.0) -> Flow:
    """A GPT whose loss is a sum of 256 terms, or multiplied by 4,096 for the backward."""
    rng, s = np.random.default_rng(0), Settings(gain=gain)
    net = GPT(s, rng)
    optimizer = Adam(net.parameters(), lr=1e-4)
    scaler = LossScale(optimizer) if scaled else None
    with mg.watch(net, every=4, traces=0) as flow:
        for _ in range(steps):
            x, y, _ = net.batch(rng)
            optimizer.zero_grad()
            loss = mg.cross_entropy(net(x), y)
            if scaler is not None:
                scaler.backward(loss)
                scaler.step()
            else:
                (loss * len(y)).backward()
                optimizer.step()
            flow.log(loss=loss)
    return flow


@pytest.mark.parametrize("scaled", [False, True])
def test_a_summed_or_scaled_loss_is_no_explosion(scaled: bool) -> None:
    flow = trained_gpt(scaled)
    assert "exploding" not in flow.diagnose().kinds
    if scaled:
        figures = next(x for path, x in flow.samples[0].rows.items() if path.endswith("W_Q"))
        assert figures["gradient"] < 1
        assert "clipped" not in figures
        assert flow.samples[0].loss == pytest.approx(flow.logs("loss")[0][1])


def test_a_step_that_loss_scale_skips_is_not_looked_at() -> None:
    w = mg.tensor(np.float16([1.0, 2.0]), requires_grad=True, name="w")
    scaler = LossScale(SGD([w], lr=1e-3), scale=2.0**15)
    with mg.watch([w], every=1) as flow, np.errstate(all="ignore"):
        for step in range(8):
            w.grad = None
            big = np.float16(100.0 if step == 0 else 1e-3)
            scaler.backward((w * w * big).sum())
            scaler.step()
    assert scaler.skipped > 0
    assert "not finite" not in flow.diagnose().kinds


def layers(rng: np.random.Generator) -> tuple[Linear, Linear]:
    return Linear(3, 4, rng=rng), Linear(4, 2, rng=rng)


def test_two_optimizers_on_one_model_are_both_heard(rng: np.random.Generator) -> None:
    a, b = layers(rng)
    optimizers = [SGD(a.parameters(), lr=0.1), Adam(b.parameters(), lr=1e-2)]
    before = b.W.numpy().copy()
    with mg.watch([*a.parameters(), *b.parameters()], every=1) as flow:
        for step in range(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
            mg.mean((b(mg.tanh(a(mg.tensor(rng.normal(size=(5, 3)))))) - 1) ** 2).backward()
            for optimizer in optimizers:
                optimizer.step()
            if step == 0:
                moved = float(np.sqrt(np.mean((b.W.numpy() - before) ** 2)))
    assert flow.steps == 4
    assert flow.diagnose() == []
    path = next(row.path for row in flow.rows.values() if row.shape == (4, 2) and row.is_matrix)
    assert flow.series(path, "update")[0] == (0, pytest.approx(moved))


@pytest.mark.parametrize("watched", ["both", "critic", "maker"])
def test_a_loop_of_two_models_has_no_stale_gradients(
    watched: str, rng: np.random.Generator
) -> None:
    maker = layers(rng)
    parts = {"maker": [p for x in maker for p in x.parameters()]}
    parts["critic"] = [
        p for x in (Linear(2, 5, rng=rng), Linear(5, 1, rng=rng)) for p in x.parameters()
    ]
    W, c, V, d = parts["critic"]
    optimizers = {name: SGD(part, lr=1e-2) for name, part in parts.items()}

    def judged(x: Any) -> Any:
        return mg.tanh(x @ W + c) @ V + d

    model = parts["maker"] + parts["critic"] if watched == "both" else parts[watched]
    with mg.watch(model, every=1) as flow:
        for _ in range(5):
            fake = maker[1](mg.relu(maker[0](mg.tensor(rng.normal(size=(7, 3))))))
            optimizers["critic"].zero_grad()
            real = mg.tensor(rng.normal(size=(7, 2)))
            (mg.mean((judged(real) - 1) ** 2) + mg.mean(judged(fake.detach()) ** 2)).backward()
            optimizers["critic"].step()
            optimizers["maker"].zero_grad()
            mg.mean((judged(fake) - 1) ** 2).backward()
            optimizers["maker"].step()
    assert flow.diagnose() == []


def test_frozen_parameters_and_adapters_are_meant(rng: np.random.Generator) -> None:
    layer = MultiHeadAttention(8, 2, rng=rng)
    lora(layer, 2, rng=0)
    layer.W_O.requires_grad = False
    optimizer = Adam([p for p in layer.parameters() if p.requires_grad], lr=1e-3)
    with mg.watch(layer, every=1) as flow:
        for _ in range(4):
            optimizer.zero_grad()
            mg.mean((layer(rng.normal(size=(3, 5, 8))) - 1) ** 2).backward()
            optimizer.step()
    assert "frozen" in flow.samples[0].notes.values()
    assert "no gradient" not in flow.diagnose().kinds


def test_an_accuracy_that_rises_is_no_divergence_and_a_loss_of_any_name_is_known() -> None:
    flow = run_of([])
    for step in range(40):
        flow.add("logged", {"step": step, "accuracy": 0.25 + step / 53})
    flow.steps = 40
    assert diagnose(flow) == []
    for sample in flow.samples:
        sample.loss = 1.0 + sample.step
    for step in range(40):
        flow.add("logged", {"step": step, "mse": 1.0 + step})
    assert diagnose(flow).kinds == ["diverging"]


def test_another_model_in_the_loop_has_no_rows(rng: np.random.Generator) -> None:
    mine, other = Linear(3, 2, rng=rng), Linear(3, 2, rng=rng)
    optimizers = [SGD(layer.parameters(), lr=0.1) for layer in (mine, other)]
    with mg.watch(mine, every=1) as flow, np.errstate(all="ignore"):
        for _ in range(3):
            for layer, optimizer, size in zip(
                (mine, other), optimizers, (1.0, np.nan), strict=True
            ):
                optimizer.zero_grad()
                with mg.scope("mine" if layer is mine else "other"):
                    out = mg.relu(layer(mg.tensor(rng.normal(size=(5, 3)) * size)))
                    mg.mean((out - 1) ** 2).backward()
                optimizer.step()
    assert all(path.startswith("mine/") for path in flow.rows)
    assert flow.events == []


def test_a_validation_loss_that_still_falls_is_no_overfitting() -> None:
    falling = np.geomspace(2.0, 0.1, 40)
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(0, 0.12, size=40)
        held_out = np.linspace(1.0, 0.8, 40) * np.exp(noise)
        assert diagnose(run_of(falling, val_loss=held_out)) == []


def test_an_oscillation_begins_where_the_loss_begins_to_swing() -> None:
    calm = np.linspace(1.0, 0.9, 60)
    wild = 0.9 + 0.5 * (-1.0) ** np.arange(60)
    (finding,) = diagnose(run_of([*calm, *wild], [{"cosine": -0.6, "ratio": 0.04}] * 6))
    assert finding.kind == "oscillating"
    assert 55 <= finding.step <= 65
