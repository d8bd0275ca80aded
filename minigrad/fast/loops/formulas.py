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


TAILS = {
    types.float32: polynomial([*map(np.float32, SHORT_TAIL[::-1])]),
    types.float64: polynomial([*map(np.float64, TAIL[::-1])]),
}


def exp(x: Any) -> Any:
    """e^x"""


def tail_of(t: Any) -> Any:
    """The polynomial of Φ: see `normal_tail` in ops."""


@overload(exp, jit_options={"forceinline": True, "error_model": "numpy", "fastmath": RELAXED})
def _(x):
    return EXP[x]


@overload(tail_of, jit_options={"forceinline": True})
def _(t):
    tail = TAILS[t]
    return lambda t: tail(t)


@inlined
def cdf(x, density):
    """Φ(x), of x and e^(-x²/2): see `normal_cdf` in ops."""
    T = type(x)
    over = min(abs(x), T(40)) + T(4)  # beyond, Φ(-|x|) is 0
    tail = tail_of((over - T(8)) / over) / over * density
    return T(1) - tail if x >= T(0) else tail


@inlined
def logistic(x):
    """σ(x)"""
    return type(x)(1) / (type(x)(1) + exp(-x))


@inlined
def tanh(x):
    """tanh x = 2 σ(2x) - 1"""
    return type(x)(2) * logistic(type(x)(2) * x) - type(x)(1)


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


# ---------------------------------------------------------------- rows


@loop
def norm(x, w, b, eps, centred, y, mean, inverse):
    """y = x̂ w + b,    x̂ = (x - μ) / σ,    σ² = mean((x - μ)²) + ε;    μ = 0 unless centred"""
    T = x.dtype.type
    n = x.shape[1]
    for r in range(len(x)):
        mu = 0.0
        if centred:
            for j in range(n):
                mu += x[r, j]
            mu /= n
        squares = 0.0
        for j in range(n):
            squares += (x[r, j] - mu) * (x[r, j] - mu)
        k = 1 / math.sqrt(squares / n + eps)
        for j in range(n):
            y[r, j] = T((x[r, j] - mu) * k) * w[j] + b[j]
        mean[r] = mu
        inverse[r] = k


@loop
def d_norm(g, x, w, mean, inverse, centred, d, dw):
    """∂x = (ĝ - mean(ĝ) - x̂ mean(ĝ x̂)) / σ with ĝ = g w, and no mean(ĝ) unless centred;
    ∂w = Σ g x̂
    """
    T = x.dtype.type
    n = x.shape[1]
    for r in range(len(x)):
        mu = mean[r]
        k = inverse[r]
        total = T(0)
        along = T(0)
        for j in range(n):
            d[r, j] = T((x[r, j] - mu) * k)  # x̂ for now
            total += g[r, j] * w[j]
            along += g[r, j] * w[j] * d[r, j]
            dw[j] += g[r, j] * d[r, j]
        average = total / T(n) if centred else T(0)
        along /= T(n)
        for j in range(n):
            d[r, j] = (g[r, j] * w[j] - average - d[r, j] * along) * T(k)


# ---------------------------------------------------------------- windows (C, height, width, N)


@loop
def max_pool(x, size, stride, y):
    """y_ij = max_kl x_(is+k, jt+l), over windows of K × L at strides s and t; NaN where one is"""
    s, t = stride
    for c, i, j in np.ndindex(y.shape[:3]):
        y[c, i, j] = x[c, i * s, j * t]
        for k, l in np.ndindex(size):
            entry = x[c, i * s + k, j * t + l]
            for n in range(y.shape[3]):
                top = y[c, i, j, n]
                y[c, i, j, n] = top if (entry[n] <= top) | (top != top) else entry[n]


@loop
def d_max_pool(g, y, x, size, stride, d):
    """∂x_(is+k, jt+l) = Σ g_ij [x_(is+k, jt+l) is the first that is y_ij]"""
    s, t = stride
    none = g.dtype.type(0)
    left = np.empty_like(g[0, 0, 0])
    for c, i, j in np.ndindex(y.shape[:3]):
        left[:] = g[c, i, j]
        top = y[c, i, j]
        for k, l in np.ndindex(size):
            entry = x[c, i * s + k, j * t + l]
            total = d[c, i * s + k, j * t + l]
            for n in range(y.shape[3]):
                is_it = (entry[n] == top[n]) | ((entry[n] != entry[n]) & (top[n] != top[n]))
                total[n] += left[n] if is_it else none
                left[n] = none if is_it else left[n]


# ---------------------------------------------------------------- gates of the LSTM


@loop
def lstm_step(z, c, c_new, shown, h_new):
    """z ← i, f, n, o = σ, σ, tanh, σ of z;    c_new = f c + i n;    h_new = o tanh c_new"""
    for k in range(c.size):
        i = logistic(z[0, k])
        f = logistic(z[1, k])
        n = tanh(z[2, k])
        o = logistic(z[3, k])
        c_new[k] = f * c[k] + i * n
        shown[k] = tanh(c_new[k])
        h_new[k] = o * shown[k]
        z[0, k] = i
        z[1, k] = f
        z[2, k] = n
        z[3, k] = o


@loop
def d_lstm_step(z, d_z, c, shown, d_h, d_c):
    """∂c_new += ∂h o (1 - tanh² c_new);    ∂z = slopes of i, f, n and o times what they meet;
    ∂c = ∂c_new f
    """
    one = c.dtype.type(1)
    for k in range(c.size):
        i = z[0, k]
        f = z[1, k]
        n = z[2, k]
        o = z[3, k]
        s = shown[k]
        to_c = d_c[k] + d_h[k] * o * (one - s * s)
        d_z[0, k] = to_c * n * i * (one - i)
        d_z[1, k] = to_c * c[k] * f * (one - f)
        d_z[2, k] = to_c * i * (one - n * n)
        d_z[3, k] = d_h[k] * s * o * (one - o)
        d_c[k] = to_c * f


# ---------------------------------------------------------------- a step of the optimizer


@loop
def adam(w, g, m, v, b1, b2, share, eps, rate):
    """m ← β₁ m + g;    v ← β₂ v + share · g², share = 1-β₂;    w ← w - rate · m / (√v + ε)"""
    for i in range(w.size):
        m[i] = b1 * m[i] + g[i]
        v[i] = b2 * v[i] + share * (g[i] * g[i])
        w[i] -= rate * m[i] / (math.sqrt(v[i]) + eps)
