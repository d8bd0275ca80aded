"""The page as a file: what it holds, how names are escaped, what it refuses."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention, SelfAttention
from minigrad.errors import ArgumentError
from minigrad.views.formula import mathml
from minigrad.views.page import page_html
from minigrad.views.page.arrays import Arrays, pack
from minigrad.views.page.formulas import with_shapes
from minigrad.views.plain import one_line
from tests.browsing import record_of

from . import conftest


def cells(packed):
    flat = np.frombuffer(base64.b64decode(packed["data"]), "<f4").astype(float)
    shape = (packed["matrices"], packed["rows"], packed["columns"])
    return flat.reshape(shape) * packed.get("scale", 1.0)


# ---------------------------------------------------------------- the file


def test_the_page_is_one_file_that_asks_for_nothing(multi, tmp_path):
    text = multi.html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r' (?:src|href)="([^"]*)"', text) == [
        "data:,"
    ]  # an icon, so that none is asked for
    assert "default-src 'none'" in text
    assert not re.search(r"@import|fetch\(", text)


def test_the_page_without_its_data_is_within_200_kilobytes(multi):
    text = page_html(multi)
    data = len(text) - len(re.sub(r'(id="record">).*?(</script>)', r"\1\2", text, flags=re.S))
    assert len(text.encode()) - data < 200_000


@pytest.mark.parametrize("name", conftest.HOSTILE_NAMES)
def test_names_cannot_leave_the_script_element(name):
    x = mg.tensor([1.0, 2.0], requires_grad=True, name=name)
    with mg.trace() as t, mg.scope(name.replace("/", "|")):
        mg.sum(x * x).backward()
    text = page_html(t, title=name)
    block = text.split('id="record">')[1].split("</script>")[0]
    assert not re.search("[<>&\u2028\u2029\u202e]", block)
    shown = record_of(text)
    assert shown["title"] == one_line(name)
    assert text.count("<script") == 2
    drawn = "".join(re.findall(r"<template.*?</template>", text, re.S))
    assert drawn.count("<svg") == 1
    assert not re.search(
        "<(?!/?(?:template|svg|g|title|path|polygon|polyline|ellipse|text)\\b)", drawn
    )
    assert "\u202e" not in drawn


# ---------------------------------------------------------------- what it holds


def test_an_array_is_kept_once_however_often_it_appears():
    arrays = Arrays()
    assert arrays.add(np.arange(3.0)) == arrays.add(np.arange(3.0)) == 0
    assert arrays.add(np.arange(3.0, dtype=np.float32)) == 1
    assert arrays.add(np.arange(3.0).reshape(3, 1)) == 2
    assert arrays.add(np.arange(3.0)[::-1]) == 3  # of the same range and rms
    assert len(arrays.packed()) == 4


def test_large_arrays_are_pooled_and_say_so(rng):
    array = rng.normal(size=(130, 201))
    packed = pack(array)
    assert (packed["rows"], packed["columns"], packed["pool"]) == (44, 51, [3, 4])
    assert packed["max"] == array.max()  # of all entries, not of the pooled
    assert abs(cells(packed)).max() == np.float32(abs(array).max())


def test_many_large_arrays_are_pooled_further_and_every_head_is_kept(rng):
    arrays = Arrays()
    arrays.add(rng.normal(size=(1, 96, 128, 128)), heads=True)
    for _ in range(300):
        arrays.add(rng.normal(size=(9, 64, 64)))
    heads, *others = arrays.packed()
    assert (heads["matrices"], heads["pool"]) == (96, [2, 2])
    assert (others[0]["matrices"], others[0]["pool"]) == (4, [4, 4])
    assert sum(p["matrices"] * p["rows"] * p["columns"] for p in others) <= 750_000


def test_arrays_may_be_kept_in_full_or_left_out(rng):
    array = rng.normal(size=(70, 130))
    packed = {}
    for kind in ("full", "pooled", "none"):
        arrays = Arrays(kind)
        arrays.add(array)
        (packed[kind],) = arrays.packed()
    np.testing.assert_allclose(cells(packed["full"])[0], array, rtol=1e-6)
    assert (packed["pooled"]["rows"], packed["none"]["data"]) == (35, "")
    assert len({(p["min"], p["max"], p["rms"]) for p in packed.values()}) == 1


def test_a_page_too_large_for_a_browser_is_refused_with_what_to_do(single, monkeypatch):
    monkeypatch.setattr("minigrad.views.page.arrays.FULL_CELLS", 1000)
    with pytest.raises(ArgumentError, match=r'more than the 1,000 .*arrays="pooled" keeps'):
        page_html(single, arrays="full")
    monkeypatch.setattr("minigrad.views.page.content.MOST_VALUES", 5)
    with pytest.raises(ArgumentError, match=r"holds 20 values, a page at most 5; trace fewer"):
        page_html(single)


HALVES = np.array([[1.0, -0.5], [0.25, 0.0]])
ODD = [
    np.array([[1.0, np.nan, np.inf, -np.inf]]),
    *(size * HALVES for size in (1e-300, 1e-40, 1e300)),
]


@pytest.mark.parametrize("array", [*ODD, *map(np.ones, [(), (0,), (0, 3), (3, 0), (2, 0, 5)])])
def test_what_float32_does_not_hold_and_what_is_empty_survive(array):
    packed = pack(array)
    assert packed["shape"] == list(array.shape)
    np.testing.assert_allclose(cells(packed).ravel(), array.ravel(), rtol=1e-6)
    assert np.isfinite(array).all() or (packed["min"], packed["max"]) == ("nan", "nan")


def test_of_summaries_the_page_has_sizes_and_ranges_alone(rng):
    x = mg.tensor(rng.normal(size=(3, 5)), requires_grad=True, name="x")
    with mg.trace(keep="summaries") as t:
        mg.sum(mg.scale(x * x, np.float64(1))).backward()
    record = record_of(page_html(t))
    assert record["nodes"][2]["settings"] == {"factor": "1.0"}  # without NumPy's name
    array = record["arrays"][record["nodes"][0]["gradient"]]
    assert (array["shape"], array["data"]) == ([3, 5], "")
    np.testing.assert_allclose(array["rms"], np.sqrt(np.mean((2 * x.numpy()) ** 2)))


def test_the_fixed_scale_is_the_same_on_every_page(single):
    bounds = {
        scale: record_of(page_html(single, scale=scale))["scale"] for scale in ("run", "fixed")
    }
    told = [e for e in single if e.state not in ("none", "cancels")]
    sizes = [e.gradient_rms for e in told]
    np.testing.assert_allclose(10.0 ** np.array(bounds["run"])[[0, -1]], [min(sizes), max(sizes)])
    assert (bounds["fixed"][0], bounds["fixed"][-1]) == (-8, 4)


# ---------------------------------------------------------------- chapters


def test_each_measured_gradient_of_a_chapter_leads_to_the_node_of_its_symbol(single):
    record = record_of(page_html(single))
    (call,) = record["chapters"]
    for gradient in (one for step in call["steps"] for one in step["gradients"]):
        if gradient["ok"] is not None:
            node = record["nodes"][gradient["node"]]
            assert node["name"] == gradient["symbol"].removesuffix("_masked")  # no mask here
            assert gradient["shape"] == str(tuple(node["shape"]))


# ---------------------------------------------------------------- attention


def test_attention_figures_agree_with_numpy_and_masked_cells_are_those_forbidden(single, multi):
    (found,) = record_of(page_html(multi))["attention"]
    A, gradient = multi["A"].value, multi["A"].gradient
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(A * np.log(A), axis=-1).mean(axis=-1)
    np.testing.assert_allclose(found["entropy"], entropy.ravel(), rtol=1e-5)
    norms = np.linalg.norm(np.where(np.tri(7), gradient, 0), axis=(-2, -1))  # of what is not masked
    assert (norms < np.linalg.norm(gradient, axis=(-2, -1))).all()
    np.testing.assert_allclose(found["norm"], norms.ravel(), rtol=1e-5)
    assert (found["heads"], found["queries"], found["keys"]) == (3, 7, 7)
    assert found["masked"] == [0] * 6  # 2 in the batch, 3 heads: one mask for all
    bits = np.unpackbits(np.frombuffer(base64.b64decode(found["masks"][0]), np.uint8))[:49]
    np.testing.assert_array_equal(bits.reshape(7, 7), np.triu(np.ones((7, 7)), 1))
    assert "masks" not in record_of(page_html(single))["attention"][0]


@pytest.mark.parametrize(
    ("n", "read", "decisive"), [(7, 3, 3), (7, slice(None), None), (1, 0, None)]
)
def test_a_query_is_decisive_if_the_loss_depends_on_it_and_on_no_other(rng, n, read, decisive):
    with mg.trace() as t:
        x, context = (rng.normal(size=(2, size, 5)) for size in (n, 7))
        out = MultiHeadAttention(5, 1, rng=rng)(x, context=context)
        mg.mean(out[:, read] ** 2).backward()
    (found,) = record_of(page_html(t))["attention"]
    assert found.get("decisive_query") == decisive


def test_layers_of_one_class_are_told_apart_by_the_names_that_pictures_have(rng):
    first, second = (SelfAttention(5, 3, 2, rng=rng) for _ in range(2))
    with mg.trace() as t:
        mg.mean(second(first(rng.normal(size=(1, 7, 5)))) ** 2).backward()
    record = record_of(page_html(t))
    names = ["self_attention", "self_attention (2)"]
    assert [one["label"] for one in record["attention"]] == names
    assert [call["scope"] for call in record["chapters"]] == names


def test_tokens_are_one_sequence_or_one_for_each_of_the_batch_and_must_fit(multi):
    seven = list("abcdefg")
    assert record_of(page_html(multi, tokens=iter(seven)))["tokens"] == [seven]
    assert record_of(page_html(multi, tokens=[seven, seven[::-1]]))["tokens"][1] == seven[::-1]
    for tokens, got in ((["a", "b"], r"1 list\(s\) of \[2\]"), ([seven] * 3, "3 list")):
        with pytest.raises(ArgumentError, match=rf"\[7\] positions, .* of \[1, 2\]; got {got}"):
            page_html(multi, tokens=tokens)


# ---------------------------------------------------------------- formulas


def test_shapes_take_the_symbols_places():
    shapes = {"O": (2, 5, 3), "out": (2, 5, 7), "W_O": (3, 7)}
    tree = mathml(with_shapes(r"\frac{\partial L}{\partial \mathrm{out}} W_O^\top", shapes))
    assert json.dumps(tree).count('["shape", "(2, 5, 7)"]') == 1
    assert tree[2:] == [
        ["room"],
        ["msup", ["shape", "(3, 7)"], ["mo", "⊤"]],
    ]


def test_the_gradient_along_copies_is_shown_from_three_of_them_on():
    strips = [record_of(page_html(conftest.chain(blocks)))["strips"] for blocks in (2, 3, 4)]
    assert [[len(strip["bars"]) for strip in some] for some in strips] == [[], [3], [4]]
