"""Positions: closed forms, what they are made to hold, naive loops, PyTorch's T5 buckets."""

import pickle

import numpy as np
import pytest

import layers as L
from tests.compare import assert_same

B, N, H, D_K = 2, 7, 3, 4
D = H * D_K


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


# ---------------------------------------------------------------- sinusoids and learned rows


def test_the_encoding_is_sines_and_cosines_of_ever_slower_angles():
    PE = L.sinusoidal_encoding(11, 6)
    for p in range(11):
        for k in range(3):
            angle = p / 10000 ** (2 * k / 6)
            np.testing.assert_allclose(PE[p, 2 * k : 2 * k + 2], [np.sin(angle), np.cos(angle)])


def test_sines_before_cosines_are_the_same_numbers_in_another_order():
    apart = L.sinusoidal_encoding(7, 6, interleaved=False)
    assert_same(apart, L.sinusoidal_encoding(7, 6)[:, [0, 2, 4, 1, 3, 5]], 0)


def test_an_offset_continues_where_the_positions_before_ended(rng, X):
    for layer in (L.SinusoidalPosition(D), L.LearnedPosition(13, D, rng=rng), L.Rotary(D)):
        for given in ({"offset": 3}, {"positions": np.arange(3, N)}):
            assert_same(layer(X[:, 3:], **given), layer(X)[:, 3:], 0)


# ---------------------------------------------------------------- rotary


def test_longrope_divides_each_pairs_frequency_by_its_own_number(rng):
    short, long, x = rng.uniform(1, 2, 3), rng.uniform(3, 9, 3), rng.normal(size=(20, 6))
    scaling = {
        "type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist(),
        "original_max_position_embeddings": 10, "max_position_embeddings": 40,
    }  # fmt: skip
    rotary = pickle.loads(pickle.dumps(L.Rotary(6, scaling=scaling)))
    amplitude = np.sqrt(1 + np.log(4) / np.log(10))
    for n, by in ((10, short), (20, long)):
        plain = L.Rotary(6, frequencies=L.rotary_frequencies(6) / by)
        assert_same(rotary(x[:n]), amplitude * plain(x[:n]).numpy(), 1e-12)


# ---------------------------------------------------------------- ALiBi and T5, by their numbers


def test_slopes_of_twelve_heads_are_those_of_eight_and_every_other_of_sixteen():
    assert_same(L.alibi_slopes(12), [*0.5 ** np.arange(1, 9), *0.5 ** np.arange(0.5, 4.5, 1)], 1e-7)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 11), (64, 1000), (32, 64)])
def test_buckets_are_t5s(bidirectional, n_buckets, max_distance):
    """T5's function as published, in PyTorch, over every distance that matters."""
    torch = pytest.importorskip("torch")
    distance, buckets, expected = torch.arange(-1500, 1501), n_buckets, 0
    if bidirectional:
        buckets //= 2
        expected, far = (distance > 0).long() * buckets, distance.abs()
    else:
        far = -torch.min(distance, torch.zeros_like(distance))
    exact = buckets // 2
    ratio = torch.log(far.float() / exact) / np.log(max_distance / exact)
    large = exact + (ratio * (buckets - exact)).clamp(min=0).long()
    expected = expected + torch.where(far < exact, far, large.clamp(max=buckets - 1))
    found = L.t5_bucket(distance.numpy(), n_buckets, max_distance, bidirectional)
    np.testing.assert_array_equal(found, expected.numpy())
