"""The SVG, parsed, and held against the record; what renders it, and whole files or none."""

import os
import re
from collections import Counter
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pytest
from minigrad.files import write

import minigrad as mg
from layers import BatchNorm, Linear
from minigrad.errors import MinigradError, MissingDependencyError
from minigrad.views import draw_trace
from minigrad.views import picture as rendering
from minigrad.views.colors import DARK, LIGHT
from minigrad.views.picture import render
from tests.planted import wrong_rules

from . import conftest as graphs

SVG = "{http://www.w3.org/2000/svg}"


def drawn(trace, tmp_path, **options):
    path = draw_trace(trace, tmp_path / "g.svg", **options)
    return ElementTree.parse(path).getroot()


def groups(root, kind):
    """The groups of nodes, edges or clusters by id, without the picture's prefix and the legend."""
    found = {
        g.attrib["id"].partition("-")[2]: g
        for g in root.iter(f"{SVG}g")
        if g.attrib.get("class", "").split(" ")[0] == kind
    }
    return {id: g for id, g in found.items() if not id.startswith("key")}


@pytest.mark.parametrize("make", [graphs.attention, graphs.states, graphs.hostile])
def test_every_part_has_a_title_and_ids_are_unique(make, tmp_path):
    root = drawn(make(), tmp_path)
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert max(Counter(ids).values()) == 1
    for kind in ("node", "edge", "cluster"):
        for id, group in groups(root, kind).items():
            title = group.find(f"{SVG}title")
            assert title is not None, id
            assert title.text not in (None, "", id), id


def test_the_root_has_a_role_a_name_and_a_description(single, tmp_path):
    root = drawn(single, tmp_path)
    assert root.attrib["role"] == "img"
    by_id = {e.attrib["id"]: e for e in root.iter() if "id" in e.attrib}
    name, description = (by_id[id] for id in root.attrib["aria-labelledby"].split())
    assert name.tag == f"{SVG}title"
    assert name.text == "Computation graph of self_attention"
    assert description.tag == f"{SVG}desc"
    assert "11 ops" in (description.text or "")


def test_the_names_of_scopes_lie_over_the_lines_that_cross_them(tmp_path):
    root = drawn(graphs.chain(3), tmp_path, fold=False)
    inside = list(root.iter())
    last = max(inside.index(g) for g in groups(root, "edge").values())
    names = {text.text: text for text in inside[last:] if text.tag == f"{SVG}text"}
    assert {"block0", "block1", "block2", "mlp"} <= names.keys()
    for name in ("block0", "mlp"):  # with a rim in the scope's own colour, which is drawn first
        assert names[name].attrib["paint-order"] == "stroke"
        assert names[name].attrib["stroke"] == LIGHT.cluster


def test_the_name_of_a_scope_fits_its_frame_in_a_wider_font_too(tmp_path):
    x = mg.tensor(2.0, requires_grad=True, name="x")
    name, helvetica = "W" * 20, 9.44 * 20  # wider than what the scope holds
    with mg.trace() as t:
        with mg.scope(name):
            y = mg.relu(x)
        y.backward()
    root = drawn(t, tmp_path)
    (frame,) = groups(root, "cluster").values()
    found = re.findall(r"[-\d.]+(?=,)", frame.find(f"{SVG}path").attrib["d"])
    (text,) = (x for x in root.iter(f"{SVG}text") if x.text == name)
    room = max(map(float, found)) - float(text.attrib["x"])
    assert room > 1.1 * helvetica


def test_what_follows_a_long_name_has_room_for_a_wider_font_too(tmp_path):
    name, helvetica = "W" * 20, 9.44 * 20
    with mg.trace() as t:
        mg.relu(mg.tensor(2.0, requires_grad=True, name=name)).backward()
    texts = {x.text: x for x in drawn(t, tmp_path).iter(f"{SVG}text")}
    start, after = (x.attrib["x"] for text, x in texts.items() if text in (name, "\u00a0 leaf"))
    assert float(after) - float(start) > 1.05 * helvetica


def test_states_and_sizes_are_numpys_own(single, tmp_path):
    nodes = groups(drawn(single, tmp_path), "node")
    for entry in single:
        size = np.sqrt(np.mean(np.square(entry.gradient)))
        state = "cancels" if entry.name == "b_K" else "ok"
        node = nodes[f"n{entry.id}"]
        assert state in node.attrib["class"].split()
        shown = float(re.findall(r"gradient rms ([^,]+),", node[0].text or "")[0])
        np.testing.assert_allclose(shown, size, rtol=0.06)


