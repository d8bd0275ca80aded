"""minigrad: a tiny tensor-and-op autograd engine on NumPy that shows its work.

>>> import numpy as np, minigrad as mg
>>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
>>> (x * x).sum().backward()
>>> x.grad
array([2., 4.])
"""

from importlib import import_module
from importlib.util import find_spec
from os import environ
from typing import TYPE_CHECKING

from . import errors
from .anomaly import anomaly
from .engine.context import (
    Listener,
    enable_grad,
    expect_gradients,
    listen,
    mark_constant,
    mark_input,
    no_grad,
    scope,
)
from .engine.errors import CompileWarning
from .engine.op import Op, call, op, registry
from .engine.tensor import Tensor, tensor
from .functional import checkpoint, grad, hvp, jacobian, jvp, vjp
from .lazy_imports import lazy_imports
from .ops import (
    abs,
    add,
    astype,
    avg_pool,
    batch_norm,
    binary_cross_entropy_with_logits,
    broadcast_to,
    clip,
    concatenate,
    conv1d,
    conv2d,
    cos,
    cross_entropy,
    cumsum,
    divide,
    dropout,
    einsum,
    elu,
    erf,
    exp,
    expand_dims,
    expm1,
    gelu,
    getitem,
    group_norm,
    gru,
    huber_loss,
    kl_div,
    layer_norm,
    leaky_relu,
    linear,
    log,
    log1p,
    log_softmax,
    logsumexp,
    lstm,
    mask_add,
    mask_rules,
    matmul,
    max,
    max_pool,
    maximum,
    mean,
    min,
    minimum,
    mse_loss,
    multiply,
    negative,
    nll_loss,
    pad,
    power,
    relu,
    reshape,
    rms_norm,
    rnn,
    scale,
    scaled_dot_product_attention,
    scatter_add,
    sigmoid,
    sign,
    silu,
    sin,
    softmax,
    softplus,
    split,
    sqrt,
    square,
    squeeze,
    stack,
    subtract,
    sum,
    swapaxes,
    take,
    tanh,
    transpose,
    var,
    where,
)
from .ops.scaled_dot_product import attention_method
from .tracing import Trace, draw, trace

if TYPE_CHECKING:
    from . import data as data
    from . import optim as optim
    from .check import compare, gradcheck
    from .fast.compiler import compile
    from .fast.tiles import tiled_attention as tiled_attention
    from .saving import load, save
    from .views.notebook import module_bundle as module_bundle
    from .views.progress import progress
    from .watching import watch

__all__ = [
    "CompileWarning",
    "Listener",
    "Op",
    "Tensor",
    "Trace",
    "abs",
    "add",
    "anomaly",
    "astype",
    "attention_method",
    "avg_pool",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "broadcast_to",
    "call",
    "checkpoint",
    "clip",
    "compare",
    "compile",
    "concatenate",
    "conv1d",
    "conv2d",
    "cos",
    "cross_entropy",
    "cumsum",
    "data",
    "divide",
    "draw",
    "dropout",
    "einsum",
    "elu",
    "enable_grad",
    "erf",
    "errors",
    "exp",
    "expand_dims",
    "expect_gradients",
    "expm1",
    "gelu",
    "getitem",
    "grad",
    "gradcheck",
    "group_norm",
    "gru",
    "huber_loss",
    "hvp",
    "jacobian",
    "jvp",
    "kl_div",
    "layer_norm",
    "leaky_relu",
    "linear",
    "listen",
    "load",
    "log",
    "log1p",
    "log_softmax",
    "logsumexp",
    "lstm",
    "mark_constant",
    "mark_input",
    "mask_add",
    "mask_rules",
    "matmul",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mse_loss",
    "multiply",
    "negative",
    "nll_loss",
    "no_grad",
    "op",
    "optim",
    "pad",
    "power",
    "progress",
    "registry",
    "relu",
    "reshape",
    "rms_norm",
    "rnn",
    "save",
    "scale",
    "scaled_dot_product_attention",
    "scatter_add",
    "scope",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tanh",
    "tensor",
    "trace",
    "transpose",
    "var",
    "vjp",
    "watch",
    "where",
]


_FAST = environ.get("MINIGRAD_FAST", "1") != "0" and find_spec("minigrad.fast") is not None
if _FAST:
    import_module("minigrad.fast")

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "check": "compare gradcheck",
        "data": "",
        "optim": "",
        "saving": "load save",
        "views.notebook": "module_bundle",
        "views.progress": "progress",
        "watching": "watch",
    }
    | (
        {
            "fast.compiler": "compile",
            "fast.tiles": "attend_block attend_block_backward tiled_attention",
        }
        if _FAST
        else {"without_fast": "compile tiled_attention"}
    ),
)
