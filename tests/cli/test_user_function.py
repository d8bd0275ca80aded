"""`minigrad explain FILE.py:FUNCTION`: a user's own function, shown as the two layers are."""

import json
import os
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import minigrad as mg
from layers import Encoder, SelfAttention
from minigrad.cli.attention_report import attention_report
from minigrad.errors import ArgumentError
from minigrad.views.attention import gradient_times_attention
from minigrad.views.terminal import cells
from tests.process import python

FOUR = ["derivation.md", "explain.html", "graph.svg", "trace.json"]
START = """from __future__ import annotations
import os
from dataclasses import dataclass
import numpy as np
import minigrad as mg
from layers import MultiHeadAttention, SelfAttention, in_tiles

"""
LOSS = """
def loss():
    weights = mg.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True, name="my_weights")
    rows = mg.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], name="my_rows")
    return mg.mean((rows @ weights) ** 2).named("my_loss")
"""
ATTENDS = """
def attends(backward=False):
    rng = np.random.default_rng(0)
    X = mg.tensor(rng.normal(size=(1, 5, 6)), requires_grad=True, name="X")
    found = mg.mean(SelfAttention(6, 3, 2, rng=rng)(X) ** 2)
    if backward:
        found.backward()
    return found

def attends_backward():
    return attends(backward=True)
"""
POINTS = """
def points():
    X = mg.tensor(np.random.default_rng(0).normal(size=(1, 5, 6)), requires_grad=True, name="X")
    S = mg.scale(X @ X.mT, 0.3).named("S")
    A = mg.softmax(S).named("A")
    return (A[0, 3, 0] - A[0, 3, 1]).named("loss")

points.tokens = "the cat </b> it ran".split()

def short(): return points()
short.tokens = ["one"]
def odd(): return points()
odd.tokens = "the cat sat it ran"
"""


@pytest.fixture
def own(command, tmp_path):
    """Write a file of this code below the imports, and explain its function of this name."""

    def run(code, function="loss", *arguments, file="model.py", **settings):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(START + dedent(code), encoding="utf-8")
        return command("explain", f"{file}:{function}", *arguments, **settings)

    return run


def written(name):
    return Path("explained", name).read_text(encoding="utf-8")


def record():
    return json.loads(written("trace.json"))


def node(name):
    [found] = [node for node in record()["nodes"] if node["name"] == name]
    return found


# ---------------------------------------------------------------- what it shows


def test_loss_gradient_names_and_lines_are_the_users_and_no_hand_derived_step_is_ticked(own):
    ran = own(LOSS, file="my-models/a-model.py")
    W, X = np.array([[0.5, -1.0], [2.0, 0.25]]), np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
    loss, gradient = np.mean((X @ W) ** 2), X.T @ (2 * X @ W / 6)
    assert (ran.status, ran.err) == (0, "")
    steps = "3 steps forward, 3 backward; 1 leaf with a gradient"
    assert f"my-models/a-model.py:loss: loss {loss:.6g}; {steps}" in ran.out
    assert node("my_weights")["gradient"]["rms"] == pytest.approx(np.sqrt(np.mean(gradient**2)))
    known = {"function": "my-models/a-model.py:loss", "loss": pytest.approx(loss)}
    assert record()["explain"] == known | {"backward_inside": False}
    assert sorted(os.listdir("explained")) == FOUR
    for name in FOUR:
        assert f"wrote explained/{name}" in ran.out
        assert "my" in written(name)
        assert "weights" in written(name)
        assert name == "derivation.md" or "my-models/a-model.py:12" in written(name), name
    assert "nothing declared by what ran, so no gradient was checked" in ran.out
    assert "engine against" not in ran.out
    assert record()["checks"] == []
    assert "hand-derived formulas" not in written("derivation.md")
    assert written("derivation.md").count("✓") == 1  # every step against a numeric derivative


def test_layers_that_declared_steps_are_checked_and_their_attention_shown(own):
    ran = own(ATTENDS, "attends", width=80)
    assert ran.status == 0
    heading = "engine against hand-derived steps"
    for said in (heading, "17 gradients equal", "self_attention/A, head 0"):
        assert said in ran.out
    assert max(map(cells, ran.out.splitlines())) <= 80


