"""What people type from habit, from PyTorch mostly, and what stands for it here: one table.

Errors read it: a Tensor's, a layer's and the packages' missing names, and keywords that a call does
not have. The guide prints it. Each row is what is typed (several names share one), what to write
here, and one sentence. What to write runs as it stands, where `x` is (2, 3), `targets` are two
classes, `tokens` integers, and `model`, `layer`, `optimizer` and `rng` are what they say.
"""
# ruff: noqa: E501  (a row is a line)

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Habit", "for_keyword", "for_name", "is_habit", "markdown", "rows", "tensor_names"]

TENSOR_HABITS = """
view, view_as | x.reshape(3, 2) | NumPy's name.
permute | x.transpose(1, 0) | It takes every axis, as NumPy's does.
transpose_ | x.swapaxes(0, 1) | Nothing is transposed in place.
t | x.T | For a batch of matrices write x.mT.
unsqueeze | mg.expand_dims(x, 0) | NumPy's name.
size | x.shape | x.size is the number of entries, as in NumPy; x.shape[0] is the first axis.
numel, nelement | x.size | NumPy's name.
dim, ndimension | x.ndim | NumPy's name.
clone | x * 1.0 | Ops never write to their inputs, so a copy is rarely needed; x.numpy().copy() is an array.
copy | x.numpy().copy() | x.detach() is a tensor cut from the graph.
float, double, half, type, type_as | x.astype(np.float32) | NumPy's dtypes, by NumPy's name.
int, long, bool | x.numpy().astype(int) | Integers have no gradient, so they are arrays.
to | x.astype(np.float32) | Only the dtype can change: every tensor is in the computer's own memory.
cpu, cuda, device, contiguous | x | Leave it out: every tensor is in the computer's own memory.
masked_fill, masked_fill_ | mg.where(x.data > 1, 0.0, x) | The mask first, then what stands where it is True.
mm, bmm, mv, matmul, dot, inner | x @ x.T | Batches are multiplied matrix by matrix.
add, sub, subtract, mul, multiply, div, divide | x * x | Operators, or mg.add and the like.
pow | x**2 | Or mg.power(x, 2).
neg | -x | Or mg.negative(x).
clamp | x.clip(0.0, 1.0) | NumPy's name.
expand, expand_as | mg.broadcast_to(x, (5, 2, 3)) | Operators broadcast by themselves.
repeat_interleave | x.repeat(2, axis=0) | NumPy's name.
gather | mg.take_along_axis(x, targets[:, None], axis=1) | NumPy's name.
index_select | x.take(targets, axis=1) | NumPy's name; x[:, targets] does the same.
chunk | mg.split(x, 3, axis=1) | As many equal parts.
unbind | list(x) | Along the first axis.
eq, ne, lt, le, gt, ge | x.numpy() > 0 | A comparison is an array of booleans.
isnan, isfinite, isinf | np.isfinite(x.numpy()) | For the first NaN of a run, with its op: mg.anomaly().
amax, amin | x.max(axis=1) | NumPy's name; x.min too.
cat, concat | mg.concatenate([x, x], axis=0) | NumPy's name.
reciprocal, rsqrt | 1 / x | Or 1 / mg.sqrt(x).
zero_grad | x.grad = None | Or optimizer.zero_grad().
grad_fn | x.node | The op that made it, with its edges and what it saved.
detach_ | x.detach() | The result shares x's memory.
zero_, fill_, copy_, add_, sub_, mul_, div_, uniform_, normal_, set_ | x.assign_(np.zeros((2, 3))) | The one call that writes in place; within mg.no_grad(), x -= 0.1 writes too.
"""

