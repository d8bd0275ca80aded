"""Closed forms of every layer's cost are what the graph counts, op by op, forward and backward."""

from functools import partial

import numpy as np
import pytest

import layers as L
import minigrad as mg
from tests.layers.counting import count_graph

B, N, D, H, D_FF = 2, 7, 12, 3, 17

LAYERS = {
    "linear": L.Linear(D, 5),
    "linear without bias": L.Linear(D, 5, use_bias=False),
    "layer norm": L.LayerNorm(D),
    "rms norm": L.RMSNorm(D),
    "rms norm, one plus weight": L.RMSNorm(D, plus_one=True),
    "feed-forward": L.FeedForward(D, D_FF, "relu"),
    "feed-forward, tanh gelu": L.FeedForward(D, D_FF, "gelu_tanh"),
    "swiglu": L.GatedFeedForward(D, D_FF),
    "geglu with biases": L.GatedFeedForward(D, D_FF, "gelu", use_bias=True),
    "layer norm without weights": L.LayerNorm(D, use_weight=False, use_bias=False),
    "layer norm without bias": L.LayerNorm(D, use_bias=False),
    "rms norm without weight": L.RMSNorm(D, use_weight=False),
    "glu": L.GatedFeedForward(D, D_FF, "sigmoid"),
    "reglu": L.GatedFeedForward(D, D_FF, "relu", use_bias=True),
    "learned positions": L.LearnedPosition(50, D),
    "sinusoidal positions": L.SinusoidalPosition(D),
    "self-attention": L.SelfAttention(D, 5, 3),
    "multi-head": L.MultiHeadAttention(D, H),
    "multi-head with biases": L.MultiHeadAttention(D, H, use_bias=True),
    "grouped": L.MultiHeadAttention(D, 6, 2),
    "one key-value head": L.MultiHeadAttention(D, H, 1),
    "causal": L.MultiHeadAttention(D, H, is_causal=True),
    "window": L.MultiHeadAttention(D, H, window=3),
    "window that hides nothing": L.MultiHeadAttention(D, H, window=50),
    "wide keys, narrow values": L.MultiHeadAttention(D, H, d_k=7, d_v=2),
    "one head, normed, capped": L.SelfAttention(
        D, 5, 3, qk_norm=L.LayerNorm, softcap=2.0, window=3, is_causal=True
    ),
    "tiles": L.MultiHeadAttention(D, H, method="tiled", use_bias=True),
    "tiles, causal, grouped": L.MultiHeadAttention(D, 6, 2, method="tiled", is_causal=True, d_v=3),
    "tiles, window, rotary": L.MultiHeadAttention(
        D, H, method="tiled", window=3, position=L.Rotary(4)
    ),
    "tiles of one head": L.SelfAttention(D, 5, 3, method="tiled", is_causal=True, window=2),
    "soft-cap": L.MultiHeadAttention(D, H, softcap=3.0),
    "dropout": L.MultiHeadAttention(D, H, dropout=0.5, rng=0),
    "norms of Q and K": L.MultiHeadAttention(D, H, qk_norm=L.RMSNorm, n_kv_heads=1),
    "rotary": L.MultiHeadAttention(D, H, 1, position=L.Rotary(4)),
    "rotary in part": L.MultiHeadAttention(D, H, position=L.Rotary(2, pairing="interleaved")),
    "rotary, one head": L.SelfAttention(D, 4, 3, use_bias=False, position=L.Rotary(4)),
    "rotary, one head, biases": L.SelfAttention(
        D, 4, 4, position=L.Rotary(4, pairing="interleaved")
    ),
    "Shaw": L.MultiHeadAttention(D, H, position=L.RelativePosition(4, 3, d_v=4)),
    "Shaw, grouped": L.MultiHeadAttention(D, 6, 2, position=L.RelativePosition(2, 3, d_v=2)),
    "Transformer-XL, grouped": L.MultiHeadAttention(
        D, 6, 1, position=L.TransformerXLPosition(D, 6, 2)
    ),
    "Shaw without values": L.MultiHeadAttention(D, H, position=L.RelativePosition(4, 3)),
    "Transformer-XL": L.MultiHeadAttention(D, H, position=L.TransformerXLPosition(D, H, 4)),
    "T5": L.MultiHeadAttention(D, H, position=L.T5Bias(H)),
    "ALiBi": L.MultiHeadAttention(D, H, position=L.ALiBi(H)),
    "block": L.TransformerBlock(D, H, D_FF),
    "post-norm block with dropout": L.TransformerBlock(D, H, D_FF, norm_order="post", dropout=0.5),
    "post-norm block": L.TransformerBlock(D, H, D_FF, norm_order="post"),
    "block normed on both sides": L.TransformerBlock(D, H, D_FF, norm_order="both", gated=True),
    "encoder": L.Encoder(2, D, H, D_FF, norm=L.RMSNorm),
    "linear attention": L.LinearAttention(D, H),
    "linear attention, causal": L.LinearAttention(D, H, is_causal=True, use_bias=True),
    "linear attention, grouped": L.LinearAttention(D, 6, n_kv_heads=2),
    "linear attention, causal, grouped": L.LinearAttention(D, 6, is_causal=True, n_kv_heads=1),
    "performer, grouped": L.PerformerAttention(D, 6, 5, n_kv_heads=3, use_bias="QK"),
    "performer, causal, grouped": L.PerformerAttention(D, 6, 1, is_causal=True, n_kv_heads=2),
    "performer of one feature": L.PerformerAttention(D, H, 1),
    "heads of one": L.LinearAttention(D, D),
    "linformer, grouped": L.LinformerAttention(D, 6, seq_len=50, k=3, n_kv_heads=2),
    "performer": L.PerformerAttention(D, H, 5),
    "performer, causal": L.PerformerAttention(D, H, 5, is_causal=True),
    "linformer": L.LinformerAttention(D, H, seq_len=50, k=2, use_bias=True),
    "linformer of its own length": L.LinformerAttention(D, H, seq_len=40, k=2),
    "sequential": L.Sequential(L.Linear(D, 5), mg.tanh, L.Linear(5, D), L.LayerNorm(D)),
}
WITH_CONTEXT = {
    "cross-attention": L.MultiHeadAttention(D, H, d_context=11, use_bias=True),
    "cross-attention of one head": L.SelfAttention(D, 5, 3, d_context=11),
    "grouped cross-attention": L.MultiHeadAttention(D, 6, 2, d_context=11, qk_norm=L.RMSNorm),
    "cross-attention in tiles": L.MultiHeadAttention(D, 6, 2, d_context=11, method="tiled"),
    "linear attention": L.LinearAttention(D, 6, n_kv_heads=2, d_context=11),
    "performer": L.PerformerAttention(D, H, 5, d_context=11),
    "linformer": L.LinformerAttention(D, H, seq_len=50, k=3, d_context=11, use_bias=True),
    "decoder block": L.DecoderBlock(D, H, D_FF, d_context=11),
    "decoder": L.Decoder(2, D, H, D_FF, d_context=11, norm_order="post"),
}
MODELS = {
    "gpt-2": L.LanguageModel(13, D, H, 2, max_len=N),
    "llama": L.LanguageModel(
        13, D, H, 2, D_FF, n_kv_heads=1, position=L.Rotary(4), gated=True, use_bias=False,
        norm=L.RMSNorm, tied=False,
    ),
    "gemma": L.LanguageModel(
        13, D, H, 1, D_FF, norm=partial(L.RMSNorm, plus_one=True), norm_order="both", gated=True,
        activation="gelu_tanh", softcap=3.0, output_softcap=5.0, scaled=True,
    ),
}  # fmt: skip


