r"""The backward pass of attention, derived by hand: six steps for one head, seven for many.

This is what the engine is held against: plain NumPy that knows nothing of it, so a gradient on
which both agree was found twice. ∂Y is short for ∂L/∂Y; a product with Xᵀ also sums over the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from .steps import (
    AffineMap,
    Array,
    Step,
    StepList,
    dL,
    equations,
    of_maps,
    of_scale,
    scale_equations,
    tex_of,
)

__all__ = ["multi_head_steps", "self_attention_steps", "softmax_backward"]


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
        of_O = rf"{dL('out')} W_O^\top", grad_O
        steps.add("output projection", *equations(to_out), O=of_O, **of_maps(to_out))
    steps.add(
        "value weighting",
        "O = A V",
        A=(rf"{dL('O')} V^\top", grad_A),
        V=(rf"A^\top {dL('O')}", grad_V),
    )
    steps.add_softmax(mask, grad_S)
    title = "scale" if mask is None else "mask and scale"
    steps.add(title, *scale_equations(mask), **of_scale(mask, grad_S, grad_S_raw))
    steps.add(
        "scores",
        rf"{tex_of('S_raw')} = Q K^\top",
        Q=(rf"{dL('S_raw')} K", grad_Q),
        K=(rf"\left({dL('S_raw')}\right)^\top Q", grad_K),
    )
    maps: list[AffineMap] = [
        ("Q", "X", "Q", X, b_Q, grad_Q),
        ("K", "X", "K", X, b_K, grad_K),
        ("V", "X", "V", X, b_V, grad_V),
    ]
    steps.add(
        "projections",
        *equations(maps),
        **of_maps(maps),
        X=(rf"{dL('Q')} W_Q^\top + {dL('K')} W_K^\top + {dL('V')} W_V^\top", grad_X),
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
    of_C = rf"{dL('out')} W_O^\top", grad_C
    steps.add("output projection", *equations(to_out), C=of_C, **of_maps(to_out))
    steps.add(
        "head merge",
        r"C = \operatorname{merge}\left(O\right)",
        O=(rf"\operatorname{{split}}\left({dL('C')}\right)", grad_O),
    )
    V_tex, K_tex = "V", tex_of(k)
    total = ""
    if group > 1:
        V_tex = r"\operatorname{repeat}\left(V\right)"
        K_tex = rf"\operatorname{{repeat}}\left({K_tex}\right)"
        total = r"\sum_{\mathrm{group}} "
    steps.add(
        "value weighting",
        f"O = A {V_tex}",
        A=(rf"{dL('O')} {V_tex}^\top", grad_A),
        V=(rf"{total}A^\top {dL('O')}", grad_V),
    )
    steps.add_softmax(mask, grad_S)
    steps.add(
        "scaling and scores",
        *scale_equations(mask),
        rf"{tex_of('S_raw')} = {tex_of(q)} {K_tex}^\top",
        **of_scale(mask, grad_S, grad_S_raw),
        **{q: (rf"{dL('S_raw')} {K_tex}", grad_Q_rot)},
        **{k: (rf"{total}\left({dL('S_raw')}\right)^\top {tex_of(q)}", grad_K_rot)},
    )
    if turns is not None:
        steps.add(
            "rotation",
            rf"{tex_of('Q_rot')} = R Q",
            rf"{tex_of('K_rot')} = R K",
            Q=(rf"R^\top {dL('Q_rot')}", grad_Q),
            K=(rf"R^\top {dL('K_rot')}", grad_K),
        )
    steps.add(
        "head split",
        *(rf"{s} = \operatorname{{split}}\left({tex_of(f'{s}_flat')}\right)" for s in "QKV"),
        **{
            f"{s}_flat": (rf"\operatorname{{merge}}\left({dL(s)}\right)", grad_flat)
            for s, grad_flat in zip("QKV", (grad_Q_flat, grad_K_flat, grad_V_flat), strict=True)
        },
    )
    to_X = rf"{dL('Q_flat')} W_Q^\top"
    to_Y = rf"{dL('K_flat')} W_K^\top + {dL('V_flat')} W_V^\top"
    if context is None:
        of_inputs = {"X": (f"{to_X} + {to_Y}", grad_X + grad_Y)}
    else:
        of_inputs = {"X": (to_X, grad_X), "context": (to_Y, grad_Y)}
    maps: list[AffineMap] = [
        ("Q_flat", "X", "Q", X, b_Q, grad_Q_flat),
        ("K_flat", y, "K", Y, b_K, grad_K_flat),
        ("V_flat", y, "V", Y, b_V, grad_V_flat),
    ]
    steps.add("projections", *equations(maps), **of_maps(maps), **of_inputs)
    return steps


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


def _T(x: Array) -> Array:
    return x.swapaxes(-1, -2)
