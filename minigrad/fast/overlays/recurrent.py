"""The LSTM with its gates kept for backward, one example a column, and no step that allocates.

Inputs and states are stored as (x_t, h_{t-1}, 1) in (T, d + H + 1, B), the weights side by side: a
step is one product.
"""

from __future__ import annotations

import numpy as np

from ...engine.op import Array
from ...ops.recurrent import check_steps, lstm
from ..overlay import faster, of_one_dtype


def logistic_in_place(x: Array) -> None:
    """x ← 1 / (1 + e^-x); what overflows on the way gives 0, which is right."""
    np.negative(x, x)
    np.exp(x, x)
    x += 1
    np.divide(1, x, x)


def suits(X, W_ih, W_hh, b, h, c, mask):
    return of_one_dtype(X, W_ih, W_hh, b, h, c)


@faster(lstm, suits, auxiliary=("gates", "shown", "states", "cells"))
def fast_lstm(X, W_ih, W_hh, b, h, c, mask=None):
    check_steps(X, W_ih, W_hh, 4, mask, h, c)
    (T, B, d), H = X.shape, W_hh.shape[1]
    W = np.column_stack([W_ih, W_hh, np.zeros(4 * H, X.dtype) if b is None else b])
    states = np.empty((T + 2, d + H + 1, B), X.dtype)
    states[:T, :d] = X.swapaxes(1, 2)
    states[:, -1] = 1
    hidden = states[:, d:-1]
    hidden[0] = h.T
    cells = np.empty((T + 1, H, B), X.dtype)
    cells[0] = c.T
    gates = np.empty((T, 4 * H, B), X.dtype)
    shown = np.empty((T, H, B), X.dtype)
    from_n = np.empty((H, B), X.dtype)
    with np.errstate(over="ignore"):
        for t in range(T):
            z, h_new = gates[t], hidden[t + 1]
            c, c_new = cells[t], cells[t + 1]
            np.dot(W, states[t], z)
            i, f, n, o = z.reshape(4, H, B)
            logistic_in_place(z[: 2 * H])
            np.tanh(n, n)
            logistic_in_place(o)
            np.multiply(f, c, c_new)
            c_new += np.multiply(i, n, from_n)
            np.multiply(o, np.tanh(c_new, shown[t]), h_new)
            if mask is not None:
                np.copyto(h_new, hidden[t], where=~mask[t])
                np.copyto(c_new, c, where=~mask[t])
    hidden[T + 1] = cells[T]  # behind the last h
    return hidden[1:].swapaxes(1, 2), gates, shown, states, cells


@fast_lstm.vjp("X", "W_ih", "W_hh", "b", "h", "c")
def _(g, X_shape, W_ih, W_hh, b, mask, gates, shown, states, cells, needed):
    (T, H, B), d = shown.shape, X_shape[2]
    gates = gates.reshape(T, 4, H, B)
    d_z, to_c = slopes(gates, shown, cells)
    d_gates = d_z.reshape(T, 4 * H, B)
    g = g.swapaxes(1, 2).astype(gates.dtype, order="C", copy=False)
    d_h, d_c = np.zeros_like(g[T]), g[T].copy()
    from_h = np.empty_like(d_h)
    back = W_hh.T.copy()
    for t in reversed(range(T)):
        d_h += g[t]
        if mask is not None:
            past_h, past_c = d_h * ~mask[t], d_c * ~mask[t]
            d_h *= mask[t]
            d_c *= mask[t]
        d_c += np.multiply(d_h, to_c[t], from_h)
        d_z[t, :3] *= d_c
        d_z[t, 3] *= d_h
        np.dot(back, d_gates[t], d_h)
        d_c *= gates[t, 1]
        if mask is not None:
            d_h += past_h
            d_c += past_c
    d_z = beside(d_gates)
    d_X = np.dot(d_z.T, W_ih).reshape(X_shape) if needed[0] else None
    d_W = np.dot(d_z, beside(states[:T]).T)
    return d_X, d_W[:, :d], d_W[:, d:-1], None if b is None else d_W[:, -1], d_h.T, d_c.T


def slopes(gates: Array, shown: Array, cells: Array) -> tuple[Array, Array]:
    """∂c/∂z of i, f and n beside ∂h/∂z of o, (T, 4, H, B); and ∂h/∂c."""
    i, f, n, o = gates.swapaxes(0, 1)
    found = np.empty(gates.shape, gates.dtype)
    for k, (gate, other) in enumerate([(i, n), (f, cells[:-1]), (n, i), (o, shown)]):
        slope = found[:, k]
        np.multiply(gate, gate, slope)
        np.subtract(1 if k == 2 else gate, slope, slope)  # of tanh, of σ
        slope *= other
    to_c = shown * o
    to_c *= shown
    return found, np.subtract(o, to_c, to_c)  # o (1 - tanh² c)


def beside(steps: Array) -> Array:
    """(T, n, B) as (n, T B)."""
    return steps.swapaxes(0, 1).reshape(steps.shape[1], -1)
