"""The page in a real browser: headless Chromium, from a file, with the network cut off.

Without Playwright or Chromium these tests are skipped; where CI is set they fail instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, SelfAttention, create_causal_mask
from minigrad.tracing import Trace
from minigrad.views.page import write_page
from minigrad.views.questions import questions

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

from . import conftest as graphs

pytestmark = pytest.mark.slow  # a browser finds the same on every Python

TOKENS = ["the", "cat", "sat", "on", "it"]
HOSTILE = '</script><img src=x onerror="window.hurt=1">\'"&\u202e שלום'


# ---------------------------------------------------------------- pages


def self_attention(query: int | None = None, **options: Any) -> Trace:
    rng = np.random.default_rng(3)
    x = mg.tensor(rng.normal(size=(2, 5, 7)), requires_grad=True, name="X")
    with mg.trace(**options) as t, mg.scope("attention"):
        out = SelfAttention(7, 3, 2, rng=rng)(x, create_causal_mask(5))
        out = out if query is None else out[:, query]
        mg.mean(out * out).named("loss").backward()
    return t


def parameter(rng: np.random.Generator, name: str, *shape: int) -> mg.Tensor:
    return mg.tensor(rng.normal(size=shape) / np.sqrt(shape[0]), requires_grad=True, name=name)


def mlp() -> Trace:
    rng = np.random.default_rng(7)
    x = mg.tensor(rng.normal(size=(11, 13)), name="x")
    W1, b1, W2 = (
        parameter(rng, n, *s) for n, s in (("W1", (13, 17)), ("b1", (17,)), ("W2", (17, 3)))
    )
    gain, bias = parameter(rng, "gain", 17), parameter(rng, "bias", 17)
    with mg.trace() as t:
        with mg.scope("mlp"), mg.scope("hidden"):
            h = mg.relu(mg.layer_norm(x @ W1 + b1, gain, bias)).named("h")
        logits = (h @ W2).named("logits")
        mg.cross_entropy(logits, rng.integers(0, 3, 11)).named("loss").backward()
    return t


def deep() -> Trace:
    rng = np.random.default_rng(5)
    model = LanguageModel(11, 8, 2, 3, max_len=5, rng=rng)
    tokens = rng.integers(0, 11, (2, 6))
    with mg.trace() as t:
        logits = mg.reshape(model(tokens[:, :-1]), (-1, 11))
        mg.cross_entropy(logits, tokens[:, 1:].ravel()).named("loss").backward()
    return t


def hostile() -> Trace:
    x = mg.tensor(np.ones((2, 2)), requires_grad=True, name=HOSTILE)
    y = mg.tensor(np.ones((2, 2)), requires_grad=True, name="W_" + HOSTILE)
    with mg.trace() as t, mg.scope('<b>"scope"</b>'):
        mg.sum(x @ y).named("<script>window.hurt=1</script>").backward()
    return t


PAGES: dict[str, tuple[Callable[[], Trace], dict[str, Any]]] = {
    "self": (self_attention, {"tokens": TOKENS}),
    "asking": (lambda: self_attention(query=3), {"tokens": TOKENS}),
    "multi": (lambda: graphs.attention("multi"), {"tokens": [*TOKENS, "the", "mat"]}),
    "mlp": (mlp, {}),
    "stack": (lambda: graphs.chain(12), {}),
    "deep": (deep, {}),
    "hostile": (hostile, {"title": HOSTILE}),
}


# ---------------------------------------------------------------- the browser


class Opened:
    """A page of a trace, what it asked of the network and what it complained of."""

    def __init__(self, trace: Trace, page: Page, path: Path) -> None:
        self.trace, self.page, self.path = trace, page, path
        self.asked: list[str] = []
        self.said: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        self.open()

    def open(self, hash: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.path.as_uri()}{hash}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def value(self, selector: str) -> float:
        """The number an element stands for, in full."""
        return float(self.page.locator(selector).first.get_attribute("data-value") or "nan")

    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Trace, Path]]:
    """Each page, written once."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, (build, options) in PAGES.items():
        trace = build()
        made[name] = (trace, trace.html(folder / f"{name}.html", **options))
    return made


