"""The page within another page, in headless Chromium: as a frame, as a script, in a cell."""

from __future__ import annotations

import pytest

from minigrad.views.notebook import fitted
from minigrad.views.page import page_html
from minigrad.views.page.embed import frame, script
from tests.views.conftest import attention

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("form", [frame, script])
def test_a_pasted_page_steps_and_leaves_its_host_alone(open_page, tmp_path, form):
    pasted = form(page_html(attention(), title='</script> & "mine"'), height=600)
    host = tmp_path / "host.html"
    text = f"<!doctype html><title>host</title><h1>Slides</h1>{pasted}<p id='end'>end</p>"
    host.write_text(text, encoding="utf-8")
    view = open_page(host.as_uri())
    before = view.evaluate("Object.keys(window).length")
    inside = view.page.frame_locator("iframe")
    assert inside.locator("#title").inner_text() == '</script> & "mine"'
    for _ in range(2):
        inside.locator("#next").click()
    assert inside.locator("#now").inner_text().startswith("Forward step 2")
    assert inside.locator(".node.active").count() == 1
    assert view.text("#end") == "end"
    assert view.find("iframe").bounding_box()["height"] == 602  # and its border
    assert view.evaluate("Object.keys(window).length") == before
    assert view.page.title() == "host"


def test_a_wide_svg_keeps_to_its_cell(open_page):
    """As nbconvert sets an output: in a cell of a table, which grows with what is in it."""
    svg = fitted('<svg width="1740pt" height="300pt" viewBox="0 0 1740 300"></svg>')
    page = open_page("about:blank", width=1000, height=600).page
    for style in ("display:table;width:878px", "display:flex;width:878px"):
        page.set_content(
            f"<div style='{style}'><div style='display:table-cell;width:100%'>{svg}</div></div>"
        )
        assert page.locator("svg").bounding_box()["width"] == pytest.approx(878, abs=2)
