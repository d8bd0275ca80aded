"""What layers refuse, each with its error and what that says: sizes, shapes, masks, options."""

from collections import deque

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    MinigradError,
    OutOfRangeError,
    ShapeError,
)
from tests.compare import give_wrong_values

B, N, D, H = 2, 7, 12, 3
CLASSES = np.array([0, 4, 2, 1, 3, 3, 1])
HEADED, FEW = L.MultiHeadAttention(D, H, rng=0, d_context=11), "must be an integer of at least 1"


def z(*shape, dtype=float):
    return np.zeros(shape, dtype)


def filled_cache():
    cache = L.KVCache()
    cache.append(z(B, 3, N, 4), z(B, 3, N, 4))
    return cache


def loss(targets=CLASSES, **options):
    return L.cross_entropy_loss(z(7, 5), targets, **options)


def scores(**options):
    return L.scaled_dot_product_attention(z(B, N, 5), z(B, N, 5), z(B, N, 5), **options)


def heads(*sizes, **options):
    return L.MultiHeadAttention(*sizes, **options)


SIZES = [
    *((f"SelfAttention: {name} must be", lambda name=name: L.SelfAttention(
        **({"d_model": 5, "d_k": 2, "d_v": 3} | {name: 0}))) for name in ("d_model", "d_k", "d_v")),
    *((FEW, lambda n=n: L.Linear(*n)) for n in [(0, 2), (3, -1), (2.5, 2), (True, 2)]),
    ("n_heads must divide d_model, got 2 and 7", lambda: heads(7, 2)),
    ("n_kv_heads must divide n_heads, got 4 and 6", lambda: heads(12, 6, 4)),
    ("n_kv_heads must divide n_heads, got 12 and 6", lambda: heads(12, 6, 12)),
    (f"n_heads {FEW}, got 0", lambda: heads(12, 0)),
    (f"n_kv_heads {FEW}, got 0", lambda: heads(12, 6, 0)),
    ("n_heads must divide d_model, got 5 and 12", lambda: L.LinearAttention(12, 5)),
    ("n_kv_heads must divide n_heads, got 4 and 6", lambda: L.LinearAttention(D, 6, n_kv_heads=4)),
    (f"n_features {FEW}, got 0", lambda: L.PerformerAttention(12, 3, 0)),
    (f"k {FEW}, got 0", lambda: L.LinformerAttention(12, 3, 7, 0)),
    ("seed: an integer of at least 0, or None, got -1", lambda: L.seed(-1)),
    (f"m {FEW}, got 0", lambda: L.orthogonal_features(0, 3)),
    ("LayerNorm: shape[0] must be an integer", lambda: L.LayerNorm(0)),
    *(("eps must be at most 1, got 16; the lengths of several axes go as one tuple",
       lambda norm=norm: norm(3, 16)) for norm in (L.LayerNorm, L.RMSNorm)),
    (f"d_out {FEW}", lambda: L.Conv1d(3, 0, 3)),
    (f"d_hidden {FEW}", lambda: L.GRU(2, 0)),
    (f"{FEW}, got 0", lambda: L.sliding_window_mask(5, 0)),
    (f"{FEW}, got 0", lambda: L.dilated_mask(5, 1, 0)),
    (f"block {FEW}", lambda: L.big_bird_mask(5, 0)),
    *((f"big_bird_mask: {name} must be at least 0, got -1", lambda name=name: L.big_bird_mask(
        5, 1, **{name: -1})) for name in ("n_global", "n_random")),
    (f"window {FEW}", lambda: L.SelfAttention(D, 5, 7, window=0)),
    ("window must be at least 1", lambda: L.KVCache(window=0)),
    *(("d must be even, got 5", lambda o=o: L.Rotary(5, **o)) for o in ({}, {"frequencies": z(2)})),
    *((f"size {FEW}, got 0", lambda s=s: L.Conv2d(1, 2, s)) for s in (0, (3, 0), [0, 3])),
    *(("it has one head, and its position is for 3", lambda p=p: L.SelfAttention(
        D, 4, 4, position=p)) for p in (L.T5Bias(H), L.ALiBi(H), L.TransformerXLPosition(D, H, 4))),
]  # fmt: skip

