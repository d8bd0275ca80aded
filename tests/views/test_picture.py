"""The picture: boxes and lines are the run's, and it can be read where it opens."""

import re
import xml.etree.ElementTree as ElementTree
from functools import partial
from html import unescape

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Sequential
from minigrad.errors import ArgumentError
from minigrad.views.layout import layout
from minigrad.views.picture import dot_of, svg_of
from minigrad.views.theme import INKS, Dark, Light, roles
from tests.record import models
from tests.views.graphs import RUNS, attention, language_model, mlp, two_uses

MODELS = [*RUNS.values(), *(partial(models.trained, number) for number in range(12))]


@pytest.mark.parametrize("run", MODELS)
@pytest.mark.parametrize("fold", [True, False])
def test_every_entry_and_every_use_is_drawn_once_between_its_boxes(run, fold):
    record = run()
    made = layout(record, depth=99, fold=fold)
    inner = {held.source for box in made.boxes for held in box.inside}
    assert sorted(e.id for box in {*made.boxes, *inner} for e in box.entries) == [
        *range(len(record.entries))
    ]
    inside = [edge for box in inner for e in box.entries for edge in e.uses]
    lines = [(line, edge) for line in made.lines for edge in line.edges]
    assert sorted(map(id, [edge for _, edge in lines] + inside)) == sorted(map(id, record.edges))
    for line, edge in lines:
        assert record.entries[edge.source] in line.source.entries
        assert record.entries[edge.target] in line.target.entries


def test_what_the_model_is_given_stays_a_box():
    x, W = models.leaf(2, 3, name="x"), models.leaf(3, 2, name="W")
    t = models.traced(lambda: mg.sum(x @ W))
    assert [box.label for box in layout(t).boxes] == ["x", "matmul", "sum"]


def test_a_leaf_of_many_uses_stands_in_each_op_that_takes_it():
    W = models.leaf(3, 3, name="W")
    tanh = models.chained("plain", lambda W, h, _: mg.tanh(h @ W))
    boxes = layout(models.traced(lambda: mg.sum(tanh(np.ones((1, 3)), [W] * 12)))).boxes
    holding = [box for box in boxes if any(held.source.label == "W" for held in box.inside)]
    assert [box.label for box in holding] == ["matmul"] * 12
    assert "W" not in [box.label for box in boxes]


def test_nothing_that_all_boxes_share_is_repeated_in_each():
    text = dot_of(attention()).text
    assert text.count("float64") == 1
    assert "✓" not in re.sub(r"graph \[.* labelloc=.*\n", "", text)


def test_the_main_sentence_comes_first_and_the_legend_has_three_lines():
    head = re.search(r" label=<(.*?)> labelloc", dot_of(attention()).text)[1]
    rows = re.findall(r'<TR><TD ALIGN="LEFT">(.*?)</TD></TR>', head)
    assert "loss = " in rows[0]
    assert len(rows) <= 1 + 3 + 4  # a long sentence, two verdicts and signs may take a line more


def test_no_sentence_makes_a_box_wide():
    text = dot_of(attention(), depth=9).text
    boxes = re.findall(r"^n\d+ .*", text, re.MULTILINE)
    said = [part for box in boxes for part in re.findall(r'POINT-SIZE="9">([^<]*)<', box)]
    assert max(len(unescape(part).strip()) for part in said) <= 24


def test_a_deep_model_opens_so_that_it_can_be_read_and_depth_opens_the_rest():
    record = language_model()
    chosen, every = layout(record), layout(record, depth=9)
    assert len(chosen.boxes) <= 26 < len(every.boxes)
    assert f"{len(chosen.boxes)} of {len(every.boxes)} boxes" in dot_of(record).text
    assert len(layout(record, depth=1).boxes) <= 6


def test_alike_modules_are_drawn_once_with_the_range_of_their_gradients():
    record = language_model()
    assert "×4" in dot_of(record).text
    box = next(b for b in layout(record, depth=9).boxes if b.label == "A")
    sizes = sorted(entry.gradient_rms for entry in box.entries)
    assert len(sizes) == 4
    assert box.gradient.split(" to ")[0] == f"{sizes[0]:#.2g}"


