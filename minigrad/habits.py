"""What people type from habit, and what stands for it here: the tables that errors and guide read.

`HABITS`: names, of PyTorch mostly and of texts on attention. `KEYWORDS`: names of arguments. What to
write instead of a name runs as it stands, where `x` is (2, 3), `targets` are two classes, `tokens`
seven words, `q` is (2, 7, 8), `image` (1, 3, 4, 4), `kernel` (5, 3, 3, 3), `A` (7, 7) weights,
and `model`, `layer`, `attention`, `optimizer` and `rng` are what they say. This file imports nothing
of ours, so that every room can read it.
"""
# ruff: noqa: E501  (a row is a line)

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

import numpy as np

__all__ = ["HABITS", "KEYWORDS", "instead", "instead_of_keywords", "missing"]

PYTORCH = """
view, unflatten | x.reshape(3, 2)
flatten | x.ravel()
permute | x.transpose(1, 0)
t | x.swapaxes(0, 1)
unsqueeze | mg.expand_dims(x, 0)
numel | x.size
dim | x.ndim
clone | x + 0.0
copy | x.numpy().copy()  # a plain array, without a gradient
detach_ | x.detach()
float, double, half, type, to | x.astype(np.float32)
float32, float64, float16, int64, set_default_dtype | mg.tensor(np.ones(3, np.float32))
int, long, bool | x.numpy().astype(int)
cpu, cuda, device, contiguous, pin_memory | x
masked_fill, masked_fill_ | mg.where(x.data > 1, 0.0, x)
mm, bmm, dot | x @ x.T
add_, sub, mul, div, neg, pow, true_divide | x * x
clamp | mg.clip(x, 0.0, 1.0)
expand | mg.broadcast_to(x, (5, 2, 3))
tile | mg.concatenate([x, x], axis=0)
gather, index_select | mg.take_along_axis(x, targets[:, None], axis=1)
scatter, scatter_, scatter_add_, index_add | mg.scatter_add(x, targets, (5, 3))
sort | mg.take_along_axis(x, np.argsort(x.numpy(), axis=1), axis=1)
topk | mg.take_along_axis(x, np.argsort(-x.numpy(), axis=1)[:, :2], axis=1)
chunk, unbind | mg.split(x, 3, axis=1)
diag, diagonal | x[np.arange(2), np.arange(2)]
tril, triu | x * np.tri(2, 3)
cumprod | mg.exp(mg.cumsum(mg.log(x), axis=1))
eq, ne, lt, le, gt, ge | x.numpy() > 0
isnan, isfinite, isinf | np.isfinite(x.numpy())
allclose, isclose, equal | np.allclose(x, x)
floor, ceil, round | np.floor(x.numpy())  # its gradient is 0
amax, amin | x.max(axis=1)
cat, concat | mg.concatenate([x, x], axis=0)
reciprocal, rsqrt | 1 / mg.sqrt(x)
log2, log10 | mg.log(x) / np.log(2.0)
tan, sinh, cosh | mg.sin(x) / mg.cos(x)
logsigmoid, log_sigmoid | -mg.softplus(-x)
one_hot | np.eye(5)[targets]
embedding | mg.take(x, targets % 2, axis=0)
zero_, fill, fill_, copy_, put, sub_, mul_, div_, normal_ | x.assign_(np.zeros((2, 3)))
grad_fn | x.node
zero_grad | optimizer.zero_grad()
randn, rand, random, normal, uniform, randint, randperm | mg.tensor(rng.standard_normal((2, 3)))
arange, linspace, eye, full, empty, zeros_like, ones_like | mg.tensor(np.arange(3.0))
from_numpy, as_tensor, asarray, array, Variable | mg.tensor(np.ones(3))
requires_grad_ | model.freeze()  # of one tensor: x.requires_grad = False
Parameter, Value | mg.tensor(2.0, requires_grad=True)
manual_seed, seed, set_seed | np.random.default_rng(0)
nn, Linear, Module, Embedding, LSTM, Conv2d, SelfAttention, MultiHeadAttention | from minigrad import layers
F, functional | mg.relu(x)
autograd, value_and_grad, GradientTape | mg.grad(mg.sum(x * x), [x])
set_grad_enabled, inference_mode | mg.no_grad()
stop_gradient | x.detach()
jacrev, jacfwd, hessian | mg.jacobian(mg.square, x.detach())
jit | mg.compile(lambda a: mg.sum(a * a))
mean_squared_error, MSELoss | mg.mse_loss(x, np.ones((2, 3)))
CrossEntropyLoss, nll_loss, NLLLoss | mg.cross_entropy(x, targets)
DataLoader, Dataset | mg.data.batches(np.ones((4, 2)), batch_size=2, rng=rng)
Adam, AdamW, SGD, RMSprop | mg.optim.Adam(model.parameters(), lr=1e-3)
lr_scheduler, CosineAnnealingLR, StepLR | mg.optim.schedule.cosine(optimizer, steps=100, warmup=10)
GradScaler, amp | mg.optim.LossScale(optimizer)
clip_grad_norm_, clip_grad_value_ | mg.optim.clip_grad_norm(model.parameters(), 1.0)
weight, bias, in_features, out_features | layer.W.shape, layer.b
children, named_modules | model.modules()
fit, predict | model(x)
weights, get_weights, variables | model.parameters()
set_weights | model.load_state_dict(model.state_dict())
ModuleList, ModuleDict | [Linear(3, 3), Linear(3, 2)]
ReLU, Tanh, Sigmoid, GELU, SiLU, Softmax, Activation | Sequential(Linear(3, 5), mg.relu, Linear(5, 2))
conv_transpose2d, ConvTranspose2d, interpolate, Upsample | mg.conv2d(image.repeat(2, axis=2).repeat(2, axis=3), kernel, padding=1)
pack_padded_sequence, pad_packed_sequence | layers.LSTM(8, 5)(q, mask=np.arange(7) < [[7], [4]])
MultiheadAttention | layers.MultiHeadAttention(8, 2)
TransformerEncoderLayer | layers.TransformerBlock(8, 2)
TransformerEncoder | layers.Encoder(2, 8, 2)
TransformerDecoderLayer | layers.TransformerBlock(8, 2, cross=True, mask=layers.causal)(q, context=q)
TransformerDecoder | layers.Decoder(2, 8, 2)(q, context=q)
causal_mask, generate_square_subsequent_mask | layers.create_causal_mask(5)
"""

