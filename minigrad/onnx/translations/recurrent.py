"""Recurrent sequences: ONNX's own operators, whose gates stand in another order.

A sequence with a mask is written step by step, which takes a fixed length.
"""

from __future__ import annotations

import numpy as np

from ...ops import gru, lstm, rnn
from ..translation import translation


def without_mask(mask):
    return mask is None


def _ready(to, X, W_ih, W_hh, biases, states, order):
    """The operator's inputs: weights with their gates in its order, and an axis for directions."""
    H, dtype = W_hh.shape[1], X.dtype
    rows = np.concatenate([np.arange(H) + H * k for k in order])
    weights = [to.Unsqueeze(to.Gather(to.cast(W, dtype), rows, axis=0), [0]) for W in (W_ih, W_hh)]
    zeros = to.constant(np.zeros(len(order) * H, dtype))
    pair = [zeros if b is None else to.Gather(to.cast(b, dtype), rows, axis=0) for b in biases]
    pair += [zeros] * (2 - len(pair))
    B = to.Unsqueeze(to.Concat(*pair, axis=0), [0])
    return [X, *weights, B, None, *(to.Unsqueeze(to.cast(s, dtype), [0]) for s in states)]


@translation(rnn, when=without_mask)
def _(to, X, W_ih, W_hh, b, h):
    given = _ready(to, X, W_ih, W_hh, [b], [h], [0])
    return to.Squeeze(to.RNN(*given, hidden_size=W_hh.shape[1]), [1])


@translation(gru, when=without_mask)
def _(to, X, W_ih, W_hh, b_ih, b_hh, h):
    given = _ready(to, X, W_ih, W_hh, [b_ih, b_hh], [h], [1, 0, 2])
    return to.Squeeze(to.GRU(*given, hidden_size=W_hh.shape[1], linear_before_reset=1), [1])


@translation(lstm, when=without_mask)
def _(to, X, W_ih, W_hh, b, h, c):
    given = _ready(to, X, W_ih, W_hh, [b], [h, c], [0, 3, 1, 2])
    H, _, last = to.emit("LSTM", *given, outputs=3, hidden_size=W_hh.shape[1])
    return to.Concat(to.Squeeze(H, [1]), last, axis=0)
