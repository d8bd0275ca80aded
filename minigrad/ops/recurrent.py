r"""Recurrent sequences as one op each, with backpropagation through time for a rule.

An op takes what the inputs bring to the gates at all T steps, Z = X W_ihᵀ + b, one product made
before; goes through the steps; and gives the states at all of them. Where a mask is false a state
is carried over, and no gradient reaches that step's input: so sequences of several lengths go
together. A rule finds the gates of all steps at once, for all states before are known, and then
goes back through the steps with what is left: a product and a few multiplications each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..engine.errors import DTypeError, ShapeError
from ..engine.op import Call, call, op
from .functions import sigmoid
from .products import as_rows
from .select import split

__all__ = ["gru", "lstm", "rnn"]


def check_steps(Z: Any, U: Any, mask: Any, gates: int, *states: Any) -> None:
    """Raise ShapeError unless Z is (T, B, gates · H), U (gates · H, H) and a state (B, H)."""
    H = np.shape(U)[-1] if np.ndim(U) == 2 else -1
    wide = "H" if gates == 1 else f"{gates} H"
    if np.ndim(Z) != 3 or np.shape(U) != (gates * H, H) or np.shape(Z)[2] != gates * H:
        raise ShapeError(
            f"Z must be (T, B, {wide}) and U ({wide}, H), got {np.shape(Z)} and {np.shape(U)}"
        )
    T, B = np.shape(Z)[:2]
    if T == 0:
        raise ShapeError("Z must have at least one step")
    for state in states:
        if np.shape(state) != (B, H):
            raise ShapeError(f"a first state must be (B, H) = {(B, H)}, got {np.shape(state)}")
    if mask is not None and np.shape(mask) != (T, B):
        raise ShapeError(f"mask must be (T, B) = {(T, B)}, got {np.shape(mask)}")
    if mask is not None and mask.dtype != np.bool_:
        raise DTypeError(f"mask must be boolean, got {mask.dtype}")


def before(states: Any, first: Any) -> Any:
    """The state before each step: the first one, and all but the last."""
    return np.concatenate([np.expand_dims(first, 0), states[:-1]])


def taken(mask: Any, t: int, new: Any, old: Any) -> Any:
    """The new state where step t counts, the old one elsewhere."""
    return new if mask is None else np.where(mask[t][:, None], new, old)


def back_through(step: Callable[..., Any], T: int, *gradients: Any) -> tuple[list[Any], Any]:
    """What `step(t, *gradients)` gives for each t, in order of time, and the gradients at last.

    A step gives its part for Z, and the gradients of the states before it.
    """
    parts: list[Any] = []
    for t in reversed(range(T)):
        part, *gradients = step(t, *gradients)
        parts.insert(0, part)
    return parts, gradients


def _samples(gates: int, states: int, bias: bool = False) -> Callable[..., Iterator[Call]]:
    def samples(rng: np.random.Generator) -> Iterator[Call]:
        mask = np.array([[True, True], [True, False], [True, False]])
        for T, B, H, given in ((3, 2, 2, None), (3, 2, 1, mask), (1, 1, 2, None), (2, 0, 2, None)):
            shapes = [(T, B, gates * H), (gates * H, H)]
            shapes += [(gates * H,)] * bias + [(B, H)] * states
            yield call(*(rng.uniform(-1, 1, shape) for shape in shapes), mask=given)

    return samples


def _per_entry(matmuls: int, others: int) -> Any:
    """So many products with U, and operations for each entry of the states."""

    def cost(Z: Any, U: Any) -> int:
        (rows, H), (T, B, _) = U.shape, Z.shape
        return int(T * B * (2 * matmuls * rows * H + others * H))

    return cost


# ---------------------------------------------------------------- rnn

_RNN = r"h_t = \tanh(<Z>_t + h_{t-1} <U>^\top)"
_RNN_BACK = (
    r"\quad \bar z_t = \bar h_t \odot (1 - h_t^{\circ 2}),"
    r" \quad \bar h_{t-1} = <g>_{t-1} + \bar z_t <U>"
)


@op(
    tex=rf"h, \quad {_RNN}",
    vjp_tex={
        "Z": rf"\bar z, {_RNN_BACK}",
        "U": rf"\textstyle\sum_t \bar z_t^\top h_{{t-1}}, {_RNN_BACK}",
        "h": rf"\bar z_1 <U>, {_RNN_BACK}",
    },
    flops=_per_entry(1, 2),
    vjp_flops={"Z": _per_entry(1, 5), "U": _per_entry(1, 0), "h": _per_entry(0, 0)},
    samples=_samples(1, 1),
)
def rnn(Z, U, h, mask=None):
    """A simple recurrent network's states: h_t = tanh(Z_t + h_{t-1} Uᵀ).

    Args: Z: what the inputs bring, (T, B, H). U: (H, H). h: the state before, (B, H).
        mask: (T, B), False where a state is carried over.
    Shapes: → (T, B, H)  Raises: ShapeError or DTypeError where these do not fit.
    Source: Elman 1990, https://doi.org/10.1207/s15516709cog1402_1.

    >>> rnn(np.zeros((2, 1, 1)), np.ones((1, 1)), np.ones((1, 1))).round(4).ravel()
    array([0.7616, 0.642 ])
    """
    check_steps(Z, U, mask, 1, h)
    states = []
    for t in range(len(Z)):
        h = taken(mask, t, np.tanh(Z[t] + np.matmul(h, U.T)), h)
        states.append(h)
    return np.stack(states)


@rnn.vjp("Z", "U", "h")
def _(g, out, U, h, mask):
    slopes = 1 - out * out

    def step(t: int, d_h: Any) -> Any:
        d_h = d_h + g[t]
        d_z = taken(mask, t, d_h * slopes[t], 0)
        return d_z, np.matmul(d_z, U) + taken(mask, t, 0, d_h)

    parts, (d_h,) = back_through(step, len(g), 0)
    d_Z = np.stack(parts)
    return d_Z, np.matmul(as_rows(d_Z).T, as_rows(before(out, h))), d_h


# ---------------------------------------------------------------- gru

_GRU = (
    r"h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}, \quad n_t = \tanh(<Z>^n_t + r_t \odot p^n_t),"
    r" \quad (r_t, z_t) = \sigma(<Z>_t + p_t), \quad p_t = h_{t-1} <U>^\top + <b>"
)
_GRU_BACK = (
    r"\quad \bar n_t = \bar h_t \odot (1 - z_t) \odot (1 - n_t^{\circ 2}),"
    r" \quad \bar z_t = \bar h_t \odot (h_{t-1} - n_t) \odot z_t \odot (1 - z_t),"
    r" \quad \bar r_t = \bar n_t \odot p^n_t \odot r_t \odot (1 - r_t),"
    r" \quad \bar p_t = (\bar r_t, \bar z_t, \bar n_t \odot r_t),"
    r" \quad \bar h_{t-1} = <g>_{t-1} + \bar h_t \odot z_t + \bar p_t <U>"
)


@op(
    tex=rf"h, \quad {_GRU}",
    vjp_tex={
        "Z": rf"(\bar r, \bar z, \bar n), {_GRU_BACK}",
        "U": rf"\textstyle\sum_t \bar p_t^\top h_{{t-1}}, {_GRU_BACK}",
        "b": rf"\textstyle\sum_t \bar p_t, {_GRU_BACK}",
        "h": rf"\bar h_1 \odot z_1 + \bar p_1 <U>, {_GRU_BACK}",
    },
    flops=_per_entry(1, 19),
    vjp_flops={
        "Z": _per_entry(2, 42),
        "U": _per_entry(1, 0),
        "b": _per_entry(0, 3),
        "h": _per_entry(0, 0),
    },
    samples=_samples(3, 1, bias=True),
)
def gru(Z, U, b, h, mask=None):
    """A gated recurrent unit's states: h_t = (1 - z_t) n_t + z_t h_{t-1}.

    With p_t = h_{t-1} Uᵀ + b: r_t = σ(Z_t + p_t), z_t = σ(Z_t + p_t), n_t = tanh(Z_t + r_t p_t),
    each on its third of Z and p, in this order.

    Args: Z: what the inputs bring, (T, B, 3 H). U: (3 H, H). b: (3 H,). h: (B, H).
        mask: (T, B), False where a state is carried over.
    Shapes: → (T, B, H)  Raises: ShapeError or DTypeError where these do not fit.
    Source: Cho et al. 2014, arXiv:1406.1078, with r after the product, as libraries have it.

    >>> gru(np.zeros((2, 1, 3)), np.zeros((3, 1)), np.zeros(3), np.ones((1, 1))).ravel()
    array([0.5 , 0.25])
    """
    check_steps(Z, U, mask, 3, h)
    states = []
    for t in range(len(Z)):
        _, z, n, _ = gru_gates(Z[t], np.matmul(h, U.T) + b)
        h = taken(mask, t, n + z * (h - n), h)
        states.append(h)
    return np.stack(states)


def gru_gates(Z: Any, p: Any) -> tuple[Any, Any, Any, Any]:
    """r, z and n of what the inputs and the states before bring, and the latter's part for n."""
    (Z_r, Z_z, Z_n), (p_r, p_z, p_n) = split(Z, 3, axis=-1), split(p, 3, axis=-1)
    r, z = sigmoid(Z_r + p_r), sigmoid(Z_z + p_z)
    return r, z, np.tanh(Z_n + r * p_n), p_n


