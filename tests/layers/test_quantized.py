"""Inference in 8-bit integers."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from tests.compare import assert_same
from tests.compiled import assert_compiles


@pytest.mark.parametrize("dtype", [float, int])
def test_a_matrix_of_integers_up_to_127_is_kept_exactly(rng, dtype):
    W = rng.integers(-127, 128, (11, 5)).astype(dtype)
    W[0] = 127
    np.testing.assert_array_equal(np.asarray(L.QuantizedWeight(W)), W)


def test_rounding_errs_by_half_a_scale_at_most(rng):
    W = rng.normal(size=(31, 7)) * np.logspace(-3, 3, 7)
    W[:, 3] = 0
    found = L.QuantizedWeight(W)
    assert (np.abs(np.asarray(found) - W) <= found.s / 2 + 1e-12).all()


@pytest.mark.parametrize("d_in", [7, 1040, 1041, 3001])
def test_products_are_those_of_integers_whatever_their_number(d_in):
    x = np.full((2, d_in), 127.0, np.float32)
    W = np.full((d_in, 3), -127.0, np.float32)
    W[0] = 126
    found = L.QuantizedWeight(W).product(x, None)
    np.testing.assert_array_equal(found, np.float32(127 * 126 - 127 * 127 * (d_in - 1)))


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 30.0])
def test_products_in_float16_neither_overflow_nor_wrap_around(rng, size):
    x = (size * rng.uniform(0.5, 1, (5, 600))).astype(np.float16)
    W = L.QuantizedWeight(rng.uniform(0.5, 1, (600, 3)).astype(np.float16) / 64)
    wanted = x.astype(float) @ np.asarray(W).astype(float)
    found = W.product(x, None)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.numpy().astype(float), wanted, rtol=0.02)


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (L.Linear(61, 31, rng=0), np.random.default_rng(0).normal(size=(5, 61))),
        (L.MultiHeadAttention(64, 4, rng=0), np.random.default_rng(0).normal(size=(2, 7, 64))),
        (L.TransformerBlock(64, 4, 128, rng=0), np.random.default_rng(0).normal(size=(2, 7, 64))),
        (L.LanguageModel(61, 64, 2, 4, rng=0), np.arange(14).reshape(2, 7)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_quantized_model_computes_the_same_to_a_few_percent_in_less_memory(model, example):
    before = model.state_dict()
    small = L.quantize(model, example)
    with mg.no_grad():
        wanted, found = model(example).numpy(), small(example).numpy()
    assert np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()
    assert np.abs(found - wanted).max() > 0
    assert L.weight_bytes(small) < L.weight_bytes(model) / 2
    assert_same(model.state_dict(), before, 0)


def test_the_gradient_takes_rounding_for_the_identity(rng):
    model = L.Linear(31, 7, rng=0)
    small, X = L.quantize(model, rng.normal(size=(5, 31))), rng.normal(size=(5, 31))
    g = rng.normal(size=(5, 7))
    model(X), small(X)
    np.testing.assert_allclose(small.backward(g), model.backward(g), rtol=0.05, atol=0.02)


def test_a_trace_shows_quantized_products_and_claims_no_steps_of_their_weights(rng):
    small = L.quantize(L.MultiHeadAttention(8, 2, rng=0), rng.normal(size=(1, 3, 8)))
    with mg.trace() as t:
        small(mg.tensor(rng.normal(size=(1, 3, 8)), requires_grad=True)).sum().backward()
    assert sum(entry.op == "quantized_linear" for entry in t) == 4
    assert t.check().measured == []


def test_quantized_weights_are_buffers_saved_and_loaded_also_under_a_compiled_step(rng, tmp_path):
    x = rng.normal(size=(5, 31))
    first, second = (L.quantize(L.Linear(31, 7, rng=seed), x) for seed in (0, 1))
    compiled = mg.compile(lambda x: second(x).detach())
    before = [compiled(x).numpy() for _ in range(3)][-1]
    assert [path for path, _ in first.named_buffers()] == ["W.q", "W.s"]
    mg.load(mg.save(tmp_path / "small.npz", model=first), model=second)
    assert np.abs(before - first(x).numpy()).max() > 0.1
    for found in (second(x), compiled(x)):
        assert_same(found, first(x), 0)


# ---------------------------------------------------------------- trained for it


def test_fake_quantize_rounds_to_few_integers_and_passes_gradients_straight_through():
    x = mg.tensor([-9.0, -0.7, 0.2, 0.3, 1.4, 1.6, 9.0], requires_grad=True)
    y = mg.fake_quantize(x, 0.5, 3)  # −3 to 3 halves
    np.testing.assert_array_equal(y.numpy(), [-1.5, -0.5, 0, 0.5, 1.5, 1.5, 1.5])
    np.testing.assert_array_equal(mg.grad(y.sum(), x), [0, 1, 1, 1, 1, 1, 0])
    for scale, bits in ((0.0, 8), (0.5, 1), (0.5, 2.5), (0.5, 65)):
        with pytest.raises(mg.errors.ArgumentError, match="bits"):
            mg.fake_quantize(x, scale, bits)
    with pytest.raises(mg.errors.ArgumentError, match="give the model's inputs too, quantize"):
        L.quantize(L.Linear(3, 2))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("scores", [False, True])
def test_a_model_trained_for_integers_computes_what_they_will(rng, bits, scores):
    """Its matrices stay parameters, which gradients reach; of integers made of it, the same."""
    model, X = L.TransformerBlock(16, 4, 32, rng=0), rng.normal(size=(2, 7, 16))
    learning = L.quantize(model, X, bits=bits, train=True, scores=scores)
    assert learning.training
    assert len(learning.parameters()) == len(model.parameters())
    assert all(p.requires_grad for p in learning.parameters())
    small = L.quantize(learning, X, bits=bits, scores=scores)
    with mg.no_grad():
        found, wanted = learning(X).numpy(), small(X).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
    learning(mg.tensor(X)).sum().backward()
    assert all(p.grad is not None and np.isfinite(p.grad).all() for p in learning.parameters())
    assert len({int(q) for q in small.attention.W_Q.q.numpy().ravel()}) <= 2**bits - 1
    if scores:  # of the range that the example showed, saved with the model
        with mg.no_grad(), mg.capture("transformer_block/attention/S") as seen:
            model(X)
        largest = np.abs(seen["transformer_block/attention/S"].value).max()
        step = learning.attention.rounding.step.item()
        assert step == pytest.approx(largest / (2 ** (bits - 1) - 1))
        assert "attention.rounding.step" in small.state_dict()


def test_a_compiled_step_of_training_for_integers_is_the_eager_one(rng):
    """Its scales are those of each call, not of the first."""
    X = rng.normal(size=(5, 31))
    learning = L.quantize(L.Linear(31, 7, rng=0), X, bits=4, train=True)
    calls = [(mg.tensor(X * k),) for k in range(1, 4)]
    assert_compiles(lambda x: learning(x).detach(), learning.parameters(), *calls)


def test_a_row_that_is_no_number_stays_none(rng):
    x = rng.normal(size=(3, 7))
    x[1, 2] = np.nan
    found = L.QuantizedWeight(rng.normal(size=(7, 5))).product(x, None).numpy()
    np.testing.assert_array_equal(np.isnan(found).T, [[False, True, False]] * 5)


def test_a_matrix_that_forward_keeps_is_no_weight(rng):
    class Attends(L.Module):
        def __init__(self):
            self.to_keys = L.Linear(5, 5, rng=rng)

        def forward(self, x):
            self.keys = self.to_keys(x)
            return mg.matmul(x, mg.transpose(self.keys)) + mg.matmul(x, self.keys)

    small = L.quantize(Attends(), rng.normal(size=(5, 5)))
    assert isinstance(small.keys, mg.Tensor)
    assert isinstance(small.to_keys.W, L.QuantizedWeight)