OPTIONS = [
    ("LanguageModel: output_softcap must be more than 0, got -1",
     lambda: L.LanguageModel(5, 6, 3, 1, output_softcap=-1)),
    ("softcap must be more than 0, got 0", lambda: heads(D, H, softcap=0)),
    ("p must lie in [0, 1]", lambda: L.SelfAttention(D, 5, 7, dropout=2)),
    ("use_bias must be a bool or some of", lambda: heads(D, H, use_bias="QX")),
    *(('need the scores, which method="tiled" never', lambda o=o: heads(D, H, method="tiled", **o))
      for o in ({"softcap": 3.0}, {"dropout": 0.5}, {"position": L.T5Bias(H)})),
    ("return_scores must be a bool", lambda: scores(return_scores="A")),
    ("there is no causal form", lambda: L.LinformerAttention(D, H, 7, 3, is_causal=True)),
    ("nothing to cache",
     lambda: L.LinformerAttention(D, H, 7, 3)(z(1, 3, D), cache=L.KernelState())),
    ("it needs is_causal=True", lambda: L.LinearAttention(D, H)(z(1, 3, D), cache=L.KernelState())),
    ("activation must be one of gelu, gelu_tanh, relu", lambda: L.FeedForward(D, 7, "swish")),
    ('norm_order must be "pre", "post" or "both"',
     lambda: L.TransformerBlock(D, H, norm_order="middle")),
    ('"half" or "interleaved", got \'other\'', lambda: L.Rotary(4, pairing="other")(z(3, 4))),
    ("yarn scaling needs original_max_position_embeddings",
     lambda: L.Rotary(6, scaling={"rope_type": "yarn", "factor": 2.0})),
    ("got 'other'", lambda: L.Rotary(6, scaling={"rope_type": "other", "factor": 2.0})),
    ('method must be "fused" or "steps"', lambda: L.LSTM(2, 3, method="slow")),
    ("initialiser must be one of he_normal", lambda: L.RNN(2, 3, init="best")),
    ("size, stride and dilation must be at least 1",
     lambda: mg.conv1d(z(1, 3, 5), z(4, 3, 3), stride=0)),
    ('padding="same" takes stride=1',
     lambda: mg.conv1d(z(1, 3, 5), z(4, 3, 3), padding="same", stride=2)),
    ("groups must divide C = 3", lambda: mg.group_norm(z(2, 3), 2)),
    ("ignore_index needs integer targets", lambda: loss(z(7, 5), ignore_index=1)),
    ("reduction must be", lambda: loss(reduction="max")),
    ("label_smoothing must lie in", lambda: loss(label_smoothing=2)),
    *((f"QuantizedWeight: bits must be 2 to 8, got {bits}",
       lambda bits=bits: L.QuantizedWeight(np.ones((2, 2)), bits)) for bits in (1, 9)),
    *(("buckets must leave some for near distances, and max_distance must be more than",
       lambda a=a: L.T5Bias(H, *a)) for a in [(2, 128), (3, 128), (1, 128, False), (32, 8)]),
    ("finite matrix", lambda: L.QuantizedWeight(np.array([[np.nan]]))),
    ("none of its parameters", lambda: L.quantize(L.LayerNorm(3), z(1, 3))),
    ("holds NaN or +inf, use 0 and -inf",
     lambda: L.SelfAttention(5, 2, 3)(z(B, N, 5), np.full((1, N, N), np.nan))),
    ("lengths must be 0 to 3", lambda: L.padding_mask([1, 5], 3)),
    ("lengths must be 0 to 2", lambda: L.padding_mask([-1, 2])),
    ("NaN or +inf", lambda: L.linear_attention(z(3, 5), z(4, 5), z(4, 5), mask=np.full(4, np.nan))),
    ("a mask can hide them, not weigh them", lambda: L.linformer_attention(
        z(3, 5), z(4, 5), z(4, 5), z(2, 4), z(2, 4), mask=np.full(4, 0.5))),
    ("nothing has been cached yet", lambda: L.KVCache().keys),
    ("quantize: bits must be 2 to 8, got 9", lambda: L.quantize(L.Linear(3, 2), z(1, 3), bits=9)),
    ("must give the shape (3, 2), gave (2,)", lambda: L.Linear(3, 2, init=lambda rng, shape: z(2))),
    ("sinusoidal_encoding: d_model must be even, got 5", lambda: L.SinusoidalPosition(5)),
    ("TrainedQuantizedWeight: bits must be 2 to 8, got 2.5",
     lambda: L.TrainedQuantizedWeight(mg.tensor(z(3, 2)), 2.5)),
    *((f"layer_cost: {name} must be an integer of at least 1, got -2",
       lambda name=name: L.layer_cost(HEADED, **{name: -2}))
      for name in ("batch_size", "seq_len", "context_len")),
    ("rank must be an integer of at least 1", lambda: L.LowRankWeight(z(3, 2), 0, 1.0)),
    *(("DecoderBlock: context must be (B, m, d_context), got None", lambda f=f: f(z(B, N, D), None))
      for f in (L.DecoderBlock(D, H), L.Decoder(2, D, H))),
    ("one of its own for each of 2 blocks, as new_cache() makes them, got 1",
     lambda: L.Encoder(2, D, H)(z(1, N, D), cache=[L.KVCache()] * 2)),
    *(("version: Module counts there how often", f)
      for f in (lambda: setattr(L.Linear(3, 2), "version", "1.0"),
                lambda: type("Mine", (L.Module,), {"version": "1.0"}))),
    ("position must be a Rotary, a bias, or an AttentionOption of your own, got int",
     lambda: heads(D, H, position=3)),
]  # fmt: skip

