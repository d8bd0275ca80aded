"""The LSTM with its gates kept for backward, one example a column, and no step that allocates.

Inputs and states are stored as (x_t, h_{t-1}, 1) in (T, d + H + 1, B), the weights side by side: a
step is one product, forward and backward. Gates are stored as o, i, f, n in (T, 4 H, B): the three
with σ are one block of memory, and so are the three that pass on the cell's gradient.
"""

from __future__ import annotations

import numpy as np

from ...engine.op import Array, DType
from ...ops.recurrent import check_steps, lstm
from ..limits import LIMITS
from ..overlay import faster


def logistic_in_place(x: Array) -> None:
    """x ← 1 / (1 + e^-x); what overflows on the way gives 0, which is right."""
    np.negative(x, x)
    np.exp(x, x)
    x += 1
    np.divide(1, x, x)


def _beside(W_ih: Array, W_hh: Array, b: Array, dtype: DType) -> Array:
    """(W_ih, W_hh, b) with its rows as o, i, f, n."""
    (rows, d), H = W_ih.shape, W_hh.shape[1]
    W = np.zeros((rows, d + H + 1), dtype)
    for k, j in ((0, 3), (1, 0), (2, 1), (3, 2)):
        here, there = slice(k * H, k * H + H), slice(j * H, j * H + H)
        W[here, :d], W[here, d : d + H] = W_ih[there], W_hh[there]
        W[here, -1] = 0 if b is None else b[there]
    return W


@faster(lstm, above=LIMITS.small_entries, auxiliary=("W", "gates", "shown", "states", "cells"))
def fast_lstm(X, W_ih, W_hh, b, h, c, mask=None):
    check_steps(X, W_ih, W_hh, 4, mask, h, c)
    (T, B, d), H = X.shape, W_hh.shape[1]
    dtype = np.result_type(*[x for x in (X, W_ih, W_hh, b, h, c) if x is not None])
    W, states = _beside(W_ih, W_hh, b, dtype), np.empty((T + 2, d + H + 1, B), dtype)
    states[:T, :d], states[:, -1] = np.swapaxes(X, 1, 2), 1
    cells, shown = np.empty((T + 1, H, B), dtype), np.empty((T, H, B), dtype)
    gates, c_n = np.empty((T, 4 * H, B), dtype), np.empty((H, B), dtype)
    states[0, d:-1], cells[0] = h.T, c.T
    with np.errstate(over="ignore"):
        for t in range(T):
            z, h = np.dot(W, states[t], gates[t]), states[t + 1, d:-1]
            c, c_new = cells[t], cells[t + 1]
            o, i, f, n = z.reshape(4, H, B)
            logistic_in_place(z[: 3 * H])
            np.tanh(n, n)
            np.multiply(f, c, c_new)
            c_new += np.multiply(i, n, c_n)
            np.multiply(o, np.tanh(c_new, shown[t]), h)
            if mask is not None:
                np.copyto(h, states[t, d:-1], where=~mask[t])
                np.copyto(c_new, c, where=~mask[t])
    states[T + 1, d:-1] = cells[T]  # behind the last h
    return np.swapaxes(states[1:, d:-1], 1, 2), W, gates, shown, states, cells


@fast_lstm.vjp("X", "W_ih", "W_hh", "b", "h", "c")
def _(g, X_shape, b, mask, W, gates, shown, states, cells, needed):
    (T, H, B), d = shown.shape, X_shape[2]
    dtype, first = gates.dtype, 0 if needed[0] else d  # without the gradient of X, less to go back
    slopes = _slopes(gates.reshape(T, 4, H, B), shown, cells)
    d_z = slopes.reshape(T, 4 * H, B)
    f = gates[:, 2 * H : 3 * H]
    o = gates[:, :H]
    to_c = shown * o
    to_c *= shown
    np.subtract(o, to_c, to_c)  # o (1 - tanh² c)
    g = g.swapaxes(1, 2).astype(dtype, order="C", copy=False)
    d_c = g[T].copy()
    from_h = np.empty((H, B), dtype)
    back = W[:, first:-1].T.copy()
    d_states = np.empty((T + 1, len(back), B), dtype)
    d_states[T] = 0
    for t in reversed(range(T)):
        d_h = d_states[t + 1, d - first :]
        d_h += g[t]
        if mask is not None:
            past_h, past_c = d_h * ~mask[t], d_c * ~mask[t]
            d_h *= mask[t]
            d_c *= mask[t]
        d_c += np.multiply(d_h, to_c[t], from_h)
        slopes[t, 0] *= d_h
        slopes[t, 1:] *= d_c
        np.dot(back, d_z[t], d_states[t])
        d_c *= f[t]
        if mask is not None:
            d_states[t, d - first :] += past_h
            d_c += past_c
    d_W = _product_over_steps(d_z, states[:T])
    d_W = np.concatenate([d_W[H:], d_W[:H]])  # i, f, n, o again
    d_X = np.swapaxes(d_states[:T, :d], 1, 2) if needed[0] else None
    d_b, d_h = None if b is None else d_W[:, -1], d_states[0, d - first :].T
    return d_X, d_W[:, :d], d_W[:, d:-1], d_b, d_h, d_c.T


def _slopes(gates: Array, shown: Array, cells: Array) -> Array:
    """∂h/∂z of o, ∂c/∂z of i, f and n."""
    slopes = np.empty(gates.shape, gates.dtype)
    np.subtract(1, gates[:, :3], slopes[:, :3])
    slopes[:, :3] *= gates[:, :3]
    np.multiply(gates[:, 3], gates[:, 3], slopes[:, 3])
    np.subtract(1, slopes[:, 3], slopes[:, 3])
    for k, other in enumerate([shown, gates[:, 3], cells[:-1], gates[:, 1]]):
        slopes[:, k] *= other
    return slopes


def _product_over_steps(a: Array, b: Array) -> Array:
    """Σ_t a_t b_tᵀ of (T, n, B) and (T, m, B), as one product."""
    rows = [np.swapaxes(x, 0, 1).reshape(x.shape[1], -1) for x in (a, b)]
    return np.dot(rows[0], rows[1].T)