LAYER_HABITS = """
register_buffer | buffers = ("mean",) | A class attribute; then self.mean = mg.tensor(array), which is saved and not trained.
register_parameter | model.scale = mg.tensor(np.ones(3), requires_grad=True) | Assigning it is enough.
add_module, register_module | model.extra = Linear(3, 3) | Assigning it is enough.
children | [child for _, child in model.named_modules()] | Each with its path.
apply | [layer.freeze() for layer in model.modules()] | A loop over all modules.
cpu, cuda, device | model | Leave it out: every tensor is in the computer's own memory.
float, double, half, bfloat16 | model.to(np.float32) | In place, for parameters and what layers cast inputs to.
weight | layer.W | x W, of shape (d_in, d_out): PyTorch's is the transpose.
bias | layer.b | None without use_bias.
W | layers.Conv2d(3, 5, 2).weight | Convolutions and norms call it weight.
append, add, insert, extend, pop | Sequential(*model, mg.relu) | A new one of the layers that it has.
fit, train_on_batch | optimizer.step() | Training is a loop of yours: zero_grad(), loss.backward(), step() for each of mg.data.batches.
predict | model(x) | Within mg.no_grad(), after model.eval().
summary, count_params | print(model) | Its layers, shapes and numbers of parameters.
weights, get_weights, variables, trainable_weights, trainable_variables | model.parameters() | Or model.state_dict(), copies of the arrays by name.
set_weights | model.load_state_dict(model.state_dict()) | Arrays by name.
trainable | model.freeze() | And model.unfreeze().
in_features, out_features, input_size, hidden_size | layer.W.shape | (d_in, d_out).
numel, num_parameters | sum(p.size for p in model.parameters()) | print(model) says it too.
_cache | layer.cache | X, Q, K, V, A, O, C and the mask of a forward on an array.
"""

