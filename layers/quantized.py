"""Inference with integers of few bits, and training for it: weights and activations are rounded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, explained

from .arrays import Array
from .attention import Attention
from .linear import check_sizes
from .module import Module, named
from .options import AttentionOption, TokenPositions
from .parameters import is_parameter

__all__ = ["QuantizedWeight", "TrainedQuantizedWeight", "quantize", "weight_bytes"]


def largest_integer(bits: int) -> int:
    """The largest integer of so many bits whose negative is one as well."""
    return int(2 ** (bits - 1) - 1)


def _check_bits(call: str, bits: int) -> None:
    """Raise ArgumentError unless bits is an integer of 2 to 8."""
    if not (isinstance(bits, int | np.integer) and 2 <= bits <= 8):
        raise ArgumentError(f"{call}: bits must be 2 to 8, got {bits}")


def _rounded(x: NDArray[Any], axis: int, bits: int = 8) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Integers q of so many bits and scales s with x ≈ q s, one scale for each slice.

    Of float16, s is float32: a small scale would have few digits, and q s could exceed x.
    """
    x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    largest = np.abs(x).max(axis=axis, keepdims=True, initial=0)
    s = np.where(largest == 0, 1, largest / largest_integer(bits)).astype(x.dtype)
    with np.errstate(invalid="ignore"):  # NaN and infinities stand in s
        return np.rint(x / s).astype(np.int8), s


def _scale(x: mg.Tensor, axis: int, bits: int) -> mg.Tensor:
    """The scales of `_rounded`, by ops; no gradient flows into them."""
    largest = mg.max(mg.abs(x.detach()), axis=axis, keepdims=True)
    s = mg.scale(largest, 1 / largest_integer(bits))
    return mg.where(s > 0, s, 1.0)


