"""Attention in tiles equals attention step by step, whatever mask, shapes and layout."""

import gc
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError
from minigrad.fast import threads
from minigrad.fast.limits import LIMITS
from minigrad.fast.tiles import schedule
from minigrad.fast.tiles.schedule import QUERIES, TileSchedule


@pytest.fixture(autouse=True)
def in_tiles():
    """However few scores there are."""
    with LIMITS.changed(one_tile_scores=0):
        yield


@pytest.fixture
def two_threads(monkeypatch):
    """All work is shared by two threads, however small it is and however many BLAS has."""
    blas = SimpleNamespace(
        lib_controllers=[SimpleNamespace(num_threads=2)], limit=lambda limits: nullcontext()
    )
    monkeypatch.setattr(threads, "_blas", lambda: blas)
    with LIMITS.changed(threaded_work=0):
        yield


def positions(n, m):
    return np.arange(n)[:, None], np.arange(m)


def step_by_step(q, k, v, mask=None, rule=None):
    S = mg.scale(q @ k.mT, q.shape[-1] ** -0.5)
    if rule is not None:
        S = mg.mask_add(S, np.asarray(rule(*positions(*S.shape[-2:]))))
    return mg.softmax(S if mask is None else mg.mask_add(S, mask)) @ v


def run(attend, q, k, v, *masks):
    """Output and gradients, under the same random cotangent."""
    leaves = [mg.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = attend(*leaves, *masks)
    u = np.random.default_rng(1).standard_normal(out.shape).astype(out.dtype)
    return [out.numpy(), *mg.grad(out, leaves, u)]


def assert_equals_steps(q, k, v, mask=None, rule=None):
    found, expected = (run(f, q, k, v, mask, rule) for f in (mg.tiled_attention, step_by_step))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        size = max(1.0, np.abs(theirs).max(initial=0))  # a gradient may be 0 but for rounding
        tolerance = 1e-12 if q.dtype == np.float64 else 3e-5
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * size)


def draw(rng, lead, n, m, d_k=5, d_v=3, dtype=np.float64):
    shapes = ((*lead, n, d_k), (*lead, m, d_k), (*lead, m, d_v))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


