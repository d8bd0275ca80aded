"""Overlays by loops: how the arrays of an op come to a loop, and when."""

from __future__ import annotations

from contextvars import Context
from functools import cache
from warnings import warn

import numpy as np

from ...engine.tensor import tensor
from ...ops.activations import gelu
from ...ops.convolution import check_padding, max_pool, padded, per_axis, places_of
from ...ops.norms import check_parameters, layer_norm, rms_norm
from ..overlay import Overlay, faster, of_one_dtype
from ..overlays.recurrent import declare_lstm
from . import formulas


def tested(name, run):
    """Whether the loop of this name works in a dtype, which `run(dtype)` tries once."""

    @cache
    def works(dtype):
        try:
            Context().run(run, dtype)  # where nobody records
        except Exception as error:
            why = f"{name} runs without its loop in {dtype}, which fails: {error}. Mend that, or "
            remedy = "set MINIGRAD_LOOPS=0 in the environment to do without loops"
            warn(why + remedy, RuntimeWarning, stacklevel=2)
            return False
        return True

    return works


def by_loop(op, when, auxiliary=()):
    """Declare an overlay for arrays of one dtype, as `faster` does; in each it is tried first."""

    def declare(kernel):
        works = tested(op, lambda dtype: try_out(overlay, dtype))
        overlay: Overlay = faster(op, lambda *v: when(*v) and works(v[0].dtype), auxiliary)(kernel)
        return overlay

    return declare


def try_out(overlay, dtype):
    """Run an overlay and its rules on the first of its op's samples, which compiles its loops."""
    call = next(iter(overlay.of.samples(np.random.default_rng(0))))
    inputs, settings = overlay.of.bound(call.args, call.kwargs)
    tensors = [tensor(x.astype(dtype), requires_grad=True) for x in inputs]
    out = overlay(*tensors, **dict(zip(overlay.settings, settings, strict=True)))
    out.backward(out.numpy())


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


# ---------------------------------------------------------------- rows


def rows_of(x):
    """As a matrix of its last axis' rows, one after the other."""
    return np.ascontiguousarray(x).reshape(-1, x.shape[-1])


def has_weight(x, weight, *others):
    return weight is not None and of_one_dtype(x, weight, *others)


def normalized(x, weight, bias, eps, centred):
    check_parameters(x, -1, weight=weight, bias=bias)
    y = np.empty(x.shape, x.dtype)
    mean, inverse = np.empty((2, *x.shape[:-1], 1))
    shift = np.zeros_like(weight) if bias is None else bias
    given = rows_of(x), np.ascontiguousarray(weight), np.ascontiguousarray(shift), float(eps)
    formulas.norm(*given, centred, rows_of(y), mean.reshape(-1), inverse.reshape(-1))
    return y, mean, inverse


def gradients(g, x, weight, mean, inverse, centred):
    d = np.empty(x.shape, x.dtype)
    d_weight = np.zeros(x.shape[-1])
    given = (
        rows_of(g),
        rows_of(x),
        np.ascontiguousarray(weight),
        mean.reshape(-1),
        inverse.reshape(-1),
    )
    formulas.d_norm(*given, centred, rows_of(d), d_weight)
    return d, d_weight.astype(x.dtype)


@by_loop(layer_norm, has_weight, ("mu", "inverse"))
def fast_layer_norm(x, weight, bias, eps=1e-5):
    return normalized(x, weight, bias, eps, True)


@fast_layer_norm.vjp("x", "weight")
def _(g, x, weight, mu, inverse):
    return gradients(g, x, weight, mu, inverse, True)


@by_loop(rms_norm, has_weight, ("mu", "inverse"))
def fast_rms_norm(x, weight, eps=1e-5):
    return normalized(x, weight, None, eps, False)


@fast_rms_norm.vjp("x", "weight")
def _(g, x, weight, mu, inverse):
    return gradients(g, x, weight, mu, inverse, False)


# ---------------------------------------------------------------- windows


def windows_in(x, size, stride, padding):
    """Where windows are; x with its padding as (C, height, width, N); their sizes and strides."""
    places = places_of(x.shape, size, stride, padding)
    stride = size if stride is None else stride
    return places, padded(x, places, -np.inf), per_axis(size, 2, ""), per_axis(stride, 2, "")


def is_of_images(x, size, stride, padding):
    return x.ndim == 4 and of_one_dtype(x)


@by_loop(max_pool, is_of_images)
def fast_max_pool(x, size, stride=None, padding=0):
    check_padding(2, size, padding)
    places, whole, size, stride = windows_in(x, size, stride, padding)
    y = np.empty((x.shape[1], *places.out, len(x)), x.dtype)
    formulas.max_pool(whole, size, stride, y)
    return np.moveaxis(y, -1, 0)


@fast_max_pool.vjp("x")
def _(g, x, out, size, stride, padding):
    places, whole, size, stride = windows_in(x, size, stride, padding)
    g, out = [np.ascontiguousarray(np.moveaxis(v, 0, -1)) for v in (g, out)]
    d = np.zeros((x.shape[1], *places.padded, len(x)), x.dtype)
    formulas.d_max_pool(g, out, whole, size, stride, d)
    return np.moveaxis(d[places.inside], -1, 0)


# ---------------------------------------------------------------- recurrences


def flat(*arrays):
    return [x.reshape(-1) for x in arrays]


def step(z, *others):
    formulas.lstm_step(z.reshape(4, -1), *flat(*others))


def steps_back(gates, shown, cells, d_z):
    z, slopes = [x.reshape(len(x), 4, -1) for x in (gates, d_z)]

    def step_back(t, d_h, d_c):
        formulas.d_lstm_step(z[t], slopes[t], *flat(cells[t], shown[t], d_h, d_c))

    return step_back


declare_lstm(by_loop, step, steps_back)


# ---------------------------------------------------------------- a step of the optimizer


def try_adam(dtype):
    formulas.adam(*np.ones((4, 2), dtype), *np.ones(5, dtype))


adam_works = tested("Adam", try_adam)


def adam(w, g, m, v, *numbers):
    arrays = w, g, m, v
    takes = of_one_dtype(*arrays) and all([x.flags.c_contiguous for x in arrays])
    if not takes or not adam_works(w.dtype):
        return False
    formulas.adam(*flat(*arrays), *[w.dtype.type(n) for n in numbers])
    return True
