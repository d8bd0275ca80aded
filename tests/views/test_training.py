"""Views of a training run: table, heat map and CSV say what was measured."""

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from functools import cache

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import ArgumentError
from minigrad.optim import SGD
from minigrad.views import training as views, words
from minigrad.views.theme import Light


@cache
def trained(fault=1.0):
    rng = np.random.default_rng(0)
    model = L.Sequential(L.Linear(4, 8, rng=rng), mg.tanh, L.Linear(8, 2, rng=rng))
    optimizer, X = SGD(model.parameters(), lr=0.1), rng.normal(size=(16, 4))
    with np.errstate(all="ignore"), mg.watch(model, every=2) as flow:
        for step in range(10):
            optimizer.zero_grad()
            loss = mg.mse_loss(model(X), X[:, :2]) * (fault if step == 6 else 1.0)
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
    return flow


def test_each_row_has_its_first_and_last_gradient():
    flow = trained()
    text = views.table(flow, 160)
    for path in flow.kinds:
        (_, first), *_, (_, last) = flow.series(path, "gradient")
        row = next(line for line in text.splitlines() if line.split()[:1] == [path])
        assert f"{first:#.2g}" in row
        assert f"{last:#.2g}" in row
    assert "nothing odd was found" in text
    assert "5 steps looked at, from 0 to 8" in text


def test_what_is_odd_stands_below_the_table_and_is_marked_in_the_picture():
    flow = trained(np.nan)
    assert "not finite" in views.table(flow, 120)
    svg = ElementTree.fromstring(views.svg(flow))
    assert sum(part.get("fill") == Light.alarm for part in svg.iter()) > 2


def test_the_heat_map_has_a_run_of_cells_for_each_row_and_follows_its_reader(tmp_path):
    flow = trained()
    text = flow.draw(tmp_path / "f.svg").read_text("utf-8")
    svg = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    rows = [g for g in svg.iter(f"{space}g") if g.find(f"{space}rect") is not None]
    width = [sum(float(r.get("width")) for r in g.iter(f"{space}rect")) for g in rows]
    assert len(rows) == len({p for m in flow.moments for p in m.readings})
    np.testing.assert_allclose(width, 640, atol=0.1)
    assert "prefers-color-scheme: dark" in text
    assert "prefers-color-scheme" not in views.svg(flow, theme="dark")
    with pytest.raises(ArgumentError, match="theme must be one of"):
        flow.draw(tmp_path / "f.svg", theme="red")


def test_csv_has_every_reading(tmp_path):
    flow = trained()
    text = flow.csv(tmp_path / "f.csv").read_text("utf-8")
    rows = [*csv.DictReader(io.StringIO(text))]
    assert len(rows) == sum(len(moment.readings) for moment in flow.moments)
    row = next(row for row in rows if row["row"].endswith("/W") and row["step"] == "8")
    reading = flow.moments[-1].readings[row["row"]]
    assert (float(row["gradient"]), float(row["update"])) == (reading.gradient, reading.update)


def test_before_the_first_step_there_is_nothing():
    with mg.watch([mg.tensor([1.0], requires_grad=True, name="w")]) as flow:
        assert views.table(flow) == "nothing was looked at yet"
    assert re.search("0 steps", views.svg(flow))


def test_what_is_zero_in_theory_sets_no_end_of_the_scale_of_colours():
    layer = L.SelfAttention(5, 3, 4, rng=np.random.default_rng(0))
    X = np.random.default_rng(1).normal(size=(2, 7, 5))
    with mg.watch(layer) as flow:
        mg.mean(mg.square(layer(X))).backward()
        flow.log(loss=1.0)
    [b_K] = flow.in_theory
    sizes = [flow.series(path, "gradient")[0][1] for path in flow.kinds if path != b_K]
    least = words.sized(min(size for size in sizes if size))
    assert views.svg(flow).count(f">{least}</text>") == 2  # of its row, and the scale's end