FUNCTION_HABITS = """
cat, concat | mg.concatenate([x, x], axis=0) | NumPy's name.
manual_seed, seed, set_seed | layers.seed(0) | For layers made without rng=; dropout and batches take rng=np.random.default_rng(0).
randn, rand, random, normal, uniform, randint, randperm | mg.tensor(rng.standard_normal((2, 3))) | NumPy draws, mg.tensor takes the array.
arange, linspace, eye, full, empty, diag, meshgrid | mg.tensor(np.arange(3.0)) | NumPy makes the array, mg.tensor takes it.
Value, Scalar | mg.tensor(2.0, requires_grad=True) | A tensor of one number.
zeros_like, ones_like, full_like | mg.zeros(x.shape, dtype=x.dtype) | mg.ones takes a shape too.
from_numpy, as_tensor, asarray, array, Variable, FloatTensor, DoubleTensor, LongTensor, IntTensor, BoolTensor | mg.tensor(np.ones(3)) | Copies the array and keeps its dtype.
Parameter, ParameterList, ParameterDict | mg.tensor(np.ones(3), requires_grad=True) | Assigned to a layer's attribute, it is a parameter, also in a list or dict.
nn | from minigrad import layers | Linear, SelfAttention, LSTM, Conv2d, … stand in layers.
F, functional | mg.relu(x) | Functions stand in mg itself.
autograd | mg.grad(mg.sum(x * x), [x]) | Or loss.backward().
set_grad_enabled, inference_mode, stop_gradient | mg.no_grad() | With `with`, or as a decorator; mg.enable_grad() is the opposite.
device, set_default_device, get_default_device | mg.tensor(np.ones(3)) | Every tensor is in the computer's own memory.
set_default_dtype, get_default_dtype, float32, float64, float16, int64 | mg.tensor(np.ones(3, np.float32)) | NumPy's dtypes; numbers and lists become float64.
mm, bmm, mv, dot, inner | x @ x.T | Batches are multiplied matrix by matrix.
add_, sub, mul, div, neg, pow, true_divide | x * x | Operators, or mg.multiply and the like.
clamp | mg.clip(x, 0.0, 1.0) | NumPy's name.
amax, amin | mg.max(x, axis=1) | NumPy's name; mg.min too.
log2, log10 | mg.log(x) / np.log(2.0) | By the logarithm of the base.
tan, sinh, cosh | mg.sin(x) / mg.cos(x) | Written out, by sin, cos and exp.
logsigmoid, log_sigmoid, LogSigmoid | -mg.softplus(-x) | Written out.
round, floor, ceil, isnan, isfinite | np.round(x.numpy()) | Of the array: there is no gradient.
unsqueeze | mg.expand_dims(x, 0) | NumPy's name.
permute, movedim | mg.transpose(x, (1, 0)) | It takes every axis, as NumPy's does; mg.moveaxis moves one.
view, flatten | mg.reshape(x, (3, 2)) | Or mg.ravel(x).
masked_fill | mg.where(x.data > 1, 0.0, x) | The mask first, then what stands where it is True.
gather, scatter, index_select | mg.take_along_axis(x, targets[:, None], axis=1) | NumPy's name; mg.take and x[:, i] pick whole columns.
chunk, unbind, tensor_split | mg.split(x, 3, axis=1) | As many equal parts.
repeat_interleave | mg.repeat(x, 2, axis=0) | NumPy's name.
expand | mg.broadcast_to(x, (5, 2, 3)) | Operators broadcast by themselves.
one_hot | np.eye(5)[targets] | mg.cross_entropy takes the classes themselves.
normalize | x / mg.norm(x, axis=-1, keepdims=True) | Written out.
embedding | mg.take(x, tokens % 2, axis=0) | Or layers.Embedding(n_tokens, d_model).
allclose, isclose, equal | np.allclose(x.numpy(), x.numpy()) | np.testing.assert_allclose says where they differ.
binary_cross_entropy, bce_loss, sigmoid_cross_entropy, BCELoss | mg.bce_with_logits(x, np.ones((2, 3))) | It takes the scores before the sigmoid.
mean_squared_error | mg.mse_loss(x, np.ones((2, 3))) | Both of one shape.
mae_loss, mean_absolute_error, MAELoss | mg.l1_loss(x, np.ones((2, 3))) | Both of one shape.
cosine_similarity | mg.sum(x * x, axis=-1) / (mg.norm(x, axis=-1) * mg.norm(x, axis=-1)) | Written out.
max_pool1d, max_pool2d, avg_pool1d, avg_pool2d | mg.max_pool(image, 2) | mg.avg_pool too; layers.MaxPool2d(2) is the layer.
sdpa, flash_attention | mg.scaled_dot_product_attention(q, q, q, is_causal=True) | method="tiled" needs O(n) memory.
jit | mg.compile(lambda a: mg.sum(a * a)) | It checks itself against the eager step.
value_and_grad, GradientTape | mg.grad(mg.sum(x * x), [x]) | Or loss.backward(), which leaves gradients in x.grad.
jacrev, jacfwd, hessian | mg.jacobian(mg.square, x.detach()) | mg.hvp, mg.vjp and mg.jvp go without the whole matrix.
vmap | x @ x.T | Ops take leading axes as batches.
DataLoader, TensorDataset, Dataset | mg.data.batches(np.ones((4, 2)), np.ones(4), batch_size=2, rng=rng) | rng shuffles anew in each epoch.
Adagrad, Adadelta, RAdam, NAdam, LBFGS, Adamax | mg.optim.Adam(model.parameters(), lr=1e-3) | SGD, RMSprop, Adam and AdamW are offered.
lr_scheduler, CosineAnnealingLR, LambdaLR | mg.optim.schedule.cosine(optimizer, 100) | Its step() sets optimizer.lr.
StepLR | mg.optim.schedule.step(optimizer, 30, factor=0.1) | Its step() sets optimizer.lr.
LinearLR | mg.optim.schedule.linear(optimizer, 100) | Its step() sets optimizer.lr.
clip_grad_norm_ | mg.optim.clip_grad_norm(model.parameters(), 1.0) | It returns the norm before clipping.
GradScaler, autocast, amp | mg.optim.LossScale(optimizer) | For training in float16.
ModuleList, ModuleDict | [Linear(3, 3), Linear(3, 2)] | A list or dict assigned to an attribute; its layers' parameters are found.
MLP, Neuron | Sequential(Linear(3, 16), mg.tanh, Linear(16, 1)) | Functions stand between layers as they are.
ReLU, Activation | Sequential(Linear(3, 5), mg.relu, Linear(5, 2)) | Functions stand between layers as they are.
Tanh, Sigmoid, GELU, SiLU, Softmax, LogSoftmax, LeakyReLU, ELU, Softplus, Mish | Sequential(Linear(3, 5), mg.tanh) | Functions stand between layers as they are: mg.tanh, mg.sigmoid, mg.gelu, mg.silu, mg.softmax, …
Lambda, Reshape, Permute, Unflatten, Residual | Sequential(lambda x: x * 2) | Any function of a tensor is a layer.
MultiheadAttention | layers.MultiHeadAttention(8, 2) | d_model and n_heads; it returns one tensor, and (out, weights) with return_weights=True.
MultiHeadSelfAttention, CausalSelfAttention, causal_self_attention | layers.MultiHeadAttention(8, 2, mask=layers.causal) | Without it, every position sees every other.
TransformerEncoderLayer | layers.TransformerBlock(8, 2) | Pre-norm unless pre_norm=False.
TransformerEncoder, Transformer | layers.Encoder(2, 8, 2) | n_layers, d_model, n_heads.
TransformerDecoderLayer | layers.TransformerBlock(8, 2, cross=True) | Self-attention, attention to a context, feed-forward.
TransformerDecoder | layers.Decoder(2, 8, 2) | n_layers, d_model, n_heads.
BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormalization | layers.BatchNorm(3) | One for any number of axes after the channels.
LayerNormalization | layers.LayerNorm(8) | Over the last axis.
Dropout1d, Dropout2d, Dropout3d | layers.Dropout(0.1) | Entry by entry.
Linear, Module, Embedding, LSTM, GRU, RNN, Conv1d, Conv2d, LayerNorm, BatchNorm, Sequential, SelfAttention, MultiHeadAttention, TransformerBlock, Encoder | from minigrad import layers | Layers stand in layers.
Adam, AdamW, RMSprop, SGD, clip_grad_norm, schedule | mg.optim.Adam(model.parameters(), lr=1e-3) | Optimizers stand in mg.optim.
batches | mg.data.batches(np.ones((4, 2)), batch_size=2) | It stands in mg.data.
Dense | Linear(3, 2) | d_in and d_out.
SimpleRNN | layers.RNN(3, 5) | d_in and d_hidden.
Bidirectional | layers.LSTM(3, 5, bidirectional=True) | GRU and RNN take it too.
init, kaiming_normal_, kaiming_uniform_, xavier_normal_, xavier_uniform_ | Linear(3, 2, init="he_normal") | He's is Kaiming's; also he_uniform, xavier_normal, xavier_uniform.
sinusoidal_position_encoding, positional_encoding, PositionalEncoding, PositionEncoding | layers.sinusoidal_encoding(7, 8) | layers.SinusoidalPosition adds it to X.
visualize_attention, plot_attention | layers.SelfAttention(8, 4, 4, rng=rng) | Run it within `with mg.trace() as t`, then t.attention(tokens).plot("a.svg").
causal_mask, generate_square_subsequent_mask | layers.create_causal_mask(5) | True or 0: may attend.
"""

