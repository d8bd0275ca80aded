"""An op declared in a user's file shows its formula, cost, words and checks in every view."""

import json
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.recording import checks
from minigrad.recording.checks import CheckKind, CheckResult
from minigrad.views.derivation import derivation_text
from minigrad.views.page import page_html
from minigrad.views.table import checks_table


@pytest.fixture(autouse=True)
def no_op_is_left():
    known = {*mg.registry}
    yield
    for name in {*mg.registry} - known:
        del mg.registry[name]


def page(trace):
    found = re.search(r'id="record">(.*?)</script>', page_html(trace), re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def drawn(trace, tmp_path, **options):
    return trace.draw(tmp_path / "g.dot", **options).read_text(encoding="utf-8")


# ---------------------------------------------------------------- formulas and cost of the call


def weighted(x, axis):
    letters = "ijkl"[: x.ndim]
    return rf"\sum_{{{letters[axis]}}} <factor>\, <x>_{{{','.join(letters)}}}^2"


@pytest.fixture
def squares():
    """factor · Σ x² along an axis: y = f Σ_i x_i²."""

    @mg.op(
        tex=weighted,
        vjp_tex={"x": lambda x, axis: rf"n\, <factor>\, <x> \odot <g>, \quad n = {x.shape[axis]}"},
        flops=lambda x: 3 * x.size,
        samples=lambda rng: [mg.call(rng.normal(size=(2, 3)), 0)],
    )
    def square_sum(x, axis, factor=1.0):
        """Weighted squares along an axis, added."""
        return factor * (x * x).sum(axis)

    @square_sum.vjp("x")
    def _(g, x, axis, factor):
        return 2 * factor * x * mg.expand_dims(g, axis)

    return square_sum


def test_formulas_and_cost_that_depend_on_the_call_are_in_every_view(squares, rng, tmp_path):
    x = mg.tensor(rng.normal(size=(5, 7)), requires_grad=True, name="X")
    with mg.trace() as t:
        mg.sum(squares(x, 0, factor=0.5).named("Y")).backward()
    entry = t["Y"]
    assert entry.tex == r"\sum_{i} <factor>\, <x>_{i,j}^2"
    assert entry.vjp_tex == {"x": r"n\, <factor>\, <x> \odot <g>, \quad n = 5"}
    assert entry.flops == 3 * 35
    assert entry.unsaid == ()
    text = derivation_text(t)
    assert r"Y &= \sum_{i} 0.5\, X_{i,j}^2 && \in \mathbb{R}^{7}" in text
    slope = r"\frac{\partial L}{\partial Y}"
    assert rf"\frac{{\partial L}}{{\partial X}} = n\, 0.5\, X \odot {slope}" in text
    assert "Here $`n = 5`$." in text
    line = next(line for line in t.table(120).split("\n") if "square_sum" in line)
    assert line.split()[:6] == ["1", "Y", "square_sum", "5×7", "7", "105"]
    dot = drawn(t, tmp_path, style="full")
    assert "square_sum" in dot
    assert "105 FLOPs" in dot
    shown = page(t)
    node = next(node for node in shown["nodes"] if node.get("op") == "square_sum")
    forward = shown["formulas"][node["tex"]]
    assert forward[1] == ["munder", ["mo", "∑"], ["mi", "i"]]
    assert ["mn", "0.5"] in forward
    (sign,) = (shown["formulas"][i] for i in node["where"]["x"])
    assert sign == ["mrow", ["mi", "n"], ["mo", "="], ["mn", "5"]]


def test_a_layer_s_steps_through_it_are_held_against_its_gradients(squares, rng):
    from layers.hand_derived import Step

    def steps(X, grad_output):
        formula, gradient = r"2 X \odot \bar Y", 2 * X * grad_output
        return [Step(1, "squares", r"Y = \sum_i X_i^2", {"X": formula}, {"X": gradient})]

    x = mg.tensor(rng.normal(size=(5, 7)), requires_grad=True, name="X")
    with mg.trace() as t:
        with mg.scope("squares"):
            y = squares(x, 0).named("Y")
            mg.expect_gradients(steps, X=x, out=y)
        mg.sum(y).backward()
    assert t.check().ok
    assert "Y = Σ_i X_i²" in checks_table(t.check(), 120)
    assert "✓" in derivation_text(t)


# ---------------------------------------------------------------- kinds of checks


def twice(said="2 <g>", words="", **declared):
    @mg.op(tex="2 <x>", vjp_tex={"x": said}, **declared)
    def twice_of_the_views_test(x):
        return 2 * x

    def rule(g):
        return 2 * g

    rule.__doc__ = words
    twice_of_the_views_test.vjp("x")(rule)
    return twice_of_the_views_test


def run(said="2 <g>"):
    op = twice(said, samples=lambda rng: [mg.call(rng.normal(size=(2, 3)))])
    x = mg.tensor([[1.0, 2.0]], requires_grad=True, name="X")
    with mg.trace() as t:
        mg.sum(mg.exp(op(x).named("Y"))).backward()
    return t


def by_its_formula(trace, entry):
    """The formula of a user's op that differs most from its code, on the op's own samples."""
    if not entry.own_op:
        return None
    worst = max(mg.check_formula(mg.registry[str(entry.op)]), key=lambda one: one.difference)
    return CheckResult(
        "by formula",
        entry.id,
        measured=None,
        expected=None,
        difference=worst.difference,
        tolerance=worst.tolerance,
        symbol=worst.part,
        path=entry.path,
        op=worst.op,
    )


@pytest.fixture
def formulas(monkeypatch):
    """The one place in which a kind is declared."""
    kind = CheckKind(
        "by formula",
        mark="formula",
        things="formulas",
        short="formulas",
        what="formula",
        against="the values",
        expected="the values",
        fault="does not give the values of",
        measure=by_its_formula,
    )
    monkeypatch.setitem(checks.KINDS, kind.name, kind)


def test_a_new_kind_is_in_table_picture_page_derivation_and_json(formulas, tmp_path):
    t = run()
    found = t.check(ops=True)
    assert found.ok
    said = "1 of 1 formulas agree with the values, largest difference 0e+00"
    for text in (str(found), t.table(200), drawn(t, tmp_path), derivation_text(t)):
        assert said in text
    assert "rule ✓" in t.table(200)
    assert "formula ✓ 0e+00" in t.table(200)
    assert "rule ✓&#160; formula ✓" in drawn(t, tmp_path)
    shown = page(t)
    headings = ["3 steps measured", "1 formulas measured"]
    assert [kind["heading"] for kind in shown["kinds"]] == headings
    assert [check["mark"] for check in shown["nodes"][t["Y"].id]["checks"]] == ["rule ", "formula "]
    known = [(c["kind"], c["ok"]) for c in t.to_dict()["nodes"][t["Y"].id]["checks"]]
    assert known == [("by derivative", True), ("by formula", True)]


def test_a_wrong_one_of_a_new_kind_turns_every_view_red(formulas, tmp_path):
    t = run(said="7 <g>")  # planted: the rule is right, the formula shown is not
    found = t.check(ops=True)
    assert found.ok is False
    assert t["Y"].state == "wrong"
    wrong = "the formula of twice_of_the_views_test for x does not give the values of it"
    for text in (str(found), t.table(200), drawn(t, tmp_path), derivation_text(t)):
        assert wrong in " ".join(text.split())
    shown = page(t)
    assert [kind["ok"] for kind in shown["kinds"]] == [True, False]
    assert shown["kinds"][1]["first"] == t["Y"].id
    assert [check["ok"] for check in shown["nodes"][t["Y"].id]["checks"]] == [True, False]
    assert [c["ok"] for c in t.to_dict()["nodes"][t["Y"].id]["checks"]] == [True, False]


def test_the_tick_says_that_it_is_the_rules_of_a_users_own_op_alone(tmp_path):
    """Nothing has read its formula, which is shown beside it."""
    t = run(said="7 <g>")
    t.check(ops=True)
    row = next(row for row in t.table(200).split("\n") if re.search(r"Y +twice.*ok", row))
    assert "rule ✓" in row
    assert "rule ✓" in drawn(t, tmp_path)
    assert "formula ✓" not in row + drawn(t, tmp_path)
    assert [check["mark"] for check in page(t)["nodes"][t["Y"].id]["checks"]] == ["rule "]
    x = mg.tensor(np.ones(3), requires_grad=True)
    with mg.trace(check="ops") as t:
        mg.sum(mg.exp(x)).backward()
    assert "rule" not in t.table(200) + drawn(t, tmp_path)
    assert " ✓ " in t.table(200)


def test_where_no_step_could_be_measured_every_view_says_so_and_none_is_green(tmp_path):
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="X")
    with mg.trace() as t:
        y = mg.sum(x)
        y.node.register_hook(lambda parts, g: None)
        y.backward()
    assert t.check(ops=True).ok is None
    said = "one of 1 backward steps could be held against numeric derivatives"
    views = [drawn(t, tmp_path), t.table(300), derivation_text(t)]
    assert all(said in view and "✓" not in view for view in views)
    (kind,) = page(t)["kinds"]
    assert said in "".join(kind["said"])
    assert kind["ok"] is None