@pytest.fixture
def opened(
    browser: Browser, written: dict[str, tuple[Trace, Path]]
) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_(name: str, **options: Any) -> Opened:
        options = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"} | options
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        trace, path = written[name]
        return Opened(trace, context.new_page(), path)

    yield open_
    for context in contexts:
        context.close()


# ---------------------------------------------------------------- nothing but the file


@pytest.mark.parametrize("name", PAGES)
def test_every_step_shows_without_a_request_or_a_complaint(
    opened: Callable[..., Opened], name: str
) -> None:
    view = opened(name)
    steps = len(view.trace.forward_steps) + len(view.trace.backward_steps)
    keys = ["Home", *["ArrowRight"] * min(steps, 30), "2", "3", "1", "End", "Enter", "u", "o"]
    for key in keys:
        view.press(key)
        assert view.page.locator("#panel > *").count() > 0
    assert [url for url in view.asked if not url.startswith(("file:", "data:", "about:"))] == []
    assert len([url for url in view.asked if url.startswith("file:")]) == 1
    assert view.said == []


def test_hostile_names_are_shown_as_they_are_and_do_nothing(opened: Callable[..., Opened]) -> None:
    view = opened("hostile")
    view.press("Home")
    assert view.page.evaluate("window.hurt") is None
    assert view.page.locator("img, #panel script, #canvas script").count() == 0
    shown = HOSTILE.replace("\u202e", "\\u202e")  # what turns text around is spelled out
    assert view.page.title() == view.text("#title") == shown
    view.press("/")
    assert shown in view.text("#hits")
    assert '<b>"scope"' in view.text("#hits")
    assert view.said == []


# ---------------------------------------------------------------- stepping


def test_keys_buttons_slider_and_hash_walk_through_both_passes(
    opened: Callable[..., Opened],
) -> None:
    view = opened("self")
    count = len(view.trace.forward_steps)
    assert view.hash() == "#overview"
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
            view.page.locator(action).click()
        else:
            view.press(action)
        assert view.hash() == hash, action
        assert view.text("#now").startswith(said), action
    view.page.locator("#range").fill("2")
    assert view.hash() == "#forward-2"
    view.open("#backward-3")
    assert view.text("#now").startswith("Backward step 3")
    view.open("#backward-99")
    assert view.text("#now") == "The whole pass"


def test_space_plays_and_pauses(opened: Callable[..., Opened]) -> None:
    view = opened("mlp")
    view.page.clock.install()
    view.open()
    view.press("Space")
    assert view.page.locator("#play").get_attribute("aria-pressed") == "true"
    view.page.clock.run_for(2500)
    assert view.hash() == "#forward-2"
    view.press("Space")
    view.page.clock.run_for(5000)
    assert view.hash() == "#forward-2"


def test_each_step_lights_its_node_and_lines_and_paints_what_has_arrived(
    opened: Callable[..., Opened],
) -> None:
    view = opened("self")
    t, X = view.trace, view.trace["X"]
    last_use = max(t.backward_steps.index(edge.target) for edge in t.uses(X))
    for phase, steps in (("forward", t.forward_steps), ("backward", t.backward_steps)):
        for number, entry in enumerate(steps):
            view.press("ArrowRight")
            active = view.page.locator(".node.active")
            assert active.get_attribute("data-node") == str(entry)
            back = phase == "backward"
            uses = [e for e in t.into(t[entry]) if not back or e.contribution is not None]
            assert view.page.locator(".edge.lit").count() == len(uses)
            painted = view.page.locator(f"#n{X.id} .on").is_visible()
            assert painted == (back and number >= last_use)


# ---------------------------------------------------------------- into scopes, and copies


def test_repeated_blocks_are_drawn_once_and_show_the_copy_of_the_step(
    opened: Callable[..., Opened],
) -> None:
    view = opened("stack")
    t, h = view.trace, [e.id for e in view.trace.entries if e.name == "h"]
    number = view.page.locator(f"#n{h[0]} .on")
    assert [view.page.locator(f"#n{id}").count() for id in h] == [1] + 11 * [0]
    assert " to " in (number.text_content() or "")  # of all copies
    view.open(f"#backward-{t.backward_steps.index(h[7]) + 1}")
    assert "block7, 8 of 12" in view.text("#crumbs")
    assert f"{t[h[7]].gradient_rms:.2g}" in (number.text_content() or "")
    view.press(".")
    assert view.hash() == f"#backward-{t.backward_steps.index(h[8]) + 1}"
    view.page.get_by_label("previous of 12 alike").click()
    assert view.hash() == f"#backward-{t.backward_steps.index(h[7]) + 1}"