SIZES = [(2, 7), (1, 1), (3, 40)]


def same(layer, counted, expected):
    assert expected.forward == counted.forward
    assert expected.backward == sum(counted.backward.values()), counted.backward
    assert expected.activation_bytes == counted.activation_bytes
    assert expected.gradient_bytes == counted.gradient_bytes
    assert expected.parameter_bytes == sum(p.numpy().nbytes for p in layer.parameters())


def tiles_marked(layers):
    """The names of layers; those in tiles need what brings them."""
    marks = pytest.mark.needs_fast("attention in tiles")
    return [pytest.param(name, marks=marks) if "tiles" in name else name for name in layers]


@pytest.mark.parametrize(("b", "n"), SIZES)
@pytest.mark.parametrize("name", tiles_marked(LAYERS))
def test_the_closed_form_of_a_layer_is_what_the_graph_counts(rng, name, b, n):
    layer, X = LAYERS[name], mg.tensor(rng.normal(size=(b, n, D)), requires_grad=True)
    same(layer, count_graph(layer, X), L.layer_cost(layer, b, n))


@pytest.mark.parametrize("m", [5, 1])
@pytest.mark.parametrize(("b", "n"), SIZES)
@pytest.mark.parametrize("name", tiles_marked(WITH_CONTEXT))
def test_the_closed_form_with_a_context_is_what_the_graph_counts(rng, name, b, n, m):
    layer = WITH_CONTEXT[name]
    X, Y = (mg.tensor(rng.normal(size=s), requires_grad=True) for s in ((b, n, D), (b, m, 11)))
    counted = count_graph(lambda x, y: layer(x, context=y), X, Y)
    same(layer, counted, L.layer_cost(layer, b, n, m))


@pytest.mark.parametrize(("b", "n"), [(2, 7), (1, 1), (3, 5)])
@pytest.mark.parametrize("name", MODELS)
def test_the_closed_form_of_a_model_is_what_the_graph_counts(rng, name, b, n):
    model, tokens = MODELS[name], rng.integers(0, 13, (b, n))
    same(model, count_graph(model, tokens), L.layer_cost(model, b, n))


