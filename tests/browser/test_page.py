"""The page in a browser: what each step shows is what the record says, at every size and theme."""

import re
from base64 import b64encode

import numpy as np
import pytest

import minigrad as mg
from minigrad.views import words
from minigrad.views.picture import dot_of
from minigrad.views.theme import Light
from tests.record.models import KINDS
from tests.views.graphs import RUNS, WORDS, attention, language_model


@pytest.fixture
def page(open_page, tmp_path):
    def open_(t, tokens=None, **options):
        path = t.html(tmp_path / "page.html", tokens=tokens, title="a run")
        return open_page(path.as_uri(), **options)

    return open_


def boxes(view, selector):
    return [one.bounding_box() for one in view.find(selector).all()]


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_step_shows_its_op_its_rule_and_the_size_of_its_gradient(run, page):
    t = run()
    view = page(t)
    steps = [("forward", i) for i in t.forward]
    for phase, i in steps + [("backward", i) for i in t.backward]:
        view.press("ArrowRight")
        entry = t[i]
        assert view.text(".step-head h2").startswith(entry.label)
        assert view.text("#now").startswith(phase)
        rules = view.find(".rule").count()
        if phase == "backward":
            assert words.gradient(entry) in view.text("#now")
            assert rules == sum(edge.facts is not None for edge in entry.takes)
        else:
            assert rules == 1


COLOURED = "[...document.querySelectorAll('.node [fill^=\"var(--bin\"]')]"
VISIBLE = f"{COLOURED}.filter((one) => one.style.visibility !== 'hidden').length"
LINES = """[...document.querySelectorAll('.gradient-part')]
  .filter((one) => getComputedStyle(one).visibility !== 'hidden').length"""


def test_a_forward_step_shows_no_gradient_that_backward_has_not_reached(page):
    t = attention()
    view = page(t)
    whole = view.evaluate(VISIBLE)
    assert whole > 10
    for _ in t.forward:
        view.press("ArrowRight")
        assert (view.evaluate(VISIBLE), view.evaluate(LINES)) == (0, 0)
        assert "∂" not in view.text("#panel")
    seen = []
    for _ in t.backward:
        view.press("ArrowRight")
        seen.append(view.evaluate(VISIBLE))
    assert seen == sorted(seen)
    assert seen[-1] == whole


