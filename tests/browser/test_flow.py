"""The page of a training run in headless Chromium: from a file, and served live."""

import pytest

from tests.views.test_flow_page import train

pytestmark = pytest.mark.slow  # a browser finds the same on every Python


def test_findings_cells_and_graphs_open(open_page, tmp_path):
    flow, _ = train()
    view = open_page(flow.html(tmp_path / "flow.html").as_uri())
    assert view.text("#now") == "step 20, lr 0.001"
    view.find(".finding").click()
    assert view.text("#now") == "step 0, lr 0.001"
    assert view.text("#cell h2") == flow.diagnose()[0].path
    view.press("p", "ArrowRight")
    assert view.find("#cell th").all_inner_texts() == ["step 4", "step 0", "times"]
    cells = view.find("#picture g rect").first.bounding_box()
    whole = view.find("#picture .frame.line").bounding_box()
    view.page.mouse.click(whole["x"] + whole["width"] * 0.99, cells["y"] + 4)
    assert view.text("#cell h2") == next(iter(flow.rows))
    assert view.text("#now") == "step 20, lr 0.001"
    view.page.get_by_role("button", name="graph of step 8").click()
    inside = view.page.frame_locator("#frame")
    inside.locator("#title").wait_for()
    assert inside.locator("#title").inner_text() == "Step 8 of a training run"
    assert "backward" in inside.locator("#now").inner_text().lower()
    assert view.evaluate("window.hurt") is None
    view.press("Escape")
    view.find("#theme").click()
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"
    view.page.emulate_media(media="print")
    assert not view.find(":is(button:not(.finding), select, input):visible").count()


def test_the_live_page_follows_the_training(open_page):
    views, seen = [], []

    def follow(address):
        seen.append("")
        if len(seen) == 7:
            views.append(open_page(address, offline=False))
            views[0].find("#state", has_text="live").wait_for()
            seen[-1] = views[0].text("#now")
        if len(seen) == 21:
            views[0].find("#now", has_text="step 16").wait_for()
            seen[-1] = views[0].text("#now")

    train(follow)
    assert [text for text in seen if text] == ["step 4, lr 0.001", "step 16, lr 0.001"]
    views[0].leave()
    views[0].said.clear()  # it asked on after the end
