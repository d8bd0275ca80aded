r"""The backward pass of attention, derived by hand: six steps for one head, seven for many.

This is what the engine is held against: plain NumPy that knows nothing of it, so a gradient on
which both agree was found twice. ∂Y is short for ∂L/∂Y; a product with Xᵀ also sums over the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Step",
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


def self_attention_steps(
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
    grad_output: Array,
) -> list[Step]:
    r"""The six backward steps of one head, from grad_output = ∂L/∂out to ∂L/∂X.

        out = O W_O + b_O,    O = A V,    A = softmax(S_masked),    S_masked = S + M,
        S = S_raw / √d_k,    S_raw = Q Kᵀ,    Q = X W_Q + b_Q,    K and V alike

    Args:    W_O: None where out is O itself; the first step is then left out.  b_Q, b_K, b_V, b_O:
             None without.  mask: M, True = may attend, or 0 / −inf to be added; of three axes the
             first is the batch.
    Shapes:  X (B, n, d_model) or (n, d_model); W_Q (d_model, d_k); mask broadcastable to (B, n, n);
             each gradient has the shape of its symbol.
    Edge:    a row that may attend nowhere has A = 0 and zero gradients.
    Source:  Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762, by the chain rule.

    >>> one = np.ones((1, 1))
    >>> steps = self_attention_steps(X=3 * one, W_Q=one, W_K=one, W_V=one, W_O=one, grad_output=one)
    >>> [step.title for step in steps]
    ['output projection', 'value weighting', 'softmax', 'scale', 'scores', 'projections']
    >>> float(steps[0].gradients["W_O"][0, 0])    # one token attends to itself: O = V = 3
    3.0
    """
    Q = _affine(X, W_Q, b_Q)  # (B, n, d_k)
    K = _affine(X, W_K, b_K)  # (B, n, d_k)
    V = _affine(X, W_V, b_V)  # (B, n, d_v)
    scale = 1 / sqrt(Q.shape[-1])
    S = scale * Q @ _T(K)  # (B, n, n)
    A = _softmax(_masked(S, mask))  # (B, n, n)
    O = A @ V  # (B, n, d_v)

    grad_O = grad_output if W_O is None else grad_output @ W_O.T  # 1   out = O W_O + b_O
    grad_A = grad_O @ _T(V)  # 2   O = A V
    grad_V = _T(A) @ grad_O
    grad_S = softmax_backward(grad_A, A)  # 3   A = softmax(S + M)
    grad_S_raw = scale * grad_S  # 4   S = S_raw / √d_k
    grad_Q = grad_S_raw @ K  # 5   S_raw = Q Kᵀ
    grad_K = _T(grad_S_raw) @ Q
    grad_X = grad_Q @ W_Q.T + (grad_K @ W_K.T + grad_V @ W_V.T)  # 6   Q = X W_Q + b_Q, K, V alike

    steps = StepList()
    if W_O is not None:
        to_out = [("out", "O", "O", O, b_O, grad_output)]
        of_O = rf"{_d('out')} W_O^\top", grad_O
        steps.add("output projection", *_equations(to_out), O=of_O, **_of_maps(to_out))
    steps.add(
        "value weighting",
        "O = A V",
        A=(rf"{_d('O')} V^\top", grad_A),
        V=(rf"A^\top {_d('O')}", grad_V),
    )
    steps.add_softmax(mask, grad_S)
    title = "scale" if mask is None else "mask and scale"
    steps.add(title, *_scale(mask), **_of_scale(mask, grad_S, grad_S_raw))
    steps.add(
        "scores",
        rf"{_tex('S_raw')} = Q K^\top",
        Q=(rf"{_d('S_raw')} K", grad_Q),
        K=(rf"\left({_d('S_raw')}\right)^\top Q", grad_K),
    )
    maps: list[AffineMap] = [
        ("Q", "X", "Q", X, b_Q, grad_Q),
        ("K", "X", "K", X, b_K, grad_K),
        ("V", "X", "V", X, b_V, grad_V),
    ]
    steps.add(
        "projections",
        *_equations(maps),
        **_of_maps(maps),
        X=(rf"{_d('Q')} W_Q^\top + {_d('K')} W_K^\top + {_d('V')} W_V^\top", grad_X),
    )
    return steps


def multi_head_steps(
    *,
    n_heads: int,
    n_kv_heads: int | None = None,
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    W_O: Array,
    b_Q: Array | None = None,
    b_K: Array | None = None,
    b_V: Array | None = None,
    b_O: Array | None = None,
    mask: Array | None = None,
    rules: Sequence[Array] | None = None,
    context: Array | None = None,
    turns: tuple[Array, ...] | None = None,
    grad_output: Array,
) -> list[Step]:
    r"""The seven backward steps of n_heads; one more where positions turn Q and K.

        out = C W_O + b_O,    C = merge(O),    O as `self_attention_steps` has it, in each head,
        Q = split(Q_flat),    Q_flat = X W_Q + b_Q;    K and V alike

    Args:    n_kv_heads: each of them serves a group of heads.  rules: more masks.  context: Y,
             which K and V come from in place of X.  turns: of rotary positions, cos and sin for Q,
             and for K.  The rest as `self_attention_steps`.
    Shapes:  W_Q (d_model, h d_k); mask broadcastable to (B, n, m) or (B, h, n, m).
    Source:  Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762, by the chain rule; groups:
             Ainslie et al. 2023, arXiv:2305.13245.

    >>> eye, X = np.eye(4), np.zeros((1, 3, 4))
    >>> steps = multi_head_steps(n_heads=2, X=X, W_Q=eye, W_K=eye, W_V=eye, W_O=eye, grad_output=X)
    >>> [step.title for step in steps][1::4]
    ['head merge', 'head split']
    """
    h, h_kv = n_heads, n_kv_heads or n_heads
    group = h // h_kv
    Y, y = (X, "X") if context is None else (context, "Y")
    Q = _split_heads(_affine(X, W_Q, b_Q), h)  # (B, h, n, d_k)
    K = _split_heads(_affine(Y, W_K, b_K), h_kv)  # (B, h_kv, m, d_k)
    V = _split_heads(_affine(Y, W_V, b_V), h_kv)  # (B, h_kv, m, d_v)
    q, k = "Q", "K"
    if turns is not None:
        cos_i, sin_i, cos_j, sin_j = turns
        Q, K = _turn(Q, cos_i, sin_i), _turn(K, cos_j, sin_j)
        q, k = "Q_rot", "K_rot"
    K_all = np.repeat(K, group, axis=-3)  # (B, h, m, d): each for every head of its group, in order
    V_all = np.repeat(V, group, axis=-3)
    scale = 1 / sqrt(Q.shape[-1])
    S = scale * Q @ _T(K_all)  # (B, h, n, m)
    for M in (mask, *(rules or [])):
        S = _masked(S, M)
    A = _softmax(S)  # (B, h, n, m)
    C = _merge_heads(A @ V_all)  # (B, n, h d_v)

    grad_C = grad_output @ W_O.T  # 1   out = C W_O + b_O
    grad_O = _split_heads(grad_C, h)  # 2   C = merge(O)
    grad_A = grad_O @ _T(V_all)  # 3   O = A V
    grad_V = _sum_group(_T(A) @ grad_O, group)
    grad_S = softmax_backward(grad_A, A)  # 4   A = softmax(S + M)
    grad_S_raw = scale * grad_S  # 5   S = S_raw / √d_k, S_raw = Q Kᵀ
    grad_Q = grad_Q_rot = grad_S_raw @ K_all
    grad_K = grad_K_rot = _sum_group(_T(grad_S_raw) @ Q, group)
    if turns is not None:  # goes back by the opposite rotation
        grad_Q, grad_K = _turn(grad_Q_rot, cos_i, -sin_i), _turn(grad_K_rot, cos_j, -sin_j)
    grad_Q_flat = _merge_heads(grad_Q)  # 6   Q = split(Q_flat)
    grad_K_flat = _merge_heads(grad_K)
    grad_V_flat = _merge_heads(grad_V)
    grad_X = grad_Q_flat @ W_Q.T  # 7   Q_flat = X W_Q + b_Q
    grad_Y = grad_K_flat @ W_K.T + grad_V_flat @ W_V.T

    steps = StepList()
    to_out = [("out", "C", "O", C, b_O, grad_output)]
    of_C = rf"{_d('out')} W_O^\top", grad_C
    steps.add("output projection", *_equations(to_out), C=of_C, **_of_maps(to_out))
    steps.add(
        "head merge",
        r"C = \operatorname{merge}\left(O\right)",
        O=(rf"\operatorname{{split}}\left({_d('C')}\right)", grad_O),
    )
    V_tex, K_tex = "V", _tex(k)
    total = ""
    if group > 1:
        V_tex = r"\operatorname{repeat}\left(V\right)"
        K_tex = rf"\operatorname{{repeat}}\left({K_tex}\right)"
        total = r"\sum_{\mathrm{group}} "
    steps.add(
        "value weighting",
        f"O = A {V_tex}",
        A=(rf"{_d('O')} {V_tex}^\top", grad_A),
        V=(rf"{total}A^\top {_d('O')}", grad_V),
    )
    steps.add_softmax(mask, grad_S)
    steps.add(
        "scaling and scores",
        *_scale(mask),
        rf"{_tex('S_raw')} = {_tex(q)} {K_tex}^\top",
        **_of_scale(mask, grad_S, grad_S_raw),
        **{q: (rf"{_d('S_raw')} {K_tex}", grad_Q_rot)},
        **{k: (rf"{total}\left({_d('S_raw')}\right)^\top {_tex(q)}", grad_K_rot)},
    )
    if turns is not None:
        steps.add(
            "rotation",
            rf"{_tex('Q_rot')} = R Q",
            rf"{_tex('K_rot')} = R K",
            Q=(rf"R^\top {_d('Q_rot')}", grad_Q),
            K=(rf"R^\top {_d('K_rot')}", grad_K),
        )
    steps.add(
        "head split",
        *(rf"{s} = \operatorname{{split}}\left({_tex(f'{s}_flat')}\right)" for s in "QKV"),
        **{
            f"{s}_flat": (rf"\operatorname{{merge}}\left({_d(s)}\right)", grad_flat)
            for s, grad_flat in zip("QKV", (grad_Q_flat, grad_K_flat, grad_V_flat), strict=True)
        },
    )
    to_X = rf"{_d('Q_flat')} W_Q^\top"
    to_Y = rf"{_d('K_flat')} W_K^\top + {_d('V_flat')} W_V^\top"
    if context is None:
        of_inputs = {"X": (f"{to_X} + {to_Y}", grad_X + grad_Y)}
    else:
        of_inputs = {"X": (to_X, grad_X), "context": (to_Y, grad_Y)}
    maps: list[AffineMap] = [
        ("Q_flat", "X", "Q", X, b_Q, grad_Q_flat),
        ("K_flat", y, "K", Y, b_K, grad_K_flat),
        ("V_flat", y, "V", Y, b_V, grad_V_flat),
    ]
    steps.add("projections", *_equations(maps), **_of_maps(maps), **of_inputs)
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


def _sum_group(g: Array, group: int) -> Array:
    """The gradient of a head that serves a group is the sum over the group."""
    return g.reshape(*g.shape[:-3], -1, group, *g.shape[-2:]).sum(axis=-3)


def _rows(x: Array) -> Array:
    """(B, n, d) → (B · n, d), so that a product of two also sums over the batch."""
    return x.reshape(-1, x.shape[-1])


def _T(x: Array) -> Array:
    return x.swapaxes(-1, -2)


# ---------------------------------------------------------------- written down

Line: TypeAlias = tuple[str, Array]  # the formula of a gradient, and the gradient
# Of y = x W_s + b_s: the symbols y, x and s, then x, b_s or None, and ∂y.
AffineMap: TypeAlias = tuple[str, str, str, Array, Array | None, Array]


class StepList(list[Step]):
    """The steps so far, in order."""

    def add(self, title: str, *forward: str, **lines: Line) -> None:
        """One more: its equations, and of each symbol the formula of its gradient, and that."""
        formulas = {symbol: tex for symbol, (tex, _) in lines.items()}
        gradients = {symbol: np.array(gradient) for symbol, (_, gradient) in lines.items()}
        equations = r", \quad ".join(forward)
        self.append(Step(len(self) + 1, title, equations, formulas, gradients))

    def add_softmax(self, mask: Array | None, grad_S: Array) -> None:
        """The step of A = softmax(S), or of S_masked where there is a mask."""
        S = "S" if mask is None else "S_masked"
        rowsum = rf"\operatorname{{rowsum}}\left({_d('A')} \odot A\right)"
        of_S = rf"A \odot \left({_d('A')} - {rowsum}\right)", grad_S
        self.add("softmax", rf"A = \operatorname{{softmax}}\left({_tex(S)}\right)", **{S: of_S})


def _tex(symbol: str) -> str:
    base, _, sub = symbol.partition("_")
    if symbol == "out":
        return r"\mathrm{out}"
    return rf"{base}_{{\mathrm{{{sub}}}}}" if sub.islower() else symbol


def _d(symbol: str) -> str:
    return rf"\frac{{\partial L}}{{\partial {_tex(symbol)}}}"


def _equations(maps: Sequence[AffineMap]) -> list[str]:
    """y = x W, or y = x W + b, of each map."""
    return [
        f"{_tex(y)} = {x} W_{s}" + ("" if b is None else f" + b_{s}") for y, x, s, _, b, _ in maps
    ]


def _of_maps(maps: Sequence[AffineMap]) -> dict[str, Line]:
    """The gradients of each W, ∂W = xᵀ ∂y, and of each b, ∂b = Σ ∂y, if there is one."""
    lines: dict[str, Line] = {}
    for y, x, s, X, _, grad_y in maps:
        lines[f"W_{s}"] = rf"{x}^\top {_d(y)}", _rows(X).T @ _rows(grad_y)
    for y, _, s, _, b, grad_y in maps:
        if b is not None:
            lines[f"b_{s}"] = rf"\sum_{{b,i}} {_d(y)}", _rows(grad_y).sum(axis=0)
    return lines


def _scale(mask: Array | None) -> list[str]:
    """S_masked = S + M, where there is a mask, and S = S_raw / √d_k."""
    scale = rf"S = \frac{{{_tex('S_raw')}}}{{\sqrt{{d_k}}}}"
    return [scale] if mask is None else [rf"{_tex('S_masked')} = S + M", scale]


def _of_scale(mask: Array | None, grad_S: Array, grad_S_raw: Array) -> dict[str, Line]:
    """The gradients of S in S_masked = S + M, if masked, and of S_raw in S = S_raw / √d_k."""
    of_raw = rf"\frac{{1}}{{\sqrt{{d_k}}}} {_d('S')}", grad_S_raw
    return {"S_raw": of_raw} if mask is None else {"S": (_d("S_masked"), grad_S), "S_raw": of_raw}
