"""What holds of attention with one head, with many, and with heads that share keys and values.

What each layer computes with each option is in test_every_kind.py.
"""

from itertools import product

import numpy as np
import pytest

import layers as L
import minigrad as mg
from tests.compare import assert_same
from tests.weighing import weigh

B, N, H, D_MODEL = 2, 7, 3, 15
BIASES = ["b_Q", "b_K", "b_V", "b_O"]
KINDS = [
    *("none", "causal", "causal, boolean", "padding", "both", "additive"),
    *("for each head", "a fully masked row", "nothing allowed"),
]
LAYERS = {
    "one head": lambda **settings: L.SelfAttention(D_MODEL, 5, 11, **settings),
    "three heads": lambda **settings: L.MultiHeadAttention(D_MODEL, H, **settings),
    "one key-value head": lambda **settings: L.MultiHeadAttention(D_MODEL, H, 1, **settings),
    "two key-value heads": lambda **settings: L.MultiHeadAttention(
        D_MODEL, 6, 2, d_k=5, d_v=7, **settings
    ),
}


def mask_of(kind, batch=B):
    n, lengths = N, [N - 2, N][:batch]
    nowhere = np.tri(n, dtype=bool)
    nowhere[2] = False
    return {
        "none": None,
        "causal": L.create_causal_mask(n),
        "causal, boolean": np.tri(n, dtype=bool),
        "padding": L.padding_mask(lengths, n),
        "both": L.combined_mask(L.create_causal_mask(n), L.padding_mask(lengths, n)),
        "additive": np.random.default_rng(17).normal(size=(batch, n, n)),
        "for each head": np.random.default_rng(3).random((batch, H, n, n)) < 0.5,
        "a fully masked row": nowhere,
        "nothing allowed": np.zeros((n, n), bool),
    }[kind]


def takes(name, kind):
    return kind != "for each head" or name in ("three heads", "one key-value head")


CASES = [(name, kind) for name in LAYERS for kind in KINDS if takes(name, kind)]


@pytest.fixture(params=LAYERS)
def name(request):
    return request.param


@pytest.fixture
def made(rng):
    """A layer by its name; its biases, if it has any, are not zero, so that they matter."""

    def make(name, **settings):
        layer = LAYERS[name](rng=rng, **({"use_bias": True} | settings))
        for bias in BIASES:
            if (b := getattr(layer, bias)) is not None:
                setattr(layer, bias, rng.normal(size=b.shape).astype(b.dtype))
        return layer

    return make


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D_MODEL))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("layer", [
    L.SelfAttention(300, 200, 100, rng=7), L.MultiHeadAttention(200, 2, 1, True, 7),
    L.Linear(300, 200, rng=7),
], ids=lambda layer: type(layer).__name__)  # fmt: skip
def test_weights_are_xavier_normal_and_biases_zero(layer):
    """N(0, √(2 / (n_in + n_out))): mean and deviation are within 5 standard errors."""
    for p in layer.parameters():
        if p.ndim == 1:
            assert not p.numpy().any()
        else:
            W, sigma = p.numpy(), np.sqrt(2 / sum(p.shape))
            assert abs(W.mean()) < 5 * sigma / np.sqrt(W.size)
            assert abs(W.std() / sigma - 1) < 5 / np.sqrt(2 * W.size)


def test_dropout_zeroes_weights_at_its_rate_and_divides_the_rest(rng):
    layer = L.MultiHeadAttention(D_MODEL, H, rng=rng, dropout=0.3)
    with mg.trace() as t:
        layer(rng.normal(size=(5, 31, D_MODEL)))
    A, kept = t["A"].value, t["A_dropped"].value
    gone = kept == 0
    np.testing.assert_allclose(gone.mean(), 0.3, atol=0.01)
    np.testing.assert_allclose(kept[~gone], A[~gone] / 0.7, rtol=1e-13)
    np.testing.assert_allclose(layer.attention_weights.sum(axis=-1), 1, rtol=1e-13)


def test_the_same_seed_drops_the_same_and_each_call_anew(X):
    one, other = (L.MultiHeadAttention(D_MODEL, H, rng=3, dropout=0.5) for _ in range(2))
    first = one(X)
    assert_same(other(X), first, 0)
    assert np.abs((one(X) - first).numpy()).max() > 1e-3


def test_biases_may_be_on_some_projections_only(rng):
    layer = L.MultiHeadAttention(D_MODEL, H, use_bias="QKV", rng=rng)
    assert list(layer.state_dict()) == ["W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O"]
    assert layer.b_O is None


