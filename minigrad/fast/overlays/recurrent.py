"""The LSTM with its gates kept for backward, one example a column, and no step that allocates.

Inputs and states are stored as (x_t, h_{t-1}, 1) in (T, d + H + 1, B), the weights side by side: a
step is one product.
"""

from __future__ import annotations

import numpy as np

from ...engine.op import Array
from ...ops.recurrent import check_steps, lstm
from ..overlay import faster, of_one_dtype


def suits(X, W_ih, W_hh, b, h, c, mask):
    return of_one_dtype(X, W_ih, W_hh, b, h, c)


def declare_lstm(declare, step, steps_back):
    """Declare an overlay, by `faster` or the like, of which two functions make the steps.

    Args:
        step: step(z, c, c_new, shown, h_new) makes of z the gates i, f, n and o, in place;
            c_new = f c + i n, shown = tanh c_new and h_new = o shown.
        steps_back: from the gates, `shown`, the cells and a d_z to fill, of all steps, a function
            of t, d_h and d_c that makes the d_z of step t, and of d_c that of the cells before it.
    """

    @declare(lstm, suits, ("gates", "shown", "states", "cells"))
    def fast_lstm(X, W_ih, W_hh, b, h, c, mask=None):
        check_steps(X, W_ih, W_hh, 4, mask, h, c)
        T, B, d = X.shape
        H = W_hh.shape[1]
        W = np.column_stack([W_ih, W_hh, np.zeros(4 * H, X.dtype) if b is None else b])
        states = np.empty((T + 2, d + H + 1, B), X.dtype)
        states[:T, :d] = X.swapaxes(1, 2)
        states[:, -1] = 1
        hidden = states[:, d:-1]
        hidden[0] = h.T
        cells = np.empty((T + 1, H, B), X.dtype)
        cells[0] = c.T
        gates = np.empty((T, 4, H, B), X.dtype)
        shown = np.empty((T, H, B), X.dtype)
        for t in range(T):
            np.dot(W, states[t], gates[t].reshape(4 * H, B))
            step(gates[t], cells[t], cells[t + 1], shown[t], hidden[t + 1])
            if mask is not None:
                np.copyto(hidden[t + 1], hidden[t], where=~mask[t])
                np.copyto(cells[t + 1], cells[t], where=~mask[t])
        hidden[T + 1] = cells[T]  # behind the last h
        return hidden[1:].swapaxes(1, 2), gates, shown, states, cells

    @fast_lstm.vjp("X", "W_ih", "W_hh", "b", "h", "c")
    def _(g, X_shape, W_ih, W_hh, b, mask, gates, shown, states, cells, needed):
        T, H, B = shown.shape
        d = X_shape[2]
        d_z = np.empty(gates.shape, gates.dtype)
        d_gates = d_z.reshape(T, 4 * H, B)
        step_back = steps_back(gates, shown, cells, d_z)
        g = g.swapaxes(1, 2).astype(gates.dtype, order="C", copy=False)
        d_h = np.zeros_like(g[T])
        d_c = g[T].copy()
        back = W_hh.T.copy()
        for t in reversed(range(T)):
            d_h += g[t]
            if mask is not None:
                past_h = d_h * ~mask[t]
                past_c = d_c * ~mask[t]
                d_h *= mask[t]
                d_c *= mask[t]
            step_back(t, d_h, d_c)
            np.dot(back, d_gates[t], d_h)
            if mask is not None:
                d_h += past_h
                d_c += past_c
        d_z = beside(d_gates)
        d_X = np.dot(d_z.T, W_ih).reshape(X_shape) if needed[0] else None
        d_W = np.dot(d_z, beside(states[:T]).T)
        return d_X, d_W[:, :d], d_W[:, d:-1], None if b is None else d_W[:, -1], d_h.T, d_c.T


def beside(steps: Array) -> Array:
    """(T, n, B) as (n, T B)."""
    T, n, B = steps.shape
    return steps.swapaxes(0, 1).reshape(n, T * B)


# ---------------------------------------------------------------- the steps, by NumPy


def step(z, c, c_new, shown, h_new):
    """z ← i, f, n, o;    c_new = f c + i n;    shown = tanh c_new;    h_new = o shown"""
    i, f, n, o = z
    with np.errstate(over="ignore"):
        logistic_in_place(z[:2])
        np.tanh(n, n)
        logistic_in_place(o)
    np.multiply(f, c, c_new)
    np.multiply(i, n, shown)
    c_new += shown
    np.multiply(o, np.tanh(c_new, shown), h_new)


def logistic_in_place(x: Array) -> None:
    """x ← 1 / (1 + e^-x); what overflows on the way gives 0, which is right."""
    np.negative(x, x)
    np.exp(x, x)
    x += 1
    np.divide(1, x, x)


def steps_back(gates, shown, cells, d_z):
    """The slopes of all steps at once: ∂c/∂z of i, f and n beside ∂h/∂z of o; and ∂h/∂c."""
    i, f, n, o = gates.swapaxes(0, 1)
    for k, (gate, other) in enumerate([(i, n), (f, cells[:-1]), (n, i), (o, shown)]):
        slope = d_z[:, k]
        np.multiply(gate, gate, slope)
        np.subtract(1 if k == 2 else gate, slope, slope)  # of tanh, of σ
        slope *= other
    to_c = shown * o
    to_c *= shown
    np.subtract(o, to_c, to_c)  # o (1 - tanh² c)

    def step_back(t, d_h, d_c):
        to_c[t] *= d_h
        d_c += to_c[t]
        d_z[t, :3] *= d_c
        d_z[t, 3] *= d_h
        d_c *= f[t]

    return step_back


declare_lstm(faster, step, steps_back)
