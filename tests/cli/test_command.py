"""The command: each number that it prints is the run's, and what cannot be is said in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from minigrad.engine.op import registry
from minigrad.errors import ArgumentError, GradientError

FILES = ["derivation.md", "explain.html", "graph.svg", "trace.json"]
CODE = """
import numpy as np
import minigrad as mg

def loss():
    w = mg.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True, name="w")
    return mg.mean((w @ w) ** 2.0).named("loss")

def inside():
    made = loss()
    made.backward()
    return made

def points():
    X = mg.tensor(np.random.default_rng(0).normal(size=(1, 5, 6)), requires_grad=True, name="X")
    A = mg.softmax(mg.scale(X @ X.mT, 0.3).named("S")).named("A")
    return (A[0, 3, 0] - A[0, 3, 1]).named("loss")

points.tokens = "the cat </b> it ran".split()

def fails(): return loss() + undefined
def refused(): return mg.dropout(loss(), 1.5, np.random.default_rng(0))
def number(): return 3.0
def constant(): return mg.mean(mg.tensor([1.0, 2.0]))
def nan(): return mg.log(mg.tensor(-1.0, requires_grad=True))
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(CODE, encoding="utf-8")


def record():
    return json.loads(Path("explained/trace.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- explain


@pytest.mark.parametrize("function", ["loss", "inside"])
def test_a_function_is_run_printed_and_written(function, command, model):
    ran = command("explain", f"model.py:{function}")
    w = np.array([[0.5, -1.0], [2.0, 0.25]])
    assert (ran.status, ran.err) == (0, "")
    assert f"loss = {np.mean((w @ w) ** 2):.4g}" in ran.words
    assert "backward steps agree with numeric derivatives" in ran.words
    assert sorted(path.name for path in Path("explained").iterdir()) == FILES
    assert len(ran.out.splitlines()) < 45


def test_the_attention_of_the_word_that_the_loss_depends_on_is_printed(command, model):
    ran = command("explain", "model.py:points")
    assert 'attention of "it"' in ran.words
    X = np.random.default_rng(0).normal(size=(5, 6))
    A = np.exp(0.3 * X @ X.T)
    A /= A.sum(axis=1, keepdims=True)
    for word, weight in zip("the cat </b> it ran".split(), A[3], strict=True):
        (row,) = (line for line in ran.out.splitlines() if line.startswith(f"{word} "))
        assert f"{weight:.2f}" in row
    assert record()["asked"] == 3
    assert "</b>" not in Path("explained/graph.svg").read_text(encoding="utf-8")


def test_a_layer_is_explained_and_every_gradient_agrees(command):
    ran = command("explain", "--text", "a b a")
    assert (ran.status, ran.err) == (0, "")
    assert "equal the hand-derived steps" in ran.words
    assert "✗" not in ran.out
    assert record()["checks"]["ok"]


def test_a_wrong_rule_turns_the_report_red(command, model, plant):
    plant("matmul", "a", lambda g: g * 1.001)
    ran = command("explain", "model.py:points")
    assert ran.status == 1
    assert "✗" in ran.out
    wrong = [entry for entry in record()["entries"] if entry["state"] == "wrong"]
    assert {entry["op"] for entry in wrong} == {"matmul"}


def test_a_loss_that_is_not_finite_is_no_success(command, model):
    with np.errstate(all="ignore"):
        ran = command("explain", "model.py:nan")
    assert ran.status == 1
    assert "NaN or infinity: log made it first" in ran.words


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("nothing to explain is named 'multihead'; it is FILE.py:FUNCTION", ["multihead"]),
        ("model.py has no function 'los'", ["model.py:los"]),
        ("there is no file none.py", ["none.py:loss"]),
        ("--text is for self-attention", ["model.py:loss", "--text", "a"]),
        ("--text: there is no word in ''", ["--text", ""]),
    ],
)
def test_what_cannot_be_is_one_line(said, arguments, command, model):
    ran = command("explain", *arguments)
    assert ran.status > 0
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert said in ran.err
    assert not Path("explained").exists()


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        ("fails", NameError, "name 'undefined' is not defined"),
        ("refused", ArgumentError, r"dropout\(x, p, rng\): p must lie in \[0, 1\]"),
        ("number", ArgumentError, "must return its loss, a Tensor with one entry; got float"),
        ("constant", GradientError, "nothing that the loss is computed from requires a gradient"),
    ],
)
def test_what_the_users_function_raises_is_raised(function, error, said, command, model):
    with pytest.raises(error, match=said):
        command("explain", f"model.py:{function}")


# ---------------------------------------------------------------- ops and check


def test_every_op_is_listed_with_its_formulas(command):
    ran = command("ops")
    assert ran.status == 0
    for op in registry:
        assert any(line.startswith(f"{op}(") for line in ran.out.splitlines())
    assert "∂L/∂x = g ⊙ (1 - out" in command("ops", "tanh").words
    assert "no op is named 'tanhh'" in command("ops", "tanhh").err


def test_ops_are_checked_and_a_wrong_rule_is_named(command, plant):
    assert command("check").words.endswith(f"all {len(registry)} agree")
    plant("tanh", "x", lambda g: g * 1.0005)
    ran = command("check", "tanh", "exp")
    assert ran.status == 1
    assert "1 of 2 disagree" in ran.words
    assert "DISAGREES" in ran.words


def test_help_and_the_version_are_printed(command):
    assert "explain" in command().out
    assert command("--version").out.startswith("minigrad ")
    assert command("explain", "--help").status == 0