KEYWORD_HABITS = """
dim, dims | axis | NumPy's name
keepdim | keepdims | NumPy's name
bias | use_bias | A layer's bias is a choice; an op's is an array
kernel_size | size |
in_features, in_channels, input_size, input_dim, in_dim | d_in |
out_features, out_channels, output_size, output_dim, out_dim | d_out |
units | d_out, d_hidden |
hidden_size, hidden_dim | d_hidden, d_ff, d_model |
num_layers, layers, n_layer, depth | n_layers |
num_heads, nhead, n_head, heads | n_heads |
embed_dim, embedding_dim, hidden, dim_model, n_embd, model_dim | d_model |
dim_feedforward, ff_dim, d_feedforward, intermediate_size | d_ff |
num_kv_heads | n_kv_heads |
num_embeddings, vocab_size, n_vocab | n_tokens |
num_features, n_channels, num_channels, num_parameters | channels |
num_groups | groups |
output_size | size |
normalized_shape | shape |
kdim | d_k, d_context |
vdim | d_v |
elementwise_affine, affine | use_weight |
attn_mask, key_padding_mask, src_mask, attention_mask, src_key_padding_mask, tgt_mask | mask | True: may attend; PyTorch's boolean masks of layers say the opposite
need_weights | return_weights |
key, value, memory, encoder_hidden_states | context | Keys and values both come from it
return_attention, output_attentions | return_weights |
norm_first | pre_norm |
min, a_min | low |
max, a_max | high |
atol, rtol | tolerance |
dropout_p, dropout_rate, rate | p, dropout |
input | x, logits |
target, labels, y_true | targets, target |
learning_rate | lr |
gamma | factor |
step_size | every |
min_lr | end | So many times the learning rate at first
T_max, total_steps, num_training_steps | steps |
warmup_steps, num_warmup_steps | warmup |
params | parameters |
beta1, beta2 | betas | A pair, betas=(0.9, 0.999)
epsilon, eps_ | eps |
max_grad_norm, clip_norm | max_norm |
seed, generator, random_state, shuffle | rng | np.random.default_rng(0)
inputs | x |
max_length, max_seq_len, block_size | max_len |
max_new_tokens | max_new |
filename, file, fname | path |
batch_first | | leave it out: the batch is always the first axis
device, pin_memory, non_blocking, num_workers, memory_format | | leave it out: every tensor is in the computer's own memory
inplace, out | | leave it out: ops never write to their inputs
training, train | | leave it out: call dropout only while training, or use layers.Dropout with model.eval()
approximate_, size_average, reduce | reduction |
reduction, weight | | the loss is a mean; write what else in a line of ops
start_dim, end_dim | | write x.reshape(len(x), -1), or layers.Flatten()
activation | | put a function behind the layer: Sequential(Linear(3, 4), mg.relu)
allow_unused | | leave it out: of an unused input the gradient is zeros
max_lr | | leave it out: the highest rate is optimizer.lr as it was
norm_type, padding_idx, proj_size, add_bias_kv, add_zero_attn, padding_mode, track_running_stats | | it is not offered
set_to_none, closure | | leave it out: zero_grad() sets gradients to None, and step() takes no function
"""

