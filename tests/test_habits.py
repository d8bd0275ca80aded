"""What is typed from habit works, or meets an error that says what to write: one table has it."""

import importlib
import json
import re

import numpy as np
import pytest

import layers
import minigrad as mg
from layers import Linear, Sequential
from minigrad import habits
from minigrad.errors import DTypeError, MissingNameError, ShapeError

OBJECTS_OF = {  # what lacks the names of a table
    "TENSOR_HABITS": mg.tensor([1.0, 2.0]),
    "LAYER_HABITS": Linear(3, 2),
}
TABLES = (*OBJECTS_OF, "FUNCTION_HABITS", "DIFFERENCES")
ROWS = [(table, row) for table in TABLES for row in habits.rows(getattr(habits, table))]
TYPED = [(table, name, row) for table, row in ROWS for name in row.names if name.isidentifier()]


def namespace():
    """What the right sides of the table may name."""
    rng = np.random.default_rng(0)
    x = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True, name="x")
    layer = layers.SelfAttention(8, 4, 4, rng=rng)
    words = mg.tensor(rng.normal(size=(2, 7, 8)))
    layer.W, layer.b = layer.W_Q, layer.b_Q
    layer(words.numpy())
    model = Sequential(Linear(3, 3, rng=rng))
    return {
        "mg": mg, "layers": layers, "np": np, "Linear": Linear, "Sequential": Sequential,
        "x": x, "q": words, "words": words, "image": mg.tensor(rng.normal(size=(2, 3, 4, 4))),
        "targets": np.array([0, 2]), "tokens": np.array([[0, 1, 2]]), "rng": rng, "layer": layer,
        "model": model, "optimizer": mg.optim.Adam(model.parameters()),
        "blocked": np.triu(np.ones((7, 7), bool), 1),
    }  # fmt: skip


@pytest.mark.parametrize(("table", "row"), ROWS, ids=lambda value: getattr(value, "names", ""))
def test_what_to_write_instead_runs(table, row):
    exec(row.ours, namespace())
    layers.seed(None)


ABSENT = [
    (table, name, row)
    for table, name, row in TYPED
    if table in OBJECTS_OF and not hasattr(OBJECTS_OF[table], name)
]


@pytest.mark.parametrize(("table", "name", "row"), ABSENT)
def test_a_name_of_habit_meets_what_to_write(table, name, row):
    with pytest.raises(AttributeError, match=re.escape(row.ours)):
        getattr(OBJECTS_OF[table], name)


PACKAGES = ["minigrad", "minigrad.autodiff"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_of_habit_in_a_package_meets_what_to_write_also_when_imported(package):
    module = importlib.import_module(package)
    for _, name, row in (t for t in TYPED if t[0] == "FUNCTION_HABITS"):
        if hasattr(module, name):
            continue
        with pytest.raises(AttributeError, match=re.escape(row.ours)):
            getattr(module, name)
        with pytest.raises(ImportError, match=re.escape(row.ours)):
            exec(f"from {package} import {name}", {})


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: mg.softmax(x, dim=-1), "write axis="),
        (lambda x: x.sum(axis=0, keepdim=True), "write keepdims="),
        (lambda x: mg.softmax(x, axsi=-1), "the nearest is axis="),
        (lambda x: mg.tensor([1.0], device="cuda"), "leave it out"),
        (lambda x: mg.grad(lambda x: x, x), "write mg.grad(f(x), x)"),
        (lambda x: mg.grad(mg.sum(x), {"x": x}), "write list(inputs.values())"),
        (lambda x: mg.vjp(lambda x: x, x), "or give one: grad_output="),
        (lambda x: x.flatten(1), "write x.reshape(len(x), -1)"),
        (lambda x: mg.stack([x]).transpose(0, 1), "write x.swapaxes(0, 1)"),
        (lambda x: mg.reshape(x, (3, 2)).max(1), "write x.max(axis) and x.argmax(axis)"),
        (lambda x: x.clip(min=0), "write low="),
        (lambda x: np.dot(x, x), "write x @ y, or use x.numpy()"),
        (lambda x: np.zeros(3).__iadd__(x), "write a = a + x"),
        (lambda x: x.where(x > 0, 0), "write mg.where(condition, a, b)"),
        (lambda x: x.trace(), "write x.numpy().trace"),
        (lambda x: mg.cross_entropy(x, ["cat", "dog"]), "write np.unique(targets, return_inverse"),
        (lambda x: (x * 2).backward(), "write out.sum().backward()"),
        (lambda x: mg.optim.Adam(Linear(3, 2)), "write model.parameters()"),
        (lambda x: mg.cross_entropy(x, np.array([[0], [1]])), "write targets[..., 0]"),
        (lambda x: mg.cross_entropy(x, np.array([0.0, 1.0])), "write targets.astype(int)"),
        (lambda x: f"{x:.3f}", "np.array2string"),
        (lambda x: round(x, 2), "item(): takes a tensor of one entry"),
        (lambda x: x.item(), "write x.numpy()"),
        (lambda x: x.size(), "write x.shape"),
        (lambda x: x.size(0), "write x.shape[0]"),
        (lambda x: json.dumps({"loss": x.sum()}), "write x.item()"),
        (lambda x: mg.where(x.data > 1, x, None), "must both be given, got None"),
        (lambda x: mg.stack([x, None]), "one of arrays is None"),
        (lambda x: layers.LSTM(3, 5)(mg.stack([x, x])), "return_state=True"),
        (lambda x: layers.SelfAttention(3, 5, 5)(mg.stack([x, x])), "return_weights=True"),
    ],
)
def test_a_keyword_or_a_call_of_habit_meets_what_to_write(call, text):
    refusals = (DTypeError, ShapeError, MissingNameError)
    with pytest.raises(refusals, match=re.escape(text)):
        _, _ = call(mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True))