@gru.vjp("Z", "U", "b", "h")
def _(g, out, Z, U, b, h, mask):
    H_before = before(out, h)
    r, z, n, p_n = gru_gates(Z, np.matmul(H_before, U.T) + b)
    to_n = (1 - z) * (1 - n * n)
    to_r, to_z = to_n * p_n * r * (1 - r), (H_before - n) * z * (1 - z)
    to_Z, to_p = np.stack([to_r, to_z, to_n], axis=2), np.stack([to_r, to_z, to_n * r], axis=2)

    def step(t: int, d_h: Any) -> Any:
        d_h = d_h + g[t]
        d_new = taken(mask, t, d_h, 0)
        d_p = (np.expand_dims(d_new, 1) * to_p[t]).reshape((len(d_h), len(U)))
        past = d_new * z[t] + np.matmul(d_p, U)
        return d_new, past + taken(mask, t, 0, d_h)

    parts, (d_h,) = back_through(step, len(g), 0)
    d_new = np.expand_dims(np.stack(parts), 2)
    d_Z, d_p = (d_new * to_Z).reshape(Z.shape), as_rows((d_new * to_p).reshape(Z.shape))
    return d_Z, np.matmul(d_p.T, as_rows(H_before)), d_p.sum(axis=0), d_h


# ---------------------------------------------------------------- lstm

