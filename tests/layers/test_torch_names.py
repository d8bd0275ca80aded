"""States of PyTorch's layers in and out, and layers that then compute and learn the same."""

import numpy as np
import pytest

import layers as ours
import minigrad as mg
from layers import Linear, Module, MultiHeadAttention, Sequential, from_torch, to_torch
from minigrad.errors import ArgumentError
from tests.compare import assert_same, refusals
from tests.layers.twins import gradients_of

IMAGE, SEQUENCE, BATCH = (2, 6, 5, 5), (2, 5, 6), (7, 6)
OURS = {name: getattr(ours, name) for name in ours.__all__} | {"tanh": mg.tanh, "relu": mg.relu}
PRE = "6, 2, 9, 0.0, functional.gelu, batch_first=True, norm_first=True"


def attention_of(torch, module, x):
    context = x[..., : module.kdim]
    return module(x, context, context, need_weights=False)


def alone(torch, module, x):
    return module(x)


def with_context(torch, module, x):
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=x.dtype)
    return module(x, x * 2, tgt_mask=mask)


CALLS = {  # how PyTorch's layer is called, and ours
    "Multi": (attention_of, lambda layer, X: layer(X, context=X[..., : layer.d_context])),
    "TransformerDecoder": (with_context, lambda layer, X: layer(X, X * 2)),
    "": (alone, lambda layer, X: layer(X)),
}


PAIRS = {
    "Linear(6, 3)": ("Linear(6, 3)", BATCH),
    "Linear(6, 3, bias=False)": ("Linear(6, 3, use_bias=False)", BATCH),
    "LayerNorm(6, eps=0.1)": ("LayerNorm(6, eps=0.1)", BATCH),
    "LayerNorm((5, 6))": ("LayerNorm((5, 6))", SEQUENCE),
    "LayerNorm(6, elementwise_affine=False)": (
        "LayerNorm(6, use_weight=False, use_bias=False)", SEQUENCE),
    "RMSNorm((5, 6))": ("RMSNorm((5, 6), eps=None)", SEQUENCE),
    "RMSNorm(6)": ("RMSNorm(6, eps=None)", BATCH),
    "GroupNorm(3, 6)": ("GroupNorm(3, 6)", IMAGE),
    "GroupNorm(2, 6)": ("GroupNorm(2, 6)", BATCH),
    "BatchNorm1d(6)": ("BatchNorm(6)", BATCH),
    "BatchNorm2d(6)": ("BatchNorm(6)", IMAGE),
    "BatchNorm2d(6).eval()": ("BatchNorm(6).eval()", IMAGE),
    "InstanceNorm2d(6, affine=True)": ("InstanceNorm(6)", IMAGE),
    "PReLU(6, init=0.1)": ("PReLU(6)", IMAGE),
    "Conv1d(5, 3, 2, padding=1, dilation=2)": (
        "Conv1d(5, 3, 2, padding=1, dilation=2)", SEQUENCE),
    "Conv2d(6, 4, (3, 2), stride=2, groups=2)": (
        "Conv2d(6, 4, (3, 2), stride=2, groups=2)", IMAGE),
    "Conv2d(6, 6, (2, 3), padding='same', groups=6)": (
        "Conv2d(6, 6, (2, 3), padding='same', groups=6)", IMAGE),
    "MaxPool2d(2)": ("MaxPool2d(2)", IMAGE),
    "AvgPool2d(2, 3, 1)": ("AvgPool2d(2, 3, 1)", IMAGE),
    "ConvTranspose1d(5, 4, 3, 2, 1, 1, 1, True, 2)": (
        "ConvTranspose1d(5, 4, 3, 2, 1, 1, 1, True, 2)", SEQUENCE),
    "ConvTranspose2d(6, 4, (3, 2), stride=2, groups=2, bias=False)": (
        "ConvTranspose2d(6, 4, (3, 2), stride=2, groups=2, use_bias=False)", IMAGE),
    "LSTM(6, 4, 2, batch_first=True, bidirectional=True)": (
        "LSTM(6, 4, 2, bidirectional=True)", SEQUENCE),
    "GRU(6, 4, 2, batch_first=True, bidirectional=True)": (
        "GRU(6, 4, 2, bidirectional=True)", SEQUENCE),
    "RNN(6, 4, 2, batch_first=True, bidirectional=True)": (
        "RNN(6, 4, 2, bidirectional=True)", SEQUENCE),
    "LSTM(6, 4, 3, bias=False, batch_first=True)": ("LSTM(6, 4, 3, use_bias=False)", SEQUENCE),
    "GRUCell(6, 4)": ("GRUCell(6, 4)", BATCH),
    "LSTMCell(6, 4)": ("LSTMCell(6, 4)", BATCH),
    "MultiheadAttention(6, 2, batch_first=True)": (
        "MultiHeadAttention(6, 2, use_bias=True)", SEQUENCE),
    "MultiheadAttention(6, 2, bias=False, batch_first=True)": (
        "MultiHeadAttention(6, 2)", SEQUENCE),
    "MultiheadAttention(6, 2, kdim=5, vdim=5, batch_first=True)": (
        "MultiHeadAttention(6, 2, d_context=5, use_bias=True)", SEQUENCE),
    "TransformerEncoderLayer(6, 2, 9, dropout=0.0, batch_first=True)": (
        "TransformerBlock(6, 2, 9, norm_order='post', activation='relu')", SEQUENCE),
    f"TransformerEncoder(TransformerEncoderLayer({PRE}), 2, LayerNorm(6), False)": (
        "Encoder(2, 6, 2, 9)", SEQUENCE),
    "TransformerDecoder(TransformerDecoderLayer(6, 2, 9, dropout=0.0, batch_first=True), 2)": (
        "Decoder(2, 6, 2, 9, norm_order='post', activation='relu')", SEQUENCE),
    f"TransformerDecoder(TransformerDecoderLayer({PRE}), 2, LayerNorm(6))": (
        "Decoder(2, 6, 2, 9)", SEQUENCE),
    "Sequential(Linear(6, 5), Tanh(), BatchNorm1d(5), Linear(5, 2))": (
        "Sequential(Linear(6, 5), tanh, BatchNorm(5), Linear(5, 2))", BATCH),
    """Sequential(
        Conv2d(6, 4, 3, padding=1), BatchNorm2d(4), ReLU(), MaxPool2d(3, 2, 1), Identity(),
        Upsample(scale_factor=2.5, mode="bilinear"), PReLU(),
        AvgPool2d(2, 1, count_include_pad=False), GroupNorm(2, 4), GLU(1),
        AdaptiveAvgPool2d((3, None)), Flatten())""": (
    """Sequential(
        Conv2d(6, 4, 3, padding=1), BatchNorm(4), relu, MaxPool2d(3, 2, 1), Identity(),
        Upsample(scale_factor=2.5, mode="bilinear"), PReLU(),
        AvgPool2d(2, stride=1), GroupNorm(2, 4), GLU(1),
        AdaptiveAvgPool2d((3, None)), Flatten())""", IMAGE),
}  # fmt: skip
"""PyTorch's layer; ours, and the shape of an input."""


