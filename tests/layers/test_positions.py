"""Positions: closed forms, what depends on the distance alone, and figures of the papers."""

from math import sqrt

import numpy as np

import layers as L
import minigrad as mg
from layers import MultiHeadAttention, Rotary
from minigrad.errors import ArgumentError, OutOfRangeError
from tests.compare import assert_same, refusals

D, H, N = 12, 3, 7


def scores(layer, X, **keywords):
    with mg.trace() as t:
        layer(X, **keywords)
    return t["S_masked" if layer.position.bias.__func__ is not L.Position.bias else "S"].value


def test_sinusoidal_entries_are_sines_and_cosines_and_a_shift_is_a_rotation():
    PE = L.sinusoidal_encoding(9, 6)
    assert_same(PE[:, 2], np.sin(np.arange(9) / 10000 ** (2 / 6)))
    assert_same(PE[:, 3], np.cos(np.arange(9) / 10000 ** (2 / 6)))
    assert_same(L.sinusoidal_encoding(np.array([[4, 2]]), 6)[0], PE[[4, 2]])
    assert_same((PE[5] * PE[2]).sum(), (PE[7] * PE[4]).sum())
    X = np.ones((2, 9, 6))
    assert_same(L.SinusoidalPosition(6)(X).numpy(), X + PE)


def test_learned_rows_are_added_by_position_and_padding_takes_the_first():
    layer, X = L.LearnedPosition(9, D, rng=0), np.zeros((2, N, D))
    P = layer.P.numpy()
    assert_same(layer(X).numpy()[1], P[:N])
    at = np.arange(N) - np.array([[0], [2]])
    assert_same(layer(X, at).numpy()[1], P[np.maximum(np.arange(N) - 2, 0)])


def test_a_rotary_turn_is_a_product_of_complex_numbers(rng):
    q, rotary = rng.normal(size=(1, 8)), Rotary(8, base=100.0)
    assert_same(rotary.theta, np.array([1.0, 100**-0.25, 0.1, 100**-0.75]))
    z = (q[0, :4] + 1j * q[0, 4:]) * np.exp(5j * rotary.theta)
    turned = rotary.turn(mg.tensor(q), np.array([5])).numpy()
    assert_same(turned[0], np.concatenate((z.real, z.imag)))


def test_a_layer_with_positions_moved_by_the_same_is_the_same(rng):
    X = rng.normal(size=(2, N, D))
    for position in (Rotary(4), L.ALiBi(H), L.T5Bias(H, 8, 16), L.RelativePosition(4, 3, rng=0),
                     L.TransformerXLPosition(D, H, 4, rng=0)):  # fmt: skip
        layer = MultiHeadAttention(D, H, rng=0, position=position)
        for p in layer.parameters():
            p.assign_(rng.normal(size=p.shape))
        moved = layer(X, positions=np.arange(50, 50 + N)).numpy()
        assert_same(moved, layer(X).numpy(), 1e-11)
        by_row = layer(X, positions=np.arange(N) + np.array([[0], [9]])).numpy()
        assert_same(by_row, moved, 1e-11)


def test_biases_are_the_papers_formulas(rng):
    X = rng.normal(size=(1, N, D))
    i, j = np.indices((N, N))
    alibi = MultiHeadAttention(D, H, rng=0, position=L.ALiBi(H))
    plain = MultiHeadAttention(D, H, rng=0)
    with mg.trace() as t:
        plain(X)
    S, Q, K = (t[symbol].value for symbol in "SQK")
    slopes = np.array([2**-4, 2**-8, 2**-2])[:, None, None]
    assert_same(scores(alibi, X)[0], S[0] - slopes * abs(i - j))
    t5 = MultiHeadAttention(D, H, rng=0, position=L.T5Bias(H))
    t5.position.table.assign_(rng.normal(size=(32, H)))
    table = t5.position.table.numpy()[L.t5_bucket(j - i)]
    assert_same(scores(t5, X)[0], S[0] + table.transpose(2, 0, 1))
    shaw = MultiHeadAttention(D, H, rng=0, position=L.RelativePosition(4, 2, rng=0))
    a = shaw.position.a_K.numpy()[np.clip(j - i, -2, 2) + 2]  # (n, n, d)
    assert_same(scores(shaw, X)[0], S[0] + np.einsum("hid,ijd->hij", Q[0], a) / 2)
    xl = MultiHeadAttention(D, H, rng=0, position=L.TransformerXLPosition(D, H, 4, rng=0))
    u, v = (rng.normal(size=(H, 1, 4)) for _ in "uv")
    xl.position.u.assign_(u)
    xl.position.v.assign_(v)
    R = (L.sinusoidal_encoding(i - j, D) @ xl.position.W_R.numpy()).reshape(N, N, H, 4)
    extra = np.einsum("hid,ijhd->hij", Q[0] + v, R) + u @ K[0].swapaxes(1, 2)
    assert_same(scores(xl, X)[0], S[0] + extra / sqrt(4), 1e-11)


def test_buckets_and_slopes_are_those_of_the_papers_code():
    assert L.t5_bucket([3, 0, -3, -500], bidirectional=False).tolist() == [0, 0, 3, 31]
    assert_same(L.alibi_slopes(8), 0.5 ** np.arange(1, 9))
    assert_same(L.alibi_slopes(12)[8:], 0.5 ** np.array([0.5, 1.5, 2.5, 3.5]))


test_what_does_not_fit_is_refused = refusals(
    (lambda: L.sinusoidal_encoding(3, 5), ArgumentError, "must be even, for pairs, got 5"),
    (lambda: Rotary(3), ArgumentError, "must be even"),
    (lambda: L.LearnedPosition(3, 4)(np.ones((1, 5, 4))), OutOfRangeError, r"\[0, 3\), got 0 to 4"),
)
