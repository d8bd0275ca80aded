"""Counts in closed form, steps derived by hand, sums of kernels, and integers of few bits."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from layers import count_flops, count_memory_bytes, memory_by_array
from minigrad.errors import ArgumentError, DTypeError, ShapeError
from tests.compare import assert_same, refusals

# ---------------------------------------------------------------- cost


def test_flops_and_bytes_are_those_of_the_products_and_of_the_arrays():
    B, n, d_model, d_k, d_v, h = 2, 5, 12, 3, 11, 4
    core = 2 * B * n * n * d_k + 5 * B * n * n + 2 * B * n * n * d_v
    projections = 2 * B * n * d_model * (2 * d_k + d_v)
    assert count_flops(B, n, d_model, d_k, d_v) == core + projections + 2 * B * n * d_v * d_model
    many = 8 * B * n * d_model**2 + 4 * B * n**2 * d_model + 5 * B * h * n**2
    assert count_flops(B, n, d_model, h) == many
    shapes = {"Q": (B, n, 3), "K": (B, n, 3), "V": (B, n, 7), "attention matrix": (B, n, n),
              "output": (B, n, 7)}  # fmt: skip
    for dtype in ("float16", "float32", np.float64):
        sizes = memory_by_array(B, n, d_k=3, d_v=7, dtype=dtype)
        assert sizes == {name: np.empty(shape, dtype).nbytes for name, shape in shapes.items()}


def test_a_run_computes_what_is_counted_but_for_scale_mask_and_biases(rng):
    layer, X = L.MultiHeadAttention(12, 4, rng=0), mg.tensor(rng.normal(size=(2, 5, 12)))
    with mg.trace() as t:
        layer(X)
        mg.einsum("bnd,dk->bnk", X, np.ones((12, 3))).named("product")
    *ran, product = [e.flops or 0 for e in t if e.op != "scale"]
    assert sum(ran) == count_flops(2, 5, 12, 4)
    assert product == 2 * 2 * 5 * 12 * 3


def test_the_ridge_itself_is_bound_by_compute_and_traffic_is_read_and_written():
    assert L.roofline(156.0) == "compute-bound"
    exact = L.count_traffic_bytes(1, 4096, d_k=64, d_v=64)
    assert (exact.reads, exact.writes) == (4096 * 4 * (192 + 3 * 4096), 4096 * 4 * (64 + 3 * 4096))


test_sizes_that_say_nothing_are_refused = refusals(
    (lambda: count_flops(2, 5, 8), ArgumentError, "name d_k= and d_v= of one head, or d_model="),
    (lambda: count_flops(2, 5, 8, 3), ArgumentError, "n_heads must divide d_model, got 3 and 8"),
    (lambda: count_flops(0, 5, 8, 2), ArgumentError, "batch_size must be"),
    (lambda: count_memory_bytes(2, 5, d_k=8, d_v=8, dtype=int), DTypeError, "floating NumPy dtype"),
    (lambda: count_memory_bytes(2, 128, 512, 8), ArgumentError, "of many; got 512, 8"),
    (lambda: L.count_traffic_bytes(1, 5, d_k=8, d_v=8, on_chip=99), ArgumentError, "got 99 bytes"),
    (lambda: L.roofline(-1.0), ArgumentError, "intensity must be >= 0"),
)  # fmt: skip

# ---------------------------------------------------------------- steps derived by hand


def inputs(rng, h=1, kv=1, dtype=np.float64):
    widths = {"Q": h * 3, "K": kv * 3, "V": kv * 4}
    shapes = {"X": (2, 5, 7), "grad_output": (2, 5, 7), "W_O": (h * 4, 7), "b_O": (7,)}
    shapes |= {f"W_{s}": (7, w) for s, w in widths.items()}
    shapes |= {f"b_{s}": (w,) for s, w in widths.items()}
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def test_one_head_has_six_steps_many_have_seven_and_rotary_positions_one_more(rng):
    many = L.multi_head_steps(n_heads=4, n_kv_heads=2, **inputs(rng, 4, 2))
    assert [step.title for step in many] == [
        "output projection", "head merge", "value weighting", "softmax", "scaling and scores",
        "head split", "projections",
    ]  # fmt: skip
    assert [step.number for step in many] == [*range(1, 8)]
    one = L.self_attention_steps(**inputs(rng))
    assert len(one) == 6
    for step in one + many:
        assert step.gradients.keys() == step.formulas.keys()
    assert many[2].forward == r"O = A \operatorname{repeat}\left(V\right)"
    assert not any("M" in step.forward for step in one + many)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("mask", [None, np.tri(5, dtype=bool), L.create_causal_mask(5)])
def test_gradients_derived_by_hand_keep_the_dtype(rng, mask, dtype):
    steps = L.multi_head_steps(n_heads=4, n_kv_heads=2, **inputs(rng, 4, 2, dtype), mask=mask)
    assert {g.dtype for step in steps for g in step.gradients.values()} == {np.dtype(dtype)}


def test_online_softmax_is_softmax_key_by_key_even_for_scores_beyond_700(rng):
    Q, K, V = rng.normal(size=(3, 2, 5, 4))
    assert_same(L.online_softmax(500 * Q, K, V), L.attend(500 * Q, K, V)[0], 1e-11)


# ---------------------------------------------------------------- kernels


def test_a_performer_of_many_features_estimates_exp_and_features_are_orthogonal(rng):
    W = L.orthogonal_features(8, 4, rng=0)
    for block in (W[:4], W[4:]):
        products = block @ block.T
        assert_same(products, np.diag(np.diag(products)), 1e-12)
    q, k = 0.3 * rng.normal(size=(2, 5, 4))
    phi_q, phi_k = map(L.Performer(4, 4096, rng=1).features, (q, k))
    np.testing.assert_allclose(phi_q @ phi_k.T, np.exp(q @ k.T / 2), rtol=0.1)


def test_linear_attention_is_the_quadratic_sum_of_its_kernel(rng):
    Q, K, V = np.exp(rng.normal(size=(3, 2, 6, 4)))
    for is_causal in (False, True):
        W = Q @ K.swapaxes(1, 2) * (np.tri(6) if is_causal else 1)
        expected = W @ V / W.sum(axis=-1, keepdims=True)
        assert_same(np.asarray(L.linear_attention(Q, K, V, is_causal)), expected)
    assert not L.linear_attention(Q, 0 * K, V).any()  # no key is seen


def test_linformer_of_the_identity_is_attention_and_padding_is_hidden(rng):
    X = rng.normal(size=(2, 6, 8))
    layer = L.MultiHeadAttention(8, 2, rng=0, attend=L.Linformer(6, 6))
    layer.attend.E = layer.attend.F = np.eye(6)
    assert_same(layer(X).numpy(), L.MultiHeadAttention(8, 2, rng=0)(X).numpy())
    for how in (L.Linformer(6, 3, rng=0), L.LinearKernel(), L.Performer(4, 5, rng=0)):
        layer = L.MultiHeadAttention(8, 2, rng=0, attend=how)
        hidden = X.copy()
        hidden[0, 4:] = 9.0
        outs = [layer(x, L.padding_mask([4, 6], 6)).numpy()[:, :4] for x in (X, hidden)]
        assert_same(*outs)


X = np.ones((2, 6, 8))


def attending(how, **settings):
    return L.MultiHeadAttention(8, 2, attend=how, **settings)


test_what_kernels_cannot_do_is_refused = refusals(
    (lambda: attending(L.LinearKernel(), mask=L.window(2))(X), ArgumentError, "LinearKernel"),
    (lambda: attending(L.LinearKernel(), dropout=0.5)(X), ArgumentError, "LinearKernel"),
    (lambda: attending(L.LinearKernel(), mask=L.causal)(X, context=X[:, :3]), ArgumentError,
     "over X"),
    (lambda: attending(L.Linformer(6, 3), mask=L.causal)(X), ShapeError, "Linformer"),
    (lambda: attending(L.Linformer(5, 3))(X), ShapeError, "Linformer"),
    (lambda: attending(L.LinearKernel())(X, np.ones((6, 6), bool)), ShapeError, "must broadcast"),
)  # fmt: skip

# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("bits", [8, 4])
def test_what_is_trained_for_integers_computes_the_same_once_it_is_of_integers(rng, bits):
    model, X = L.TransformerBlock(12, 3, rng=0), rng.normal(size=(2, 5, 12))
    learning = L.quantize(model, X, bits=bits, train=True, scores=True)
    with mg.trace() as t:
        learning(X).sum().backward()
    assert t.check().uncovered == [
        "MultiHeadAttention with RoundedScores and TrainedQuantizedWeight"
    ]
    assert all(p.grad is not None for p in learning.parameters())
    small = L.quantize(learning, X, bits=bits, scores=True)
    assert_same(small(X).numpy(), learning.eval()(X).numpy(), 1e-9)
    both = (L.quantize(model, X, bits=bits, scores=s)(X).numpy() for s in (False, True))
    assert np.not_equal(*both).any()
    off = np.abs(small(X).numpy() - model(X).numpy()).max()
    assert off < {8: 0.05, 4: 1.0}[bits]
    assert off > 0
    assert "attention.W_Q" in dict(model.named_parameters())


test_what_is_not_quantized_is_refused = refusals(
    (lambda: L.quantize(L.Linear(3, 2), bits=9), ArgumentError, "bits must be 2 to 8, got 9"),
    (lambda: L.quantize(L.LayerNorm(3)), ArgumentError, "LayerNorm multiplies by no matrix"),
    (lambda: L.QuantizedWeight(np.full((2, 2), np.nan)), ArgumentError, "finite matrix"),
)
