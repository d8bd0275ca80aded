r"""The backward pass of attention, derived by hand: six steps for one head, seven for many.

This is what the engine is held against: plain NumPy that knows nothing of it, so a gradient on
which both agree was found twice. ∂Y is short for ∂L/∂Y; a product with Xᵀ also sums over the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Step",
    "attention_steps",
    "multi_head_steps",
    "online_softmax",
    "self_attention_steps",
    "softmax_backward",
]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the backward pass: an equation, and the gradients that come back through it.

    Attributes: forward: LaTeX.  formulas: of each symbol, the LaTeX of its gradient.  gradients: of
        each symbol, the array.

    >>> step = Step(1, "double", "Y = 2 X", {"X": r"2 \\bar Y"}, {"X": np.full(3, 2.0)})
    >>> step.gradients["X"]
    array([2., 2., 2.])
    """

    number: int
    title: str
    forward: str
    formulas: dict[str, str]
    gradients: dict[str, Array]


def softmax_backward(grad_output: Array, softmax_output: Array) -> Array:
    """The gradient through A = softmax(S), from ∂A and A alone:  ∂S = A ⊙ (∂A − rowsum(∂A ⊙ A)).

    From ∂A_ij / ∂S_ik = A_ij (δ_jk − A_ik). Where a mask forbids, A = 0, and so is the gradient.

    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.25, 0.75]))
    array([ 0.1875, -0.1875])
    """
    grad_A, A = grad_output, softmax_output
    return A * (grad_A - (grad_A * A).sum(axis=-1, keepdims=True))


def self_attention_steps(**call: Any) -> list[Step]:
    """The six backward steps of one head; see `attention_steps` for what it takes.

    >>> one = np.ones((1, 1))
    >>> steps = self_attention_steps(X=one, W_Q=one, W_K=one, W_V=one, W_O=one, grad_output=one)
    >>> steps[2].title, steps[2].gradients
    ('softmax', {'S': array([[0.]])})
    """
    return attention_steps(**call)


def multi_head_steps(*, n_heads: int, n_kv_heads: int | None = None, **call: Any) -> list[Step]:
    """The seven backward steps of n_heads; see `attention_steps` for what else it takes.

    >>> eye, X = np.eye(4), np.zeros((1, 3, 4))
    >>> steps = multi_head_steps(n_heads=2, X=X, W_Q=eye, W_K=eye, W_V=eye, W_O=eye, grad_output=X)
    >>> [step.title for step in steps][1::4]
    ['head merge', 'head split']
    """
    return attention_steps(n_heads=n_heads, n_kv_heads=n_kv_heads or n_heads, **call)