SHAPES = [
    *(("X must be (B, n, 15) or (n, 15), got (", lambda layer=layer, s=s: layer(z(*s)))
      for layer in (L.SelfAttention(15, 5, 11), heads(15, 3), heads(15, 3, 1))
      for s in [(B, N, 3), (15,), (1, B, N, 15), ()]),
    ("got 7 != 3", lambda: L.Linear(3, 2)(z(5, 7))),
    ("LayerNorm(x): x must end in (7,), got (2, 3, 5)", lambda: L.LayerNorm(7)(z(2, 3, 5))),
    ("RMSNorm(x): x must end in (2, 5)", lambda: L.RMSNorm((2, 5))(z(2, 3, 5))),
    ("x must be (N, 3, height, w", lambda: L.Conv2d(3, 4, 3)(z(2, 5, 7, 7))),
    ("groups must divide d_in", lambda: L.Conv2d(3, 4, 3, groups=2)),
    ("do not fit", lambda: mg.conv2d(z(1, 3, 2, 9), z(4, 3, 3, 3))),
    ("O = 4, C = 3, groups = 1 and weight (4, 2, 3, 3)",
     lambda: mg.conv2d(z(1, 3, 5, 5), z(4, 2, 3, 3))),
    ("(N, C, length, …)", lambda: mg.max_pool(z(2, 3), 2)),
    ("(C,) = (4,)", lambda: L.BatchNorm(3)(z(2, 4))),
    ("LSTM(X): X must be (B, T, 2)", lambda: L.LSTM(2, 3)(z(1, 4, 5))),
    *((f"{type(layer).__name__}({x}): {x} must be (", lambda layer=layer: layer(None))
      for x, layer in [("x", L.Conv1d(3, 4, 3)), ("X", L.GRU(2, 3))]),
    *(("GRUCell(x): x must be (B, 2), got (", lambda s=s: L.GRUCell(2, 3)(z(*s)))
      for s in [(2,), (2, 2, 2)]),
    ("LSTMCell: state must be (h, c), each (2, 3), got (2, 3)",
     lambda: L.LSTMCell(4, 3)(z(2, 4), z(2, 3))),
    ("RNNCell: state must be h, (2, 3), got (1, 3)", lambda: L.RNNCell(4, 3)(z(2, 4), z(1, 3))),
    ("state must be (h, c), each (1, 1, 3)", lambda: L.LSTM(2, 3)(z(1, 4, 2), state=z(1, 1, 3))),
    ("KVCache: it holds (2, 3, n, 4), got (2, 3, 7, 5); each layer has a cache of its own",
     lambda: filled_cache().append(z(B, 3, N, 5), z(B, 3, N, 4))),
    ("mask must be (1, 4), got (1, 5)", lambda: L.RNN(2, 3)(z(1, 4, 2), mask=z(1, 5, dtype=bool))),
    ("at most half as many", lambda: L.Rotary(6)(z(3, 4))),
    *(("positions of 3 tokens must be (3,) or (B, 3), got (1,)",
       lambda f=f: f(z(B, 3, D), positions=[2]))
      for f in (L.Rotary(4), L.LearnedPosition(5, D), L.SinusoidalPosition(D),
                heads(D, H, position=L.T5Bias(H)))),
    ("frequencies must be (2,), got (3,)", lambda: L.Rotary(4, frequencies=np.ones(3))),
    ("the logits' shape without the classes, (7,)", lambda: loss(CLASSES[:3])),
    ("weight must be (5,), got (3,)", lambda: loss(weight=np.ones(3))),
    ("a target distribution must have the logits' shape", lambda: loss(z(7, 4))),
    ("lengths must be (B,), got (1, 2)", lambda: L.padding_mask([[1, 2]])),
    ("real must be (B, n), got (2,)", lambda: L.padding_mask([True, False])),
    ("real must be (B, 3), got (1, 2)", lambda: L.padding_mask([[True, False]], 3)),
    *((f"causal: {a}\n  padding: {b}", lambda a=a, b=b: L.combined_mask(z(*a), z(*b)))
      for a, b in [((3, 3), (2, 5)), ((3, 5), (2, 5)), ((3,), (2, 3)), ((3, 3), (3,)),
                   ((2, 3, 3), (5, 1, 3)), ((3, 3), (2, 7, 3)), ((), (2, 3))]),
    *(("scaled_dot_product_attention(Q, K, V, mask): mask must broadcast to the scores\n"
       f"  scores: (2, 7, 7)   self_attention/S\n  mask: {s}",
       lambda s=s: L.SelfAttention(D, 2, 3)(z(B, N, D), z(*s)))
      for s in [(3, 7), (5, 7, 7), (7, 3), (2, 2, 7, 7)]),
    ("write padding_mask(real), True at real tokens\n  scores: (2, 7, 7)",
     lambda: L.SelfAttention(D, 2, 3)(z(B, N, D), np.ones((B, N), bool))),
    # (2, 7, 7) would broadcast with unbatched scores (7, 7), but not to them
    ("must broadcast to the scores", lambda: L.SelfAttention(D, 2, 3)(z(N, D), z(B, N, N))),
    ("a context goes by keyword: ", lambda: HEADED(z(B, N, D), z(B, 5, 11))),
    ("context must be (B, n, 11) or (n, 11)", lambda: HEADED(z(B, N, D), context=z(B, 5, 5))),
    ("context must be", lambda: HEADED(z(B, N, D), context=z(11))),
    ("keys must be at most seq_len, got 8 > 7",
     lambda: L.LinformerAttention(D, H, 7, 3)(z(1, 3, D), context=z(1, 8, D))),
    ("linformer_attention(Q, K, V, E, F): Q's last axis must equal K's, got 5 != 3\n"
     "  Q: (7, 5)\n  K: (7, 3)",
     lambda: L.linformer_attention(z(7, 5), z(7, 3), z(7, 2), z(2, 7), z(2, 7))),
    ("linear_attention(Q, K, V): V must have a row for each key, got 11 != 7\n"
     "  K: (7, 5)\n  V: (11, 2)", lambda: L.linear_attention(z(3, 5), z(7, 5), z(11, 2))),
    ("linear_attention(Q, K, V): causal needs as many queries as keys, got 3 != 7",
     lambda: L.linear_attention(z(3, 5), z(7, 5), z(7, 2), is_causal=True)),
    ("linear_attention(Q, K, V): V needs at least two axes, got 1\n  V: (7,)",
     lambda: L.linear_attention(z(7, 5), z(7, 5), z(7))),
    ("linear_attention(Q, K, V): leading axes must broadcast\n"
     "  Q: (2, 7, 5)\n  K: (3, 7, 5)\n  V: (7, 2)",
     lambda: L.linear_attention(z(2, 7, 5), z(3, 7, 5), z(7, 2))),
    ("F's last axis must be the number of keys, got 5 != 7\n  F: (2, 5)\n  K: (7, 3)",
     lambda: L.linformer_attention(z(7, 3), z(7, 3), z(7, 2), z(2, 7), z(2, 5))),
    ("E and F must make as many rows, got 2 != 3\n  E: (2, 7)\n  F: (3, 7)",
     lambda: L.linformer_attention(z(7, 3), z(7, 3), z(7, 2), z(2, 7), z(3, 7))),
    ("the features' last axis must be Q's, got 2 != 5\n  features: (3, 2)\n  Q: (7, 5)",
     lambda: L.performer_attention(z(7, 5), z(7, 5), z(7, 2), z(3, 2))),
    ("keys must be at most seq_len, got 5 > 3\n  K: (1, 2, 5, 3)   linformer_attention/K",
     lambda: L.LinformerAttention(6, 2, 3, 2)(z(1, 5, 6))),
    ("so a mask must hide them from all alike: (7,) or (..., 1, 7), got (7, 7)",
     lambda: L.linear_attention(z(7, 5), z(7, 5), z(7, 2), mask=z(7, 7))),
    ("LinearAttention(X): X must be (B, n, 6) or (n, 6), got (1, 5, 7)\n  X: (1, 5, 7)   X",
     lambda: L.LinearAttention(6, 2)(z(1, 5, 7))),
]  # fmt: skip