def test_a_closed_scope_opens_by_key_and_by_click_and_the_way_back_is_above(
    opened: Callable[..., Opened],
) -> None:
    view = opened("deep")
    t = view.trace
    first = next(i for i, e in enumerate(t.forward_steps) if "attention" in t[e].scope)
    view.open(f"#forward-{first + 1}")
    scope = view.page.locator(".node.active").get_attribute("data-scope") or ""
    assert scope.endswith("blocks.0/attention")
    assert f"1 of 18 in attention: {t[t.forward_steps[first]].label}" in view.text("#crumbs")
    view.press("Enter")
    own = view.page.locator(".node.active").get_attribute("data-node")
    assert own == str(t.forward_steps[first])
    way = view.text("#crumbs .way").replace("\n", " ")
    assert re.sub(r"\s+", " ", way) == "all language_model decoder blocks.0 … blocks.2 ×3 attention"
    view.press(*["ArrowRight"] * 60)  # into the next block's, whose picture is the same
    assert view.page.locator(".node.active").get_attribute("data-node") is not None
    view.press("o")
    view.page.locator(f'.node[data-scope="{scope}"]').click()
    assert view.page.locator("#n0").count() == 0
    view.press("u")
    assert view.page.locator(f'.node[data-scope="{scope}"]').count() == 1
    view.page.locator(f'.node[data-scope="{scope}"]').click()
    view.page.locator("#crumbs .way button").first.click()
    assert view.page.locator(f'.node[data-scope="{scope}"]').count() == 1


def test_blocks_and_time_steps_are_passed_at_once(opened: Callable[..., Opened]) -> None:
    view = opened("stack")
    t = view.trace
    blocks = [t[i].scope.partition("/")[0] for i in t.forward_steps]
    view.press("Home", "PageDown", "PageDown")
    assert view.hash() == f"#forward-{blocks.index('block2') + 1}"
    view.press("PageUp")
    assert view.hash() == f"#forward-{blocks.index('block1') + 1}"
    view.page.clock.install(time=0)
    view.page.clock.pause_at(60_000)
    view.page.locator("#by").select_option("block")
    view.page.locator("#speed").select_option("4×")
    view.page.locator("#play").click()
    view.page.clock.run_for(600)
    assert view.hash() == f"#forward-{blocks.index('block3') + 1}"


def test_every_box_is_reached_and_named_by_keyboard(opened: Callable[..., Opened]) -> None:
    view = opened("multi", viewport={"width": 1000, "height": 400})  # not all of it in view
    view.page.locator("#canvas [tabindex='0']").focus()
    names = []
    for _ in range(60):
        names.append(
            view.page.evaluate("document.activeElement.querySelector('title').textContent")
        )
        view.press("ArrowDown")
    for entry in (one for one in view.trace.entries if one.op or one.name):
        assert any(name.startswith(f"{entry.path}: ") for name in names), entry.path
    view.press("Enter")
    assert view.text("#panel .kicker") != "THE WHOLE PASS"


def test_tables_beside_the_record_stand_with_the_whole_pass(
    browser: Browser, tmp_path: Path
) -> None:
    table = {"title": "gradient by token", "hint": "X enters", "columns": ["", "token", "share"]}
    rows = [["0", HOSTILE, "−0.5"], ["1", "sat", "+0.25"]]
    tables = [table | {"figures": [True, False, True], "rows": rows}]
    tables.append(tables[0] | {"title": "many", "rows": rows * 20})
    trace = self_attention()
    page = browser.new_page(viewport={"width": 400, "height": 900}, reduced_motion="reduce")
    view = Opened(trace, page, write_page(trace, tmp_path / "tables.html", tables=tables))
    found = page.locator(".tabled").first
    assert found.locator("thead").inner_text().split() == ["token", "share"]
    cells = [row.locator("th, td").all_text_contents() for row in found.locator("tbody tr").all()]
    assert cells == rows
    assert [one.get_attribute("open") for one in page.locator(".tabled").all()] == ["", None]
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert view.said == []
    page.close()