@pytest.mark.parametrize("made", [
    lambda: L.SelfAttention(D_MODEL, 5, 3, qk_norm=L.RMSNorm, position=L.Rotary(2), rng=0),
    lambda: L.MultiHeadAttention(D_MODEL, H, 1, qk_norm=L.RMSNorm, position=L.Rotary(2), rng=0),
])  # fmt: skip
def test_a_cached_context_is_the_context(rng, X, made):
    """Its keys are kept normed and turned."""
    layer, Y = made(), rng.normal(size=(B, 13, D_MODEL))
    cache = L.ContextCache()
    with mg.no_grad():
        for _ in range(2):
            assert_same(layer(X, context=Y, cache=cache), layer(X, context=Y), 0)


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize("kind", ["none", "causal", "a fully masked row"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_inputs_give_finite_outputs_and_gradients(made, rng, name, kind, dtype):
    """Scores far beyond the range of exp."""
    size = 1e4
    layer, X = made(name, dtype=dtype), rng.uniform(-size, size, (B, N, D_MODEL))
    X[0, 0], X[0, 1] = size, -size
    out = layer.forward(X, mask_of(kind))
    dX = layer.backward(np.ones(X.shape))
    gradients = [p.grad for p in layer.parameters()]
    for array in [out.numpy(), layer.attention_weights, dX, *gradients]:
        assert np.isfinite(array).all()


def test_the_second_argument_is_the_mask_whatever_it_holds(rng):
    """Floats of a context's shape are added to the scores, where they fit them."""
    layer, X = L.MultiHeadAttention(6, 2, rng=rng), rng.normal(size=(B, 6, 6))
    Y = rng.normal(size=(B, 6, 6))
    assert_same(layer(X, Y), layer(X, Y[:, None]), 0)
    assert np.abs(layer(X, context=Y).numpy() - layer(X, Y).numpy()).max() > 1e-3


def test_scores_are_let_go_of_once_the_next_are_there():
    """Of S_raw, S, S_masked and A there are two at a time, and in the end A, which is saved."""
    n = 512
    layer, mask = L.SelfAttention(D_MODEL, 5, 11, rng=0), L.create_causal_mask(n)
    X = mg.tensor(np.ones((1, n, D_MODEL)), requires_grad=True)
    layer(X, mask=mask).sum().backward()  # what is kept from call to call is there
    held, peak = weigh(lambda: layer(X, mask=mask))
    assert peak < 2.5 * mask.nbytes
    assert held < 2.5 * mask.nbytes  # A, and memory that lies idle


def test_what_a_forward_keeps_grows_as_the_square_of_the_tokens():
    """Of B = 2 sequences: A, n² entries each, and else what grows with n."""

    def kept(n):
        layer, X = (
            L.SelfAttention(5, 3, 7, rng=0),
            mg.tensor(np.ones((2, n, 5)), requires_grad=True),
        )
        with mg.trace() as t:
            layer(X)
        return sum(entry.saved_bytes for entry in t.entries)

    for n in (16, 32, 64):
        assert kept(2 * n) - 2 * kept(n) + kept(0) == 8 * 2 * 2 * n**2


# ---------------------------------------------------------------- gradients


FORMS = {
    "float32": {"dtype": np.float32}, "without biases": {"use_bias": False},
    "one sequence": {}, "causal": {"is_causal": True}, "window": {"window": 3},
    "biases of some": {"use_bias": "QKV"}, "a bias of the output": {"use_bias": "O"},
}  # fmt: skip


def steps_held(layer, X, mask, rng):
    """The symbols whose gradients the steps derived by hand give, which the engine's must equal."""
    with mg.trace() as t:
        out = layer(mg.tensor(X, requires_grad=True), mask)
        out.backward(rng.normal(size=out.shape).astype(out.dtype))
    for check in t.check():
        assert check.difference <= (3e-6 if layer.dtype == np.float32 else 1e-14), check.symbol
        assert t[check.step].gradient.dtype == layer.dtype
    return {check.symbol for check in t.check().measured}


@pytest.mark.parametrize(
    ("name", "kind", "form"),
    [*((*case, "float64") for case in CASES), *product(LAYERS, ["none", "both"], FORMS)],
)
def test_every_gradient_equals_the_hand_derived_one(made, rng, X, name, kind, form):
    layer, X = made(name, **FORMS.get(form, {})), X.astype(FORMS.get(form, {}).get("dtype", float))
    one = form == "one sequence"
    held = steps_held(layer, X[0] if one else X, mask_of(kind, batch=1 if one else B), rng)
    steps = {"X", "Q", "K", "V", "S_raw", "S", "S_masked", "A", "O", "W_Q", "W_K", "W_V", "W_O"}
    steps |= set() if name == "one head" else {"Q_flat", "K_flat", "V_flat", "C"}
    assert held == steps | {b for b in BIASES if getattr(layer, b) is not None}


def test_without_the_output_projection_the_steps_begin_with_the_values(rng, X):
    layer = L.SelfAttention(D_MODEL, 5, 11, rng=0, project_out=False)
    assert list(layer.state_dict()) == ["W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V"]
    assert {"W_V", "X", "A"} < steps_held(layer, X, L.create_causal_mask(N), rng)


def test_attention_over_no_tokens_is_empty(made, name):
    layer, nothing = made(name), np.zeros((B, 0, D_MODEL))
    assert layer.forward(nothing).shape == layer.backward(nothing).shape == nothing.shape
    assert not layer.grad_W_Q.any()