OTHERS = [
    (DTypeError, "", lambda: L.Linear(3, 2, dtype=np.int64)),
    (DTypeError, "a mask is boolean",
     lambda: heads(D, H, is_causal=True)(z(N, D), np.tri(7, dtype=int))),
    (DTypeError, "boolean", lambda: L.linear_attention(
        z(3, 5), z(4, 5), z(4, 5), mask=np.ones(4, int))),
    (DTypeError, "boolean", lambda: L.combined_mask(np.tri(3, dtype=int), z(2, 3, dtype=bool))),
    *((DTypeError, f"a mask to add needs floats, for 0 and -inf, got dtype={dtype}", call)
      for dtype in ("bool", "int64")
      for call in (lambda dtype=dtype: L.create_causal_mask(3, dtype),
                   lambda dtype=dtype: L.padding_mask([1, 3], dtype=dtype))),
    *((DTypeError, "not an array of numbers", lambda x=x: L.Linear(2, 3)(x))
      for x in ([1.0, None], ["1.5", "2"], np.array(["1.5", "2"]))),
    (DTypeError, "lengths must be integers", lambda: L.padding_mask([1.0, 2.0])),
    (DTypeError, "create_causal_mask: seq_len must be an integer, got 2.5",
     lambda: L.create_causal_mask(2.5)),
    (ArgumentError, "seq_len must be at least 0, got -3", lambda: L.create_causal_mask(-3)),
    (DTypeError, "padding_mask: seq_len must be an integer", lambda: L.padding_mask([2], 3.5)),
    (DTypeError, "integers or floats, got bool", lambda: loss(CLASSES > 2)),
    *((DTypeError, f"{kind.__name__}(X): mask must be boolean, got {mask.dtype}",
       lambda kind=kind, mask=mask: kind(2, 3, method="steps")(z(1, 4, 2), mask=mask))
      for kind in (L.LSTM, L.RNN) for mask in (z(1, 4), z(1, 4, dtype=int))),
    (DTypeError, "KVCache: it holds float64, got float32; reset() it first",
     lambda: filled_cache().append(z(B, 3, 1, 4, dtype=np.float32), z(B, 3, 1, 4))),
    (DTypeError, "KVCache.crop: lengths must be integers, got 2.5",
     lambda: filled_cache().crop(2.5)),
    *((DTypeError, f"Linear.layers: layers in a {kind.__name__} are not found",
       lambda kind=kind: setattr(L.Linear(3, 2), "layers", kind([mg.relu, L.Linear(2, 2)])))
      for kind in (set, deque)),
    *((DTypeError, text, lambda f=f: f(L.Linear(3, 2))) for text, f in [
        ("Linear.load_state_dict(state, strict): ", lambda layer: layer.load_state_dict(None)),
        ("Linear.zero_grad(): got an unexpected keyword argument 'set_to_none'",
         lambda layer: layer.zero_grad(set_to_none=True)),
        ("Linear.train(mode): mode must be a bool, got ndarray",
         lambda layer: layer.train(z(2, 3))),
        ("Linear.train(mode): takes from 1 to 2 positional arguments but 3 were given",
         lambda layer: layer.train(z(2, 3), z(2))),
        ("Linear.backward(grad_output, retain_graph): missing 1 required",
         lambda layer: layer.backward()),
        ("Cannot cast array data from dtype('complex128')",
         lambda layer: setattr(layer, "W", z(3, 2) * 1j)),
    ]),
    (DTypeError, "tokens must be integers, got float64", lambda: L.Embedding(5, 3)(z(1))),
    *((DTypeError, "must be real", call)
      for f in (L.SelfAttention(D, 3, 2), heads(D, 2), L.LinearAttention(D, 2))
      for call in (lambda f=f: f(z(N, D) + 1j), lambda f=f: f(z(N, D), context=z(N, D) * 1j))),
    (OutOfRangeError, "LearnedPosition(X): max_len is 5, got 7 tokens",
     lambda: L.LearnedPosition(5, 3)(z(7, 3))),
    *((OutOfRangeError, f"must lie in [0, 5), got {k} to {k}",
       lambda k=k: L.Embedding(5, 3)(np.array([k]))) for k in (5, -1)),
    (OutOfRangeError, "targets must lie in [0, 5), got 5", lambda: loss(CLASSES * 0 + 5)),
    (OutOfRangeError, "got -100", lambda: loss(CLASSES * 0 - 100)),
    (OutOfRangeError, "[0, 5), got 0 to 6", lambda: L.LearnedPosition(5, D)(z(B, N, D))),
    *((OutOfRangeError, f"must lie in [-5, 5), got [{k}]", lambda k=k: L.global_mask(5, 2, [k]))
      for k in (5, -6)),
    (DTypeError, "tokens must be integers, got float64", lambda: L.global_mask(5, 2, [0.5])),
    (GradientError, "run the layer within mg.no_grad()",
     lambda: heads(D, H, is_causal=True)(z(B, N, D), cache=L.KVCache())),
    (GradientError, "ContextCache: ",
     lambda: HEADED(z(B, N, D), context=z(B, 5, 11), cache=L.ContextCache())),
    (GradientError, "mask of keys is a constant", lambda: L.linear_attention(
        z(3, 5), z(4, 5), z(4, 5), mask=mg.tensor(z(4), requires_grad=True))),
    (DTypeError, "Sequential: layer 0 must be a Module or a function, got list",
     lambda: L.Sequential([L.Linear(2, 3), mg.relu])),
    (DTypeError, "the layers of a dict go by Sequential(**layers)",
     lambda: L.Sequential({"relu": mg.relu})),
    (TypeError, "unexpected keyword argument 'soft_cap'", lambda: heads(D, H, soft_cap=3.0)),
    (TypeError, "positional", lambda: HEADED(z(B, N, D), None, z(B, 5, 11))),
    (ValueError, "n_heads must divide the last axis, got 5 and 12",
     lambda: L.explain_layout(z(B, N, D), 5)),
    (ValueError, "the layer must have no biases",
     lambda: L.attend_per_head(heads(D, H, use_bias=True), z(B, N, D))),
    *((OutOfRangeError, f"Sequential[{name!r}]: its layers are {known}",
       lambda name=name, layers=layers: L.Sequential(**layers)[name])
      for name, known, layers in [("b", ["a"], {"a": mg.relu}), (3, ["a"], {"a": mg.relu}),
                                  (0, "0 to -1", {})]),
    *((ValueError, f"the layer must have no options, got {name}", lambda o=o: L.attend_per_head(
        heads(D, H, **o), z(B, N, D)))
      for name, o in [("causal", {"is_causal": True}), ("window", {"window": 2}),
                      ("scale", {"scale": 0.0}), ("SoftCap", {"softcap": 1.0})]),
]  # fmt: skip

