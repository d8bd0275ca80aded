"""A notebook gets plain text always, and small escaped HTML or SVG beside it."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad.errors import MissingDependencyError
from minigrad.views import notebook

HOSTILE = "<script>alert('x')</script> & \u202e"


def parsed(thing):
    """What is shown as HTML or SVG; it is well-formed: every tag closed, every sign escaped."""
    html = thing
    if not isinstance(thing, str):
        bundle = thing._repr_mimebundle_(include=None, exclude=None)
        html = bundle.get("text/html") or bundle["image/svg+xml"]
    assert "<script" not in html
    assert "\u202e" not in html
    return ET.fromstring(html)


def said(thing):
    return "".join(parsed(thing).itertext())


def cells(thing):
    return [["".join(c.itertext()) for c in row] for row in parsed(thing).iter("tr")]


@pytest.fixture(scope="module")
def trained():
    """A model that was run forward and backward in a trace, on an input of a hostile name."""
    model = layers.SelfAttention(5, 3, 2, rng=0)
    X = mg.tensor(np.random.default_rng(1).normal(size=(2, 7, 5)), name=HOSTILE)
    with mg.trace() as t:
        mg.sum(model(X) ** 2).backward()
    return model, t


def test_a_trace_is_a_picture_that_fits_and_can_be_read_out_and_a_table(trained):
    _, t = trained
    assert t._repr_mimebundle_()["text/plain"] == t.table(width=100)
    svg = parsed(t)
    assert svg.attrib["width"] == "100%"
    assert re.fullmatch(r"max-width:\d+pt;height:auto", svg.attrib["style"])
    assert {child.tag.rpartition("}")[2] for child in svg} >= {"title", "desc"}


def test_without_a_renderer_a_trace_is_a_table_alone(trained, monkeypatch):
    def missing(*_):
        raise MissingDependencyError("none")

    monkeypatch.setattr(notebook, "render", missing)
    assert list(trained[1]._repr_mimebundle_(include=None, exclude=None)) == ["text/plain"]


def test_a_tensor_shows_its_facts_and_entries(rng):
    x = mg.tensor(rng.normal(size=(2, 3)), requires_grad=True, name=HOSTILE)
    mg.sum(x * x).backward()
    assert x._repr_mimebundle_()["text/plain"] == repr(x)
    for fact in ("<script>", "2×3 float64", f"{x.numpy()[1, 2]:.4g}", "rms of gradient"):
        assert fact in said(x)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (50, 60), (5, 4, 3, 2), (100_000,)])
def test_any_tensor_is_small(shape):
    html = mg.tensor(np.zeros(shape))._repr_mimebundle_()["text/html"]
    parsed(html)
    assert len(html) < 8_000


# ---------------------------------------------------------------- what else shows as HTML


def test_checks_show_each_difference_and_the_verdict(trained):
    checks = trained[1].check()
    assert len(cells(checks)) == 1 + len(checks)
    assert "gradients equal the hand-derived steps" in said(checks)


def test_attention_shows_a_cell_for_each_pair_with_its_number(trained):
    t = trained[1]
    html = parsed(t.attention())
    assert len(list(html.iter("rect"))) == 2 * 7 * 7  # A and its gradient
    assert next(html.iter("title")).text.endswith(f": {t['A'].value[0, 0, 0]:.3g}")


def test_a_training_run_and_its_findings_show_themselves():
    w = mg.tensor(np.ones(3), requires_grad=True, name="w")
    optimizer = mg.optim.SGD([w], lr=0.1)
    with mg.watch([w], every=1) as flow:
        for step in range(4):
            optimizer.zero_grad()
            (mg.sum(w * w) * (np.nan if step == 2 else 1.0)).backward()
            optimizer.step()
    svg = parsed(flow)
    assert svg.attrib["width"] == "100%"
    assert "max-width" in svg.attrib["style"]
    assert cells(flow.diagnose())[1][1] == "not finite"


def test_a_run_shows_its_page_in_a_frame(trained):
    shown = trained[1].show(title="a run")
    frame = parsed(shown._repr_html_())
    assert frame.tag == "iframe"
    assert frame.attrib["srcdoc"].split() == shown.page.split()  # as XML takes line ends
    assert "<title>minigrad</title>" in shown.page


def test_a_compiled_step_shows_its_program_folded():
    step = mg.compile(lambda x: mg.sum(x * x))
    step(np.ones(3))
    html = parsed(step._repr_html_())
    assert html.tag == "details"
    assert "def " in html.find("pre").text