class QuantizedWeight(Module):
    """A matrix as 8-bit integers:  W ≈ q · s, with one scale for each column.

        |W - q s| ≤ s / 2,    s_j = max_i |W_ij| / 127

    `layers.linear` multiplies by it in integers; anything else gets `q s` as an array. Both are
    buffers: saved, and never trained.

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
        if np.ndim(W) != 2 or not np.isfinite(W).all():
            raise ArgumentError(
                f"QuantizedWeight(W): W must be a finite matrix, got shape {np.shape(W)}"
            )
        _check_bits("QuantizedWeight", bits)
        W = np.asarray(W)
        W = W if W.dtype.kind == "f" else W.astype(np.float64)  # scales are no integers
        q, s = _rounded(W, axis=0, bits=bits)
        self.q = mg.tensor(q)
        self.s = mg.tensor(s.astype(W.dtype, copy=False))
        self.bits = bits
        self.shape = self.q.shape
        self.dtype = self.s.dtype

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        return np.asarray(self.q * self.s, dtype)

    def __repr__(self) -> str:
        return f"QuantizedWeight{self.shape}: {weight_bytes(self):,} bytes"

    def product(self, x: Array, b: Array | None) -> mg.Tensor:
        """x W + b, with each row of x rounded to as many bits too."""
        return quantized_linear(x, b, q=self.q, s=self.s, bits=self.bits)


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

    unrounded = ("W",)

    def __init__(self, W: mg.Tensor, bits: int = 8) -> None:
        _check_bits("TrainedQuantizedWeight", bits)
        self.W = W
        self.bits = bits
        self.shape = W.shape
        self.dtype = W.dtype

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        return np.asarray(self.W.numpy(), dtype)

    def product(self, x: Array, b: Array | None) -> mg.Tensor:
        """x̃ W̃ + b."""
        x = x if isinstance(x, mg.Tensor) else mg.tensor(x)
        W = mg.fake_quantize(self.W, _scale(self.W, 0, self.bits), self.bits).named("W_rounded")
        x = mg.fake_quantize(x, _scale(x, -1, self.bits), self.bits).named("x_rounded")
        return mg.matmul(x, W) if b is None else mg.linear(x, W, b)


class RoundedScores(Module, AttentionOption):
    """The scores of attention as integers of few bits hold them, in a range seen before.

    Args: largest: of the scores' absolute values, as an example showed them; larger ones are cut.
    Attributes: step, between two integers: a buffer, saved with the model.
    """

    buffers = ("step",)

    def __init__(self, largest: float, bits: int, dtype: DTypeLike | None) -> None:
        self.step = mg.tensor(np.asarray(largest / largest_integer(bits), dtype))
        self.bits = bits

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
        return named("S_rounded", mg.fake_quantize(S, self.step, self.bits))


class _ScoreRange(AttentionOption):
    """Records the largest absolute score."""

    largest = 0.0

    def scores(self, S: Any, Q: Array, K: Array, at: TokenPositions) -> Any:
        self.largest = max(self.largest, float(np.abs(S.numpy()).max(initial=0)))
        return S


EXACT_TERMS = 2**24 // largest_integer(8) ** 2  # a sum of so many products is exact in float32


@mg.op(
    tex=r"\operatorname{int}_{<bits>}(<x>) <q> \odot <s> + <b>",
    vjp_tex={"x": r"<g> (<q> \odot <s>)^\top", "b": r"<g>"},
    flops=lambda x, b, out: 2 * out.size * x.shape[-1] + 2 * out.size + (b is not None) * out.size,
    analytic=False,
    kinks=lambda: True,  # it rounds; gradients take rounding for the identity
)
def quantized_linear(
    x: Array, b: Array | None = None, *, q: Array, s: Array, bits: int = 8
) -> NDArray[Any]:
    """t (x_q q) s + b with x ≈ x_q t row by row; x_q and q are integers, sums are exact.

    Going back, rounding counts as the identity (Bengio et al. 2013, arXiv:1308.3432).
    """
    rows, t = _rounded(np.asanyarray(x), axis=-1, bits=bits)
    wide = np.float32 if len(q) <= EXACT_TERMS else np.float64  # sums of integers, by BLAS
    sums = np.matmul(rows.astype(wide), q.astype(wide))  # float16 would not hold them
    out = (sums.astype(np.promote_types(s.dtype, np.float32)) * t * s).astype(s.dtype, copy=False)
    return out if b is None else out + b


@quantized_linear.vjp("x")
def _(g: Any, q: Any, s: Any) -> Any:
    """The gradient is multiplied by the weights, transposed, as if nothing were rounded."""
    return np.matmul(g, (q * s).T)


@quantized_linear.vjp("b")
def _(g: Any) -> Any:
    """The gradient is summed over the rows."""
    return g


del mg.registry["quantized_linear"]  # rounding has no derivative that `minigrad check` could hold


class _Products(mg.Listener):
    """The leaves that ops multiply rows by."""

    def __init__(self) -> None:
        self.weights: set[int] = set()

    def forward(self, op: Any, inputs: Any, settings: Any, output: Any, seconds: float) -> None:
        if op in (mg.linear, mg.matmul):
            self.weights.add(id(inputs[1]))


@explained
def quantize(
    model: Module,
    *example: Any,
    bits: int = 8,
    train: bool = False,
    scores: bool = False,
    **keywords: Any,
) -> Module:
    """A copy of a model whose products of rows and weights are those of integers of few bits.

    Args: example: what the model is called with; which weights it multiplies by is seen from that
            call. Embeddings, norms, biases and the adapters of `lora` stay as they are.
        bits: 2 to 8, of weights and of what they are multiplied with.
        train: a copy to be trained for it: its matrices stay parameters, at full precision, and
            every product rounds them and its rows (TrainedQuantizedWeight). `quantize(copy, X,
            bits=bits)` then makes integers of them, which compute the same.
        scores: round the scores of attention too, in the range that the example shows, or that they
            were trained in.
    Returns: the copy. Without train its matrices are no parameters, and it is in `eval()` mode. The
        model itself is unchanged.
    Raises: ArgumentError without an example, if its call multiplies by no parameter, or for other
        bits.
    Source: Jacob et al. 2018, arXiv:1712.05877.

    >>> from layers import Linear, Sequential
    >>> model = Sequential(Linear(32, 64, rng=0), Linear(64, 3, rng=1))
    >>> x = np.random.default_rng(2).normal(size=(5, 32))
    >>> small = quantize(model, x)
    >>> bool(np.abs(small(x).numpy() - model(x).numpy()).max() < 0.05)
    True
    >>> weight_bytes(model), weight_bytes(small)
    (18456, 3312)
    >>> [path for path, _ in quantize(model, x, bits=4, train=True).named_parameters()][:2]
    ['layers.0.b', 'layers.0.W.W']
    """
    check_sizes("quantize", bits=bits)
    _check_bits("quantize", bits)
    if not example and not keywords:
        raise ArgumentError(
            "quantize: which weights are multiplied is seen from a call; give the model's inputs "
            "too, quantize(model, X)"
        )
    quantized = deepcopy(model).eval()
    ranges: dict[Attention, _ScoreRange] = {}
    for module in quantized.modules() if scores else ():
        if isinstance(module, Attention) and module.rounding is None:
            module.rounding = ranges[module] = _ScoreRange()
    products = _Products()
    with mg.no_grad(), mg.listen(products):
        quantized(*example, **keywords)
    matrices = list(_multiplied(quantized, products.weights))
    if not matrices:
        raise ArgumentError(
            f"quantize: {type(model).__name__} multiplied by none of its parameters"
        )
    for module, name, W in matrices:
        value = TrainedQuantizedWeight(W, bits) if train else QuantizedWeight(W.numpy(), bits)
        setattr(module, name, value)
    for attention, score in ranges.items():
        attention.rounding = RoundedScores(score.largest or 1.0, bits, attention.dtype)
    return quantized.train() if train else quantized


def _multiplied(model: Module, weights: Collection[int]) -> Iterator[tuple[Module, str, mg.Tensor]]:
    """The matrices whose ids are among these, and those already trained: layer, attribute, W."""
    for module in model.modules():
        unrounded = getattr(module, "unrounded", ())  # matrices of this layer that stay as they are
        for name, value in vars(module).items():
            if isinstance(value, TrainedQuantizedWeight):
                yield module, name, value.W
            elif name in unrounded or not is_parameter(value):
                continue
            elif value.ndim == 2 and id(value) in weights:
                yield module, name, value


@explained
def weight_bytes(model: Module) -> int:
    """Bytes that the arrays of a model take, buffers and quantized ones included."""
    leaves = [*model.named_parameters(), *model.named_buffers()]
    return sum(leaf.size * leaf.dtype.itemsize for _, leaf in leaves)
