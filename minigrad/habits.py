"""What people type from habit, from PyTorch mostly, and what stands for it here: one table.

The error of a name that a Tensor, `mg` or `layers` does not have reads it, and the guide prints it.
What to write runs as it stands, where `x` is (2, 3), `targets` are two classes, `q` is (2, 7, 8),
and `model`, `layer`, `optimizer` and `rng` are what they say.
"""
# ruff: noqa: E501  (a row is a line)

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

import numpy as np

from .engine.errors import MissingNameError

__all__ = ["HABITS", "instead", "markdown", "missing"]

_HABIT_ROWS = """
view, view_as, unflatten | x.reshape(3, 2)
permute, movedim | x.transpose(1, 0)
t, transpose_ | x.swapaxes(0, 1)
unsqueeze | mg.expand_dims(x, 0)
numel, nelement | x.size
dim, ndimension | x.ndim
clone, copy | x.numpy().copy()
detach_ | x.detach()
float, double, half, type, type_as, to | x.astype(np.float32)
float32, float64, float16, int64, set_default_dtype | mg.tensor(np.ones(3, np.float32))
int, long, bool | x.numpy().astype(int)
cpu, cuda, device, contiguous, pin_memory | x
masked_fill, masked_fill_ | mg.where(x.data > 1, 0.0, x)
mm, bmm, mv, dot, inner | x @ x.T
add_, sub, mul, div, neg, pow, true_divide | x * x
clamp | mg.clip(x, 0.0, 1.0)
expand, expand_as | mg.broadcast_to(x, (5, 2, 3))
gather, scatter, index_select | mg.take_along_axis(x, targets[:, None], axis=1)
chunk, unbind, tensor_split | mg.split(x, 3, axis=1)
eq, ne, lt, le, gt, ge | x.numpy() > 0
isnan, isfinite, isinf, allclose, isclose, equal, floor, ceil | np.isfinite(x.numpy())
amax, amin | x.max(axis=1)
cat, concat | mg.concatenate([x, x], axis=0)
reciprocal, rsqrt | 1 / mg.sqrt(x)
log2, log10 | mg.log(x) / np.log(2.0)
tan, sinh, cosh | mg.sin(x) / mg.cos(x)
logsigmoid, log_sigmoid | -mg.softplus(-x)
one_hot | np.eye(5)[targets]
embedding | mg.take(x, targets % 2, axis=0)
zero_, fill_, copy_, sub_, mul_, div_, uniform_, normal_, set_ | x.assign_(np.zeros((2, 3)))
grad_fn | x.node
zero_grad | optimizer.zero_grad()
randn, rand, random, normal, uniform, randint, randperm | mg.tensor(rng.standard_normal((2, 3)))
arange, linspace, eye, full, empty, diag, zeros_like, ones_like | mg.tensor(np.arange(3.0))
from_numpy, as_tensor, asarray, array, Variable, FloatTensor | mg.tensor(np.ones(3))
requires_grad_ | x.requires_grad = False
Parameter, Value | mg.tensor(2.0, requires_grad=True)
manual_seed, seed, set_seed | np.random.default_rng(0)
nn, Linear, Module, Embedding, LSTM, Conv2d, SelfAttention, MultiHeadAttention | from minigrad import layers
F, functional | mg.relu(x)
autograd, value_and_grad, GradientTape | mg.grad(mg.sum(x * x), [x])
set_grad_enabled, inference_mode, stop_gradient | mg.no_grad()
jacrev, jacfwd, hessian | mg.jacobian(mg.square, x.detach())
jit | mg.compile(lambda a: mg.sum(a * a))
mean_squared_error, MSELoss | mg.mse_loss(x, np.ones((2, 3)))
CrossEntropyLoss, nll_loss, NLLLoss | mg.cross_entropy(x, targets)
sdpa, flash_attention | layers.scaled_dot_product_attention(q, q, q)
DataLoader, TensorDataset, Dataset | mg.data.batches(np.ones((4, 2)), batch_size=2, rng=rng)
Adam, AdamW, SGD, RMSprop, lr_scheduler | mg.optim.Adam(model.parameters(), lr=1e-3)
clip_grad_norm_, clip_grad_value_ | mg.optim.clip_grad_norm(model.parameters(), 1.0)
weight, bias, in_features, out_features | layer.W.shape, layer.b
children, named_modules | model.modules()
fit, predict | model(x)
weights, get_weights, trainable_weights, variables | model.parameters()
set_weights | model.load_state_dict(model.state_dict())
ModuleList, ModuleDict | [Linear(3, 3), Linear(3, 2)]
ReLU, Tanh, Sigmoid, GELU, SiLU, Softmax, Activation | Sequential(Linear(3, 5), mg.relu, Linear(5, 2))
MultiheadAttention, CausalSelfAttention | layers.MultiHeadAttention(8, 2)
TransformerEncoderLayer, TransformerEncoder | layers.TransformerBlock(8, 2)
causal_mask, generate_square_subsequent_mask | layers.create_causal_mask(5)
"""  # at most sixty

HABITS = {
    name: ours
    for names, ours in (row.split(" | ") for row in _HABIT_ROWS.strip().splitlines())
    for name in names.split(", ")
}
"""By what is typed, what to write."""


def instead(name: str, offered: Iterable[str] = ()) -> str:
    """What to write for a name that is not there; the nearest of those offered, or nothing.

    >>> instead("permute"), instead("reshap", ["reshape", "sum"]), instead("nothing like it")
    ('write x.transpose(1, 0)', 'the nearest is reshape', '')
    """
    if name in HABITS:
        return f"write {HABITS[name]}"
    if name in vars(sys.modules["minigrad"]).get("__all__", ()):
        return f"write mg.{name}"
    if hasattr(np.ndarray, name):
        return f"write x.numpy().{name}"
    near = get_close_matches(name, [x for x in offered if x[0] != "_"], n=1, cutoff=0.7)
    return f"the nearest is {near[0]}" if near else ""


def missing(what: str, name: str, offered: Iterable[str] = ()) -> MissingNameError:
    """The error of a name that is not there.

    >>> print(missing("module 'minigrad'", "cat"))
    module 'minigrad' has no attribute 'cat'; write mg.concatenate([x, x], axis=0)
    """
    remedy = "" if name[0] == "_" else instead(name, offered)
    return MissingNameError(f"{what} has no attribute {name!r}" + f"; {remedy}" * bool(remedy))


def markdown() -> str:
    """The table as the guide shows it."""
    rows = (row.split(" | ") for row in _HABIT_ROWS.strip().splitlines())
    cells = (f"| `{names.replace(', ', '`, `')}` | `{ours}` |\n" for names, ours in rows)
    return "| habit | minigrad |\n|---|---|\n" + "".join(cells)
