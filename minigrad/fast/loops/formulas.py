"""The loops: each reads as its formula, which stands above it, for float32 and float64 alike.

T is the dtype of the entries: a plain 1 would make float64 of float32. Sums are in float64. All
arrays are contiguous; a loop writes into its last ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...ops.functions import GAUSS, SHORT_TAIL, TAIL

RELAXED = {"contract", "reassoc"}  # sums in another order; NaN and infinities are as NumPy has them
loop = njit(cache=True, nogil=True, error_model="numpy", fastmath=RELAXED)
inlined = njit(forceinline=True, error_model="numpy", fastmath=RELAXED)
UNROLLED = 8  # steps of a loop that LLVM surely unrolls

# ---------------------------------------------------------------- functions of one number


def polynomial(terms):
    """t ↦ Σ_k a_k tᵏ, of the terms with the largest power first."""
    last = tuple(terms[-UNROLLED:])
    start = polynomial(terms[:-UNROLLED]) if terms[:-UNROLLED] else inlined(lambda t: t - t)

    def value(t):
        total = start(t)
        for term in last:
            total = total * t + term
        return total

    return inlined(value)


def exp_of(T, bits, digits, least, most, degree):
    """e^x = 2ⁿ e^r with x = n log 2 + r, and 2ⁿ made of bits: LLVM vectorises no call of C."""
    series = polynomial([T(1 / math.factorial(k)) for k in range(degree, -1, -1)])
    per_log2 = T(1 / math.log(2))
    log2 = T(0.693359375)  # in so few digits that n times it is exact
    rest = T(-2.121944400546905827679e-4)
    bias = (1 << (8 * np.dtype(T).itemsize - 2 - digits)) - 1
    half = T(0.5)
    zero = T(0)
    least = T(least)
    most = T(most)

    def value(x):
        bounded = min(max(x, least), most)
        n = bits(math.floor(bounded * per_log2 + half))
        r = bounded - T(n) * log2 - T(n) * rest
        power = bits((n + bias) << digits).view(T)
        return zero if x < least else series(r) * power

    return value


EXP = {
    types.float32: exp_of(np.float32, np.int32, 23, -87.3, 88.7, 7),
    types.float64: exp_of(np.float64, np.int64, 52, -708.3, 709.7, 13),
}
TERMS = {
    types.float32: polynomial([*map(np.float32, SHORT_TAIL[::-1])]),
    types.float64: polynomial([*map(np.float64, TAIL[::-1])]),
}


def exp(x: Any) -> Any:
    """e^x"""


def tail_terms(t: Any) -> Any:
    """The polynomial of Φ: see `normal_tail` in ops."""


@overload(exp, jit_options={"forceinline": True, "error_model": "numpy", "fastmath": RELAXED})
def _(x):
    return EXP[x]


@overload(
    tail_terms, jit_options={"forceinline": True, "error_model": "numpy", "fastmath": RELAXED}
)
def _(t):
    terms = TERMS[t]
    return lambda t: terms(t)


@inlined
def cdf(x, density):
    """Φ(x), of x and e^(-x²/2): see `normal_cdf` in ops."""
    T = type(x)
    over = min(abs(x), T(40)) + T(4)  # beyond, Φ(-|x|) is 0
    tail = tail_terms((over - T(8)) / over) / over * density
    return T(1) - tail if x >= T(0) else tail


@inlined
def logistic(x):
    """σ(x)"""
    return type(x)(1) / (type(x)(1) + exp(-x))


# ---------------------------------------------------------------- entries


@loop
def gelu(x, y):
    """y = x Φ(x)"""
    T = x.dtype.type
    for i in range(x.size):
        y[i] = x[i] * cdf(x[i], exp(T(-0.5) * x[i] * x[i]))


@loop
def d_gelu(g, x, d):
    """∂x = g (Φ(x) + x φ(x))"""
    T = x.dtype.type
    for i in range(x.size):
        density = exp(T(-0.5) * x[i] * x[i])
        d[i] = g[i] * (cdf(x[i], density) + x[i] * density * T(GAUSS))


@loop
def silu(x, y):
    """y = x σ(x)"""
    for i in range(x.size):
        y[i] = x[i] * logistic(x[i])


@loop
def d_silu(g, x, d):
    """∂x = g σ(x) (1 + x (1 - σ(x)))"""
    T = x.dtype.type
    for i in range(x.size):
        s = logistic(x[i])
        d[i] = g[i] * s * (T(1) + x[i] * (T(1) - s))


# ---------------------------------------------------------------- rows


@inlined
def largest(row, scratch):
    """The largest entry, by halves: LLVM vectorises no maximum that may be NaN."""
    m = row.size
    for j in range(m):
        scratch[j] = row[j]
    while m > 1:
        half = (m + 1) // 2
        for j in range(m - half):
            scratch[j] = max(scratch[j], scratch[half + j])
        m = half
    return max(scratch[0], np.finfo(row.dtype).min)  # finite in a row of nothing but -inf


@loop
def softmax(x, y):
    """y_j = e^(x_j - max x) / Σ_k e^(x_k - max x); zeros in a row of nothing but -inf"""
    T = x.dtype.type
    scratch = np.empty_like(x[0])
    for r in range(len(x)):
        top = largest(x[r], scratch)
        total = T(0)
        for j in range(x.shape[1]):
            e = exp(x[r, j] - top)
            y[r, j] = e
            total += e
        share = T(0) if total == T(0) else T(1) / total
        for j in range(x.shape[1]):
            y[r, j] *= share


@loop
def d_softmax(g, y, d):
    """∂x_j = y_j (g_j - Σ_k g_k y_k)"""
    T = y.dtype.type
    for r in range(len(y)):
        average = T(0)
        for j in range(y.shape[1]):
            average += g[r, j] * y[r, j]
        for j in range(y.shape[1]):
            d[r, j] = y[r, j] * (g[r, j] - average)


@loop
def layer_norm(x, w, b, eps, centred, y, mean, inverse):
    """y = x̂ w + b,    x̂ = (x - μ) / σ,    σ² = mean((x - μ)²) + ε;    μ = 0 unless centred"""
    T = x.dtype.type
    n = x.shape[1]
    for r in range(len(x)):
        total = 0.0
        for j in range(n):
            total += x[r, j]
        mu = total / n if centred else 0.0
        squares = 0.0
        for j in range(n):
            squares += (x[r, j] - mu) * (x[r, j] - mu)
        k = 1 / math.sqrt(squares / n + eps)
        for j in range(n):
            y[r, j] = T((x[r, j] - mu) * k) * w[j] + b[j]
        mean[r] = mu
        inverse[r] = k


@loop
def d_layer_norm(g, x, w, mean, inverse, centred, d, dw, db):
    """∂x = (ĝ - mean(ĝ) - x̂ mean(ĝ x̂)) / σ with ĝ = g w,    ∂w = Σ g x̂,    ∂b = Σ g"""
    T = x.dtype.type
    n = x.shape[1]
    for r in range(len(x)):
        mu = mean[r]
        k = inverse[r]
        total = 0.0
        along = 0.0
        for j in range(n):
            x_hat = T((x[r, j] - mu) * k)
            total += g[r, j] * w[j]
            along += g[r, j] * w[j] * x_hat
            dw[j] += g[r, j] * x_hat
            db[j] += g[r, j]
        average = total / n if centred else 0.0
        for j in range(n):
            x_hat = (x[r, j] - mu) * k
            d[r, j] = (g[r, j] * w[j] - average - x_hat * (along / n)) * k
