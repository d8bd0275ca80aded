r"""Backpropagation through time, derived by hand: RNN, GRU and LSTM over a batch of sequences.

As `hand_derived`, this is plain NumPy and knows nothing of the engine. Each function runs forward
one step at a time, then back, and gives for each stage of a step the gradients at all steps.
Arrays are (B, T, ·); ∂Y is short for ∂L/∂Y; h_{t−1} and c_{t−1} are written h⁻ and c⁻.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from .hand_derived import Array, Step

__all__ = ["gru_steps", "lstm_steps", "rnn_steps"]


def rnn_steps(
    *, X: Array, weight_ih: Array, weight_hh: Array, bias: Array, h_0: Array, grad_output: Array
) -> list[Step]:
    r"""h_t = tanh(x_t W_ihᵀ + h_{t−1} W_hhᵀ + b), from grad_output = ∂L/∂h_t for all t.

    Shapes: X (B, T, d); weight_ih (H, d); weight_hh (H, H); bias (H,), of both; h_0 (B, H).

    >>> one = np.ones((1, 1))
    >>> steps = rnn_steps(X=one[None], weight_ih=0 * one, weight_hh=one, bias=np.zeros(1),
    ...                   h_0=0 * one, grad_output=one[None])
    >>> [step.title for step in steps], steps[0].gradients["z"].ravel()
    (['tanh', 'weights and inputs'], array([1.]))
    """
    T, states = X.shape[1], [h_0]
    for t in range(T):
        states.append(np.tanh(X[:, t] @ weight_ih.T + states[-1] @ weight_hh.T + bias))
    d_z, d_h = np.empty_like(grad_output), np.zeros_like(h_0)
    for t in reversed(range(T)):
        d_h = d_h + grad_output[:, t]
        d_z[:, t] = d_h * (1 - states[t + 1] ** 2)
        d_h = d_z[:, t] @ weight_hh
    slope = {"z": r"\bar h \odot (1 - h^{\circ 2})"}
    one = Step(1, "tanh", r"h = \tanh z", slope, {"z": d_z})
    two = _through_weights(2, X, weight_ih, np.stack(states[:-1], 1), d_z, d_z, {"h_0": d_h})
    return [one, two]


def gru_steps(
    *,
    X: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array,
    bias_hh: Array,
    h_0: Array,
    grad_output: Array,
) -> list[Step]:
    r"""h = (1 − z) n + z h⁻, n = tanh(a_n + r p_n), (r, z) = σ(a + p), a = x W_ihᵀ + b_ih,
    p = h⁻ W_hhᵀ + b_hh; from grad_output = ∂L/∂h_t for all t.

    >>> steps = gru_steps(X=np.ones((1, 2, 1)), weight_ih=np.ones((3, 1)), bias_ih=np.zeros(3),
    ...     weight_hh=np.ones((3, 1)), bias_hh=np.zeros(3), h_0=np.zeros((1, 1)),
    ...     grad_output=np.ones((1, 2, 1)))
    >>> [step.title for step in steps]
    ['new state', 'candidate', 'gates', 'weights and inputs']
    """
    T, H = X.shape[1], h_0.shape[1]
    kept, h = [], h_0
    for t in range(T):
        a, p = X[:, t] @ weight_ih.T + bias_ih, h @ weight_hh.T + bias_hh
        r, z = _sigmoid(a[:, :H] + p[:, :H]), _sigmoid(a[:, H : 2 * H] + p[:, H : 2 * H])
        n = np.tanh(a[:, 2 * H :] + r * p[:, 2 * H :])
        kept.append((h, r, z, n, p[:, 2 * H :]))
        h = (1 - z) * n + z * h
    rows: list[dict[str, Array]] = []
    d_h = np.zeros_like(h_0)
    for t in reversed(range(T)):
        h, r, z, n, p_n = kept[t]
        d_h = d_h + grad_output[:, t]
        d_n, d_z = d_h * (1 - z), d_h * (h - n)
        d_a_n = d_n * (1 - n**2)
        d_r, d_p_n = d_a_n * p_n, d_a_n * r
        d_a_r, d_a_z = d_r * r * (1 - r), d_z * z * (1 - z)
        d_p = np.concatenate([d_a_r, d_a_z, d_p_n], axis=1)
        d_a = np.concatenate([d_a_r, d_a_z, d_a_n], axis=1)
        rows.append({"n": d_n, "z": d_z, "a_n": d_a_n, "r": d_r, "p_n": d_p_n, "a": d_a, "p": d_p})
        d_h = d_h * z + d_p @ weight_hh
    d = {name: np.stack([row[name] for row in reversed(rows)], 1) for name in rows[0]}
    before = np.stack([k[0] for k in kept], 1)
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
        _through_weights(4, X, weight_ih, before, d["a"], d["p"], {"h_0": d_h}),
    ]


def lstm_steps(
    *,
    X: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array,
    h_0: Array,
    c_0: Array,
    grad_output: Array,
    grad_c: Array | None = None,
) -> list[Step]:
    r"""h = o tanh c, c = f c⁻ + i n, (i, f, n, o) = (σ, σ, tanh, σ)(z), z = x W_ihᵀ + h⁻ W_hhᵀ + b;
    from grad_output = ∂L/∂h_t for all t, and grad_c = ∂L/∂c_T of the last memory, 0 if None.

    >>> one = np.ones((1, 1))
    >>> steps = lstm_steps(X=one[None], weight_ih=np.ones((4, 1)), weight_hh=np.ones((4, 1)),
    ...     bias=np.zeros(4), h_0=0 * one, c_0=0 * one, grad_output=one[None])
    >>> [step.title for step in steps]
    ['what is shown', 'memory', 'gates', 'weights and inputs']
    """
    T, H = X.shape[1], h_0.shape[1]
    kept: list[tuple[Array, ...]] = []
    h, c = h_0, c_0
    for t in range(T):
        z = X[:, t] @ weight_ih.T + h @ weight_hh.T + bias
        i, f, o = (_sigmoid(z[:, k * H : (k + 1) * H]) for k in (0, 1, 3))
        n = np.tanh(z[:, 2 * H : 3 * H])
        kept.append((h, c, i, f, n, o))
        c = f * c + i * n
        h = o * np.tanh(c)
    rows: list[dict[str, Array]] = []
    d_h = np.zeros_like(h_0)
    d_c = np.zeros_like(c_0) if grad_c is None else grad_c
    for t in reversed(range(T)):
        _, c, i, f, n, o = kept[t]
        shown = np.tanh(f * c + i * n)
        d_h = d_h + grad_output[:, t]
        d_o, d_c = d_h * shown, d_c + d_h * o * (1 - shown**2)
        d_i, d_f = d_c * n, d_c * c
        d_n = d_c * i
        quarters = [d_i * i * (1 - i), d_f * f * (1 - f), d_n * (1 - n**2), d_o * o * (1 - o)]
        d_z = np.concatenate(quarters, axis=1)
        rows.append({"o": d_o, "c": d_c, "i": d_i, "f": d_f, "n": d_n, "z": d_z})
        d_h, d_c = d_z @ weight_hh, d_c * f
    d = {name: np.stack([row[name] for row in reversed(rows)], 1) for name in rows[0]}
    before = np.stack([k[0] for k in kept], 1)
    shown_back = {
        "o": r"\bar h \odot \tanh c",
        "c": r"\bar c^+ \odot f^+ + \bar h \odot o \odot (1 - \tanh^2 c)",
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
        _through_weights(4, X, weight_ih, before, d["z"], d["z"], {"h_0": d_h, "c_0": d_c}),
    ]


# ------------------------------------------------------------------ as the layers run them


def layer_steps(steps: Callable[..., list[Step]]) -> Callable[..., list[Step]]:
    """The same steps as a layer's cell runs: time first, (T, B, ·), and biases that may be None.

    Of an LSTM, grad_output may hold ∂L/∂c_T behind ∂L/∂h_t of all T steps.

    >>> one = np.ones((1, 1))
    >>> steps = layer_steps(rnn_steps)(X=np.ones((3, 2, 1)), weight_ih=one, weight_hh=one,
    ...                                h_0=np.zeros((2, 1)), grad_output=np.ones((3, 2, 1)))
    >>> steps[-1].gradients["X"].shape
    (3, 2, 1)
    """

    def run(
        *,
        X: Array,
        weight_ih: Array,
        weight_hh: Array,
        h_0: Array,
        grad_output: Array,
        c_0: Array | None = None,
        bias_ih: Array | None = None,
        bias_hh: Array | None = None,
    ) -> list[Step]:
        T, zeros = len(X), np.zeros(len(weight_ih), weight_ih.dtype)
        b_ih = zeros if bias_ih is None else bias_ih
        b_hh = zeros if bias_hh is None else bias_hh
        given = {
            "X": _turned(X),
            "weight_ih": weight_ih,
            "weight_hh": weight_hh,
            "bias": b_ih + b_hh,
            "bias_ih": b_ih,
            "bias_hh": b_hh,
            "h_0": h_0,
            "c_0": c_0,
            "grad_output": _turned(grad_output[:T]),
            "grad_c": grad_output[T] if len(grad_output) > T else None,
        }
        wanted = signature(steps).parameters
        return _time_first(steps(**{name: given[name] for name in wanted}))

    return run


def _turned(x: Array) -> Array:
    return np.swapaxes(x, 0, 1)


def _time_first(steps: list[Step]) -> list[Step]:
    return [
        replace(
            step,
            gradients={
                name: _turned(gradient) if gradient.ndim == 3 else gradient
                for name, gradient in step.gradients.items()
            },
        )
        for step in steps
    ]


# ------------------------------------------------------------------ what they share


def _through_weights(
    number: int, X: Array, weight_ih: Array, before: Array, d_a: Array, d_p: Array, first: Any
) -> Step:
    """a = X W_ihᵀ + b_ih and p = h⁻ W_hhᵀ + b_hh, at all steps at once."""
    gradients = {
        "X": d_a @ weight_ih,
        "weight_ih": np.einsum("btr,btd->rd", d_a, X),
        "weight_hh": np.einsum("btr,bth->rh", d_p, before),
        "bias_ih": d_a.sum((0, 1)),
        "bias_hh": d_p.sum((0, 1)),
    }
    formulas = {
        "X": r"\bar a W_{ih}",
        "weight_ih": r"\textstyle\sum_t \bar a_t^\top x_t",
        "weight_hh": r"\textstyle\sum_t \bar p_t^\top h_{t-1}",
        "bias_ih": r"\textstyle\sum_t \bar a_t",
        "bias_hh": r"\textstyle\sum_t \bar p_t",
        "h_0": r"\bar h_0",
        "c_0": r"\bar c_1 \odot f_1",
    }
    gradients |= first
    forward = r"a = X W_{ih}^\top + b_{ih}, \quad p = h^- W_{hh}^\top + b_{hh}"
    shown = {name: formulas[name] for name in gradients}
    return Step(number, "weights and inputs", forward, shown, gradients)


def _of(
    number: int, title: str, forward: str, formulas: dict[str, str], all_gradients: dict[str, Array]
) -> Step:
    """A step with those of the gradients that it yields."""
    return Step(number, title, forward, formulas, {name: all_gradients[name] for name in formulas})


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