def test_of_alike_modules_those_that_differ_are_counted_and_lines_say_which_they_are_of():
    parts = [(Linear(5, 5, rng=seed), mg.relu, Linear(5, 5, rng=seed)) for seed in range(3)]
    blocks = [Sequential(*each) for each in parts]
    blocks[1][0].b.assign_(np.full(5, -100.0))  # every unit is dead
    called = models.chained("collected", lambda block, x, _: block(x))
    t = models.run(models.Net(called, blocks=blocks), np.ones((7, 5)))
    text = dot_of(t, depth=9).text
    assert "2 of 3 exactly zero" in text
    assert "from each" in text


def test_where_gradients_add_stands_their_sum_with_its_agreement():
    assert "Σ agreement 0.50" in dot_of(two_uses()).text  # |3 − 1| / (3 + 1)


def test_values_and_gradients_are_lines_beside_each_other():
    record = mlp()
    svg = svg_of(dot_of(record, depth=9))
    groups = re.findall(r'<g id="[^"]*" class="edge gradient">(.*?)</g>', svg, re.DOTALL)
    assert len(groups) == sum(line.sent != [] for line in layout(record, depth=9).lines)
    for group in groups:
        strokes = re.findall(r'<path fill="none" stroke="(#\w+)"', group)
        assert strokes[0] == Light.line
        assert strokes[1] in Light.lines


def test_a_trace_of_one_leaf_draws_that_leaf(tmp_path):
    x = mg.tensor([1.0], requires_grad=True, name="x")
    assert "<title>x: leaf" in mg.draw(x, tmp_path / "x.svg").read_text("utf-8")


@pytest.mark.parametrize("suffix", ["svg", "png", "dot", "gv"])
def test_each_format_is_what_its_suffix_says(suffix, tmp_path):
    path = mlp().draw(tmp_path / f"g.{suffix}", title="a run")
    begins = {"svg": b"<svg", "png": b"\x89PNG", "dot": b"digraph", "gv": b"digraph"}[suffix]
    assert path.read_bytes().startswith(begins)


def test_the_svg_is_well_formed_with_a_title_for_each_part_and_both_themes(tmp_path):
    name = 'W</title><script>&"'
    x = mg.tensor([1.0], requires_grad=True, name=name)
    with mg.trace() as t:
        mg.sum(x * 2.0).backward()
    tree = ElementTree.fromstring(t.draw(tmp_path / "g.svg").read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    groups = [g for g in tree.iter(f"{space}g") if g.get("class", "").startswith(("node", "edge"))]
    assert all(g.find(f"{space}title") is not None for g in groups)
    assert any(name in (g.find(f"{space}title").text or "") for g in groups)
    style = tree.find(f"{space}style").text
    assert all(colour in style for colour in (Dark.paper, Dark.ink, Light.ink))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"theme": "red"}, "theme must be one of auto, light, dark"),
        ({"depth": -1}, "depth must be a whole number"),
        ({"focus": "none"}, "names no scope of this trace; scopes: net"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, said, tmp_path):
    with pytest.raises(ArgumentError, match=said):
        mlp().draw(tmp_path / "g.svg", **options)
    with pytest.raises(ArgumentError, match="the path must end in one of"):
        mlp().draw(tmp_path / "g.jpg")


def luminance(colour):
    """As WCAG 2 defines it."""
    parts = np.array([*bytes.fromhex(colour[1:])]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [Light, Dark])
def test_text_and_lines_can_be_read_on_their_grounds(theme):
    for colour in (theme.ink, theme.muted, theme.alarm):
        assert contrast(colour, theme.paper) >= 4.5
    assert all(contrast(ink, colour) >= 4.5 for ink, colour in zip(INKS, theme.bins, strict=True))
    assert all(contrast(line, theme.paper) >= 3 for line in theme.lines)
    assert theme is Light or all(contrast(colour, theme.paper) >= 3 for colour in theme.bins)
    assert sorted(theme.bins, key=luminance) == [*theme.bins]


def test_no_two_parts_share_a_colour_so_that_an_svg_can_swap_them():
    parts = roles(Light).values()
    assert len({*parts}) == len(parts)
