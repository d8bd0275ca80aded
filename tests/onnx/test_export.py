"""What a model file holds: names, inputs, outputs, constants; and what is refused, and how."""

import os
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, Linear, MultiHeadAttention, TransformerBlock, quantize
from minigrad.errors import ArgumentError, ShapeError
from minigrad.onnx.graph import Graph
from minigrad.ops.mask_rules import Window
from tests.onnx import exported
from tests.onnx.exported import axes_of, onnx, onnxruntime, run

X = np.random.default_rng(0).normal(size=(2, 5, 6))


@pytest.fixture
def export(tmp_path):
    return partial(exported.export, folder=tmp_path)


# ---------------------------------------------------------------- what the file holds


def test_nodes_bear_scopes_and_values_the_papers_symbols(export):
    class Model(LanguageModel):
        pass

    model = Model(n_tokens=11, d_model=4, n_heads=2, d_ff=5, n_layers=2, rng=0).eval()
    graph = export(model, [np.zeros((2, 5), int)]).graph
    nodes = {node.name: node for node in graph.node}
    softmax = nodes["/model/decoder/blocks.0/attention/softmax"]
    assert softmax.metadata_props[0].value == "model/decoder/blocks.0/attention/softmax"
    values = {name for node in graph.node for name in node.output}
    block = "/model/decoder/blocks.1"
    assert {f"{block}/attention/{symbol}" for symbol in ("Q", "K", "V", "S", "A", "O")} <= values
    assert axes_of(graph.input[0]) == ["batch", "length"]
    assert axes_of(graph.output[0]) == ["batch", "length", 11]
    assert (graph.input[0].name, graph.output[0].name) == ("tokens", "logits")
    constants = [c.name for c in graph.initializer]
    assert {path for path, _ in model.named_parameters()} <= set(constants)


def test_a_weight_used_twice_is_in_the_file_once(export):
    W = mg.tensor(np.random.default_rng(0).normal(size=(50, 50)), requires_grad=True, name="W")
    model = export(lambda x: mg.tanh(x @ W) @ W.T, [np.ones((3, 50))])
    large = [c.name for c in model.graph.initializer if c.dims == [50, 50]]
    assert large == ["/W"]
    assert model.opset_import[0].version == 18  # the lowest that has all its operators


def test_weights_of_a_method_have_their_paths(export):
    model = export(Linear(6, 6, rng=0).forward, [mg.tensor(X)], dynamic={})
    assert {"W", "b"} <= {c.name for c in model.graph.initializer}


def test_the_same_program_gives_the_same_bytes_and_tells_nothing_of_this_machine(tmp_path):
    layer = TransformerBlock(6, 2, 5, rng=0)
    for name in ("a", "b"):
        mg.export_onnx(layer, [X], tmp_path / name)
    found = (tmp_path / "a").read_bytes()
    assert found == (tmp_path / "b").read_bytes()
    assert os.getcwd().encode() not in found
    assert b".py" not in found


def test_large_constants_may_lie_in_a_file_beside_the_model(tmp_path):
    layer = Linear(30, 30, rng=0)
    for _ in range(2):  # over an older one too
        mg.export_onnx(layer, [np.ones((2, 30))], tmp_path / "m.onnx", external=True)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 30 * 30 * 8
    x = np.full((4, 30), 0.5)
    model = onnx.load(tmp_path / "m.onnx")
    np.testing.assert_allclose(run(model, x)[0], layer(x).numpy(), rtol=1e-12)


def test_float16_stays(export):
    layer = TransformerBlock(6, 2, 5, rng=0, dtype=np.float16)
    found = run(export(layer, [X.astype(np.float16)]), X.astype(np.float16))[0]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, layer(X.astype(np.float16)).numpy(), rtol=0.02, atol=0.02)


def test_integers_come_as_int64_and_keep_their_dtype_inside(export):
    model = export(lambda i: mg.tensor(np.arange(9.0))[i] * i, [np.array([1, 2, 3], np.int32)])
    np.testing.assert_allclose(run(model, np.array([8, 0]))[0], [64.0, 0.0])