_LSTM = (
    r"h_t = o_t \odot \tanh c_t, \quad c_t = f_t \odot c_{t-1} + i_t \odot n_t,"
    r" \quad (i_t, f_t, o_t) = \sigma(z_t), \quad n_t = \tanh z_t,"
    r" \quad z_t = <Z>_t + h_{t-1} <U>^\top"
)
_LSTM_BACK = (
    r"\quad \bar z_t = (\bar c_t \odot n_t \odot i_t \odot (1 - i_t),"
    r" \bar c_t \odot c_{t-1} \odot f_t \odot (1 - f_t),"
    r" \bar c_t \odot i_t \odot (1 - n_t^{\circ 2}),"
    r" \bar h_t \odot \tanh c_t \odot o_t \odot (1 - o_t)),"
    r" \quad \bar h_{t-1} = <g>^h_{t-1} + \bar z_t <U>,"
    r" \quad \bar c_t = <g>^c_t + \bar c_{t+1} \odot f_{t+1}"
    r" + \bar h_t \odot o_t \odot (1 - \tanh^2 c_t)"
)


@op(
    tex=rf"(h, c), \quad {_LSTM}",
    vjp_tex={
        "Z": rf"\bar z, {_LSTM_BACK}",
        "U": rf"\textstyle\sum_t \bar z_t^\top h_{{t-1}}, {_LSTM_BACK}",
        "h": rf"\bar z_1 <U>, {_LSTM_BACK}",
        "c": rf"\bar c_1 \odot f_1, {_LSTM_BACK}",
    },
    flops=_per_entry(1, 22),
    vjp_flops={
        "Z": _per_entry(2, 47),
        "U": _per_entry(1, 0),
        "h": _per_entry(0, 0),
        "c": _per_entry(0, 0),
    },
    samples=_samples(4, 2),
)
def lstm(Z, U, h, c, mask=None):
    """A long short-term memory's states: h_t = o_t tanh c_t, c_t = f_t c_{t-1} + i_t n_t.

    With z_t = Z_t + h_{t-1} Uᵀ in quarters: i_t = σ, f_t = σ, n_t = tanh, o_t = σ, in this order.

    Args: Z: what the inputs bring, (T, B, 4 H). U: (4 H, H). h, c: the states before, (B, H).
        mask: (T, B), False where states are carried over.
    Shapes: → (2, T, B, H), h of all steps and then c of all steps.
    Raises: ShapeError or DTypeError where these do not fit.
    Source: Hochreiter & Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with the
        forget gate of Gers et al. 2000, https://doi.org/10.1162/089976600300015015.

    >>> one = np.ones((1, 1))
    >>> lstm(np.zeros((2, 1, 4)), np.zeros((4, 1)), one, one)[1].ravel()
    array([0.5 , 0.25])
    """
    check_steps(Z, U, mask, 4, h, c)
    states = []
    for t in range(len(Z)):
        i, f, n, o = lstm_gates(Z[t] + np.matmul(h, U.T))
        c_new = f * c + i * n
        h, c = taken(mask, t, o * np.tanh(c_new), h), taken(mask, t, c_new, c)
        states.append(np.stack([h, c]))
    return np.stack(states, axis=1)