DIFFERENCES = """
a boolean mask of nn.MultiheadAttention or nn.Transformer, True = blocked | layers.MultiHeadAttention(8, 2)(words, mask=~blocked) | True: may attend, as in F.scaled_dot_product_attention; padding_mask(real) makes one of real tokens.
x.transpose(0, 1) swaps two axes | x.swapaxes(0, 1) | x.transpose(0, 1) is NumPy's: the order of all axes.
x.repeat(2, 3) tiles | mg.concatenate([x, x], axis=0) | x.repeat(2, axis=0) is NumPy's: each entry twice.
torch.split(x, 2) gives parts of two | mg.split(x, 3, axis=1) | As many parts, as np.split.
torch.tensor([1.0]) is float32 | mg.tensor(np.float32([1.0])) | Numbers and lists become float64, arrays keep their dtype.
out, state = lstm(x) | layers.LSTM(3, 5)(words[..., :3], return_state=True) | Without return_state=True it returns H alone; unpacking that is refused.
out, weights = attention(x, x, x) | layers.SelfAttention(8, 4, 4)(words, return_weights=True) | One X for queries, keys and values; context= is for others.
values, indices = x.max(1) | x.max(axis=1), x.argmax(axis=1) | Each by itself.
x.std(), x.var() divide by n - 1 | mg.std(x, ddof=1), mg.var(x, ddof=1) | NumPy's: by n unless ddof says otherwise.
parameter groups that spare biases and norms the weight decay | mg.optim.AdamW([{"parameters": [layer.W]}, {"parameters": [layer.b], "weight_decay": 0.0}]) | Dicts of parameters and the settings that differ.
nn.Linear keeps W as (out, in) | Linear(3, 2).W.shape | (d_in, d_out): x W, not x Wᵀ: transpose PyTorch's weights.
x += y writes into x | x = x * 2 | It makes a new tensor, as x = x + y does; only within mg.no_grad() does it write, into a leaf.
x.grad.zero_() | optimizer.zero_grad() | x.grad is an array or None.
weights.round() of a tensor | layer.attention_weights.round(2) | attention_weights is an array; x.numpy().round(2) of any tensor.
W_Q.copy() | layer.W_Q.numpy().copy() | Or layer.state_dict(), copies of all.
"""


