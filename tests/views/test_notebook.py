"""A notebook gets plain text always, and small escaped HTML or SVG beside it."""

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
    assert "max-width:100%" in svg.attrib["style"]
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
