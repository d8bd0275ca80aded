"""Units one by one: what is kept of them, and what the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Module
from minigrad.ops import conv2d, linear, matmul, softmax, take
from minigrad.optim import SGD
from minigrad.recording.units import unit_axes
from minigrad.views.flow.units import units_content
from minigrad.watching import Flow

from .test_flow_page import chromium  # noqa: F401

DEAD, ROW = 3, "net/hidden/relu"


class Net(Module):
    """A hidden layer with one unit that never fires."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.first, self.last = Linear(6, 7, rng=rng), Linear(7, 2, rng=rng)
        self.first.b.assign_(np.where(np.arange(7) == DEAD, -100.0, 1.0))

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        with mg.scope("hidden"):
            h = mg.relu(self.first(x))
        return self.last(h)


def train(steps: int = 60) -> tuple[Flow, Net]:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 6)) * 0.3 + 4 * y[:, None] * rng.normal(size=6)
    model = Net(rng)
    optimizer = SGD(model.parameters(), lr=1e-2)
    with mg.watch(model, every=1) as flow:
        for _ in range(steps):
            optimizer.zero_grad()
            mg.cross_entropy(model(mg.tensor(x)), y).backward()
            optimizer.step()
    return flow, model


def test_units_have_their_figures_and_the_weights_that_lead_to_them() -> None:
    flow, _ = train(steps=1)
    made = flow.pictures[0][ROW]
    assert made.zeros[DEAD] == 1
    assert made.mean[DEAD] == 0
    assert (np.delete(made.zeros, DEAD) < 1).all()
    assert made.weights == "net/hidden/first/W"
    W = train(steps=0)[1].first.W.numpy()[:, 2]
    assert made.norm[2] == pytest.approx(np.linalg.norm(W))
    strongest = np.argsort(-np.abs(W))[:5]
    told = units_content(flow)[f"{[*flow.rows].index(ROW)},0"]["strongest"][2]
    assert told == [[int(i), pytest.approx(W[i], rel=0.01)] for i in strongest]


@pytest.mark.parametrize(
    ("op", "shapes", "settings", "at", "axes"),
    [
        (matmul, [(5, 4), (4, 4)], (), 1, (1, 1)),
        (matmul, [(2, 5, 3), (3, 4)], (), 1, (2, 1)),
        (matmul, [(2, 4, 4), (2, 4, 4)], (), 1, (2, 2)),
        (linear, [(5, 4), (4, 4), (4,)], (False,), 1, (1, 1)),
        (conv2d, [(2, 4, 6, 6), (4, 4, 3, 3), (4,)], (1, 0, 1, 1), 1, (1, 0)),
        (take, [(7, 3)], (np.array([[0, 4], [5, 5]]), 0, True), 0, (2, 1)),
        (softmax, [(5, 4)], (-1,), 0, None),
    ],
)
def test_the_axis_of_units_is_found_from_the_ops_own_rule(
    op: Any, shapes: Any, settings: Any, at: int, axes: Any, rng: np.random.Generator
) -> None:
    assert unit_axes(op, [rng.normal(size=s) for s in shapes], settings, at) == axes


@pytest.mark.slow
def test_in_a_browser_a_dead_unit_is_shown_dead(
    chromium: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    flow, _ = train()
    page = chromium.new_page(viewport={"width": 1300, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(flow.html(tmp_path / "flow.html").as_uri())
    rows = [*flow.rows]
    for _ in rows:
        page.keyboard.press("ArrowUp")
    for _ in range(rows.index(ROW)):
        page.keyboard.press("ArrowDown")
    assert page.locator("#cell h2").inner_text() == ROW
    dead = page.locator(".units button.dead")
    assert dead.all_inner_texts() == [""]
    dead.click()
    said = page.locator("#unit strong").inner_text()
    assert said == f"unit {DEAD} dead: 0 for the whole batch"
    assert page.locator("#unit tr", has_text="zeros").locator("td").last.inner_text() == "1"
    assert page.locator("#cell li").count() == 5
    assert "net/hidden/first/W" in page.locator("#cell").inner_text()
    page.locator("#range").fill("0")
    assert "step 0" in page.locator("#cell").inner_text()
    assert errors == []
