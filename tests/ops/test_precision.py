"""Sums and squares in narrow dtypes: as right as the result's dtype can say, at every scale."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

DTYPES = [np.float16, np.float32, np.float64]
MANY = 5000  # ones whose sum in float16 itself would stop at 2048


def _both(f, x):
    """The result and the gradient, in x's dtype and in float64."""
    for array in (x, x.astype(np.float64)):
        leaf = mg.tensor(array, requires_grad=True)
        out = f(leaf)
        yield out, mg.grad(out, leaf, np.linspace(0.5, 1.5, out.size).reshape(out.shape))


REDUCTIONS = {
    "sum": lambda x: mg.sum(x * 0.01, axis=-1),
    "mean": lambda x: mg.mean(x, axis=-1),
    "var": lambda x: mg.var(x, axis=-1),
    "cumsum": lambda x: mg.cumsum(x * 0.01, axis=-1),
    "softmax": mg.softmax,
    "log_softmax": mg.log_softmax,
    "logsumexp": lambda x: mg.logsumexp(x, axis=-1),
    "layer_norm": lambda x: mg.layer_norm(x, None, None),
    "rms_norm": lambda x: mg.rms_norm(x, None),
    "cross_entropy": lambda x: mg.cross_entropy(x, np.array([3, 0])),
}


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_long_rows_are_those_of_float64_rounded(name, dtype, rng):
    x = (1 + rng.uniform(-0.5, 0.5, (2, MANY))).astype(dtype)
    (out, gradient), (exact, slope) = _both(REDUCTIONS[name], x)
    assert out.dtype == gradient.dtype == dtype
    tolerance = 4e-3 if dtype == np.float16 else 2e-5
    assert_same(out.numpy().astype(np.float64), exact, tolerance)
    assert_same(gradient.astype(np.float64), slope, 2 * tolerance)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "var", "std", "cumsum", "logsumexp", "batch_norm", "bias"]
)
def test_sums_over_many_rows_lose_no_digits(name, rng):
    """NumPy adds rows one after the other: 20,000 of them would cost 20 to 200 eps."""
    rows, bias = rng.normal(0.5, 1.0, (20_000, 3)).astype(np.float32), np.zeros(3, np.float32)
    calls = {
        "cumsum": lambda x, b: mg.cumsum(x, axis=0),
        "batch_norm": lambda x, b: mg.batch_norm(x, None, b),
        "bias": lambda x, b: x + b,
    }
    call = calls.get(name, lambda x, b: getattr(mg, name)(x, axis=0))

    def taken(dtype):
        leaves = [mg.tensor(a.astype(dtype), requires_grad=True) for a in (rows, bias)]
        out = call(*leaves)
        g = np.linspace(0.5, 1.5, out.size, dtype=np.float32).reshape(out.shape).astype(dtype)
        asked = leaves if name in ("batch_norm", "bias") else leaves[:1]
        return [out.numpy(), *mg.grad(out, asked, g)]

    for found, exact in zip(taken(np.float32), taken(np.float64), strict=True):
        bound = 8 * np.finfo(np.float32).eps * np.abs(exact).max()
        np.testing.assert_allclose(found, exact, rtol=0, atol=bound)


SCALES = [1e-30, 1e-10, 1e-4, 1.0, 300.0, 1e4, 1e10, 1e30]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_are_right_at_every_scale(name, dtype, scale, rng):
    """Forward and backward, against the same in long double."""
    if scale > float(np.finfo(dtype).max) / 8:
        pytest.skip("no number of this dtype")
    x = (rng.normal(size=(3, 96)) * scale).astype(dtype)
    g, w = rng.normal(size=(3, 96)).astype(dtype), rng.uniform(0.5, 1.5, 96).astype(dtype)
    leaf, weight = mg.tensor(x, requires_grad=True), mg.tensor(w, requires_grad=True)
    out = mg.layer_norm(leaf, weight, None) if name == "layer_norm" else mg.rms_norm(leaf, weight)
    dx, dw = mg.grad(out, [leaf, weight], g)

    long = x.astype(np.longdouble)
    long = long - long.mean(-1, keepdims=True) if name == "layer_norm" else long
    r = np.sqrt((long**2).mean(-1, keepdims=True) + np.longdouble(1e-5))
    x_hat, g_hat = long / r, g.astype(np.longdouble) * w
    expected = g_hat - x_hat * (g_hat * x_hat).mean(-1, keepdims=True)
    if name == "layer_norm":
        expected -= g_hat.mean(-1, keepdims=True)
    tolerance = {2: 4e-3, 4: 2e-6, 8: 1e-13}[x.itemsize]
    tiny = float(np.finfo(dtype).smallest_subnormal)
    for found, right in ((out.numpy(), x_hat * w), (dx, expected / r), (dw, (g * x_hat).sum(0))):
        right = right.astype(np.float64)
        bound = 2 * tolerance * np.abs(right).max() + tiny
        np.testing.assert_allclose(found.astype(np.float64), right, rtol=2 * tolerance, atol=bound)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_batch_norm_is_right_at_every_scale(scale, rng):
    """Forward and backward, against the same in float64."""
    x, g = ((rng.normal(size=(7, 11, 97)) * s).astype(np.float32) for s in (scale, 1))
    w = rng.uniform(0.5, 1.5, 11).astype(np.float32)

    def taken(dtype):
        leaves = [mg.tensor(a.astype(dtype), requires_grad=True) for a in (x, w, w)]
        out = mg.batch_norm(*leaves)
        return [out.numpy(), *mg.grad(out, leaves, g.astype(dtype))]

    for found, exact in zip(taken(np.float32), taken(np.float64), strict=True):
        bound = 1e-5 * np.abs(exact).max()
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=1e-5, atol=bound)
