"""Attention in tiles equals attention step by step, in memory that grows with n."""

import gc
import os
import threading
import tracemalloc

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from minigrad.fast import memory
from minigrad.fast import threads as parallel
from minigrad.fast.limits import LIMITS
from minigrad.fast.tiles import kernels as tile_kernels
from minigrad.fast.tiles import mask_tiles as tiles
from minigrad.fast.tiles import schedule as walk
from minigrad.ops.mask_rules import Causal

threadpoolctl = pytest.importorskip("threadpoolctl")


def _run(method, q, k, v, mask=None, seed=1, **settings):
    """Output and gradients by one method, under the same random cotangent."""
    leaves = [mg.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = mg.scaled_dot_product_attention(*leaves, mask, method=method, **settings)
    out.backward(np.random.default_rng(seed).standard_normal(out.shape).astype(out.dtype))
    return [out.numpy(), *(x.grad for x in leaves)]


def _assert_same(q, k, v, mask=None, **settings):
    expected, found = (_run(method, q, k, v, mask, **settings) for method in ("exact", "tiled"))
    tolerance = 1e-12 if q.dtype == np.float64 else 3e-5
    for name, mine, theirs in zip(("out", "dq", "dk", "dv"), found, expected, strict=True):
        assert mine.shape == theirs.shape, name
        assert mine.dtype == theirs.dtype, name
        size = max(1.0, np.abs(theirs).max(initial=0))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * size, err_msg=name)


def _draw(rng, lead, n, m, d_k=5, d_v=3, dtype=np.float64):
    shapes = ((*lead, n, d_k), (*lead, m, d_k), (*lead, m, d_v))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.fixture(autouse=True)
def in_tiles(monkeypatch):
    """However small they are."""
    with LIMITS.changed(
        one_tile_scores=0, weights_bytes=26 << 20, tiled_scores=1 << 20, threaded_work=1e8
    ):
        yield


@pytest.fixture(params=["tiles", "one tile"])
def either_way(request, monkeypatch):
    """In tiles, and in one tile that takes all."""
    if request.param == "one tile":
        object.__setattr__(LIMITS, "one_tile_scores", 1 << 30)


@pytest.fixture
def two_threads(monkeypatch):
    """All work is shared by two threads, however small it is and however many BLAS has."""
    blas = type(parallel.one_threaded_blas)
    enter = blas.__enter__
    object.__setattr__(LIMITS, "threaded_work", 0)
    monkeypatch.setattr(blas, "__enter__", lambda self: (enter(self), 2)[1])


# ---------------------------------------------------------------- equality

MASKS = {
    "none": lambda rng, n, m: None,
    "boolean": lambda rng, n, m: rng.uniform(size=(n, m)) < 0.6,
    "additive": lambda rng, n, m: rng.standard_normal((n, m)),
    "causal": lambda rng, n, m: np.where(np.tri(n, m, dtype=bool), 0, -np.inf),
    "boolean causal": lambda rng, n, m: np.tri(n, m, dtype=bool),
    "padding": lambda rng, n, m: np.where(np.arange(m) < m // 3, 0, -np.inf),
    "nothing": lambda rng, n, m: np.zeros((n, m), bool),
    "some rows nothing": lambda rng, n, m: np.repeat(rng.uniform(size=(n, 1)) < 0.5, m, axis=1),
    "one column": lambda rng, n, m: np.where(rng.uniform(size=(n, 1)) < 0.5, 0, -np.inf),
    "blocks": lambda rng, n, m: np.kron(
        rng.uniform(size=(-(-n // 128), -(-m // 128))) < 0.5, np.ones((128, 128))
    )[:n, :m].astype(bool),
    "window": lambda rng, n, m: np.abs(np.subtract.outer(np.arange(n), np.arange(m))) < 17,
}


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(3, 7), (131, 257), (307, 139), (67, 1151)])
def test_output_and_gradients_equal_the_exact_ones_under_any_mask(rng, kind, causal, sizes):
    mask = MASKS[kind](rng, *sizes)
    _assert_same(*_draw(rng, (2,), *sizes), mask, is_causal=causal)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["none", "causal", "padding", "blocks", "additive"])
@pytest.mark.parametrize("keep", [0, 1 << 18, (26 << 20)])
def test_what_is_kept_and_what_is_made_again_give_the_same(rng, monkeypatch, kind, keep):
    """With no budget, one for some of the tiles, and one for all."""
    object.__setattr__(LIMITS, "weights_bytes", keep)
    _assert_same(*_draw(rng, (3,), 389, 389), MASKS[kind](rng, 389, 389))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes_leading_axes_and_dtypes(seed):
    rng = np.random.default_rng(seed)
    n, m, d_k, d_v = (int(x) for x in rng.integers(1, (300, 300, 13, 13)))
    full = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 4)))
    dtype = rng.choice([np.float32, np.float64])

    def part(last):  # any leading axes that broadcast to the full ones
        kept = full[int(rng.integers(0, len(full) + 1)) :]
        lead = tuple(1 if rng.uniform() < 0.3 else size for size in kept)
        return rng.standard_normal((*lead, *last)).astype(dtype)

    mask = None if seed % 3 == 0 else part((n, m)) + np.where(rng.uniform(size=m) < 0.7, 0, -np.inf)
    mask = None if mask is None else mask.astype(dtype)
    _assert_same(part((n, d_k)), part((m, d_k)), part((m, d_v)), mask, scale=0.3)


