"""What holds of attention with one head, with many, and with heads that share keys and values."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    MultiHeadAttention,
    SelfAttention,
    combined_mask,
    create_causal_mask,
    padding_mask,
)
from tests.compare import assert_same
from tests.layers.twins import assert_same_gradients, filled

B, N, H, D_MODEL = 2, 7, 3, 15
BIASES = ["b_Q", "b_K", "b_V", "b_O"]
KINDS = [
    *("none", "causal", "causal, boolean", "padding", "both", "additive"),
    *("for each head", "a fully masked row", "nothing allowed"),
]
LAYERS = {
    "one head": lambda **settings: SelfAttention(D_MODEL, 5, 11, **settings),
    "three heads": lambda **settings: MultiHeadAttention(D_MODEL, H, **settings),
    "one key-value head": lambda **settings: MultiHeadAttention(D_MODEL, H, 1, **settings),
    "two key-value heads": lambda **settings: MultiHeadAttention(
        D_MODEL, 6, 2, d_k=5, d_v=7, **settings
    ),
}


def mask_of(kind, batch=B):
    n, lengths = N, [N - 2, N][:batch]
    nowhere = np.tri(n, dtype=bool)
    nowhere[2] = False
    return {
        "none": None,
        "causal": create_causal_mask(n),
        "causal, boolean": np.tri(n, dtype=bool),
        "padding": padding_mask(lengths, n),
        "both": combined_mask(create_causal_mask(n), padding_mask(lengths, n)),
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


def by_head(layer):
    """The attention weights with an axis for heads, (B, h, n, n)."""
    A = layer.attention_weights
    return A if A.ndim == 4 else A[:, None]


def everything(layer, X, mask, g):
    """Output, weights, ∂X and every parameter's gradient."""
    out = layer.forward(X, mask)
    dX = layer.backward(g)
    return [out.numpy(), layer.attention_weights, dX, *(p.grad for p in layer.parameters())]


# ---------------------------------------------------------------- closed forms


def test_two_tokens_in_two_heads_by_hand():
    """W = I and d_k = 1: head i scores token a with token b as the product of their entries i."""
    layer = MultiHeadAttention(2, 2)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        setattr(layer, name, np.eye(2))
    X = np.array([[[1.0, 2.0], [0.0, -1.0]]])
    out = layer(X)
    e = np.exp
    head_0 = np.array([[e(1) / (e(1) + 1), 1 / (e(1) + 1)], [0.5, 0.5]])
    head_1 = np.array([
        [e(4) / (e(4) + e(-2)), e(-2) / (e(4) + e(-2))],
        [e(-2) / (e(-2) + e(1)), e(1) / (e(-2) + e(1))],
    ])  # fmt: skip
    np.testing.assert_allclose(layer.attention_weights, [[head_0, head_1]], rtol=1e-14)
    expected = np.stack([head_0 @ [1.0, 0.0], head_1 @ [2.0, -1.0]], axis=-1)[None]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["one head", "three heads"])
def test_a_single_token_attends_to_itself_alone(made, X, name):
    """A = 1, so out = V W_O + b_O, with or without a causal mask."""
    layer, one = made(name), X[:, :1]
    V = one @ layer.W_V.numpy() + layer.b_V.numpy()
    for mask in (None, create_causal_mask(1)):
        out = layer(one, mask).numpy()
        np.testing.assert_array_equal(by_head(layer), 1)
        expected = V @ layer.W_O.numpy() + layer.b_O.numpy()
        np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-13)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("layer", "widths"),
    [
        (lambda rng: SelfAttention(300, 200, 100, rng=rng), (300, 200, 100, 100)),
        (lambda rng: MultiHeadAttention(200, 2, 1, True, rng), (200, 200, 100, 200)),
    ],
)
def test_weights_are_xavier_normal_and_biases_zero(layer, widths):
    layer, (d_model, d_q, d_v, d_o) = layer(np.random.default_rng(7)), widths
    for weight, shape in {
        "W_Q": (d_model, d_q),
        "W_V": (d_model, d_v),
        "W_O": (d_o, d_model),
    }.items():
        W, sigma = getattr(layer, weight).numpy(), np.sqrt(2 / sum(shape))
        assert W.shape == shape
        assert abs(W.std() / sigma - 1) < 5 / np.sqrt(2 * W.size)
    for bias in BIASES:
        assert not getattr(layer, bias).numpy().any()


