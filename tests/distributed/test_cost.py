"""What many ranks cost on paper."""

import numpy as np
import pytest

from layers.parallel.cost import SPLITS, Machine, Sizes, step_time, stops_paying
from minigrad.__main__ import main

SIZES = Sizes(batch=32, tokens=64, d_model=16, layers=4, heads=8)
FREE = Machine(flops=1e9, memory=np.inf, wire=np.inf, latency=0.0)


def test_where_sending_costs_nothing_p_ranks_take_a_pth_of_the_time():
    for split in ("heads", "sequence", "data"):
        one, four = (step_time(split, p, SIZES, FREE).total for p in (1, 4))
        assert one == SIZES.flops / 1e9
        np.testing.assert_allclose(four, one / 4)
    one, four = (step_time("pipeline", p, SIZES, FREE).total for p in (1, 4))
    np.testing.assert_allclose(four, one / 4 * (1 + 3 / 32))  # three small batches of 32 are idle


def test_bytes_on_the_wire_are_those_of_the_collectives():
    """Heads: two sums forward and two back in each block, each 2 (p - 1) / p of its array."""
    slow = FREE._replace(wire=1.0)
    array = 32 * 64 * 16 * 4
    assert step_time("heads", 4, SIZES, slow).wire == 4 * 4 * 1.5 * array
    assert step_time("data", 4, SIZES, slow).wire == 1.5 * SIZES.weights * 4
    assert all(step_time(split, 1, SIZES, slow).wire == 0 for split in SPLITS)


def test_a_split_stops_paying_where_messages_take_longer_than_work():
    late = FREE._replace(latency=SIZES.flops / 1e9 / 64)
    assert stops_paying("data", [1, 2, 4, 8, 16, 32], SIZES, FREE) == 32
    assert stops_paying("data", [1, 2, 4, 8, 16, 32], SIZES, late) == 4
    assert step_time("heads", 9, SIZES, FREE).total == np.inf


def test_the_command_prints_a_row_for_each_number_of_ranks(capsys):
    assert main(["cost", "--ranks", "8..64", "--heads", "32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:7]] == ["8", "16", "32", "64"]
    assert "–" in lines[6]  # 64 ranks cannot share 32 heads
    assert lines[-1].startswith("It stops paying: heads at 32")


@pytest.mark.parametrize("wrong", ["0", "x..8", "8..y"])
def test_ranks_that_are_no_numbers_are_refused(wrong, capsys):
    assert main(["cost", "--ranks", wrong]) == 2
    assert "--ranks must be N or N..M" in capsys.readouterr().err
