"""A call of an op that cannot be made says so: an error of ours, with the call and the rule."""

import inspect

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import MinigradError, ShapeError

X = mg.tensor(np.ones((2, 3, 5)))
W = np.ones((1, 2, 5))
GROWN = mg.tensor(0.5, requires_grad=True)


def ones(*shape, dtype=float):
    return np.ones(shape, dtype)


REFUSED = [
    ("ShapeError", "mg.add(ones(2, 3), ones(5, 3))", "broadcast"),
    ("ShapeError", "mg.matmul(ones(2, 3, 5), ones(7, 5, 3))", "batch axes"),
    ("ShapeError", "mg.linear(ones(2, 5), ones(3, 7), ones(7))", "W's first, got 5 != 3"),
    ("ShapeError", "X.reshape(7, 2)", "size 30"),
    ("ShapeError", "X.transpose(0, 1)", "got 2; write x.swapaxes(0, 1)"),
    ("ShapeError", "mg.stack([X, ones(2, 3)])", "same shape"),
    ("ShapeError", "mg.mask_add(ones(2, 5, 5), ones(5, 3, dtype=bool))", "5 and 3"),
    ("ShapeError", "mg.layer_norm(X, ones(3), None)", "(5,), got (3,)"),
    ("ShapeError", "mg.conv2d(ones(1, 3, 5, 5), ones(4, 2, 3, 3))", "C = 3"),
    ("ShapeError", "mg.max_pool(ones(2, 3), 2)", "got (2, 3)"),
    ("DTypeError", "mg.dropout(X, 0.5, 0)", "np.random.Generator, got int"),
    ("OutOfRangeError", "mg.cross_entropy(ones(3, 5), [0, 1, 5])", "[0, 5), got 5"),
    ("OutOfRangeError", "X[0, 3]", "index 3 is out of bounds for axis 1 with size 3"),
    ("ArgumentError", "mg.split(X, 2, axis=2)", "multiple of 2"),
    ("ShapeError", "mg.expand_dims(X, 5)", "expand_dims(x, axis): axis 5 is out of bounds"),
    ("ShapeError", "mg.moveaxis(X, 3, 0)", "moveaxis(x, source, destination): source: axis 3"),
    ("ShapeError", "mg.argmax(X, 3)", "argmax(x, axis, keepdims): axis 3"),
    ("ShapeError", "mg.squeeze(X, 0)", "is not of length 1"),
    ("ShapeError", "mg.conv1d(ones(1, 2, 3), W)", "do not fit into"),
    ("ShapeError", "mg.conv1d(ones(1, 2, 7), W, ones(2))", "bias must be (1,)"),
    ("ArgumentError", "mg.conv1d(ones(1, 2, 5), W, stride=0)", "at least 1"),
    ("ArgumentError", "mg.conv1d(ones(1, 2, 5), W, stride=2, padding='same')", "takes stride=1"),
    ("ArgumentError", "mg.dropout(X, 2.0, np.random.default_rng(0))", "in [0, 1], got 2.0"),
    ("ArgumentError", "mg.fake_quantize(X, 1.0, 1)", "2 to 64"),
    ("DTypeError", "mg.where(X > 0, None, 1.0)", "must both be given"),
    ("ShapeError", "mg.einsum('ij->i', X)", "einsum(subscripts, operands)"),
    ("ShapeError", "mg.linear(ones(3, 5), ones(5, 7), ones(1))", "b must have W's last axis"),
    ("ShapeError", "mg.rms_norm(3.0, None)", "at least 1 axes"),
    ("ShapeError", "mg.batch_norm(ones(2, 3), ones(2), None)", "x's axis 1, (3,), got (2,)"),
    ("ShapeError", "mg.cross_entropy(ones(3, 5), np.eye(3, 5, dtype=int))", "astype(float)"),
    ("ShapeError", "mg.cross_entropy(ones(2, 5), [7, 7], ignore_index=7)", "over no rows"),
    ("ShapeError", "mg.cross_entropy(3.0, 0)", "logits need a last axis"),
    ("ShapeError", "mg.mse_loss(ones(0), ones(0))", "a mean over nothing"),
    ("ShapeError", "mg.l1_loss(ones(3), ones(3, 1))", "l1_loss(x, target): both must have one"),
    ("ShapeError", "mg.tiled_attention(ones(3, 2), ones(5, 3), ones(5, 2))", "got 2 != 3"),
    ("ShapeError", "mg.tiled_attention(ones(3, 2), ones(5, 2), ones(4, 2))", "got 5 != 4"),
    ("ShapeError", "mg.tiled_attention(ones(3, 2), ones(5, 2), ones(5, 2), ones(3, 4))", "(3, 4)"),
    ("DTypeError", "mg.pad(X, 1.5)", "pad_width must be integers, got float64"),
    ("DTypeError", "mg.take(X, [0.5], axis=0)", "indices must be integers, got float64"),
    ("DTypeError", "mg.split(X, 2.0)", "split(x, indices_or_sections, axis)"),
    ("DTypeError", "mg.mask_add(ones(3, 3), np.tri(3, dtype=int))", "floats to add, got int64"),
    ("DTypeError", "mg.cross_entropy(ones(1, 5), ['cat'])", "return_inverse=True"),
    ("ArgumentError", "mg.batch_norm(X, None, None, ones(3))", "go together"),
    ("ArgumentError", "mg.gelu(X, approximate='erf')", 'approximate must be "none" or "tanh"'),
    ("ArgumentError", "mg.var(X[0, 0, :1], ddof=1)", "got n = 1 and ddof = 1"),
    ("ArgumentError", "mg.norm(X[0], 2)", "ord must be None, or 2 along one axis"),
    ("ArgumentError", "mg.einsum('ij,jk->ik', ones(2, 3))", "name 2 operands, got 1"),
    ("ArgumentError", "mg.einsum('ii->i', ones(3, 3))", "repeats a label; of a diagonal"),
    ("ArgumentError", "mg.scale(X, ones(2))", "factor must be one number, got shape (2,)"),
    ("ArgumentError", "mg.max_pool(X, 2, padding=2)", "smaller than a window of 2, got 2"),
    ("ArgumentError", "mg.huber_loss(X, X, delta=0.0)", "delta must be above 0"),
    ("ArgumentError", "mg.cross_entropy(ones(1, 5), [0], label_smoothing=2)", "[0, 1], got 2"),
    ("ArgumentError", "mg.fake_quantize(X, 0.0)", "scale must be above 0"),
    ("OutOfRangeError", "mg.take(X, [2, -1], 1, negative=False)", "in [0, 3), got -1 to 2"),
    ("OutOfRangeError", "mg.take_along_axis(X, np.array([[[9]]]), 2)", "out of bounds"),
    ("GradientError", "mg.clip(X, GROWN)", "no gradient flows into low; pass low.detach()"),
]