def test_every_state_and_every_reason_is_told(tmp_path):
    t = graphs.states()
    nodes, table = groups(drawn(t, tmp_path), "node"), t.table(200)
    for name in ("ok", "zero", "vanishing", "exploding", "non-finite"):
        node = nodes[f"n{t[name].id}"]
        assert name in node.attrib["class"].split(), name
    for entry in t:
        if entry.gradient is None:
            title = nodes[f"n{entry.id}"][0].text or ""
            assert f"no gradient: {t.explain_missing(entry)}" in title
            assert f"– no gradient: {t.explain_missing(entry)}" in table
    reasons = {t.explain_missing(e) for e in t if e.gradient is None}
    assert {"frozen", "constant", "detached", "unreached"} <= reasons
    assert "dim" in nodes[f"n{t['frozen'].id}"].attrib["class"].split()
    assert "dim" not in nodes[f"n{t['ok'].id}"].attrib["class"].split()
    for said in ("● ok", "○ exactly zero", "▼ vanishing", "▲ exploding", "‼ NaN or infinite"):
        assert said in table


def test_a_frozen_parameter_is_a_parameter_in_picture_and_table_and_a_buffer_is_none(tmp_path):
    frozen, given = Linear(3, 2, rng=0), mg.tensor(np.ones((5, 3)), name="given")
    frozen.freeze()
    with mg.trace() as t:
        mg.sum(BatchNorm(2)(frozen(given))).backward()
    nodes = groups(drawn(t, tmp_path), "node")
    for name, role in (("W", "parameter"), ("given", "input"), ("running_mean", "input")):
        (entry,) = (e for e in t if e.name == name)
        assert nodes[f"n{entry.id}"].attrib["class"].split()[1:] == [role, "none", "dim"]
        assert re.search(rf"{name} +{role} .*frozen", t.table(200))


def test_the_lines_are_as_wide_as_their_gradients_are_large(tmp_path):
    x = mg.tensor([1.0], requires_grad=True)
    y = mg.tensor([1.0], requires_grad=True)
    with mg.trace() as t:
        mg.sum(x * 1e-6 + y * 100.0).backward()
    edges = groups(drawn(t, tmp_path), "edge")
    widths = {g[0].text: float(g[1].attrib.get("stroke-width", 1)) for g in edges.values()}
    found = {title: re.search(r"gradient back: rms ([^;]+)", title) for title in widths if title}
    sizes = {title: float(size[1]) for title, size in found.items() if size}
    ordered = sorted(sizes, key=lambda title: sizes[title])
    assert [widths[title] for title in ordered] == sorted(widths[title] for title in ordered)
    assert widths[ordered[0]] < widths[ordered[-1]]


def test_auto_swaps_every_colour_that_the_dark_theme_changes(single, tmp_path):
    root = drawn(single, tmp_path)
    style = root.find(f"{SVG}style")
    assert style is not None
    assert style.text is not None
    assert "prefers-color-scheme: dark" in style.text
    used = {e.attrib[a] for e in root.iter() for a in ("fill", "stroke") if a in e.attrib}
    swapped = {c for c in used if f'="{c}"]' in style.text}
    fixed = set(LIGHT.bins) | {"#000001", "#fffffe", "none", "transparent"}
    same = {c for part, c in LIGHT.roles().items() if DARK.roles()[part] == c}
    assert used - swapped <= fixed | same, used - swapped - fixed - same
    assert all(LIGHT.roles()[part] in style.text for part in ("paper", "ink", "line"))
    assert f"#{root.attrib['id']}" in style.text


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_other_themes_are_the_same_for_every_reader(single, tmp_path, theme):
    root = drawn(single, tmp_path, theme=theme)
    assert "@media" not in (root.findtext(f"{SVG}style") or "")


def test_two_pictures_on_one_page_share_no_id(single, multi, tmp_path):
    one, two = (
        {e.attrib["id"] for e in drawn(t, tmp_path).iter() if "id" in e.attrib}
        for t in (single, multi)
    )
    assert not one & two


def test_hostile_names_arrive_as_text(tmp_path):
    t = graphs.hostile()
    root = drawn(t, tmp_path)
    shown = "".join(root.itertext())
    assert "</script>" in shown
    assert "\\N" in shown
    dot = t.draw(tmp_path / "g.dot").read_text(encoding="utf-8")
    assert "&#92;&#92;N" in dot  # to Graphviz a single \N is the node's name
    assert r"\n\u202e" in shown
    table = t.table(200)
    assert r"\n\u202e" in table
    assert not {"\x00", "\u202e"} & {*table}
    (script,) = root.iter(f"{SVG}script")
    assert script.text.strip() == (files("minigrad.views") / "zoom.js").read_text("utf-8").strip()
    allowed = set("svg title desc style script g text path polygon polyline ellipse".split())
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= allowed


def test_a_leaf_alone_and_a_trace_of_nothing_draw_too(tmp_path):
    path = mg.draw(mg.tensor([1.0], requires_grad=True, name="x"), tmp_path / "g.svg")
    assert len(groups(ElementTree.parse(path).getroot(), "node")) == 1
    with mg.trace() as t:
        pass
    assert groups(drawn(t, tmp_path), "node") == {}


