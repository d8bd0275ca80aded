"""What a notebook shows: every object of a run as text, and as a picture, a page or a table."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import MissingDependencyError
from minigrad.views import notebook
from tests.views.graphs import attention
from tests.views.test_flow import trained


def test_a_run_shows_its_picture_no_wider_than_its_cell():
    bundle = attention()._repr_mimebundle_()
    svg = ElementTree.fromstring(bundle["image/svg+xml"])
    assert "max-width:100%" in svg.get("style")
    assert "steps forward" in bundle["text/plain"]


def test_without_a_renderer_a_run_shows_its_text(monkeypatch):
    def missing(*_, **__):
        raise MissingDependencyError("none")

    monkeypatch.setattr(notebook, "svg_of", missing)
    assert list(attention()._repr_mimebundle_()) == ["text/plain"]


def test_a_page_stands_in_a_frame_of_its_own():
    shown = attention().show(height=300, title='a "run"')
    frame = ElementTree.fromstring(shown._repr_html_())
    assert frame.get("srcdoc").split() == shown.page.split()  # as XML takes line ends
    assert "height:300px" in frame.get("style")
    assert "page of" in repr(shown)


@pytest.mark.parametrize("shape", [(), (3,), (9, 9), (2, 3, 4), (0, 2)])
def test_a_tensor_shows_its_facts_and_its_first_entries(shape):
    x = mg.tensor(np.ones(shape), requires_grad=True, name="<x>")
    html = x._repr_mimebundle_()["text/html"]
    cells = [one.text for one in ElementTree.fromstring(html).iter("td")]
    assert "&lt;x&gt;" in html
    assert "requires a gradient" in html
    assert cells.count("1") == (1 if shape == () else np.prod([min(n, 6) for n in shape[-2:]]))


def test_a_watched_run_shows_its_heat_map():
    assert "<svg" in trained()._repr_mimebundle_()["image/svg+xml"]
