"""Old names and places of arguments work as the new ones, and warn at the caller's line."""

import numpy as np
import pytest

import layers as L
from minigrad.errors import DTypeError

X = np.random.default_rng(0).normal(size=(2, 6, 6))
IMAGE = np.random.default_rng(1).normal(size=(2, 3, 7, 7))
CAUSAL = {"causal": True}, {"is_causal": True}

CASES = {
    "SelfAttention": lambda k: L.SelfAttention(6, 5, 3, rng=0, **CAUSAL[k])(X),
    "MultiHeadAttention": lambda k: L.MultiHeadAttention(6, 2, rng=0, **CAUSAL[k])(X),
    "LinearAttention": lambda k: L.LinearAttention(6, 2, rng=0, **CAUSAL[k])(X),
    "PerformerAttention": lambda k: L.PerformerAttention(6, 2, 5, rng=0, **CAUSAL[k])(X),
    "TransformerBlock": lambda k: L.TransformerBlock(6, 2, rng=0, **CAUSAL[k])(X),
    "Encoder": lambda k: L.Encoder(1, 6, 2, rng=0, **CAUSAL[k])(X),
    "linear_attention": lambda k: L.linear_attention(X, X, X, **CAUSAL[k]),
    "sliding_window_mask": lambda k: L.sliding_window_mask(7, 3, **CAUSAL[k]),
    "global_mask": lambda k: L.global_mask(7, 3, [2], **CAUSAL[k]),
    "LanguageModel": lambda k: L.LanguageModel(
        11, 6, 2, 1, rng=0, **({"causal": False}, {"is_causal": False})[k]
    )(np.array([[1, 2, 3]])),
    "Conv2d": lambda k: L.Conv2d(
        **({"in_channels": 3, "out_channels": 5}, {"d_in": 3, "d_out": 5})[k], size=3, rng=0
    )(IMAGE),
    "Conv2d's init": lambda k: (
        L.Conv2d(3, 5, 3, 1, 0, 1, 1, True, "orthogonal", 0)
        if k == 0
        else L.Conv2d(3, 5, 3, 1, 0, 1, 1, True, 0, init="orthogonal")
    )(IMAGE),
    "LSTM's init": lambda k: (
        L.LSTM(6, 5, 1, False, True, 0.0, "fused", "orthogonal", 0)
        if k == 0
        else L.LSTM(6, 5, rng=0, init="orthogonal")
    )(X),
    "GRUCell's init": lambda k: (
        L.GRUCell(6, 5, True, "normal", 0) if k == 0 else L.GRUCell(6, 5, rng=0, init="normal")
    )(X[0]),
    "Linear's init": lambda k: (
        L.Linear(6, 5, True, 0, np.float32, "zeros")
        if k == 0
        else L.Linear(6, 5, True, 0, np.float32, init="zeros")
    )(X),
    "LayerNorm's use_bias": lambda k: (
        L.LayerNorm(6, 1e-3, False, np.float32)
        if k == 0
        else L.LayerNorm(6, 1e-3, np.float32, use_bias=False)
    )(X),
    "RMSNorm's plus_one": lambda k: (
        L.RMSNorm(6, 1e-3, True, np.float32)
        if k == 0
        else L.RMSNorm(6, 1e-3, np.float32, plus_one=True)
    )(X),
    "initial": lambda k: (L.initial if k == 0 else L.init_weights)("normal", (2, 3), 2, 3, rng=0),
}


@pytest.mark.parametrize("name", CASES)
def test_an_old_argument_gives_the_same_and_warns_at_the_callers_line(name):
    with pytest.warns(DeprecationWarning, match="for one more release") as caught:
        old = CASES[name](0)
    assert {warning.filename for warning in caught} == {__file__}
    new = CASES[name](1)
    old, new = (x if isinstance(x, np.ndarray) else x.numpy() for x in (old, new))
    assert old.dtype == new.dtype
    np.testing.assert_array_equal(old, new)


def test_batch_norms_momentum_in_its_old_place_is_the_momentum():
    with pytest.warns(DeprecationWarning, match="momentum goes by keyword"):
        norm = L.BatchNorm(3, 1e-5, 0.5, np.float32)
    assert norm.momentum == 0.5
    assert norm.dtype == np.float32
    assert L.BatchNorm(3, 1e-5, np.float32).momentum == 0.1


def test_an_argument_under_both_names_is_refused():
    with pytest.raises(DTypeError, match="is_causal is given twice"):
        L.MultiHeadAttention(6, 2, is_causal=False, **CAUSAL[0])


def test_the_old_name_of_a_function_is_not_listed():
    assert "initial" not in L.__all__
    assert "initial" not in dir(L)
