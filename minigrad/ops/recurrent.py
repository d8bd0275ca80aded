r"""Recurrent sequences as one op each, with backpropagation through time for a rule.

An op multiplies the inputs of all T steps with W_ih at once, Z = X W_ihᵀ + b. Then it computes one
step after the other, h_t from Z_t + h_{t-1} W_hhᵀ, and returns the states of all steps. Where a
mask is false, a state is carried over and no gradient reaches that step's input, so that sequences
of several lengths can be in one batch. A rule computes the gates of all steps at once, because all
states are known; then it walks back through the steps, with a product and a few multiplications
for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.errors import DTypeError, ShapeError
from ..engine.op import op
from .activations import sigmoid
from .dtypes import widen_half
from .notation import Formula
from .products import as_rows, linear
from .samples import Samples, of_shapes
from .select import split

__all__ = ["gru", "lstm"]


def check_steps(X, W_ih, W_hh, gates, mask, *states):
    """Check X (T, B, d), W_ih (gates · H, d), W_hh (gates · H, H), states (B, H), mask (T, B).

    Raises: ShapeError for another shape or T = 0; DTypeError unless the mask is boolean.
    """
    if np.ndim(X) != 3 or len(X) == 0 or np.ndim(W_hh) != 2:
        raise ShapeError(
            "X must be (T, B, d) of at least one step and W_hh of two axes, got "
            f"{np.shape(X)} and {np.shape(W_hh)}"
        )
    T, B, d = X.shape
    H = W_hh.shape[1]
    wanted = [("W_ih", W_ih, (gates * H, d)), ("W_hh", W_hh, (gates * H, H))]
    wanted += [("a first state", state, (B, H)) for state in states]
    wanted += [] if mask is None else [("mask", mask, (T, B))]
    for name, x, shape in wanted:
        if np.shape(x) != shape:
            raise ShapeError(f"{name} must be {shape}, got {np.shape(x)}")
    if mask is not None and getattr(mask, "dtype", None) != np.bool_:
        raise DTypeError("mask must be an array of booleans")


def from_input(X, W, b):
    """The inputs' part of the gates, for all steps at once: X Wᵀ + b."""
    return linear(X, W.T, b)


def through_weights(d_Z, X):
    """The gradients of W and b from that of Z = X Wᵀ + b."""
    rows = as_rows(d_Z)
    return np.matmul(rows.T, as_rows(X)), widen_half(rows).sum(axis=0)


def states_before(states, first):
    """The state before each step: the first one, and all but the last."""
    return np.concatenate([np.expand_dims(first, 0), states[:-1]])


def where_valid(mask, t, new, old):
    """The new state where the mask is True at step t, and the old one elsewhere."""
    return new if mask is None else np.where(mask[t][:, None], new, old)


def back_through(step, T, *gradients):
    """Walk back through T steps: the gradient of Z, and those of the first states.

    `step(t, *gradients)`, of the states after step t, gives the gradient of Z_t and those of the
    states before it.
    """
    parts: list[Any] = [None] * T
    for t in reversed(range(T)):
        parts[t], *gradients = step(t, *gradients)
    return np.stack(parts), gradients


MASK = np.arange(3)[:, None] < [3, 1]


def _samples(gates: int, states: int, biases: int = 1) -> Samples:
    def inputs(T: int, B: int, H: int, mask: Any = None) -> tuple[Any, ...]:
        after = [[gates * H]] * biases + [[B, H]] * states
        return ([T, B, 3], [gates * H, 3], [gates * H, H], *after, mask)

    return of_shapes(inputs(3, 2, 2), inputs(3, 2, 1, MASK), inputs(1, 1, 2), inputs(2, 0, 2))


def _cost(per_entry: int) -> Callable[..., int]:
    """Products with W_ih and W_hh at each step, and so many operations an entry of the states."""

    def cost(X, W_ih, W_hh):
        T, B, _ = X.shape
        return T * B * (2 * W_ih.size + 2 * W_hh.size + per_entry * W_hh.shape[1])

    return cost