@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3), (2, 1, 5)])
@pytest.mark.parametrize("sizes", [(5, 11), (131, 131), (600, 600)])
def test_two_threads_give_what_one_gives(rng, two_threads, lead, sizes):
    q, k, v = _draw(rng, lead, *sizes)
    _assert_same(q, k, v, is_causal=True)
    _assert_same(q, k, v, MASKS["causal"](rng, *sizes))
    for first, again in zip(_run("tiled", q, k, v), _run("tiled", q, k, v), strict=True):
        np.testing.assert_array_equal(first, again)  # whichever thread was faster


@pytest.mark.usefixtures("either_way")
def test_masks_may_differ_between_batch_entries_and_heads(rng):
    q, k, v = _draw(rng, (2, 3), 139, 139)
    for lead in [(2, 3), (2, 1), (1, 3), (3,)]:
        _assert_same(q, k, v, rng.uniform(size=(*lead, 139, 139)) < 0.5)
        _assert_same(q, k, v, np.where(rng.uniform(size=(*lead, 1, 139)) < 0.5, 0, -np.inf))


def test_grouped_heads_share_keys_and_values_without_copies(rng, monkeypatch):
    q = rng.standard_normal((2, 2, 3, 139, 5))
    k, v = (rng.standard_normal((2, 2, 1, 139, d)) for d in (5, 3))
    walks = []
    plan = walk.Schedule.plan
    monkeypatch.setattr(
        walk.Schedule, "plan", lambda self, *args: (walks.append(self), plan(self, *args))
    )
    _assert_same(q, k, v, is_causal=True)
    assert walks[0].k.shape == (2, 2, 3, 139, 5)
    assert walks[0].k.strides[2] == walks[0].v.strides[2] == 0


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("lay", [
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    lambda x: x[..., ::-1, :].copy()[..., ::-1, :],
    lambda x: np.asarray(x.swapaxes(-1, -2).copy().swapaxes(-1, -2)),
    lambda x: np.moveaxis(np.moveaxis(x, 0, 1).copy(), 1, 0),
    lambda x: np.broadcast_to(x[:1], x.shape),
], ids=["strided", "reversed", "columns", "axes", "broadcast"])  # fmt: skip
def test_any_layout_in_memory(rng, lay):
    q, k, v = (lay(x) for x in _draw(rng, (2,), 139, 151))
    _assert_same(q, k, v)
    _assert_same(q, k, v, lay(rng.uniform(size=(2, 139, 151)) < 0.5))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("shapes", [
    ((0, 3, 5), (0, 7, 5), (0, 7, 2)), ((2, 0, 5), (2, 7, 5), (2, 7, 2)),
    ((2, 3, 5), (2, 0, 5), (2, 0, 2)),
    ((3, 0), (7, 0), (7, 2)), ((3, 5), (7, 5), (7, 0)),
])  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_axes_of_length_zero(shapes, causal):
    q, k, v = (np.ones(shape) for shape in shapes)
    mask = np.ones((shapes[0][-2], shapes[1][-2]), bool)
    _assert_same(q, k, v, mask, scale=0.5, is_causal=causal)


@pytest.mark.usefixtures("either_way")
def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(rng):
    q, k, v = _draw(rng, (), 139, 151)
    mask = np.ones((139, 151), bool)
    mask[[0, 77, 138]] = False
    out, dq, dk, dv = _run("tiled", q, k, v, mask)
    for array in (out, dq):
        np.testing.assert_array_equal(array[[0, 77, 138]], 0)
    assert all(np.isfinite(array).all() for array in (out, dq, dk, dv))


