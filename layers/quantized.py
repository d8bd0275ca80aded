"""Products with integers of few bits, and training for them: both factors are rounded."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError

from .attention import Attended, MultiHeadAttention, exactly
from .basic import linear
from .call import ArrayOrTensor
from .module import Module

__all__ = ["QuantizedWeight", "TrainedQuantizedWeight", "quantize"]


def largest_integer(bits: int) -> int:
    """The largest integer of so many bits whose negative is one as well."""
    if not isinstance(bits, int | np.integer) or not 2 <= bits <= 8:
        raise ArgumentError(f"quantize: bits must be 2 to 8, got {bits}")
    return int(2 ** (bits - 1) - 1)


def rounded(x: Any, axis: int, bits: int) -> mg.Tensor:
    """x as integers of so many bits hold it, one scale for each slice along the axis.

    No gradient flows into the scales; rounding itself counts as the identity.
    """
    x = x if isinstance(x, mg.Tensor) else mg.tensor(x)
    largest = mg.max(mg.abs(x.detach()), axis=axis, keepdims=True)
    s = mg.scale(largest, 1 / largest_integer(bits))
    return mg.fake_quantize(x, mg.where(s > 0, s, 1.0), bits)


class QuantizedWeight(Module):
    """A matrix as 8-bit integers:  W ≈ q · s, with one scale for each column.

        |W - q s| ≤ s / 2,    s_j = max_i |W_ij| / 127

    `layers.linear` multiplies by q s, with its rows rounded too. q and s are buffers: saved, and
    never trained.

    Args:    bits: 2 to 8; of fewer than 8, each integer still takes a byte.
    Shapes:  q (d_in, d_out) int8, s (1, d_out)
    Source:  Jacob et al. 2018, arXiv:1712.05877.

    >>> W = QuantizedWeight(np.array([[0.5, -2.0], [1.0, 0.0]]))
    >>> W.q.numpy()
    array([[  64, -127],
           [ 127,    0]], dtype=int8)
    >>> np.asarray(W).round(3)
    array([[ 0.504, -2.   ],
           [ 1.   ,  0.   ]])
    """

    buffers = ("q", "s")

    def __init__(self, W: ArrayLike, bits: int = 8) -> None:
        W = np.asarray(W)
        if W.ndim != 2 or W.dtype.kind != "f" or not np.isfinite(W).all():
            raise ArgumentError(
                f"QuantizedWeight: W must be a finite matrix of floats, got {W.dtype} {W.shape}"
            )
        wide = W.astype(np.promote_types(W.dtype, np.float32))  # float16 has too few digits for s
        s = np.abs(wide).max(axis=0, keepdims=True, initial=0) / largest_integer(bits)
        s = np.where(s == 0, 1, s)
        self.q = mg.tensor(np.rint(wide / s).astype(np.int8))
        self.s = mg.tensor(s.astype(W.dtype))
        self.shape, self.dtype = W.shape, W.dtype
        self.bits = bits

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.q.numpy() * self.s.numpy(), dtype)

    def product(self, x: ArrayOrTensor, b: ArrayOrTensor | None) -> Any:
        """x̃ (q s) + b, with each row of x rounded to as many bits."""
        W = mg.multiply(self.q, self.s)
        return linear(rounded(x, -1, self.bits), W, b)


class TrainedQuantizedWeight(Module):
    """A matrix that is trained for integers of few bits: rounded in every product, never itself.

        x̃ W̃ + b    with  x̃, W̃ = fake_quantize(x), fake_quantize(W),    as QuantizedWeight computes

    Gradients take the rounding for the identity and reach W, which keeps its full precision.

    Attributes: W (d_in, d_out), a parameter; bits.
    Source:  Jacob et al. 2018, section 3, arXiv:1712.05877.

    >>> W = TrainedQuantizedWeight(mg.tensor([[0.5, -2.0], [1.0, 0.0]], requires_grad=True))
    >>> W.product(mg.tensor([[127.0, 0.0]]), None).numpy().round(3)
    array([[  64., -254.]])
    """

    def __init__(self, W: mg.Tensor, bits: int = 8) -> None:
        largest_integer(bits)
        self.shape, self.dtype = W.shape, W.dtype
        self.W, self.bits = W, bits

    def product(self, x: ArrayOrTensor, b: ArrayOrTensor | None) -> Any:
        """x̃ W̃ + b."""
        W = rounded(self.W, 0, self.bits).named("W_rounded")
        return linear(rounded(x, -1, self.bits).named("x_rounded"), W, b)


class RoundedScores(Module):
    """Attention whose scores are integers of few bits, in a range seen before; larger ones are cut.

    Attributes: step, between two integers: a buffer.  looking: whether calls widen the range, and
        round nothing.
    """

    buffers = ("step",)
    looking = True

    def __init__(self, bits: int, dtype: DTypeLike | None) -> None:
        self.step, self.bits = mg.tensor(np.zeros((), dtype)), bits

    def forward(self, *call: Any, drop: Any = None) -> Attended:
        return exactly(*call, drop=drop, rounded=self.rounded)

    def rounded(self, S: mg.Tensor) -> mg.Tensor:
        if not self.looking:
            return mg.fake_quantize(S, self.step, self.bits)
        step = np.abs(S.numpy()).max(initial=0) / largest_integer(self.bits)
        self.step.assign_(np.maximum(self.step.numpy(), step).astype(S.dtype))
        return S


def quantize(
    model: Module,
    *example: Any,
    bits: int = 8,
    train: bool = False,
    scores: bool = False,
    **keywords: Any,
) -> Module:
    """A copy of a model whose products of rows and weights are those of integers of few bits.

    The matrices of Linear, attention and feed-forward layers are rounded; embeddings, norms and
    biases stay as they are.

    Args:
        example: what the model is called with, for the range of scores.
        bits: 2 to 8, of weights and of what they are multiplied with.
        train: a copy to be trained for it: its matrices stay parameters, at full precision, and
            every product rounds them. `quantize(copy, X, bits=bits)` then makes integers of them,
            which compute the same.
        scores: round the scores of MultiHeadAttention too, in the range that the example shows, or
            that they were trained in.
    Returns: the copy. Without train its matrices are no parameters, and it is in `eval()` mode.
    Raises: ArgumentError for other bits, or a model without such a matrix.

    >>> from layers import Linear
    >>> layer, X = Linear(3, 2, rng=0), np.eye(3)
    >>> small = quantize(layer, X)
    >>> bool(np.abs(small(X).numpy() - layer(X).numpy()).max() < 0.02), small.parameters()
    (True, [tensor([0., 0.], name='b', requires_grad=True)])
    """
    quantized = deepcopy(model).eval()
    if scores:
        _round_scores(quantized, bits, example, keywords)
    matrices = [
        (layer, name, vars(layer)[name])
        for layer in quantized.modules()
        for name in layer.products
        if vars(layer)[name] is not None
    ]
    if not matrices:
        raise ArgumentError(f"quantize: {type(model).__name__} multiplies by no matrix")
    for layer, name, W in matrices:
        W = W.W if isinstance(W, TrainedQuantizedWeight) else W
        value = TrainedQuantizedWeight(W, bits) if train else QuantizedWeight(W.numpy(), bits)
        setattr(layer, name, value)
    return quantized.train(train)


def _round_scores(
    model: Module, bits: int, example: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Round the scores of each exact attention in the range that it has in this call."""
    ways = []
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention) and layer.attend is exactly:
            layer.attend = RoundedScores(bits, layer.dtype)
            ways.append(layer.attend)
    if not ways:  # they were trained for it
        return
    with mg.no_grad():
        model(*example, **keywords)
    for way in ways:
        way.looking = False
