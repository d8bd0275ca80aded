"""Two runs beside each other: ratios of their gradients, path by path."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.errors import DTypeError

rng = np.random.default_rng(19)
X, W = rng.normal(size=(7, 5)), rng.normal(size=(5, 5))


def run(factor, residual=False):
    w = mg.tensor(W, requires_grad=True, name="w")
    with mg.trace() as t:
        with mg.scope("block"):
            h = mg.tanh(X @ w).named("h")
            h = (h + X).named("sum") if residual else h
        mg.sum(h * factor).named("loss").backward()
    return t


def test_ratios_are_of_the_other_run_over_this_one():
    found = run(1.0).compare(run(8.0))
    ratios = {row.path: row.ratio for row in found.rows}
    assert ratios["loss"] == 1
    for path in ("block/h", "block/w"):
        np.testing.assert_allclose(ratios[path], 8)
    assert "×8.0" in found.summary


def test_what_is_in_one_run_alone_is_counted():
    found = run(1.0).compare(run(1.0, residual=True))
    assert found.only_here == []
    assert "block/sum" in found.only_there
    assert f"{len(found.only_there)} values are in one of the runs alone" in str(found)


def test_the_table_fits_and_the_picture_says_what_its_colours_are(tmp_path):
    found = run(1.0).compare(run(8.0))
    assert max(map(len, found.table(60).split("\n\n")[1].split("\n"))) <= 60
    text = found.draw(tmp_path / "g.dot").read_text(encoding="utf-8")
    assert "gradient there / here" in text
    assert re.search(r">×8\.0<", text)
    assert "(loss)" not in text
    assert json.dumps(found.to_dict())


def test_only_a_trace_can_be_compared():
    with pytest.raises(DTypeError, match="other must be a Trace, got str"):
        run(1.0).compare("run.json")  # type: ignore[arg-type]