class Habit(NamedTuple):
    """One row: what is typed, what to write here ("" to leave it out), one sentence ("" for none)."""

    names: tuple[str, ...]
    ours: str
    sentence: str

    @property
    def remedy(self) -> str:
        return f"write {self.ours}. {self.sentence}".strip()


def rows(table: str) -> Iterator[Habit]:
    """The rows of one of the tables above."""
    for line in table.strip().splitlines():
        names, ours, sentence = (cell.strip() for cell in line.split(" |"))
        yield Habit(tuple(name.strip() for name in names.split(", ")), ours, sentence)


@cache
def _by_name(table: str) -> dict[str, Habit]:
    return {name: habit for habit in rows(table) for name in habit.names}


def for_name(name: str, table: str, offered: Iterable[str] = ()) -> str:
    """What to write for a name that does not exist; the nearest of those offered, or nothing.

    >>> for_name("permute", TENSOR_HABITS)
    "write x.transpose(1, 0). It takes every axis, as NumPy's does."
    >>> for_name("reshap", TENSOR_HABITS, ["reshape", "sum"])
    'the nearest is reshape'
    """
    found = _by_name(table).get(name)
    if found is not None:
        return found.remedy
    offers = vars(sys.modules["minigrad"])
    function: Any = offers.get(name.removesuffix("_"))
    if getattr(function, "__module__", "").startswith("minigrad.ops"):
        if name[-1] == "_":
            return f"write mg.{_call(function)}. Ops never write to their inputs."
        if table is TENSOR_HABITS:
            return f"write mg.{_call(function)}"
    if name in offers["__all__"] and table is not TENSOR_HABITS:
        return f"write mg.{name}"
    if table is TENSOR_HABITS and hasattr(np.ndarray, name):
        return f"write x.numpy().{name}(…). The array has it; nothing is recorded."
    near = get_close_matches(name, list(offered), n=1, cutoff=0.7)
    return f"the nearest is {near[0]}" if near else ""


def _call(function: Callable[..., object]) -> str:
    """A call of a function of tensors, with what it cannot go without."""
    parameters = signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    shown = [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in needed]
    return f"{function.__name__}({', '.join(shown)})"


def tensor_names() -> list[str]:
    """The attributes that people expect of a tensor from other libraries."""
    return [*_by_name(TENSOR_HABITS)]


def for_keyword(name: str, offered: Iterable[str]) -> str:
    """What to write for a keyword that a call does not have: the one of those offered that fits.

    >>> for_keyword("dim", ["x", "axis"]), for_keyword("axsi", ["x", "axis"])
    ("write axis= (NumPy's name)", 'the nearest is axis=')
    """
    offered = list(offered)
    found = _by_name(KEYWORD_HABITS).get(name)
    ours = [] if found is None else [own for own in found.ours.split(", ") if own in offered]
    if found is not None and ours:
        return f"write {ours[0]}=" + (f" ({found.sentence})" if found.sentence else "")
    near = get_close_matches(name, offered, n=1, cutoff=0.7)
    if near:
        return f"the nearest is {near[0]}="
    if found is not None and not found.ours:
        return found.sentence
    return f"it takes {', '.join(offered)}" if offered else "it takes no keywords"


def is_habit(name: str, offered: Iterable[str]) -> bool:
    """Whether the table has a keyword, and for it one of those offered."""
    found = _by_name(KEYWORD_HABITS).get(name)
    return found is not None and not {*found.ours.split(", ")}.isdisjoint(offered)


def markdown() -> str:
    """The tables as the guide shows them."""
    parts = []
    for title, table in (
        ("Silent differences", DIFFERENCES),
        ("Tensors", TENSOR_HABITS),
        ("Layers", LAYER_HABITS),
        ("Functions and classes", FUNCTION_HABITS),
        ("Keywords", KEYWORD_HABITS),
    ):
        lines = [f"### {title}", "", "| habit | minigrad | |", "|---|---|---|"]
        for habit in rows(table):
            names = ", ".join(habit.names)
            names = names if table is DIFFERENCES else _code(habit.names)
            ours = _code(habit.ours.split(", ")) if table is KEYWORD_HABITS else _code([habit.ours])
            cells = (names, ours, habit.sentence)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names if name)