def test_one_gradient_is_told_as_one():
    with mg.trace() as t:
        mg.cross_entropy(mg.tensor(np.eye(3), requires_grad=True), np.arange(3)).backward()
    assert "1 gradient equals the hand-derived steps" in str(t.check())
    html = page_html(t)
    assert "The gradient measured agrees with the formulas derived by hand." in html
    assert "1 formula agrees" in html


def test_a_png_has_words_for_the_signs_that_its_font_lacks(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("minigrad.views.picture.render", lambda dot, form: drawn.append(dot) or b"")
    t = run()
    assert t.check(ops=True).ok
    t.draw(tmp_path / "g.png")
    assert "rule ok" in drawn[0]
    assert not {"✓", "✗"} & {*drawn[0]}


# ---------------------------------------------------------------- words


def test_the_sentences_of_an_op_and_of_its_rule_stand_in_every_view(single, tmp_path):
    t = single
    picture = t.draw(tmp_path / "g.svg").read_text()
    views = [picture, derivation_text(t), t.table(500, words=True)]
    record = page(t)
    for op in ("softmax", "linear", "matmul", "scale"):
        declared = mg.registry[op]
        does = declared.__doc__.split(":")[0] + "."
        rules = [rule.function.__doc__ for rule in declared.rules.values()]
        for view in views:
            assert all(text in view for text in (does, *rules))
        for node in (node for node in record["nodes"] if node.get("op") == op):
            assert record["sentences"][node["says"]] == does
            sent = [e for e in record["edges"] if e["target"] == node["id"] and "sent" in e]
            assert sent
            for edge in sent:
                own = declared.rules[edge["input"]].function.__doc__
                assert record["sentences"][edge["says"]] == own
    assert t.table(500) != views[-1]


def test_without_cost_and_words_none_is_claimed_and_signs_in_words_are_harmless():
    op = twice(words="Hands *the* gradient on, `as` <b>it</b> came.")
    with mg.trace() as t:
        mg.sum(op(mg.tensor([1.0], requires_grad=True, name="X"))).backward()
    entry = t.entries[1]
    assert (entry.flops, entry.says) == (None, "")
    assert "1 FLOPs without twice_of_the_views_test, " in t.table()
    assert r"Hands \*the\* gradient on, \`as\` \<b>it\</b> came." in derivation_text(t)
    assert "twice_of_the_views_test:\n  back to x: Hands *the*" in t.table(300, words=True)
    assert "twice_of_the_views_test" in page_html(t)
