"""What an attention layer gives beside its output: weights on request, and its intermediates."""

import gc

import numpy as np
import pytest

import minigrad as mg
from layers import KVCache, MultiHeadAttention, Rotary, SelfAttention, create_causal_mask
from minigrad.errors import ArgumentError, GradientError, ShapeError
from tests.compare import assert_same
from tests.compiled import assert_compiles

B, N, D = 2, 5, 6
LAYERS = {
    "one head": lambda **options: SelfAttention(D, 3, 2, rng=0, **options),
    "grouped heads": lambda **options: MultiHeadAttention(D, 6, 2, rng=0, **options),
}


@pytest.fixture(params=LAYERS)
def make(request):
    return LAYERS[request.param]


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


def test_return_weights_gives_the_recorded_weights_beside_the_same_output(make, X):
    layer = make(is_causal=True)
    out, A = layer(mg.tensor(X, requires_grad=True), return_weights=True)
    assert_same(A, layer.attention_weights)
    assert_same(out, layer(X))
    (slope,) = mg.grad((A * A).sum(), [layer.W_Q])  # a loss may look at the weights
    assert np.abs(slope).max() > 0


def test_weights_are_refused_where_tiles_hold_none_and_make_auto_exact(make, X):
    with pytest.raises(ArgumentError, match=r'return_weights=True .* method="tiled" never holds'):
        make(method="tiled")(X, return_weights=True)
    assert make(method="auto")(X, return_weights=True)[1].shape[-2:] == (N, N)


def test_unpacking_a_batch_of_two_as_output_and_weights_is_refused(make, X):
    layer = make()
    with pytest.raises(ShapeError, match=r"\(2, 5, 6\): it is one tensor.*return_weights=True"):
        _out, _weights = layer(X)
    Q = mg.tensor(X)
    with pytest.raises(ShapeError, match=r"layers.scaled_dot_product_attention\(Q, K, V\) returns"):
        _O, _A = mg.scaled_dot_product_attention(Q, Q, Q)
    assert [row.shape for row in layer(X)] == [(N, D)] * B  # a loop over the batch means it
    first, second = mg.tensor([1.0, 2.0])
    assert float(first) + float(second) == 3


def test_intermediates_are_the_arrays_of_the_last_forward_by_name(make, X):
    layer = make(position=Rotary(2) if make is LAYERS["one head"] else None)
    layer.keep_intermediates = True
    mask = np.tri(N, dtype=bool)[None]
    with mg.trace() as t:
        out = layer(mg.tensor(X, requires_grad=True), mask)
    kept = layer.intermediates
    entries = {entry.name: entry for entry in t if entry.name}
    for symbol in ("V", "A", "O"):
        assert kept[symbol].shape == entries[symbol].shape
    assert_same(kept["X"], X)
    assert_same(kept["A"], layer.attention_weights)
    groups = layer.n_heads // layer.n_kv_heads
    K, V = (np.repeat(kept[s], groups, axis=1) if groups > 1 else kept[s] for s in "KV")
    seen = np.broadcast_to(kept["mask"], kept["A"].shape)
    S = np.where(seen, kept["Q"] @ K.mT / np.sqrt(layer.d_k), -np.inf)
    assert_same(kept["A"], mg.softmax(S))
    assert_same(kept["O"], kept["A"] @ V)
    merged = kept.get("C", kept["O"])
    expected = merged @ layer.W_O.numpy() + (0 if layer.b_O is None else layer.b_O.numpy())
    assert_same(out, expected)


def test_intermediates_keep_no_graph_alive_and_are_kept_without_one_too(make, X):
    layer = make()
    layer.keep_intermediates = True
    out = layer(mg.tensor(X, requires_grad=True))
    node = out.node
    del out
    gc.collect()
    assert not [r for r in gc.get_referrers(node) if r.__class__ is mg.Tensor]
    with mg.no_grad():
        layer(X[:1], cache=KVCache())
    assert layer.intermediates["V"].shape[0] == 1


def test_a_forward_on_an_array_leaves_its_intermediates_in_the_cache(make, X):
    """The texts' own way: layer.forward(X, mask), then the seven arrays that backward needs."""
    layer, mask = make(), create_causal_mask(N)
    layer.forward(X, mask)
    found = layer.cache
    assert_same(np.broadcast_to(found["mask"], found["A"].shape[-2:]), mask)
    layer.keep_intermediates = True
    layer(mg.tensor(X), mask)
    assert_same(found, layer.intermediates)
    layer.forward(X[:1])
    assert layer.cache["mask"] is None
    assert layer.cache["Q"].shape[0] == 1


def test_intermediates_of_a_tensor_that_nobody_asked_to_keep_are_refused_with_the_remedy(make, X):
    layer = make()
    for kept in (True, False):  # those of an earlier forward are not shown either
        layer.keep_intermediates = kept
        layer(mg.tensor(X))
    for name in ("cache", "intermediates"):
        with pytest.raises(GradientError, match=r"on an array, or set layer\.keep_intermediates"):
            getattr(layer, name)
    layer(X)
    kept = layer.cache["A"]
    layer(mg.tensor(X))
    assert not [r for r in gc.get_referrers(kept) if isinstance(r, dict) and "kept_A" in r]


def test_a_step_is_compiled_though_the_layer_kept_arrays_before(make, X):
    layer = make()
    layer(X)
    assert_compiles(lambda x: layer(x).sum().detach(), [], *[(mg.tensor(X),)] * 3)


def test_a_compiled_step_keeps_the_intermediates_of_its_own_call(make, X):
    layer = make()
    layer.keep_intermediates = True
    compiled = mg.compile(lambda x: layer(x).sum().detach())
    for k in range(4):
        compiled(mg.tensor(X + k))
        found = layer.intermediates
        layer(X + k)
        assert found.pop("mask") is None
        assert_same(found, {symbol: layer.intermediates[symbol] for symbol in found})