def test_a_closed_scope_opens_and_closes(page):
    view = page(language_model())
    view.press("f", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
    assert view.find(".way li").count() == 1
    view.press("Enter")
    assert view.find(".way li").count() == 2
    view.press("u")
    assert view.find(".way li").count() == 1


def test_with_tokens_attention_opens_first_and_reads_the_weights(page):
    t = attention()
    view = page(t, tokens=WORDS)
    assert view.text("#tabs [aria-current]") == "Attention"
    assert view.find(".token.query").count() == 2 * 7
    view.find(".pair canvas").first.focus()
    view.press("ArrowDown", "ArrowDown", "ArrowRight")
    A = t["A"].value[0, 2, 1]
    reading = ".attention-head > .reading"
    assert f"“sat” looks at “cat”: A = {A:.3g}" in view.text(reading)
    view.press("ArrowRight", "ArrowRight")
    assert "A = masked" in view.text(reading)


def test_the_steps_derived_by_hand_have_one_sign_each(page):
    checks = attention().checks.of("by hand")
    view = page(attention())
    view.press("3")
    assert view.find(".chapter").count() == len({check.number for check in checks})
    assert view.find(".chapter .right").count() == len(checks)


def test_a_wrong_rule_is_red_and_its_step_can_be_shown(page, plant):
    x = mg.tensor(np.linspace(0.1, 1.0, 6), requires_grad=True, name="x")
    plant("tanh", "x", lambda g: g * 1.001)
    with mg.trace() as t:
        mg.sum(mg.tanh(x)).backward()
    t.check(ops=True)
    view = page(t)
    assert "differs" in view.text("#verdicts .wrong")
    view.find(".verdict.wrong .link").click()
    assert view.text(".step-head h2").startswith("tanh")
    assert "✗" in view.text(".step-head")


def test_what_is_looked_for_is_found_and_keys_are_listed(page):
    view = page(attention())
    view.press("/")
    view.find("#query").fill("W_V")
    view.find("#hits button").first.click()
    assert view.text(".step-head h2").startswith("W_V")
    view.press("?")
    assert "next step" in view.text("#keys")


def test_the_address_leads_to_a_step_again(page):
    view = page(attention())
    view.open("#backward-3")
    assert view.text("#now").startswith("backward 3 of")


def test_the_picture_by_itself_opens_where_it_can_be_read(open_page, tmp_path):
    view = open_page(attention().draw(tmp_path / "g.svg").as_uri())
    texts = boxes(view, "text")
    assert min(one["height"] for one in texts) >= 9
    assert 0 <= texts[0]["y"] < 100  # the main sentence


COLOURS = """async () => {
  const image = document.querySelector("img");
  await image.decode();
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const data = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return [...new Set(data)].map((x) => [x & 255, (x >> 8) & 255, (x >> 16) & 255]);
}"""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_a_png_with_the_lines_of_its_gradients(kind, open_page, tmp_path):
    t = KINDS[kind]()
    data = b64encode(t.draw(tmp_path / "g.png").read_bytes()).decode()
    (tmp_path / "g.html").write_text(f'<img src="data:image/png;base64,{data}">')
    view = open_page((tmp_path / "g.html").as_uri())
    seen = {"#" + bytes(colour).hex() for colour in view.evaluate(COLOURS)}
    lines = re.findall(rf'color="{Light.line}:(#\w+)" penwidth', dot_of(t).text)
    assert lines
    assert {*lines} <= seen


CONTROLS = "button, summary, select, input[type=range], .node, .token, .thumbnail, canvas"
CLICK_ALL = """(controls) => {
  const all = () => [...document.querySelectorAll(controls)];
  const number = Math.min(all().length, 150);
  for (let i = 0; i < number; i++) {
    const one = all()[i];
    if (!one || one.closest(".save")) continue;
    const at = { bubbles: true, clientX: 5, clientY: 5, offsetX: 3, offsetY: 3 };
    for (const kind of ["pointermove", "pointerdown", "pointerup", "pointerleave"])
      one.dispatchEvent(new PointerEvent(kind, at));
    if (one.matches("select, input"))
      for (const kind of ["input", "change"]) one.dispatchEvent(new Event(kind, { bubbles: true }));
    else one.dispatchEvent(new MouseEvent("click", at));
    document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  }
  return number;
}"""


@pytest.mark.parametrize("kind", KINDS)
def test_no_page_raises_on_any_control(kind, page):
    """The fixture asks at its end whether the page complained."""
    t = KINDS[kind]()
    view = page(t)
    for place in ("", f"#backward-{max(1, len(t.backward) // 2)}"):
        view.open(place)
        for tab in ("1", "2", "3"):
            view.press(tab)
            assert view.page.evaluate(CLICK_ALL, CONTROLS) > 10
            view.press("Escape", "Enter", "u", "+", "-", "0", "t", "End", "o", "f", "b")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light")])
def test_every_kind_opens_where_it_can_be_read(kind, width, scheme, page):
    view = page(KINDS[kind](), width=width, color_scheme=scheme)
    assert max(one["height"] for one in boxes(view, ".node text")[:9]) >= 9
    for key in "123":
        view.press(key)
        assert view.wide() <= 0
    assert len({round(one["y"]) for one in boxes(view, ".buttons button")}) == 1
    colour = view.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour))) < 200) == (scheme == "dark")
    assert view.find(".node").count() <= 45  # twenty layers of one op are drawn in full


def test_arrow_keys_bring_the_step_and_numbers_the_tabs_in_their_order(page):
    view = page(attention(), tokens=WORDS)
    names = view.find("#tabs button").all_inner_texts()
    for key, name in enumerate(names, 1):
        view.press(str(key))
        assert view.text("#tabs [aria-current]") == name
    view.press("1", "ArrowRight")
    assert view.text("#tabs [aria-current]") == "Step"


