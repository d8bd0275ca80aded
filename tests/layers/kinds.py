"""Every kind of layer, and every option: what all of them hold is claimed once for each of these.

A layer of ROWS is called with X (B, N, D), one WITH_CONTEXT with a context (B, M, D_CONTEXT) too,
one OF_TOKENS with integers (B, N), one OF_ARRAYS with an array of the shape that stands beside it.
"""

from functools import partial

import pytest

import layers as L
import minigrad as mg

B, N, M, D, H, D_FF, D_CONTEXT, N_TOKENS = 2, 7, 5, 12, 3, 17, 11, 13

L.seed(11)  # random features are no parameters, so that `drawn` leaves them as they are
ROWS = {
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
    "one head without W_O": L.SelfAttention(D, 5, 3, project_out=False),
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
    "tiles, normed, scaled": L.MultiHeadAttention(
        D, 6, 3, method="tiled", qk_norm=L.LayerNorm, scale=0.3
    ),
    "tiles of one head": L.SelfAttention(D, 5, 3, method="tiled", is_causal=True, window=2),
    "soft-cap": L.MultiHeadAttention(D, H, softcap=3.0),
    "dropout": L.MultiHeadAttention(D, H, dropout=0.5, rng=0),
    "norms of Q and K": L.MultiHeadAttention(D, H, qk_norm=L.RMSNorm, n_kv_heads=1),
    "rotary": L.MultiHeadAttention(D, H, 1, position=L.Rotary(4)),
    "rotary in part": L.MultiHeadAttention(D, 2, position=L.Rotary(4, pairing="interleaved")),
    "rotary, one head": L.SelfAttention(D, 6, 3, use_bias=False, position=L.Rotary(4, 77.0)),
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
    "T5, one way, grouped": L.MultiHeadAttention(
        D, 6, 2, position=L.T5Bias(6, 8, 11, bidirectional=False)
    ),
    "ALiBi, grouped": L.MultiHeadAttention(D, 6, 2, position=L.ALiBi(6), softcap=2.0),
    "Shaw, one head": L.SelfAttention(D, 5, 11, position=L.RelativePosition(5, 3, d_v=11)),
    "Transformer-XL, one head": L.SelfAttention(D, 5, 3, position=L.TransformerXLPosition(D, 1, 5)),
    "T5, one head": L.SelfAttention(D, 5, 3, position=L.T5Bias(1, 8, 11)),
    "ALiBi, one head": L.SelfAttention(D, 5, 3, position=L.ALiBi(1)),
    "scale of its own": L.MultiHeadAttention(D, H, scale=0.3, use_bias="QO"),
    "norms of Q and K, plus one": L.MultiHeadAttention(
        D, H, qk_norm=partial(L.RMSNorm, plus_one=True), is_causal=True, window=3
    ),
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
    "cross-attention": L.MultiHeadAttention(D, H, d_context=D_CONTEXT, use_bias=True),
    "cross-attention of one head": L.SelfAttention(D, 5, 3, d_context=D_CONTEXT),
    "grouped cross-attention": L.MultiHeadAttention(
        D, 6, 2, d_context=D_CONTEXT, qk_norm=L.RMSNorm
    ),
    "cross-attention, T5": L.MultiHeadAttention(D, H, d_context=D_CONTEXT, position=L.T5Bias(H)),
    "cross-attention, rotary": L.SelfAttention(D, 6, 3, d_context=D_CONTEXT, position=L.Rotary(4)),
    "cross-attention in tiles": L.MultiHeadAttention(D, 6, 2, d_context=D_CONTEXT, method="tiled"),
    "linear attention of a context": L.LinearAttention(D, 6, n_kv_heads=2, d_context=D_CONTEXT),
    "performer of a context": L.PerformerAttention(D, H, 5, d_context=D_CONTEXT),
    "linformer of a context": L.LinformerAttention(
        D, H, seq_len=50, k=3, d_context=D_CONTEXT, use_bias=True
    ),
    "decoder block": L.DecoderBlock(D, H, D_FF, d_context=D_CONTEXT),
    "decoder": L.Decoder(2, D, H, D_FF, d_context=D_CONTEXT, norm_order="post"),
}
OF_TOKENS = {
    "gpt-2": L.LanguageModel(N_TOKENS, D, H, 2, max_len=N),
    "llama": L.LanguageModel(
        N_TOKENS, D, H, 2, D_FF, n_kv_heads=1, position=L.Rotary(4), gated=True, use_bias=False,
        norm=L.RMSNorm, tied=False,
    ),
    "gemma": L.LanguageModel(
        N_TOKENS, D, H, 1, D_FF, norm=partial(L.RMSNorm, plus_one=True), norm_order="both",
        gated=True, activation="gelu_tanh", softcap=3.0, output_softcap=5.0, scaled=True,
    ),
}  # fmt: skip
OF_ARRAYS = {
    "lstm": (L.LSTM(3, 5, 2, True, rng=0), (2, 7, 3)),
    "lstm step by step": (L.LSTM(3, 5, method="steps", rng=0), (2, 3, 3)),
    "gru": (L.GRU(3, 5, rng=0), (2, 7, 3)),
    "rnn": (L.RNN(3, 5, rng=0), (2, 7, 3)),
    "conv1d": (L.Conv1d(3, 4, 3, stride=2, rng=0), (2, 3, 11)),
    "grouped convolution": (L.Conv2d(4, 6, 3, padding=1, groups=2, rng=0), (2, 4, 8, 7)),
    "group norm": (L.GroupNorm(3, 6), (5, 6, 8, 8)),
    "cnn": (
        L.Sequential(
            L.Conv2d(1, 4, 3, padding=1, rng=0), mg.relu, L.MaxPool2d(2), L.Flatten(),
            L.Linear(64, 3, rng=1),
        ),
        (5, 1, 8, 8),
    ),
    "batch norm, evaluated": (L.BatchNorm(4).eval(), (2, 4, 5, 6)),
}  # fmt: skip
L.seed(None)


def kinds(*tables, without=("dropout",)):
    """A test for each kind of these tables; attention in tiles needs what brings it."""
    return pytest.mark.parametrize("name", [
        name
        for table in tables for name in table if not any(word in name for word in without)
    ])  # fmt: skip


def drawn(rng, name, b=B, n=N, m=M):
    """A layer with parameters drawn anew, and what it is called with: leaves, or token ids."""
    if name in OF_TOKENS:
        layer, inputs = OF_TOKENS[name], [rng.integers(0, N_TOKENS, (b, n))]
    elif name in OF_ARRAYS:
        layer, shape = OF_ARRAYS[name]
        inputs = [leaf(rng, shape, "X")]
    elif name in WITH_CONTEXT:
        layer = WITH_CONTEXT[name]
        inputs = [leaf(rng, (b, n, D), "X"), leaf(rng, (b, m, D_CONTEXT), "Y")]
    else:
        layer, inputs = ROWS[name], [leaf(rng, (b, n, D), "X")]
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(size=parameter.shape))
    return layer, *inputs


def leaf(rng, shape, name):
    return mg.tensor(rng.normal(size=shape), requires_grad=True, name=name)


def call(layer, X, context=None, **given):
    return layer(X, **given) if context is None else layer(X, context=context, **given)
