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


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def parsed(html):
    """HTML that is well-formed: every tag closed, every sign escaped."""
    return ET.fromstring(html)


def test_a_trace_is_a_picture_that_fits_and_can_be_read_out_and_a_table():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(x * x).backward()
    bundle = t._repr_mimebundle_()
    assert bundle["text/plain"] == t.table(width=100)
    svg = ET.fromstring(bundle["image/svg+xml"])
    assert svg.attrib["width"] == "100%"
    assert re.fullmatch(r"max-width:\d+pt;height:auto", svg.attrib["style"])
    assert {child.tag.rpartition("}")[2] for child in svg} >= {"title", "desc"}


def test_without_a_renderer_a_trace_is_a_table_alone(monkeypatch):
    def missing(*_):
        raise MissingDependencyError("none")

    monkeypatch.setattr(notebook, "render", missing)
    with mg.trace() as t:
        mg.sum(mg.tensor([1.0], requires_grad=True))
    assert list(t._repr_mimebundle_(include=None, exclude=None)) == ["text/plain"]


def test_a_tensor_shows_its_facts_and_entries(rng):
    x = mg.tensor(rng.normal(size=(2, 3)), requires_grad=True, name="x")
    mg.sum(x * x).backward()
    bundle = x._repr_mimebundle_()
    assert bundle["text/plain"] == repr(x)
    text = " ".join(parsed(bundle["text/html"]).itertext())
    assert "2×3 float64" in text
    assert f"{x.numpy()[1, 2]:.4g}" in text
    assert "rms of gradient" in text


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (50, 60), (5, 4, 3, 2), (100_000,)])
def test_any_tensor_is_small(shape):
    html = mg.tensor(np.zeros(shape))._repr_mimebundle_()["text/html"]
    parsed(html)
    assert len(html) < 8_000


def test_a_module_lists_its_parameters(rng):
    layer = layers.SelfAttention(5, 3, 2, rng=rng)
    layer.forward(rng.normal(size=(2, 7, 5)))
    layer.backward(np.ones((2, 7, 5)))
    bundle = layer._repr_mimebundle_()
    assert bundle["text/plain"] == repr(layer)
    rows = [["".join(c.itertext()) for c in row] for row in parsed(bundle["text/html"]).iter("tr")]
    assert [row[0] for row in rows[1:]] == [name for name, _ in layer.named_parameters()]
    assert all(row[3] != "–" for row in rows[1:])


def test_a_module_without_parameters_is_its_name():
    class Twice(layers.Module):
        def forward(self, x):
            return x * 2

    html = Twice()._repr_mimebundle_()["text/html"]
    assert "".join(parsed(html).itertext()) == "Twice 0 parameters"


def test_hostile_names_are_escaped():
    x = mg.tensor([1.0], name=HOSTILE)
    html = x._repr_mimebundle_()["text/html"]
    assert "<script" not in html
    assert "\u202e" not in html
    assert "<script>" in "".join(parsed(html).itertext())


# ---------------------------------------------------------------- what else shows as HTML


def trained():
    model = layers.SelfAttention(5, 3, 2, rng=0)
    X = mg.tensor(np.random.default_rng(1).normal(size=(2, 7, 5)), name=HOSTILE)
    with mg.trace() as t:
        mg.sum(model(X) ** 2).backward()
    return model, t


def cells(html):
    return [["".join(c.itertext()) for c in row] for row in parsed(html).iter("tr")]


def test_checks_show_each_difference_and_the_verdict():
    _, t = trained()
    checks = t.check()
    html = checks._repr_mimebundle_()["text/html"]
    assert len(cells(html)) == 1 + len(checks)
    assert "gradients equal the hand-derived steps" in "".join(parsed(html).itertext())


def test_a_comparison_shows_both_sizes_and_their_ratio():
    (_, one), (_, other) = trained(), trained()
    bundle = one.compare(other)._repr_mimebundle_()
    rows = cells(bundle["text/html"])
    assert rows[0] == ["path", "op", "here", "there", "there / here"]
    assert {row[4] for row in rows[1:]} <= {"1.0", "–"}
    assert "\u202e" not in bundle["text/html"]


def test_attention_shows_a_cell_for_each_pair_with_its_number():
    _, t = trained()
    found = t.attention()
    html = parsed(found._repr_mimebundle_()["text/html"])
    assert len(list(html.iter("rect"))) == 2 * 7 * 7  # A and its gradient
    first = next(html.iter("title")).text
    assert first.endswith(f": {t['A'].value[0, 0, 0]:.3g}")


def test_parameters_are_a_list_that_shows_as_a_table():
    model, _ = trained()
    found = model.parameters()
    assert isinstance(found, list)
    rows = cells(found._repr_mimebundle_()["text/html"])
    assert [row[0] for row in rows[1:]] == [parameter.name for parameter in found]


def test_a_training_run_and_its_findings_show_themselves():
    w = mg.tensor(np.ones(3), requires_grad=True, name="w")
    optimizer = mg.optim.SGD([w], lr=0.1)
    with mg.watch([w], every=1) as flow:
        for step in range(4):
            optimizer.zero_grad()
            (mg.sum(w * w) * (np.nan if step == 2 else 1.0)).backward()
            optimizer.step()
    svg = parsed(flow._repr_mimebundle_()["image/svg+xml"])
    assert svg.attrib["width"] == "100%"
    assert "max-width" in svg.attrib["style"]
    rows = cells(flow.diagnose()._repr_mimebundle_()["text/html"])
    assert rows[1][1] == "not finite"
    page = flow.show(height=300)._repr_html_()
    assert "height:300px" in page
    assert parsed(page).attrib["srcdoc"].split() == flow.show().page.split()


def test_a_trace_shows_its_page_in_a_frame():
    _, t = trained()
    shown = t.show(title="a run")
    frame = parsed(shown._repr_html_())
    assert frame.tag == "iframe"
    assert frame.attrib["srcdoc"].split() == shown.page.split()  # as XML takes line ends
    assert "<title>minigrad</title>" in shown.page


@pytest.mark.needs_fast("compile")
def test_a_compiled_step_shows_its_program_folded():
    step = mg.compile(lambda x: mg.sum(x * x))
    step(np.ones(3))
    html = step._repr_html_()
    assert parsed(html).tag == "details"
    assert "def " in parsed(html).find("pre").text
