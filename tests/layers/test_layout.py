"""Separate heads are the fused ones, and splitting them is free where merging is not."""

import numpy as np
import pytest

from layers import (
    MultiHeadAttention,
    attend_per_head,
    create_causal_mask,
    explain_layout,
)
from minigrad import mask_rules

B, N, D, H = 2, 7, 12, 3


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 1}, {"d_k": 5, "d_v": 2}], ids=str)
@pytest.mark.parametrize("mask", [None, create_causal_mask(N), mask_rules.Causal()])
def test_separate_projections_are_the_fused_one_to_machine_precision(rng, X, options, mask):
    layer = MultiHeadAttention(D, H, rng=rng, **options)
    fused, apart = layer(X, mask).numpy(), attend_per_head(layer, X, mask)
    np.testing.assert_allclose(apart, fused, rtol=0, atol=8 * np.finfo(float).eps)


def test_a_layers_own_steps_have_the_layout_of_the_table(rng, X):
    layer = MultiHeadAttention(D, H, rng=rng)
    layer(X)
    rows = {row.step.split(":")[0]: row for row in explain_layout(X, H)}
    for name, step in {"Q": "swapped", "O": "attended", "C": "merged"}.items():
        own, row = layer.cache[name], rows[step]
        assert (own.shape, own.strides) == (row.shape, tuple(8 * s for s in row.strides))