TABLE = [
    *((ArgumentError, *row) for row in SIZES + OPTIONS), *((ShapeError, *row) for row in SHAPES),
    *OTHERS,
]  # fmt: skip


@pytest.mark.parametrize(("error", "text", "call"), TABLE)
def test_what_is_refused(error, text, call):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


# What makes a layer, and what runs: each is given wrong values in turn.
MADE = (
    (L.Linear, 5, 3), (L.LayerNorm, 5), (L.RMSNorm, 5), (L.BatchNorm, 3), (L.GroupNorm, 2, 4),
    (L.Dropout, 0.5), (L.Embedding, 5, 3), (L.Conv1d, 3, 4, 3),
    (L.Conv2d, 3, 4, 3), (L.MaxPool2d, 2),
    (L.GRU, 5, 3), (L.LSTMCell, 5, 3), (L.FeedForward, 5, 7),
    (L.SelfAttention, 6, 5, 3), (L.MultiHeadAttention, D, H), (L.PerformerAttention, D, H, 4),
    (L.LinformerAttention, D, H, 7, 2), (L.TransformerBlock, D, H), (L.Encoder, 2, D, H),
    (L.SinusoidalPosition, 6), (L.LearnedPosition, 7, 5), (L.ALiBi, 3), (L.T5Bias, 3),
    (L.Rotary, 4),
)  # fmt: skip
RUN = (
    (L.Linear(5, 3), z(2, 5)), (L.LayerNorm(5), z(2, 5)), (L.BatchNorm(3), z(2, 3)),
    (L.GroupNorm(2, 4), z(2, 4, 5)), (L.Embedding(5, 3), CLASSES), (L.Conv1d(3, 4, 3), z(2, 3, 7)),
    (L.MaxPool2d(2), z(2, 3, 6, 6)),
    (L.GRU(5, 3), z(2, 7, 5)), (L.LSTMCell(5, 3), z(2, 5)),
    (HEADED, z(B, N, D), np.ones((N, N), bool)), (L.SelfAttention(D, 5, 3), z(B, N, D), None),
    (L.LinearAttention(D, H), z(B, N, D)), (L.TransformerBlock(D, H), z(B, N, D), None),
    (L.DecoderBlock(D, H), z(B, N, D), z(B, 5, D)), (L.CrossEntropyLoss(), z(7, 5), CLASSES),
    (L.MSELoss(), z(7, 5), z(7, 5)), (L.Rotary(4), z(B, N, 4)), (L.Dropout(0.5), z(2, 5)),
    (L.split_heads, z(B, N, D), 3), (L.merge_heads, z(B, 3, N, 4)), (L.alibi_slopes, 3),
    (L.create_causal_mask, 3), (L.padding_mask, [1, 3], 3), (L.init_weights, "he_normal", (3, 5)),
    (L.combined_mask, np.tri(3) > 0, np.ones((2, 3), bool)), (L.sliding_window_mask, 5, 2),
    (L.dilated_mask, 5, 1, 1), (L.global_mask, 5, 2, [0]), (L.big_bird_mask, 5, 1),
    (L.scaled_dot_product_attention, z(B, N, 5), z(B, N, 5), z(B, N, 3), np.ones((N, N), bool)),
    (L.online_softmax_attention, z(N, 5), z(N, 5), z(N, 3), np.ones((N, N), bool)),
    (L.softmax_backward, z(3, 5), z(3, 5), 1), (L.linear_attention, z(N, 5), z(N, 5), z(N, 2)),
    (L.linformer_attention, z(N, 3), z(N, 3), z(N, 2), z(2, N), z(2, N)),
    (L.performer_attention, z(N, 5), z(N, 5), z(N, 2), z(3, 5)), (L.positive_features, z(3), z(3)),
    (L.orthogonal_features, 4, 3), (L.elu_features, z(3)), (L.rotary_angles, np.arange(7), 4),
    (L.apply_rotary, z(N, 4), z(N, 4), z(N, 4)), (L.rotary_frequencies, 4), (L.t5_bucket, CLASSES),
    (L.sinusoidal_encoding, np.arange(5), 4), (L.explain_layout, z(2, 7, D), 3), (L.seed, 0),
    (L.lora, L.Linear(3, 2), 2), (L.quantize, L.Linear(3, 2), z(5, 3)), (L.layer_cost, HEADED),
    (L.Linear(3, 2).load_state_dict, {"W": z(3, 2), "b": z(2)}),
    (lambda W: L.Linear(3, 2).load_state_dict({"W": W, "b": z(2)}), z(3, 2)),
    (lambda W: setattr(L.Linear(3, 2), "W", W), z(3, 2)), (L.Linear(3, 2).train, True),
    (L.Linear(3, 2).freeze, "W"), (L.Linear(3, 2).to, float), (L.Adapters, L.Linear(3, 2)),
    (L.QuantizedWeight, z(3, 2), 8), (L.TrainedQuantizedWeight, mg.tensor(z(3, 2)), 8),
    (L.KVCache, 3, 5), (L.KVCache().crop, 0), (lambda n: filled_cache().crop(n), 5),
    (lambda K, V: filled_cache().append(K, V), z(B, 3, 1, 4), z(B, 3, 1, 4)),
    (L.KernelState().append, z(B, 3, 1, 4), z(B, 3, 1, 4)),
    (L.Encoder(1, D, H).forward, z(1, N, D), None), (L.Sequential(mg.relu).__getitem__, 0),
)  # fmt: skip


