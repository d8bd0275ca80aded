"""A check is one kind of object: a kind that is added to the table of kinds is in every view."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.recording import checks
from minigrad.recording.checks import CheckKind, CheckResult
from minigrad.recording.record import Entry
from minigrad.views.derivation import derivation_text
from minigrad.views.page import page_html


def twice(said: str) -> Any:
    @mg.op(
        tex="2 <x>",
        vjp_tex={"x": said},
        samples=lambda rng: [mg.call(rng.normal(size=(2, 3)))],
    )
    def twice_of_the_kinds_test(x: Any) -> Any:
        """Twice x."""
        return 2 * x

    @twice_of_the_kinds_test.vjp("x")
    def _(g: Any) -> Any:
        return 2 * g

    return twice_of_the_kinds_test


def run(said: str = "2 <g>") -> mg.Trace:
    x = mg.tensor([[1.0, 2.0]], requires_grad=True, name="X")
    with mg.trace() as t:
        mg.sum(mg.exp(twice(said)(x).named("Y"))).backward()
    return t


@pytest.fixture(autouse=True)
def no_op_is_left() -> Iterator[None]:
    yield
    mg.registry.pop("twice_of_the_kinds_test", None)


def by_its_formula(trace: mg.Trace, entry: Entry) -> CheckResult | None:
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
def formulas(monkeypatch: pytest.MonkeyPatch) -> None:
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


def page(trace: mg.Trace) -> dict[str, Any]:
    found = re.search(r'id="record">(.*?)</script>', page_html(trace), re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def drawn(trace: mg.Trace, tmp_path: Path) -> str:
    return trace.draw(tmp_path / "g.dot").read_text(encoding="utf-8")


def test_a_new_kind_is_in_table_picture_page_derivation_and_json(
    formulas: None, tmp_path: Path
) -> None:
    t = run()
    found = t.check(ops=True)
    assert found.ok
    said = "1 of 1 formulas agree with the values, largest difference 0e+00"
    derivation = derivation_text(t)
    for text in (str(found), t.table(200), drawn(t, tmp_path), derivation):
        assert said in text
    assert "rule ✓" in t.table(200)
    assert "formula ✓ 0e+00" in t.table(200)
    assert "rule ✓&#160; formula ✓" in drawn(t, tmp_path)
    shown = page(t)
    assert [kind["heading"] for kind in shown["kinds"]] == [
        "3 steps measured",
        "1 formulas measured",
    ]
    assert [check["mark"] for check in shown["nodes"][t["Y"].id]["checks"]] == ["rule ", "formula "]
    known = t.to_dict()["nodes"][t["Y"].id]["checks"]
    assert [(check["kind"], check["ok"]) for check in known] == [
        ("by derivative", True),
        ("by formula", True),
    ]


def test_a_wrong_one_of_a_new_kind_turns_every_view_red(formulas: None, tmp_path: Path) -> None:
    t = run(said="7 <g>")  # planted: the rule is right, the formula shown is not
    found = t.check(ops=True)
    assert found.ok is False
    assert t["Y"].state == "wrong"
    wrong = "the formula of twice_of_the_kinds_test for x does not give the values of it"
    for text in (str(found), t.table(200), drawn(t, tmp_path), derivation_text(t)):
        assert wrong in " ".join(text.split())
    shown = page(t)
    assert [kind["ok"] for kind in shown["kinds"]] == [True, False]
    assert shown["kinds"][1]["first"] == t["Y"].id
    assert [check["ok"] for check in shown["nodes"][t["Y"].id]["checks"]] == [True, False]
    assert [c["ok"] for c in t.to_dict()["nodes"][t["Y"].id]["checks"]] == [True, False]


VIEWS: dict[str, Callable[[mg.Trace, Path], str]] = {
    "table": lambda t, _: next(
        row for row in t.table(200).split("\n") if re.search(r"Y +twice.*ok", row)
    ),
    "picture": drawn,
    "page": lambda t, _: page(t)["nodes"][t["Y"].id]["checks"][0]["mark"] + "✓",
}


@pytest.mark.parametrize("view", VIEWS)
def test_of_a_users_own_op_the_tick_says_that_it_is_the_rules(view: str, tmp_path: Path) -> None:
    """Nothing has read its formula, which is shown beside it."""
    t = run(said="7 <g>")
    t.check(ops=True)
    shown = VIEWS[view](t, tmp_path)
    assert "rule ✓" in shown
    assert "formula ✓" not in shown


def test_of_minigrads_own_ops_the_tick_needs_no_word(tmp_path: Path) -> None:
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
    html = page_html(t)
    picture = t.draw(tmp_path / "g.svg").read_text()
    assert all(said in view for view in (html, picture, t.table(300), derivation_text(t)))
    (kind,) = json.loads(re.search(r'id="record">(.*?)</script>', html)[1])["kinds"]
    assert kind["ok"] is None
    assert "✓" not in picture + t.table(300) + derivation_text(t)


def test_a_png_has_words_for_the_signs_that_its_font_lacks(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("minigrad.views.picture.render", lambda dot, form: drawn.append(dot) or b"")
    t = run()
    assert t.check(ops=True).ok
    t.draw(tmp_path / "g.png")
    assert "rule ok" in drawn[0]
    assert not {"✓", "✗"} & {*drawn[0]}
