"""The ops, each one declaration. Importing them fills the registry and Tensor's operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.context import current
from ..engine.errors import GradientError
from ..engine.op import registry
from ..engine.tensor import Tensor
from .activations import elu, leaky_relu, softplus
from .arithmetic import add, divide, multiply, negative, power, subtract
from .attention import mask_add, scale
from .channel_norms import batch_norm, group_norm
from .composed import (
    argmax,
    argmin,
    argsort,
    hstack,
    moveaxis,
    outer,
    ravel,
    tensordot,
    tile,
    topk,
    vstack,
)
from .convolution import avg_pool, conv1d, conv2d, max_pool
from .dropout import dropout
from .einsum import einsum
from .elementwise import cos, erf, expm1, log1p, sign, sin, square
from .entry_losses import binary_cross_entropy_with_logits, huber_loss, kl_div, mse_loss
from .functions import exp, gelu, log, sigmoid, silu, sqrt, tanh
from .losses import cross_entropy, nll_loss
from .measures import norm, prod, std
from .norms import layer_norm, rms_norm
from .numpy_protocol import array_function, array_ufunc
from .piecewise import abs, astype, clip, maximum, minimum, relu, where
from .products import linear, matmul
from .rearrange import flip, repeat, roll, sort, take_along_axis, tril, triu
from .recurrent import gru, lstm, rnn
from .reduce import cumsum, max, mean, min, sum, var
from .scaled_dot_product import scaled_dot_product_attention
from .select import getitem, scatter_add, split, take
from .shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    pad,
    reshape,
    squeeze,
    stack,
    swapaxes,
    transpose,
)  # fmt: skip
from .softmax import log_softmax, logsumexp, softmax

__all__ = [
    "abs", "add", "argmax", "argmin", "argsort", "astype", "avg_pool", "batch_norm",
    "binary_cross_entropy_with_logits", "broadcast_to", "clip", "concatenate", "conv1d",
    "conv2d", "cos", "cross_entropy", "cumsum", "divide", "dropout", "einsum", "elu", "erf",
    "exp", "expand_dims", "expm1", "flip", "gelu", "getitem", "group_norm", "gru", "hstack",
    "huber_loss", "kl_div", "layer_norm", "leaky_relu", "linear", "log", "log1p", "log_softmax",
    "logsumexp", "lstm", "mask_add", "matmul", "max", "max_pool", "maximum", "mean", "min",
    "minimum", "moveaxis", "mse_loss", "multiply", "negative", "nll_loss", "norm", "outer",
    "pad", "power", "prod", "ravel", "relu", "repeat", "reshape", "rms_norm", "rnn", "roll",
    "scale", "scaled_dot_product_attention", "scatter_add", "sigmoid", "sign", "silu", "sin",
    "softmax", "softplus", "sort", "split", "sqrt", "square", "squeeze", "stack", "std",
    "subtract", "sum", "swapaxes", "take", "take_along_axis", "tanh", "tensordot", "tile",
    "topk", "transpose", "tril", "triu", "var", "vstack", "where",
]  # fmt: skip

_OPERATORS = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "pow": power,
    "matmul": matmul,
}

_METHODS = (
    "abs astype clip cumsum exp log log_softmax max mean min prod relu repeat sigmoid softmax sqrt "
    "squeeze std sum swapaxes take tanh var"
).split()


_apply = Tensor.__apply__  # what Op.__call__ would come to, without the way there


def _operator(op: Any) -> Any:
    return lambda self, other: _apply(op, (self, other), ())


def _reflected(op: Any) -> Any:
    return lambda self, other: _apply(op, (other, self), ())


def _spread(method: Any) -> Any:
    """A method that takes its shape or axes as one tuple or as several integers, like NumPy's."""
    return lambda self, *sizes: method(self, sizes[0] if len(sizes) == 1 else sizes or None)


def _in_place(op: Any, sign: str) -> Any:
    """`x += y`: a new tensor while recording; within no_grad(), a write into a leaf."""

    def operator(self: Tensor, other: Any) -> Tensor:
        recording = current().recording
        if not recording and self.is_leaf:
            new = _apply(op, (self, other), ())
            if new.dtype != self.dtype and np.can_cast(new.dtype, self.dtype, "same_kind"):
                new = astype(new, self.dtype)
            return self.assign_(new)
        if recording and not (self.is_leaf and self.requires_grad):
            return _apply(op, (self, other), ())
        name = self.path or "x"
        if recording:
            raise GradientError(
                f"{name} {sign} …: {name} is a leaf that requires a gradient; write to it within "
                f"`with mg.no_grad():`, or by {name}.assign_(array); {name} = {name} {sign[:-1]} … "
                "makes a new tensor"
            )
        raise GradientError(
            f"{name} {sign} …: {name} was computed by {self.node.op.name}, whose backward may need "
            f"it as it is; write {name} = {name} {sign[:-1]} … for a new tensor"
        )

    return operator


for _name, _sign, _op in (
    ("add", "+=", add),
    ("sub", "-=", subtract),
    ("mul", "*=", multiply),
    ("truediv", "/=", divide),
    ("pow", "**=", power),
    ("matmul", "@=", matmul),
):
    setattr(Tensor, f"__i{_name}__", _in_place(_op, _sign))
for _name, _op in _OPERATORS.items():
    setattr(Tensor, f"__{_name}__", _operator(_op))
    setattr(Tensor, f"__r{_name}__", _reflected(_op))
for _name in _METHODS:
    setattr(Tensor, _name, registry[_name])
_ATTACHED = {
    "__neg__": negative,
    "__abs__": abs,
    "__getitem__": getitem,
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "argmax": argmax,
    "argmin": argmin,
    "argsort": argsort,
    "flatten": ravel,
    "ravel": ravel,
    "reshape": _spread(reshape),
    "transpose": _spread(transpose),
    "T": property(lambda self: transpose(self)),
    "mT": property(lambda self: swapaxes(self, -1, -2)),
}
for _name, _attribute in _ATTACHED.items():
    setattr(Tensor, _name, _attribute)