@pytest.mark.usefixtures("either_way")
def test_large_scores_do_not_overflow(rng):
    q, k, v = _draw(rng, (), 67, 1151)
    _assert_same(q * 300, k, v)
    _assert_same(q * 30, k, v, is_causal=True)


@pytest.mark.usefixtures("either_way")
def _count_shifts(monkeypatch):
    """For each band that is attended to: whether scores were shifted by their maximum."""
    shifts, real = [], tile_kernels._sums

    def counted(*args, shifted):
        shifts.append(shifted)
        return real(*args, shifted=shifted)

    monkeypatch.setattr(tile_kernels, "_sums", counted)
    return shifts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(300, 300), (67, 1151)])
def test_the_maximum_is_left_out_only_where_scores_are_small(rng, monkeypatch, sizes, dtype):
    q, k, v = _draw(rng, (2,), *sizes, dtype=dtype)
    shifts = _count_shifts(monkeypatch)
    _assert_same(q, k, v, is_causal=True)
    assert shifts
    assert not any(shifts)
    shifts.clear()
    _assert_same(q * 30, k, v, is_causal=True)
    assert all(shifts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [(3, 7), (299, 290), (140, 2)])
def test_a_large_score_that_a_look_at_a_few_misses_is_noticed(rng, monkeypatch, place, dtype):
    """It overflows, or leaves its row a sum that is too small: the band is done again."""
    for sign in (1, -1):
        q, k, v = _draw(rng, (), 300, 300, dtype=dtype)
        i, j = place
        mask = np.zeros((300, 300), dtype)
        if sign > 0:
            mask[i, j] = 2000.0
        else:
            mask[i] = -2000.0
        shifts = _count_shifts(monkeypatch)
        _assert_same(q, k, v, mask)
        assert shifts.count(False) == 2  # two bands
        assert shifts.count(True) == 1


def test_values_that_overflow_unless_scores_are_shifted_are_noticed(monkeypatch):
    """Every score is 8, and every value 1e35: e^8 · 300 times that is beyond float32."""
    q, k = np.full((300, 4), 4, np.float32), np.ones((300, 4), np.float32)
    v, shifts = np.full((300, 3), 1e35, np.float32), _count_shifts(monkeypatch)
    np.testing.assert_allclose(mg.tiled_attention(q, k, v), v, rtol=1e-5)
    assert shifts == [False, True] * 2


def test_half_precision(rng):
    q, k, v = _draw(rng, (), 300, 300, dtype=np.float16)
    expected = mg.tiled_attention(*(x.astype(np.float32) for x in (q, k, v)), is_causal=True)
    out = mg.tiled_attention(q, k, v, is_causal=True)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, expected, rtol=0, atol=0.01)


def test_the_mean_of_the_values_for_queries_of_zeros():
    v = np.arange(300.0).reshape(150, 2)
    out = mg.tiled_attention(np.zeros((7, 5)), np.ones((150, 5)), v)
    np.testing.assert_allclose(out, np.tile(v.mean(axis=0), (7, 1)), rtol=1e-13)


@pytest.mark.usefixtures("either_way")
def test_numbers_that_are_no_floats():
    q = np.arange(6).reshape(3, 2)
    np.testing.assert_allclose(mg.tiled_attention(q, q, q), mg.tiled_attention(*[q * 1.0] * 3))
    with pytest.raises(DTypeError, match="real numbers"):
        mg.tiled_attention(q * 1j, q, q)


# ---------------------------------------------------------------- derivatives


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["none", "causal", "additive", "nothing"])
def test_gradcheck_at_first_and_second_order(rng, kind):
    mask = MASKS[kind](rng, 3, 4)
    arrays = _draw(rng, (2,), 3, 4, 2, 2)

    def attention(q, k, v):
        return mg.scaled_dot_product_attention(q, k, v, mask, method="tiled")

    assert mg.gradcheck(attention, arrays, order=2).order == 2


def test_a_wrong_tile_fails_gradcheck(rng, monkeypatch):
    """The checker sees a planted fault: a scale that is off by 0.1 % in backward."""
    real = tile_kernels.differentiate

    def wrong(walk, *args):
        walk.scale *= 1.001
        real(walk, *args)

    monkeypatch.setattr(tile_kernels, "differentiate", wrong)
    with pytest.raises(mg.errors.GradcheckError):
        mg.gradcheck(mg.tiled_attention, _draw(rng, (), 3, 4, 2, 2))


