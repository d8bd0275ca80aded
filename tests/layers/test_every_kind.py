"""What every layer holds: its gradients, batches, dtypes, copies, files of weights."""

import pickle
from copy import deepcopy
from inspect import signature

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

from .kinds import OF_ARRAYS, OF_TOKENS, ROWS, WITH_CONTEXT, call, drawn, kinds

ALL = ROWS, WITH_CONTEXT, OF_TOKENS, OF_ARRAYS


@kinds(*ALL, without=("dropout", "encoder", "decoder", "gpt", "llama"))
def test_gradients_of_inputs_and_parameters_are_those_of_differences(rng, name):
    layer, *inputs = drawn(rng, name)
    leaves = [x for x in inputs if isinstance(x, mg.Tensor)] + layer.parameters()
    out = call(layer, *inputs)
    G = rng.normal(size=out.shape)
    gradients = mg.grad(out, leaves, G)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        direction, before = rng.normal(size=leaf.shape), leaf.numpy().copy()
        sums = []
        for step in (1e-5, -1e-5):
            leaf.assign_(before + step * direction)
            sums.append((call(layer, *inputs).numpy() * G).sum())
        leaf.assign_(before)
        expected = (sums[0] - sums[1]) / 2e-5
        np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=1e-5, atol=1e-6)


@kinds(ROWS, WITH_CONTEXT, OF_TOKENS)
def test_each_example_of_a_batch_is_computed_by_itself(rng, name):
    layer, *inputs = drawn(rng, name, b=3)
    whole = call(layer, *inputs).numpy()
    for k in range(3):
        alone = call(layer, *(x[k : k + 1] for x in inputs)).numpy()
        np.testing.assert_allclose(alone, whole[k : k + 1], rtol=1e-10, atol=1e-10)


NEED_A_BATCH = "linear attention", "performer", "linformer", "conv", "cnn", "group norm", "batch"


@kinds(ROWS, WITH_CONTEXT, OF_ARRAYS, without=("dropout", *NEED_A_BATCH))
def test_one_sequence_needs_no_batch(rng, name):
    layer, *inputs = drawn(rng, name)
    whole = call(layer, *inputs).numpy()
    alone = call(layer, *(x[0] for x in inputs)).numpy()
    np.testing.assert_allclose(alone, whole[0], rtol=1e-10, atol=1e-10)


@kinds(*ALL)
def test_float32_stays_float32_and_differs_by_rounding(rng, name):
    layer, *inputs = drawn(rng, name)
    expected = call(layer, *inputs).numpy()
    narrow = deepcopy(layer).to(np.float32)
    narrowed = [x.numpy().astype("f4") if isinstance(x, mg.Tensor) else x for x in inputs]
    out = call(narrow, *narrowed)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
    narrow.backward(np.ones(out.shape, np.float32))
    assert {p.grad.dtype for p in narrow.parameters()} <= {np.dtype(np.float32)}


@kinds(*ALL)
def test_a_copy_a_pickle_and_loaded_weights_compute_the_same_bits(rng, name):
    layer, *inputs = drawn(rng, name)
    others = deepcopy(layer), pickle.loads(pickle.dumps(layer)), deepcopy(layer)
    others[2].load_state_dict(layer.state_dict())
    expected = call(layer, *inputs)
    for other in others:
        assert_same(call(other, *inputs), expected, 0)
        assert not {id(p) for p in other.parameters()} & {id(p) for p in layer.parameters()}


@kinds(*ALL)
def test_given_arrays_backward_returns_what_a_leaf_gets_and_sets_each_grad(rng, name):
    """Whether the layer was called, or its forward by name."""
    layer, X, *others = drawn(rng, name)
    G = rng.normal(size=call(layer, X, *others).shape)
    layer.zero_grad()
    call(layer, X, *others).backward(G)
    wanted = [p.grad for p in layer.parameters()]
    for run in (layer, layer.forward):
        layer.zero_grad()
        call(run, X.numpy() if isinstance(X, mg.Tensor) else X, *others)
        returned = layer.backward(G)
        assert_same([p.grad for p in layer.parameters()], wanted, 1e-12)
        if isinstance(X, mg.Tensor):
            assert_same(returned, X.grad, 1e-12)
        else:
            assert returned is None


@kinds(*ALL)
def test_what_a_layer_gave_is_not_unpacked_into_two_where_an_argument_gives_two(rng, name):
    layer, *inputs = drawn(rng, name)
    out = call(layer, *inputs)
    arguments = signature(layer.forward).parameters
    pair = [name for name in ("return_weights", "return_state") if name in arguments]
    if pair:
        with pytest.raises(mg.errors.ShapeError, match=rf"layer\(X, {pair[0]}=True\)"):
            _, _ = out
        out = call(layer, *inputs, **{pair[0]: True})[0]
    assert len([*out[:]]) == len(out)


@kinds(ROWS, without=("sinusoidal",))
def test_training_and_evaluation_differ_only_where_something_is_dropped(rng, name):
    layer, X = drawn(rng, name)
    first, second = layer(X).numpy(), layer(X).numpy()
    layer.eval()
    third, fourth = layer(X).numpy(), layer(X).numpy()
    assert (third == fourth).all()
    drops = "dropout" in name
    assert (first != second).any() == drops
    assert (first != third).any() == drops


@kinds(*ALL)
def test_a_compiled_step_is_the_eager_one_and_keeps_the_same_weights_of_attention(rng, name):
    layer, *inputs = drawn(rng, name)

    def step(*inputs):
        layer.zero_grad()
        out = call(layer, *inputs)
        (out * out).sum().backward()
        return out

    compiled, results = mg.compile(step), []
    for run in (compiled, compiled, compiled, step):
        out = run(*inputs).numpy()
        kept = getattr(layer, "attention_weights", None)
        results.append([out, *(p.grad.copy() for p in layer.parameters()), kept])
    assert compiled.reasons == []
    for compiled_result in results[:-1]:
        for mine, eager in zip(compiled_result, results[-1], strict=True):
            if eager is not None:
                np.testing.assert_allclose(mine, eager, rtol=1e-9, atol=1e-9)
