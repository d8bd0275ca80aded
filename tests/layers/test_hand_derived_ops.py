"""Runs of norms, cross-entropy, convolution and recurrent cells beside steps derived by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad.__main__ import main
from minigrad.views import checks_table
from minigrad.views.derivation import derivation_text
from tests.layers.kinds import call, drawn

C = 4
TARGETS = np.array([[0, 3, 2], [1, 1, 0]])
WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0])
MASK = np.arange(5) < np.array([[5], [2]])


def leaf(rng: np.random.Generator, *shape: int) -> mg.Tensor:
    return mg.tensor(rng.normal(size=shape), requires_grad=True)


def traced(run: Callable[[np.random.Generator], Any]) -> mg.Trace:
    """A record of a run, and of a backward from a random combination of what it gives."""
    rng = np.random.default_rng(7)
    with mg.trace() as t:
        out = run(rng)
        mg.sum(out * rng.normal(size=out.shape)).backward()
    return t


def of(layer: Any, *shape: int, **given: Any) -> Callable[[np.random.Generator], Any]:
    return lambda rng: layer(leaf(rng, *shape), **given)


def of_kind(name: str) -> Callable[[np.random.Generator], Any]:
    return lambda rng: call(*drawn(rng, name))


def evaluating(channels: int) -> layers.BatchNorm:
    norm = layers.BatchNorm(channels).eval()
    norm.running_var.assign_(np.linspace(0.5, 2, channels))
    return norm


def loss(*shape: int, axis: int = -1, targets: Any = TARGETS, **given: Any) -> Any:
    return lambda rng: layers.cross_entropy_loss(leaf(rng, *shape), targets, axis=axis, **given)


COVERED = {
    "layer_norm": (of(layers.LayerNorm(5), 2, 3, 5), 3),
    "layer_norm over two axes": (of(layers.LayerNorm((3, 5)), 2, 3, 5), 3),
    "layer_norm, no bias": (of(layers.LayerNorm(5, use_bias=False), 2, 5), 2),
    "layer_norm, plain": (of(layers.LayerNorm(5, use_weight=False, use_bias=False), 2, 5), 1),
    "rms_norm": (of(layers.RMSNorm(5), 2, 3, 5), 2),
    "batch_norm in training": (of(layers.BatchNorm(3), 4, 3, 5), 3),
    "batch_norm in evaluation": (of(evaluating(3), 4, 3, 5, 2), 3),
    "batch_norm, plain": (lambda rng: mg.batch_norm(leaf(rng, 4, 3), None, None), 1),
    "cross_entropy": (lambda rng: mg.cross_entropy(leaf(rng, 2, 3, C), TARGETS), 1),
    "loss, weights": (loss(2, 3, C, weight=WEIGHTS), 1),
    "loss, a class ignored": (loss(2, C, 3, axis=1, ignore_index=1), 1),
    "loss, all of it": (
        loss(2, 3, C, weight=WEIGHTS, ignore_index=1, label_smoothing=0.1, reduction="none"),
        1,
    ),
    "loss, distributions": (
        loss(2, C, targets=np.array([[0.5, 0.5, 0, 0], [0, 0, 0.25, 0.75]]), label_smoothing=0.1),
        1,
    ),
    "conv1d": (of(layers.Conv1d(4, 6, 3, 2, 1, 2, 2, rng=0), 2, 4, 8), 3),
    "conv2d": (of(layers.Conv2d(4, 6, (2, 3), (2, 1), (1, 2), (1, 2), 2, rng=0), 2, 4, 7, 8), 3),
    "conv2d, same": (of(layers.Conv2d(3, 5, (2, 3), padding="same", rng=0), 2, 3, 7, 8), 3),
    "conv2d, plain": (of(layers.Conv2d(3, 5, 3, use_bias=False, rng=0), 2, 3, 7, 8), 2),
    "rnn": (of(layers.RNN(3, 5, rng=0), 2, 4, 3), 4),
    "gru, both ways": (of(layers.GRU(3, 5, bidirectional=True, rng=0), 2, 4, 3), 10),
    "gru, no biases": (of(layers.GRU(3, 5, use_bias=False, rng=0), 2, 4, 3), 3),
    "dropped weights, evaluated": (
        of(layers.SelfAttention(5, 2, 3, dropout=0.5, rng=0).eval(), 2, 4, 5),
        17,
    ),
    "lstm, two layers": (of(layers.LSTM(3, 5, 2, rng=0), 2, 4, 3), 8),
}
BEYOND = {
    "soft-cap": "SoftCap",
    "scale of its own": "a scale of its own",
    "dropout": "DropWeights",
    "rotary": "Rotary",
    "T5": "T5Bias",
    "cross-attention": "a context",
}
OPS = {
    name: next(run for kind, (run, _) in COVERED.items() if kind.startswith(name))
    for name in mg.extend.hand_derived
}


@pytest.mark.parametrize("kind", COVERED)
def test_a_run_is_held_against_the_steps_derived_by_hand(kind: str) -> None:
    run, count = COVERED[kind]
    checks = traced(run).check()
    assert checks.ok
    assert len(checks.measured) == count
    assert not checks.uncovered


def test_the_last_states_of_an_lstm_are_held_against_them_too(rng) -> None:
    def run(rng: np.random.Generator) -> Any:
        H, states = layers.LSTM(3, 5, rng=0)(leaf(rng, 2, 4, 3), return_state=True)
        return mg.concatenate([mg.reshape(part, (-1,)) for part in (H, *states)])

    assert traced(run).check().ok


@pytest.mark.parametrize("cells", [layers.GRU, layers.LSTM])
def test_a_gate_that_is_closed_does_not_overflow(cells) -> None:
    layer = cells(3, 5, rng=0, dtype=np.float32)
    bias = layer.cells[0].bias_ih.numpy().copy()
    bias[:5] = -800  # of what is reset, or written
    layer.cells[0].bias_ih.assign_(bias)
    assert traced(of(layer, 2, 4, 3)).check().ok


def off(steps: Callable[..., Any]) -> Callable[..., Any]:
    """The same, of which the last gradient is wrong by 0.05 %."""

    @wraps(steps)
    def wrong(**given: Any) -> Any:
        *before, last = steps(**given)
        symbol = "x" if "x" in last.gradients else next(iter(last.gradients))
        gradients = last.gradients | {symbol: 1.0005 * last.gradients[symbol]}
        return [*before, replace(last, gradients=gradients)]

    return wrong


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_step_is_red_in_every_view(op: str, monkeypatch, tmp_path: Path, capsys) -> None:
    """`minigrad explain` of a run that has it ends with 1, and all that it writes says so."""
    monkeypatch.setitem(mg.extend.hand_derived, op, off(mg.extend.hand_derived[op]))
    monkeypatch.chdir(tmp_path)
    code = ["import numpy as np, minigrad as mg", f"from {__name__} import OPS", "def loss():"]
    code += [f"    out = OPS[{op!r}](np.random.default_rng(7))", "    return mg.sum(out * out)"]
    Path("run.py").write_text("\n".join(code), encoding="utf-8")
    assert main(["explain", "run.py:loss"]) == 1
    assert "differ from the hand-derived steps" in capsys.readouterr().out
    for file in ("derivation.md", "graph.svg", "explain.html"):
        said = Path("explained", file).read_text(encoding="utf-8")
        assert re.search("gradients differ from the (hand-derived steps|formulas derived by)", said)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (of(layers.LSTM(3, 5, rng=0), 2, 5, 3, mask=MASK), "lstm with mask"),
        (of(layers.GRU(3, 5, 2, rng=0), 2, 5, 3, mask=MASK), "gru with mask (2 times)"),
        *((of_kind(kind), f"MultiHeadAttention with {what}") for kind, what in BEYOND.items()),
    ],
)
def test_a_run_that_they_do_not_cover_says_so_and_is_not_ticked(run, said, tmp_path: Path) -> None:
    t = traced(run)
    checks = t.check()
    assert len(checks) == 0
    call = said.removesuffix(" (2 times)")
    assert f"they do not cover {said}" in " ".join(checks_table(checks).split())
    assert f"they do not cover `{call}`" in derivation_text(t)
    page = t.html(tmp_path / "g.html").read_text(encoding="utf-8")
    assert f'"uncovered":["{call}"]' in page


def test_other_uses_of_the_logits_are_not_taken_for_the_losss_own(rng) -> None:
    logits = leaf(rng, 2, 3, C)
    with mg.trace() as t:
        before = mg.sum(logits * logits)
        found = layers.cross_entropy_loss(logits, TARGETS, label_smoothing=0.1)
        (before + found + mg.sum(logits**3)).backward()
    assert t.check().ok
    assert len(t.check().measured) == 1


def test_a_check_goes_on_to_derivatives_where_the_steps_leave_out_a_parameter(rng) -> None:
    x, w = leaf(rng, 2, 5), leaf(rng, 5, C)
    with mg.trace() as t:
        mg.cross_entropy(mg.tanh(x @ w), np.array([0, 3])).backward()
    assert len(t.check()) == 1
    assert len(t.check().steps) == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layer", [layers.LayerNorm(3), layers.RMSNorm(3), layers.BatchNorm(5)])
def test_a_gradient_that_cancels_to_rounding_agrees(layer, dtype, rng) -> None:
    """The sum of squares of what is normalised hardly depends on what went in."""
    x = mg.tensor((300 * rng.normal(size=(2, 5, 3))).astype(dtype), requires_grad=True)
    with mg.trace() as t:
        mg.sum(layer.to(dtype)(x) ** 2).backward()
    assert t.check().ok


def test_float16_is_said_to_be_too_coarse_to_tell(rng) -> None:
    x = mg.tensor(rng.normal(size=(2, 3)).astype(np.float16), requires_grad=True)
    with mg.trace() as t:
        mg.sum(mg.rms_norm(x, None) * x).backward()
    assert t.check().measured == []
    assert "in a dtype too coarse to tell" in " ".join(str(t.check()).split())
