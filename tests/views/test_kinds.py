"""Every view shows every kind of model, and all of them the same figures, which are NumPy's."""

import re

import numpy as np
import pytest

from minigrad.views import words
from minigrad.views.derivation import derivation
from minigrad.views.layout import layout
from minigrad.views.page import content
from minigrad.views.picture import dot_of
from minigrad.views.table import table
from tests.record.models import KINDS


def figure(array):
    """The rms of an array, or one number with its sign, as NumPy gives it."""
    size = array.item() if array.size == 1 else np.sqrt(np.mean(np.square(array)))
    return words.sized(float(size))


@pytest.mark.parametrize("kind", KINDS)
def test_each_figure_is_numpys_in_every_view(kind):
    t = KINDS[kind]()
    page, text = content(t), derivation(t).replace("\\", "")
    rows = re.sub(r"\s+", " ", table(t, 400))
    boxes = {
        entry.id: box
        for box in layout(t, depth=99, fold=False).boxes
        for box in (box, *(held.source for held in box.inside))
        for entry in box.entries
    }
    told = [entry for entry in t if entry.state in ("ok", "vanishing", "exploding")]
    for entry in told:
        size = figure(entry.gradient)
        assert page["entries"][entry.id]["inWords"] == size
        assert boxes[entry.id].gradient == size
        assert f" {size} " in rows
        assert entry.op or f"{size} " in text or f"{size} |" in text
    for use, edge in zip(page["uses"], t.edges, strict=True):
        assert not use or use["inWords"] == figure(edge.contribution)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"direction": "right"}, {"color_by": "time"}])
def test_every_kind_is_drawn_each_way(kind, options):
    text = dot_of(KINDS[kind](), **options).text
    assert (" class=gradient" in text) == ("color_by" not in options)
    assert (" ms\u00a0" in text) == ("color_by" in options)


def test_parameters_are_counted_without_buffers():
    t = KINDS["cnn"]()
    held = {id(e): e.size for e in t if e.kind == "parameter"}
    assert f"{sum(held.values()):,} parameters" in words.summary(t)
    assert not any(
        "running" in one.label for box in layout(t, depth=9).boxes for one in box.entries
    )


def test_a_shared_weight_shows_the_part_of_each_use_and_the_whole():
    t = KINDS["tied"]()
    W = next(e for e in t if e.path.endswith("cell/W"))
    cells = [
        held for box in layout(t, depth=9).boxes for held in box.inside if W in held.source.entries
    ]
    assert [held.gradient for held in cells] == [figure(edge.contribution) for edge in W.uses]
    assert dot_of(t, depth=9).text.count(f" of {figure(W.gradient)}<") == 3


def test_a_scope_of_one_op_is_never_closed_and_others_say_their_class():
    t = KINDS["cnn"]()
    chosen = layout(t, depth=1)
    assert all(len(box.ops) > 1 for box in chosen.boxes if box.kind == "scope")
    assert "pool ·1/max_pool" in [box.label for box in chosen.boxes]
    assert "  TransformerBlock<" in dot_of(KINDS["block"](), depth=0).text.replace("&#160;", " ")


def test_what_is_in_a_copy_of_a_folded_block_is_focused():
    t = KINDS["twelve blocks"]()
    boxes = layout(t, focus="blocks.3/attention").boxes
    inside = [box for box in boxes if box.kind != "outside"]
    assert len(inside) < len(boxes)  # what touches it is drawn, too
    assert {entry.op for box in inside for entry in box.ops} >= {"softmax"}
    assert all("blocks.3/attention" in box.scope for box in inside)


def test_cross_attention_has_both_lists_and_self_attention_its_own():
    queries, keys = list("abcde"), list("tuvwxyz")
    names = [
        (one.queries, one.keys) for one in KINDS["encoder decoder"]().attention((queries, keys))
    ]
    assert (tuple(keys), tuple(keys)) in names
    assert (tuple(queries), tuple(queries)) in names
    assert (tuple(queries), tuple(keys)) in names


def test_a_formula_holds_no_address():
    assert "0x" not in derivation(KINDS["masked attention"]())
