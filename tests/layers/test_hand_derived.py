"""The hand-derived steps against closed forms, and against the complex step of another forward.

The forward pass below is written again, differently (einsum, finite scores, an index instead of a
repeat), and takes complex numbers: f(x + i·h·u) = f(x) + i·h·⟨∂f, u⟩ gives each gradient without
subtraction, exact to rounding. It can bump every symbol, so every intermediate is checked too.
"""

import numpy as np
import pytest

from layers.hand_derived import multi_head_steps, self_attention_steps
from tests.compare import refusals

B, N, D_MODEL, D_K, D_V = 2, 5, 7, 3, 11
HEADS, KV_HEADS = 6, 2
BIASES = ("b_Q", "b_K", "b_V", "b_O")
CAUSAL = np.tril(np.ones((N, N), dtype=bool))
ADDITIVE_CAUSAL = np.where(CAUSAL, 0.0, -np.inf)
PADDING = np.array([[[1, 1, 1, 0, 0]], [[1, 1, 1, 1, 0]]], dtype=bool)  # (B, 1, n)
ONE_ROW_NOWHERE = CAUSAL & (np.arange(N)[:, None] != 3)

SINGLE_MASKS = {
    "none": None,
    "boolean": np.random.default_rng(13).random((B, N, N)) < 0.6,
    "additive bias": np.random.default_rng(17).normal(size=(B, N, N)),
    "causal": CAUSAL,
    "additive causal": ADDITIVE_CAUSAL,
    "padding": PADDING,
    "additive padding": np.where(PADDING, 0.0, -np.inf),
    "causal and padding": CAUSAL & PADDING,
    "fully masked row": ONE_ROW_NOWHERE,
    "additive fully masked row": np.where(ONE_ROW_NOWHERE, 0.0, -np.inf),
}
HEAD_MASKS = {
    name: SINGLE_MASKS[name]
    for name in ("none", "boolean", "additive causal", "padding", "fully masked row")
} | {
    "(1, 1, L, L)": ADDITIVE_CAUSAL[None, None],
    "each head its own": np.random.default_rng(19).random((B, HEADS, N, N)) < 0.6,
}


# --- the other forward, and what the tests draw ---------------------------------------------------


def single_inputs(seed=0, biases=True, batch=(B,), n=N):
    shapes = {"X": (*batch, n, D_MODEL), "W_Q": (D_MODEL, D_K), "W_K": (D_MODEL, D_K)}
    shapes |= {"W_V": (D_MODEL, D_V), "W_O": (D_V, D_MODEL), "grad_output": (*batch, n, D_MODEL)}
    if biases:
        shapes |= dict(zip(BIASES, [(D_K,), (D_K,), (D_V,), (D_MODEL,)], strict=True))
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def head_inputs(seed=0, biases=True, batch=(B,), n=N, h=HEADS, g=KV_HEADS):
    widths = {"Q": h * D_K, "K": g * D_K, "V": g * D_V}
    shapes = {"X": (*batch, n, D_MODEL), "grad_output": (*batch, n, D_MODEL)}
    shapes |= {f"W_{p}": (D_MODEL, width) for p, width in widths.items()}
    shapes |= {"W_O": (h * D_V, D_MODEL)}
    if biases:
        shapes |= {f"b_{p}": (width,) for p, width in widths.items()} | {"b_O": (D_MODEL,)}
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def loss(inputs, mask, bump, h=None, g=None):
    """Σ grad_output ⊙ out, with bump[symbol] added to that symbol; h is None for one head."""

    def named(symbol, value):
        return value + bump.get(symbol, 0.0)

    def split(flat, heads):
        return np.moveaxis(flat.reshape(B, N, heads, -1), 2, 1)

    def project(p, flat):
        y = np.einsum("bnm,md->bnd", x, named(f"W_{p}", inputs[f"W_{p}"]))
        return named(flat, y + named(f"b_{p}", inputs.get(f"b_{p}", 0.0)))

    x = named("X", inputs["X"])
    if h is None:
        q, k, v = (project(p, p) for p in "QKV")
    else:
        q = named("Q", split(project("Q", "Q_flat"), h))
        k, v = (named(p, split(project(p, f"{p}_flat"), g)) for p in "KV")
        shared = np.arange(h) // (h // g)
        k, v = k[:, shared], v[:, shared]
    s = named("S", named("S_raw", np.einsum("...id,...jd->...ij", q, k)) / np.sqrt(D_K))
    allowed, bias = as_boolean_and_bias(mask, s.shape)
    s = named("S_masked", s + bias)
    top = np.where(allowed, s.real, -np.inf).max(axis=-1, keepdims=True)
    e = np.where(allowed, np.exp(s - np.where(allowed.any(-1, keepdims=True), top, 0)), 0)
    a = named("A", e / np.where(allowed.any(-1), e.sum(-1), 1)[..., None])
    o = named("O", np.einsum("...ij,...jd->...id", a, v))
    if h is not None:
        o = named("C", np.moveaxis(o, 1, 2).reshape(B, N, -1))
    out = np.einsum("bnd,dm->bnm", o, named("W_O", inputs["W_O"]))
    return (inputs["grad_output"] * (out + named("b_O", inputs.get("b_O", 0.0)))).sum()