@pytest.mark.filterwarnings("ignore:Using padding")  # of PyTorch, for its time
@pytest.mark.parametrize("name", PAIRS)
def test_outputs_gradients_and_states_are_pytorchs(name, rng):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    mine, shape = PAIRS[name]
    module = eval(name, dict(vars(torch.nn))).double()
    layer = eval(mine, OURS)
    with torch.no_grad():
        for p in [*module.parameters(), *module.buffers()]:
            if p.is_floating_point():
                p += 0.1 * torch.rand_like(p)  # biases that are not 0, gains that are not 1
    assert from_torch(module, layer) is layer
    state = {key: value.numpy().copy() for key, value in module.state_dict().items()}
    given_back = to_torch(layer)
    assert set(given_back) == set(state)
    for key, array in state.items():
        np.testing.assert_array_equal(given_back[key], array, err_msg=key)
    x = rng.normal(size=shape)
    theirs, X = torch.tensor(x, requires_grad=True), mg.tensor(x, requires_grad=True)
    call, ours_called = next(CALLS[start] for start in CALLS if name.startswith(start))
    wanted, out = call(torch, module, theirs), ours_called(layer, X)
    wanted, out = (y[0] if isinstance(y, tuple) else y for y in (wanted, out))
    g = rng.normal(size=out.shape)
    out.backward(g)
    wanted.backward(torch.from_numpy(g))
    assert_same([out, X.grad], [wanted, theirs.grad], 1e-12)
    found = gradients_of(layer)
    for key, p in module.named_parameters():  # that of a bias before a norm is 0
        np.testing.assert_allclose(found[key], p.grad, rtol=0, atol=1e-12, err_msg=key)
    for key, value in module.state_dict().items():  # running averages have moved alike
        if "num_batches" not in key:
            assert_same(to_torch(layer)[key], value, 1e-12, key)