OUTPUTS = {
    "named": (lambda x: (mg.exp(x).named("y"), x * 2), [X], {"y": np.exp(X), "output": X * 2}),
    "in a dict": (lambda x: {"a": x + 1, "b": [x][0]}, [X], {"a": X + 1, "b": X}),
    "in containers, by names that repeat": (
        lambda x: (x + 1, [y := x * 2, (x - 1,)], y),
        [X],
        {"output_0": X + 1, "output_1": X * 2, "output_2": X - 1, "output_3": X * 2},
    ),
    "of no input": (lambda: mg.tensor([[1.0, 2.0]]) * 3, [], {"output": [[3.0, 6.0]]}),
}


@pytest.mark.parametrize(("function", "inputs", "outputs"), OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_have_names_and_come_in_order(export, function, inputs, outputs):
    model = export(function, [mg.tensor(x) for x in inputs])
    assert [one.name for one in model.graph.output] == [*outputs]
    assert len(model.graph.input) == len(inputs)
    for found, expected in zip(run(model, *inputs), outputs.values(), strict=True):
        np.testing.assert_allclose(found, expected)


def difference(a, /, b):
    return a - 2 * b


SHAPE, PAIR = ["batch", "length", 6], [mg.tensor(X), mg.tensor(X)]
INPUTS = {
    "by position alone": (difference, PAIR, {"a": SHAPE, "b": SHAPE}),
    "any number of them": (
        lambda *tensors: tensors[0] + tensors[1],
        PAIR,
        {"input_0": SHAPE, "input_1": SHAPE},
    ),
    "one, any number of others, and a keyword": (
        lambda a, *others, factor=2: a + others[0] * factor,
        PAIR,
        {"a": SHAPE, "input_1": SHAPE},
    ),
    "by keyword, in another order": (
        lambda a, b: a + 2 * b,
        {"b": mg.tensor(X * 3), "a": mg.tensor(X)},
        {"b": SHAPE, "a": SHAPE},
    ),
    "another that may be longer": (
        lambda a, b: mg.sum(a, 1) + mg.sum(b, 1),
        PAIR,
        {"a": SHAPE, "b": ["batch", "b_length", 6]},
    ),
    "another of another kind": (
        lambda a, b: mg.sum(a, 1) + b.sum(axis=1),
        [mg.tensor(X[..., 0]), np.ones((2, 5), bool)],
        {"a": SHAPE[:2], "b": SHAPE[:2]},
    ),
    "another of no batch": (
        lambda a, b: a @ b,
        [mg.tensor(X[..., 0]), mg.tensor(X[0])],
        {"a": SHAPE[:2], "b": SHAPE[1:]},
    ),
    "another whose last axis is as long as the batch": (
        lambda a, b: a @ b,
        [mg.tensor(X), mg.tensor(X[:, 0].T)],
        {"a": SHAPE, "b": [6, 2]},
    ),
    "an axis that changes while no other does": (
        lambda x: mg.exp(x if len(x) == 2 or x.shape[1] == 5 else x[..., 6]),
        PAIR[:1],
        {"x": ["batch", 5, 6]},
    ),
    "an axis that is named": (mg.exp, PAIR[:1], {"x": [2, 5, "width"]}, {"x": {2: "width"}}),
    "an axis from the end": (
        lambda x: mg.reshape(x, (10, x.shape[-1])),
        PAIR[:1],
        {"x": [2, 5, "width"]},
        {"x": {-1: "width"}},
    ),
    "no axis of a wide window": (
        MultiHeadAttention(6, n_heads=2, is_causal=True, window=600, rng=0),
        PAIR[:1],
        {"X": [2, 5, 6]},
        {},
    ),
}


@pytest.mark.parametrize("of", INPUTS)
def test_inputs_have_the_names_of_parameters_and_the_axes_that_may_change(export, of):
    function, inputs, axes, *dynamic = INPUTS[of]
    model = export(function, inputs, dynamic=dynamic[0] if dynamic else None, longest=20)
    assert {one.name: axes_of(one) for one in model.graph.input} == axes
    by_name = inputs if isinstance(inputs, dict) else dict(zip(axes, inputs, strict=True))
    expected = function(**inputs) if inputs is by_name else function(*inputs)
    np.testing.assert_allclose(run(model, *by_name.values())[0], expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_row_that_may_attend_nowhere_gives_zeros(export, is_causal):
    layer = MultiHeadAttention(6, 2, is_causal=is_causal, rng=0)
    mask = np.random.default_rng(1).random((2, 1, 5)) < 0.5
    model = export(layer, {"X": X, "mask": mask})
    found = run(model, X, np.zeros((2, 1, 5), bool))[0]
    np.testing.assert_allclose(found, np.zeros((2, 5, 6)), atol=1e-12)
    np.testing.assert_allclose(run(model, X, mask)[0], layer(X, mask).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("scores", "opened", "closed"),
    [
        (lambda S, mask: S + mask, 0.0, -np.inf),
        (lambda S, real: S + mg.log(real.astype(float)), True, False),
    ],
)
def test_a_mask_that_is_added_may_close_a_row_though_none_was_closed_at_export(
    export, scores, opened, closed
):
    mask = np.full((5, 5), opened)
    model = export(lambda x, mask: mg.softmax(scores(x @ x.mT, mask)), [mg.tensor(X), mask])
    found = run(model, X, np.where(np.arange(5)[:, None] == 2, closed, mask))[0]
    np.testing.assert_allclose(found.sum(axis=-1), [[1, 1, 0, 1, 1]] * 2)


@pytest.mark.needs_fast("it is tiled")
def test_attention_that_takes_tiles_by_itself_is_exported_by_its_steps_and_takes_them_again(export):
    from minigrad.fast.limits import LIMITS

    with LIMITS.changed(tiled_scores=0):
        model = export(MultiHeadAttention(6, 2, method="auto", rng=0), [X], longest=20)
        assert mg.attention_method(2, 5, 5) == "tiled"
    assert "/multi_head_attention/softmax" in {node.name for node in model.graph.node}


@pytest.mark.needs_fast("it is tiled")
def test_a_mask_rule_is_exported_for_more_keys_than_queries(export):
    def attend(q, k):
        return mg.scaled_dot_product_attention(
            q, k, k, is_causal=True, rule=Window(3), method="tiled"
        )

    model = export(attend, [mg.tensor(X), mg.tensor(np.tile(X, (1, 2, 1)))], longest=20)
    keys = np.random.default_rng(1).normal(size=(2, 17, 6))
    np.testing.assert_allclose(run(model, X, keys)[0], attend(X, keys), atol=1e-6)


def test_layers_show_the_call_of_the_given_inputs_afterwards(export):
    layer = MultiHeadAttention(6, 2, is_causal=True, rng=0)
    export(layer, [X])
    found = layer.attention_weights
    layer(X)
    np.testing.assert_array_equal(found, layer.attention_weights)
    assert type(found) is type(layer.attention_weights)


# ---------------------------------------------------------------- ops of one's own


@pytest.fixture
def cube():
    @mg.op(tex=r"<x>^3", vjp_tex={"x": r"3 <g> \odot <x>^2"})
    def cube(x):
        """The cube of each entry."""
        return x * np.square(x)

    yield cube
    del mg.registry["cube"]


def test_an_op_of_ones_own_is_followed_through_its_kernel_or_says_what_it_is(export, cube):
    for operators in ({"Mul", "Neg", "Shape"}, {"Pow", "Neg", "Shape"}):
        model = export(lambda x: -cube(x).named("y"), [mg.tensor(X)])
        assert {node.op_type for node in model.graph.node} <= operators
        assert {"/y", "/cube/y"} & {name for node in model.graph.node for name in node.output}
        np.testing.assert_allclose(run(model, X[:, :3])[0], -(X[:, :3] ** 3))
        mg.onnx.translation(cube)(lambda to, x: to.Pow(x, 3))


def test_an_export_that_fails_leaves_the_file_that_was_there(tmp_path, cube):
    """Here by a wrong translation, which is found before anyone uses the model."""
    mg.onnx.translation(cube)(lambda to, x: to.Mul(x, x))
    (tmp_path / "m.onnx").write_text("of an earlier day")
    with pytest.raises(ArgumentError, match=r"onnxruntime computes another output .* by 1\.?\d* "):
        mg.export_onnx(cube, [mg.tensor(X)], tmp_path / "m.onnx", longest=20)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [
        ("m.onnx", "of an earlier day")
    ]
    with pytest.raises(ArgumentError, match="there is no folder"):
        mg.export_onnx(cube, [mg.tensor(X)], tmp_path / "gone" / "m.onnx", longest=20)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArgumentError, match="is a device or a pipe; name a file"):
        mg.export_onnx(mg.exp, [mg.tensor(X)], tmp_path / "pipe", longest=20)


TOKENS_OF_50 = np.random.default_rng(0).integers(0, 50, (1, 40))


def of_few_bits(train):
    """A model of float32: among its roundings some fall otherwise where sums have another order."""
    model = LanguageModel(50, 64, 4, 4, max_len=64, rng=0, dtype=np.float32)
    return quantize(model, TOKENS_OF_50, train=train).eval()


@pytest.mark.parametrize("train", [False, True])
def test_a_quantized_model_of_float32_is_exported(tmp_path, train):
    path = tmp_path / "m.onnx"
    mg.export_onnx(of_few_bits(train), [TOKENS_OF_50], path, longest=64, external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    ("operator", "wrong", "settings"),
    [
        ("Round", "Floor", {}),
        ("Gelu", "Gelu", {"approximate": "tanh"}),
        ("LayerNormalization", "LayerNormalization", {"epsilon": 1e-3}),
    ],
)
def test_a_quantized_model_that_is_wrong_is_refused(
    monkeypatch, export, train, operator, wrong, settings
):
    """Though a rounding may fall otherwise: what lies between two of them is compared."""
    emit = Graph.emit

    def planted(graph, name, *inputs, **given):
        if name == operator:
            name, given = wrong, given | settings
        return emit(graph, name, *inputs, **given)

    monkeypatch.setattr(Graph, "emit", planted)
    with pytest.raises(ArgumentError, match="onnxruntime computes another logits"):
        export(of_few_bits(train), [TOKENS_OF_50], longest=64)


# ---------------------------------------------------------------- what is refused

RNG = np.random.default_rng(0)
W = mg.tensor(np.ones(6))
TOKENS = np.array([[3, 1, 4, 1], [5, 5, 2, 4]])
WINDOW = MultiHeadAttention(6, n_heads=2, is_causal=True, window=40, rng=0)


def loop(x):
    total = x[:, 0]
    for t in range(1, x.shape[1]):
        total = mg.tanh(total + x[:, t])
    return total


def is_first(x):
    return int(x.numpy()[0, 0, 0] > X[0, 0, 0] - 1e-9)


def sorted_copy(x):
    copy = x.numpy().copy()
    copy.sort(axis=1)
    return x * copy


def broadcast_into(x):
    whole = x.numpy() * 2
    np.add(x.numpy()[:, :1], 1, out=whole)
    return mg.exp(whole)


def written(x):
    x.data[:, 0] = 0.0
    return x * mg.exp(x)


def pixels(x):
    table = np.random.default_rng(len(x)).normal(size=x.shape[1])
    return x * table[:, None]


REFUSED = {
    "a draw": (lambda x: mg.dropout(x, 0.5, RNG), "dropout, at .*test_export.py:.* model.eval"),
    "a write": (lambda x: (W.assign_(np.ones(6)), x * W)[1], "written in place at .*test_export"),
    "a number that Python takes out": (
        lambda x: x * float(x.numpy().sum()),
        "multiply, at .*test_export.py:.* depend on what the inputs hold",
    ),
    "such a number of zeros": (
        lambda x: x * float(x.numpy().sum()),
        "depend on what the inputs hold",
        {"inputs": [mg.tensor(np.zeros((2, 5, 6)))]},
    ),
    "an array written by a smaller one": (
        broadcast_into,
        "exp, at .* depend on what the inputs hold",
    ),
    "an array that NumPy makes": (
        lambda x: x + np.convolve(x.numpy().ravel(), [1.0, 2.0])[:6],
        "add, at .* depend on what the inputs hold",
    ),
    "a choice by values": (
        lambda x: mg.exp(x) if is_first(x) else mg.tanh(x),
        "runs .*, and .* with inputs that hold other values",
    ),
    "steps chosen by values": (
        lambda x: mg.exp(x) - x if is_first(x) else x - mg.exp(x),
        "runs subtract at .*, and subtract at .* with inputs that hold other values",
    ),
    "an output chosen by values": (
        lambda x: [mg.exp(x), mg.tanh(x)][is_first(x)],
        "runs to other outputs, and to these with inputs that hold other values",
    ),
    "a mask of tokens, of which none is padding": (
        lambda tokens: mg.where(np.asarray(tokens) != 0, mg.take(W, tokens), 0.0),
        "where, at .* depend on what the inputs hold",
        {"inputs": [TOKENS]},
    ),
    "a sorted copy": (sorted_copy, "multiply, at .* depend on what the inputs hold"),
    "an input written in place": (written, "exp, at .* depend on what the inputs hold"),
    "None beside positions": (lambda x: x[:, None, np.array([0, 1])], "use expand_dims after it"),
    "entries where a mask is true": (lambda x: x[x.numpy() > 0], "a boolean array as index"),
    "an axis that is mirrored": (
        lambda x: mg.pad(x, ((0, 0), (1, 1), (0, 0)), mode="symmetric"),
        "mirrors an axis whose length may change",
    ),
    "entries added at a size": (
        lambda x: mg.scatter_add(x[0, 0, 0], (x.shape[1],), (99,)),
        "adds entries where values or sizes say",
    ),
    "an array of a length by no formula": (
        lambda x: mg.sum(x) * np.ones(x.shape[1].bit_length()),
        "by no pattern that is known",
    ),
    "a setting by a size": (
        lambda x: mg.gelu(x, approximate="tanh" if x.shape[1] > 5 else "none"),
        "gelu, at .*, is given 'none' or 'tanh'; a choice",
    ),
    "a slice to the end by a size": (
        lambda x: x[:, : None if x.shape[1] > 5 else 4],
        "getitem, at .*, is given other arguments at other sizes",
    ),
    "a rank by a size": (mg.squeeze, "computes another output", {"inputs": [X[:1]]}),
    "an axis that is dropped at a batch of one": (
        lambda x: mg.squeeze(mg.sum(x, -1, keepdims=True)),
        "computes another output .* with {'batch': 1, 'length': 5}",
    ),
    "another way at a length of one": (
        lambda x: mg.exp(x) if x.shape[1] > 1 else mg.tanh(x),
        "computes another output .* with {'batch': 2, 'length': 1}",
    ),
    "a loop over a size": (loop, "runs .* with batch 2, length 5, and .*; a loop over a size"),
    "a position by no formula": (lambda x: x[:, x.shape[1].bit_length()], "a number that is 3, 4"),
    "steps of a size": (lambda x: x[:, :: x.shape[1]], "steps that depend on the sizes"),
    "a slice that values end": (
        lambda x: x[:, : x.numpy().argmax(axis=1)[0, 0]],
        "a shape that depends on values",
    ),
    "an array by no pattern": (pixels, "multiply, at .*by no pattern that is known"),
    "an output that is a constant": (lambda x: W, "the output .* is made of no input"),
    "an output that is no tensor": (lambda x: "text", "must return tensors, got str"),
    "a window": (WINDOW, "a window of 40 tokens .* pass longest=42", {"longest": 40}),
    "a window within": (lambda x: WINDOW(x), "a window of 40 tokens", {"longest": 40}),
    "a window of a method": (WINDOW.forward, "a window of 40 tokens", {"longest": 40}),
    "a list": (mg.exp, "x must be an array or a Tensor of numbers, got list", {"inputs": [[1.0]]}),
    "a dtype that ONNX lacks": (
        mg.exp,
        "x must be an array or a Tensor of numbers, got (float128|longdouble)",
        {"inputs": [np.ones(3, np.longdouble)]},
    ),
    "another name": (mg.exp, "names 'y'; the inputs are x", {"dynamic": {"y": {0: "n"}}}),
    "an axis that there is not": (
        mg.exp,
        r"names axes \[3\] of x, which has 3",
        {"dynamic": {"x": {3: "n"}}},
        ShapeError,
    ),
    "one name of two lengths": (
        mg.exp,
        "two lengths 'n', 2 and 5",
        {"dynamic": {"x": {0: "n", 1: "n"}}},
        ShapeError,
    ),
    "an axis that is stuck": (
        lambda x: mg.matmul(x, np.eye(6)),
        "'d' may change, but .* than 6",
        {"dynamic": {"x": {2: "d"}}},
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_place_in_a_model_is_refused_by_op_and_line(why, tmp_path):
    function, message, *more = REFUSED[why]
    given = {"inputs": [mg.tensor(X)], "longest": 20} | dict(*more[:1])
    with pytest.raises(more[1] if more[1:] else ArgumentError, match=message):
        mg.export_onnx(function, path=tmp_path / "m.onnx", **given)
    assert not (tmp_path / "m.onnx").exists()


def counted_from_one(tokens):
    if not tokens.all():
        raise ValueError("tokens are counted from one")
    return mg.take(W, tokens - 1)


def without_padding(tokens):
    return mg.take(W, tokens) if (tokens != 0).all() else mg.exp(mg.take(W, tokens))


@pytest.mark.parametrize(
    "function", [counted_from_one, without_padding, lambda n: mg.log(W[n] * n)]
)
def test_a_function_that_takes_no_zeros_or_takes_another_way_is_exported_for_the_others(
    export, function
):
    model = export(function, [TOKENS], longest=20)
    np.testing.assert_allclose(run(model, TOKENS)[0], function(TOKENS).numpy())


def test_a_model_that_onnxruntime_cannot_load_is_refused(tmp_path, monkeypatch):
    """It lacks kernels of some dtypes."""

    def refuse(path, providers):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    with pytest.raises(ArgumentError, match="onnxruntime cannot load the model: no kernel"):
        mg.export_onnx(mg.exp, [X], tmp_path / "m.onnx")


TABLE = np.random.default_rng(0).normal(size=(99, 6))
PAIRS = np.random.default_rng(0).normal(size=(99, 99))
POSITIONS = {
    "counted": (lambda x, n: x * np.arange(n)[:, None], 30),
    "counted back": (lambda x, n: x * np.arange(n)[::-1, None], 20),
    "causal up to the last of more keys": (lambda x, n: x.mT @ np.tri(n, 2 * n, n), 30),
    "causal from the first of more keys": (lambda x, n: x.mT @ np.tri(n, 2 * n), 30),
    "the last query alone": (lambda x, n: x.mT @ np.abs(np.arange(n) - n + 1.0)[:, None], 20),
    "distances from the last query to the first key": (
        lambda x, n: np.sqrt(np.arange(n - 1, -1, -1)[:, None] + np.arange(n)) @ x,
        20,
    ),
    "counted from two sizes": (
        lambda x, n: x * np.arange(n, 2 * n)[:, None] + np.arange(2 * n, 3 * n)[:, None],
        30,
    ),
    "causal, and up to one key later": (lambda x, n: np.tri(n) @ x + np.tri(n, n, 1) @ x, 30),
    "before itself, by -inf": (
        lambda x, n: mg.softmax(x @ x.mT + np.where(np.tri(n, n, -1), 0, -np.inf)) @ x,
        30,
    ),
    "a part of one array": (lambda x, n: PAIRS[:n, :n] @ x, 20),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_arrays_of_positions_grow_with_the_length(export, name):
    """Counted positions and causal masks beyond the longest run too."""
    function, longest = POSITIONS[name]
    model = export(lambda x: function(x, x.shape[1]), [mg.tensor(X)], longest=20)
    for n in (1, 13, longest):
        x = np.random.default_rng(n).normal(size=(3, n, 6))
        expected = function(mg.tensor(x), n).numpy()
        np.testing.assert_allclose(run(model, x)[0], expected, rtol=1e-6, atol=1e-6)


def running_total(x):
    """x += y of a number of NumPy's makes another one."""
    total = x.numpy().sum()
    first = total
    total += 5.0
    return x * first + total


OF_OTHER_VALUES = {
    "a quotient that rounds up to a whole number": (lambda x: x.numpy() // 0.1, [1.0, -1.0, 0.25]),
    "a quotient by zero": (lambda x: 1 // x.numpy(), [0.0, -0.0, 0.5]),
    "a remainder of negative numbers": (lambda x: x.numpy() % -0.1, [1.0, -1.0, 0.0]),
    "a number that is NaN": (lambda x: mg.where(x.data > 0, x, np.nan), [1.0, -1.0, 0.0]),
    "a total that goes on": (running_total, [1.0, -1.0, 0.5]),
    "log1p of what overflows": (lambda x: mg.log1p(mg.exp(x)), [1e3, -1e3, 1.0]),
    "a row of nothing but -inf": (mg.log_softmax, [-np.inf, -np.inf, -np.inf]),
    "large numbers over all axes": (lambda x: mg.log_softmax(x, axis=None), [1e9, 1e9, 0.0]),
}


@pytest.mark.parametrize("of", OF_OTHER_VALUES)
def test_the_model_computes_the_same_of_values_unlike_those_of_the_export(export, of):
    function, values = OF_OTHER_VALUES[of]
    x = mg.tensor([values])

    def computed(x):
        return mg.tensor(0.0) + function(x)

    with np.errstate(all="ignore"):
        model = export(computed, [mg.tensor(np.ones((1, 3)))], dynamic={})
        np.testing.assert_allclose(run(model, x)[0], computed(x).numpy(), rtol=1e-12)


def added_to_one_buffer(x):
    """What an array holds at each step, not what it holds at the end."""
    kept = np.zeros(6)
    for k in range(3):
        kept[k] = k + 1.0
        x = x * kept + 1
    return x


@pytest.mark.parametrize("copied", [np.asarray, np.ascontiguousarray, lambda x: x.reshape(x.shape)])
def test_a_view_that_is_dropped_leaves_the_array_known(export, copied):
    model = export(lambda x: mg.exp(mg.tensor(copied(x.numpy()))), [mg.tensor(X)], longest=20)
    np.testing.assert_allclose(run(model, X[:1] + 1)[0], np.exp(X[:1] + 1))


def test_an_array_of_constants_that_is_written_between_steps(export):
    model = export(added_to_one_buffer, [mg.tensor(X)], longest=20)
    np.testing.assert_allclose(run(model, X[:1])[0], added_to_one_buffer(X[:1]))


def every_third_token_before(x):
    back = np.arange(x.shape[1])[:, None] - np.arange(x.shape[1])
    return mg.softmax(mg.mask_add(x @ x.mT, (back >= 0) & (back % 3 == 0))) @ x


@pytest.mark.parametrize("function", [lambda x: x + TABLE[: x.shape[1]], every_third_token_before])
def test_a_table_of_positions_ends_with_an_error_never_with_other_rows(export, function):
    model, x = export(function, [mg.tensor(X)], longest=20), np.ones((1, 21, 6))
    found = run(model, x[:, :20])[0]
    np.testing.assert_allclose(found, function(mg.tensor(x[:, :20])).numpy(), rtol=1e-6)
    onnxruntime.set_default_logger_severity(4)
    with pytest.raises(Exception, match="out of data bounds"):
        run(model, x)