def test_words_name_the_positions_and_the_query_that_the_loss_depends_on_comes_first(own):
    ran = own(POINTS, "points")
    assert ran.status == 0
    first, rest = ran.out.split("heads\n", 1)
    assert 'on "the cat </b> it ran"' in " ".join(first.split())
    assert 'attention of "it", through which the loss depends' in first
    assert "forward: " in rest
    map_of_weights = [line.split()[:1] for line in rest.splitlines()]
    assert all([word] in map_of_weights for word in ["the", "cat", "</b>", "it", "ran"])
    rows = [line.split() for line in first.split("looks at")[1].splitlines()]
    attention = record()["explain"]["attention"]
    weights = np.array(attention["weights"]["A"])[0, 0]
    assert attention["query"] == 3
    for k, word in enumerate(["the", "cat", "</b>", "it", "ran"]):
        [row] = [row for row in rows if row[:1] == [word]]
        assert float(row[1]) == pytest.approx(weights[3, k], abs=0.0051)
    lowers = attention["by_key"]["lowers the loss"]  # gradient × attention
    np.testing.assert_allclose(lowers, [0, weights[3, 1], 0, 0, 0], atol=1e-12)
    assert "the cat &lt;/b&gt; it ran" in written("graph.svg")
    assert '"tokens":[["the","cat","' in written("explain.html")
    assert '"title":"model.py:points: the cat ' in written("explain.html")


def test_what_lowers_the_loss_is_added_up_over_the_layers(rng):
    X = mg.tensor(rng.normal(size=(1, 5, 6)), requires_grad=True)
    with mg.trace() as t:
        mg.mean(Encoder(2, 6, 1, rng=0)(X) ** 2).backward()
    report = attention_report(t, None, "encoder")
    first, second = (gradient_times_attention(x.A, -x.dA) for x in report.found)
    lowers = report.columns()["lowers the loss"]  # the mean over all queries
    np.testing.assert_allclose(lowers, (first + second).mean(axis=0))


def test_layers_of_one_class_and_calls_of_one_layer_are_told_apart(rng):
    first, second = (SelfAttention(5, 3, 2, rng=rng) for _ in range(2))
    with mg.trace() as t:
        mg.mean(second(first(first(rng.normal(size=(1, 7, 5))))) ** 2).backward()
    data = attention_report(t, None, "three").to_dict()
    paths = ["self_attention/A", "self_attention/A, call 2", "self_attention (2)/A"]
    assert [*data["weights"]] == paths
    names = ["self_attention", "self_attention, call 2", "self_attention (2)"]
    assert [*data["by_key"]][:3] == names


def test_attention_between_texts_of_other_lengths_is_shown_head_by_head(own):
    """No key can be followed across layers then."""
    code = """
        def crosses():
            rng = np.random.default_rng(0)
            X, Y = (mg.tensor(rng.normal(size=(1, n, 4)), requires_grad=True) for n in (3, 5))
            return mg.sum(MultiHeadAttention(4, 2, rng=0)(X, context=Y))
        """
    ran = own(code, "crosses")
    assert ran.status == 0
    assert "\nheads\n" in ran.out
    assert record()["explain"]["attention"]["by_key"] == {}


def test_attention_that_is_not_seen_says_why(own):
    code = """
        def tiled():
            X = mg.tensor(np.random.default_rng(0).normal(size=(1, 3, 4)), requires_grad=True)
            return mg.sum(MultiHeadAttention(4, 2, attend=in_tiles, rng=0)(X))
        tiled.tokens = ["a", "b", "c"]
        """
    ran = own(code, "tiled")
    assert ran.status == 0
    assert "none is seen in this run: attention in tiles has no scores" in ran.out


def test_a_file_named_layers_breaks_neither_the_command_nor_the_users_import(tmp_path):
    (tmp_path / "layers.py").write_text("depth = 3\n", encoding="utf-8")
    code = "import minigrad as mg, layers\nfrom minigrad.layers import Linear\ndef loss():\n"
    code += "    return mg.sum(Linear(2, layers.depth, rng=0)(mg.tensor([[1.0, 2.0]])))\n"
    (tmp_path / "own.py").write_text(code, encoding="utf-8")
    for what in ("own.py:loss", "self-attention"):
        ran = python("-m", "minigrad", "explain", what, cwd=tmp_path)
        assert "backward steps agree with numeric derivatives" in ran.stdout