TEXTS = """
self_attention, scaled_dot_product_attention, sdpa | layers.scaled_dot_product_attention(q, q, q)
CausalSelfAttention, causal_self_attention | layers.SelfAttention(8, 4, 4, mask=layers.causal)
MultiHeadSelfAttention | layers.MultiHeadAttention(8, 2, mask=layers.causal)
flash_attention, FlashAttention | mg.tiled_attention(q, q, q)  # in tiles, no n × n matrix
Longformer, BigBird | layers.MultiHeadAttention(8, 2, mask=layers.window(2) | layers.global_tokens(0))
LinearAttention | layers.MultiHeadAttention(8, 2, attend=layers.LinearKernel())
GQA, MQA, GroupedQueryAttention | layers.MultiHeadAttention(8, 2, n_kv_heads=1)
RoPE, RotaryEmbedding | layers.MultiHeadAttention(8, 2, position=layers.Rotary(4))
PositionalEncoding, sinusoidal_position_encoding | layers.sinusoidal_encoding(7, 8)
visualize_attention, plot_attention | from minigrad.views.attention import read_attention; print(read_attention(tokens, A))
create_padding_mask | layers.padding_mask([7, 4])
_cache | attention.cache
d_k, d_v | attention.W_Q.shape[1]
use_bias | attention.b_Q is not None
"""

