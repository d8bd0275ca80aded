"""Old names and places of arguments work as the new ones, and warn at the caller's line."""

import pathlib

import numpy as np
import pytest

import layers as L
from minigrad.errors import DTypeError
from tests.compare import assert_same

X = np.random.default_rng(0).normal(size=(2, 6, 6))
IMAGE = np.random.default_rng(1).normal(size=(2, 3, 7, 7))

CAUSAL = [
    "L.SelfAttention(6, 5, 3, rng=0, causal=True)(X)",
    "L.MultiHeadAttention(6, 2, rng=0, causal=True)(X)",
    "L.LinearAttention(6, 2, rng=0, causal=True)(X)",
    "L.PerformerAttention(6, 2, 5, rng=0, causal=True)(X)",
    "L.TransformerBlock(6, 2, rng=0, causal=True)(X)",
    "L.Encoder(1, 6, 2, rng=0, causal=True)(X)",
    "L.LanguageModel(11, 6, 2, 1, rng=0, causal=False)(np.array([[1, 2, 3]]))",
    "L.linear_attention(X, X, X, causal=True)",
    "L.sliding_window_mask(7, 3, causal=True)",
    "L.global_mask(7, 3, [2], causal=True)",
]
NEW = {old: old.replace("causal", "is_causal") for old in CAUSAL} | {
    "L.Conv2d(in_channels=3, out_channels=5, size=3, rng=0)(IMAGE)":
        "L.Conv2d(d_in=3, d_out=5, size=3, rng=0)(IMAGE)",
    "L.Conv2d(3, 5, 3, 1, 0, 1, 1, True, 'orthogonal', 0)(IMAGE)":
        "L.Conv2d(3, 5, 3, 1, 0, 1, 1, True, 0, init='orthogonal')(IMAGE)",
    "L.LSTM(6, 5, 1, False, True, 0.0, 'fused', 'orthogonal', 0)(X)":
        "L.LSTM(6, 5, rng=0, init='orthogonal')(X)",
    "L.GRUCell(6, 5, True, 'normal', 0)(X[0])": "L.GRUCell(6, 5, rng=0, init='normal')(X[0])",
    "L.Linear(6, 5, True, 0, np.float32, 'zeros')(X)":
        "L.Linear(6, 5, True, 0, np.float32, init='zeros')(X)",
    "L.LayerNorm(6, 1e-3, False, np.float32)(X)":
        "L.LayerNorm(6, 1e-3, np.float32, use_bias=False)(X)",
    "L.RMSNorm(6, 1e-3, True, np.float32)(X)": "L.RMSNorm(6, 1e-3, np.float32, plus_one=True)(X)",
    "L.initial('normal', (2, 3), 2, 3, rng=0)": "L.init_weights('normal', (2, 3), 2, 3, rng=0)",
}  # fmt: skip
"""Calls as they were written, and as they are written now."""


@pytest.mark.parametrize("old", NEW)
def test_an_old_argument_gives_the_same_and_warns_at_the_callers_line(old):
    with pytest.warns(DeprecationWarning, match="for one more release") as caught:
        found = eval(compile(old, __file__, "eval"))
    assert {warning.filename for warning in caught} == {__file__}

    assert_same(found, eval(NEW[old]), 0)


class Inner(L.Module):
    """A user's layer, whose forward a layer of ours calls."""

    def forward(self, X):
        return L.linear_attention(X, X, X, causal=True)


def test_an_old_argument_within_a_forward_warns_at_its_own_line():
    with pytest.warns(DeprecationWarning, match="is now is_causal=") as caught:
        L.Sequential(Inner())(X)
    lines = pathlib.Path(caught[0].filename).read_text(encoding="utf-8").splitlines()
    assert "L.linear_attention(X, X, X, causal=True)" in lines[caught[0].lineno - 1]


def test_batch_norms_momentum_in_its_old_place_is_the_momentum():
    with pytest.warns(DeprecationWarning, match="momentum goes by keyword"):
        norm = L.BatchNorm(3, 1e-5, 0.5, np.float32)
    assert (norm.momentum, norm.dtype) == (0.5, np.float32)
    assert L.BatchNorm(3, 1e-5, np.float32).momentum == 0.1


def test_an_argument_under_both_names_is_refused():
    with pytest.raises(DTypeError, match="is_causal is given twice"):
        L.MultiHeadAttention(6, 2, is_causal=False, causal=True)


def test_the_old_name_of_a_function_is_not_listed():
    assert "initial" not in [*L.__all__, *dir(L)]