def test_backward_that_ran_inside_does_not_run_again(own):
    assert "run inside it" not in own(ATTENDS, "attends").out
    gradients = [n["gradient"] for n in record()["nodes"]]
    again = own(ATTENDS, "attends_backward")
    assert again.status == 0
    assert "run inside it" in again.out
    assert [n["gradient"] for n in record()["nodes"]] == gradients
    assert record()["explain"]["backward_inside"]


def test_a_stack_of_blocks_may_return_a_copy_of_the_loss_that_ran_backward(own):
    code = """
        from layers import LanguageModel

        def loss():
            ids = np.arange(5)[None]
            found = mg.cross_entropy(LanguageModel(11, 12, 2, 2, max_len=9, rng=0)(ids), ids)
            found.backward()
            return mg.tensor(found.item())
    """
    assert "run inside it" in own(code).out


def test_a_gradient_taken_inside_does_not_stand_for_that_of_the_loss(own):
    ran = own("""
        def penalty():
            x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
            slope = mg.grad(mg.sum(x ** 3), x, create_graph=True)
            return mg.sum(slope * slope).named("penalty")
        """, "penalty")  # fmt: skip
    assert "run inside it" not in ran.out
    assert node("penalty")["gradient"]["rms"] == 1.0


def test_a_loss_that_is_not_finite_is_no_success(own):
    ran = own("def loss():\n    return mg.sum(mg.tensor([np.inf], requires_grad=True))")
    assert (ran.status, "the loss is inf" in ran.out) == (1, True)


def test_json_is_all_of_stdout_whatever_the_function_prints(own):
    ran = own("def loud():\n    print('noise')\n    return loss()\n" + LOSS, "loud", "--json")
    assert (ran.status, ran.err) == (0, "noise\n")
    assert ran.out == written("trace.json")
    assert json.loads(ran.out)["explain"]["function"] == "model.py:loud"


def test_hostile_names_stay_text(own):
    name = "</script><script>alert(1)</script> \x1b[31m\u202e ]]> |"
    ran = own(f"""
        def loss():
            x = mg.tensor([1.0, 2.0], requires_grad=True, name={name!r})
            with mg.scope({name!r}):
                return mg.sum(x * x).named({name!r})
        """, file="a b\x1b[31m<b>.py")  # fmt: skip
    assert ran.status == 0
    assert not {"\x1b", "\u202e"} & set(ran.out)
    for file in FOUR:
        assert "\x1b" not in written(file), file
        assert file not in ("explain.html", "graph.svg") or "<script>alert" not in written(file)


# ---------------------------------------------------------------- where it comes from


def test_its_folder_is_on_the_path_while_it_runs_and_gone_after(own, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "beside_it.py").write_text("FACTOR = 3.0\n", encoding="utf-8")
    before, folder = list(sys.path), os.getcwd()
    ran = own("""
        @dataclass
        class Sizes:
            n: int = 1
        def loss():
            from beside_it import FACTOR
            assert __name__ != "__main__"
            os.chdir("/")
            return mg.sum(mg.tensor(np.ones(Sizes().n), requires_grad=True) * FACTOR)
        """, file="deep/model.py")  # fmt: skip
    sys.modules.pop("beside_it", None)
    assert ran.status == 0, ran.err
    assert "loss 3;" in ran.out
    assert (sys.path, os.getcwd()) == (before, folder)
    assert "__explained__" not in sys.modules


def test_a_function_of_a_module_is_found_from_here(own, command):
    own(LOSS, file="package_of_mine/some_module.py")
    ran = command("explain", "package_of_mine.some_module:loss")
    sys.modules.pop("package_of_mine.some_module")
    sys.modules.pop("package_of_mine")
    assert "package_of_mine.some_module:loss: loss" in ran.out


# ---------------------------------------------------------------- what cannot be