PIECES = {
    "lstm": (L.LSTM(3, 5, 2, True, rng=0), (2, 7, 3)),
    "lstm step by step": (L.LSTM(3, 5, method="steps", rng=0), (2, 3, 3)),
    "gru": (L.GRU(3, 5, rng=0), (2, 7, 3)),
    "rnn": (L.RNN(3, 5, rng=0), (2, 7, 3)),
    "conv1d": (L.Conv1d(3, 4, 3, stride=2, rng=0), (2, 3, 11)),
    "grouped": (L.Conv2d(4, 6, 3, padding=1, groups=2, rng=0), (2, 4, 8, 7)),
    "group norm": (L.GroupNorm(3, 6), (5, 6, 8, 8)),
    "cnn": (
        L.Sequential(
            L.Conv2d(1, 4, 3, padding=1, rng=0), mg.relu, L.MaxPool2d(2), L.Flatten(),
            L.Linear(64, 3, rng=1),
        ),
        (5, 1, 8, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_the_closed_form_of_recurrent_and_convolutional_layers_is_what_the_graph_counts(rng, name):
    layer, shape = PIECES[name]
    x = mg.tensor(rng.normal(size=shape), requires_grad=True)
    same(layer, count_graph(layer, x), L.layer_cost(layer, input_shape=shape))


def test_a_sequence_layer_tells_its_width():
    cost = L.layer_cost(L.LSTM(3, 5, rng=0), batch_size=2, seq_len=7)
    assert cost == L.layer_cost(L.LSTM(3, 5, rng=0), input_shape=(2, 7, 3))


def test_a_block_with_another_attention_costs_what_that_does(rng):
    block = L.TransformerBlock(D, H, D_FF)
    block.attention = L.LinearAttention(D, H, is_causal=True)
    X = mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True)
    same(block, count_graph(block, X), L.layer_cost(block, B, N))


# ---------------------------------------------------------------- against the texts' functions


def test_products_and_softmax_are_those_of_count_flops():
    cost = L.layer_cost(L.MultiHeadAttention(D, H), B, N).forward
    assert cost["matmul"] + cost["softmax"] == L.count_flops(B, N, D, H)
    cost = L.layer_cost(L.SelfAttention(D, 5, 3, use_bias=False), B, N).forward
    assert cost["matmul"] + cost["softmax"] == L.count_flops(B, N, D, 5, 3)


def test_what_a_cache_holds_is_what_was_counted(rng):
    from layers import KVCache

    layer, cache = L.MultiHeadAttention(D, 6, 2, d_v=5, is_causal=True), KVCache()
    with mg.no_grad():
        layer(rng.normal(size=(B, N, D)), cache=cache)
    assert cache.nbytes == L.kv_cache_bytes(layer, B, N)


# ---------------------------------------------------------------- intensity


def test_a_feed_forward_layer_turns_compute_bound_with_many_tokens():
    layer = L.FeedForward(512, 2048, "relu", use_bias=False, dtype=np.float32)
    few, many = L.layer_cost(layer, 1, 1), L.layer_cost(layer, 64, 512)
    assert few.intensity < 1
    assert few.verdict() == "memory-bound"
    assert many.verdict() == "compute-bound"


# ---------------------------------------------------------------- refusing, and a planted fault


def test_a_layer_of_ones_own_has_a_cost_too(rng):
    class Own(L.Module):
        def __init__(self):
            self.d_model, self.inner = (
                D,
                [L.MultiHeadAttention(D, H), L.FeedForward(D, D_FF, mg.exp)],
            )

        def forward(self, X):
            return X * mg.softmax(self.inner[1](self.inner[0](X) - X.detach()))

    layer, X = Own(), mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True)
    same(layer, count_graph(layer, X), L.layer_cost(layer, B, N))


def test_a_layer_whose_width_is_not_known_and_an_op_without_a_cost_are_refused_by_name():
    class Strange(L.Module):
        def forward(self, X):
            return mg.relu(X)

    with pytest.raises(TypeError, match="the width of Strange's input is not known"):
        L.layer_cost(Strange(), B, N)
    costless = mg.op(tex="<x>", vjp_tex={"x": "<g>"})(lambda x: x + 0)
    del mg.registry[costless.name]
    with pytest.raises(TypeError, match="does not say what it costs"):
        L.layer_cost(L.FeedForward(D, activation=costless), B, N)


def test_long_sequences_are_counted_without_making_their_masks():
    n = 10**6
    cost = L.layer_cost(L.MultiHeadAttention(D, H, is_causal=True), 1, n)
    assert cost.forward["softmax"] == 5 * H * n * n


def test_embedding_alone_computes_nothing():
    assert L.layer_cost(L.Embedding(13, D), B, N).forward == {}
    assert L.layer_cost(L.Embedding(13, D, scaled=True), B, N).forward == {"scale": B * N * D}
