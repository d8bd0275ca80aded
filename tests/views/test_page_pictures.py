"""The pictures of a page: every op has a box in one of them, every line is the use of a value."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minigrad as mg
from layers import LSTM
from minigrad.views.model import AnnotatedTrace
from minigrad.views.page.pictures import Pictures, paints

from . import conftest


def recurrent():
    rng = np.random.default_rng(5)
    model = LSTM(3, 5, method="steps", rng=rng)
    with mg.trace() as t:
        mg.mean(model(rng.normal(size=(2, 7, 3))) ** 2).backward()
    return t


RUNS = {
    "self": conftest.attention,
    "stack": lambda: conftest.chain(12),
    "transformer": conftest.transformer,
    "recurrent": recurrent,
    "unfolded": lambda: conftest.unfolded(200),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_op_has_one_box_every_use_a_line_and_every_closed_scope_a_picture(name):
    trace = RUNS[name]()
    model = AnnotatedTrace(trace)
    made = Pictures(model, "run")
    scopes = [one["scope"] for one in made.contents]
    assert scopes[0] == ""
    assert sorted(scopes[1:]) == sorted(path for one in made.contents for path in one["closed"])
    boxes = [re.findall(r'<g id="([ns]\d+)" class="node (\w+)', svg) for svg in made.svgs]
    drawn = [id for some in boxes for id, kind in some if kind not in ("scope", "outside")]
    leaders = {f"n{model.fold.leader(e.id)}" for e in trace.entries}
    assert sorted(drawn) == sorted(leaders)
    for told, svg, some in zip(made.contents, made.svgs, boxes, strict=True):
        assert {id for id, kind in some if kind == "scope"} == set(told["closed"].values())
        lines = [int(number) for number in re.findall(r'<g id="e(\d+)" class="edge', svg)]
        assert sorted(lines) == [*range(len(told["lines"]))]
    uses = {edge for one in made.contents for line in one["lines"] for edge in line}
    assert uses == {*range(len(trace.edges))}
    if name == "transformer":  # copies of a block share one picture
        [attention] = (scope for scope in scopes if scope.endswith("attention"))
        assert attention == "language_model/decoder/blocks.0/attention"
    if name == "unfolded":  # the leaf stands in the part of the long scope that uses it
        assert model.place[0] == model.place[1] != ""


def test_every_colour_of_a_picture_is_a_class_that_each_theme_paints():
    made = Pictures(AnnotatedTrace(conftest.states()), "run")
    svg = "".join(made.svgs)
    assert not re.search(r'(?:fill|stroke)="#', svg)
    used = set(re.findall(r"\b[fs]-\w+", svg))
    css = paints(compared=False)
    assert used <= set(re.findall(r"(?<=\.)[fs]-\w+", css))
    light, dark = re.findall(r":root[^{]*\{([^}]*)\}", css)
    names = [re.findall(r"(--[\w-]+):", theme) for theme in (light, dark)]
    assert names[0] == names[1]