KEYWORD_ROWS = """
dim, dims | axis
keepdim | keepdims
input, tensor | x, X, logits
other, exponent | b
labels, label, y_true | targets, target
min | low
max | high
correction, unbiased | ddof
size, newshape | shape
bias | use_bias, b
kernel_size | size
in_channels, in_features, input_size, input_dim | d_in, channels
out_channels, out_features, output_size, output_dim, units | d_out
hidden_size, hidden_dim | d_hidden, d_model
embed_dim, embedding_dim | d_model
num_heads, nhead, heads | n_heads
num_kv_heads | n_kv_heads
num_layers, depth | n_layers
num_embeddings, vocab_size | n_tokens
dim_feedforward, intermediate_size, d_hidden | d_ff
num_features, num_channels, normalized_shape | channels, d
num_groups | groups
norm_first | pre_norm
dropout_p, rate | dropout, p
attn_mask, attention_mask, key_padding_mask | "mask=, where True is: may attend"
is_causal, causal | "give a mask: mask=layers.causal"
need_weights | return_weights
key, value, memory | context
learning_rate | lr
device | "leave it out: all runs on the CPU"
batch_first | "leave it out: the batch comes first"
inplace, out | "leave it out: a result is a new tensor"
shuffle | "give a generator: rng=np.random.default_rng(0) shuffles"
reduction | "a loss is a mean: multiply it by the number of its terms for the sum"
cross_entropy.weight | "w = weight[targets]; loss = (w * -mg.log_softmax(logits)[np.arange(len(w)), targets]).sum() / w.sum()"
bce_with_logits.pos_weight | "loss = mg.mean((1 - targets) * mg.softplus(x) + pos_weight * targets * mg.softplus(-x))"
"""


def _by_name(rows: str) -> dict[str, str]:
    pairs = [row.split(" | ", 1) for row in rows.strip().splitlines()]
    return {name: ours for names, ours in pairs for name in names.split(", ")}


HABITS = _by_name(PYTORCH + TEXTS.lstrip())

KEYWORDS = _by_name(KEYWORD_ROWS)


def instead(name: str, offered: Iterable[str] = ()) -> str:
    """What to write for a name that is not there; the nearest of those offered, or nothing.

    >>> instead("permute"), instead("reshap", ["reshape", "sum"]), instead("nothing like it")
    ('write x.transpose(1, 0)', 'the nearest is reshape', '')
    """
    if name in HABITS:
        return f"write {HABITS[name]}"
    if name[0] == "_":
        return ""
    if name in vars(sys.modules["minigrad"]).get("__all__", ()):
        return f"write mg.{name}"
    if hasattr(np.ndarray, name):
        return f"write x.numpy().{name}, where the gradient ends"
    near = get_close_matches(name, [x for x in offered if x[0] != "_"], n=1, cutoff=0.7)
    return f"the nearest is {near[0]}" if near else ""


def missing(what: str, name: str, offered: Iterable[str] = ()) -> str:
    """What the error of a name that is not there says.

    >>> missing("module 'minigrad'", "cat")
    "module 'minigrad' has no attribute 'cat'; write mg.concatenate([x, x], axis=0)"
    """
    remedy = instead(name, offered)
    message = f"{what} has no attribute {name!r}"
    return f"{message}; {remedy}" if remedy else message


def instead_of_keywords(call: str, keywords: Iterable[str], offered: Iterable[str]) -> str:
    """What to write for the first keyword that a call does not take, to end an error with.

    Args: call: name of the function or class.  offered: the names of its parameters.

    >>> instead_of_keywords("sum", ["dim"], ["x", "axis", "keepdims"])
    '; write axis= for dim='
    >>> instead_of_keywords("LSTM", ["d_in", "batch_first"], ["d_in", "d_hidden"])
    '; batch_first=: leave it out: the batch comes first'
    """
    offered = [*offered]
    for keyword in keywords:
        if keyword in offered:
            continue
        ours = KEYWORDS.get(f"{call}.{keyword}", KEYWORDS.get(keyword, ""))
        if ours[:1] == '"':
            return f"; {keyword}=: {ours[1:-1]}"
        names = [name for name in ours.split(", ") if name in offered]
        names = names or get_close_matches(keyword, offered, n=1, cutoff=0.6)
        return f"; write {names[0]}= for {keyword}=" if names else ""
    return ""