def lstm_gates(z: Any) -> tuple[Any, Any, Any, Any]:
    """i, f, n and o of what arrives at the gates."""
    i, f, n, o = split(z, 4, axis=-1)
    return sigmoid(i), sigmoid(f), np.tanh(n), sigmoid(o)


@lstm.vjp("Z", "U", "h", "c")
def _(g, out, Z, U, h, c, mask):
    H_before, C_before = before(out[0], h), before(out[1], c)
    i, f, n, o = lstm_gates(Z + np.matmul(H_before, U.T))
    tanh_c = np.tanh(f * C_before + i * n)
    to_i, to_f, to_n = n * i * (1 - i), C_before * f * (1 - f), i * (1 - n * n)  # from c
    to_o, to_c = tanh_c * o * (1 - o), o * (1 - tanh_c * tanh_c)  # from h

    def step(t: int, d_h: Any, d_c: Any) -> Any:
        d_h, d_c = d_h + g[0, t], d_c + g[1, t]
        from_h = taken(mask, t, d_h, 0)
        from_c = taken(mask, t, d_c, 0) + from_h * to_c[t]
        quarters = [from_c * to_i[t], from_c * to_f[t], from_c * to_n[t], from_h * to_o[t]]
        d_z = np.concatenate(quarters, axis=-1)
        past_h, past_c = taken(mask, t, 0, d_h), taken(mask, t, 0, d_c)
        return d_z, np.matmul(d_z, U) + past_h, from_c * f[t] + past_c

    parts, (d_h, d_c) = back_through(step, len(Z), 0, 0)
    d_Z = np.stack(parts)
    return d_Z, np.matmul(as_rows(d_Z).T, as_rows(H_before)), d_h, d_c
