"""Sparse patterns: what each query sees, that it is bounded, and that tiles skip the rest."""

import numpy as np
import pytest

from layers import (
    MultiHeadAttention,
    big_bird_mask,
    dilated_mask,
    global_mask,
    sliding_window_mask,
)

N = 97

MASKS = {
    "sliding window": lambda n: sliding_window_mask(n, 5),
    "causal window": lambda n: sliding_window_mask(n, 5, is_causal=True),
    "dilated": lambda n: dilated_mask(n, 3, 4),
    "causal, dilated": lambda n: dilated_mask(n, 3, 4, is_causal=True),
    "global and window": lambda n: global_mask(n, 5, [0, -1]),
    "causal, global and window": lambda n: global_mask(n, 5, [0, 7], is_causal=True),
    "random blocks": lambda n: big_bird_mask(n, 4, 1, 2, rng=0),
}


def test_a_window_is_a_band_around_the_diagonal():
    mask = sliding_window_mask(N, 5)
    i, j = np.indices(mask.shape)
    np.testing.assert_array_equal(mask, abs(i - j) < 5)
    np.testing.assert_array_equal(sliding_window_mask(N, 5, is_causal=True), mask & (j <= i))


def test_a_dilated_window_reaches_as_much_farther_as_it_leaves_out():
    mask = dilated_mask(N, 3, 4)
    i, j = np.indices(mask.shape)
    np.testing.assert_array_equal(mask, np.isin(i - j, [-8, -4, 0, 4, 8]))
    assert dilated_mask(N, 3, 1)[50].sum() == mask[50].sum() == 5


def test_global_tokens_see_all_and_are_seen_by_all():
    mask = global_mask(N, 5, [0, 7])
    assert mask[[0, 7]].all()
    assert mask[:, [0, 7]].all()
    others = np.delete(np.arange(N), [0, 7])
    inner = np.ix_(others, others)
    np.testing.assert_array_equal(mask[inner], sliding_window_mask(N, 5)[inner])


def test_every_block_sees_its_neighbours_the_first_and_so_many_at_random():
    blocks = big_bird_mask(20, 1, n_global=1, n_random=3, rng=0)
    assert blocks[0].all()
    assert blocks[:, 0].all()
    np.testing.assert_array_equal(blocks[5:15].sum(axis=1), 3 + 1 + 3)
    whole = big_bird_mask(80, 4, n_global=1, n_random=3, rng=0)
    np.testing.assert_array_equal(whole, np.kron(blocks, np.ones((4, 4), bool)))
    assert not np.array_equal(blocks, big_bird_mask(20, 1, 1, 3, rng=1))


@pytest.mark.parametrize("name", MASKS)
def test_every_query_sees_itself_and_causal_ones_nothing_later(name):
    mask = MASKS[name](N)
    assert mask.shape == (N, N)
    assert mask.dtype == bool
    assert mask.diagonal().all()
    if name.startswith("causal"):
        assert not np.triu(mask, 1).any()


@pytest.mark.needs_fast("attention in tiles")
@pytest.mark.parametrize("name", MASKS)
def test_in_tiles_every_pattern_gives_what_the_exact_form_gives(rng, name):
    X, mask = rng.normal(size=(2, N, 12)), MASKS[name](N)
    exact = MultiHeadAttention(12, 3, rng=0)
    tiled = MultiHeadAttention(12, 3, rng=0, method="tiled")
    np.testing.assert_allclose(tiled(X, mask).numpy(), exact(X, mask).numpy(), atol=1e-13)
    np.testing.assert_array_equal(exact.attention_weights > 0, np.broadcast_to(mask, (2, 3, N, N)))
    g = rng.normal(size=X.shape)
    np.testing.assert_allclose(tiled.backward(g), exact.backward(g), atol=1e-12)