def _over_time(formula: str, **terms: str) -> Formula:
    """A formula and definitions of its terms at step t: `new | old` for the new one where the mask
    is True at this step, and the old one elsewhere.
    """

    def tex(mask: Any) -> str:
        text = formula
        for name, term in terms.items():
            new, _, old = term.partition(" | ")
            chosen = rf"(<mask>_t ? {new} : {old})" if old and mask is not None else new
            text += rf", \quad {name} = {chosen}"
        return text

    return tex


def _rules(terms: dict[str, str], a: str, p: str, **others: str) -> dict[str, Formula]:
    """The formulas of a rule, of which a and p are the gradients of X W_ihᵀ + b and h W_hhᵀ."""
    every = {
        "X": f"{a} <W_ih>",
        "W_ih": rf"\textstyle\sum_t {a}^\top <X>_t",
        "W_hh": rf"\textstyle\sum_t {p}^\top h_{{t-1}}",
    }
    return {name: _over_time(formula, **terms) for name, formula in (every | others).items()}


# ---------------------------------------------------------------- gru


_GRU = {
    "h_t": r"(1 - z_t) \odot n_t + z_t \odot h_{t-1} | h_{t-1}",
    "n_t": r"\tanh(a^n_t + r_t \odot p^n_t)",
    "r_t": r"\sigma(a^r_t + p^r_t)",
    "z_t": r"\sigma(a^z_t + p^z_t)",
    "(a^r_t, a^z_t, a^n_t)": r"<X>_t <W_ih>^\top + <b_ih>",
    "(p^r_t, p^z_t, p^n_t)": r"h_{t-1} <W_hh>^\top + <b_hh>",
    "h_0": "<h>",
}
_GRU_BACK = {
    r"\bar a_t": r"(\bar r_t, \bar z_t, \bar n_t)",
    r"\bar p_t": r"(\bar r_t, \bar z_t, \bar n_t \odot r_t)",
    r"\bar n_t": r"\bar h_t \odot (1 - z_t) \odot (1 - n_t^{\circ 2}) | 0",
    r"\bar z_t": r"\bar h_t \odot (h_{t-1} - n_t) \odot z_t \odot (1 - z_t) | 0",
    r"\bar r_t": r"\bar n_t \odot p^n_t \odot r_t \odot (1 - r_t)",
    r"\bar h_{t-1}": r"<g>_{t-1} + \bar h_t \odot z_t + \bar p_t <W_hh> | <g>_{t-1} + \bar h_t",
    r"\bar h_T": "<g>_T",
} | _GRU


@op(
    tex=_over_time("h_t", **_GRU),
    vjp_tex=_rules(
        _GRU_BACK,
        r"\bar a_t",
        r"\bar p_t",
        b_ih=r"\textstyle\sum_t \bar a_t",
        b_hh=r"\textstyle\sum_t \bar p_t",
        h=r"\bar h_0",
    ),
    flops=_cost(22),
    time_axis=0,
    samples=_samples(3, 1, biases=2),
)
def gru(X, W_ih, W_hh, b_ih, b_hh, h, mask=None):
    """Runs a gated recurrent unit over all time steps: h_t = (1 - z_t) n_t + z_t h_{t-1}.

    With a_t = x_t W_ihᵀ + b_ih and p_t = h_{t-1} W_hhᵀ + b_hh: r_t = σ(a_t + p_t),
    z_t = σ(a_t + p_t), n_t = tanh(a_t + r_t p_t), each on its third of both, in this order.

    Args: b_ih, b_hh: (3 H,) or None. h: the state before. mask: False where it is carried over.
    Shapes: X (T, B, d), W_ih (3 H, d), W_hh (3 H, H), h (B, H), mask (T, B) → (T, B, H)
    Raises: ShapeError or DTypeError where these do not fit.
    Source: Cho et al. 2014, arXiv:1406.1078, with r after the product, as libraries have it.

    >>> W, h = np.zeros((3, 1)), np.ones((1, 1))
    >>> gru(np.zeros((2, 1, 1)), W, W, None, None, h).ravel()
    array([0.5 , 0.25])
    """
    check_steps(X, W_ih, W_hh, 3, mask, h)
    states = []
    for t, a in enumerate(from_input(X, W_ih, b_ih)):
        _, z, n, _ = gru_gates(a, from_input(h, W_hh, b_hh))
        h = where_valid(mask, t, n + z * (h - n), h)
        states.append(h)
    return np.stack(states)


