"""Inference with 8-bit integers: weights and activations rounded, products exact in integers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.errors import ArgumentError

from .module import Module

__all__ = ["QuantizedWeight", "quantize", "weight_bytes"]

TOP = 127  # the largest 8-bit integer; -128 is left out, so that -q is one as well
EXACT = 2**24 // TOP**2  # so many products of two such integers add up exactly in float32


def _rounded(x: Any, axis: int) -> tuple[Any, Any]:
    """Integers q of at most 127 and scales s with x ≈ q s, one scale for each slice."""
    top = np.abs(x).max(axis=axis, keepdims=True, initial=0)
    s = np.where(top > 0, top / TOP, 1).astype(x.dtype)
    return np.rint(x / s).astype(np.int8), s


class QuantizedWeight(Module):
    """A matrix as 8-bit integers:  W ≈ q · s, with one scale for each column.

        |W - q s| ≤ s / 2,    s_j = max_i |W_ij| / 127

    `layers.linear` multiplies by it in integers; anything else sees `q s` as an array. Both are
    buffers: saved, and never trained.

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

    def __init__(self, W: Any) -> None:
        if np.ndim(W) != 2 or not np.isfinite(W).all():
            raise ArgumentError(
                f"QuantizedWeight(W): W must be a finite matrix, got shape {np.shape(W)}"
            )
        self.q, self.s = map(mg.tensor, _rounded(np.asarray(W), axis=0))
        self.shape, self.dtype = self.q.shape, self.s.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.q * self.s, dtype)

    def __repr__(self) -> str:
        return f"QuantizedWeight{self.shape}: {weight_bytes(self):,} bytes"

    def product(self, x: Any, b: Any) -> Any:
        """x W + b, with each row of x rounded to 8 bits too."""
        return quantized_linear(x, b, q=self.q, s=self.s)


@mg.op(
    tex=r"\operatorname{int8}(<x>) <q> \odot <s> + <b>",
    vjp_tex={"x": r"<g> (<q> \odot <s>)^\top", "b": r"<g>"},
    flops=lambda x, b, out: 2 * out.size * x.shape[-1] + 2 * out.size + (b is not None) * out.size,
)
def quantized_linear(x: Any, b: Any = None, *, q: Any, s: Any) -> Any:
    """t (x_q q) s + b with x ≈ x_q t row by row; x_q and q are 8-bit integers, sums are exact.

    Going back, rounding counts as the identity (Bengio et al. 2013, arXiv:1308.3432).
    """
    rows, t = _rounded(np.asanyarray(x), axis=-1)
    wide = np.float32 if len(q) <= EXACT else np.float64  # sums of integers, by BLAS
    out = np.matmul(rows.astype(wide), q.astype(wide)).astype(s.dtype) * t * s
    return out if b is None else out + b


@quantized_linear.vjp("x")
def _(g: Any, q: Any, s: Any) -> Any:
    return np.matmul(g, (q * s).T)


@quantized_linear.vjp("b")
def _(g: Any) -> Any:
    return g


del mg.registry["quantized_linear"]  # rounding has no derivative that `minigrad check` could hold


class _Products(mg.Listener):
    """Hears which leaves an op multiplies a row by."""

    def __init__(self) -> None:
        self.weights: set[int] = set()

    def forward(self, op: Any, inputs: Any, settings: Any, output: Any, seconds: float) -> None:
        if op in (mg.linear, mg.matmul):
            self.weights.add(id(inputs[1]))


def quantize(model: Module, *example: Any, **keywords: Any) -> Module:
    """A copy of a model for inference, its products of rows and weights in 8-bit integers.

    Args: example: what the model is called with; which weights it multiplies by is seen from that
        call. Embeddings, norms and biases stay as they are.
    Returns: the copy, in `eval()` mode, whose matrices are no parameters; the model itself is
        unchanged.
    Raises: ArgumentError if the call multiplies by no parameter.

    >>> from layers import Linear, Sequential
    >>> model = Sequential(Linear(32, 64, rng=0), Linear(64, 3, rng=1))
    >>> x = np.random.default_rng(2).normal(size=(5, 32))
    >>> small = quantize(model, x)
    >>> bool(np.abs(small(x).numpy() - model(x).numpy()).max() < 0.05)
    True
    >>> weight_bytes(model), weight_bytes(small)
    (18456, 3312)
    """
    made = deepcopy(model).eval()
    heard = _Products()
    with mg.no_grad(), mg.listen(heard):
        made(*example, **keywords)
    found = [
        (module, name, value)
        for module in made.modules()
        for name, value in vars(module).items()
        if isinstance(value, mg.Tensor) and value.ndim == 2 and id(value) in heard.weights
    ]
    if not found:
        raise ArgumentError(
            f"quantize: {type(model).__name__} multiplied by none of its parameters"
        )
    for module, name, value in found:
        setattr(module, name, QuantizedWeight(value.numpy()))
    return made


def weight_bytes(model: Module) -> int:
    """Bytes that the arrays of a model take, buffers and quantized ones included."""
    leaves = [*model.named_parameters(), *model.named_buffers()]
    return sum(leaf.size * leaf.dtype.itemsize for _, leaf in leaves)
