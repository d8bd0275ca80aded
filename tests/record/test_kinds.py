"""What a record says holds for every kind of model that people build."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.record.finish import finish
from minigrad.record.fold import folded
from minigrad.views import words

from .models import KINDS


@pytest.fixture(params=KINDS)
def t(request):
    return finish(KINDS[request.param]())


def test_a_call_has_a_path_of_its_own(t):
    paths = [t.paths[calls] for calls in t.scopes]
    assert len({*paths}) == len(paths)
    for entry in t:
        shared = entry.kind in ("parameter", "buffer")
        assert shared or entry.scope == t.paths[entry.calls]
        assert not shared or "·" not in entry.path


def test_a_gain_and_the_way_are_quotients_of_sizes_that_are_shown(t):
    for edge in t.edges:
        came = t[edge.target].gradient_rms
        if edge.gain is not None and came and np.isfinite(edge.gain):
            np.testing.assert_allclose(edge.gain, edge.facts.rms / came)
    if t.way is not None:
        first, last = t.way.first.gradient_rms, t.way.last.gradient_rms
        np.testing.assert_allclose(t.way.whole, last / first)


def test_the_headline_says_a_quotient_of_two_numbers_in_it_and_keeps_nothing_that_vanishes(t):
    said = words.headline(t)
    pattern = r"(shrinks|grows) (\S+) times on the way .* from (\S+) at .* to (\S+),"
    if (found := re.search(pattern, said)) is not None:
        times, first, last = (float(found[k].replace(",", "")) for k in (2, 3, 4))
        quotient = first / last if found[1] == "shrinks" else last / first
        np.testing.assert_allclose(times, quotient, rtol=0.11)  # two digits of each
    far = [entry for entry in t if entry.state in ("vanishing", "exploding")]
    assert not (far and "keeps its size" in said)


def test_steps_are_those_that_are_drawn_and_no_edge_leads_to_another(t):
    place = folded(t).place
    assert {*place} == {entry.id for entry in t} - t.aside
    assert all(edge.target in place and edge.source in place for edge in t.edges)
    assert not t.aside & {*t.forward}


def test_what_is_said_of_time_is_what_the_record_holds(t):
    is_fused = any(mg.registry[op.op].time_axis is not None for op in t.ops)
    for change in t.in_time:
        assert is_fused or {change.first, change.last} <= {e.gradient_rms for e in t}
        np.testing.assert_allclose(change.change, change.first / change.last)