def attention_steps(
    *,
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    W_O: Array | None = None,
    b_Q: Array | None = None,
    b_K: Array | None = None,
    b_V: Array | None = None,
    b_O: Array | None = None,
    mask: Array | None = None,
    rules: list[Array] | None = None,
    context: Array | None = None,
    turns: tuple[Array, ...] | None = None,
    n_heads: int | None = None,
    n_kv_heads: int | None = None,
    grad_output: Array,
) -> list[Step]:
    r"""The backward steps of attention, from grad_output = ∂L/∂out to ∂L/∂X.

        one head:  out = O W_O + b_O,  O = A V,  A = softmax(S_masked),  S_masked = S + M,
                   S = S_raw / √d_k,   S_raw = Q Kᵀ,   Q = X W_Q + b_Q,  K, V alike
        many:      out = C W_O + b_O,  C = merge(O),  O as above in each head,  Q = split(Q_flat)

    Args:    W_O: None where out is O itself; the first step is then left out.  mask: True = may
             attend, or 0 / −inf to be added; its first of three axes is the batch.  rules: more of
             them.  context: Y, which K and V come from in place of X.  turns: of rotary positions,
             cos and sin for Q, and for K.  n_heads, n_kv_heads: of many heads; each of the second
             serves a group.
    Shapes:  X (B, n, d_model) or (n, d_model); W_Q (d_model, h d_k); mask broadcastable to
             (B, n, m) or (B, h, n, m); each gradient has the shape of its symbol.
    Edge:    a row that may attend nowhere has A = 0 and zero gradients.
    Source:  Vaswani et al. 2017, section 3.2, arXiv:1706.03762, by the chain rule; groups: Ainslie
             et al. 2023, arXiv:2305.13245.

    >>> one = np.ones((1, 1))
    >>> steps = attention_steps(X=3 * one, W_Q=one, W_K=one, W_V=one, W_O=one, grad_output=one)
    >>> [step.title for step in steps]
    ['output projection', 'value weighting', 'softmax', 'mask and scale', 'scores', 'projections']
    >>> float(steps[0].gradients["W_O"][0, 0])    # one token attends to itself: O = V = 3
    3.0
    """
    steps: list[Step] = []

    def back(title: str, forward: str, *lines: tuple[str, str, Array | None]) -> list[Array]:
        """Note a step: of each symbol the formula of its gradient, and the gradient if any."""
        has = [line for line in lines if line[2] is not None]
        gradients = {symbol: np.array(g) for symbol, _, g in has}
        formulas = {symbol: tex for symbol, tex, _ in has}
        steps.append(Step(len(steps) + 1, title, forward, formulas, gradients))
        return [*gradients.values()]

    many, Y = n_heads is not None, X if context is None else context
    h, h_kv = n_heads or 1, n_kv_heads or n_heads or 1
    group = h // h_kv
    split: Callable[..., Array] = _split_heads if many else lambda x, heads: x
    merge: Callable[[Array], Array] = _merge_heads if many else lambda x: x

    # ------------------------------------------------------------ forward

    Q = split(_affine(X, W_Q, b_Q), h)  # (B, h, n, d_k)
    K = split(_affine(Y, W_K, b_K), h_kv)  # (B, h_kv, m, d_k)
    V = split(_affine(Y, W_V, b_V), h_kv)  # (B, h_kv, m, d_v)
    scale = 1 / sqrt(Q.shape[-1])
    if turns is not None:
        Q, K = _turn(Q, *turns[:2]), _turn(K, *turns[2:])
    K_all, V_all = _repeat(K, group), _repeat(V, group)  # (B, h, m, d)
    S = scale * Q @ _T(K_all)  # (B, h, n, m)
    for one in (mask, *(rules or ())):
        S = _masked(S, one)
    A = _softmax(S)
    C = merge(A @ V_all)  # (B, n, h d_v)

    # ------------------------------------------------------------ backward

    sum_, repeat = "", "{}"
    if group > 1:
        sum_, repeat = r"\sum_{\mathrm{group}} ", r"\operatorname{{repeat}}\left({}\right)"
    g = grad_output
    if W_O is not None:
        z = "C" if many else "O"
        g = back(
            "output projection",
            rf"\mathrm{{out}} = {z} W_O" + ("" if b_O is None else " + b_O"),
            (z, rf"{_d('out')} W_O^\top", g @ W_O.T),
            ("W_O", rf"{z}^\top {_d('out')}", _rows(C).T @ _rows(g)),
            ("b_O", rf"\sum_{{b,i}} {_d('out')}", None if b_O is None else _rows(g).sum(axis=0)),
        )[0]
    if many:
        g = back(
            "head merge",
            r"C = \operatorname{merge}\left(O\right)",
            ("O", rf"\operatorname{{split}}\left({_d('C')}\right)", split(g, h)),
        )[0]
    dA, dV = back(
        "value weighting",
        f"O = A {repeat.format('V')}",
        ("A", rf"{_d('O')} {repeat.format('V')}^\top", g @ _T(V_all)),
        ("V", rf"{sum_}A^\top {_d('O')}", _sum_group(_T(A) @ g, group)),
    )
    rowsum = rf"\operatorname{{rowsum}}\left({_d('A')} \odot A\right)"
    last = "S" if mask is None else "S_masked"
    (dS,) = back(
        "softmax",
        rf"A = \operatorname{{softmax}}\left({_tex(last)}\right)",
        (last, rf"A \odot \left({_d('A')} - {rowsum}\right)", softmax_backward(dA, A)),
    )
    q, k = ("Q", "K") if turns is None else ("Q_rot", "K_rot")
    of_scale = (
        rf"{_tex('S_masked')} = S + M, \quad S = \frac{{{_tex('S_raw')}}}{{\sqrt{{d_k}}}}",
        ("S", _d("S_masked"), dS),
        ("S_raw", rf"\frac{{1}}{{\sqrt{{d_k}}}} {_d('S')}", scale * dS),
    )
    of_scores = (
        rf"{_tex('S_raw')} = {_tex(q)} {repeat.format(_tex(k))}^\top",
        (q, rf"{_d('S_raw')} {repeat.format(_tex(k))}", scale * dS @ K_all),
        (
            k,
            rf"{sum_}\left({_d('S_raw')}\right)^\top {_tex(q)}",
            _sum_group(scale * _T(dS) @ Q, group),
        ),
    )
    if many:  # one step in texts on many heads, two in those on one
        equations = rf"{of_scale[0]}, \quad {of_scores[0]}"
        *_, dQ, dK = back("scaling and scores", equations, *of_scale[1:], *of_scores[1:])
    else:
        back("mask and scale", *of_scale)
        dQ, dK = back("scores", *of_scores)
    if turns is not None:
        cos_i, sin_i, cos_j, sin_j = turns
        dQ, dK = back(
            "rotation",  # goes back by the opposite one
            rf"{_tex('Q_rot')} = R Q, \quad {_tex('K_rot')} = R K",
            ("Q", rf"R^\top {_d('Q_rot')}", _turn(dQ, cos_i, -sin_i)),
            ("K", rf"R^\top {_d('K_rot')}", _turn(dK, cos_j, -sin_j)),
        )
    names = ["Q", "K", "V"]
    if many:
        names = ["Q_flat", "K_flat", "V_flat"]
        dQ, dK, dV = back(
            "head split",
            r", \quad ".join(
                rf"{y} = \operatorname{{split}}\left({_tex(f'{y}_flat')}\right)" for y in "QKV"
            ),
            *(
                (f"{y}_flat", rf"\operatorname{{merge}}\left({_d(y)}\right)", merge(dy))
                for y, dy in zip("QKV", (dQ, dK, dV), strict=True)
            ),
        )
    y = "X" if context is None else "Y"
    uses = [*zip("QKV", names, ("X", y, y), (X, Y, Y), (b_Q, b_K, b_V), (dQ, dK, dV), strict=True)]
    ways = [rf"{_d(name)} W_{p}^\top" for p, name, *_ in uses]
    to_X, to_Y = dQ @ W_Q.T, dK @ W_K.T + dV @ W_V.T
    back(
        "projections",
        r", \quad ".join(
            f"{_tex(name)} = {z} W_{p}" + ("" if b is None else f" + b_{p}")
            for p, name, z, _, b, _ in uses
        ),
        *(
            (f"W_{p}", rf"{z}^\top {_d(name)}", _rows(Z).T @ _rows(dy))
            for p, name, z, Z, _, dy in uses
        ),
        *(
            (f"b_{p}", rf"\sum_{{b,i}} {_d(name)}", None if b is None else _rows(dy).sum(axis=0))
            for p, name, _, _, b, dy in uses
        ),
        ("X", " + ".join(ways), to_X + to_Y) if context is None else ("X", ways[0], to_X),
        ("context", " + ".join(ways[1:]), None if context is None else to_Y),
    )
    return steps


