"""What a notebook shows: every object of a run as text, and as a picture, a page or a table."""

import xml.etree.ElementTree as ElementTree

from minigrad.errors import MissingDependencyError
from minigrad.views import picture
from tests.views.graphs import attention
from tests.views.test_training import trained


def test_a_run_shows_its_picture_no_wider_than_its_cell():
    bundle = attention()._repr_mimebundle_()
    svg = ElementTree.fromstring(bundle["image/svg+xml"])
    assert "max-width:100%" in svg.get("style")
    assert "steps forward" in bundle["text/plain"]


def test_without_a_renderer_a_run_shows_its_text(monkeypatch):
    def missing(*_, **__):
        raise MissingDependencyError("none")

    monkeypatch.setattr(picture, "svg_of", missing)
    assert list(attention()._repr_mimebundle_()) == ["text/plain"]


def test_a_page_stands_in_a_frame_of_its_own():
    shown = attention().show(height=300, title='a "run"')
    frame = ElementTree.fromstring(shown._repr_html_())
    assert frame.get("srcdoc").split() == shown.page.split()  # as XML takes line ends
    assert "height:300px" in frame.get("style")
    assert "page of" in repr(shown)


def test_a_watched_run_shows_its_heat_map():
    assert "<svg" in trained()._repr_mimebundle_()["image/svg+xml"]