def as_boolean_and_bias(mask, shape):
    """A mask in two finite pieces: where attention is allowed, and what is added there."""
    if mask is None:
        return np.ones(shape, dtype=bool), 0.0
    if mask.ndim == 3 and len(shape) == 4:
        mask = mask[:, None]
    mask = np.broadcast_to(mask, shape)
    return (mask, 0.0) if mask.dtype == bool else (mask > -np.inf, np.maximum(mask, -100.0))


def assert_derivative(symbol, gradient, f, directions):
    """⟨gradient, u⟩ is the complex-step derivative of f along each direction u of the symbol."""
    step = 1e-30
    numeric = [f({symbol: 1j * step * u}).imag / step for u in directions]
    found = [(gradient * u).sum() for u in directions]
    np.testing.assert_allclose(found, numeric, rtol=1e-10, atol=1e-11, err_msg=symbol)


def every_entry(shape):
    return np.eye(int(np.prod(shape))).reshape(-1, *shape)


def random_directions(shape, count=5):
    return np.random.default_rng(23).normal(size=(count, *shape))


def merged(steps):
    """All gradients of all steps; no symbol is yielded twice."""
    gradients = {}
    for step in steps:
        assert not gradients.keys() & step.gradients.keys()
        gradients |= step.gradients
    return gradients


# --- closed forms ---------------------------------------------------------------------------------


# --- the complex step -----------------------------------------------------------------------------


