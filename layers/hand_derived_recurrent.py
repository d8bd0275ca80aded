r"""Backpropagation through time, derived by hand: RNN, GRU and LSTM over a batch of sequences.

As `hand_derived`, this is plain NumPy and knows nothing of the engine. Each function runs forward
one step at a time, then back, and gives for each stage of a step the gradients at all steps.
Arrays are (T, B, ·), time first, and biases may be None, as the ops of these names take them;
∂Y is short for ∂L/∂Y; h_{t−1} and c_{t−1} are written h⁻ and c⁻.
"""

from __future__ import annotations

import numpy as np

from .hand_derived import Array, Line, Step, step_of

__all__ = ["gru_steps", "lstm_steps", "rnn_steps"]


def rnn_steps(
    *, X: Array, W_ih: Array, W_hh: Array, b: Array | None = None, h: Array, grad_output: Array
) -> list[Step]:
    r"""h_t = tanh(x_t W_ihᵀ + h_{t−1} W_hhᵀ + b), from grad_output = ∂L/∂h_t for all t.

    Shapes: X (T, B, d); W_ih (H, d); W_hh (H, H); b (H,) or None; h, the state before, (B, H).

    >>> one = np.ones((1, 1))
    >>> steps = rnn_steps(X=one[None], W_ih=0 * one, W_hh=one, h=0 * one, grad_output=one[None])
    >>> [step.title for step in steps], steps[0].gradients["z"].ravel()
    (['tanh', 'weights and inputs'], array([1.]))
    """
    T, states = len(X), [h]
    for t in range(T):
        states.append(np.tanh(_linear(X[t], W_ih, b) + states[-1] @ W_hh.T))
    d_z, d_h = np.empty_like(grad_output), np.zeros_like(h)
    for t in reversed(range(T)):
        d_h = d_h + grad_output[t]
        d_z[t] = d_h * (1 - states[t + 1] ** 2)
        d_h = d_z[t] @ W_hh
    one = step_of(1, "tanh", r"h = \tanh z", ("z", r"\bar h \odot (1 - h^{\circ 2})", d_z))
    before = np.stack(states[:-1])
    first = ("h", r"\bar z_1 W_{hh}", d_h)
    return [one, _through_weights(2, X, W_ih, before, d_z, d_z, {"b": b}, first)]


def gru_steps(
    *,
    X: Array,
    W_ih: Array,
    W_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
    h: Array,
    grad_output: Array,
) -> list[Step]:
    r"""h = (1 − z) n + z h⁻, n = tanh(a_n + r p_n), (r, z) = σ(a + p), a = x W_ihᵀ + b_ih,
    p = h⁻ W_hhᵀ + b_hh; from grad_output = ∂L/∂h_t for all t.

    >>> steps = gru_steps(X=np.ones((2, 1, 1)), W_ih=np.ones((3, 1)), W_hh=np.ones((3, 1)),
    ...                   h=np.zeros((1, 1)), grad_output=np.ones((2, 1, 1)))
    >>> [step.title for step in steps]
    ['new state', 'candidate', 'gates', 'weights and inputs']
    """
    T = len(X)
    H = h.shape[1]
    kept = []
    for t in range(T):
        a, p = _linear(X[t], W_ih, b_ih), _linear(h, W_hh, b_hh)
        r, z = _sigmoid(a[:, :H] + p[:, :H]), _sigmoid(a[:, H : 2 * H] + p[:, H : 2 * H])
        n = np.tanh(a[:, 2 * H :] + r * p[:, 2 * H :])
        kept.append((h, r, z, n, p[:, 2 * H :]))
        h = (1 - z) * n + z * h
    rows: list[dict[str, Array]] = []
    d_h = np.zeros_like(h)
    for t in reversed(range(T)):
        h, r, z, n, p_n = kept[t]
        d_h = d_h + grad_output[t]
        d_n, d_z = d_h * (1 - z), d_h * (h - n)
        d_a_n = d_n * (1 - n**2)
        d_r, d_p_n = d_a_n * p_n, d_a_n * r
        d_a_r, d_a_z = d_r * r * (1 - r), d_z * z * (1 - z)
        d_p = np.concatenate([d_a_r, d_a_z, d_p_n], axis=1)
        d_a = np.concatenate([d_a_r, d_a_z, d_a_n], axis=1)
        rows.append({"n": d_n, "z": d_z, "a_n": d_a_n, "r": d_r, "p_n": d_p_n, "a": d_a, "p": d_p})
        d_h = d_h * z + d_p @ W_hh
    d = {name: np.stack([row[name] for row in reversed(rows)]) for name in rows[0]}
    before, biases = np.stack([k[0] for k in kept]), {"b_ih": b_ih, "b_hh": b_hh}
    first = ("h", r"\bar h_1 \odot z_1 + \bar p_1 W_{hh}", d_h)
    new = {"n": r"\bar h \odot (1 - z)", "z": r"\bar h \odot (h^- - n)"}
    candidate = {
        "a_n": r"\bar n \odot (1 - n^{\circ 2})",
        "r": r"\bar a_n \odot p_n",
        "p_n": r"\bar a_n \odot r",
    }
    gates = {
        "a": r"(\bar r \odot r \odot (1 - r), \bar z \odot z \odot (1 - z), \bar a_n)",
        "p": r"(\bar r \odot r \odot (1 - r), \bar z \odot z \odot (1 - z), \bar p_n)",
    }
    return [
        _of(1, "new state", r"h = (1 - z) \odot n + z \odot h^-", new, d),
        _of(2, "candidate", r"n = \tanh(a_n + r \odot p_n)", candidate, d),
        _of(3, "gates", r"(r, z) = \sigma(a + p)", gates, d),
        _through_weights(4, X, W_ih, before, d["a"], d["p"], biases, first),
    ]


