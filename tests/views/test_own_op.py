"""An op declared in a user's file shows its formula, cost and check in every view."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.views.derivation import derivation_text
from minigrad.views.page import page_html
from minigrad.views.table import checks_table, trace_table
from tests.compare import assert_same


def weighted(x: Any, axis: int) -> str:
    letters = "ijkl"[: x.ndim]
    return rf"\sum_{{{letters[axis]}}} <factor>\, <x>_{{{','.join(letters)}}}^2"


def square_sum(name: str = "square_sum") -> Any:
    """factor · Σ x² along an axis: y = f Σ_i x_i²."""

    def kernel(x, axis, factor=1.0):
        """Weighted squares along an axis, added."""
        return factor * (x * x).sum(axis)

    kernel.__name__ = name
    made = mg.op(
        tex=weighted,
        vjp_tex={"x": lambda x, axis: rf"n\, <factor>\, <x> \odot <g>, \quad n = {x.shape[axis]}"},
        flops=lambda x: 3 * x.size,
        samples=lambda rng: [mg.call(rng.normal(size=(2, 3)), 0)],
    )(kernel)

    @made.vjp("x")
    def _(g, x, axis, factor):
        return 2 * factor * x * mg.expand_dims(g, axis)

    return made


@pytest.fixture
def squares() -> Iterator[Any]:
    yield square_sum()
    del mg.registry["square_sum"]


@pytest.fixture
def trace(squares: Any, rng: np.random.Generator) -> mg.Trace:
    x = mg.tensor(rng.normal(size=(5, 7)), requires_grad=True, name="X")
    with mg.trace() as t:
        y = squares(x, 0, factor=0.5).named("Y")
        mg.sum(y).backward()
    return t


def test_the_record_holds_the_formulas_and_the_cost_of_the_call(trace: mg.Trace) -> None:
    entry = trace["Y"]
    assert entry.tex == r"\sum_{i} <factor>\, <x>_{i,j}^2"
    assert entry.vjp_tex == {"x": r"n\, <factor>\, <x> \odot <g>, \quad n = 5"}
    assert entry.flops == 3 * 35
    assert entry.unsaid == ()


def test_the_derivation_writes_them_with_symbols_and_numbers(trace: mg.Trace) -> None:
    text = derivation_text(trace)
    assert r"Y &= \sum_{i} 0.5\, X_{i,j}^2 && \in \mathbb{R}^{7}" in text
    assert (
        r"\frac{\partial L}{\partial X} = n\, 0.5\, X \odot \frac{\partial L}{\partial Y}" in text
    )
    assert "Here $`n = 5`$." in text


def test_the_table_shows_its_cost(trace: mg.Trace) -> None:
    line = next(line for line in trace_table(trace, 120).split("\n") if "square_sum" in line)
    assert line.split()[:6] == ["1", "Y", "square_sum", "5×7", "7", "105"]


def test_the_page_builds_them_as_mathml(trace: mg.Trace) -> None:
    record = re.search(r'id="record">(.*?)</script>', page_html(trace), re.DOTALL)
    assert record is not None
    page = json.loads(record[1])
    node = next(node for node in page["nodes"] if node.get("op") == "square_sum")
    forward = page["formulas"][node["tex"]]
    assert forward[1] == ["munder", ["mo", "∑"], ["mi", "i"]]
    assert ["mn", "0.5"] in forward
    (sign,) = (page["formulas"][i] for i in node["where"]["x"])
    assert sign == ["mrow", ["mi", "n"], ["mo", "="], ["mn", "5"]]


def test_the_picture_names_it_with_its_cost(trace: mg.Trace, tmp_path: Path) -> None:
    dot = trace.draw(tmp_path / "g.dot", style="full").read_text()
    assert "square_sum" in dot
    assert "105 FLOPs" in dot


def test_its_rule_is_checked_like_any_other(squares: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 5))
    assert mg.gradcheck(lambda x: squares(x, 1, factor=2.0), [mg.tensor(x, requires_grad=True)])
    assert_same(squares(x, 0), (x * x).sum(0))


def test_a_layer_s_steps_through_it_are_held_against_its_gradients(
    squares: Any, rng: np.random.Generator
) -> None:
    from layers.hand_derived import Step

    def steps(X: Any, grad_output: Any) -> list[Step]:
        gradient = 2 * X * grad_output
        return [
            Step(1, "squares", r"Y = \sum_i X_i^2", {"X": r"2 X \odot \bar Y"}, {"X": gradient})
        ]

    x = mg.tensor(rng.normal(size=(5, 7)), requires_grad=True, name="X")
    with mg.trace() as t:
        with mg.scope("squares"):
            y = squares(x, 0).named("Y")
            mg.expect_gradients(steps, X=x, out=y)
        mg.sum(y).backward()
    assert t.check().ok
    assert "Y = Σ_i X_i²" in checks_table(t.check(), 120)
    assert "✓" in derivation_text(t)


def test_without_a_cost_none_is_claimed(rng: np.random.Generator) -> None:
    @mg.op(tex="2 <x>", vjp_tex={"x": "2 <g>"})
    def twice_of_the_views_test(x: Any) -> Any:
        """Twice x."""
        return 2 * x

    @twice_of_the_views_test.vjp("x")
    def _(g: Any) -> Any:
        return 2 * g

    try:
        with mg.trace() as t:
            mg.sum(twice_of_the_views_test(mg.tensor([1.0], requires_grad=True))).backward()
        assert t.entries[1].flops is None
        assert "1 FLOPs without twice_of_the_views_test, " in trace_table(t)
        for text in (derivation_text(t), trace_table(t), page_html(t)):
            assert "twice_of_the_views_test" in text
    finally:
        del mg.registry["twice_of_the_views_test"]
