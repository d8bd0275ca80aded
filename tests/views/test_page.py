"""The page: one file, no network, and data that says what the record says."""

import json
import re
from base64 import b64decode

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError
from minigrad.views.page import content, pack
from tests.compare import assert_same
from tests.views.graphs import RUNS, WORDS, attention, language_model


def cells(packed):
    data = np.frombuffer(b64decode(packed["data"]), "<f4").astype(float)
    shape = packed["matrices"], packed["rows"], packed["columns"]
    return data.reshape(shape) * packed.get("scale", 1.0)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_page_embeds_the_record_and_every_small_array(run):
    t = run()
    page = content(t)
    assert page["record"] == t.to_dict()
    for entry, shown in zip(t, page["entries"], strict=True):
        for name in ("value", "gradient"):
            array = getattr(entry, name)
            if array is None or array.dtype.kind not in "fiub":
                assert name not in shown
                continue
            packed = page["arrays"][shown[name]]
            assert packed["shape"] == list(array.shape)
            if packed["pool"] == [1, 1] and packed["matrices"] == np.prod(array.shape[:-2]):
                assert_same(cells(packed).ravel(), np.asarray(array, float).ravel(), 1e-6)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_each_formula_of_the_record_has_its_mathml(run):
    page = content(run())
    for entry in page["record"]["entries"]:
        for tex in [entry["symbol"], entry["slope"], entry["equation"], *entry["where"]]:
            assert not tex or tex in page["maths"]
    for use, edge in zip(page["uses"], page["record"]["edges"], strict=True):
        assert not use or {use["part"], edge["equation"]} <= page["maths"].keys()


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_entry_is_in_a_box_of_a_picture_that_can_be_opened(run):
    page = content(run())
    inner = {root for one in page["pictures"] for root in one["closed"].values()}
    assert inner | {""} == {one["root"] for one in page["pictures"]}
    shown = set()
    for one in page["pictures"]:
        own = [ids for box, ids in one["boxes"].items() if box not in one["closed"]]
        shown |= {number for ids in (*own, *one["held"].values()) for number in ids}
    assert shown == {*range(len(page["entries"]))}


def test_the_page_asks_nothing_of_the_network_and_cannot_be_broken_by_a_name(tmp_path):
    name = '</script><img src="http://example.org/x">'
    x = mg.tensor([1.0, 2.0], requires_grad=True, name=name)
    with mg.trace() as t:
        mg.sum(x * x).backward()
    text = t.html(tmp_path / "p.html", title=name).read_text("utf-8")
    assert text.count("</script>") == 3
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:)', re.sub(r'id="record">.*?</script>', "", text))


def test_tokens_name_the_positions_of_all_attention_that_is_as_long():
    page = content(attention(), tokens=WORDS)
    assert page["named"]
    assert page["attention"][0]["queries"] == [WORDS]
    pair = content(attention(), tokens=[WORDS, WORDS[::-1]])
    assert pair["attention"][0]["queries"][1] == WORDS[::-1]
    with pytest.raises(ShapeError, match="attention is over 7 positions, got 2 tokens"):
        content(attention(), tokens=["a", "b"])


def test_each_check_has_its_formula_and_how_far_the_run_was_from_it():
    page = content(language_model())
    checks = page["record"]["checks"]["results"]
    assert len({(check["scope"], check["call"]) for check in checks}) == 4
    for check, shown in zip(checks, page["checks"], strict=True):
        assert shown["inWords"].startswith("✓ off by")
        assert {shown["equation"], check["forward"]} <= page["maths"].keys()


@pytest.mark.parametrize(
    "shape", [(), (3,), (2, 3), (0, 3), (2, 130, 70), (60, 5, 7), (2, 3, 4, 5)]
)
def test_an_array_of_any_shape_is_packed_within_its_bounds(shape, rng):
    array = rng.normal(size=shape) * 1e40
    made = pack(array)
    assert made["rows"] <= 64
    assert made["columns"] <= 64
    assert made["matrices"] <= 48
    if array.size and made["pool"] == [1, 1]:
        assert_same(cells(made).ravel(), array.reshape(-1, *array.shape[-2:])[:48].ravel(), 1e-6)


def test_a_record_that_no_browser_opens_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("minigrad.views.page.MOST_VALUES", 2)
    with pytest.raises(ArgumentError, match="a page at most 2"):
        attention().html(tmp_path / "p.html")


def test_what_cannot_be_drawn_leaves_the_steps(monkeypatch):
    monkeypatch.setattr("minigrad.views.layout.MOST_BOXES", 2)
    page = content(attention())
    assert page["pictures"][0]["note"] == "too many boxes for a picture"
    assert json.dumps(page, allow_nan=False)