def online_softmax(Q: Array, K: Array, V: Array) -> Array:
    """O = softmax(Q Kᵀ / √d_k) V, one key after the other: no row of scores is ever whole.

        s = q · k_j / √d_k,    m′ = max(m, s),    c = e^(m − m′),    p = e^(s − m′),
        l ← c l + p,    o ← c o + p v_j;    and in the end  O = o / l

    What was summed under the old maximum m is multiplied by c when a larger score comes. This is
    how attention in tiles goes over keys, there many at a time.

    Shapes:  Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v) → (..., n, d_v)
    Source:  Milakov & Gimelshein 2018, arXiv:1805.02867.

    >>> Q, K, V = np.ones((1, 2, 5)), np.ones((1, 3, 5)), np.arange(3.0).reshape(1, 3, 1)
    >>> online_softmax(Q, K, V).ravel()
    array([1., 1.])
    """
    m: Any = -np.inf
    l: Any = 0.0
    o: Any = 0.0
    for j in range(K.shape[-2]):
        k, v = K[..., j : j + 1, :], V[..., j : j + 1, :]  # (..., 1, d)
        s = (Q * k).sum(axis=-1, keepdims=True) / sqrt(Q.shape[-1])  # (..., n, 1)
        larger = np.maximum(m, s)
        c, p = np.exp(m - larger), np.exp(s - larger)
        l = c * l + p  # (..., n, 1)
        o = c * o + p * v  # (..., n, d_v)
        m = larger
    return np.asarray(o / l)


