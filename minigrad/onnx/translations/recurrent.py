"""Recurrent sequences: ONNX's own operators, whose gates have another order.

Where a mask is false a state is carried over, so the order of those steps does not matter. They are
moved behind the others, whose number ONNX gets as the length; then the state at each step is the
one after as many steps as were true so far.
"""

from __future__ import annotations

import numpy as np

from ...ops import gru, lstm, rnn
from ..translation import translation


def _states(to, operator, order, X, W_ih, W_hh, biases, states, mask, **attributes):
    """The states at all steps, and the operator's last output; `order` is that of its gates."""
    H, dtype = W_hh.shape[1], X.dtype
    rows = np.concatenate([np.arange(H) + H * k for k in order])
    weights = [to.Unsqueeze(to.Gather(to.cast(W, dtype), rows, axis=0), [0]) for W in (W_ih, W_hh)]
    zeros = to.constant(np.zeros(len(order) * H, dtype))
    pair = [zeros if b is None else to.Gather(to.cast(b, dtype), rows, axis=0) for b in biases]
    B = to.Unsqueeze(to.Concat(*pair, *[zeros] * (2 - len(pair)), axis=0), [0])
    first = [to.Unsqueeze(to.cast(s, dtype), [0]) for s in states]
    steps = lengths = None
    if mask is not None:
        counted = to.cast(mask, np.int64)
        steps = to.CumSum(counted, np.asarray(0))  # (T, B): how many were true so far
        lengths = to.cast(to.ReduceSum(counted, [0], keepdims=0), np.int32)
        T = to.Slice(to.Shape(X, dtype=np.int64), [0], [1])
        places = to.emit("TopK", counted, T, outputs=2, axis=0)[1]
        X = _picked(to, X, places)
    given = [X, *weights, B, lengths, *first]
    found = to.emit(
        operator, *given, outputs=3 if operator == "LSTM" else 2, hidden_size=H, **attributes
    )
    out = to.Squeeze(found[0], [1])
    if steps is not None:
        none = to.Unsqueeze(to.emit("Equal", steps, 0, dtype=bool), [-1])
        out = _picked(to, out, to.Max(to.Sub(steps, 1), to.value(0, np.int64)))
        out = to.Where(none, to.cast(states[0], dtype), out, dtype=dtype)
    return out, found[-1]


def _picked(to, x, places):
    """Of (T, B, d) the entries of the steps at (T, B)."""
    wide = to.Expand(to.Unsqueeze(places, [-1]), to.Shape(x, dtype=np.int64), dtype=np.int64)
    return to.GatherElements(x, wide, axis=0)


@translation(rnn)
def _(to, X, W_ih, W_hh, b, h, mask):
    return _states(to, "RNN", [0], X, W_ih, W_hh, [b], [h], mask)[0]


@translation(gru)
def _(to, X, W_ih, W_hh, b_ih, b_hh, h, mask):
    biases = [b_ih, b_hh]
    order, how = [1, 0, 2], {"linear_before_reset": 1}
    return _states(to, "GRU", order, X, W_ih, W_hh, biases, [h], mask, **how)[0]


@translation(lstm)
def _(to, X, W_ih, W_hh, b, h, c, mask):
    order = [0, 3, 1, 2]
    out, last = _states(to, "LSTM", order, X, W_ih, W_hh, [b], [h, c], mask)
    return to.Concat(out, last, axis=0)
