"""The page that is played with, in headless Chromium, served by this process."""

from threading import Event

import numpy as np
import pytest

import minigrad as mg
from layers import SelfAttention
from minigrad.recording.record import rms
from tests.playing.functions import X, attention, ratio

pytestmark = pytest.mark.slow  # a browser finds the same on every Python


@pytest.fixture
def opened(open_page):
    servers = []

    def open_(function=attention, **options):
        servers.append(mg.play(function))
        more = {"server": servers[-1], "session": servers[-1].session, "edits": 0}
        return open_page(servers[-1].address, offline=False, more=more, **options)

    yield open_
    for server in servers:
        server.close()


def show(view, name, edit=False):
    """The panel of a value, by the search, and the editor of its first entry."""
    view.press("/")
    view.find("#query").fill(name)
    view.press("Enter")
    if edit:
        view.find("#panel [data-kind=value] canvas").first.click(position={"x": 5, "y": 5})


def wait(view):
    """For the answer of one more change, and then the picture."""
    view.edits += 1
    view.find(f".play-bar[data-edits='{view.edits}']").wait_for()
    view.find(".stale").wait_for(state="detached")


def enter(view, selector, text):
    view.find(selector).first.fill(text)
    view.find(selector).first.press("Enter")
    wait(view)


def test_the_panel_of_attention_stays_where_a_change_leaves_fewer_layers(opened):
    layers = [SelfAttention(3, 2, 3, rng=np.random.default_rng(i)) for i in range(2)]

    def stack(depth=2):
        x = mg.tensor(np.eye(3), requires_grad=True, name="x")
        for layer in layers[:depth]:
            x = layer(x)
        return mg.mean(x * x)

    view = opened(stack)
    view.press("3")
    view.find(".thumbnail[data-layer='1']").click()
    enter(view, ".play-keywords input", "1")
    assert view.find("#panel .attention-head").count() == 1


def test_an_edit_is_drawn_as_a_fresh_run_with_that_value_and_undone(opened):
    view = opened()
    show(view, "X", edit=True)
    assert view.text(".play-editor strong") == "X[0, 0, 0]"
    assert view.text(".play-editor").split("\n") == ["X[0, 0, 0]", "Cut", "Done"]
    enter(view, ".play-editor input", "2.5")
    array = X.numpy().copy()
    array[0, 0, 0] = 2.5
    with mg.replace("X", array), mg.trace() as t:
        attention().backward()
    view.press("Escape")
    for name in ("X", "W_Q", "A", "loss"):
        show(view, name)
        cards = {"value": t[name].value, "gradient": t[name].gradient}
        for kind, wanted in cards.items():
            shown = view.values(f"#panel .heat[data-kind={kind}] [data-stat={kind}-rms]")
            np.testing.assert_allclose(shown[0], rms(wanted), err_msg=name + kind)
    marked = view.find(".node.changed").count()
    assert marked == sum(e.state != "cancels" for e in t if e.kind in ("op", "parameter", "leaf"))
    view.press("Control+z")
    wait(view)
    assert view.text(".play-status").startswith(f"loss {t['loss'].value:.5g} → ")
    assert view.session.run.loss == attention().item()


def test_a_drag_runs_again_and_again_and_is_one_change(opened):
    view = opened()
    show(view, "X", edit=True)
    slider = view.find(".play-editor input[type=range]")
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    view.page.mouse.move(box["x"] + box["width"] / 2, middle)
    view.page.mouse.down()
    for part in (0.6, 0.7, 0.8):
        view.page.mouse.move(box["x"] + part * box["width"], middle)
    view.page.mouse.up()
    view.find(".play-bar:not([data-edits='0'])[data-edits]").wait_for()
    view.find(".stale").wait_for(state="detached")
    (change,) = view.session.changes
    assert float(slider.input_value()) == pytest.approx(change.value, rel=1e-3)
    assert len(view.session.past) == 1


