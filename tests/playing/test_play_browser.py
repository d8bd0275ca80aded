"""The page that is played with, in headless Chromium, served by this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.playing.server import PlayServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

from .functions import X, attention, ratio

pytestmark = pytest.mark.slow  # a browser finds the same on every Python


class Opened:
    """A page that is played with, and what it complained of."""

    def __init__(self, server: PlayServer, page: Page) -> None:
        self.server, self.page, self.edits = server, page, 0
        self.said: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.goto(server.address)

    @property
    def session(self) -> Any:
        return self.server.session

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def show(self, name: str) -> None:
        """The panel of a value, by the search."""
        self.press("/")
        self.page.locator("#query").fill(name)
        self.press("Enter")

    def wait(self) -> None:
        """For the answer of one more change, and then the picture."""
        self.edits += 1
        self.page.locator(f".play-bar[data-edits='{self.edits}']").wait_for()
        self.page.locator(".stale").wait_for(state="detached")

    def type(self, selector: str, text: str) -> None:
        self.page.locator(selector).first.fill(text)
        self.page.locator(selector).first.press("Enter")
        self.wait()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    made: list[Any] = []

    def open_(function: Any = attention, **options: Any) -> Opened:
        options = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"} | options
        context = browser.new_context(**options)
        server = mg.play(function)
        made.extend([context, server])
        return Opened(server, context.new_page())

    yield open_
    for one in made:
        one.close()


def test_an_edit_is_drawn_as_a_fresh_run_with_that_value_and_undone(
    opened: Callable[..., Opened],
) -> None:
    view = opened()
    view.show("X")
    view.page.locator("#panel [data-kind=value] canvas").first.click(position={"x": 5, "y": 5})
    assert view.text(".play-editor strong") == "X[0, 0, 0]"
    assert view.text(".play-editor").split("\n") == ["X[0, 0, 0]", "Cut", "Done"]
    view.type(".play-editor input", "2.5")
    array = X.numpy().copy()
    array[0, 0, 0] = 2.5
    with mg.replace("X", array), mg.trace() as t:
        attention().backward()
    view.press("Escape")
    for name in ("X", "W_Q", "A", "loss"):
        view.show(name)
        cards = {"value": t[name].value, "gradient": t[name].gradient}
        for kind, wanted in cards.items():
            shown = view.page.locator(f"#panel .heat[data-kind={kind}] [data-stat={kind}-rms]")
            rms = float(shown.first.get_attribute("data-value") or "nan")
            np.testing.assert_allclose(rms, np.sqrt(np.mean(wanted**2)), err_msg=name + kind)
    marked = view.page.locator(".node.changed").count()
    assert marked == sum(e.state != "cancels" for e in t if e.kind in ("op", "parameter", "leaf"))
    view.press("Control+z")
    view.wait()
    assert view.text(".play-status").startswith(f"loss {t['loss'].value:.5g} → ")
    assert view.session.run.loss == attention().item()
    assert view.said == []


def test_a_drag_runs_again_and_again_and_is_one_change(opened: Callable[..., Opened]) -> None:
    view = opened()
    view.show("X")
    view.page.locator("#panel [data-kind=value] canvas").first.click(position={"x": 5, "y": 5})
    slider = view.page.locator(".play-editor input[type=range]")
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    view.page.mouse.move(box["x"] + box["width"] / 2, middle)
    view.page.mouse.down()
    for part in (0.6, 0.7, 0.8):
        view.page.mouse.move(box["x"] + part * box["width"], middle)
    view.page.mouse.up()
    view.page.locator(".play-bar:not([data-edits='0'])[data-edits]").wait_for()
    view.page.locator(".stale").wait_for(state="detached")
    (change,) = view.session.changes
    assert float(slider.input_value()) == pytest.approx(change.value, rel=1e-3)
    assert len(view.session.past) == 1


def test_the_keyboard_alone_cuts_a_weight_of_attention(opened: Callable[..., Opened]) -> None:
    view = opened()
    view.press("3")
    view.page.locator(".attention-map[data-kind=value] canvas").focus()
    view.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter")
    assert view.text(".play-editor strong") == "A[0, 4, 0]"
    view.press("Tab", "Tab", "Enter")
    view.wait()
    with mg.ablate("A", index=(0, 4, 0)):
        assert view.session.run.loss == attention().item()
    assert view.text("#tabs [aria-current]").startswith("Attention")
    assert view.said == []


def test_a_click_opens_an_entry_of_a_mask(opened: Callable[..., Opened]) -> None:
    view = opened()
    view.show("S_masked")
    (number,) = (e.id for e in view.session.run.trace if e.shape == (5, 5) and e.op is None)
    mask = view.page.locator(f"#panel .heat:has(figcaption [data-of='{number}']) canvas")
    box = mask.bounding_box()
    assert box is not None
    mask.click(position={"x": box["width"] * 0.9, "y": 4})
    view.wait()
    assert view.text(".play-changes li") == "mask of S_masked[0, 4] = 0"
    assert "-inf" not in str(view.session.changes[0].value)


def test_arguments_of_the_function_and_its_words_are_typed(opened: Callable[..., Opened]) -> None:
    view = opened()
    view.type(".play-keywords .number", "3")
    view.type(".play-keywords .text", "the dog slept on it")
    words = "the dog slept on it".split()
    assert view.session.run.loss == attention(temperature=3.0, words=words).item()
    view.press("Escape")
    view.page.locator("#tabs [data-tab=attention]").click()
    assert view.page.locator(".token.query", has_text="slept").count() == 2


def test_a_slow_run_says_that_it_is_running_and_an_ended_program_that_it_ended(
    opened: Callable[..., Opened],
) -> None:
    def slow(x: float = 1.0) -> mg.Tensor:
        time.sleep(0.8 if x > 1 else 0.0)
        return mg.sum(mg.tensor([x], requires_grad=True, name="x") * 2.0).named("loss")

    view = opened(slow)
    field = view.page.locator(".play-keywords .number")
    field.fill("3")
    field.press("Enter")
    view.page.locator(".play-bar.running .play-status", has_text="running…").wait_for()
    view.wait()
    assert view.session.run.loss == 6.0
    view.server.close()
    view.server.wait()
    field.fill("4")
    field.press("Enter")
    view.page.locator(".play-error", has_text="has ended").wait_for()


WRONG = {"a number": "two", "NaN": "nan", "infinite loss": "-2", "it raises": "11"}


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_is_said_and_all_stays(opened: Callable[..., Opened], kind: str) -> None:
    view = opened(ratio)
    run = view.session.run
    view.show("x")
    view.page.locator("#panel [data-kind=value] canvas").first.click()
    view.type(".play-editor input", WRONG[kind])
    assert "Nothing has changed" in view.text(".play-error")
    assert view.session.run is run
    view.type(".play-editor input", "2")
    assert view.session.run.loss == 0.25
    assert not view.page.locator(".play-error").is_visible()


def test_the_program_is_shown_and_makes_the_run(opened: Callable[..., Opened]) -> None:
    view = opened()
    view.type(".play-keywords .number", "3")
    view.page.get_by_role("button", name="Step", exact=True).first.click()
    view.wait()
    view.page.get_by_role("button", name="Copy as Python").click()
    program = view.page.locator(".play-program pre").text_content() or ""
    given: dict[str, Any] = {"attention": attention}
    exec(program, given)
    assert given["L"].item() == view.session.run.loss


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off_and_every_field_has_a_name(
    opened: Callable[..., Opened], width: int, theme: Any
) -> None:
    view = opened(viewport={"width": width, "height": 900}, color_scheme=theme)
    view.show("S")
    view.page.locator("#panel [data-kind=value] canvas").first.click(position={"x": 5, "y": 5})
    view.type(".play-editor input", "0.5")
    assert view.page.evaluate("document.documentElement.scrollWidth") <= width
    nameless = view.page.evaluate(
        """[...document.querySelectorAll(".play-bar input, .play-bar button, .play-acts input")]
        .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent))
        .length"""
    )
    assert nameless == 0
