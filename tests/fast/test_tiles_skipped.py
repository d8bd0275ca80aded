"""What a mask or a rule closes is neither computed nor read; memory grows with n, not n²."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS
from minigrad.fast.tiles.mask_tiles import BLOCK_SIZE, TileGrid
from minigrad.ops.mask_rules import Causal, Global, Window
from tests.weighing import weigh

from .test_tiled import MASKS, RULES, assert_close, assert_equals_exact, draw, in_tiles, run  # noqa: F401


def seen(n, m, mask, rule=None):
    """Which entries are computed, and to which something is added."""
    computed, added = np.zeros((n, m), bool), np.zeros((n, m), bool)
    grid = TileGrid(n, m, mask, rule)
    for k in range(len(grid)):
        for tile in grid.tiles(k):
            assert not computed[tile.rows, tile.keys].any()  # once
            computed[tile.rows, tile.keys] = True
            for block in tile.masked + tile.ruled:
                added[block] = True
    return computed, added


def assert_skips(is_open, computed, added):
    assert not (is_open & ~computed).any()
    assert not (computed & ~added & ~is_open).any()  # computed with nothing added: open
    for a in range(0, len(is_open), BLOCK_SIZE):
        for b in range(0, is_open.shape[1], BLOCK_SIZE):
            block = (slice(a, a + BLOCK_SIZE), slice(b, b + BLOCK_SIZE))
            assert computed[block].any() == is_open[block].any()


SIZES = [(300, 700), (700, 300), (128, 1300)]


@pytest.mark.parametrize("kind", [name for name in MASKS if name not in ("none", "one column")])
@pytest.mark.parametrize("sizes", SIZES)
def test_every_open_entry_is_computed_and_every_closed_block_skipped(rng, kind, sizes):
    mask = np.broadcast_to(MASKS[kind](rng, *sizes), sizes)
    is_open = mask if mask.dtype == bool else mask > -np.inf
    assert_skips(is_open, *seen(*sizes, mask))
    assert_skips(is_open & np.tri(*sizes, dtype=bool), *seen(*sizes, mask, Causal()))


@pytest.mark.parametrize("mask", [
    None, np.tri(640, dtype=bool), np.where(np.tri(640, dtype=bool), 0, -np.inf),
    np.where(np.tri(640, dtype=bool), 0, -np.inf).astype(np.float32),
], ids=["rule", "boolean", "float64", "float32"])  # fmt: skip
def test_a_causal_mask_halves_the_work_however_it_is_said(mask):
    """Five blocks of queries see 1 to 5 blocks of keys; something is added on the diagonal."""
    computed, added = seen(640, 640, mask, Causal() if mask is None else None)
    assert computed.sum() == 15 * 128 * 128
    assert added.sum() == 5 * 128 * 128


@pytest.mark.parametrize("weights_bytes", [0, 26 << 20])
def test_skipped_keys_and_values_are_never_read(rng, weights_bytes):
    """NaN in them, forward and backward, leaves no trace."""
    q, k, v = draw(rng, (2,), 300, 700)
    for mask, rule, hidden in [
        (np.where(np.arange(700) < 256, 0, -np.inf), None, slice(256, None)),
        (np.tri(300, 700, dtype=bool), None, slice(384, None)),
        (None, Window(80), slice(384, None)),
        (np.repeat(np.arange(700) // 128 % 2 == 0, 1)[None], None, slice(128, 256)),
    ]:
        expected = run("exact", q, k, v, mask, rule=rule)
        poisoned = [x.copy() for x in (k, v)]
        for x in poisoned:
            x[:, hidden] = np.nan
        with LIMITS.changed(weights_bytes=weights_bytes):
            assert_close(run("tiled", q, *poisoned, mask, rule=rule), expected)


@pytest.mark.parametrize("weights_bytes", [0, 26 << 20])
@pytest.mark.parametrize("base", [False, True])
def test_one_entry_that_differs_in_the_midst_of_a_block_counts(rng, base, weights_bytes):
    """One entry among closed blocks, or open ones, for some of the heads."""
    mask = np.full((2, 1, 400, 400), base)
    mask[1, 0, 150, 300] = mask[0, 0, 70, 70] = not base
    q, k, v = draw(rng, (2, 2), 400, 400)
    with LIMITS.changed(weights_bytes=weights_bytes):
        assert_equals_exact(q, k, v, mask)
        assert_equals_exact(q, k, v, np.where(mask, 0, -np.inf), is_causal=True)


def test_a_mask_that_was_written_to_is_read_anew(rng):
    """The same object, once causal, then with an entry opened, or closed, or of another number."""
    q, k, v = draw(rng, (), 300, 300)
    mask = np.where(np.tri(300, dtype=bool), 0, -np.inf)
    assert_equals_exact(q, k, v, mask)
    for place, value in [((3, 290), 0), ((290, 3), -np.inf), ((150, 140), -np.inf), ((140, 9), 1)]:
        mask[place] = value
        assert_equals_exact(q, k, v, mask)


# ---------------------------------------------------------------- counted


def flops(q, k, v, mask=None, is_causal=False, rule=None):
    """As a trace counts them, of the recorded call."""
    with mg.trace() as t:
        q = mg.tensor(q, requires_grad=True)
        settings = {"is_causal": is_causal, "rule": rule, "method": "tiled"}
        mg.scaled_dot_product_attention(q, k, v, mask, **settings)
    return next(entry.flops for entry in t if entry.op == "tiled_attention")


SCORE = 2 * 5 + 5 + 2 * 3  # for each score: 2 d_k, the softmax, 2 d_v


def test_flops_of_skipped_tiles_are_not_counted(rng):
    """Of five blocks by five, causality leaves 15; padding two columns of them; both 9."""
    q, k, v = draw(rng, (2, 3), 640, 640)
    causal, padding = np.tri(640, dtype=bool), np.arange(640) < 256
    for mask, is_causal, blocks in [
        (None, False, 25), (None, True, 15), (causal, False, 15), (causal[None, None], True, 15),
        (padding, False, 10), (padding, True, 9), (np.zeros((640, 1), bool), False, 0),
    ]:  # fmt: skip
        assert flops(q, k, v, mask, is_causal) == 6 * blocks * 128**2 * SCORE
    assert flops(q, k, v, rule=Window(129)) == 6 * 13 * 128**2 * SCORE
    assert flops(q, k, v, rule=Window(129) | Global((0,))) == 6 * 19 * 128**2 * SCORE


# ---------------------------------------------------------------- memory


def peak(n, weights_bytes=0, **settings):
    """Bytes that one forward and backward allocates at most."""
    q = np.zeros((1, n, 16), np.float32)
    leaves = [mg.tensor(q, requires_grad=True) for _ in range(3)]

    def call():
        mg.scaled_dot_product_attention(*leaves, method="tiled", **settings).backward(q)

    one_thread = {"threaded_work": np.inf}  # how many scratches two need depends on their turns
    with LIMITS.changed(weights_bytes=weights_bytes, **one_thread):
        return weigh(call)[1]


@pytest.mark.parametrize("settings", [
    {"is_causal": True}, {"rule": Window(64)}, {"rule": Window(64) | Global((0,))},
    {"rule": Window(9, dilation=30), "is_causal": True}, {"mask": np.arange(4096) < 99},
], ids=["causal", "window", "global", "dilated", "padding"])  # fmt: skip
def test_memory_grows_with_n_and_not_with_its_square(settings):
    def most(n):
        return peak(n, **{k: x[:n] if k == "mask" else x for k, x in settings.items()})

    most(1024)  # what is imported and cached at a first use comes first
    assert most(2048) < 2.2 * most(1024)  # a square would give 4
    assert most(2048) < 2048 * 2048 * 4 / 2


def test_stored_weights_stay_within_their_budget():
    without, within = (peak(1024, bytes_, is_causal=True) for bytes_ in (0, 1 << 20))
    assert 0 < within - without <= 1 << 20


def test_weights_are_stored_only_where_the_call_is_recorded(rng):
    leaves = [mg.tensor(x, requires_grad=True) for x in draw(rng, (), 1024, 1024)]
    weights = 1024 * 1024 * 8

    def call():
        return mg.scaled_dot_product_attention(*leaves, method="tiled")

    with LIMITS.changed(threaded_work=np.inf):
        call()
        assert weigh(call)[0] > weights
        with mg.no_grad():
            assert weigh(call)[1] < weights / 2