@pytest.mark.parametrize(
    "call", MADE + RUN, ids=lambda row: getattr(row[0], "__name__", type(row[0]).__name__)
)
def test_whatever_a_layer_is_given_what_it_raises_is_an_error_of_ours(call):
    function, *args = call
    give_wrong_values(function, args)


def test_an_error_of_a_users_own_layer_stays_as_it_is():
    class Mine(L.Module):
        def forward(self, x, of_python=True):
            return x.data.no_such_name if of_python else L.Linear(3, 2)(x)

    with pytest.raises(AttributeError, match="no_such_name") as caught:
        Mine()(z(2, 3))
    assert not isinstance(caught.value, MinigradError)
    for given in (None, "a"):
        with pytest.raises(MinigradError):
            Mine()(given, of_python=False)


def test_a_layer_made_or_called_with_what_python_cannot_use_names_the_call():
    with pytest.raises(DTypeError, match=r"^Linear\(d_in, d_out, .*: .*argument: 'd_out'"):
        L.Linear(3)
    with pytest.raises(DTypeError, match=r"^Linear\(d_in, (.|\n)*rng = 'a'"):
        L.Linear(3, 2, rng="a")
    with pytest.raises(DTypeError, match=r"^Rotary\(x, positions, offset\): (.|\n)*x = None"):
        L.Rotary(4)(None)
