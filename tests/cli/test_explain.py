"""`minigrad explain`: each number it prints, recomputed in NumPy from the seed alone."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from minigrad.cli.report import FILES
from minigrad.cli.sentence import tokenize
from minigrad.errors import GradientError
from tests.process import python

SENTENCE = "The animal didn't cross the street because it was too tired"


@pytest.fixture
def explained(command):
    """Run `explain` and read the record it wrote."""

    def run(*arguments, **settings):
        ran = command("explain", *arguments, **settings)
        return ran, json.loads(Path("explained/trace.json").read_text(encoding="utf-8"))

    return run


def by_hand(tokens, *, d_model, heads, causal, seed, dtype="float64"):
    """Loss and weights of multi-head attention without biases, in plain NumPy."""
    words = [token.lower() for token in tokens]
    vocabulary = sorted(set(words))
    ids = [vocabulary.index(word) for word in words]
    rng = np.random.default_rng(seed)
    E = rng.normal(size=(len(vocabulary), d_model)).astype(dtype)
    spread = math.sqrt(2 / (d_model + d_model))
    W = [rng.normal(0, spread, (d_model, d_model)).astype(dtype) for _ in range(4)]
    X, n, d = E[ids], len(ids), d_model // heads
    out, weights = np.zeros((n, 0), dtype), []
    for h in range(heads):
        Q, K, V = (X @ w[:, h * d : (h + 1) * d] for w in W[:3])
        S = Q @ K.T / math.sqrt(d)
        S = np.where(np.tri(n, dtype=bool), S, -np.inf) if causal else S
        A = np.exp(S - S.max(axis=1, keepdims=True))
        A /= A.sum(axis=1, keepdims=True)
        weights.append(A)
        out = np.hstack([out, A @ V])
    logits = out @ W[3] @ E.T
    if causal:
        logits, ids = logits[:-1], ids[1:]
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    return -np.mean(np.log(P[np.arange(len(ids)), ids])), np.array(weights)


# ---------------------------------------------------------------- tokens


def test_a_word_has_its_apostrophes_accents_and_capitals_and_the_vocabulary_no_capitals(explained):
    ran, record = explained("--text", "The na\u0069\u0308ve the 'well-known' didn't;")
    tokens = ["The", "na\u00efve", "the", "'", "well-known", "'", "didn't", ";"]
    assert record["explain"]["tokens"] == tokens
    assert record["explain"]["vocabulary"] == sorted({token.lower() for token in tokens})
    assert "8 tokens (6 different)" in ran.words


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("causal", [True, False])
def test_loss_and_weights_are_those_computed_by_hand(explained, causal):
    flags = ["--causal"] if causal else []
    ran, record = explained("multi-head", "--heads", 3, "--d-model", 15, "--seed", 5, *flags)
    loss, weights = by_hand(tokenize(SENTENCE), d_model=15, heads=3, causal=causal, seed=5)
    assert ran.status == 0
    np.testing.assert_allclose(record["explain"]["loss"], loss, rtol=1e-12)
    [found] = record["explain"]["attention"]["weights"].values()
    np.testing.assert_allclose(found, [weights], atol=1e-13)
    assert f"loss {loss:.6g}" in ran.words


@pytest.mark.parametrize(
    ("layer", "flags"),
    [
        ("multi-head", []),
        ("multi-head", ["--bias", "--causal"]),
        ("self-attention", ["--causal"]),
        ("self-attention", ["--no-bias"]),
    ],
)
def test_every_gradient_of_every_step_is_measured_and_agrees(explained, layer, flags):
    ran, record = explained(layer, *flags)
    assert ran.status == 0
    assert ran.err == ""
    assert "✗" not in ran.out
    checks = record["checks"]
    assert {check["number"] for check in checks} == set(range(1, 8 if layer == "multi-head" else 7))
    assert all(check["ok"] for check in checks)
    worst = max(check["relative_difference"] for check in checks)
    said = f"{len(checks)} gradients equal the hand-derived steps, largest difference {worst:.1e}"
    assert ran.words.count(said) == 1
    assert ran.words.count("backward steps agree with numeric derivatives") == 1


def test_single_precision_stays_single_and_agrees_to_it(explained):
    ran, record = explained("--dtype", "float32")
    assert ran.status == 0
    kinds = {node["dtype"] for node in record["nodes"]} - {"int64"}
    assert kinds == {"float32"}
    assert 1e-9 < max(check["relative_difference"] for check in record["checks"]) < 1e-5


# ---------------------------------------------------------------- a wrong rule


def test_a_wrong_rule_turns_its_step_red_and_the_status_to_1(explained, plant):
    plant("softmax", "x", lambda gradient: gradient * 1.0005)
    ran, record = explained("multi-head", "--causal")
    assert ran.status == 1
    rows = [line for line in ran.out.splitlines() if line.rstrip().endswith(("✓", "✗"))]
    marks = {line.split()[-5]: line.rstrip()[-1] for line in rows}
    assert marks["A"] == "✓"
    assert marks["S_masked"] == marks["Q"] == marks["W_K"] == marks["X"] == "✗"
    said = "differ from the hand-derived steps, first in step 4, softmax: that of S_masked"
    assert said in ran.words
    assert any(check["ok"] is False for check in record["checks"])
    assert "✗" in Path("explained/derivation.md").read_text(encoding="utf-8")
    assert '"ok":false' in Path("explained/explain.html").read_text(encoding="utf-8")


def test_a_rule_that_raises_is_one_line_and_leaves_nothing(refused, plant):
    def broken(gradient):
        raise GradientError("no such thing")

    plant("softmax", "x", broken)
    refused("no such thing", "explain", status=1)


# ---------------------------------------------------------------- the same again


def test_the_record_and_the_text_are_the_same_in_every_process(tmp_path):
    seen = set()
    for seed in ("0", "1"):
        folder = tmp_path / seed
        folder.mkdir()
        asked = ("-m", "minigrad", "explain", "--causal", "--out", "here")
        ran = python(*asked, cwd=folder, PYTHONHASHSEED=seed)
        files = [folder / "here" / name for name in FILES]
        seen.add((ran.stdout, *(file.read_bytes() for file in files)))
    assert len(seen) == 1