def test_bfloat16_is_widened():
    torch = pytest.importorskip("torch")
    state = {"weight": torch.ones(1, 3, dtype=torch.bfloat16) / 3, "bias": torch.zeros(1)}
    assert from_torch(state, Linear(3, 1)).W.numpy()[0, 0] == float(state["weight"][0, 0])


# ---------------------------------------------------------------- without PyTorch


class Model(Module):
    """A user's own, with PyTorch's names for its layers."""

    def __init__(self):
        self.attn = MultiHeadAttention(4, 2, use_bias=True, rng=0)
        self.fc = Linear(4, 3, rng=0)


def test_a_model_of_ones_own_goes_out_and_in_again_as_arrays_alone():
    model, other = Model(), Model().to(np.float32)
    state = to_torch(model)
    assert list(state) == ["attn.in_proj_weight", "attn.in_proj_bias", "attn.out_proj.weight",
                           "attn.out_proj.bias", "fc.weight", "fc.bias"]  # fmt: skip
    from_torch(state, other)
    assert_same(other.state_dict(), model.to(np.float32).state_dict(), 0)


def test_what_is_tied_here_must_be_equal_there():
    model = Sequential(Linear(3, 3), Linear(3, 3))
    model[1].W = model[0].W
    state = to_torch(model)
    assert list(state) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    from_torch(state, model)
    with pytest.raises(ArgumentError, match=r"layers.1.W: 1.weight must equal 0.weight"):
        from_torch(state | {"1.weight": np.ones((3, 3))}, model)


def test_everything_that_does_not_fit_is_listed_and_nothing_written():
    model = Model()
    before, state = model.state_dict(), to_torch(model)
    del state["fc.bias"]
    state |= {"attn.bias_k": np.ones(3), "attn.in_proj_weight": np.ones((4, 12))}
    with pytest.raises(ArgumentError) as caught:
        from_torch(state, model)
    assert str(caught.value).split("\n  ") == [
        "from_torch: nothing was written, for Model",
        *(f"attn.W_{s}: attn.in_proj_weight must be (12, 4), got (4, 12)" for s in "QKV"),
        "fc.b: fc.bias is missing",
        "attn.bias_k: unexpected",
    ]
    assert_same(model.state_dict(), before, 0)


test_heads_that_pytorch_has_not_are_refused = refusals(
    (lambda: to_torch(MultiHeadAttention(6, 2, 1)), ArgumentError,
     r"in_proj_weight has parts of one shape in PyTorch, got W_Q \(6, 6\), W_K \(6, 3\)"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "mine", "line"),
    [
        ("MultiheadAttention(6, 3)", "MultiHeadAttention(6, 2, use_bias=True)",
         r"n_heads: 2 here, 3 in PyTorch's"),
        ("TransformerEncoderLayer(6, 2, 9)", "TransformerBlock(6, 2, 9)",
         r"norm_order: pre here, post in PyTorch's\n  feed_forward.activation: \["),
        ("LayerNorm(6, eps=0.1)", "LayerNorm(6)", r"eps: 1e-05 here, 0.1 in"),
        ("RNN(6, 4, nonlinearity='relu')", "RNN(6, 4)", "nonlinearity: tanh here"),
        ("Conv2d(6, 4, 3, stride=2)", "Conv2d(6, 4, 3)", "stride: 1 here, 2 in"),
        ("MaxPool2d(2, ceil_mode=True)", "MaxPool2d(3)",
         "size: 3 here, 2 in.*stride: 3 here, 2 in.*ceil_mode: False here, True in"),
        ("AvgPool2d(2, padding=1, count_include_pad=False)", "AvgPool2d(2, padding=1)",
         "count_include_pad: True here, False in"),
        ("Upsample(size=4)", "Upsample(scale_factor=2)",
         "size: False here, 4 in.*scale_factor: 2 here, False in"),
        ("GroupNorm(3, 6)", "GroupNorm(2, 6)", "groups: 2 here, 3 in"),
        ("LSTM(6, 4, proj_size=2)", "LSTM(6, 4)", "weight_hr_l0: unexpected"),
    ],
)  # fmt: skip
def test_settings_of_a_module_that_differ_are_listed(theirs, mine, line):
    torch = pytest.importorskip("torch")
    module = eval(theirs, dict(vars(torch.nn)))
    with pytest.raises(ArgumentError, match=f"(?s)from_torch: nothing was written.*{line}"):
        from_torch(module, eval(mine, OURS))