def test_a_layer_of_ones_own_may_take_any_keyword():
    class Own(layers.Module):
        def __init__(self, num_heads, **config):
            self.num_heads, self.dim = num_heads, config["dim"]

        def forward(self, X, attn_mask=None):
            return X

    own = Own(num_heads=2, dim=3)
    assert (own.num_heads, own.dim) == (2, 3)
    assert own(mg.tensor([1.0]), attn_mask=None).shape == (1,)


OBJECTS = np.array([[1, 2, 3]], object)
DATES = np.array([["2020-01-01", "2020-01-02", "2020-01-03"]], "datetime64[D]")
MASKED = np.ma.masked_array([[1.0, 2.0, 3.0]], [[0, 1, 0]])


@pytest.mark.parametrize(
    "array", [OBJECTS, DATES, DATES - DATES[0, 0], MASKED], ids=lambda a: a.dtype
)
@pytest.mark.parametrize(
    "call",
    [
        lambda a: mg.exp(a),
        lambda a: mg.multiply(a, 2.0),
        lambda a: mg.ones((1, 3)) * a,
        lambda a: np.asarray(a) * mg.ones((1, 3)) if a is not MASKED else mg.stack([a, a]),
        lambda a: mg.ones((5, 1)) @ a,
        lambda a: mg.tensor(a),
        lambda a: Linear(3, 2)(a),
        lambda a: Sequential(Linear(3, 2))(a),
        lambda a: layers.MultiHeadAttention(3, 1)(np.ones((1, 1, 3)), mask=a),
    ],
)
def test_what_holds_no_plain_numbers_is_refused(array, call):
    with pytest.raises(DTypeError, match=r"x\.filled\(0\.0\)|numbers|numeric"):
        call(array)


def test_what_is_natural_exists():
    x = mg.tensor([[1.0, -2.0]], requires_grad=True)
    np.testing.assert_array_equal(x.relu().numpy(), [[1.0, 0.0]])
    np.testing.assert_allclose(x.softmax(axis=-1).sum().item(), 1.0)
    np.testing.assert_array_equal(mg.zeros((2, 3)).numpy(), np.zeros((2, 3)))
    np.testing.assert_array_equal(mg.ones(2, 3, dtype=np.float32).numpy(), np.ones((2, 3)))
    assert mg.tensor([1, 2], dtype=np.float32).dtype == np.float32
    assert round(mg.tensor(1.2345), 2) == 1.23
    assert f"{mg.tensor(1.2345):.2f}" == "1.23"


def test_a_misspelt_name_meets_the_nearest():
    with pytest.raises(MissingNameError, match="the nearest is softmax"):
        _ = mg.softmaks
    assert not hasattr(mg.tensor([1.0]), "reshap")