MANY = (
    LOSS
    + POINTS
    + """
def needs(a, b, c=1, *rest, **more): ...
def keyword(*, c): ...
def matrix(): return mg.tensor(np.ones((2, 2)), requires_grad=True) * 2.0
def nothing(): matrix()
def array(): return np.float64(3)
async def later(): ...
def frozen(): return mg.sum(mg.tensor([1.0, 2.0]) * 2.0)
def hidden():
    with mg.no_grad():
        return loss()
def leaf(): return mg.tensor(1.0, requires_grad=True)
made = mg.sum(mg.tensor([1.0], requires_grad=True) * 2.0)
def before(): return made
"""
)
FROZEN = "returned has no gradient: nothing it was computed from has requires_grad=True"
UNSEEN = "returned has no gradient: no op computed it while the function ran"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("los", "model.py has no function 'los', did you mean loss?"),
        ("qqqqq", "model.py has no function 'qqqqq', it has loss, points, short, odd, needs, keyw"),
        ("np", "model.py has no function 'np'"),
        ("needs", "model.py:needs needs arguments a, b; explain calls it without any"),
        ("keyword", "model.py:keyword needs argument c; explain calls it without any"),
        ("matrix", "model.py:matrix returned a Tensor of shape (2, 2); a loss has one entry"),
        ("nothing", "model.py:nothing returned nothing; a loss is needed: a Tensor of one entry"),
        ("array", "model.py:array returned a float64; a loss is needed"),
        ("later", "model.py:later returned a coroutine; a loss is needed"),
        ("frozen", FROZEN),
        ("hidden", FROZEN),
        ("leaf", UNSEEN),
        ("before", UNSEEN),
        ("short", "model.py:short names 1 tokens, but its attention is over 5"),
        ("odd", "model.py:odd.tokens must be a list of words"),
    ],
)
def test_what_gives_no_loss_or_misnames_tokens_is_one_line_and_status_2(
    refused, tmp_path, function, said
):
    (tmp_path / "model.py").write_text(START + MANY, encoding="utf-8")
    refused(said, "explain", f"model.py:{function}")


def test_a_folder_is_no_file_and_a_file_may_have_no_function(refused, tmp_path):
    (tmp_path / "models.py").mkdir()
    (tmp_path / "model.py").write_text("x = 3\n")
    refused("models.py is a folder; a .py file is needed", "explain", "models.py:f")
    refused("model.py has no function 'loss', it has none", "explain", "model.py:loss")


MUTE = """
class Mute(Exception):
    def __str__(self): raise ValueError
def loss(): raise Mute
"""
SHAPES = """
def inner(x):
    return x @ np.ones((7, 2))
def loss():
    return inner(mg.tensor(np.ones((3, 5)), requires_grad=True))
"""
RULE = "matmul(a, b): a's last axis must equal b's second-to-last, got 5 != 7"


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("def loss(: pass", "raised SyntaxError: invalid syntax (model.py, line 8)"),
        ("raise ValueError('while loading')", "raised ValueError: while loading"),
        ("import no_such_module_at_all", "raised ModuleNotFoundError: No module named"),
        ("def loss(): raise SystemExit(2)", "raised SystemExit: 2"),
        ("def loss(): raise MemoryError", "raised MemoryError"),
        ("def loss(): raise mg.errors.ArgumentError('mine')", "raised ArgumentError: mine"),
        ("def loss(): return loss()", "raised RecursionError: maximum recursion depth"),
        (MUTE, "model.py:loss raised Mute"),
        (SHAPES, f"minigrad: error: model.py:loss raised ShapeError: {RULE}"),
    ],
    ids=["syntax", "loading", "import", "exit", "memory", "ours", "recursion", "mute", "shapes"],
)
def test_whatever_is_raised_is_told_with_the_users_frames_alone_and_status_1(own, code, last):
    ran = own(code)
    assert (ran.status, ran.out) == (1, "")
    *lines, end = ran.err.splitlines()
    assert last in end
    files = {Path(line.split('"')[1]).name for line in lines if line.startswith("  File")}
    assert files == {"model.py"}
    if code is SHAPES:
        assert lines[0] == "Traceback (most recent call last):"
        assert "return inner(mg.tensor" in ran.err
    assert not Path("explained").exists()


def test_an_exception_in_a_rule_is_told_without_frames_of_the_engine(own, plant):
    plant("mean", "x", lambda gradient: 1 / 0)
    ran = own(LOSS)
    assert ran.status == 1
    assert "tensor.py" not in ran.err
    assert "<string>" not in ran.err  # what the engine generates
    assert ran.err.splitlines()[-1].endswith("raised ZeroDivisionError: division by zero")


def test_an_interrupt_and_a_refusal_of_the_views_are_not_taken_for_the_users(own, monkeypatch):
    def refuses(*_, **__):
        raise ArgumentError("the page is torn")

    assert own("def loss(): raise KeyboardInterrupt").status == 130
    monkeypatch.setattr("minigrad.cli.report.write_page", refuses)
    assert own(LOSS).err == "minigrad: error: the page is torn\n"
