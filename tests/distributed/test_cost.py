"""What many ranks cost on paper."""

import numpy as np

from layers.parallel.cost import SPLITS, Machine, Sizes, step_time

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


def test_more_ranks_take_longer_where_messages_take_longer_than_work():
    late = FREE._replace(latency=SIZES.flops / 1e9 / 64)
    times = [step_time("data", p, SIZES, late).total for p in (1, 2, 4, 16)]
    assert times[0] > times[1] > times[2] < times[3]
    assert step_time("heads", 9, SIZES, FREE).total == np.inf