def test_the_keyboard_alone_cuts_a_weight_of_attention(opened):
    view = opened()
    view.press("3")
    view.find(".attention-map[data-kind=value] canvas").focus()
    view.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter")
    assert view.text(".play-editor strong") == "A[0, 4, 0]"
    view.press("Tab", "Tab", "Enter")
    wait(view)
    with mg.ablate("A", index=(0, 4, 0)):
        assert view.session.run.loss == attention().item()
    assert view.text("#tabs [aria-current]").startswith("Attention")


def test_a_click_opens_an_entry_of_a_mask(opened):
    view = opened()
    show(view, "S_masked")
    (number,) = (e.id for e in view.session.run.trace if e.shape == (5, 5) and e.op is None)
    mask = view.find(f"#panel .heat:has(figcaption [data-of='{number}']) canvas")
    box = mask.bounding_box()
    assert box is not None
    mask.click(position={"x": box["width"] * 0.9, "y": 4})
    wait(view)
    assert view.text(".play-changes li") == "mask of S_masked[0, 4] = 0"
    assert "-inf" not in str(view.session.changes[0].value)


def test_arguments_of_the_function_and_its_words_are_typed(opened):
    view = opened()
    enter(view, ".play-keywords .number", "3")
    enter(view, ".play-keywords .text", "the dog slept on it")
    words = "the dog slept on it".split()
    assert view.session.run.loss == attention(temperature=3.0, words=words).item()
    view.press("Escape")
    view.find("#tabs [data-tab=attention]").click()
    assert view.find(".token.query", has_text="slept").count() == 2


def test_a_slow_run_says_that_it_is_running_and_an_ended_program_that_it_ended(opened):
    seen = Event()

    def slow(x=1.0):
        assert x == 1 or seen.wait(60)
        return mg.sum(mg.tensor([x], requires_grad=True, name="x") * 2.0).named("loss")

    view = opened(slow)
    field = view.find(".play-keywords .number")
    field.fill("3")
    field.press("Enter")
    view.find(".play-bar.running .play-status", has_text="running…").wait_for()
    seen.set()
    wait(view)
    assert view.session.run.loss == 6.0
    view.server.close()
    view.server.wait()
    field.fill("4")
    field.press("Enter")
    view.find(".play-error", has_text="has ended").wait_for()
    view.leave()
    view.said[:] = [text for text in view.said if "net::ERR_" not in text]


def test_what_cannot_be_is_said_and_all_stays(opened):
    view = opened(ratio)
    run = view.session.run
    show(view, "x", edit=True)
    for wrong in ("two", "-2", "11"):  # no number, an infinite loss, an error of the function
        enter(view, ".play-editor input", wrong)
        assert "Nothing has changed" in view.text(".play-error")
        assert view.session.run is run
    enter(view, ".play-editor input", "2")
    assert view.session.run.loss == 0.25
    assert not view.find(".play-error").is_visible()


def test_the_program_is_shown_and_makes_the_run(opened):
    view = opened()
    enter(view, ".play-keywords .number", "3")
    view.page.get_by_role("button", name="Step", exact=True).first.click()
    wait(view)
    view.page.get_by_role("button", name="Copy as Python").click()
    program = view.find(".play-program pre").text_content() or ""
    given = {"attention": attention}
    exec(program, given)
    assert given["L"].item() == view.session.run.loss


def test_nothing_is_cut_off_and_every_field_has_a_name(opened):
    view = opened(width=400)
    show(view, "S", edit=True)
    enter(view, ".play-editor input", "0.5")
    for width in (400, 1440):
        view.page.set_viewport_size({"width": width, "height": 900})
        assert view.wide() <= 0, width
    nameless = view.evaluate(
        """[...document.querySelectorAll(".play-bar input, .play-bar button, .play-acts input")]
        .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent))
        .length"""
    )
    assert nameless == 0