# ---------------------------------------------------------------- parts of the forward


def _affine(X: Array, W: Array, b: Array | None) -> Array:
    return X @ W if b is None else X @ W + b


def _masked(S: Array, mask: Array | None) -> Array:
    """S + M, where a boolean mask stands for M = 0 where True and −inf where False."""
    if mask is None:
        return S
    mask = np.asarray(mask)
    while mask.ndim > S.ndim:  # of one sequence, (1, n, m) is (n, m)
        mask = mask[0]
    mask = mask[:, None] if mask.ndim == 3 and S.ndim == 4 else mask
    if mask.dtype == np.bool_:
        return np.where(mask, S, -np.inf)
    with np.errstate(over="ignore"):  # −1e9 is −inf to float16, and means it
        return S + mask.astype(S.dtype)


def _softmax(S: Array) -> Array:
    """Each row's maximum is subtracted first, so exp cannot overflow; a row of −inf gives zeros."""
    top = S.max(axis=-1, keepdims=True, initial=-np.inf)
    E = np.exp(S - np.where(np.isneginf(top), 0.0, top))
    total = E.sum(axis=-1, keepdims=True)
    return np.asarray(E / np.where(total == 0, 1.0, total))


def _turn(x: Array, cos: Array, sin: Array) -> Array:
    """Pairs (x_k, x_{k + d/2}) turned by angles of these cosines and sines."""
    cos, sin = (t[:, None] if t.ndim == 3 and x.ndim == 4 else t for t in (cos, sin))
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, a * sin + b * cos), axis=-1)


def _split_heads(x: Array, heads: int) -> Array:
    """(B, n, heads · d) → (B, heads, n, d)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)


def _merge_heads(x: Array) -> Array:
    """(B, heads, n, d) → (B, n, heads · d)."""
    x = x.swapaxes(-3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _repeat(x: Array, group: int) -> Array:
    """Each key-value head once for every query head of its group, in order."""
    return x if group == 1 else np.repeat(x, group, axis=-3)


def _sum_group(g: Array, group: int) -> Array:
    """The transpose of `_repeat`: a shared head's gradient is the sum over its group."""
    shape = (*g.shape[:-3], -1, group, *g.shape[-2:])
    return g if group == 1 else g.reshape(shape).sum(axis=-3)


def _rows(x: Array) -> Array:
    """(B, n, d) → (B · n, d), so that a product of two also sums over the batch."""
    return x.reshape(-1, x.shape[-1])


def _T(x: Array) -> Array:
    return x.swapaxes(-1, -2)


# ---------------------------------------------------------------- written down


def _tex(symbol: str) -> str:
    base, _, sub = symbol.partition("_")
    if symbol == "out":
        return r"\mathrm{out}"
    return rf"{base}_{{\mathrm{{{sub}}}}}" if sub.islower() else symbol


def _d(symbol: str) -> str:
    return rf"\frac{{\partial L}}{{\partial {_tex(symbol)}}}"