def test_a_mask_that_needs_a_gradient_is_refused_and_auto_goes_step_by_step(rng, monkeypatch):
    q, k, v = (mg.tensor(x, requires_grad=True) for x in _draw(rng, (), 3, 3))
    mask = mg.tensor(np.zeros((3, 3)), requires_grad=True)
    with pytest.raises(GradientError, match=r"no gradient flows into the mask.*mask.detach\(\)"):
        mg.scaled_dot_product_attention(q, k, v, mask, method="tiled")
    object.__setattr__(LIMITS, "tiled_scores", 0)
    mg.scaled_dot_product_attention(q, k, v, mask).sum().backward()
    assert mask.grad.shape == (3, 3)
    out = mg.scaled_dot_product_attention(q, k, v, mask.detach(), method="tiled")
    assert out.node.op.name == "tiled_attention"


# ---------------------------------------------------------------- errors


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("shapes", "mask", "text"), [
    (((3, 5), (7, 4), (7, 2)), None, r"q and k must have last axes of the same length, got 5 != 4"),
    (((3, 5), (7, 5), (6, 2)), None, r"k and v must have as many rows, got 7 != 6"),
    (((2, 3, 5), (4, 7, 5), (7, 2)), None, r"leading axes must broadcast"),
    (((5,), (7, 5), (7, 2)), None, r"two axes or more"),
    (((3, 5), (7, 5), (7, 2)), np.ones((3, 6), bool),
        r"mask must broadcast to \(\.\.\., 3, 7\), got \(3, 6\)"),
])  # fmt: skip
def test_shapes_that_do_not_fit(shapes, mask, text):
    q, k, v = (np.ones(shape) for shape in shapes)
    with pytest.raises(ShapeError, match=text):
        mg.tiled_attention(q, k, v, mask)
    with pytest.raises(ShapeError, match=text):
        mg.tiled_attention(mg.tensor(q, requires_grad=True), k, v, mask)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_in_a_mask_are_refused_wherever_they_stand(rng, value):
    q, k, v = _draw(rng, (), 300, 300)
    for place in [(0, 0), (77, 200), (299, 299)]:
        mask = np.where(np.tri(300, dtype=bool), 0, -np.inf)
        mask[place] = value
        with pytest.raises(ArgumentError, match=r"mask holds NaN or \+inf"):
            mg.tiled_attention(q, k, v, mask)


@pytest.mark.usefixtures("either_way")
def test_an_integer_mask_and_an_unknown_method_are_refused(rng):
    q, k, v = _draw(rng, (), 3, 3)
    with pytest.raises(DTypeError, match="a mask is boolean"):
        mg.tiled_attention(q, k, v, np.ones((3, 3), int))
    with pytest.raises(ArgumentError, match="'fast'"):
        mg.scaled_dot_product_attention(q, k, v, method="fast")


# ---------------------------------------------------------------- what is skipped


def _seen(n, m, mask, is_causal=False):
    """Which entries are computed, and which have the mask added."""
    computed, added = np.zeros((n, m), bool), np.zeros((n, m), bool)
    grid = tiles.TileGrid(n, m, mask, Causal() if is_causal else None)
    for k in range(len(grid)):
        for tile in grid.tiles(k):
            assert not computed[tile.rows, tile.keys].any()  # once
            computed[tile.rows, tile.keys] = True
            for place in tile.masked + tile.ruled + tile.triangles:
                added[place] = True
    return computed, added


@pytest.mark.parametrize("kind", [name for name in MASKS if name not in ("none", "one column")])
@pytest.mark.parametrize("sizes", [(300, 700), (700, 300), (128, 1300)])
def test_every_entry_that_is_open_is_computed_and_every_closed_tile_skipped(rng, kind, sizes):
    n, m = sizes
    mask = np.broadcast_to(MASKS[kind](rng, n, m), sizes)
    computed, added = _seen(n, m, mask)
    is_open = mask if mask.dtype == bool else mask > -np.inf
    assert not (is_open & ~computed).any()
    assert not (computed & ~added & ~is_open).any()  # computed without the mask: open
    for a in range(0, n, tiles.BLOCK):
        for b in range(0, m, tiles.BLOCK):
            block = (slice(a, a + tiles.BLOCK), slice(b, b + tiles.BLOCK))
            assert computed[block].any() == is_open[block].any()


@pytest.mark.parametrize("mask", [
    None, np.tri(640, dtype=bool), np.where(np.tri(640, dtype=bool), 0, -np.inf),
    np.where(np.tri(640, dtype=bool), 0, -np.inf).astype(np.float32),
], ids=["is_causal", "boolean", "float64", "float32"])  # fmt: skip
def test_a_causal_mask_halves_the_work_however_it_is_said(mask):
    """Five blocks of queries see 1 to 5 blocks of keys; the mask is added on the diagonal."""
    computed, added = _seen(640, 640, mask, is_causal=mask is None)
    assert computed.sum() == 15 * 128 * 128
    assert added.sum() == 5 * 128 * 128