@pytest.mark.parametrize(("error", "call", "said"), REFUSED, ids=[row[1] for row in REFUSED])
def test_an_error_says_the_call_the_rule_and_the_numbers(error, call, said):
    with pytest.raises(getattr(mg.errors, error)) as caught:
        eval(call, globals())
    assert said in str(caught.value)


X_REQUIRED = mg.tensor(np.ones((3, 4)), requires_grad=True)
STRANGE = "a", None, object(), {"a": 1}, 2**70, -1.5, (), [[1.0], [2.0, 3.0]], [GROWN, GROWN]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", mg.ops.__all__)
def test_no_bare_error_of_python_or_numpy_comes_through(name):
    """Whatever stands in the place of an argument, an error is ours and begins with the call."""
    function, said = getattr(mg, name), []
    parameters = inspect.signature(function).parameters.values()
    needed = {p.name: X_REQUIRED for p in parameters if p.default is p.empty}
    calls = [needed | {p.name: value} for p in parameters for value in STRANGE]
    for arguments in (*calls, needed | {"nonsense": 1}, {}):
        try:
            function(**arguments)
        except MinigradError as error:
            said.append(str(error))
    assert said
    assert [text for text in said if not text.startswith(f"{name}(")] == []


def test_a_failed_call_names_shapes_dtypes_and_paths():
    with mg.scope("attn"):
        q = (mg.tensor(np.ones((2, 7, 11)), requires_grad=True) * 1).named("q_proj")
    with pytest.raises(ShapeError) as error:
        mg.matmul(q, np.ones((2, 13, 5), np.float32))
    assert str(error.value).splitlines() == [
        "matmul(a, b): a's last axis must equal b's second-to-last, got 11 != 13",
        "  a: (2, 7, 11) float64   attn/q_proj",
        "  b: (2, 13, 5) float32",
    ]


def test_complex_outputs_get_no_real_gradient():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    for y in (x * 1j, mg.abs(x * (1 + 2j)), mg.exp(x * 1j).sum()):
        with pytest.raises(MinigradError, match="complex"):
            y.backward(np.ones(y.shape))
