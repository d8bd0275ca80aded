"""Attention in tiles equals attention step by step, whatever mask, shapes and layout."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from minigrad.fast import threads
from minigrad.fast.limits import LIMITS
from minigrad.fast.tiles import attend_block, attend_block_backward
from minigrad.ops.mask_rules import Causal, Global, Window
from tests.compare import assert_same
from tests.compiled import assert_compiles

pytest.importorskip("threadpoolctl")  # without it there is one thread


@pytest.fixture(autouse=True)
def in_tiles():
    """However few scores there are."""
    with LIMITS.changed(one_tile_scores=0):
        yield


@pytest.fixture(params=["tiles", "one tile"])
def either_way(request):
    """In tiles, and in one tile that takes all."""
    with LIMITS.changed(one_tile_scores=0 if request.param == "tiles" else 1 << 30):
        yield


@pytest.fixture
def two_threads(monkeypatch):
    """All work is shared by two threads, however small it is and however many BLAS has."""
    monkeypatch.setattr(threads.one_threaded_blas, "_settle", lambda: None)
    monkeypatch.setattr(threads.one_threaded_blas, "_threads", 2)
    with LIMITS.changed(threaded_work=0):
        yield


def run(method, q, k, v, mask=None, seed=1, **settings):
    """Output and gradients by one method, under the same random cotangent."""
    leaves = [mg.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = mg.scaled_dot_product_attention(*leaves, mask, method=method, **settings)
    out.backward(np.random.default_rng(seed).standard_normal(out.shape).astype(out.dtype))
    return [out.numpy(), *(x.grad for x in leaves)]


def assert_close(found, expected, tolerance=1e-12):
    """To so much of 1, or of the largest entry: a gradient may be 0 but for rounding."""
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        size = max(1.0, np.abs(theirs).max(initial=0))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * size)


def assert_equals_exact(q, k, v, mask=None, **settings):
    expected, found = (run(method, q, k, v, mask, **settings) for method in ("exact", "tiled"))
    assert_close(found, expected, 1e-12 if q.dtype == np.float64 else 3e-5)


def draw(rng, lead, n, m, d_k=5, d_v=3, dtype=np.float64):
    shapes = ((*lead, n, d_k), (*lead, m, d_k), (*lead, m, d_v))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


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
    "window": lambda rng, n, m: Window(17).array(n, m),
}

RULES = {
    "causal": Causal(),
    "window": Window(17),
    "causal window": Causal() & Window(150),
    "dilated": Window(3, dilation=50),
    "global": Window(30) | Global((0, 130)),
    "shifted": (Causal() & Window(99)).shifted(60),
    "nothing": Causal().shifted(-2000),
}

# ---------------------------------------------------------------- equality


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(3, 7), (131, 257), (307, 139), (67, 1151)])
def test_output_and_gradients_equal_the_exact_ones_under_any_mask(rng, kind, causal, sizes):
    mask = MASKS[kind](rng, *sizes)
    assert_equals_exact(*draw(rng, (2,), *sizes), mask, is_causal=causal)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("sizes", [(3, 7), (307, 139)])
def test_a_rule_is_its_array(rng, kind, sizes):
    """By itself, under causality, and together with a mask of padding."""
    q, k, v = draw(rng, (2,), *sizes)
    rule, padding = RULES[kind], MASKS["padding"](rng, *sizes)
    for mask, is_causal in [(None, False), (None, True), (padding, False)]:
        found = run("tiled", q, k, v, mask, rule=rule, is_causal=is_causal)
        array = np.where(rule.array(*sizes), 0.0 if mask is None else mask, -np.inf)
        assert_close(found, run("exact", q, k, v, array, is_causal=is_causal))
    assert_close(run("tiled", q, k, v, rule), run("exact", q, k, v, rule))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["none", "causal", "padding", "blocks", "additive"])
@pytest.mark.parametrize("weights_bytes", [0, 1 << 18, 26 << 20])
def test_weights_that_are_stored_and_that_are_made_again_give_the_same(rng, kind, weights_bytes):
    """With no budget, one for some of the tiles, and one for all."""
    with LIMITS.changed(weights_bytes=weights_bytes):
        assert_equals_exact(*draw(rng, (3,), 389, 389), MASKS[kind](rng, 389, 389))


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
    assert_equals_exact(part((n, d_k)), part((m, d_k)), part((m, d_v)), mask, scale=0.3)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3), (2, 1, 5)])
@pytest.mark.parametrize("sizes", [(5, 11), (131, 131), (300, 300)])
def test_two_threads_give_what_one_gives(rng, lead, sizes):
    q, k, v = draw(rng, lead, *sizes)
    assert_equals_exact(q, k, v, is_causal=True)
    assert_equals_exact(q, k, v, MASKS["causal"](rng, *sizes))
    assert_same(run("tiled", q, k, v), run("tiled", q, k, v), 0)


LEADS = [(5,), (5, 2), (7, 1), (1, 7), (3, 4, 2), (2, 0, 3)]
MASKS_OF = {
    "none": lambda lead: None,
    "one": lambda lead: (),
    "one an example": lambda lead: (*lead[:-1], 1),
    "one a head": lambda lead: (lead[-1],),
    "each its own": lambda lead: lead,
}


@pytest.mark.parametrize("of", MASKS_OF)
@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_masks_may_differ_between_examples_and_heads(lead, of, count, request, rng):
    """And short sequences go several heads at a time, in whatever order they lie in memory."""
    if count == 2:
        request.getfixturevalue("two_threads")
    q, k, v = draw(rng, lead, 6, 9)
    shape = MASKS_OF[of](lead)
    mask = None if shape is None else rng.uniform(size=(*shape, 6, 9)) < 0.7
    assert_equals_exact(q, k, v, mask)
    assert_equals_exact(*(x.swapaxes(0, -3).copy().swapaxes(0, -3) for x in (q, k, v)), mask)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("lay", [
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    lambda x: x[..., ::-1, :].copy()[..., ::-1, :],
    lambda x: np.asarray(x.swapaxes(-1, -2).copy().swapaxes(-1, -2)),
    lambda x: np.moveaxis(np.moveaxis(x, 0, 1).copy(), 1, 0),
    lambda x: np.broadcast_to(x[:1], x.shape),
], ids=["strided", "reversed", "columns", "axes", "broadcast"])  # fmt: skip
def test_any_layout_in_memory(rng, lay):
    q, k, v = (lay(x) for x in draw(rng, (2,), 139, 151))
    assert_equals_exact(q, k, v)
    assert_equals_exact(q, k, v, lay(rng.uniform(size=(2, 139, 151)) < 0.5))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("shapes", [
    ((0, 3, 5), (0, 7, 5), (0, 7, 2)), ((2, 0, 5), (2, 7, 5), (2, 7, 2)),
    ((2, 3, 5), (2, 0, 5), (2, 0, 2)),
    ((3, 0), (7, 0), (7, 2)), ((3, 5), (7, 5), (7, 0)),
])  # fmt: skip
@pytest.mark.parametrize("rule", [None, Causal()])
def test_axes_of_length_zero(shapes, rule):
    q, k, v = (np.ones(shape) for shape in shapes)
    mask = np.ones((shapes[0][-2], shapes[1][-2]), bool)
    assert_equals_exact(q, k, v, mask, scale=0.5, rule=rule)


@pytest.mark.usefixtures("either_way")
def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(rng):
    mask = np.ones((139, 151), bool)
    mask[[0, 77, 138]] = False
    out, dq, *others = run("tiled", *draw(rng, (), 139, 151), mask)
    for array in (out, dq):
        np.testing.assert_array_equal(array[[0, 77, 138]], 0)
    assert all(np.isfinite(array).all() for array in others)


# ---------------------------------------------------------------- large and small numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [(3, 7), (299, 290), (140, 2)])
def test_a_large_score_that_a_look_at_a_few_misses_is_noticed(rng, place, dtype):
    """It overflows, or leaves its row a sum that is too small: the block is done again."""
    i, j = place
    for where, score in (((i, j), 2000.0), ((i,), -2000.0)):
        q, k, v = draw(rng, (), 300, 300, dtype=dtype)
        mask = np.zeros((300, 300), dtype)
        mask[where] = score
        assert_equals_exact(q, k, v, mask)


def test_values_that_overflow_unless_scores_are_shifted_are_noticed():
    """Every score is 8, and every value 1e35: e^8 · 300 times that is beyond float32."""
    q, k = np.full((300, 4), 4, np.float32), np.ones((300, 4), np.float32)
    v = np.full((300, 3), 1e35, np.float32)
    np.testing.assert_allclose(mg.tiled_attention(q, k, v), v, rtol=1e-5)


@pytest.mark.usefixtures("either_way")
def test_whole_numbers_are_taken_as_floats_and_complex_ones_refused():
    q = np.arange(6).reshape(3, 2)
    np.testing.assert_allclose(mg.tiled_attention(q, q, q), mg.tiled_attention(*[q * 1.0] * 3))
    with pytest.raises(DTypeError, match="real numbers"):
        mg.tiled_attention(q * 1j, q, q)


# ---------------------------------------------------------------- derivatives


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["none", "causal", "additive", "nothing"])
def test_gradcheck_at_first_and_second_order(rng, kind):
    mask = MASKS[kind](rng, 3, 4)

    def attention(q, k, v):
        return mg.scaled_dot_product_attention(q, k, v, mask, method="tiled", rule=Window(3))

    assert mg.gradcheck(attention, draw(rng, (2,), 3, 4, 2, 2), order=2).order == 2


def test_a_mask_that_needs_a_gradient_is_refused_and_auto_goes_step_by_step(rng):
    q, k, v = (mg.tensor(x, requires_grad=True) for x in draw(rng, (), 3, 3))
    mask = mg.tensor(np.zeros((3, 3)), requires_grad=True)
    with pytest.raises(GradientError, match=r"no gradient flows into the mask.*mask.detach\(\)"):
        mg.scaled_dot_product_attention(q, k, v, mask, method="tiled")
    with LIMITS.changed(tiled_scores=0):
        mg.scaled_dot_product_attention(q, k, v, mask).sum().backward()
    assert mask.grad.shape == (3, 3)
    out = mg.scaled_dot_product_attention(q, k, v, mask.detach(), method="tiled")
    assert out.node.op.name == "tiled_attention"


# ---------------------------------------------------------------- keys in several blocks


@pytest.mark.parametrize("rule", [None, Causal(), Causal() & Window(200)])
@pytest.mark.parametrize("scale", [1, 40])
def test_attention_to_blocks_of_keys_joins_to_attention_to_all(rng, rule, scale):
    """As ring attention does it, forward and backward; some queries see nothing of a block."""
    q, k, v = draw(rng, (2,), 300, 300)
    q *= scale
    g = rng.standard_normal((2, 300, 3))
    expected = mg.tiled_attention(q, k, v, rule=rule)
    parts = [slice(0, 130), slice(130, 300)]
    rules = [rule and rule.shifted(-part.start) for part in parts]
    found = [
        attend_block(q, k[:, part], v[:, part], rule=one)
        for part, one in zip(parts, rules, strict=True)
    ]
    row_max = np.maximum(found[0][1], found[1][1])
    weights = [row_sum * np.exp(most - row_max) for _, most, row_sum in found]
    row_sum = weights[0] + weights[1]
    out = sum(w[..., None] * O for w, (O, _, _) in zip(weights, found, strict=True))
    out /= row_sum[..., None]
    assert_same(out, expected, 1e-12)
    made = [
        attend_block_backward(g, q, k[:, part], v[:, part], out, row_max, row_sum, rule=one)
        for part, one in zip(parts, rules, strict=True)
    ]
    leaves = [mg.tensor(x, requires_grad=True) for x in (q, k, v)]
    dq, dk, dv = mg.grad(mg.tiled_attention(*leaves, rule=rule), leaves, g)
    assert_same(made[0][0] + made[1][0], dq, 1e-11)
    for i, whole in ((1, dk), (2, dv)):
        assert_same(np.concatenate([made[0][i], made[1][i]], axis=1), whole, 1e-11)


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
    q, k, v = draw(rng, (), 300, 300)
    for place in [(0, 0), (77, 200), (299, 299)]:
        mask = np.where(np.tri(300, dtype=bool), 0, -np.inf)
        mask[place] = value
        with pytest.raises(ArgumentError, match=r"mask holds NaN or \+inf"):
            mg.tiled_attention(q, k, v, mask)


# ---------------------------------------------------------------- which method


def test_a_compiled_step_takes_the_form_that_auto_means(rng):
    """And reads its mask anew at each call, as the eager one does."""
    leaves = [mg.tensor(x, requires_grad=True) for x in draw(rng, (), 300, 300)]

    def step(mask):
        out = mg.scaled_dot_product_attention(*leaves, mask)
        out.sum().backward()
        return out

    masks = [np.where(np.tri(300, dtype=bool), 0, -np.inf) for _ in range(3)]
    for mask, place in zip(masks, [(0, 0), (3, 290), (200, 100)], strict=True):
        mask[place] = 0.5
    with LIMITS.changed(tiled_scores=49):
        compiled = assert_compiles(step, leaves, *zip(masks))
    assert "tiled_attention" in compiled.source