@pytest.mark.parametrize("keep", [0, (26 << 20)])
def test_skipped_keys_and_values_are_never_read(rng, monkeypatch, keep):
    """NaN in them, forward and backward, leaves no trace."""
    object.__setattr__(LIMITS, "weights_bytes", keep)
    q, k, v = _draw(rng, (2,), 300, 700)
    for mask, hidden in [
        (np.where(np.arange(700) < 256, 0, -np.inf), slice(256, None)),
        (np.tri(300, 700, dtype=bool), slice(384, None)),
        (np.repeat(np.arange(700) // 128 % 2 == 0, 1)[None], slice(128, 256)),
    ]:
        expected = _run("exact", q, k, v, mask)
        poisoned = [x.copy() for x in (k, v)]
        for x in poisoned:
            x[:, hidden] = np.nan
        for mine, theirs in zip(_run("tiled", q, *poisoned, mask), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keep", [0, (26 << 20)])
@pytest.mark.parametrize("base", [False, True])
def test_a_block_that_is_not_what_its_corners_say_is_read_right(rng, monkeypatch, base, keep):
    """One entry in the midst of closed blocks, or of open ones, for some of the heads."""
    object.__setattr__(LIMITS, "weights_bytes", keep)
    mask = np.full((2, 1, 600, 600), base)
    mask[1, 0, 300, 450] = mask[0, 0, 70, 70] = not base
    _assert_same(*_draw(rng, (2, 3), 600, 600), mask)
    _assert_same(*_draw(rng, (2, 3), 600, 600), np.where(mask, 0, -np.inf))
    _assert_same(*_draw(rng, (2, 3), 600, 600), np.where(mask, 0, -np.inf), is_causal=True)


def test_the_causal_mask_but_for_one_entry_on_a_diagonal_block(rng):
    for place, value in [((140, 150), 0.0), ((150, 140), -np.inf), ((140, 140), 0.25)]:
        mask = np.where(np.tri(300, dtype=bool), 0, -np.inf)
        mask[place] = value
        _assert_same(*_draw(rng, (), 300, 300), mask)


def test_a_mask_that_was_written_to_is_read_anew(rng):
    """The same object, once causal, then with one entry opened, then with one closed."""
    q, k, v = _draw(rng, (), 300, 300)
    mask = np.where(np.tri(300, dtype=bool), 0, -np.inf)
    _assert_same(q, k, v, mask)
    for place, value in [((3, 290), 0.0), ((290, 3), -np.inf), ((200, 100), 0.5)]:
        mask[place] = value
        _assert_same(q, k, v, mask)


def _flops(q, k, v, mask=None, is_causal=False):
    """As a trace counts them, of the recorded call."""
    with mg.trace() as t:
        mg.scaled_dot_product_attention(
            mg.tensor(q, requires_grad=True), k, v, mask, is_causal=is_causal, method="tiled"
        )
    return next(entry.flops for entry in t if entry.op == "tiled_attention")


@pytest.mark.usefixtures("either_way")
def test_flops_are_those_of_the_closed_form(rng):
    count = _flops(*_draw(rng, (2,), 3, 7, 5, 11))
    assert count == 2 * 3 * 7 * (2 * 5 + 5 + 2 * 11)


def test_flops_of_skipped_tiles_are_not_counted(rng):
    """Of five blocks by five, causality leaves 15; padding two columns of them; both 9."""
    q, k, v = _draw(rng, (2, 3), 640, 640)
    score = 2 * 5 + 5 + 2 * 3
    causal, padding = np.tri(640, dtype=bool), np.arange(640) < 256
    for mask, is_causal, blocks in [
        (None, False, 25), (None, True, 15), (causal, False, 15), (causal[None, None], True, 15),
        (padding, False, 10), (padding, True, 9), (np.zeros((640, 1), bool), False, 0),
    ]:  # fmt: skip
        assert _flops(q, k, v, mask, is_causal) == 6 * blocks * 128**2 * score


def test_flops_under_masks_that_differ_are_each_masks_own(rng):
    q, k, v = _draw(rng, (2, 3), 256, 256)
    masks = np.zeros((2, 1, 256, 256), bool)
    masks[0] = np.tri(256)  # 3 of 4 blocks, for each of three heads
    masks[1, :, :, 200:] = True  # 2
    assert _flops(q, k, v, masks) == 3 * (3 + 2) * 128**2 * (2 * 5 + 5 + 2 * 3)


def test_in_one_tile_every_score_is_computed_and_counted(rng, monkeypatch):
    object.__setattr__(LIMITS, "one_tile_scores", 1 << 30)
    q, k, v = _draw(rng, (), 256, 256)
    assert _flops(q, k, v, None, is_causal=True) == 256**2 * (2 * 5 + 5 + 2 * 3)


# ---------------------------------------------------------------- memory


def _peak(n, keep, monkeypatch):
    """Bytes that one forward and backward allocates at most."""
    object.__setattr__(LIMITS, "weights_bytes", keep)
    parallel._idle.clear()
    memory.release()
    q = np.zeros((1, n, 16), np.float32)
    leaves = [mg.tensor(q, requires_grad=True) for _ in range(3)]
    gc.collect()
    tracemalloc.start()
    out = mg.scaled_dot_product_attention(*leaves, is_causal=True, method="tiled")
    out.backward(q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_grows_with_n_and_not_with_its_square(monkeypatch):
    small, middle, large = (_peak(n, 0, monkeypatch) for n in (1024, 2048, 4096))
    assert large - middle < 2.2 * (middle - small)  # a square would give 4
    assert large < 4096 * 4096 * 4 / 4


def test_what_is_kept_stays_within_its_budget(monkeypatch):
    object.__setattr__(LIMITS, "threaded_work", np.inf)
    without, within = (_peak(1024, keep, monkeypatch) for keep in (0, 1 << 20))
    assert 0 < within - without <= 1 << 20


def test_nothing_is_kept_where_nothing_is_recorded(rng):
    q, k, v = (mg.tensor(x, requires_grad=True) for x in _draw(rng, (), 300, 300))
    with mg.no_grad():
        out = mg.scaled_dot_product_attention(q, k, v, method="tiled")
    assert out.node is None
    recorded = mg.scaled_dot_product_attention(q, k, v, method="tiled").node
    assert recorded.saved[recorded.plan.names.index("weights")].nbytes > 300 * 300 * 8


def test_scratch_is_bounded_from_call_to_call():
    parallel._idle.clear()
    q = np.ones((1200, 1500), np.float32)
    mg.tiled_attention(q, q, q)
    assert len(parallel._idle) <= 4
    assert all(scratch.nbytes <= parallel.Scratch.LARGEST for scratch in parallel._idle)


# ---------------------------------------------------------------- threads


def _limits():
    """Threads of each BLAS (PyTorch, if another test loaded it, brings an OpenMP of its own)."""
    libraries = threadpoolctl.threadpool_info()
    return [library["num_threads"] for library in libraries if library["user_api"] == "blas"]


@pytest.fixture
def always_shared(monkeypatch):
    object.__setattr__(LIMITS, "threaded_work", 0)


def test_blas_keeps_to_one_thread_within_and_has_its_own_again_after(
    rng, always_shared, monkeypatch
):
    before, within = _limits(), []
    real = tile_kernels.attend
    monkeypatch.setattr(
        tile_kernels, "attend", lambda *args: (within.append(_limits()), real(*args))
    )
    _run("tiled", *_draw(rng, (2,), 139, 139))
    assert within
    assert all(limit == 1 for limits in within for limit in limits)
    assert _limits() == before


@pytest.mark.parametrize("place", ["attend", "differentiate"])
def test_an_exception_passes_and_leaves_no_limit(rng, always_shared, monkeypatch, place):
    def fail(*args):
        raise ZeroDivisionError("planted")

    before = _limits()
    monkeypatch.setattr(tile_kernels, place, fail)
    with pytest.raises(ZeroDivisionError, match="planted"):
        _run("tiled", *_draw(rng, (4,), 300, 300))
    assert _limits() == before


def _helpers():
    return [thread for thread in threading.enumerate() if isinstance(thread, parallel._Helper)]


def test_a_helper_does_one_job_after_another(monkeypatch):
    """Ten jobs in a row, one after a failure, and there is one helper for all of them."""
    parallel._free.clear()
    before, who = set(_helpers()), []
    for i in range(10):
        both = threading.Barrier(2)  # so each of the two takes one item

        def work(item, _, both=both, i=i):
            both.wait()
            who.append(threading.current_thread())
            if i == 4:
                raise ZeroDivisionError("planted")

        try:
            parallel.run(work, range(2), 2)
        except ZeroDivisionError:
            assert i == 4
    helpers = set(who) - {threading.current_thread()}
    assert len(who) == 20
    assert len(helpers) == 1
    assert set(_helpers()) - before == helpers


def test_a_helper_ends_when_nothing_came_for_a_while(monkeypatch):
    monkeypatch.setattr(parallel._Helper, "PATIENCE", 0.01)
    parallel._free.clear()
    parallel.run(lambda *_: None, range(2), 2)
    (helper,) = parallel._free
    helper.join(timeout=60)
    assert not helper.is_alive()
    assert not parallel._free
    done = []
    parallel.run(lambda item, _: done.append(item), range(5), 2)
    assert sorted(done) == list(range(5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_helpers_of_its_own():
    parallel.run(lambda *_: None, range(2), 2)
    child = os.fork()
    if child == 0:
        done = []
        parallel.run(lambda item, _: done.append(item), range(8), 2)
        os._exit(0 if sorted(done) == list(range(8)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_users_own_limit_is_respected_and_put_back(rng, always_shared, monkeypatch):
    started = []
    real = parallel._started
    monkeypatch.setattr(
        parallel, "_started", lambda serve, n: (started.append(n), real(serve, n))[1]
    )
    with threadpoolctl.threadpool_limits(1):
        _run("tiled", *_draw(rng, (4,), 139, 139))
        assert set(_limits()) == {1}
    assert max(started) <= 0


def test_a_limit_set_by_one_thread_is_put_back_by_another(always_shared):
    """The last one out may not be the first one in; and neither keeps the say over BLAS."""
    before, said = _limits(), {}
    first_in, last_out, done, end = (threading.Event() for _ in range(4))

    def enter():
        with parallel.one_threaded_blas:
            said["within"] = _limits()
            first_in.set()
            last_out.wait()
        done.set()
        end.wait()  # the thread lives on

    user = threading.Thread(target=enter)
    user.start()
    first_in.wait()
    with parallel.one_threaded_blas:
        last_out.set()
        done.wait()
        said["still"] = _limits()
    assert said == {"within": [1] * len(before), "still": [1] * len(before)}
    assert _limits() == before
    end.set()
    user.join()


def test_every_thread_in_turn_has_blas_on_one_thread(always_shared):
    """Also when another thread, which lives on, was within before it."""
    before, found = _limits(), []
    with parallel.one_threaded_blas:
        pass

    def enter():
        with parallel.one_threaded_blas:
            found.append(_limits())

    user = threading.Thread(target=enter)
    user.start()
    user.join()
    assert found == [[1] * len(before)]
    assert _limits() == before


def test_several_threads_of_the_user_at_once(rng, always_shared):
    """Each gets its own answer, and the last one out restores BLAS's threads."""
    before, found = _limits(), {}
    cases = [_draw(rng, (2,), 139 + i, 151) for i in range(6)]

    def work(i):
        for _ in range(3):
            found[i] = _run("tiled", *cases[i])

    users = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert _limits() == before
    for i, case in enumerate(cases):
        for mine, theirs in zip(found[i], _run("exact", *case), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


def test_without_threadpoolctl_one_thread_does_it_all(rng, always_shared, monkeypatch):
    monkeypatch.setattr(parallel, "_blas", lambda: None)
    monkeypatch.setattr(parallel.one_threaded_blas, "_threads", 1)
    _assert_same(*_draw(rng, (2,), 139, 139))


def test_the_threads_run_in_the_callers_context(rng, two_threads):
    """np.errstate holds in them too."""
    q, k, v = _draw(rng, (8,), 139, 139)
    q[:] = 1e308
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        mg.tiled_attention(q, k, v, scale=100.0)


def test_a_product_on_several_threads_is_the_product(rng, monkeypatch):
    blas = type(parallel.one_threaded_blas)
    enter = blas.__enter__
    monkeypatch.setattr(blas, "__enter__", lambda self: (enter(self), 2)[1])
    for n, k, m in [(7, 5, 3), (3, 5, 7), (3, 23, 5), (1, 5, 1), (0, 5, 3), (3, 0, 5)]:
        a, b = rng.standard_normal((n, k)), rng.standard_normal((k, m))
        with LIMITS.changed(serial_product=-1, shared_product=0):
            np.testing.assert_allclose(parallel.product(a, b), a @ b, rtol=1e-14, atol=1e-14)


# ---------------------------------------------------------------- which method


def test_auto_goes_in_tiles_from_a_size_on_whoever_listens(rng, monkeypatch):
    """A trace shows what runs without it; to look inside, ask for the exact form."""
    q, k, v = (mg.tensor(x, requires_grad=True) for x in _draw(rng, (), 7, 7))
    assert mg.scaled_dot_product_attention(q, k, v).node.op.name == "matmul"
    object.__setattr__(LIMITS, "tiled_scores", 49)
    assert mg.scaled_dot_product_attention(q, k, v).node.op.name == "tiled_attention"
    with mg.trace() as t:
        mg.scaled_dot_product_attention(q, k, v).sum().backward()
    assert [entry.op for entry in t if entry.kind == "op"] == ["tiled_attention", "sum"]


def test_a_compiled_step_takes_the_form_that_auto_means(rng, monkeypatch):
    """And reads its mask anew at each call, as the eager one does."""
    object.__setattr__(LIMITS, "tiled_scores", 49)
    q, k, v = (mg.tensor(x, requires_grad=True) for x in _draw(rng, (), 300, 300))

    def step(mask):
        out = mg.scaled_dot_product_attention(q, k, v, mask)
        out.sum().backward()
        return out

    compiled, mask = mg.compile(step), np.where(np.tri(300, dtype=bool), 0, -np.inf)
    for place in [(0, 0), (3, 290), (200, 100)]:
        mask[place] = 0.5
        found = []
        for run in (step, compiled):
            q.grad = k.grad = v.grad = None
            found.append([run(mask).numpy(), q.grad, k.grad, v.grad])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-13)
    assert not compiled.reasons
    assert "tiled_attention" in compiled.source


@pytest.mark.parametrize("large", [False, True])
def test_compiled_both_ways_go_in_tiles_and_blas_stays_out_of_the_threads_way(
    rng, monkeypatch, large
):
    object.__setattr__(LIMITS, "threaded_work", 1 if large else 1 << 60)
    limited = []
    kept = mg.compile.__globals__["_on_one_blas_thread"]
    monkeypatch.setitem(
        mg.compile.__globals__,
        "_on_one_blas_thread",
        lambda run: limited.append(run) or kept(run),
    )
    q, k, v = (mg.tensor(x, requires_grad=True) for x in _draw(rng, (), 600, 600))

    @mg.compile
    def step():
        out = mg.scaled_dot_product_attention(q, k, v, is_causal=True, method="tiled")
        out.sum().backward()
        return out

    step()
    assert not step.reasons
    assert "tiled_attention_backward(" in step.source
    assert "(600, 600)" not in step.source
    assert bool(limited) == large


# ---------------------------------------------------------------- many short sequences


LEADS = [(5,), (5, 2), (7, 1), (1, 7), (3, 4, 2), (2, 0, 3), (0, 2)]
MASKS_OF = {
    "none": lambda lead: None,
    "one": lambda lead: (),
    "one an example": lambda lead: (*lead[:-1], 1),
    "one a head": lambda lead: (lead[-1],),
    "each its own": lambda lead: lead,
}


@pytest.mark.parametrize("of", MASKS_OF)
@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_short_sequences_go_several_examples_at_a_time(lead, of, threads, request, rng):
    if threads == 2:
        request.getfixturevalue("two_threads")
    q, k, v = _draw(rng, lead, 6, 9)
    shape = MASKS_OF[of](lead)
    mask = None if shape is None else rng.uniform(size=(*shape, 6, 9)) < 0.7
    _assert_same(q, k, v, mask)
    _assert_same(*(x.swapaxes(0, -3).copy().swapaxes(0, -3) for x in (q, k, v)), mask)


@pytest.mark.parametrize(
    ("lead", "masks", "lanes"),
    [
        ((64, 8), None, [(64, 8)]),
        ((64, 8), (), [(64, 8)]),
        ((64, 8), (64, 1), [(1, 8)] * 64),
        ((64, 8), (8,), [(1, 1)] * 512),
        ((2, 3, 4), None, [(1, 3, 4)] * 2),
        ((1024,), None, [(728,), (296,)]),
    ],
)
def test_a_lane_takes_as_many_heads_of_one_mask_as_fill_a_tile(lead, masks, lanes, rng):
    q = np.zeros((*lead, 20, 3))
    k = np.zeros((*lead, 18, 3))
    mask = None if masks is None else np.ones((*masks, 20, 18), bool)
    plan = walk.Schedule(q, k, k, mask, None, None)
    plan.plan(1, 0)
    assert [plan.q[lane.heads].shape[:-2] for lane in plan.groups] == [
        tuple(size for size, place in zip(sizes, lane.heads, strict=True) if type(place) is slice)
        for sizes, lane in zip(lanes, plan.groups, strict=True)
    ]
    seen = np.zeros(lead, int)
    for lane in plan.groups:
        seen[lane.heads] += 1
    assert (seen == 1).all()