def test_panel_and_graph_agree_and_the_active_box_is_in_view(page):
    t = KINDS["twelve blocks"]()
    view = page(t)
    view.press("b")
    seen = 0
    for i in t.backward:
        active = view.find(".node.active")
        text = active.text_content()
        if "▸" in text:  # a closed box
            seen += 1
            assert words.gradient(t[i]) in text
        else:
            assert t[i].label in text
        assert view.text(".step-head h2").startswith(t[i].label)
        box, pane = active.bounding_box(), view.find("#canvas").bounding_box()
        assert pane["y"] - 1 <= box["y"] <= pane["y"] + pane["height"]
        view.press("ArrowRight")
    assert seen > 50


def test_a_closed_scope_with_parameters_dims_until_it_ran(page):
    view = page(KINDS["block"]())
    view.press("f")
    closed = view.find(".node.scope")
    assert closed.count() == view.find(".node.scope.later").count() > 0


def test_the_only_matrix_that_is_not_zero_is_shown(page):
    data = np.zeros((60, 1, 3, 3))
    data[57, 0, 1, 2] = 5.0
    x = mg.tensor(data, requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(mg.square(x)).backward()
    view = page(t)
    view.press("f")
    view.find("[data-entry] canvas").first.focus()
    view.press("ArrowDown", "ArrowRight")
    assert "[57, 0, 1, 1]" in view.text(".heat .reading")


@pytest.mark.parametrize("kind", ["SVG", "PNG"])
def test_a_head_of_attention_is_saved_as_a_picture(kind, page, tmp_path):
    view = page(attention(), tokens=WORDS)
    with view.page.expect_download() as saving:
        view.find(".attention-head .save .link", has_text=kind).click()
    saving.value.save_as(tmp_path / "head")
    data = (tmp_path / "head").read_bytes()
    assert data.startswith(b"<svg" if kind == "SVG" else b"\x89PNG")
    A = attention()["A"].value[0, 1, 0]
    assert kind == "PNG" or f">{A:.2g}<".encode() in data
    assert b"var(--" not in data


# ---------------------------------------------------------------- why this number


def why(view):
    assert view.text("#tabs [aria-current]") == "Why"
    return view.text("#panel h2").removeprefix("Why ")


def printed(t, key, index=None):
    return str(t.why(key, index)).splitlines()[0]


SIZES = [(1440, "light"), (1440, "dark"), (400, "light")]


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_ledger_opens_by_a_click_on_box_line_and_cell_and_leads_on(page, width, scheme):
    t = attention()
    view = page(t, width=width, color_scheme=scheme)
    chip = view.find(".node", has_text="linear").filter(has_text="Q").first
    chip.locator('[fill^="var(--bin"]').first.click(force=True)
    assert why(view) == printed(t, "Q")
    rows = view.find(".ledger li")
    assert [row.inner_text().split()[0] for row in rows.all()] == [
        line.split()[0] for line in str(t.why("Q")).splitlines()[1:5]
    ]
    assert view.find(".node.marked").count() > 5
    rows.first.locator(".link").click()
    first = t.why("Q").terms[0]
    assert why(view) == printed(t, first.made.id, first.at)
    view.find(".ledger-way .link").last.click()
    assert why(view) == "∂L/∂loss = 1"
    assert view.wide() <= 0
    view.press("ArrowRight")
    assert view.find(".node.marked").count() == 0


def test_a_cell_of_a_gradient_that_the_page_has_no_ledger_of_says_how_to_ask(page):
    view = page(attention())
    view.evaluate("""document.querySelector('.edge .gradient-part')
      .dispatchEvent(new MouseEvent('click', { bubbles: true }))""")
    assert why(view).startswith("∂L/∂")  # of a line that goes back, too
    view.press("2", "b", "ArrowRight", "ArrowRight")
    view.find('[data-kind="sent"] canvas').first.click(position={"x": 5, "y": 5})
    assert "holds no ledger" in view.text("#panel .note")
    assert 't.why("' in view.text("#panel code")
    view.find("#panel .link", has_text="its largest entry").click()
    assert why(view).startswith("∂L/∂")
