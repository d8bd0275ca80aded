"""The live page in a browser: edits are sent, and the page is shown anew where it was."""

import pytest

from minigrad.playing.run import LossFunction
from minigrad.playing.server import PlayServer
from minigrad.playing.session import PlaySession
from tests.playing.functions import WORDS, small


@pytest.fixture
def live(open_page):
    server = PlayServer(PlaySession(LossFunction(small, "small", WORDS)))
    yield open_page(server.address, offline=False)
    server.close()


def done(view, number):
    if number:
        view.find(".play-changes li").nth(number - 1).wait_for()
    else:
        view.page.wait_for_selector(".play-changes li", state="detached")


def test_words_of_the_function_are_changed_and_undone(live):
    before = live.text("#headline")
    field = live.find(".play-bar input.text")
    field.fill("a b c")
    field.press("Enter")
    done(live, 1)
    assert live.text("#headline") != before
    assert "words = a b c" in live.text(".play-changes")
    live.find(".play-bar button", has_text="Undo").click()
    done(live, 0)
    assert live.text("#headline") == before


def test_a_click_on_an_entry_sets_it_and_the_page_stays_at_its_step(live):
    live.press("1", "f", "ArrowRight", "ArrowRight")
    at = live.text("#now")
    live.find("[data-entry] canvas").first.click(position={"x": 5, "y": 5})
    field = live.find(".play-edit input")
    assert float(field.input_value())
    field.fill("7")
    field.press("Enter")
    done(live, 1)
    assert live.text("#now").startswith(at.split(" of")[0])
    assert "= 7" in live.text(".play-changes")


def test_an_attention_weight_is_set_where_it_is_shown(live):
    assert live.text("#tabs [aria-current]") == "Attention"
    live.find(".pair canvas").first.click(position={"x": 5, "y": 5})
    live.find(".play-edit input").fill("0.5")
    live.find(".play-edit button").click()
    done(live, 1)
    assert "A[0, 0, 0] = 0.5" in live.text(".play-changes")
    assert live.text("#tabs [aria-current]") == "Attention"
    live.find(".pair canvas").first.hover(position={"x": 5, "y": 5})
    assert "A = 0.5" in live.text(".attention-head > .reading")


def test_an_edge_is_cut_and_a_mistake_is_told(live):
    live.press("1", "f")
    live.find(".play-acts button", has_text="Cut").first.click()
    done(live, 1)
    lr = live.find(".play-bar label", has_text="lr").locator("input")
    lr.fill("x")
    lr.press("Enter")
    live.page.wait_for_selector(".play-status.wrong")
    assert "could not convert" in live.text(".play-status")


def test_a_live_page_says_why_of_any_entry_that_is_clicked(live):
    live.press("2", "b", "ArrowRight", "ArrowRight")
    live.find('[data-kind="sent"] canvas').first.click(position={"x": 5, "y": 5})
    live.page.wait_for_selector(".ledger li")
    assert live.text("#tabs [aria-current]") == "Why"
    before = live.text("#panel h2")
    live.find("#tabs button", has_text="Step").click()
    live.find("#tabs button", has_text="Why").click()
    assert live.text("#panel h2") == before
    live.find(".ledger .link").first.click()
    assert live.text("#panel h2") != before
