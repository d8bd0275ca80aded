"""`minigrad ops`: every op of the registry, with every formula and cost of its declaration."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from minigrad import registry
from minigrad.cli.declared import declared
from minigrad.views.formula import plain


@pytest.fixture(scope="module")
def every():
    return [declared(op) for op in registry.values()]


def test_every_op_is_listed_with_a_formula_for_each_input(command, every):
    ran = command("ops", width=2000)
    assert ran.status == 0
    paragraphs = {part.partition("(")[0]: part for part in ran.out.split("\n\n")}
    for one in every:
        part = paragraphs[one.op.name]
        assert f"out = {plain(one.forward)}" in part
        assert set(one.backward) == set(one.op.inputs)
        for name, rule in one.backward.items():
            assert f"∂L/∂{name} = {plain(rule)}" in part
    assert f"{len(registry)} ops; out is the result, g its gradient" in ran.out


def test_an_op_is_shown_with_its_signature_and_claim(command):
    lines = command("ops", "softmax").out.splitlines()
    assert lines[0] == "softmax(x, axis=-1)"
    assert lines[1].startswith("  Softmax along an axis")
    assert lines[2:4] == ["    out = softmax(x)", "    ∂L/∂x = out ⊙ (g - rowsum(g ⊙ out))"]


def test_tex_is_latex_without_placeholders(command):
    ran = command("ops", "--tex", width=2000)
    assert r"\partial L / \partial a = g b^\top" in ran.out
    assert r"\partial L / \partial \mathrm{logits} = " in ran.out
    assert not any(
        f"<{name}>" in ran.out for op in registry.values() for name in op.signature.parameters
    )


def test_json_holds_the_ops_asked_for_in_order_and_once(command):
    data = json.loads(command("ops", "exp", "add", "exp", "--json").out)
    assert [op["name"] for op in data] == ["exp", "add"]
    assert data[0]["backward"] == {"x": "g ⊙ out"}
    assert all(op["claim"] and set(op["vjp_tex"]) == set(op["inputs"]) for op in data)


# ---------------------------------------------------------------- the page


class Balanced(HTMLParser):
    """Every tag that opens is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_holds_every_op_with_its_formulas_and_costs_and_no_address(command, every):
    ran = command("ops", "--html", "ops.html")
    assert (ran.status, ran.out) == (0, f"wrote ops.html: {len(registry)} ops\n")
    page = Path("ops.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|src=|@import|url\(|\{\{", page)
    assert Balanced(page).seen.count("article") == len(registry)
    articles = dict(re.findall(r'<article id="(\w+)">(.*?)</article>', page, re.DOTALL))
    for one in every:
        article = articles[one.op.name]
        assert one.signature in unescape(article)
        costs = re.findall(r"<td>([\d,]+|not declared)</td>", article)
        found = [one.flops, *one.vjp_flops.values()]
        assert costs == ["not declared" if c is None else f"{c:,}" for c in found]
        assert set(re.findall(r'"slot">(\w+)<', article)) >= {"out", *one.op.inputs}


def test_an_op_of_ones_own_is_on_the_page_and_its_names_stay_text(command, monkeypatch):
    import minigrad as mg

    def kernel(x):
        """Twice <b>x</b> & more."""
        return 2 * x

    kernel.__name__ = "twice_of_the_page_test"
    made = mg.op(
        tex=r"2 \odot \text{<i>} <x>", vjp_tex={"x": "2 <g>"}, samples=lambda rng: [mg.call([1.0])]
    )(kernel)
    made.vjp("x")(lambda g: 2 * g)
    try:
        assert command("ops", "--html", "ops.html", made.name).status == 0
    finally:
        del registry[made.name]
    page = Path("ops.html").read_text(encoding="utf-8")
    assert "Twice &lt;b&gt;x&lt;/b&gt; &amp; more." in page
    assert "<mtext>&lt;i&gt;</mtext>" in page
    assert page.count("<td>not declared</td>") == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [(".", "is a folder"), ("no/a.html", "there is no folder"), ("a\0", "no file can be named")],
)
def test_a_page_that_cannot_be_written_is_one_line_that_names_the_call(command, name, said):
    ran = command("ops", "exp", "--html", name)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("minigrad: error: ops --html: ")
    assert said in ran.err
    assert ran.err.count("\n") == 1
