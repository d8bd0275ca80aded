"""The page in a real browser: headless Chromium, from a file, with the network cut off.

Without Playwright or Chromium these tests are skipped; where CI is set they fail instead.
"""

import re
from functools import cache

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, SelfAttention, create_causal_mask
from minigrad.recording.record import rms
from minigrad.views.page import write_page
from tests.planted import wrong_rules
from tests.views import conftest as graphs

pytestmark = pytest.mark.slow  # a browser finds the same on every Python

TOKENS = ["the", "cat", "sat", "on", "it"]
HOSTILE = '</script><img src=x onerror="window.hurt=1">\'"&\u202e שלום'


# ---------------------------------------------------------------- pages


def self_attention(query=None, **options):
    rng = np.random.default_rng(3)
    x = mg.tensor(rng.normal(size=(2, 5, 7)), requires_grad=True, name="X")
    with mg.trace(**options) as t, mg.scope("attention"):
        out = SelfAttention(7, 3, 2, rng=rng)(x, create_causal_mask(5))
        out = out if query is None else out[:, query]
        mg.mean(out * out).named("loss").backward()
    return t


def mlp():
    rng = np.random.default_rng(7)
    first, second = Linear(13, 17, rng=rng), Linear(17, 3, rng=rng)
    with mg.trace() as t:
        with mg.scope("mlp"), mg.scope("hidden"):
            h = mg.relu(first(rng.normal(size=(11, 13)))).named("h")
        mg.cross_entropy(second(h), rng.integers(0, 3, 11)).named("loss").backward()
    return t


def hostile():
    x, y = (mg.tensor(np.ones((2, 2)), requires_grad=True, name=n + HOSTILE) for n in ("", "W_"))
    with mg.trace() as t, mg.scope('<b>"scope"</b>'):
        mg.sum(x @ y).named("<script>window.hurt=1</script>").backward()
    return t


def infinite():
    x = mg.tensor(np.array([0.0, 1.0]), requires_grad=True, name="x")
    with mg.trace() as t, np.errstate(all="ignore"):
        mg.sum(mg.sqrt(x) * 2.0 + mg.log(x - 1.0)).backward()
    return t


def wrong():
    with wrong_rules("softmax"):
        return self_attention(check="ops")


