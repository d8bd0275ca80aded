"""Overlays by loops: how the arrays of an op come to a loop, and when."""

from __future__ import annotations

from functools import cache
from warnings import warn

import numpy as np

from ...engine.plan import plan_of
from ...ops.activations import gelu, silu
from ...ops.norms import check_parameters, layer_norm, rms_norm
from ...ops.softmax import softmax
from ..overlay import faster, of_one_dtype
from . import formulas


def by_loop(op, when, auxiliary=()):
    """Declare an overlay for arrays of one dtype, as `faster` does; in each it is tried first."""

    def declare(kernel):
        def is_ready(*given):
            return when(*given) and works(given[0].dtype)

        @cache
        def works(dtype):
            try:
                for call in op.samples(np.random.default_rng(0)):
                    inputs, settings = op.bound(call.args, call.kwargs)
                    try_out(overlay, when, inputs, settings, dtype)
            except Exception as error:
                why = f"{op} runs without its loop in {dtype}, which fails: {error}. Mend that, or "
                remedy = "set MINIGRAD_LOOPS=0 in the environment to do without loops"
                warn(why + remedy, RuntimeWarning, stacklevel=2)
                return False
            return True

        overlay = faster(op, is_ready, auxiliary)(kernel)
        return overlay

    return declare


def try_out(overlay, when, inputs, settings, dtype):
    """Run an overlay and its rules on a sample of its op in this dtype, which compiles its loops.

    Raises: AssertionError if it gives other numbers than the op; what numba raises.
    """
    inputs = [x.astype(dtype) if getattr(x, "dtype", None) == np.float64 else x for x in inputs]
    if not (when(*inputs, *settings) and np.size(inputs[0])):
        return
    with np.errstate(all="ignore"):
        out, *by_products = results_of(overlay, inputs, settings)
        expected = results_of(overlay.of, inputs, settings)[0]
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
        plan = plan_of(overlay, 2 ** len(inputs) - 1)  # where all of them need a gradient
        saved = plan.take(*inputs, *settings, out, *by_products)
        for rule, places in zip(plan.rules, plan.places, strict=True):
            needed = [(True,) * len(rule.inputs)] if rule.takes_needed else []
            rule.function(out, *[saved[k] for k in places], *needed)


def results_of(op, inputs, settings):
    """The result, and the by-products if there are any."""
    results = op.flat(*inputs, *settings)
    return results if op.auxiliary else (results,)


# ---------------------------------------------------------------- entries


def laid_as(x, like):
    """x with the strides of another array, which has no gaps."""
    if x.strides == like.strides and x.dtype == like.dtype:
        return x
    copy = np.empty_like(like)
    copy[...] = x
    return copy


def entrywise(loop, *arrays):
    """What a loop makes of the entries of arrays, in the order of memory of the last."""
    result = np.empty_like(arrays[-1])
    loop(*[laid_as(x, result).ravel("K") for x in arrays], result.ravel("K"))
    return result


@by_loop(gelu, lambda x, approximate: approximate == "none" and of_one_dtype(x), ("cdf",))
def fast_gelu(x, approximate="none"):
    return entrywise(formulas.gelu, x), None


@fast_gelu.vjp("x")
def _(g, x):
    return entrywise(formulas.d_gelu, g, x)


@by_loop(silu, of_one_dtype)
def fast_silu(x):
    return entrywise(formulas.silu, x)


@fast_silu.vjp("x")
def _(g, x):
    return entrywise(formulas.d_silu, g, x)


# ---------------------------------------------------------------- rows


def rows_of(x):
    """As a matrix of its last axis' rows, one after the other."""
    return np.ascontiguousarray(x).reshape(-1, x.shape[-1])


def is_of_rows(x, axis):
    return axis in (-1, x.ndim - 1) and of_one_dtype(x)


@by_loop(softmax, is_of_rows)
def fast_softmax(x, axis=-1):
    y = np.empty(x.shape, x.dtype)
    formulas.softmax(rows_of(x), rows_of(y))
    return y


@fast_softmax.vjp("x")
def _(g, out):
    d = np.empty(out.shape, out.dtype)
    formulas.d_softmax(rows_of(g), rows_of(out), rows_of(d))
    return d


def has_parameters(x, weight, bias, eps):
    return weight is not None and bias is not None and of_one_dtype(x, weight, bias)


def has_weight(x, weight, eps):
    return weight is not None and of_one_dtype(x, weight)


def normalized(x, weight, bias, eps, centred):
    y = np.empty(x.shape, x.dtype)
    mean, inverse = np.empty((2, y.size // y.shape[-1]))
    given = np.ascontiguousarray(weight), np.ascontiguousarray(bias)
    formulas.layer_norm(rows_of(x), *given, eps, centred, rows_of(y), mean, inverse)
    return y, mean, inverse


def gradients(g, x, weight, mean, inverse, centred):
    d = np.empty(x.shape, x.dtype)
    sums = np.zeros((2, x.shape[-1]))
    weight = np.ascontiguousarray(weight)
    given = rows_of(g), rows_of(x), weight, mean, inverse, centred
    formulas.d_layer_norm(*given, rows_of(d), *sums)
    return d, *sums.astype(x.dtype)


@by_loop(layer_norm, has_parameters, ("mean", "inverse"))
def fast_layer_norm(x, weight, bias, eps=1e-5):
    check_parameters(x, -1, weight=weight, bias=bias)
    return normalized(x, weight, bias, eps, True)


@fast_layer_norm.vjp("x", "weight", "bias")
def _(g, x, weight, mean, inverse):
    return gradients(g, x, weight, mean, inverse, True)


@by_loop(rms_norm, has_weight, ("mean", "inverse"))
def fast_rms_norm(x, weight, eps=1e-5):
    check_parameters(x, -1, weight=weight)
    return normalized(x, weight, np.zeros_like(weight), eps, False)


@fast_rms_norm.vjp("x", "weight")
def _(g, x, weight, mean, inverse):
    return gradients(g, x, weight, mean, inverse, False)[:2]
