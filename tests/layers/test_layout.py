"""Separate heads are the fused ones, and splitting them is free where merging is not."""

import numpy as np
import pytest

from layers import (
    MultiHeadAttention,
    attend_per_head,
    create_causal_mask,
    explain_layout,
)

B, N, D, H = 2, 7, 12, 3


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 1}, {"d_k": 5, "d_v": 2}], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_separate_projections_are_the_fused_one_to_machine_precision(rng, X, options, causal):
    layer = MultiHeadAttention(D, H, rng=rng, **options)
    mask = create_causal_mask(N) if causal else None
    fused, apart = layer(X, mask).numpy(), attend_per_head(layer, X, mask)
    np.testing.assert_allclose(apart, fused, rtol=0, atol=8 * np.finfo(float).eps)


def test_strides_after_the_split_are_those_of_the_text(X):
    """(L·d_model, d_k, d_model, 1) in place of the contiguous (h·L·d_k, L·d_k, d_k, 1)."""
    rows = {row.step.split(":")[0]: row for row in explain_layout(X, H)}
    d_k = D // H
    assert rows["swapped"].strides == (N * D, d_k, D, 1)
    assert rows["made contiguous"].strides == (H * N * d_k, N * d_k, d_k, 1)
    assert rows["reshaped"].strides == (N * D, D, d_k, 1)


def test_the_split_copies_nothing_and_the_merge_of_a_new_array_must(X):
    found = {row.step.split(":")[0]: (row.contiguous, row.copied) for row in explain_layout(X, H)}
    assert found == {
        "projected": (True, False),
        "reshaped": (True, False),
        "swapped": (False, False),
        "made contiguous": (True, True),
        "attended": (True, True),
        "swapped back": (False, False),
        "merged": (True, True),
    }


def test_a_layers_own_steps_have_the_layout_of_the_table(rng, X, hear):
    _, heard = hear(MultiHeadAttention(D, H, rng=rng), X)
    own = {output.name: output.numpy() for output in heard.outputs}
    rows = {row.step.split(":")[0]: row for row in explain_layout(X, H)}
    for name, step in {
        "Q_flat": "projected",
        "Q": "swapped",
        "O": "attended",
        "C": "merged",
    }.items():
        strides = tuple(s // 8 for s in own[name].strides)
        assert (own[name].shape, strides) == (rows[step].shape, rows[step].strides)