ROWS = [["0", HOSTILE, "−0.5"], ["1", "sat", "+0.25"]]
TABLE = {"title": "by token", "hint": "X enters", "columns": ["", "token", "share"]}
TABLE |= {"figures": [True, False, True], "rows": ROWS}
PAGES = {
    "self": (self_attention, {"tokens": TOKENS}),
    "asking": (lambda: self_attention(query=3), {"tokens": TOKENS}),
    "asking, without arrays": (
        lambda: self_attention(query=3),
        {"tokens": TOKENS, "arrays": "none"},
    ),
    "multi": (lambda: graphs.attention("multi"), {"tokens": [*TOKENS, "the", "mat"]}),
    "mlp": (mlp, {}),
    "stack": (lambda: graphs.chain(12), {}),
    "deep": (graphs.transformer, {}),
    "hostile": (hostile, {"title": HOSTILE}),
    "tables": (self_attention, {"tables": [TABLE, TABLE | {"rows": ROWS * 20}]}),
    "long": (lambda: graphs.unfolded(200), {}),
    "infinite": (infinite, {}),
    "wrong": (wrong, {}),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Each page, written once."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def write(name):
        build, options = PAGES[name]
        trace = build()
        return trace, write_page(trace, folder / f"{name}.html", **options).as_uri()

    return write


@pytest.fixture
def opened(open_page, written):
    def open_(name, **options):
        trace, address = written(name)
        return open_page(address, more={"trace": trace}, **options)

    return open_


def backward_to(view, entry):
    view.step(f"#backward-{view.trace.backward_steps.index(entry.id) + 1}")


def hash_of(view):
    return view.evaluate("location.hash")


def active(view, data="node"):
    return view.find(".node.active").get_attribute(f"data-{data}")


# ---------------------------------------------------------------- nothing but the file


@pytest.mark.parametrize("name", PAGES)
def test_every_step_shows_without_a_request_or_a_complaint(opened, name):
    """What it asks for and complains of is held against it wherever a page is opened."""
    view = opened(name)
    steps = len(view.trace.forward_steps) + len(view.trace.backward_steps)
    keys = ["Home", *["ArrowRight"] * min(steps, 30), "2", "3", "1", "End", "Enter", "u", "o"]
    assert all(view.walk(keys, "document.querySelectorAll('#panel > *').length"))


def test_hostile_names_are_shown_as_they_are_and_do_nothing(opened):
    view = opened("hostile")
    view.press("Home")
    assert view.evaluate("window.hurt") is None
    assert view.find("img, #panel script, #canvas script").count() == 0
    shown = HOSTILE.replace("\u202e", "\\u202e")  # what turns text around is spelled out
    assert view.page.title() == view.text("#title") == shown
    view.press("/")
    assert shown in view.text("#hits")
    assert '<b>"scope"' in view.text("#hits")


# ---------------------------------------------------------------- stepping


def test_keys_buttons_slider_and_hash_walk_through_both_passes(opened):
    view = opened("self")
    count = len(view.trace.forward_steps)
    assert hash_of(view) == "#overview"
    for action, hash, said in (
        ("ArrowRight", "#forward-1", f"Forward step 1 of {count}"),
        ("ArrowRight", "#forward-2", "Forward step 2"),
        ("ArrowLeft", "#forward-1", "Forward step 1"),
        ("End", f"#backward-{count}", f"Backward step {count} of {count}"),
        ("ArrowRight", f"#backward-{count}", f"Backward step {count}"),
        ("Home", "#forward-1", "Forward step 1"),
        ("b", "#backward-1", "Backward step 1"),
        ("ArrowLeft", f"#forward-{count}", f"Forward step {count}"),
        ("o", "#overview", "The whole pass"),
        ("#next", "#forward-1", "Forward step 1"),
        ("#last", f"#backward-{count}", f"Backward step {count}"),
        ("#previous", f"#backward-{count - 1}", f"Backward step {count - 1}"),
    ):
        if action.startswith("#"):
            view.find(action).click()
        else:
            view.press(action)
        assert hash_of(view) == hash, action
        assert view.text("#now").startswith(said), action
    view.find("#range").fill("2")
    assert hash_of(view) == "#forward-2"
    view.open("#backward-3")
    assert view.text("#now").startswith("Backward step 3")
    view.open("#backward-99")
    assert view.text("#now") == "The whole pass"


def test_each_step_lights_its_node_and_lines_and_paints_what_has_arrived(opened):
    view = opened("self")
    t, X = view.trace, view.trace["X"]
    last_use = max(t.backward_steps.index(edge.target) for edge in t.uses(X))
    expected = []
    for back, steps in ((False, t.forward_steps), (True, t.backward_steps)):
        for number, entry in enumerate(steps):
            uses = [e for e in t.into(t[entry]) if not back or e.contribution is not None]
            expected.append([[str(entry)], len(uses), back and number >= last_use])
    found = view.walk(["ArrowRight"] * len(expected), LIT.replace("X", f"n{X.id}"))
    assert found == expected


LIT = """[
  [...document.querySelectorAll(".node.active")].map((one) => one.dataset.node),
  document.querySelectorAll(".edge.lit").length,
  document.querySelector("#X .on").checkVisibility({ visibilityProperty: true }),
]"""


# ---------------------------------------------------------------- into scopes, and copies


def test_repeated_blocks_are_drawn_once_and_show_the_copy_of_the_step(opened):
    view = opened("stack")
    t, h = view.trace, [e.id for e in view.trace.entries if e.name == "h"]
    number = view.find(f"#n{h[0]} .on")
    assert [view.find(f"#n{id}").count() for id in h] == [1] + 11 * [0]
    assert " to " in (number.text_content() or "")  # of all copies
    backward_to(view, t[h[7]])
    assert "block7, 8 of 12" in view.text("#crumbs")
    assert f"{t[h[7]].gradient_rms:.2g}" in (number.text_content() or "")
    view.press(".")
    assert hash_of(view) == f"#backward-{t.backward_steps.index(h[8]) + 1}"
    view.page.get_by_label("previous of 12 alike").click()
    assert hash_of(view) == f"#backward-{t.backward_steps.index(h[7]) + 1}"


def test_a_closed_scope_opens_by_key_and_by_click_and_the_way_back_is_above(opened):
    view = opened("deep")
    t = view.trace
    first = next(i for i, e in enumerate(t.forward_steps) if "attention" in t[e].scope)
    view.step(f"#forward-{first + 1}")
    scope = active(view, "scope")
    assert scope.endswith("blocks.0/attention")
    assert f"1 of 18 in attention: {t[t.forward_steps[first]].label}" in view.text("#crumbs")
    view.press("Enter")
    assert active(view) == str(t.forward_steps[first])
    way = view.text("#crumbs .way").replace("\n", " ")
    assert re.sub(r"\s+", " ", way) == "all language_model decoder blocks.0 … blocks.2 ×3 attention"
    beyond = ["ArrowRight"] * 60  # into the next block's, whose picture is the same
    assert all(view.walk(beyond, "document.querySelector('.node.active') !== null"))
    view.press("o")
    view.find(f'.node[data-scope="{scope}"]').click()
    assert view.find("#n0").count() == 0
    view.press("u")
    assert view.find(f'.node[data-scope="{scope}"]').count() == 1
    view.find(f'.node[data-scope="{scope}"]').click()
    view.find("#crumbs .way button").first.click()
    assert view.find(f'.node[data-scope="{scope}"]').count() == 1


def test_space_plays_by_steps_or_by_blocks_and_keys_pass_a_block_at_once(opened):
    view = opened("stack", clock=True)
    t = view.trace
    blocks = [t[i].scope.partition("/")[0] for i in t.forward_steps]
    view.press("Home", "PageDown", "PageDown")
    assert hash_of(view) == f"#forward-{blocks.index('block2') + 1}"
    view.press("PageUp")
    assert hash_of(view) == f"#forward-{blocks.index('block1') + 1}"
    view.open()
    view.press("Space")
    assert view.find("#play").get_attribute("aria-pressed") == "true"
    view.page.clock.run_for(2500)
    view.press("Space")
    view.page.clock.run_for(5000)
    assert hash_of(view) == "#forward-2"
    view.find("#by").select_option("block")
    view.find("#speed").select_option("4×")
    view.find("#play").click()
    view.page.clock.run_for(300)
    assert hash_of(view) == f"#forward-{blocks.index('block1') + 1}"


def test_the_graph_moves_by_a_drag_that_begins_in_it_and_by_no_other(opened):
    """A drag that ends beside it is over."""
    view = opened("stack")
    view.press(*"+" * 8)
    place = "[canvas.scrollLeft, canvas.scrollTop]"
    graph = view.find("#canvas").bounding_box()
    x, y = graph["x"] + graph["width"] / 2, graph["y"] + graph["height"] / 2
    places = [view.evaluate(place)]
    for start, down in ((x, -80), (x + graph["width"], 60)):
        view.page.mouse.move(start, y)
        view.page.mouse.down()
        view.page.mouse.move(x + graph["width"], y + down)
        view.page.mouse.up()
        places.append(view.evaluate(place))
    assert places[0] != places[1] == places[2]


def test_every_box_is_reached_and_named_by_keyboard(opened):
    view = opened("multi", width=1000, height=400)  # not all of it in view
    view.find("#canvas [tabindex='0']").focus()
    title = "document.activeElement.querySelector('title').textContent"
    names = [view.evaluate(title), *view.walk(["ArrowDown"] * 60, title)]
    for entry in (one for one in view.trace.entries if one.op or one.name):
        assert any(name.startswith(f"{entry.path}: ") for name in names), entry.path
    view.press("Enter")
    assert view.text("#panel .kicker") != "THE WHOLE PASS"


ATTENTION = "#canvas [data-scope$=attention]"
DRAWN_ANEW = {
    "the copy on top": ("stack", "End", "[aria-label='next of 12 alike']", ["Enter"], ""),
    "the panel": ("stack", "o", "#panel .bars .link", ["Enter"], "#panel"),
    "a head": ("multi", "3", ".thumbnail[data-head='1']", ["Enter"], ""),
    "a scope": ("deep", "o", ATTENTION, ["Enter"], "#canvas .node"),
    "a scope, and back": ("deep", "o", ATTENTION, ["Enter", "u"], ""),
}


@pytest.mark.parametrize(
    ("name", "first", "control", "keys", "kept"), DRAWN_ANEW.values(), ids=DRAWN_ANEW
)
def test_the_keyboard_keeps_its_place_where_a_part_is_drawn_anew(
    opened, name, first, control, keys, kept
):
    view = opened(name)
    view.press(first)
    view.find(control).first.focus()
    view.press(*keys)
    assert view.find(f"{kept or control}:focus").count() == 1


def test_tables_beside_the_record_stand_with_the_whole_pass(opened):
    view = opened("tables", width=400)
    found = view.find(".tabled").first
    assert found.locator("thead").inner_text().split() == ["token", "share"]
    cells = [row.locator("th, td").all_text_contents() for row in found.locator("tbody tr").all()]
    assert cells == ROWS
    assert [one.get_attribute("open") for one in view.find(".tabled").all()] == ["", None]
    assert view.evaluate("window.hurt") is None
    assert view.wide() <= 0


def test_a_long_graph_is_cut_into_parts_that_open(opened):
    view = opened("long")
    view.press("Home")
    assert 0 < view.find("#canvas .node").count() < 60
    assert active(view, "scope") == "values 1 to 15"
    for key in ("Enter", "End"):
        view.press(key)
        assert active(view) == "1"


def test_search_finds_a_node_and_goes_there(opened):
    view = opened("self")
    view.press("/")
    assert view.find("#search").is_visible()
    view.page.keyboard.type("softmax")
    view.press("Enter")
    assert not view.find("#search").is_visible()
    assert "softmax, A" in view.text("#now")
    view.press("/")
    view.page.keyboard.type("W_Q")
    view.press("ArrowDown")
    assert view.find("#hits li:first-child :focus").count() == 1
    view.press("Enter")
    assert view.text("#panel .kicker").lower() == "parameter"
    view.press("?")
    for word in ("next step", "play or pause", "find a node", "open the closed scope"):
        assert word in view.text("#keys")


# ---------------------------------------------------------------- the panel


def test_the_panels_numbers_agree_with_numpy(opened):
    view = opened("self")
    t = view.trace
    for entry in (t[id] for id in t.backward_steps):
        backward_to(view, entry)
        gradient = entry.gradient
        card = '.heat[data-kind="gradient"]'
        for stat, wanted in (
            ("min", gradient.min()), ("max", gradient.max()), ("gradient-rms", rms(gradient)),
        ):  # fmt: skip
            np.testing.assert_allclose(view.values(f'{card} [data-stat="{stat}"]'), [wanted])
        sent = [rms(e.contribution) for e in t.into(entry) if e.contribution is not None]
        selector = '.heat[data-kind="sent"] [data-stat="sent-rms"]'
        np.testing.assert_allclose(view.values(selector), sent, rtol=1e-12)
        texts = [one.replace("−", "-") for one in view.find(selector).all_inner_texts()]
        np.testing.assert_allclose([*map(float, texts)], sent, rtol=5e-3)


def test_the_rule_is_in_the_steps_own_symbols_which_mark_their_nodes(opened):
    view = opened("self")
    backward_to(view, view.trace["A"])
    rule = view.find(".rule > math").first.evaluate("math => math.textContent")
    assert re.sub(r"\s", "", rule) == "∂L∂Smasked=A⊙(∂L∂A−rowsum(∂L∂A⊙A))"
    assert re.search(r"\w+\.py:\d+", view.text(".where"))
    number = str(view.trace["A"].id)
    view.find(f'.rule [data-of="{number}"]').first.hover()
    assert view.find(".node.marked").get_attribute("data-node") == number


def test_the_panel_of_a_leaf_has_its_matrices_as_colours_and_text_and_the_terms_of_its_sum(opened):
    view = opened("self")
    X = view.trace["X"]
    view.find(f"#n{X.id}").click()
    card = view.find('.heat[data-kind="value"]')
    card.get_by_label("next matrix").click()
    assert card.locator(".which").inner_text() == "[1]"
    card.locator("canvas").focus()
    view.press("ArrowRight")
    where, value = card.locator(".reading").inner_text().rsplit(maxsplit=1)
    assert where == "[1, 0, 1]"
    card.locator("summary").click()
    shown = [value, *card.locator("td").all_inner_texts()]
    numbers = [float(cell.replace("−", "-")) for cell in shown]
    np.testing.assert_allclose(numbers, [X.value[1, 0, 1], *X.value[1].ravel()], rtol=1e-3)
    assert view.find(".terms").first.locator("li").count() == 3
    wanted = rms(X.gradient) / sum(rms(e.contribution) for e in view.trace.uses(X))
    np.testing.assert_allclose(view.values('[data-stat="cancellation"]'), wanted, rtol=1e-9)


def test_the_ends_of_a_gradients_bar_have_the_colours_of_the_least_and_the_largest(opened):
    """Both are above zero at the loss: no end of the bar is blue, as entries below zero are."""
    view = opened("self")
    view.step("#backward-1")
    bar = view.find('.heat[data-name="gradient of loss"] .range .bar').first
    colours = re.findall(r"rgb\(\d+, \d+, \d+\)", bar.evaluate("one => one.style.background"))
    assert len(colours) == 9
    assert len({*colours}) == 1
    assert all(int(r) > int(b) for r, _, b in (re.findall(r"\d+", one) for one in colours))


# ---------------------------------------------------------------- chapters


def test_chapters_show_each_measured_difference_and_lead_to_the_step_that_finds_it(opened):
    view = opened("multi")
    view.press("2")
    assert view.find(".chapter.right").count() == 7
    assert view.find(".chapter.wrong").count() == 0
    shown = view.values('.line-of [data-stat="difference"]')
    assert shown == [c.difference for c in view.trace.check().measured]
    assert view.find(".numeral").all_inner_texts() == [*"1234567"]
    view.page.get_by_label("show the step that finds the gradient of W_O").click()
    entry = view.trace.backward_steps[int(hash_of(view).removeprefix("#backward-")) - 1]
    assert "W_O" in [view.trace[e.source].name for e in view.trace.into(view.trace[entry])]
    assert "output projection" in view.text(".by-hand")


RED = "rgb(179, 38, 30)"
DRAWN = "(e, part) => getComputedStyle(e)[part]"
TICKS = """() => {
  const c = document.getElementById("ticks"), pixels = c.getContext("2d");
  const { data } = pixels.getImageData(0, c.height / 2, c.width, 1);
  let red = 0;
  for (let i = 0; i < data.length; i += 4) red += data[i] > 150 && data[i + 1] < 90;
  return red / c.width;
}"""


def test_what_is_not_finite_is_red_wherever_it_is_drawn(opened):
    view = opened("infinite")
    said = f"#n{next(e.id for e in view.trace.entries if e.op == 'log')} text.f-alarm"
    for selector, part in (
        (".node.leaf text.f-alarm", "fill"), (said, "fill"), (".bars .track i", "backgroundColor"),
    ):  # fmt: skip
        assert view.find(selector).first.evaluate(DRAWN, part) == RED
    assert "NaN" in (view.find(said).text_content() or "")
    assert "NaN or ∞ appears first" in view.text(".verdict.wrong")  # of a value
    assert view.evaluate(TICKS) > 0.2
    view.press("End", "ArrowLeft")
    assert view.find(".edge.known path.s-alarm").count() > 0


def test_a_planted_wrong_rule_is_red_on_node_timeline_and_chapter(opened):
    view = opened("wrong")
    assert view.evaluate(TICKS) > 0.01
    assert "1 of 12 steps wrong" in view.text("#summary")
    assert "rule for x is no derivative" in view.text(".verdict.wrong")
    faulty, A = view.find(".node.wrong"), view.trace["A"]
    assert faulty.get_attribute("data-node") == str(A.id)
    assert faulty.locator(".cell").evaluate(DRAWN, "fill") == RED
    assert faulty.locator("path").first.evaluate(DRAWN, "stroke") == RED
    backward_to(view, A)
    assert "WRONG" in view.text("p.measured.differs")
    view.press("2")
    first = view.trace.check().first_wrong
    assert first is not None
    assert f"First wrong step: {first.number}, softmax" in view.text("#panel .verdict.wrong")
    shown = view.values('.verdict.wrong [data-stat="difference"]')
    np.testing.assert_allclose(shown, first.difference, rtol=1e-12)
    classes = [view.find(f'.chapter[data-step="{n}"]').get_attribute("class") for n in (2, 3)]
    assert ["wrong" in (one or "") for one in classes] == [False, True]


# ---------------------------------------------------------------- attention


def test_attention_shows_the_head_that_is_chosen_with_its_figures(opened):
    view = opened("multi")
    view.press("3")
    seen = np.where(view.trace["A"].value > 0, view.trace["A"].gradient, 0)
    for head, norm in enumerate(np.linalg.norm(seen[0], axis=(-2, -1))):
        view.find(f'.thumbnail[data-head="{head}"]').click()
        assert view.find(".attention-head .axes canvas").count() == 2
        shown = view.values('.attention-head [data-stat="norm"]')
        np.testing.assert_allclose(shown, norm, rtol=1e-5)
    assert "cat" in view.text(".attention-head .axes")
    assert "hatched" in view.text("#panel .lead")


def test_lines_from_query_to_key_show_both_signs_of_the_gradient(opened):
    view = opened("multi")
    view.press("3")
    gradient = np.tril(view.trace["A"].gradient[0, 0])  # the rest is masked
    drawn = np.abs(gradient) > 0.02 * np.abs(gradient).max()
    for sign, those in (("raises", gradient > 0), ("lowers", gradient < 0)):
        assert view.find(f".pull.{sign}").count() == (drawn & those).sum()
    view.find('.token.query[data-index="2"]').first.focus()
    kept = view.find(".pull.raises:not(.aside), .pull.lowers:not(.aside)")
    assert kept.count() == drawn[2].sum()
    assert "A “sat” → " in view.text(".lines-of-tokens .reading")
    view.press("ArrowDown")
    assert "A “on” → " in view.text(".lines-of-tokens .reading")


def test_the_one_query_that_the_loss_depends_on_is_picked_out(opened):
    view = opened("asking")
    view.press("3")
    assert {*view.find(".token.pointed").all_text_contents()} == {"on"}
    assert "one query, “on”" in view.text("#panel .lead")
    assert "A “on” → " in view.text(".lines-of-tokens .reading")


def test_hover_and_arrow_keys_read_a_pair(opened):
    view = opened("self")
    view.press("3")
    canvas = view.find(".attention-head .axes canvas").first
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": box["width"] * 0.3, "y": box["height"] * 0.5})  # row 2, column 1
    A = view.trace["A"].value[0]
    reading = view.text(".attention-head > .reading")
    assert reading.startswith("“sat” looks at “cat”: A = ")
    shown = float(re.findall(r"A = ([\d.e−-]+)", reading)[0].replace("−", "-").rstrip("."))
    np.testing.assert_allclose(shown, A[2, 1], rtol=5e-3)
    view.page.mouse.move(0, 0)
    view.find("#tabs button").last.focus()
    while view.evaluate("document.activeElement.tagName") != "CANVAS":
        view.press("Tab")
    assert view.text(".attention-head > .reading").startswith("“the” looks at “the”: A = 1")
    view.press("ArrowRight")
    assert "“the” looks at “cat”: masked" in view.text(".attention-head > .reading")
    assert hash_of(view) == "#overview"  # the arrow moved within the heatmap


# ---------------------------------------------------------------- for everyone


def test_text_has_a_contrast_of_four_and_a_half(opened):
    view = opened("self")
    for theme in ("light", "dark"):
        assert view.evaluate("document.documentElement.dataset.theme") == theme
        for keys in (("o",), ("Home", "ArrowRight"), ("b", "ArrowRight"), ("2",), ("3",)):
            view.press(*keys)
            assert view.evaluate(FAINT) == [], (theme, keys)
        view.press("t")


def test_every_control_has_a_name_and_a_focus_ring(opened):
    view = opened("self")
    view.press("Home")
    seen = set()
    for _ in range(40):
        view.press("Tab")
        found = view.evaluate(FOCUSED)
        if found is not None:  # after the last control comes the browser itself
            name, rings = found
            assert name
            assert any(ring != "none" for ring in rings), name
            seen.add(name)
    assert {"Play", "Next step", "Step"} <= seen


def test_nothing_moves_for_who_asks_for_stillness(opened):
    view = opened("self")
    view.press("b", "ArrowRight")
    line, moving = view.find(".edge.lit path").first, "e => getComputedStyle(e).animationName"
    assert line.evaluate(moving) == "none"
    view.page.emulate_media(reduced_motion="no-preference")
    assert line.evaluate(moving) == "back"


def test_on_paper_stands_the_step_with_all_of_the_graph(opened):
    view = opened("stack", color_scheme="dark", width=1000, height=330)
    view.press(*"++++++++b")
    view.page.emulate_media(media="print")
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate(WHOLE)
    assert view.evaluate("document.documentElement.dataset.theme") == "light"
    assert not view.find("#play").is_visible()
    assert "mean" in view.text("#panel h2")
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"


def test_on_paper_the_graph_has_one_sheet_and_no_formula_is_cut_off(opened):
    view = opened("multi", width=700, height=990)
    view.press("b")
    sheets = re.findall(rb"/Type /Page\b", view.page.pdf(format="A4"))
    assert len(sheets) == 2  # the graph, and the step
    view.press("2")
    view.page.emulate_media(media="print")
    for formulas in view.find(".chapter :is(.shapes, .formula, .forward-of)").all():
        assert formulas.evaluate("e => e.scrollWidth <= e.clientWidth"), formulas.inner_text()
    assert not view.find("button.link:visible").count()


def test_the_whole_picture_is_seen_first_and_a_step_at_a_size_to_read(opened):
    view = opened("deep")

    def inside():
        drawing, canvas = (view.evaluate(HIGH, name) for name in (".drawing", "#canvas"))
        return drawing <= canvas, drawing

    fits, small = inside()
    assert fits
    view.press("Home")
    assert inside()[1] > 1.5 * small
    view.press("o")
    assert inside() == (True, small)


def test_the_page_fits_its_window(opened):
    view = opened("multi")
    for width in (360, 800, 1440):
        view.page.set_viewport_size({"width": width, "height": 800})
        view.open()
        for key in "b23":
            view.press(key)
            assert view.wide() <= 0, (width, key)


HIGH = "(name) => document.querySelector(name).getBoundingClientRect().height"
# The name of what has the focus, and every ring that may show it.
FOCUSED = """() => {
  const e = document.activeElement;
  if (e === document.body) return null;
  const name = e.getAttribute("aria-label") || e.title || e.textContent || e.id;
  return [name.trim(), [e, e.parentElement].map((one) => getComputedStyle(one).outlineStyle)];
}"""

# Whether all of the picture is within the graph's view.
WHOLE = """() => {
  const boxOf = (s) => document.querySelector(s).getBoundingClientRect();
  const [a, b] = [boxOf("#canvas"), boxOf(".drawing")];
  return b.left >= a.left && b.right <= a.right && b.top >= a.top && b.bottom <= a.bottom;
}"""

# Every piece of text whose contrast with what lies behind it is under 4.5 (3 where it is large).
FAINT = """() => {
  const parse = (c) => {  // rgb(1 2 3), or color(srgb .1 .2 .3)
    const [r, g, b, a] = (c.match(/[\\d.]+/g) || []).map(Number);
    const all = [r, g, b].map((x) => (c.startsWith("color") ? 255 * x : x));
    return a === undefined ? all : [...all, a];
  };
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.9) return c;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !e || !e.checkVisibility()) continue;
    if (e.closest("script, style, dialog:not([open]), button:disabled, svg, noscript")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [luminance(parse(style.color)), luminance(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) {
      faint.push(`${walker.currentNode.textContent.trim()} ${ratio.toFixed(2)} ${e.className}`);
    }
  }
  return faint;
}"""
