"""PyTorch's own sample inputs, taken from the installed torch: results and gradients in float64."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import (
    Embedding,
    LayerNorm,
    RMSNorm,
    cross_entropy_loss,
    linear,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from minigrad.ops.scaled_dot_product import METHODS

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's samples are in a module that imports expecttest")
samples = pytest.importorskip("torch.testing._internal.common_methods_invocations")


def _attention(Q, K, V, attn_mask=None, is_causal=False, dropout_p=0.0, enable_gqa=False):
    if Q.ndim == K.ndim:  # layers' function takes leading axes that are alike, the op any
        yield scaled_dot_product_attention(Q, K, V, attn_mask, is_causal=is_causal)[0]
    learned = isinstance(attn_mask, mg.Tensor)  # tiles give a mask no gradient
    for method in ("exact",) if learned or not METHODS else ("exact", "tiled"):
        if not enable_gqa:
            yield mg.scaled_dot_product_attention(
                Q, K, V, attn_mask, is_causal=is_causal, method=method
            )


def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    norm = LayerNorm(shape, eps, use_weight=weight is not None, use_bias=bias is not None)
    norm.weight, norm.bias = weight, bias
    yield norm(x)
    if len(shape) == 1:
        yield mg.layer_norm(x, weight, bias, eps=eps)


def _rms_norm(x, shape, weight=None, eps=None):
    norm = RMSNorm(shape, eps, use_weight=weight is not None)
    norm.weight = weight
    yield norm(x)
    if len(shape) == 1:
        yield mg.rms_norm(x, weight, eps=norm.eps)


def _cross_entropy(logits, targets, **settings):
    axis = 1 if np.ndim(logits) > 1 else 0
    yield cross_entropy_loss(logits, targets, axis=axis, **settings)


def _embedding(W, tokens):
    layer = Embedding(*W.shape)
    layer.W = W
    yield layer(tokens)


def _multi_head(Q, K, V, d_model, h, W, b, b_k, b_v, add_zero, p, W_O, b_O, **settings):
    """Weights are stacked and transposed, (3 d_model, d_model); b_k and b_v are one token more."""
    thirds = [slice(k * d_model, (k + 1) * d_model) for k in range(3)]
    Q, K, V = (
        linear(mg.swapaxes(x, 0, 1), W[third].T, b[third])  # theirs has the batch second
        for x, third in zip((Q, K, V), thirds, strict=True)
    )
    batch, mask = Q.shape[0], settings["attn_mask"]
    K, V = (
        mg.concatenate((x, mg.broadcast_to(more, (batch, 1, d_model))), axis=1)
        for x, more in ((K, b_k), (V, b_v))
    )
    mask = mg.pad(mask, [(0, 0), (0, 1)])  # floats to add
    O, _ = scaled_dot_product_attention(*(split_heads(x, h) for x in (Q, K, V)), mask)
    yield mg.swapaxes(linear(merge_heads(O), W_O.T, b_O), 0, 1)


def _softmax(op: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def run(x, axis, dtype=None):
        yield op(x, axis=axis)

    return run


ADAPTERS: dict[str, Callable[..., Iterator[Any]]] = {
    "log_softmax": _softmax(mg.log_softmax),
    "nn.functional.cross_entropy": _cross_entropy,
    "nn.functional.embedding": _embedding,
    "nn.functional.gelu": lambda x, approximate: iter([mg.gelu(x, approximate=approximate)]),
    "nn.functional.layer_norm": _layer_norm,
    "nn.functional.linear": lambda x, W, b=None: iter([linear(x, W.T, b), mg.linear(x, W.T, b)]),
    "nn.functional.multi_head_attention_forward": _multi_head,
    "nn.functional.rms_norm": _rms_norm,
    "nn.functional.scaled_dot_product_attention": _attention,
    "nn.functional.silu": lambda x: iter([mg.silu(x)]),
    "softmax": _softmax(mg.softmax),
    "tanh": lambda x: iter([mg.tanh(x)]),
    "sigmoid": lambda x: iter([mg.sigmoid(x)]),
    "nn.functional.relu": lambda x: iter([mg.relu(x)]),
    "matmul": lambda a, b: iter([mg.matmul(a, b)]),
}


def cases() -> Iterator[Any]:
    for info in samples.op_db:
        if info.name in ADAPTERS and info.variant_test_name != "complex":
            for k, sample in enumerate(info.sample_inputs("cpu", torch.float64, True)):
                label = f"{info.name.removeprefix('nn.functional.')}-{info.variant_test_name}{k}"
                yield pytest.param(info, _undropped(info.name, sample), id=label)


def _undropped(name: str, sample: Any) -> Any:
    """The sample without dropout, which each library draws for itself."""
    if "dropout_p" in sample.kwargs:
        sample.kwargs["dropout_p"] = 0.0
    if name == "nn.functional.multi_head_attention_forward":
        sample.args = (*sample.args[:9], 0.0, *sample.args[10:])
    return sample


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("info", "sample"), list(cases()))
def test_a_sample_of_torch_gives_the_same_here(rng, info, sample):
    theirs, leaves = {}, {}

    def convert(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        wanted = x.requires_grad
        theirs[id(x)] = x
        array = x.detach().numpy().copy()
        leaves[id(x)] = mg.tensor(array, requires_grad=True) if wanted else array
        return leaves[id(x)]

    args = [convert(x) for x in (sample.input, *sample.args)]
    settings = {name: convert(value) for name, value in sample.kwargs.items()}
    expected = info.op(sample.input, *sample.args, **sample.kwargs)
    expected = expected[0] if isinstance(expected, tuple) else expected
    wanted = [k for k, x in theirs.items() if x.requires_grad]
    g = rng.normal(size=tuple(expected.shape))
    theirs_grad = torch.autograd.grad(expected, [theirs[k] for k in wanted], torch.tensor(g))
    for out in ADAPTERS[info.name](*args, **settings):
        np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-10)
        found = mg.grad(out, [leaves[k] for k in wanted], g)
        for ours, by_torch in zip(found, theirs_grad, strict=True):
            np.testing.assert_allclose(ours, by_torch.numpy(), rtol=1e-10, atol=1e-10)
