"""Sums and squares in narrow dtypes: as right as the result's dtype can say, at every scale."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same


def _in_dtype_and_float64(call, arrays, g=None):
    """The result and all gradients, in the arrays' dtype and in float64."""
    for dtype in (arrays[0].dtype, np.float64):
        leaves = [mg.tensor(a.astype(dtype), requires_grad=True) for a in arrays]
        out = call(*leaves)
        u = np.linspace(0.5, 1.5, out.size).reshape(out.shape) if g is None else g
        gradients = mg.grad(out, leaves, u.astype(arrays[0].dtype))
        assert {a.dtype for a in (out, *gradients)} == {np.dtype(dtype)}
        yield [a.astype(np.float64) for a in (out.numpy(), *gradients)]


LONG_ROWS = {
    "sum": lambda x: mg.sum(x * 0.01, axis=-1),
    "var": lambda x: mg.var(x, axis=-1),
    "cumsum": lambda x: mg.cumsum(x * 0.01, axis=-1),
    "softmax": mg.softmax,
    "log_softmax": mg.log_softmax,
    "logsumexp": lambda x: mg.logsumexp(x, axis=-1),
    "cross_entropy": lambda x: mg.cross_entropy(x, np.array([3, 0])),
    "max of equal entries": lambda x: mg.max((x - x.detach()).reshape(-1, 2), axis=0),
    "einsum": lambda x: mg.einsum("ij->j", x.reshape(-1, 2) * 0.01),
    "avg_pool": lambda x: mg.avg_pool(x[None], 5000),
    "max_pool of windows that overlap": lambda x: mg.max_pool(x[None], 2500, stride=1),
    "take": lambda x: mg.take(x[:, 7], np.zeros(5000, int)),
    "scatter_add": lambda x: mg.scatter_add(x[0] * 0.01, np.zeros(5000, int), (2,)),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("name", LONG_ROWS)
def test_long_rows_are_those_of_float64_rounded(name, dtype, rng):
    """Of float16, 5000 ones would stop at 2048."""
    x = (1 + rng.uniform(-0.5, 0.5, (2, 5000))).astype(dtype)
    found, exact = _in_dtype_and_float64(LONG_ROWS[name], [x])
    tolerance = 4e-3 if dtype == np.float16 else 2e-5
    assert_same(found, exact, 2 * tolerance)
    assert_same(found[0], exact[0], tolerance)


@pytest.mark.parametrize("f", [mg.mean, mg.std, lambda x: mg.max(x - x.detach())])
def test_more_entries_than_a_float16_counts_are_averaged_in_it(f, rng):
    """70,000 is infinite in float16, and what is divided by it is 0."""
    x = rng.uniform(0.5, 1.5, 70_000).astype(np.float16)
    found, exact = _in_dtype_and_float64(f, [x], np.array(1000.0))
    assert_same(found, exact, 4e-3)


MANY_ROWS = {
    **{
        name: lambda x, name=name: getattr(mg, name)(x, axis=0)
        for name in ("sum", "mean", "var", "cumsum", "logsumexp")
    },
    **{
        f"{name} of the transpose": lambda x, name=name: getattr(mg, name)(x.T, axis=-1)
        for name in ("sum", "var", "softmax")
    },
    "sum over two axes": lambda x: mg.sum(x.reshape(4, -1, 3), axis=(0, 1)),
    "sum over the first and the last": lambda x: mg.mean(x.reshape(-1, 4, 3), axis=(0, 2)),
    "einsum": lambda x: mg.einsum("ij->j", x),
    "batch_norm": lambda x, b: mg.batch_norm(x, None, b),
    "bias": lambda x, b: x + b,
}


@pytest.mark.parametrize("name", MANY_ROWS)
def test_sums_over_many_rows_lose_no_digits(name, rng):
    """NumPy adds rows one after the other: 20,000 of them would cost 20 to 200 eps."""
    call = MANY_ROWS[name]
    arrays = [rng.normal(0.5, 1.0, (20_000, 3)).astype(np.float32), np.zeros(3, np.float32)]
    found, exact = _in_dtype_and_float64(
        call, arrays if "b" in call.__code__.co_varnames else arrays[:1]
    )
    for a, b in zip(found, exact, strict=True):
        bound = 8 * np.finfo(np.float32).eps * np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=bound)


NORMS = {
    "layer_norm": (lambda x, w: mg.layer_norm(x, w, None), (3, 96), 96),
    "layer_norm of many": (lambda x, w: mg.layer_norm(x, w, None), (47, 96), 96),
    "rms_norm": (mg.rms_norm, (3, 96), 96),
    "rms_norm of many": (mg.rms_norm, (47, 96), 96),
    "batch_norm": (lambda x, w: mg.batch_norm(x, w, None), (7, 11, 97), 11),
}


SCALES = [1e-30, 1e-10, 1e-4, 1.0, 300.0, 1e4, 1e10, 1e30]
SCALES_OF_DTYPES = [
    (dtype, scale)
    for dtype in (np.float16, np.float32)
    for scale in SCALES
    if scale < float(np.finfo(dtype).max) / 8
]


@pytest.mark.parametrize(("dtype", "scale"), SCALES_OF_DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_right_at_every_scale(name, dtype, scale, rng):
    """Forward and backward; squares of rows of 300 have no place in float16, of 1e30 in float32."""
    call, shape, width = NORMS[name]
    arrays = [rng.normal(size=shape) * scale, rng.uniform(0.5, 1.5, width)]
    g = rng.normal(size=shape)
    found, exact = _in_dtype_and_float64(call, [a.astype(dtype) for a in arrays], g)
    tolerance = 8e-3 if dtype == np.float16 else 4e-6
    tiny = float(np.finfo(dtype).smallest_subnormal)
    for a, b in zip(found, exact, strict=True):
        bound = tolerance * np.abs(b).max() + tiny
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=bound)


@pytest.mark.parametrize("row", [(1e4, 1), (0, 1e30), (0, 1e-30), (5, 0)])
@pytest.mark.parametrize("name", ["layer_norm of many", "rms_norm of many"])
def test_among_many_rows_one_far_from_0_or_huge_or_tiny_loses_no_digits(name, row, rng):
    call, shape, width = NORMS[name]
    x = rng.normal(size=shape)
    x[1] = row[0] + row[1] * x[1]
    arrays = [a.astype(np.float32) for a in (x, rng.uniform(0.5, 1.5, width))]
    found, exact = _in_dtype_and_float64(call, arrays, rng.normal(size=shape))
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b[:1]).max())


def test_a_norm_of_rows_that_lie_from_their_end_on_loses_no_digits(rng):
    """BLAS takes no such rows; one after the other, entries of one sign are added up less well."""
    x = rng.normal(10, 1, (5, 2003)).astype(np.float32)[:, ::-1]
    exact = mg.layer_norm(x.astype(np.float64), None, None)
    np.testing.assert_allclose(mg.layer_norm(x, None, None), exact, rtol=0, atol=3e-6)


@pytest.mark.parametrize("number", [1.1, 1e5, 1e10])
def test_layer_norm_of_a_row_of_one_number_is_zero(number):
    """In a sum of 768 equal float32 numbers, up to 20 units in the last place are rounded off."""
    rows = mg.tensor(np.full((7, 768), number, np.float32))
    compiled = mg.compile(lambda x: mg.layer_norm(x, None, None))
    for normed in (lambda x: mg.layer_norm(x, None, None), compiled, compiled):
        np.testing.assert_array_equal(normed(rows).data, 0)
