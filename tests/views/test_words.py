"""What an op and its rules say of themselves stands at their step, in every view."""

import json
import re

import numpy as np

import minigrad as mg
from minigrad.views.derivation import derivation_text
from minigrad.views.page import page_html
from tests.views.conftest import attention


def trees(html):
    return json.loads(re.search(r'id="record">(.*?)</script>', html)[1])


def test_the_sentences_of_an_op_and_of_its_rule_stand_in_every_view(tmp_path):
    t = attention()
    picture = t.draw(tmp_path / "g.svg").read_text()
    views = [picture, derivation_text(t), t.table(500, words=True)]
    record = trees(page_html(t))
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


def test_of_an_op_without_words_nothing_is_said_and_signs_in_words_are_harmless():
    @mg.op(tex="<x>", vjp_tex={"x": "<g>"})
    def same(x):
        return x

    @same.vjp("x")
    def _(g):
        """Hands *the* gradient on, `as` <b>it</b> came."""
        return g

    try:
        x = mg.tensor(np.ones(3), requires_grad=True, name="X")
        with mg.trace() as t:
            mg.sum(same(x)).backward()
    finally:
        del mg.registry["same"]
    (entry,) = (entry for entry in t.entries if entry.op == "same")
    assert entry.says == ""
    assert r"Hands \*the\* gradient on, \`as\` \<b>it\</b> came." in derivation_text(t)
    assert "same:\n  back to x: Hands *the*" in t.table(300, words=True)


def test_one_gradient_is_told_as_one() -> None:
    with mg.trace() as t:
        mg.cross_entropy(mg.tensor(np.eye(3), requires_grad=True), np.arange(3)).backward()
    assert "1 gradient equals the hand-derived steps" in str(t.check())
    page = page_html(t)
    assert "The gradient measured agrees with the formulas derived by hand." in page
    assert "1 formula agrees" in page