def test_the_legend_says_whether_gradients_equal_the_steps_derived_by_hand(single, tmp_path):
    said = "".join(drawn(single, tmp_path).itertext())
    assert f"{len(single.check().measured)} gradients equal the hand-derived steps" in said
    with wrong_rules("softmax"):
        said = "".join(drawn(graphs.attention(), tmp_path).itertext())
    assert "differ from the hand-derived steps, first in step 3, softmax: that of S" in said
    assert "gradients equal" not in said


def test_the_ground_of_a_verdict_is_as_wide_as_browsers_draw_it(tmp_path):
    with wrong_rules("softmax"), mg.trace(check="ops") as wrong, mg.scope("a_layer_of_a_long_name"):
        mg.sum(
            mg.softmax(mg.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)) ** 2
        ).backward()
    root = drawn(wrong, tmp_path)
    texts = [e.text or "" for e in root.iter() if e.tag.endswith("}text")]
    row = next(text for text in texts if "is no derivative of it" in text)
    grounds = [e for e in root.iter() if e.get("fill") == LIGHT.alarm and e.get("points")]
    corners = [[float(p.split(",")[0]) for p in e.get("points").split()] for e in grounds]
    assert max(max(x) - min(x) for x in corners) > 4.7 * len(row)


# ---------------------------------------------------------------- renderers and files


DOT = 'digraph { a -> b [label="é"] }'


def test_the_bundled_program_is_found_and_renders():
    assert rendering.bundled() is not None
    assert b"</svg>" in render(DOT, "svg")
    assert render(DOT, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("pure", "dot", "format", "outcome"),
    [
        (False, 'echo "$@"', "svg", b"-Kdot -Tsvg\n"),
        (True, "echo %PDF", "pdf", b"%PDF\n"),
        (False, "", "svg", (MissingDependencyError, "pip install graphviz-pure")),
        (True, "", "pdf", (MissingDependencyError, "graphviz-pure does not make PDF")),
        (False, "echo broken >&2; exit 3", "svg", (MinigradError, "status 3: broken")),
    ],
)
def test_dot_on_the_path_is_the_alternative_and_an_error_says_what_is_missing(
    single, tmp_path, monkeypatch, pure, dot, format, outcome
):
    script, path = tmp_path / "dot", tmp_path / f"g.{format}"
    script.write_text(f"#!/bin/sh\n{dot}\n")
    script.chmod(0o755)
    monkeypatch.setattr(rendering, "bundled", lambda: "graphviz-pure" if pure else None)
    which = {"dot": str(script)} if dot else {}
    monkeypatch.setattr(rendering.shutil, "which", which.get)
    if isinstance(outcome, bytes):
        assert render(DOT, format) == outcome
    else:
        with pytest.raises(outcome[0], match=outcome[1]):
            single.draw(path)
        assert not path.exists()
        single.draw(tmp_path / "g.dot")


SUFFIXES = r"draw: .* must end in one of \.svg, \.png, \.pdf, \.dot, \.gv"
NO_FOLDER = "there is no folder .*nowhere.* to write"


@pytest.mark.parametrize(
    ("call", "name", "options", "said"),
    [
        ("draw", "g", {}, SUFFIXES),
        ("draw", "g.svg.gz", {}, SUFFIXES),
        ("draw", "nowhere/g.dot", {}, f"draw: {NO_FOLDER}"),
        ("html", "nowhere/g.html", {}, f"html: {NO_FOLDER}"),
        ("derivation", "nowhere/g.md", {}, f"derivation: {NO_FOLDER}"),
        ("draw", "g.svg", {"theme": "neon"}, "theme must be one of auto, light, dark, print"),
        ("draw", "g.svg", {"scale": "linear"}, "scale must be one of run, fixed"),
        ("draw", "g.svg", {"parameters": "around"}, "parameters must be one of"),
        ("draw", "g.svg", {"depth": -1}, "depth must be a whole number"),
        ("draw", "g.svg", {"depth": True}, "depth must be a whole number"),
        ("draw", "g.svg", {"focus": "nowhere"}, "focus='nowhere' names no scope.*self_attention"),
        ("html", "g.html", {"arrays": "all"}, "one of pooled, full, none, got 'all'"),
        ("html", "g.html", {"scale": "all"}, "one of run, fixed, got 'all'"),
        ("html", "g.html", {"check": "all"}, "None or 'ops', got 'all'"),
        ("html", "g.html", {"tokens": 3}, "tokens = 3"),
        ("draw", "g.svg", {"title": 3}, "title = 3"),
    ],
)
def test_what_cannot_be_drawn_or_written_is_refused(single, tmp_path, call, name, options, said):
    with pytest.raises(MinigradError, match=said):
        getattr(single, call)(tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "g.svg"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["g.svg"]