@pytest.mark.parametrize("biases", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("mask", SINGLE_MASKS.values(), ids=SINGLE_MASKS)
def test_every_entry_of_every_single_head_gradient_is_the_complex_step_derivative(mask, biases):
    inputs = single_inputs(biases=biases)
    gradients = merged(self_attention_steps(**inputs, mask=mask))
    for symbol, gradient in gradients.items():
        directions = every_entry(gradient.shape)
        assert_derivative(symbol, gradient, lambda bump: loss(inputs, mask, bump), directions)


@pytest.mark.parametrize("biases", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("g", [1, 2, 3, 6])
@pytest.mark.parametrize("mask", HEAD_MASKS.values(), ids=HEAD_MASKS)
def test_every_multi_head_gradient_is_the_complex_step_derivative(mask, g, biases):
    inputs = head_inputs(biases=biases, g=g)
    gradients = merged(multi_head_steps(n_heads=HEADS, n_kv_heads=g, **inputs, mask=mask))
    for symbol, gradient in gradients.items():
        directions = random_directions(gradient.shape)
        assert_derivative(
            symbol, gradient, lambda bump: loss(inputs, mask, bump, HEADS, g), directions
        )


@pytest.mark.parametrize("symbol", ["W_Q", "S_masked", "A", "X"])
def test_the_check_rejects_a_gradient_that_is_wrong_by_one_part_in_two_thousand(symbol):
    inputs = single_inputs()
    wrong = merged(self_attention_steps(**inputs))[symbol] * 1.0005
    with pytest.raises(AssertionError, match=symbol):
        assert_derivative(
            symbol, wrong, lambda bump: loss(inputs, None, bump), random_directions(wrong.shape)
        )


# --- what the steps are ---------------------------------------------------------------------------


def test_single_head_has_six_steps_that_yield_these_symbols_in_this_order():
    steps = self_attention_steps(**single_inputs())
    assert [(step.number, step.title, " ".join(step.gradients)) for step in steps] == [
        (1, "output projection", "O W_O b_O"),
        (2, "value weighting", "A V"),
        (3, "softmax", "S_masked"),
        (4, "mask and scale", "S S_raw"),
        (5, "scores", "Q K"),
        (6, "projections", "W_Q W_K W_V b_Q b_K b_V X"),
    ]


def test_multi_head_has_seven_steps_that_yield_these_symbols_in_this_order():
    steps = multi_head_steps(n_heads=HEADS, n_kv_heads=KV_HEADS, **head_inputs())
    assert [(step.number, step.title, " ".join(step.gradients)) for step in steps] == [
        (1, "output projection", "C W_O b_O"),
        (2, "head merge", "O"),
        (3, "value weighting", "A V"),
        (4, "softmax", "S_masked"),
        (5, "scaling and scores", "S S_raw Q K"),
        (6, "head split", "Q_flat K_flat V_flat"),
        (7, "projections", "W_Q W_K W_V b_Q b_K b_V X"),
    ]


def test_a_bias_that_is_not_given_has_no_gradient_and_no_place_in_the_equations():
    inputs = single_inputs()
    del inputs["b_K"], inputs["b_O"]
    steps = self_attention_steps(**inputs)
    assert merged(steps).keys() & set(BIASES) == {"b_Q", "b_V"}
    assert steps[0].forward == r"\mathrm{out} = O W_O"
    assert steps[5].forward == r"Q = X W_Q + b_Q, \quad K = X W_K, \quad V = X W_V + b_V"


def test_the_formulas_mention_groups_only_where_heads_are_shared():
    def value_weighting(g):
        return multi_head_steps(n_heads=HEADS, n_kv_heads=g, **head_inputs(g=g))[2]

    assert value_weighting(6).forward == "O = A V"
    assert value_weighting(2).forward == r"O = A \operatorname{repeat}\left(V\right)"
    assert value_weighting(2).formulas["V"].startswith(r"\sum_{\mathrm{group}} A^\top")


def test_no_two_gradients_share_memory_with_each_other_or_with_an_input():
    inputs = head_inputs()
    arrays = [*merged(multi_head_steps(n_heads=HEADS, n_kv_heads=KV_HEADS, **inputs)).values()]
    everything = arrays + list(inputs.values())
    for i, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in everything[i + 1 :])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("mask", [None, CAUSAL, ADDITIVE_CAUSAL, np.where(CAUSAL, 0.0, -1e9)])
def test_gradients_keep_the_dtype_of_the_inputs_whatever_the_masks(dtype, mask):
    single = {name: array.astype(dtype) / 4 for name, array in single_inputs().items()}
    many = {name: array.astype(dtype) / 4 for name, array in head_inputs().items()}
    for steps in (
        self_attention_steps(**single, mask=mask),
        multi_head_steps(n_heads=HEADS, n_kv_heads=KV_HEADS, **many, mask=mask),
    ):
        assert {gradient.dtype for gradient in merged(steps).values()} == {np.dtype(dtype)}


# --- masks and batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("nowhere", [np.zeros((N, N), dtype=bool), np.full((N, N), -np.inf)])
def test_rows_that_may_attend_nowhere_pass_no_gradient_and_raise_no_warning(nowhere):
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        g = merged(self_attention_steps(**single_inputs(), mask=nowhere))
    for symbol in ("S_masked", "V", "Q", "K", "W_Q", "W_K", "W_V", "W_O", "b_V", "X"):
        np.testing.assert_array_equal(g[symbol], 0)
    assert g["b_O"].any()


@pytest.mark.parametrize("mask", SINGLE_MASKS.values(), ids=SINGLE_MASKS)
def test_scores_far_beyond_700_give_finite_gradients_and_no_warning(mask):
    inputs = single_inputs()
    inputs["X"] = inputs["X"] * 100
    Q, K = inputs["X"] @ inputs["W_Q"], inputs["X"] @ inputs["W_K"]
    assert np.abs(Q @ K.swapaxes(1, 2) / np.sqrt(D_K)).max() > 700
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        g = merged(self_attention_steps(**inputs, mask=mask))
    assert all(np.isfinite(gradient).all() for gradient in g.values())


@pytest.mark.parametrize("shape", [(N, N), (1, N), (1, N, N), (1, 1, N, N)])
def test_an_unbatched_input_takes_the_masks_a_batch_of_one_takes(shape):
    mask = np.random.default_rng(31).random(shape) < 0.6
    inputs = head_inputs(batch=())
    batch = inputs | {name: inputs[name][None] for name in ("X", "grad_output")}
    heads = {"n_heads": HEADS, "n_kv_heads": KV_HEADS, "mask": mask}
    alone = merged(multi_head_steps(**heads, **inputs))
    expected = merged(multi_head_steps(**heads, **batch))
    for symbol, gradient in alone.items():
        np.testing.assert_allclose(
            gradient, expected[symbol].reshape(gradient.shape), rtol=1e-10, atol=1e-11
        )


# --- refusing -------------------------------------------------------------------------------------


def test_an_input_of_other_than_two_or_three_axes_is_refused():
    inputs = head_inputs() | {"X": np.zeros((1, B, N, D_MODEL))}
    with pytest.raises(ValueError, match=r"multi_head_steps: X must be \(B, n, d_model\)"):
        multi_head_steps(n_heads=HEADS, n_kv_heads=KV_HEADS, **inputs)


@pytest.mark.parametrize(
    ("h", "g", "rule"),
    [
        (6, 4, "n_kv_heads must divide n_heads, got 6 and 4"),
        (6, 0, "n_kv_heads must divide n_heads, got 6 and 0"),
        (0, 2, "n_heads must divide W_Q's columns, got 18 and 0"),
        (4, 2, "n_heads must divide W_Q's columns, got 18 and 4"),
        (9, 9, "n_kv_heads must divide W_K's columns, got 6 and 9"),
        (6, 6, "n_kv_heads must divide W_V's columns, got 22 and 6"),
    ],
)
def test_heads_that_do_not_divide_what_they_split_are_refused(h, g, rule):
    with pytest.raises(ValueError, match=f"multi_head_steps: {rule}"):
        multi_head_steps(n_heads=h, n_kv_heads=g, **head_inputs())


@pytest.mark.parametrize("shape", [(N + 2, N), (3, N, N), (B, 1, N, N)])
def test_a_mask_that_does_not_fit_the_scores_or_would_enlarge_them_is_refused(shape):
    with pytest.raises(ValueError, match=r"mask must broadcast to the scores \(2, 5, 5\), got"):
        self_attention_steps(**single_inputs(), mask=np.ones(shape, dtype=bool))


test_what_is_refused = refusals(
    (lambda: self_attention_steps(**single_inputs() | {"grad_output": np.ones(D_MODEL)}),
     ValueError, r"self_attention_steps: grad_output .* \(2, 5, 7\), got"),
    (lambda: self_attention_steps(**single_inputs(), mask=CAUSAL.astype(np.int64)),
     TypeError, r"mask must be boolean .* or float .*, got int64"),
)  # fmt: skip
