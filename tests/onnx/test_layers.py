"""Models of layers: at other batch sizes and lengths than they were exported at, and named."""

from functools import partial

import numpy as np
import pytest

import layers as L
import minigrad as mg
from tests.layers.kinds import ROWS, D, drawn, kinds
from tests.onnx.exported import assert_same_at_other_sizes, export, onnx

F32 = {"rng": 0, "dtype": np.float32}
SIZE = {"n_heads": 2, "d_ff": 5, "n_layers": 2, "d_model": 4, "rng": 0}


def sequences(rng, batch, n, d=4, dtype=float):
    return [rng.normal(size=(batch, n, d)).astype(dtype)]


@kinds(ROWS)
def test_a_layer_runs_at_other_batches_and_lengths(rng, name, tmp_path):
    layer, _ = drawn(rng, name)
    sizes = (1, 2), (5, 10), (3, 23)
    assert_same_at_other_sizes(layer, partial(sequences, rng, d=D), sizes, tmp_path, longest=60)


CAUSAL = L.MultiHeadAttention(D, 3, rng=0)
PADDED = L.LSTM(4, 3, n_layers=2, bidirectional=True, **F32), L.GRU(4, 3, **F32)
TABLE = mg.tensor(np.linspace(-1.0, 1.0, 15).reshape(5, 3))
FUNCTIONS = {  # of one tensor
    "largest entries": lambda x: mg.topk(x, 3)[0],
    "a mean over no axis": lambda x: mg.mean(x, ()) * 2.0,
    "positions that are broadcast": lambda x: mg.take_along_axis(x, np.array([[[3, 0]]]), 2),
    "a slice up to a NumPy integer": lambda x: x[:, : np.int64(2)],
    "what is inside bounds, which NumPy narrows in place": (
        lambda x: mg.where([m := x.data > -1, np.logical_and(m, x.data < 1, out=m)][0], x, 0.0)
    ),
    "NumPy's reductions from an entry on": (
        lambda x: (
            (x.data.max(2, initial=0.5) - x.data.min(2, initial=-0.5)) * mg.mean(x, 2)
            + x.data.sum(2, initial=2.0)
        )
    ),
    "the square of a length": (
        lambda x: mg.reshape(x @ x.mT, (x.shape[0], -1)) * np.arange(x.shape[1] ** 2)
    ),
    "a copy that is written in place": lambda x: x * np.add(copy := x.data.copy(), 1, out=copy),
    "a transposed array of NumPy, and NaN": (
        lambda x: x + mg.tensor(x.data.transpose().T) * np.array([1, np.nan, 2, 3])
    ),
    "positions on two axes apart": (
        lambda x: mg.reshape(x, (*x.shape[:2], 2, 2))[:, np.array([0, 2]), :, np.array([1, 0])]
    ),
    "a length of three terms": (
        lambda x: (
            mg.concatenate((x[:, 0, 0], x[0, :, 0], x[0, 0, :1]))
            * np.arange(x.shape[0] + x.shape[1] + 1)
        )
    ),
    "a batch norm of each position": lambda x: mg.batch_norm(x, None, None, None, None),
    "rows that a constant closes": (
        lambda x: mg.softmax(mg.stack([x, x]) @ np.eye(4) + np.array([[[[0.0]]], [[[-np.inf]]]]))
    ),
}
MODELS = {
    "lstm": (L.LSTM(4, 3, n_layers=2, bidirectional=True, rng=0), sequences),
    "gru": (L.GRU(4, 3, **F32), partial(sequences, dtype="f")),
    "rnn": (L.RNN(4, 3, **F32), partial(sequences, dtype="f")),
    "lstm of padded rows": (
        lambda X, mask: PADDED[0](X, mask=mask),
        lambda rng, B, n: [*sequences(rng, B, n, dtype="f"), rng.random((B, n)) < 0.6],
    ),
    "gru of padded rows": (
        lambda X, mask: PADDED[1](X, mask=mask),
        lambda rng, B, n: [*sequences(rng, B, n, dtype="f"), rng.random((B, n)) < 0.3],
    ),
    "8-bit weights": (
        L.quantize(L.Encoder(**SIZE), np.zeros((1, 2, 4))),
        sequences,
    ),
    "what is infinite": (
        lambda x: mg.where(np.isinf(x.data), 0.0, x),
        lambda rng, B, n: [mg.tensor(rng.choice([1.0, np.inf, -2.0], (B, n, 5)))],
    ),
    "integers divided": (
        lambda i: mg.tensor((i // 3) * (i % -4)),
        lambda rng, B, n: [rng.integers(-20, 20, (B, n))],
    ),
    "one-hot tokens, pooled where they are real": (
        lambda t, real: (
            mg.sum(
                mg.matmul((t[..., None] == np.arange(5)).astype(float), TABLE) * real[..., None], 1
            )
            / (1 + real.sum(axis=1, keepdims=True))
        ),
        lambda rng, B, n: [rng.integers(0, 5, (B, n)), rng.random((B, n)) < 0.6],
    ),
    "images": (
        L.Sequential(
            L.Conv2d(3, 3, 3, padding="same", dilation=2, **F32),
            L.Conv2d(3, 4, 3, **F32),
            L.MaxPool2d(2),
            L.AvgPool2d(2),
            L.Flatten(),
        ),
        lambda rng, B, n: [rng.normal(size=(B, 3, 8, 9)).astype("f")],
    ),
    "images that shrink and grow": (
        L.Sequential(
            L.ConvTranspose2d(3, 4, 3, 2, 1, 1, **F32),
            L.PReLU(4, dtype=np.float32),
            L.Upsample(scale_factor=1.5, mode="bilinear"),
            L.GLU(1),
            L.Upsample((9, 20)),
            L.AdaptiveAvgPool2d((4, 3)),
        ),
        lambda rng, B, n: [rng.normal(size=(B, 3, 8, 9)).astype("f")],
    ),
    "norms of channels": (
        L.Sequential(L.BatchNorm(3), L.GroupNorm(3, 3), L.InstanceNorm(3)).eval(),
        lambda rng, B, n: [rng.normal(size=(B, 3, 5, 7))],
    ),
    "a mask as input": (
        CAUSAL,
        lambda rng, B, n: [*sequences(rng, B, n, D), rng.random((B, 1, n)) < 0.6],
    ),
    "padding of lengths": (
        lambda X, lengths: CAUSAL(X, L.padding_mask(lengths, X.shape[1])),
        lambda rng, B, n: [*sequences(rng, B, n, D), rng.integers(0, 3, B)],
    ),
    "both masks": (
        lambda X, real: CAUSAL(X, L.combined_mask(L.create_causal_mask(X.shape[1]), real)),
        lambda rng, B, n: [*sequences(rng, B, n, D), rng.random((B, n)) < 0.6],
    ),
}


def tensors(rng, batch, n):
    return [mg.tensor(*sequences(rng, batch, n))]


@pytest.mark.parametrize("name", [*FUNCTIONS, *MODELS])
def test_a_model_runs_at_other_batches_and_lengths(rng, name, tmp_path):
    model, draw = MODELS[name] if name in MODELS else (FUNCTIONS[name], tensors)
    sizes = (1, 3), (5, 10)
    assert_same_at_other_sizes(model, partial(draw, rng), sizes, tmp_path, longest=30)


def test_shapes_are_what_onnx_infers(rng, tmp_path):
    layer, X = drawn(rng, "block")
    model = export(layer, [X.numpy()], tmp_path, longest=30)
    told = {info.name: info.type.tensor_type for info in model.graph.value_info}
    del model.graph.value_info[:]
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    compared = 0
    for info in found.graph.value_info:
        if info.name in told:
            assert info.type.tensor_type.elem_type == told[info.name].elem_type
            for theirs, ours in zip(
                info.type.tensor_type.shape.dim, told[info.name].shape.dim, strict=True
            ):
                if theirs.HasField("dim_value") and ours.HasField("dim_value"):
                    assert theirs.dim_value == ours.dim_value
                    compared += 1
    assert compared > 20
