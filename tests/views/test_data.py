"""The record as plain data."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import minigrad as mg
from layers import SelfAttention
from minigrad.views import trace_to_dict
from minigrad.views.page import page_html
from tests.browsing import record_of
from tests.process import python

PROGRAM = """
import json, sys; sys.path[:0] = [".", "tests/views"]
import conftest
from minigrad.views.dot import trace_dot
from minigrad.views.page import page_html
for t in (conftest.attention("multi"), conftest.chain(3), conftest.states()):
    dot = trace_dot(t)
    print(json.dumps(t.to_dict(), allow_nan=False), dot.text, dot.titles, page_html(t))
"""


def written(trace):
    return json.dumps(trace_to_dict(trace), allow_nan=False)


def test_numbers_are_numpys_own_and_order_and_roots_are_kept(single):
    """Rms, least and largest entry of values and gradients, entry by entry."""
    record = trace_to_dict(single)
    for node, entry in zip(record["nodes"], single, strict=True):
        for said, array in ((node["value"], entry.value), (node["gradient"], entry.gradient)):
            expected = [np.sqrt(np.mean(array**2)), array.min(), array.max()]
            np.testing.assert_allclose([said[k] for k in ("rms", "min", "max")], expected)
    assert record["forward"] == sorted(record["forward"])
    assert record["backward"] == sorted(record["backward"], reverse=True)
    assert record["roots"] == [record["backward"][0]]


def test_a_value_used_twice_has_two_edges():
    x = mg.tensor([3.0], requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(x * x).backward()
    edges = [e for e in trace_to_dict(t)["edges"] if e["source"] == 0]
    assert [(e["target"], e["input"]) for e in edges] == [(1, "a"), (1, "b")]
    np.testing.assert_allclose([e["contribution_rms"] for e in edges], [3.0, 3.0])


def test_checks_hold_what_was_measured_and_a_wrong_rule_is_not_ok(single):
    """Planted: the engine's gradient of A is 0.1 % too large."""
    checks = trace_to_dict(single)["checks"]
    assert len(checks) == len(single.check()) > 10
    assert all(c["ok"] and c["relative_difference"] <= c["tolerance"] for c in checks)
    for edge in single.uses(single["A"]):
        edge.contribution = 1.001 * edge.contribution
    assert [c["symbol"] for c in trace_to_dict(single)["checks"] if not c["ok"]] == ["A"]


def test_without_a_backward_every_view_says_so_and_has_no_gradients(tmp_path):
    x = mg.tensor([1.0], requires_grad=True)
    with mg.trace() as t:
        out = SelfAttention(1, 1, 1, rng=0)(x[None])
    record = trace_to_dict(t)
    assert record["checks"] == record["backward"] == []
    assert {(n["state"], n["why"]) for n in record["nodes"]} == {("none", "backward not run")}
    assert "backward: not run" in t.table()
    page = record_of(page_html(t))
    assert page["chapters"] == page["backward"] == []
    picture = mg.draw(out, tmp_path / "g.svg").read_text(encoding="utf-8")
    assert "backward not run" in re.search("<desc.*?</desc>", picture, re.DOTALL)[0]
    kinds = [kind.split() for kind in re.findall(r'-n\d+" class="node ([^"]*)"', picture)]
    assert len(kinds) > 10
    assert all("none" in kind for kind in kinds)


@pytest.mark.parametrize(
    ("value", "said"),
    [(np.full(1, x), str(x)) for x in (np.inf, -np.inf, np.nan)] + [(np.zeros((0, 3)), None)],
)
def test_numbers_that_are_not_finite_are_strings_and_of_nothing_there_is_no_range(value, said):
    with mg.trace() as t:
        mg.negative(mg.tensor(value, requires_grad=True))
    assert trace_to_dict(t)["nodes"][0]["value"]["min"] == said
    json.loads(written(t))


def test_seconds_are_told_only_if_asked_for(single):
    assert "seconds" not in written(single)
    assert all("seconds" in node for node in trace_to_dict(single, times=True)["nodes"])


def test_the_same_program_gives_the_same_bytes_under_any_hash_seed():
    """As data, as DOT, as a page."""
    outputs = set()
    for seed in ("0", "4711"):
        outputs.add(python("-c", PROGRAM, PYTHONHASHSEED=seed).stdout)
    assert len(outputs) == 1