def gru_gates(a, p):
    """r, z and n of a = X W_ihᵀ + b_ih and p = h W_hhᵀ + b_hh, and the third of p that is in n."""
    a_r, a_z, a_n = split(a, 3, axis=-1)
    p_r, p_z, p_n = split(p, 3, axis=-1)
    r = sigmoid(a_r + p_r)
    z = sigmoid(a_z + p_z)
    return r, z, np.tanh(a_n + r * p_n), p_n


@gru.vjp("X", "W_ih", "W_hh", "b_ih", "b_hh", "h")
def _(g, out, X, W_ih, W_hh, b_ih, b_hh, h, mask):
    """The gradient goes back from the last time step to the first, through each step's gates."""
    H_before = states_before(out, h)
    r, z, n, p_n = gru_gates(from_input(X, W_ih, b_ih), from_input(H_before, W_hh, b_hh))
    to_n = (1 - z) * (1 - n * n)
    to_r = to_n * p_n * r * (1 - r)
    to_z = (H_before - n) * z * (1 - z)
    to_a = np.stack([to_r, to_z, to_n], axis=2)
    to_p = np.stack([to_r, to_z, to_n * r], axis=2)

    def step(t, d_h):
        d_h = d_h + g[t]
        d_new = where_valid(mask, t, d_h, 0)
        d_p = (np.expand_dims(d_new, 1) * to_p[t]).reshape((len(d_h), len(W_hh)))
        past = d_new * z[t] + np.matmul(d_p, W_hh)
        return d_new, past + where_valid(mask, t, 0, d_h)

    d_new, (d_h,) = back_through(step, len(g), 0)
    whole = (*X.shape[:2], len(W_hh))
    d_a, d_p = ((np.expand_dims(d_new, 2) * to).reshape(whole) for to in (to_a, to_p))
    d_W_hh, d_b_hh = through_weights(d_p, H_before)
    d_W_ih, d_b_ih = through_weights(d_a, X)
    return np.matmul(d_a, W_ih), d_W_ih, d_W_hh, d_b_ih, d_b_hh, d_h


# ---------------------------------------------------------------- lstm


_LSTM = {
    "h_t": r"o_t \odot \tanh c_t | h_{t-1}",
    "c_t": r"f_t \odot c_{t-1} + i_t \odot n_t | c_{t-1}",
    "(i_t, f_t, n_t, o_t)": r"(\sigma, \sigma, \tanh, \sigma)(z_t)",
    "z_t": r"<X>_t <W_ih>^\top + h_{t-1} <W_hh>^\top + <b>",
    "h_0": "<h>",
    "c_0": "<c>",
}
_LSTM_BACK = {
    r"\bar z_t": r"(\tilde c_t \odot n_t \odot i_t \odot (1 - i_t),"
    r" \tilde c_t \odot c_{t-1} \odot f_t \odot (1 - f_t),"
    r" \tilde c_t \odot i_t \odot (1 - n_t^{\circ 2}),"
    r" \bar h_t \odot \tanh c_t \odot o_t \odot (1 - o_t)) | 0",
    r"\tilde c_t": r"\bar c_t + \bar h_t \odot o_t \odot (1 - (\tanh c_t)^{\circ 2})",
    r"\bar h_{t-1}": r"<g>_{t-1} + \bar z_t <W_hh> | <g>_{t-1} + \bar h_t",
    r"\bar c_{t-1}": r"\tilde c_t \odot f_t | \bar c_t",
    r"\bar h_T": "<g>_T",
    r"\bar c_T": "<g>_{T+1}",
} | _LSTM