def test_a_long_graph_is_cut_into_parts_that_open(browser: Browser, tmp_path: Path) -> None:
    x = mg.tensor(np.ones(3), requires_grad=True, name="x")
    names = {"mg": mg, "y": x}
    with mg.trace() as trace:
        exec("y = mg.tanh(y)\n" * 1000 + "mg.sum(y).backward()", names)  # no loop: nothing folds
    page = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    view = Opened(trace, page, trace.html(tmp_path / "long.html"))
    view.press("Home")
    assert 0 < page.locator("#canvas .node").count() < 60
    assert page.locator(".node.active").get_attribute("data-scope") == "values 1 to 32"
    view.press("Enter")
    assert page.locator(".node.active").get_attribute("data-node") == "1"
    view.press("End")
    assert page.locator(".node.active").get_attribute("data-node") == "1"
    assert view.said == []
    page.close()


def test_a_symbol_of_a_formula_marks_its_node(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    t = view.trace
    swapped = next(e for e in t.entries if e.op == "swapaxes")
    view.open(f"#backward-{t.backward_steps.index(swapped.id) + 1}")
    view.page.locator(f'.rule [data-of="{swapped.id}"]').first.hover()
    assert view.page.locator(".node.marked").get_attribute("data-node") == str(swapped.id)


def test_search_finds_a_node_and_goes_there(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    view.press("/")
    assert view.page.locator("#search").is_visible()
    view.page.keyboard.type("softmax")
    view.press("Enter")
    assert not view.page.locator("#search").is_visible()
    assert "softmax, A" in view.text("#now")
    view.press("/")
    view.page.keyboard.type("W_Q")
    view.press("ArrowDown", "Enter")
    assert view.text("#panel .kicker").lower() == "parameter"
    view.press("?")
    for word in ("next step", "play or pause", "find a node", "open the closed scope"):
        assert word in view.text("#keys")


# ---------------------------------------------------------------- the panel


def test_the_panels_numbers_agree_with_numpy(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    for number, entry in enumerate(view.trace.backward_steps, 1):
        view.open(f"#backward-{number}")
        gradient = view.trace[entry].gradient
        card = '.heat[data-kind="gradient"]'
        figures = [view.value(f'{card} [data-stat="{s}"]') for s in ("min", "max", "gradient-rms")]
        wanted = [gradient.min(), gradient.max(), np.sqrt(np.mean(gradient**2))]
        np.testing.assert_allclose(figures, wanted, rtol=1e-12)
        shown = view.page.locator('.heat[data-kind="sent"] [data-stat="sent-rms"]').all()
        sent = [
            e.contribution for e in view.trace.into(view.trace[entry]) if e.contribution is not None
        ]
        figures = [float(one.get_attribute("data-value") or "nan") for one in shown]
        np.testing.assert_allclose(figures, [np.sqrt(np.mean(g**2)) for g in sent], rtol=1e-12)
        texts = [float(one.inner_text().replace("−", "-")) for one in shown]
        np.testing.assert_allclose(texts, figures, rtol=5e-3)


def test_the_numbers_as_text_agree_with_numpy(opened: Callable[..., Opened]) -> None:
    view = opened("mlp")
    view.open("#forward-2")
    view.page.locator('.heat[data-kind="value"] summary').first.click()
    cells = view.page.locator('.heat[data-kind="value"] td').all_inner_texts()
    shown = np.array([float(cell.replace("−", "-")) for cell in cells]).reshape(11, 12)
    wanted = view.trace[view.trace.forward_steps[1]].value[:, :12]
    np.testing.assert_allclose(shown, wanted, rtol=1e-3)


def test_the_rule_has_the_steps_own_symbols(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    number = view.trace.backward_steps.index(view.trace["A"].id) + 1
    view.open(f"#backward-{number}")
    rule = view.page.locator(".rule > math").first.evaluate("math => math.textContent")
    assert re.sub(r"\s", "", rule) == "∂L∂Smasked=A⊙(∂L∂A−rowsum(∂L∂A⊙A))"
    assert re.search(r"\w+\.py:\d+", view.text(".where"))


def test_a_value_used_three_times_shows_its_three_terms(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    view.page.locator(f"#n{view.trace['X'].id}").click()
    terms = view.page.locator(".terms").first.locator("li")
    assert terms.count() == 3
    x = view.trace["X"]
    sent = [np.sqrt(np.mean(e.contribution**2)) for e in view.trace.uses(x)]
    wanted = np.sqrt(np.mean(x.gradient**2)) / sum(sent)
    np.testing.assert_allclose(view.value('[data-stat="cancellation"]'), wanted, rtol=1e-9)


# ---------------------------------------------------------------- chapters


@pytest.mark.parametrize(("name", "steps"), [("self", 6), ("multi", 7)])
def test_chapters_show_each_step_with_its_measured_difference(
    opened: Callable[..., Opened], name: str, steps: int
) -> None:
    view = opened(name)
    view.press("2")
    assert view.page.locator(".chapter.right").count() == steps
    assert view.page.locator(".chapter.wrong").count() == 0
    shown = [
        float(one.get_attribute("data-value") or "nan")
        for one in view.page.locator('.line-of [data-stat="difference"]').all()
    ]
    assert shown == [c.difference for c in view.trace.check().measured]
    assert "1 2 3 4 5 6 7"[: 2 * steps - 1] == " ".join(
        view.page.locator(".numeral").all_inner_texts()
    )


def test_a_chapter_leads_to_the_step_that_finds_its_gradient(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    view.press("2")
    view.page.get_by_label("show the step that finds the gradient of W_O").click()
    entry = view.trace.backward_steps[int(view.hash().removeprefix("#backward-")) - 1]
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


def test_what_is_not_finite_is_red_wherever_it_is_drawn(browser: Browser, tmp_path: Path) -> None:
    x = mg.tensor(np.array([0.0, 1.0]), requires_grad=True, name="x")
    with mg.trace() as trace, np.errstate(all="ignore"):
        mg.sum(mg.sqrt(x) * 2.0 + mg.log(x - 1.0)).backward()
    page = browser.new_page(color_scheme="light")
    view = Opened(trace, page, trace.html(tmp_path / "infinite.html"))
    assert page.locator(".node.leaf text.f-alarm").evaluate(DRAWN, "fill") == RED
    assert page.locator(".bars .track i").first.evaluate(DRAWN, "backgroundColor") == RED
    assert "NaN or ∞ appears first" in view.text(".verdict.wrong")  # of a value
    assert page.evaluate(TICKS) > 0.2
    log = next(e for e in trace.entries if e.op == "log")
    said = page.locator(f"#n{log.id} text.f-alarm")
    assert "NaN" in (said.text_content() or "")
    assert said.evaluate(DRAWN, "fill") == RED
    view.press("End", "ArrowLeft")
    assert page.locator(".edge.known path.s-alarm").count() > 0
    page.close()


def test_a_planted_wrong_rule_is_red_on_node_timeline_and_chapter(
    browser: Browser, tmp_path: Path
) -> None:
    with graphs.wrong_softmax():
        trace = self_attention(check="ops")
    page = browser.new_page(color_scheme="light")
    view = Opened(trace, page, trace.html(tmp_path / "wrong.html"))
    assert page.evaluate(TICKS) > 0.01
    assert "1 of 12 steps wrong" in view.text("#summary")
    assert "rule for x is no derivative" in view.text(".verdict.wrong")
    faulty = page.locator(".node.wrong")
    assert faulty.get_attribute("data-node") == str(trace["A"].id)
    assert faulty.locator(".cell").evaluate(DRAWN, "fill") == RED
    assert faulty.locator("path").first.evaluate(DRAWN, "stroke") == RED
    view.open(f"#backward-{trace.backward_steps.index(trace['A'].id) + 1}")
    assert "WRONG" in view.text("p.measured.differs")
    view.press("2")
    first = trace.check().first_wrong
    assert first is not None
    assert first.difference is not None
    assert f"First wrong step: {first.number}, softmax" in view.text("#panel .verdict.wrong")
    shown = view.value('.verdict.wrong [data-stat="difference"]')
    np.testing.assert_allclose(shown, first.difference, rtol=1e-12)
    classes = [page.locator(f'.chapter[data-step="{n}"]').get_attribute("class") for n in (2, 3)]
    assert ["wrong" in (one or "") for one in classes] == [False, True]
    page.close()


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize(("name", "heads"), [("self", 1), ("multi", 3)])
def test_attention_shows_the_head_that_is_chosen_with_its_figures(
    opened: Callable[..., Opened], name: str, heads: int
) -> None:
    view = opened(name)
    view.press("3")
    seen = np.where(view.trace["A"].value > 0, view.trace["A"].gradient, 0)
    norms = np.linalg.norm(seen, axis=(-2, -1)).reshape(-1, heads)[0]
    for head in range(heads):
        if heads > 1:
            view.page.locator(f'.thumbnail[data-head="{head}"]').click()
        assert view.page.locator(".attention-head .axes canvas").count() == 2
        shown = view.value('.attention-head [data-stat="norm"]')
        np.testing.assert_allclose(shown, norms[head], rtol=1e-5)
    assert "cat" in view.text(".attention-head .axes")
    assert "hatched" in view.text("#panel .lead")


def test_lines_from_query_to_key_show_both_signs_of_the_gradient(
    opened: Callable[..., Opened],
) -> None:
    view = opened("multi")
    view.press("3")
    gradient = np.tril(view.trace["A"].gradient[0, 0])  # the rest is masked
    drawn = np.abs(gradient) > 0.02 * np.abs(gradient).max()
    for sign, those in (("raises", gradient > 0), ("lowers", gradient < 0)):
        assert view.page.locator(f".pull.{sign}").count() == (drawn & those).sum()
    view.page.locator('.token.query[data-index="2"]').first.focus()
    kept = view.page.locator(".pull.raises:not(.aside), .pull.lowers:not(.aside)")
    assert kept.count() == drawn[2].sum()
    assert "A “sat” → " in view.text(".lines-of-tokens .reading")


def test_the_one_query_that_the_loss_depends_on_is_picked_out(
    opened: Callable[..., Opened],
) -> None:
    view = opened("asking")
    view.press("3")
    assert {*view.page.locator(".token.pointed").all_text_contents()} == {"on"}
    assert "one query, “on”" in view.text("#panel .lead")
    assert "A “on” → " in view.text(".lines-of-tokens .reading")


def test_hover_and_arrow_keys_read_a_pair(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    view.press("3")
    canvas = view.page.locator(".attention-head .axes canvas").first
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": box["width"] * 0.3, "y": box["height"] * 0.5})  # row 2, column 1
    A = view.trace["A"].value[0]
    reading = view.text(".attention-head > .reading")
    assert reading.startswith("“sat” looks at “cat”: A = ")
    shown = float(re.findall(r"A = ([\d.e−-]+)", reading)[0].replace("−", "-").rstrip("."))
    np.testing.assert_allclose(shown, A[2, 1], rtol=5e-3)
    view.page.mouse.move(0, 0)
    view.page.locator("#tabs button").last.focus()
    while view.page.evaluate("document.activeElement.tagName") != "CANVAS":
        view.press("Tab")
    assert view.text(".attention-head > .reading").startswith("“the” looks at “the”: A = 1")
    view.press("ArrowRight")
    assert "“the” looks at “cat”: masked" in view.text(".attention-head > .reading")
    assert view.hash() == "#overview"  # the arrow moved within the heatmap


# ---------------------------------------------------------------- for everyone


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_a_contrast_of_four_and_a_half(opened: Callable[..., Opened], scheme: str) -> None:
    view = opened("self", color_scheme=scheme)
    assert view.page.evaluate("document.documentElement.dataset.theme") == scheme
    for keys in (("o",), ("Home", "ArrowRight"), ("b", "ArrowRight"), ("2",), ("3",)):
        view.press(*keys)
        assert view.page.evaluate(FAINT) == [], keys
    view.press("t")
    assert view.page.evaluate("document.documentElement.dataset.theme") != scheme


def test_every_control_has_a_name_and_a_focus_ring(opened: Callable[..., Opened]) -> None:
    view = opened("self")
    view.press("Home")
    seen = set()
    for _ in range(40):
        view.press("Tab")
        found = view.page.evaluate(FOCUSED)
        if found is not None:  # after the last control comes the browser itself
            name, rings = found
            assert name
            assert any(ring != "none" for ring in rings), name
            seen.add(name)
    assert {"Play", "Next step", "Step"} <= seen


def test_nothing_moves_for_who_asks_for_stillness(opened: Callable[..., Opened]) -> None:
    view = opened("self", reduced_motion="reduce")
    view.press("b", "ArrowRight")
    moving = "e => getComputedStyle(e).animationName"
    assert view.page.locator(".edge.lit path").first.evaluate(moving) == "none"
    lively = opened("self", reduced_motion="no-preference")
    lively.press("b", "ArrowRight")
    assert lively.page.locator(".edge.lit path").first.evaluate(moving) == "back"


def test_on_paper_stands_the_step_with_all_of_the_graph(opened: Callable[..., Opened]) -> None:
    view = opened("stack", color_scheme="dark")
    view.page.set_viewport_size({"width": 1000, "height": 330})
    view.press(*"++++++++b")
    view.page.emulate_media(media="print")
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.page.evaluate(WHOLE)
    assert view.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert not view.page.locator("#play").is_visible()
    assert "mean" in view.text("#panel h2")
    view.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_whole_picture_is_seen_first_and_a_step_at_a_size_to_read(
    opened: Callable[..., Opened],
) -> None:
    view = opened("deep")

    def inside() -> tuple[bool, float]:
        drawing, canvas = (
            view.page.locator(name).bounding_box() for name in (".drawing", "#canvas")
        )
        assert drawing is not None
        assert canvas is not None
        return drawing["height"] <= canvas["height"], drawing["height"]

    fits, small = inside()
    assert fits
    view.press("Home")
    assert inside()[1] > 1.5 * small
    view.press("o")
    assert inside() == (True, small)


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_the_page_fits_its_window(opened: Callable[..., Opened], width: int) -> None:
    view = opened("multi", viewport={"width": width, "height": 800})
    for keys in (("b",), ("2",), ("3",)):
        view.press(*keys)
        overflow = view.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, keys


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


# ---------------------------------------------------------------- predict, then reveal


def test_a_gradient_is_shown_once_it_was_guessed_by_keyboard_alone(
    opened: Callable[..., Opened],
) -> None:
    view = opened("self")
    asked = questions(view.trace)
    number = next(i for i, one in enumerate(asked) if len(one.parts) == 2 and one.number > 1)
    view.open(f"#backward-{asked[number].number}")
    sent = view.page.locator("[data-kind=sent]")
    assert sent.count() > 0
    view.press("p")
    assert sent.count() == 0
    assert asked[number].asks in view.text(".quiz")
    view.page.locator(".hint-of summary").press("Enter")
    assert view.page.locator(".hint-of math").first.is_visible()
    for part, one in enumerate(asked[number].parts):
        view.page.locator(f".quiz [name=part{part}]").first.focus()
        view.press("Space", *["ArrowDown"] * one.right)
    view.press("Enter")
    assert sent.count() > 0
    assert f"✓ Right. It is {asked[number].parts[0].choices[asked[number].parts[0].right]}" in (
        view.text(".quiz")
    )
    assert asked[number].answer in view.text(".quiz")
    assert view.text("#predict") == "Predict 2/2"
    view.press("Enter")  # the next step has the focus
    for part in range(len(asked[number + 1].parts)):
        wrong = (asked[number + 1].parts[part].right + 1) % 3
        view.page.locator(f".quiz [name=part{part}]").nth(wrong).check()
    view.page.locator(".quiz [type=submit]").press("Enter")
    assert "Not so." in view.text(".quiz")
    assert view.text("#predict") == f"Predict 2/{2 + len(asked[number + 1].parts)}"
    view.press("p")
    assert view.page.locator(".quiz").count() == 0
    assert not view.said
