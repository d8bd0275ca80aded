"""The page within another page, in headless Chromium: as a frame, as a script, in a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minigrad.tracing import Trace
from minigrad.views.notebook import fitted
from minigrad.views.page import page_html
from minigrad.views.page.embed import frame, script

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("form", [frame, script])
def test_a_pasted_page_steps_and_leaves_its_host_alone(
    browser: Any,
    single: Trace,
    tmp_path: Path,
    form: Any,
) -> None:
    pasted = form(page_html(single, title='</script> & "mine"'), height=600)
    host = tmp_path / "host.html"
    text = f"<!doctype html><title>host</title><h1>Slides</h1>{pasted}<p id='end'>end</p>"
    host.write_text(text, encoding="utf-8")
    page = browser.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text))
    page.goto(host.as_uri())
    before = page.evaluate("Object.keys(window).length")
    inside = page.frame_locator("iframe")
    assert inside.locator("#title").inner_text() == '</script> & "mine"'
    inside.locator("#next").click()
    inside.locator("#next").click()
    assert inside.locator("#now").inner_text().startswith("Forward step 2")
    assert inside.locator(".node.active").count() == 1
    assert page.locator("#end").inner_text() == "end"
    assert page.locator("iframe").bounding_box()["height"] == 602  # and its border
    assert page.evaluate("Object.keys(window).length") == before
    assert page.title() == "host"
    assert said == []
    page.close()


def test_a_wide_svg_keeps_to_its_cell(browser: Any) -> None:
    """As nbconvert sets an output: in a cell of a table, which grows with what is in it."""
    svg = fitted('<svg width="1740pt" height="300pt" viewBox="0 0 1740 300"></svg>')
    page = browser.new_page(viewport={"width": 1000, "height": 600})
    for style in ("display:table;width:878px", "display:flex;width:878px"):
        page.set_content(
            f"<div style='{style}'><div style='display:table-cell;width:100%'>{svg}</div></div>"
        )
        assert page.locator("svg").bounding_box()["width"] == pytest.approx(878, abs=2)
    page.close()
