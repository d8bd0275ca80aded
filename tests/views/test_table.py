"""Tables in a terminal: every step, its figures recomputed, within the width."""

import numpy as np
import pytest

from minigrad.views import words
from minigrad.views.table import checks_table, table
from minigrad.views.terminal import cells, paint
from tests.views.graphs import RUNS, attention


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal(run, width):
    assert max(map(cells, table(run(), width).splitlines())) <= width + 20 * (width < 80)
    assert max(map(cells, table(run(), 140).splitlines())) <= 140


def test_each_step_has_a_row_with_its_gradient():
    t = attention()
    lines = table(t, 200).splitlines()
    back = lines[lines.index(next(line for line in lines if line.startswith("backward"))) :]
    for number, i in enumerate(t.backward, 1):
        row = next(line for line in back if line.split()[:1] == [str(number)])
        size = float(np.sqrt(np.mean(np.square(t[i].gradient))))
        assert f" {words.sized(size)} " in row


def test_gains_stand_on_the_way_of_the_loss_alone():
    t = attention()
    on_way = {edge.target for edge in t.edges if edge.on_way}
    text = table(t, 200)
    assert text.count("▸×") == len(on_way)


def test_checks_list_each_gradient_and_its_difference():
    checks = attention().check()
    text = checks_table(checks, 120)
    assert text.count("✓") == len(checks.of("by hand")) + 1
    assert "equal the hand-derived steps" in text


def test_without_a_terminal_nothing_is_coloured():
    assert paint("alarm", "x") == "x"
