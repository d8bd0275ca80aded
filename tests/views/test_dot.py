"""DOT text: its structure, what it escapes, and that it is the same each time."""

import itertools
import re

import numpy as np
import pytest

import minigrad as mg
from layers import TransformerBlock
from minigrad.views.colors import FIXED, THEMES, Scale, contrast, ink_on
from minigrad.views.dot import LOOKS, trace_dot

from . import conftest as graphs


def nodes(text):
    """The statement of each node, by its id."""
    found = re.findall(r"^\s*(\w+) (\[label=.* id=\w+.*\])$", text, re.MULTILINE)
    return {name: rest for name, rest in found if not name.startswith("key")}


def edges(text, kind):
    found = re.findall(r"^\s*(\w+) -> (\w+) \[(.*)\]$", text, re.MULTILINE)
    return [(a, b) for a, b, rest in found if f"class={kind}" in rest]


def test_kinds_differ_in_shape():
    t = graphs.states()
    drawn = nodes(trace_dot(t).text)
    shapes = {
        ("loss" if e.name == "loss" else e.kind, *re.findall(r" shape=(\w+)", drawn[f"n{e.id}"]))
        for e in t
    }
    kinds, found = zip(*shapes, strict=True)
    assert {"op", "leaf", "input", "constant", "loss"} <= {*kinds}
    assert len({*kinds}) == len(kinds), "one kind has one shape"
    assert len({*found}) >= 5


def test_saved_tensors_are_dotted_to_the_op_that_saved_them(single):
    kept = edges(trace_dot(single, saved=True).text, "saved")
    expected = {
        (f"n{origin}", f"n{entry.id}")
        for entry in single
        for _, origin in entry.saved
        if origin is not None
    }
    assert set(kept) == expected
    assert len(kept) == len(expected)
    assert edges(trace_dot(single).text, "saved") == []


def test_parameters_stand_inside_the_op_that_alone_takes_them_where_there_are_many_boxes(single):
    beside, inside = (trace_dot(single, parameters=where) for where in ("beside", "inside"))
    assert len(nodes(beside.text)) - len(nodes(inside.text)) == 8
    (op,) = (title for title in inside.titles.values() if "Q: op" in title)
    assert re.search(r"takes W_Q 15×2  float64, gradient rms \S+; takes b_Q 2  float64", op)
    assert trace_dot(single).text == beside.text
    blocks = [TransformerBlock(6, 2, rng=k) for k in range(2)]
    with mg.trace() as many:
        mg.sum(blocks[1](blocks[0](np.ones((1, 3, 6)))))
    assert "class=parameter" not in trace_dot(many, fold=False).text
    assert trace_dot(many, fold=False).text == trace_dot(many, fold=False, parameters="inside").text


def test_a_parameter_that_all_copies_of_a_block_share_stands_outside_them():
    W = mg.tensor(np.ones((3, 3)), requires_grad=True, name="W")
    with mg.trace() as t:
        h = mg.tensor(np.ones((2, 3)), requires_grad=True, name="h0")
        for _ in range(4):
            h = mg.tanh(h @ W)
        mg.sum(h).backward()
    text = trace_dot(t, parameters="inside").text
    assert "to each, 4 times" in text
    assert any("<B>W</B>" in rest for rest in nodes(text).values())


def test_depth_leaves_one_box_for_each_scope(multi):
    found = nodes(trace_dot(multi, depth=0).text)
    scopes = [rest for rest in found.values() if "scope " in rest]
    assert len(scopes) == 1
    assert "multi_head_attention" in scopes[0]
    assert "18 ops" in scopes[0]
    inside = [e for e in multi if e.scope and e.op is None and e.gradient is not None]
    assert len(found) < len(multi) - len(inside)


def test_focus_leaves_one_scope_and_what_touches_it(multi):
    found = nodes(trace_dot(multi, focus="multi_head_attention").text)
    assert sum("outside" in rest for rest in found.values()) == 1