@op(
    tex=_over_time(r"(h_1, \ldots, h_T, c_T)", **_LSTM),
    vjp_tex=_rules(
        _LSTM_BACK,
        r"\bar z_t",
        r"\bar z_t",
        b=r"\textstyle\sum_t \bar z_t",
        h=r"\bar h_0",
        c=r"\bar c_0",
    ),
    flops=_cost(26),
    time_axis=0,
    samples=_samples(4, 2),
)
def lstm(X, W_ih, W_hh, b, h, c, mask=None):
    """Runs a long short-term memory over all steps: h = o tanh c_t, c_t = f c_{t-1} + i n.

    With z_t = x_t W_ihᵀ + h_{t-1} W_hhᵀ + b in quarters: i_t = σ, f_t = σ, n_t = tanh, o_t = σ of
    each, in this order.

    Args: b: (4 H,) or None. h, c: the states before. mask: False where they are carried over.
    Shapes: X (T, B, d), W_ih (4 H, d), W_hh (4 H, H), h and c (B, H), mask (T, B) → (T + 1, B, H):
        h of all steps, and then the last c.
    Raises: ShapeError or DTypeError where these do not fit.
    Source: Hochreiter & Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with the
        forget gate of Gers et al. 2000, https://doi.org/10.1162/089976600300015015.

    >>> W, one = np.zeros((4, 1)), np.ones((1, 1))
    >>> lstm(np.zeros((2, 1, 1)), W, W, None, one, one)[-1]
    array([[0.25]])
    """
    check_steps(X, W_ih, W_hh, 4, mask, h, c)
    states = []
    for t, Z in enumerate(from_input(X, W_ih, b)):
        i, f, n, o = lstm_gates(Z + np.matmul(h, W_hh.T))
        c_new = f * c + i * n
        h = where_valid(mask, t, o * np.tanh(c_new), h)
        c = where_valid(mask, t, c_new, c)
        states.append(h)
    return np.stack([*states, c])


def lstm_gates(z):
    """i, f, n and o of z = X W_ihᵀ + h W_hhᵀ + b."""
    i, f, n, o = split(z, 4, axis=-1)
    return sigmoid(i), sigmoid(f), np.tanh(n), sigmoid(o)


@lstm.vjp("X", "W_ih", "W_hh", "b", "h", "c")
def _(g, out, X, W_ih, W_hh, b, h, c, mask):
    """The gradient goes back from the last time step to the first, by cell state and gates."""
    H_before = states_before(out[:-1], h)
    T = len(X)
    i, f, n, o = lstm_gates(from_input(X, W_ih, b) + np.matmul(H_before, W_hh.T))
    C = [c]
    C_new = []
    for t in range(T):
        C_new.append(f[t] * C[t] + i[t] * n[t])
        C.append(where_valid(mask, t, C_new[t], C[t]))
    C_before = np.stack(C[:T])
    tanh_c = np.tanh(np.stack(C_new))
    to_i = n * i * (1 - i)
    to_f = C_before * f * (1 - f)
    to_n = i * (1 - n * n)  # from c
    to_o = tanh_c * o * (1 - o)  # from h
    to_c = o * (1 - tanh_c * tanh_c)

    def step(t, d_h, d_c):
        d_h = d_h + g[t]
        from_h = where_valid(mask, t, d_h, 0)
        from_c = where_valid(mask, t, d_c, 0) + from_h * to_c[t]
        quarters = [from_c * to_i[t], from_c * to_f[t], from_c * to_n[t], from_h * to_o[t]]
        d_z = np.concatenate(quarters, axis=-1)
        past_h = where_valid(mask, t, 0, d_h)
        past_c = where_valid(mask, t, 0, d_c)
        return d_z, np.matmul(d_z, W_hh) + past_h, from_c * f[t] + past_c

    d_Z, (d_h, d_c) = back_through(step, T, 0, g[T])
    d_W_ih, d_b = through_weights(d_Z, X)
    d_W_hh, _ = through_weights(d_Z, H_before)
    return np.matmul(d_Z, W_ih), d_W_ih, d_W_hh, d_b, d_h, d_c
