"""Every kind of layer: what all of them hold is claimed once for each of these.

A layer of ROWS is called with X (B, N, D), one WITH_CONTEXT with a context (B, M, D_CONTEXT) too,
one OF_TOKENS with integers (B, N), one OF_ARRAYS with an array of the shape that stands beside it.
"""

from copy import deepcopy
from functools import partial

import pytest

import layers as L
import minigrad as mg
from layers import causal, window

B, N, M, D, H, D_FF, D_CONTEXT, N_TOKENS = 2, 7, 5, 12, 3, 17, 11, 13

attention = partial(L.MultiHeadAttention, D)
ROWS = {
    "linear": L.Linear(D, 5),
    "layer norm": L.LayerNorm(D),
    "rms norm": L.RMSNorm(D),
    "feed-forward": L.FeedForward(D, D_FF, mg.gelu),
    "swiglu": L.GatedFeedForward(D, D_FF, use_bias=True),
    "learned positions": L.LearnedPosition(50, D),
    "sinusoidal positions": L.SinusoidalPosition(D),
    "self-attention": L.SelfAttention(D, 5, 3),
    "one head without W_O": L.SelfAttention(D, 5, 3, project_out=False, mask=causal),
    "multi-head": attention(H),
    "grouped": attention(6, 2, use_bias=True),
    "tiles": attention(H, attend=L.in_tiles, use_bias=True),
    "tiles, causal, grouped": attention(6, 2, attend=L.in_tiles, mask=causal),
    "tiles, window, rotary": attention(H, attend=L.in_tiles, mask=window(3), position=L.Rotary(4)),
    "dropout": attention(H, dropout=0.5, rng=0),
    "rotary": attention(H, 1, position=L.Rotary(4)),
    "Shaw": attention(H, 1, position=L.RelativePosition(4, 3)),
    "Transformer-XL": attention(H, position=L.TransformerXLPosition(D, H, 4)),
    "T5": attention(6, 2, position=L.T5Bias(6, 8, 11, bidirectional=False)),
    "ALiBi": attention(H, position=L.ALiBi(H)),
    "linear attention": attention(6, 2, attend=L.LinearKernel()),
    "linear attention, causal": attention(H, attend=L.LinearKernel(), mask=causal),
    "performer": attention(H, attend=L.Performer(4, 5, rng=0)),
    "linformer": attention(H, attend=L.Linformer(50, 2)),
    "block": L.TransformerBlock(D, H, D_FF),
    "post-norm block with dropout": L.TransformerBlock(
        D, H, D_FF, pre_norm=False, dropout=0.5, rng=0
    ),
    "encoder": L.Encoder(2, D, H, D_FF, norm=L.RMSNorm, pre_norm=False),
    "sequential": L.Sequential(L.Linear(D, 5), mg.tanh, L.Linear(5, D), L.LayerNorm(D)),
}
WITH_CONTEXT = {
    "cross-attention": attention(H, 1, d_context=D_CONTEXT, use_bias=True),
    "cross-attention, T5": attention(H, d_context=D_CONTEXT, position=L.T5Bias(H)),
    "cross-attention in tiles": attention(6, 2, d_context=D_CONTEXT, attend=L.in_tiles),
    "linear attention of a context": attention(6, 2, d_context=D_CONTEXT, attend=L.LinearKernel()),
    "decoder": L.Decoder(2, D, H, D_FF, d_context=D_CONTEXT),
}
OF_TOKENS = {
    "gpt-2": L.LanguageModel(N_TOKENS, D, H, 2, max_len=N),
    "llama": L.LanguageModel(
        N_TOKENS, D, H, 2, D_FF, n_kv_heads=1, position=L.Rotary(4), gated=True, use_bias=False,
        norm=L.RMSNorm, tied=False,
    ),
}  # fmt: skip
OF_ARRAYS = {
    "lstm": (L.LSTM(3, 5, 2, True, rng=0), (2, 7, 3)),
    "lstm step by step": (L.LSTM(3, 5, method="steps", rng=0), (2, 3, 3)),
    "gru": (L.GRU(3, 5, rng=0), (2, 7, 3)),
    "rnn": (L.RNN(3, 5, rng=0), (2, 4, 3)),
    "conv1d": (L.Conv1d(3, 4, 3, stride=2, rng=0), (2, 3, 11)),
    "grouped convolution": (L.Conv2d(4, 6, 3, padding=1, groups=2, rng=0), (2, 4, 5, 6)),
    "group norm": (L.GroupNorm(3, 6), (5, 6, 2, 3)),
    "cnn": (
        L.Sequential(
            L.Conv2d(1, 4, 3, padding=1, rng=0), mg.softplus, L.AvgPool2d(2), L.Flatten(),
            L.Linear(16, 3, rng=1),
        ),
        (3, 1, 4, 4),
    ),
    "batch norm": (L.BatchNorm(4), (2, 4, 3)),
}  # fmt: skip


def kinds(*tables, without=("dropout",)):
    """A test for each kind of these tables."""
    return pytest.mark.parametrize("name", [
        name
        for table in tables for name in table if not any(word in name for word in without)
    ])  # fmt: skip


def drawn(rng, name, b=B, n=N, m=M):
    """A layer of its own with parameters drawn anew, and leaves or token ids to call it with."""
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
    layer = deepcopy(layer)
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(size=parameter.shape))
    return layer, *inputs


def leaf(rng, shape, name):
    return mg.tensor(rng.normal(size=shape), requires_grad=True, name=name)


def call(layer, X, context=None, **keywords):
    return layer(X, **keywords) if context is None else layer(X, context=context, **keywords)
