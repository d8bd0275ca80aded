"""Attention in production: figures of each request under no_grad, held against a baseline."""

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, MultiHeadAttention, create_causal_mask
from minigrad.errors import ArgumentError
from minigrad.recording.requests import DISTANCES, divergence, head_figures
from minigrad.watching import Flow


def served(model, requests, seed=0, every=1, **options):
    rng = np.random.default_rng(seed)
    with mg.watch(model, every=every, **options) as flow, mg.no_grad():
        for _ in range(requests):
            model(rng.integers(0, 11, (2, int(rng.integers(5, 9)))))
    return flow


@pytest.fixture
def model():
    return LanguageModel(11, 12, 3, 2, max_len=9, rng=0)


def test_each_request_has_a_row_for_each_head_and_keeps_no_array(model, tmp_path):
    flow = served(model, 5)
    assert [sample.step for sample in flow.requests] == [0, 1, 2, 3, 4]
    [first, *_] = flow.requests
    assert len(first.rows) == 2 * 3
    figures = next(iter(first.rows.values()))
    assert {"entropy", "sparsity", "scores", *DISTANCES} == figures.keys()
    assert all(isinstance(x, float) for x in figures.values())
    assert flow.samples == []
    assert flow.diagnose() == []
    assert Flow.read(flow.save(tmp_path / "flow.jsonl")).to_dict() == flow.to_dict()


def test_figures_are_those_of_the_weights():
    layer = MultiHeadAttention(12, 3, rng=0)
    X = np.random.default_rng(1).normal(size=(2, 7, 12))
    with mg.watch(layer, every=1) as flow, mg.no_grad():
        layer(X, mask=create_causal_mask(7))
    A = layer.attention_weights
    for head, figures in enumerate(flow.requests[0].rows.values()):
        own = A[:, head]
        entropy = -(own * np.log(np.where(own > 0, own, 1))).sum(-1).mean()
        assert figures["entropy"] == pytest.approx(entropy)
        assert figures["self"] == pytest.approx(np.trace(own, axis1=1, axis2=2).sum() / 14)
        assert figures["ahead 1"] == 0.0
        assert sum(figures[name] for name in DISTANCES) == pytest.approx(1.0)


def test_a_head_that_moved_is_named_with_when_and_by_how_much(model, tmp_path):
    served(model, 20).save(tmp_path / "baseline.jsonl")
    quiet = served(model, 20, seed=1, baseline=tmp_path / "baseline.jsonl")
    assert quiet.diagnose() == []
    rng = np.random.default_rng(2)
    with mg.watch(model, every=1, baseline=tmp_path / "baseline.jsonl") as flow, mg.no_grad():
        for request in range(20):
            if request == 12:  # head 2 of block 1 now looks at what is like itself, sharply
                attention = model.decoder.blocks[1].attention
                W_Q = attention.W_Q.numpy().copy()
                W_Q[:, 8:12] = attention.W_K.numpy()[:, 8:12] * 200
                attention.W_Q.assign_(W_Q)
            model(rng.integers(0, 11, (2, 7)))
    [finding] = flow.diagnose()
    assert finding.kind == "attention moved"
    assert finding.step == 12
    assert finding.path.endswith("blocks.1/attention[2]")
    assert "bits (Jensen–Shannon" in finding.text
    table = flow.table(120)
    assert "20 requests, 20 looked at" in table
    assert "from the baseline" in table
    [line] = [line for line in table.splitlines() if "blocks.1/attention[2]" in line]
    assert line.endswith(" bits")


def test_a_baseline_without_requests_is_refused(model):
    with pytest.raises(ArgumentError, match=r"watch\(baseline=\.\.\.\): it holds no requests"):
        mg.watch(model, baseline=Flow())


def test_every_tenth_request_alone_is_looked_at(model):
    assert [sample.step for sample in served(model, 21, every=10).requests] == [0, 10, 20]


def test_what_is_no_attention_has_no_figures():
    assert head_figures(np.array([[0.2, 0.2], [0.5, 0.5]])) is None
    assert head_figures(np.ones(3)) is None


def test_a_head_that_is_masked_whole_has_no_row():
    layer = MultiHeadAttention(12, 3, rng=0)
    mask = np.ones((1, 3, 7, 7), bool)
    mask[0, 1] = False
    with mg.watch(layer, every=1) as flow, mg.no_grad():
        layer(np.random.default_rng(1).normal(size=(2, 7, 12)), mask=mask)
    heads = [path[-3:] for path in flow.requests[0].rows]
    assert heads == ["[0]", "[2]"]


def test_divergence_is_symmetric_and_between_0_and_1():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.1, 0.2, 0.7])
    assert divergence(p, p) == 0.0
    assert divergence(p, q) == divergence(q, p)
    assert 0.0 < divergence(p, q) < 1.0