def lstm_steps(
    *,
    X: Array,
    W_ih: Array,
    W_hh: Array,
    b: Array | None = None,
    h: Array,
    c: Array,
    grad_output: Array,
) -> list[Step]:
    r"""h = o tanh c, c = f c⁻ + i n, (i, f, n, o) = (σ, σ, tanh, σ)(z), z = x W_ihᵀ + h⁻ W_hhᵀ + b;
    from grad_output = ∂L/∂h_t for all t, and behind them ∂L/∂c_T of the last memory.

    >>> one = np.ones((1, 1))
    >>> steps = lstm_steps(X=one[None], W_ih=np.ones((4, 1)), W_hh=np.ones((4, 1)), h=0 * one,
    ...                    c=0 * one, grad_output=np.ones((2, 1, 1)))
    >>> [step.title for step in steps]
    ['what is shown', 'memory', 'gates', 'weights and inputs']
    """
    T, H = len(X), h.shape[1]
    kept: list[tuple[Array, ...]] = []
    for t in range(T):
        z = _linear(X[t], W_ih, b) + h @ W_hh.T
        i, f, o = (_sigmoid(z[:, k * H : (k + 1) * H]) for k in (0, 1, 3))
        n = np.tanh(z[:, 2 * H : 3 * H])
        kept.append((h, c, i, f, n, o))
        c = f * c + i * n
        h = o * np.tanh(c)
    rows: list[dict[str, Array]] = []
    d_h, d_c = np.zeros_like(h), grad_output[T]
    for t in reversed(range(T)):
        _, c, i, f, n, o = kept[t]
        shown = np.tanh(f * c + i * n)
        d_h = d_h + grad_output[t]
        d_o, d_c = d_h * shown, d_c + d_h * o * (1 - shown**2)
        d_i, d_f = d_c * n, d_c * c
        d_n = d_c * i
        quarters = [d_i * i * (1 - i), d_f * f * (1 - f), d_n * (1 - n**2), d_o * o * (1 - o)]
        d_z = np.concatenate(quarters, axis=1)
        rows.append({"o": d_o, "c_t": d_c, "i": d_i, "f": d_f, "n": d_n, "z": d_z})
        d_h, d_c = d_z @ W_hh, d_c * f
    d = {name: np.stack([row[name] for row in reversed(rows)]) for name in rows[0]}
    before = np.stack([k[0] for k in kept])
    first = ("h", r"\bar z_1 W_{hh}", d_h), ("c", r"\bar c_1 \odot f_1", d_c)
    shown_back = {
        "o": r"\bar h \odot \tanh c",
        "c_t": r"\bar c^+ \odot f^+ + \bar h \odot o \odot (1 - \tanh^2 c)",
    }
    memory = {"i": r"\bar c \odot n", "f": r"\bar c \odot c^-", "n": r"\bar c \odot i"}
    gates = {
        "z": r"(\bar i \odot i \odot (1 - i), \bar f \odot f \odot (1 - f),"
        r" \bar n \odot (1 - n^{\circ 2}), \bar o \odot o \odot (1 - o))"
    }
    return [
        _of(1, "what is shown", r"h = o \odot \tanh c", shown_back, d),
        _of(2, "memory", r"c = f \odot c^- + i \odot n", memory, d),
        _of(3, "gates", r"(i, f, n, o) = (\sigma, \sigma, \tanh, \sigma)(z)", gates, d),
        _through_weights(4, X, W_ih, before, d["z"], d["z"], {"b": b}, *first),
    ]


# ------------------------------------------------------------------ what they share


def _through_weights(
    number: int,
    X: Array,
    W_ih: Array,
    before: Array,
    d_a: Array,
    d_p: Array,
    biases: dict[str, Array | None],
    *first: Line,
) -> Step:
    """a = X W_ihᵀ + b_ih and p = h⁻ W_hhᵀ + b_hh, at all steps; `first` are the states before."""
    lines: list[Line] = [
        ("X", r"\bar a W_{ih}", d_a @ W_ih),
        ("W_ih", r"\textstyle\sum_t \bar a_t^\top x_t", np.einsum("tbr,tbd->rd", d_a, X)),
        ("W_hh", r"\textstyle\sum_t \bar p_t^\top h_{t-1}", np.einsum("tbr,tbh->rh", d_p, before)),
    ]
    for name, bias in biases.items():
        sign, came = ("p", d_p) if name == "b_hh" else ("a", d_a)
        to_bias = None if bias is None else came.sum((0, 1))
        lines.append((name, rf"\textstyle\sum_t \bar {sign}_t", to_bias))
    forward = r"a = X W_{ih}^\top + b_{ih}, \quad p = h^- W_{hh}^\top + b_{hh}"
    return step_of(number, "weights and inputs", forward, *lines, *first)


def _of(
    number: int, title: str, forward: str, formulas: dict[str, str], all_gradients: dict[str, Array]
) -> Step:
    """A step with those of the gradients that it yields."""
    return Step(number, title, forward, formulas, {name: all_gradients[name] for name in formulas})


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))  # 1 / (1 + e^−x), which overflows


def _linear(x: Array, W: Array, b: Array | None) -> Array:
    return x @ W.T if b is None else x @ W.T + b