MASKS = {
    "none": lambda rng, n, m: None,
    "boolean": lambda rng, n, m: rng.uniform(size=(n, m)) < 0.6,
    "additive": lambda rng, n, m: rng.standard_normal((n, m)),
    "causal": lambda rng, n, m: np.where(np.tri(n, m, dtype=bool), 0, -np.inf),
    "padding": lambda rng, n, m: np.where(np.arange(m) < m // 3, 0, -np.inf),
    "nothing": lambda rng, n, m: np.zeros((n, m), bool),
    "some rows nothing": lambda rng, n, m: np.repeat(rng.uniform(size=(n, 1)) < 0.5, m, axis=1),
    "one column": lambda rng, n, m: np.where(rng.uniform(size=(n, 1)) < 0.5, 0, -np.inf),
}
RULES = {
    "none": None,
    "causal": np.greater_equal,
    "window": lambda i, j: (j <= i) & (i - j < 150),
    "global": lambda i, j: (abs(i - j) < 30) | (j % 130 == 0),
    "nothing": lambda i, j: i < j - 2000,
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sizes", [(3, 7), (131, 257), (307, 139)])
def test_output_and_gradients_equal_those_step_by_step(rng, kind, rule, sizes):
    assert_equals_steps(*draw(rng, (2,), *sizes), MASKS[kind](rng, *sizes), RULES[rule])


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("lead", [(), (3,), (2, 5), (2, 1, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_threads_change_nothing(rng, lead, dtype):
    assert_equals_steps(*draw(rng, lead, 300, 270, dtype=dtype), rule=np.greater_equal)


@pytest.mark.parametrize("q_lead", [(2, 2, 3), (3,), ()])
@pytest.mark.parametrize(
    "mask", [(130, 140), (3, 130, 140), (2, 1, 1, 130, 1), (2, 2, 1, 1, 140), (140,)]
)
def test_axes_of_keys_and_masks_broadcast(rng, q_lead, mask):
    q = draw(rng, q_lead, 130, 5)[0]
    _, k, v = draw(rng, (2, 2, 1), 5, 140)
    assert_equals_steps(q, k, v, rng.uniform(size=mask) < 0.7)


def test_a_rule_may_be_any_callable_and_is_asked_again_when_what_it_says_changes(rng, monkeypatch):
    class Within:  # it has no hash
        __hash__ = None

        def __call__(self, i, j):
            return abs(i - j) < reach[0]

    monkeypatch.setattr(schedule, "KEPT_BLOCKS", 1)  # of others it is asked at each tile
    operands, reach = draw(rng, (), 300, 400), [0]
    for rule in (Within(), lambda i, j: abs(i - j) < reach[0], lambda i, j: i * j % 7 < reach[0]):
        for reach[0] in (150, 149, 3):
            assert_equals_steps(*operands, rule=rule)
    with pytest.raises(DTypeError, match="booleans"):
        mg.tiled_attention(*operands, rule=lambda i, j: i - j)


@pytest.mark.parametrize("slope", [100, -100])
def test_later_tiles_of_a_row_may_hold_larger_scores(rng, slope):
    operands = draw(rng, (), 130, 2200)
    assert_equals_steps(*operands, np.linspace(0, slope, 2200), np.greater)
    assert_equals_steps(*operands, np.linspace(0, slope, 2200))


@pytest.mark.parametrize("lay", [np.asfortranarray, lambda x: x[::-1, ::-1], lambda x: x * 1])
def test_any_layout_in_memory(rng, lay):
    assert_equals_steps(*map(lay, draw(rng, (), 140, 150)))


@pytest.mark.parametrize("place", [(3, 7), (299, 290)])
def test_a_large_score_that_a_look_at_a_few_misses_is_noticed(rng, place):
    """It overflows, or leaves its row a sum that is too small: the block is done again."""
    for where, score in ((place, 2000.0), (place[:1], -2000.0)):
        mask = np.zeros((300, 300), np.float32)
        mask[where] = score
        assert_equals_steps(*draw(rng, (), 300, 300, dtype=np.float32), mask)


def test_values_that_overflow_unless_scores_are_shifted_are_noticed():
    """Every score is 8, and every value 1e35: e^8 · 300 times that is beyond float32."""
    q, k = np.full((300, 4), 4, np.float32), np.ones((300, 4), np.float32)
    v = np.full((300, 3), 1e35, np.float32)
    np.testing.assert_allclose(mg.tiled_attention(q, k, v), v, rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (299, 299)])
def test_nan_and_infinity_in_a_mask_are_refused_wherever_they_stand(rng, value, place):
    mask = np.zeros((300, 300))
    mask[place] = value
    with pytest.raises(ArgumentError, match="mask holds NaN or"):
        mg.tiled_attention(*draw(rng, (), 300, 300), mask)


# ---------------------------------------------------------------- what is skipped, and memory


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("rule", RULES)
def test_every_open_entry_is_computed_once_and_every_closed_block_skipped(rng, kind, rule):
    n, m = 300, 700
    mask, is_open = MASKS[kind](rng, n, m), np.ones((n, m), bool)
    if mask is not None:
        is_open &= mask if mask.dtype == bool else mask > -np.inf
    if RULES[rule] is not None:
        is_open &= RULES[rule](*positions(n, m))
    schedule = TileSchedule(*draw(rng, (1,), n, m), mask, RULES[rule])
    for i, rows in enumerate(schedule.queries):
        seen = is_open[rows]
        computed = np.zeros(seen.shape, int)
        for tile in schedule.tiles(slice(0, 1), i):
            computed[:, tile.keys] += 1
        assert computed[seen].all()
        assert computed.max(initial=0) <= 1
        for b in range(0, m, QUERIES):
            keys = slice(b, b + QUERIES)
            both = (mask is not None) and RULES[rule] is not None  # each is open somewhere
            assert both or computed[:, keys].any() == seen[:, keys].any()


def peak(n):
    """Bytes that one forward and backward allocates at most.

    No garbage is collected meanwhile: that of earlier tests would give its memory to the call.
    """
    q = np.zeros((1, n, 16), np.float32)
    leaves = [mg.tensor(q, requires_grad=True) for _ in range(3)]
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        with LIMITS.changed(threaded_work=np.inf):  # what two threads need depends on their turns
            mg.tiled_attention(*leaves, rule=RULES["window"]).backward(q)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def test_memory_grows_with_n():
    peak(1024)  # what is imported and cached at a first use comes first
    assert peak(4096) < 5 * peak(1024)  # a square would give 16