# ---------------------------------------------------------------- masks


def test_under_a_causal_mask_no_token_attends_to_a_later_one(made, X, name, hear):
    """Masked scores are −inf before softmax and weigh exactly 0 after."""
    _, heard = hear(made(name), X, create_causal_mask(N))
    A, S = heard.symbols["A"].numpy(), heard.symbols["S_masked"].numpy()
    later = np.broadcast_to(np.triu(np.ones((N, N), bool), k=1), A.shape)
    np.testing.assert_array_equal(A == 0, later)
    np.testing.assert_array_equal(S == -np.inf, later)


@pytest.mark.parametrize("kind", ["none", "causal", "a fully masked row"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [100.0, 1e4])
def test_large_inputs_give_finite_outputs_and_gradients(made, rng, name, kind, dtype, size):
    """Scores far beyond the range of exp."""
    layer, X = made(name, dtype=dtype), rng.uniform(-size, size, (B, N, D_MODEL))
    X[0, 0], X[0, 1] = size, -size
    for array in everything(layer, X, mask_of(kind), np.ones(X.shape)):
        assert np.isfinite(array).all()


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("form", ["float64", "float32", "without biases", "one sequence"])
def test_every_gradient_equals_the_hand_derived_one(made, X, check_against_hand, name, kind, form):
    dtype = np.dtype("float32" if form == "float32" else "float64")
    use_bias = form != "without biases"
    layer, X = made(name, use_bias=use_bias, dtype=dtype), X.astype(dtype)
    tolerance = 3e-6 if form == "float32" else 1e-14
    if form == "one sequence":
        checked = check_against_hand(layer, X[0], mask_of(kind, batch=1))
    else:
        checked = check_against_hand(layer, X, mask_of(kind), tolerance)
    steps = {"X", "Q", "K", "V", "S_raw", "S", "S_masked", "A", "O", "W_Q", "W_K", "W_V", "W_O"}
    steps |= set() if name == "one head" else {"Q_flat", "K_flat", "V_flat", "C"}
    assert checked == steps | (set(BIASES) if use_bias else set())


# ---------------------------------------------------------------- PyTorch


@pytest.mark.parametrize("kind", ["none", "causal", "causal, boolean", "padding"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_outputs_and_gradients_equal_those_of_pytorchs_layer(made, rng, X, kind, use_bias):
    torch = pytest.importorskip("torch")
    layer = made("three heads", use_bias=use_bias)
    mask, g = mask_of(kind), rng.normal(size=X.shape)
    out = layer.forward(X, mask)
    dX = layer.backward(g)

    theirs = filled(torch.nn.MultiheadAttention(D_MODEL, H, bias=use_bias, batch_first=True), layer)
    x = torch.tensor(X, requires_grad=True)
    hidden = None  # PyTorch's boolean masks say where not to look, and it wants one for each head
    if mask is not None:
        allowed = mask if mask.dtype == bool else mask == 0
        allowed = np.broadcast_to(allowed if allowed.ndim == 2 else allowed[:, None], (B, H, N, N))
        hidden = torch.tensor(~allowed.reshape(B * H, N, N))
    o, a = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    o.backward(torch.tensor(g))

    pairs = ((out, o), (layer.attention_weights, a), (dX, x.grad))
    for found, expected in pairs:
        assert_same(found, expected, 1e-9)
    assert_same_gradients(layer, theirs)


@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
def test_grouped_attention_equals_pytorchs(rng, hear, n_kv_heads):
    torch = pytest.importorskip("torch")
    layer, X = MultiHeadAttention(12, 6, n_kv_heads, rng=rng), rng.normal(size=(B, N, 12))
    _, heard = hear(layer, X, create_causal_mask(N))
    Q, K, V, O = (heard.symbols[name] for name in "QKVO")
    g = rng.normal(size=O.shape)
    q, k, v = (torch.tensor(x.numpy(), requires_grad=True) for x in (Q, K, V))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    o.backward(torch.tensor(g))
    np.testing.assert_allclose(O.numpy(), o.detach().numpy(), rtol=1e-10, atol=1e-13)
    assert_same(mg.grad(O, [Q, K, V], g), [theirs.grad for theirs in (q, k, v)], 1e-9)