def test_the_sum_shows_its_terms_and_how_much_cancels():
    x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(x * 5.0 - x * 4.0).backward()
    dot = trace_dot(t)
    assert "Σ" in dot.text
    assert "0.11" in nodes(dot.text)["n0sum"]
    assert "5.0" in dot.titles["n0sum"]
    assert "4.0" in dot.titles["n0sum"]


@pytest.mark.parametrize("keep", ["arrays", "summaries"])
def test_below_the_picture_stands_the_loss_with_its_sign(keep):
    x = mg.tensor(2.0, requires_grad=True, name="x")
    with mg.trace(keep=keep) as t:
        (x * -4.0).named("loss").backward()
    assert trace_dot(t).summary.endswith("loss = -8.0")


@pytest.mark.parametrize("style", LOOKS)
@pytest.mark.parametrize(("direction", "rank"), [("down", "TB"), ("right", "LR")])
def test_no_type_is_below_nine_points(style, direction, rank):
    text = trace_dot(graphs.chain(4), style=style, direction=direction, scale="fixed").text
    assert min(int(size) for size in re.findall(r'POINT-SIZE="(\d+)"', text)) >= 9
    assert f"rankdir={rank}" in text
    assert ("cluster_key" in text) == (style != "slide")  # the legend
    assert text.count("1e-8 – ") == text.count(" – 1e4") == 1


# ---------------------------------------------------------------- colours


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_everything_can_be_read_in_every_theme(theme):
    t = THEMES[theme]
    grounds = (t.paper, t.card, t.cluster, t.parameter, t.input, t.loss, t.outside)
    for ground in grounds:
        for ink in (t.ink, t.muted, t.alarm):
            assert contrast(ink, ground) >= 4.5, (ink, ground)
    assert all(contrast(ink_on(c), c) >= 4.5 for c in t.bins)
    assert all(contrast(line, t.paper) >= 2.95 for line in t.lines)
    parts = list(t.roles().values())
    assert len(set(parts) | set(t.bins)) == len(parts) + len(t.bins)


def test_bins_rise_in_lightness():
    for theme in THEMES.values():
        against_black = [contrast(c, "#000000") for c in theme.bins]
        assert all(b > 1.15 * a for a, b in itertools.pairwise(against_black))


def test_the_scale_is_fixed_and_holds_what_lies_outside():
    sizes = [0.0, 1e-30, 1e-8, 3e-2, 9.99e3, 1e30, float("inf"), float("nan")]
    assert [FIXED.bin(s) for s in sizes] == [0, 0, 0, 4, 7, 7, 7, 7]
    np.testing.assert_allclose(FIXED.bounds, np.arange(9) * 1.5 - 8)


def test_the_scale_on_request_just_holds_the_sizes():
    found = Scale.around([2e-3, 30.0, 0.0, float("nan")])
    np.testing.assert_allclose(found.bounds[:: len(found.bounds) - 1], np.log10([2e-3, 30.0]))
    assert Scale.around([2.0, 2.0]).high - Scale.around([2.0, 2.0]).low == 1
    assert Scale.around([]) == Scale(-0.5, 0.5)


# what red-green blind eyes see of linear RGB: protanopia and deuteranopia, Machado et al. 2009
PROTAN = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTAN = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]
XYZ = np.array([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]])


def lab(colour, seen):
    """A colour in CIE L*a*b*, as eyes of one kind see it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(np.array(seen) @ linear, 0.01, 1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen", [np.eye(3), PROTAN, DEUTAN])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_alarm_is_far_from_every_bin_for_red_green_blind_eyes_too(theme, seen):
    t = THEMES[theme]
    away = [np.linalg.norm(lab(t.alarm, seen) - lab(c, seen)) for c in t.bins]
    assert min(away) > 20, t.bins[int(np.argmin(away))]
